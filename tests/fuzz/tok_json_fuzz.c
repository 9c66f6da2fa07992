/* tests/fuzz/tok_json_fuzz.c: any bytes as a tokenizer.json; what opens has to encode and decode.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const struct tok *tok)
{
	static const char text[] =
		"abc a  b\n<|end|></s><think>12\xC3\xA9"
		"e\xCC\x81\xE2\x96\x81\xE6\xAD\xAA\xFF"
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabababababababab";
	const struct tok_piece pieces[] = {{{text, 20}, true},
					   {{text + 20, sizeof text - 21}, false}};
	const struct tok_encode_options options = {TOK_ADD_MISSING, 1000};
	struct tok_ids ids = {0};
	if (tok_encode(tok, pieces, 2, &options, &ids, NULL) != SVC_OK)
		abort();
	for (size_t i = 0; i < ids.len; i++)
		if (ids.ptr[i] < 0 || (uint32_t)ids.ptr[i] >= tok_vocab_count(tok))
			abort();
	tok_ids_free(&ids);
	struct vocab_parts parts = tok_vocab_parts(tok);
	size_t size = vocab_size(&parts);
	void *blob = malloc(size);
	struct vocab vocab;
	if (!size || !blob)
		abort();
	vocab_write(&parts, blob);
	if (vocab_open(blob, size, &vocab, NULL) != SVC_OK)
		abort();
	free(blob);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[64];
	struct tok *tok = NULL;
	int fd = memfd_create("tokenizer.json", MFD_CLOEXEC);
	if (fd < 0)
		abort();
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (write(fd, data, size) == (ssize_t)size &&
	    tok_open(&(struct tok_options){.path = path}, &tok, NULL) == SVC_OK)
		use(tok);
	tok_free(tok);
	close(fd);
	return 0;
}
