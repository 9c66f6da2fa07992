#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "model/gguf.h"
#include "tokenizer/tokenizer.h"

/* A vocabulary-only GGUF file, key by key. */
struct file {
	struct buf keys;
	uint64_t n_keys;
};

static void put(struct buf *buf, const void *value, size_t size)
{
	buf_append(buf, value, size);
}

static void put_string(struct buf *buf, const char *text)
{
	put(buf, &(uint64_t){strlen(text)}, 8);
	put(buf, text, strlen(text));
}

static void put_key(struct file *file, const char *key, enum gguf_type type)
{
	put_string(&file->keys, key);
	put(&file->keys, &(uint32_t){(uint32_t)type}, 4);
	file->n_keys++;
}

static void add_string(struct file *file, const char *key, const char *text)
{
	if (!text)
		return;
	put_key(file, key, GGUF_STRING);
	put_string(&file->keys, text);
}

static void add_strings(struct file *file, const char *key, const char *const *texts)
{
	uint64_t n = 0;
	while (texts[n])
		n++;
	put_key(file, key, GGUF_ARRAY);
	put(&file->keys, &(uint32_t){GGUF_STRING}, 4);
	put(&file->keys, &n, 8);
	for (uint64_t i = 0; i < n; i++)
		put_string(&file->keys, texts[i]);
}

static void add_types(struct file *file, const int32_t *types, uint64_t n)
{
	put_key(file, "tokenizer.ggml.token_type", GGUF_ARRAY);
	put(&file->keys, &(uint32_t){GGUF_I32}, 4);
	put(&file->keys, &n, 8);
	put(&file->keys, types, n * sizeof *types);
}

static void add_scores(struct file *file, const float *scores, uint64_t n)
{
	put_key(file, "tokenizer.ggml.scores", GGUF_ARRAY);
	put(&file->keys, &(uint32_t){GGUF_F32}, 4);
	put(&file->keys, &n, 8);
	put(&file->keys, scores, n * sizeof *scores);
}

static void add_u32(struct file *file, const char *key, uint32_t value)
{
	put_key(file, key, GGUF_U32);
	put(&file->keys, &value, 4);
}

static enum svc_code open_file(struct file *file, const char *pre, struct tok **ret_tok,
			       struct svc_err *err)
{
	struct buf bytes = {0};
	char path[64];
	put(&bytes, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0", 16);
	put(&bytes, &file->n_keys, 8);
	buf_append(&bytes, file->keys.ptr, file->keys.len);
	int fd = memfd_create("gguf", MFD_CLOEXEC);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	assert_int_equal(write(fd, bytes.ptr, bytes.len), bytes.len);
	enum svc_code code = tok_open(&(struct tok_options){path, pre}, ret_tok, err);
	close(fd);
	buf_free(&bytes);
	buf_free(&file->keys);
	*file = (struct file){0};
	return code;
}

/* ---- what the tests change */

struct shape {
	const char *model, *pre, *tokens[10], *merge, *template;
	int32_t types[9];
	float score;
	uint64_t n_types;
	uint32_t bos, eos, eot;
};

static const struct shape byte_level = {
	.model = "gpt2",
	.pre = "smollm",
	.tokens = {"a", "b", "\xC4\xA0", "ab", "<|x|>", "\xC4\xA0\x61\x62", "1", "[PAD]", "<u>"},
	.types = {1, 1, 1, 1, 3, 1, 1, 5, 4},
	.n_types = 9,
	.merge = "a b",
	.bos = 4,
	.eos = 4,
	.eot = 6,
	.template = "T",
};

static const struct shape sentencepiece = {
	.model = "llama",
	.tokens = {"<unk>", "<s>", "</s>", "<0x41>", "a", "b", "ab", "\xE2\x96\x81\x61\x62",
		   "\xE2\x96\x81"},
	.types = {2, 3, 3, 6, 1, 1, 1, 1, 1},
	.n_types = 9,
	.score = -1,
	.bos = 1,
	.eos = 2,
	.eot = 2,
};

static enum svc_code open_shape(const struct shape *shape, struct tok **ret_tok,
				struct svc_err *err)
{
	struct file file = {0};
	const float scores[] = {0, 0, 0, 0, -7, -8, shape->score, -2, -9};
	add_string(&file, "tokenizer.ggml.model", shape->model);
	add_string(&file, "tokenizer.ggml.pre", shape->pre);
	add_strings(&file, "tokenizer.ggml.tokens", shape->tokens);
	add_types(&file, shape->types, shape->n_types);
	if (shape->score < 0 || isnan(shape->score))
		add_scores(&file, scores, 9);
	if (shape->merge)
		add_strings(&file, "tokenizer.ggml.merges",
			    (const char *const[]){shape->merge, NULL});
	add_u32(&file, "tokenizer.ggml.bos_token_id", shape->bos);
	add_u32(&file, "tokenizer.ggml.eos_token_id", shape->eos);
	add_u32(&file, "tokenizer.ggml.eot_token_id", shape->eot);
	add_string(&file, "tokenizer.chat_template", shape->template);
	add_string(&file, "tokenizer.chat_template.tool_use", shape->template ? "U" : NULL);
	return open_file(&file, NULL, ret_tok, err);
}

static void expect(const struct tok *tok, struct tok_piece piece, enum tok_add add,
		   const char *wanted)
{
	struct tok_ids ids = {0};
	struct buf got = {0};
	struct tok_encode_options options = {.add = add};
	assert_int_equal(tok_encode(tok, &piece, 1, &options, &ids, NULL), SVC_OK);
	for (size_t i = 0; i < ids.len; i++)
		buf_print(&got, i ? " %d" : "%d", ids.ptr[i]);
	assert_string_equal(got.ptr, wanted);
	buf_free(&got);
	tok_ids_free(&ids);
}

static void byte_level_file_is_read(void **state)
{
	struct tok *tok = NULL;
	struct svc_err err = {0};
	struct span text;
	size_t n;
	(void)state;
	if (open_shape(&byte_level, &tok, &err) != SVC_OK)
		fail_msg("%s", err.msg);
	/* A digit stands alone, so the space before it does too. */
	expect(tok, (struct tok_piece){span_of("ab ab 1<|x|>"), true}, TOK_ADD_NONE, "3 2 3 2 6 4");
	expect(tok, (struct tok_piece){span_of("ab<u>"), false}, TOK_ADD_ALWAYS, "3 8");
	const int32_t *ends = tok_end_ids(tok, &n);
	assert_true(n == 2 && ends[0] == 4 && ends[1] == 6);
	assert_true(tok_chat_template(tok, NULL, &text) && span_is(text, "T"));
	assert_true(tok_chat_template(tok, "tool_use", &text) && span_is(text, "U"));
	assert_true(tok_token_bytes(tok, 7).len == 0 && span_is(tok_token_bytes(tok, 5), " ab"));
	assert_string_equal(tok_model_name(tok), "byte-level BPE");
	tok_free(tok);
}

static void sentencepiece_file_is_read(void **state)
{
	struct tok *tok = NULL;
	struct svc_err err = {0};
	(void)state;
	if (open_shape(&sentencepiece, &tok, &err) != SVC_OK)
		fail_msg("%s", err.msg);
	expect(tok, (struct tok_piece){span_of("ab ab"), true}, TOK_ADD_ALWAYS, "1 7 7");
	expect(tok, (struct tok_piece){span_of("abAZ"), true}, TOK_ADD_NONE, "7 3 0");
	expect(tok, (struct tok_piece){span_of("</s>"), true}, TOK_ADD_NONE, "2");
	assert_true(tok_bos_id(tok) == 1 && tok_unk_id(tok) == 0 && tok_adds_bos(tok));
	assert_true(span_is(tok_token_bytes(tok, 3), "A") &&
		    tok_strip_bytes(tok, span_of(" a")) == 1);
	tok_free(tok);
}

static void expect_refusal(const struct shape *shape, enum svc_code code, const char *words)
{
	struct tok *tok = NULL;
	struct svc_err err = {0};
	enum svc_code got = open_shape(shape, &tok, &err);
	if (got != code || !strstr(err.msg, words))
		fail_msg("'%s' expected, code %d, '%s'", words, got, err.msg);
	assert_null(tok);
}

#define REFUSES(good, code, words, ...)                \
	do {                                           \
		struct shape bad = good;               \
		__VA_ARGS__;                           \
		expect_refusal(&bad, (code), (words)); \
	} while (0)

static void bad_files_are_refused(void **state)
{
	(void)state;
	REFUSES(byte_level, SVC_UNSUPPORTED, "tokenizer.ggml.model is 'bert'", bad.model = "bert");
	REFUSES(byte_level, SVC_UNSUPPORTED, "tokenizer.ggml.pre is 'nobody'", bad.pre = "nobody");
	REFUSES(byte_level, SVC_UNSUPPORTED, "tokenizer.ggml.pre is missing", bad.pre = NULL);
	REFUSES(byte_level, SVC_BAD_MODEL, "token_type has 8 elements for 9", bad.n_types = 8);
	REFUSES(byte_level, SVC_BAD_MODEL, "token_type of token 2 is 9", bad.types[2] = 9);
	REFUSES(byte_level, SVC_BAD_MODEL, "tokens 0 and 1 are the same: 'a'", bad.tokens[1] = "a");
	REFUSES(byte_level, SVC_BAD_MODEL, "are the same: '<|x|>'", bad.tokens[8] = "<|x|>");
	REFUSES(byte_level, SVC_BAD_MODEL, "merge 0: 'c' is not", bad.merge = "a c");
	REFUSES(byte_level, SVC_BAD_MODEL, "merges[0]", bad.merge = "ab");
	REFUSES(byte_level, SVC_BAD_MODEL, "merges is missing", bad.merge = NULL);
	REFUSES(byte_level, SVC_BAD_MODEL, "bos_token_id is 9; the vocabulary has 9", bad.bos = 9);
	REFUSES(byte_level, SVC_BAD_MODEL, "eot_token_id is 1000000", bad.eot = 1000000);
	REFUSES(sentencepiece, SVC_BAD_MODEL, "'<0x-1>' is marked as a byte",
		bad.tokens[3] = "<0x-1>");
	REFUSES(sentencepiece, SVC_BAD_MODEL, "'<0x4G>' is marked as a byte",
		bad.tokens[3] = "<0x4G>");
	REFUSES(sentencepiece, SVC_BAD_MODEL, "scores of token 6 is not a finite", bad.score = NAN);
	REFUSES(sentencepiece, SVC_BAD_MODEL, "scores is missing", bad.score = 0);
	REFUSES(sentencepiece, SVC_BAD_MODEL, "tokens 4 and 5 are the same", bad.tokens[5] = "a");
}

static void option_names_the_pre_tokenizer(void **state)
{
	struct file file = {0};
	struct tok *tok = NULL;
	(void)state;
	add_string(&file, "tokenizer.ggml.model", "gpt2");
	add_strings(&file, "tokenizer.ggml.tokens", byte_level.tokens);
	add_types(&file, byte_level.types, 9);
	add_strings(&file, "tokenizer.ggml.merges", (const char *const[]){"a b", NULL});
	assert_int_equal(open_file(&file, "gpt-2", &tok, NULL), SVC_OK);
	tok_free(tok);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(byte_level_file_is_read),
		cmocka_unit_test(sentencepiece_file_is_read),
		cmocka_unit_test(bad_files_are_refused),
		cmocka_unit_test(option_names_the_pre_tokenizer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
