#include "model/draft.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

uint32_t draft_strip_count(const struct draft_tensor *tensor)
{
	if (!tensor->size_bytes)
		return 0;
	return (uint32_t)((tensor->size_bytes + tensor->strip_bytes - 1) / tensor->strip_bytes);
}

uint64_t draft_strip_bytes(const struct draft_tensor *tensor, uint32_t strip)
{
	uint64_t left = tensor->size_bytes - strip * tensor->strip_bytes;
	return left < tensor->strip_bytes ? left : tensor->strip_bytes;
}

static void report(const struct draft *draft, const struct draft_progress *progress, uint64_t done)
{
	if (progress && progress->call)
		progress->call(progress->context, done, draft->total_bytes);
}

enum svc_code draft_fill(const struct draft *draft, uint8_t *memory,
			 const struct draft_progress *progress, struct svc_err *err)
{
	memcpy(memory, draft->head.ptr, draft->head.len);
	for (size_t i = 0; i < draft->n; i++) {
		const struct draft_tensor *t = &draft->tensors[i];
		for (uint32_t s = 0; s < draft_strip_count(t); s++) {
			uint64_t at = t->offset + s * t->strip_bytes;
			enum svc_code code = t->make(t, s, memory + at, err);
			if (code != SVC_OK)
				return code;
			report(draft, progress, at + draft_strip_bytes(t, s));
		}
	}
	return SVC_OK;
}

uint64_t draft_longest_strip(const struct draft *draft)
{
	uint64_t most = 1;
	for (size_t i = 0; i < draft->n; i++)
		if (draft->tensors[i].strip_bytes > most)
			most = draft->tensors[i].strip_bytes;
	return most;
}

static void hash_zeros(XXH3_state_t *state, uint64_t count)
{
	static const char zeros[4096];
	for (uint64_t some; count; count -= some) {
		some = count < sizeof zeros ? count : sizeof zeros;
		XXH3_128bits_update(state, zeros, some);
	}
}

static enum svc_code hash_tensors(const struct draft *draft, XXH3_state_t *state, uint8_t *strip,
				  const struct draft_progress *progress, struct svc_err *err)
{
	uint64_t at = draft->head.len;
	XXH3_128bits_update(state, draft->head.ptr, draft->head.len);
	for (size_t i = 0; i < draft->n; i++) {
		const struct draft_tensor *t = &draft->tensors[i];
		hash_zeros(state, t->offset - at);
		for (uint32_t s = 0; s < draft_strip_count(t); s++) {
			enum svc_code code = t->make(t, s, strip, err);
			if (code != SVC_OK)
				return code;
			XXH3_128bits_update(state, strip, draft_strip_bytes(t, s));
			report(draft, progress, t->offset + s * t->strip_bytes);
		}
		at = t->offset + t->size_bytes;
	}
	hash_zeros(state, draft->total_bytes - at);
	return SVC_OK;
}

enum svc_code draft_hash(const struct draft *draft, const struct draft_progress *progress,
			 uint64_t ret_hash[2], struct svc_err *err)
{
	XXH3_state_t *state = XXH3_createState();
	uint8_t *strip = malloc(draft_longest_strip(draft));
	enum svc_code code = SVC_OK;
	if (!state || !strip) {
		code = svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a strip of weights");
	} else {
		XXH3_128bits_reset(state);
		code = hash_tensors(draft, state, strip, progress, err);
	}
	if (code == SVC_OK) {
		XXH128_hash_t hash = XXH3_128bits_digest(state);
		ret_hash[0] = hash.high64;
		ret_hash[1] = hash.low64;
	}
	XXH3_freeState(state);
	free(strip);
	return code;
}

void draft_free(struct draft *draft)
{
	buf_free(&draft->head);
	free(draft->tensors);
	arena_free(&draft->arena);
	memset(draft, 0, sizeof *draft);
}
