/* tests/fuzz/sampler_fuzz.c: any bytes as the sampler's part of a request body, as a vocabulary and
 * as tokens. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "sampler/sampler.h"

#define N_VOCAB 40u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Takes n bytes, or as many as are left, in a copy of that size: what is read beyond it is seen. */
static struct span take(const uint8_t **data, size_t *size, size_t n)
{
	n = n < *size ? n : *size;
	char *copy = malloc(n ? n : 1);
	if (!copy)
		abort();
	memcpy(copy, *data, n);
	*data += n;
	*size -= n;
	return (struct span){copy, n};
}

static void drop(struct span span)
{
	free((void *)(uintptr_t)span.ptr);
}

/* Text that was released is whole UTF-8 characters. */
static void text_check(struct span text)
{
	for (size_t i = 0, n; i < text.len; i += n)
		if ((n = utf8_length(text.ptr + i, text.len - i)) == 0)
			abort();
}

static void run(struct smp_seq *seq, struct draw_work *work, const uint8_t *data, size_t size)
{
	float logits[N_VOCAB];
	for (size_t i = 0; i < size && smp_seq_finish(seq) == FINISH_NONE; i++) {
		struct smp_event event;
		int32_t token = data[i] - 1;
		if (data[i] >= 0x80 && size - i > sizeof logits) {
			memcpy(logits, data + i, sizeof logits);
			if (smp_draw(seq, work, logits, NULL, &token, NULL) != SVC_OK)
				continue;
			if (token < 0 || (uint32_t)token >= N_VOCAB)
				abort();
		}
		if (smp_push(seq, token, &event, NULL) == SVC_OK)
			text_check(event.text);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct body_params params;
	uint32_t offsets[N_VOCAB + 1];
	int32_t ends[2];
	uint8_t flags[N_VOCAB];
	if (size < sizeof params + sizeof offsets + sizeof ends + sizeof flags + 4)
		return 0;
	struct span head = take(&data, &size, sizeof params);
	struct span tail = take(&data, &size, sizeof offsets + sizeof ends + sizeof flags);
	memcpy(&params, head.ptr, sizeof params);
	memcpy(offsets, tail.ptr, sizeof offsets);
	memcpy(ends, tail.ptr + sizeof offsets, sizeof ends);
	memcpy(flags, tail.ptr + sizeof offsets + sizeof ends, sizeof flags);
	uint8_t lengths[4];
	memcpy(lengths, data, sizeof lengths);
	data += sizeof lengths;
	size -= sizeof lengths;
	struct span stops = take(&data, &size, lengths[0]);
	struct span stop_ids = take(&data, &size, lengths[1]);
	struct span biases = take(&data, &size, lengths[2]);
	struct span bytes = take(&data, &size, lengths[3]);
	struct smp_vocab vocab = {
		.n_tokens = N_VOCAB,
		.n_bytes = (uint32_t)bytes.len,
		.offsets = offsets,
		.bytes = bytes.ptr,
		.flags = flags,
		.ends = ends,
		.n_ends = 2,
		.max_piece_bytes = 16,
	};
	struct smp_seq_spec spec = {
		.vocab = &vocab,
		.request = {&params, stops, stop_ids, biases},
		.n_ctx = 64,
	};
	struct smp_seq *seq;
	static struct draw_work *work;
	if (!work && draw_work_open(N_VOCAB, DRAW_ISA_AUTO, &work, NULL) != SVC_OK)
		abort();
	if (smp_seq_open(&spec, &seq, NULL) == SVC_OK) {
		run(seq, work, data, size);
		smp_seq_free(seq);
	}
	drop(head);
	drop(tail);
	drop(stops);
	drop(stop_ids);
	drop(biases);
	drop(bytes);
	return 0;
}
