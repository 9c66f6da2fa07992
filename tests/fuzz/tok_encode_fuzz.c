/* tests/fuzz/tok_encode_fuzz.c: any bytes as text, cut anywhere into trusted and untrusted pieces.
 * What must hold: cutting changes nothing while all pieces are of one kind; no control token comes
 * out of untrusted text; and the text comes back where the vocabulary has a token for each of its
 * bytes. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tokenizer/tok_test_data.h"
#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct tok *open_text(const char *json)
{
	char path[64];
	struct tok *tok = NULL;
	struct svc_err err;
	int fd = memfd_create("tokenizer.json", MFD_CLOEXEC);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (fd < 0 || write(fd, json, strlen(json)) != (ssize_t)strlen(json) ||
	    tok_open(&(struct tok_options){.path = path}, &tok, &err) != SVC_OK)
		abort();
	close(fd);
	return tok;
}

static struct tok_ids encode(const struct tok *tok, const struct tok_piece *pieces, size_t n)
{
	struct tok_ids ids = {0};
	if (tok_encode(tok, pieces, n, NULL, &ids, NULL) != SVC_OK)
		abort();
	return ids;
}

static void must_be_same(struct tok_ids a, struct tok_ids b)
{
	if (a.len != b.len || (a.len && memcmp(a.ptr, b.ptr, a.len * sizeof *a.ptr) != 0))
		abort();
	tok_ids_free(&a);
	tok_ids_free(&b);
}

/* Without a normalizer, and with a token for every byte, the tokens' bytes are the text. */
static void must_come_back(const struct tok *tok, struct span text, struct tok_ids ids)
{
	size_t at = 0;
	for (size_t i = 0; i < ids.len; i++) {
		struct span bytes = tok_token_bytes(tok, ids.ptr[i]);
		if (bytes.len > text.len - at || memcmp(bytes.ptr, text.ptr + at, bytes.len) != 0)
			abort();
		at += bytes.len;
	}
	if (at != text.len)
		abort();
}

static void check(const struct tok *tok, struct span text, size_t cut, bool lossless)
{
	const struct span left = {text.ptr, cut}, right = {text.ptr + cut, text.len - cut};
	for (int trusted = 0; trusted < 2; trusted++) {
		const struct tok_piece whole = {text, trusted},
				       halves[] = {{left, trusted}, {right, trusted}};
		struct tok_ids ids = encode(tok, &whole, 1);
		for (size_t i = 0; i < ids.len && !trusted; i++)
			if ((tok_token_flags(tok, ids.ptr[i]) & (VOCAB_CONTROL | VOCAB_UNKNOWN)) ==
			    VOCAB_CONTROL)
				abort();
		if (lossless)
			must_come_back(tok, text, ids);
		must_be_same(ids, encode(tok, halves, 2));
	}
	const struct tok_piece mixed[] = {{left, true}, {right, false}};
	struct tok_ids ids = encode(tok, mixed, 2);
	if (lossless)
		must_come_back(tok, text, ids);
	tok_ids_free(&ids);
}

/* The alphabet of all bytes, "aa", "ab" and one control token; llama3's expression, no normalizer.
 */
static struct tok *open_lossless(void)
{
	static char json[16384];
	size_t at = (size_t)snprintf(
		json, sizeof json,
		"{\"added_tokens\":[{\"id\":300,\"content\":\"<|end|>\",\"special\":true}],"
		"\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
		"\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"\\\\p{N}{1,3}\"}},{\"type\":"
		"\"ByteLevel\",\"add_prefix_space\":false}]},\"decoder\":{\"type\":\"ByteLevel\"},"
		"\"model\":{\"type\":\"BPE\",\"merges\":[\"a a\",\"a b\",\"aa aa\"],\"vocab\":{");
	for (unsigned byte = 0, next = 0x100; byte < 256; byte++) {
		bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
		at += (size_t)snprintf(json + at, sizeof json - at, "\"\\u%04x\":%u,",
				       itself ? byte : next++, byte);
	}
	snprintf(json + at, sizeof json - at, "\"aa\":256,\"ab\":257,\"aaaa\":258}}}");
	return open_text(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct tok *byte_level, *sentencepiece, *unigram, *lossless;
	if (!byte_level) {
		byte_level = open_text(TOK_TEST_BYTE_LEVEL);
		sentencepiece = open_text(TOK_TEST_SENTENCEPIECE);
		unigram = open_text(TOK_TEST_UNIGRAM);
		lossless = open_lossless();
	}
	if (size == 0)
		return 0;
	struct span text = {(const char *)data + 1, size - 1};
	size_t cut = data[0] * text.len / 255;
	check(byte_level, text, cut, false);
	check(sentencepiece, text, cut, false);
	check(unigram, text, cut, false);
	check(lossless, text, cut, true);
	return 0;
}
