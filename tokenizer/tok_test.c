#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "tokenizer/tok_test_data.h"
#include "tokenizer/tokenizer.h"

/* ---- tokenizers in a temporary folder */

static char folder[64];

static int make_folder(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/lockstep-tok-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static const char *path_of(const char *name)
{
	static char path[128];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	return path;
}

static void put_file(const char *name, const char *text)
{
	FILE *file = fopen(path_of(name), "w");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

static int remove_folder(void **state)
{
	static const char *const names[] = {"tokenizer.json",	      "tokenizer_config.json",
					    "generation_config.json", "special_tokens_map.json",
					    "chat_template.jinja",    "chat_template.json"};
	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		unlink(path_of(names[i]));
	return rmdir(folder);
}

static enum svc_code open_folder(struct tok **ret_tok, struct svc_err *err)
{
	return tok_open(&(struct tok_options){.path = folder}, ret_tok, err);
}

static struct tok *open_text(const char *json)
{
	struct tok *tok = NULL;
	struct svc_err err = {0};
	put_file("tokenizer.json", json);
	if (open_folder(&tok, &err) != SVC_OK)
		fail_msg("%s", err.msg);
	return tok;
}

/* ---- comparing */

static void expect(const struct tok *tok, const struct tok_piece *pieces, size_t n,
		   enum tok_add add, const char *wanted)
{
	struct tok_ids ids = {0};
	struct buf got = {0};
	struct tok_encode_options options = {.add = add};
	assert_int_equal(tok_encode(tok, pieces, n, &options, &ids, NULL), SVC_OK);
	for (size_t i = 0; i < ids.len; i++)
		buf_print(&got, i ? " %d" : "%d", ids.ptr[i]);
	assert_string_equal(got.ptr ? got.ptr : "", wanted);
	buf_free(&got);
	tok_ids_free(&ids);
}

#define TRUSTED(literal)                               \
	{                                              \
		{(literal), sizeof(literal) - 1}, true \
	}
#define UNTRUSTED(literal)                              \
	{                                               \
		{(literal), sizeof(literal) - 1}, false \
	}
#define EXPECT(tok, add, wanted, ...)                                       \
	do {                                                                \
		const struct tok_piece list[] = {__VA_ARGS__};              \
		expect(tok, list, sizeof list / sizeof *list, add, wanted); \
	} while (0)

static void text_becomes_ids(void **state)
{
	(void)state;
	struct tok *tok = open_text(TOK_TEST_BYTE_LEVEL);
	EXPECT(tok, TOK_ADD_NONE, "14 3 13 15", TRUSTED("abc ab a"));
	EXPECT(tok, TOK_ADD_NONE, "", TRUSTED(""));
	EXPECT(tok, TOK_ADD_MISSING, "22", TRUSTED(""));
	EXPECT(tok, TOK_ADD_NONE, "11 12 11 12",
	       TRUSTED("\xC3\xA9"
		       "e\xCC\x81"));
	EXPECT(tok, TOK_ADD_NONE, "16 16 16 16", TRUSTED("aaaaaaaa"));
	expect(tok, NULL, 0, TOK_ADD_NONE, "");
	tok_free(tok);
	tok = open_text(TOK_TEST_SENTENCEPIECE);
	EXPECT(tok, TOK_ADD_NONE, "6 6 7 8", TRUSTED("ab ab\xC3\xA9"));
	EXPECT(tok, TOK_ADD_NONE, "6 0 3", TRUSTED("abzza"));
	EXPECT(tok, TOK_ADD_NONE, "6 1 6", TRUSTED("ab</s>ab"));
	tok_free(tok);
	tok = open_text(TOK_TEST_UNIGRAM);
	/* "▁ ab" and "▁a b" tie: of two last tokens the longer one was found first. */
	EXPECT(tok, TOK_ADD_NONE, "1 4 1 4 3", TRUSTED("ab abb"));
	EXPECT(tok, TOK_ADD_NONE, "5 0 2", TRUSTED("axya"));
	tok_free(tok);
}

/* A word is looked up once it is known to be all one token; "bc" is a token that no merge makes. */
static void words_come_out_alike_each_time(void **state)
{
	(void)state;
	struct buf json = {0};
	const char *at = strstr(TOK_TEST_BYTE_LEVEL, "\"abc\":14");
	assert_non_null(at);
	buf_append(&json, TOK_TEST_BYTE_LEVEL, (size_t)(at - TOK_TEST_BYTE_LEVEL));
	buf_print(&json, "\"bc\":18,%s", at);
	struct tok *tok = open_text(json.ptr);
	for (int i = 0; i < 3; i++) {
		EXPECT(tok, TOK_ADD_NONE, "1 2", TRUSTED("bc"));
		EXPECT(tok, TOK_ADD_NONE, "14 14", TRUSTED("abc"), TRUSTED("abc"));
		EXPECT(tok, TOK_ADD_NONE, "1 2 4 14", TRUSTED("bc\nabc"));
	}
	buf_free(&json);
	tok_free(tok);
}

static void control_tokens_need_trust(void **state)
{
	(void)state;
	struct tok *tok = open_text(TOK_TEST_BYTE_LEVEL);
	EXPECT(tok, TOK_ADD_NONE, "0 20 1", TRUSTED("a<|end|>b"));
	EXPECT(tok, TOK_ADD_NONE, "0 5 6 8 9 10 6 7 1", UNTRUSTED("a<|end|>b"));
	/* Over a joint, in either direction, and with nothing between. */
	EXPECT(tok, TOK_ADD_NONE, "5 6 8 9 10 6 7", TRUSTED("<|en"), UNTRUSTED("d|>"));
	EXPECT(tok, TOK_ADD_NONE, "5 6 8 9 10 6 7", UNTRUSTED("<|en"), TRUSTED("d|>"));
	EXPECT(tok, TOK_ADD_NONE, "5 6 8 9 10 6 7", TRUSTED("<|"), UNTRUSTED("end"), TRUSTED("|>"));
	EXPECT(tok, TOK_ADD_NONE, "20", TRUSTED("<|en"), UNTRUSTED(""), TRUSTED("d|>"));
	/* The template's own stands, whatever the user's text before and after begins. */
	EXPECT(tok, TOK_ADD_NONE, "5 6 8 9 10 6 20 8", UNTRUSTED("<|end|"), TRUSTED("<|end|>"),
	       UNTRUSTED("e"));
	/* Added tokens that don't steer the model are text like any other. */
	EXPECT(tok, TOK_ADD_NONE, "21", UNTRUSTED("<thi"), TRUSTED("nk>"));
	tok_free(tok);
}

/* Some are looked for in normalized text, which has other bytes than what was trusted. */
static void control_tokens_need_trust_after_normalizers(void **state)
{
	(void)state;
	static const char from[] = "\"</s>\",\"special\":true,\"normalized\":false";
	struct buf json = {0};
	const char *at = strstr(TOK_TEST_SENTENCEPIECE, from);
	assert_non_null(at);
	buf_append(&json, TOK_TEST_SENTENCEPIECE, (size_t)(at - TOK_TEST_SENTENCEPIECE));
	buf_print(&json, "\"</s>\",\"special\":true,\"normalized\":true%s", at + strlen(from));
	struct tok *tok = open_text(json.ptr);
	EXPECT(tok, TOK_ADD_NONE, "1 6", TRUSTED("</s> ab"));
	EXPECT(tok, TOK_ADD_NONE, "2 9 10 11 12 6", UNTRUSTED("</s> ab"));
	EXPECT(tok, TOK_ADD_NONE, "6 1", UNTRUSTED("ab"), TRUSTED(" </s>"));
	EXPECT(tok, TOK_ADD_NONE, "6 2 9 10 11 12", TRUSTED("ab </"), UNTRUSTED("s>"));
	EXPECT(tok, TOK_ADD_NONE, "6 2 9 10 11 12 1", UNTRUSTED("ab </s>"), TRUSTED(" </s>"));
	buf_free(&json);
	tok_free(tok);
}

static void joints_leave_no_trace(void **state)
{
	(void)state;
	struct tok *tok = open_text(TOK_TEST_BYTE_LEVEL);
	EXPECT(tok, TOK_ADD_NONE, "14 15", TRUSTED("ab"), UNTRUSTED("c "), TRUSTED("a"));
	/* One character out of two pieces, also through the normalizer. */
	EXPECT(tok, TOK_ADD_NONE, "11 12", TRUSTED("\xC3"), UNTRUSTED("\xA9"));
	EXPECT(tok, TOK_ADD_NONE, "0 11 12", TRUSTED("ae"), UNTRUSTED("\xCC\x81"));
	tok_free(tok);
	tok = open_text(TOK_TEST_SENTENCEPIECE);
	EXPECT(tok, TOK_ADD_NONE, "6 6", TRUSTED("a"), UNTRUSTED("b "), TRUSTED("ab"));
	EXPECT(tok, TOK_ADD_NONE, "6 9 10 11 12", TRUSTED("ab"), UNTRUSTED("</s>"));
	tok_free(tok);
}

static void tokens_around_a_text(void **state)
{
	(void)state;
	struct tok *tok = open_text(TOK_TEST_BYTE_LEVEL);
	assert_true(tok_adds_bos(tok) && !tok_adds_eos(tok));
	EXPECT(tok, TOK_ADD_NONE, "14", TRUSTED("abc"));
	EXPECT(tok, TOK_ADD_ALWAYS, "22 14", TRUSTED("abc"));
	EXPECT(tok, TOK_ADD_MISSING, "22 14", TRUSTED("abc"));
	EXPECT(tok, TOK_ADD_ALWAYS, "22 22 14", TRUSTED("<s>abc"));
	EXPECT(tok, TOK_ADD_MISSING, "22 14", TRUSTED("<s>abc"));
	EXPECT(tok, TOK_ADD_MISSING, "22 5 17 7 14", UNTRUSTED("<s>abc"));
	EXPECT(tok, TOK_ADD_MISSING, "22", TRUSTED(""));
	tok_free(tok);
}

static void bytes_that_are_no_text_come_back(void **state)
{
	(void)state;
	static const char odd[] = "a\xC3 \xA9\xC3\xA9\xE6\xAD\xFF\xC3";
	struct tok *tok = open_text(TOK_TEST_SENTENCEPIECE);
	struct tok_piece piece = UNTRUSTED("a\xC3 \xA9"
					   "b\xA9\xC3\xA9");
	struct tok_ids ids = {0};
	struct buf text = {0};
	assert_int_equal(tok_encode(tok, &piece, 1, NULL, &ids, NULL), SVC_OK);
	for (size_t i = 0; i < ids.len; i++)
		buf_span(&text, tok_token_bytes(tok, ids.ptr[i]));
	assert_int_equal(text.len, piece.text.len + 1);
	assert_memory_equal(text.ptr + 1, piece.text.ptr, piece.text.len);
	buf_free(&text);
	tok_ids_free(&ids);
	tok_free(tok);
	/* What the vocabulary has no byte for is dropped; nothing else is. */
	tok = open_text(TOK_TEST_BYTE_LEVEL);
	EXPECT(tok, TOK_ADD_NONE, "0 11 3 12 11 12 11", {{odd, sizeof odd - 1}, false});
	tok_free(tok);
}

static void limit_is_kept(void **state)
{
	(void)state;
	struct tok *tok = open_text(TOK_TEST_BYTE_LEVEL);
	struct tok_ids ids = {0};
	struct svc_err err = {0};
	struct tok_piece piece = TRUSTED("abc abc");
	struct tok_encode_options options = {TOK_ADD_ALWAYS, 4};
	assert_int_equal(tok_encode(tok, &piece, 1, &options, &ids, &err), SVC_OK);
	assert_int_equal(ids.len, 4);
	options.limit = 3;
	assert_int_equal(tok_encode(tok, &piece, 1, &options, &ids, &err), SVC_TOO_LONG);
	assert_non_null(strstr(err.msg, "4 tokens; the limit is 3"));
	assert_int_equal(ids.len, 4);
	/* Ids are appended, and the limit is on one call's. */
	options.limit = 4;
	assert_int_equal(tok_encode(tok, &piece, 1, &options, &ids, &err), SVC_OK);
	assert_int_equal(ids.len, 8);
	assert_memory_equal(ids.ptr, ids.ptr + 4, 4 * sizeof *ids.ptr);
	tok_ids_free(&ids);
	tok_free(tok);
}

/* ---- tokens */

static void tokens_have_bytes_and_flags(void **state)
{
	(void)state;
	struct tok *tok = open_text(TOK_TEST_SENTENCEPIECE);
	assert_int_equal(tok_vocab_count(tok), 13);
	assert_true(span_is(tok_token_bytes(tok, 6), " ab") &&
		    span_is(tok_token_bytes(tok, 7), "\xC3"));
	assert_true(span_is(tok_token_bytes(tok, 1), "</s>") && tok_token_bytes(tok, 13).len == 0);
	assert_int_equal(tok_token_bytes(tok, -1).len, 0);
	assert_int_equal(tok_token_flags(tok, 7), VOCAB_BYTE);
	assert_int_equal(tok_token_flags(tok, 1), VOCAB_CONTROL | VOCAB_ADDED | VOCAB_END);
	assert_int_equal(tok_token_flags(tok, 0), VOCAB_CONTROL | VOCAB_ADDED | VOCAB_UNKNOWN);
	assert_int_equal(tok_strip_bytes(tok, tok_token_bytes(tok, 6)), 1);
	assert_int_equal(tok_strip_bytes(tok, tok_token_bytes(tok, 3)), 0);
	assert_int_equal(tok_find(tok, span_of("</s>")), 1);
	assert_int_equal(tok_find(tok, span_of("nothing")), -1);
	tok_free(tok);
	tok = open_text(TOK_TEST_BYTE_LEVEL);
	assert_int_equal(tok_token_flags(tok, 18), VOCAB_UNUSED);
	assert_true(tok_token_bytes(tok, 18).len == 0 && span_is(tok_token_bytes(tok, 15), " a"));
	assert_int_equal(tok_token_flags(tok, 21), VOCAB_ADDED);
	assert_int_equal(tok_strip_bytes(tok, tok_token_bytes(tok, 15)), 0);
	tok_free(tok);
}

static void vocabulary_crosses_as_a_blob(void **state)
{
	(void)state;
	struct tok *tok = open_text(TOK_TEST_SENTENCEPIECE);
	struct vocab_parts parts = tok_vocab_parts(tok);
	struct vocab vocab;
	size_t size = vocab_size(&parts);
	void *blob = malloc(size);
	assert_non_null(blob);
	vocab_write(&parts, blob);
	assert_int_equal(vocab_open(blob, size, &vocab, NULL), SVC_OK);
	for (int32_t id = -1; id <= (int32_t)tok_vocab_count(tok); id++) {
		assert_true(span_equal(vocab_token(&vocab, id), tok_token_bytes(tok, id)));
		assert_int_equal(vocab_token_flags(&vocab, id), tok_token_flags(tok, id));
	}
	assert_true(vocab.strip == VOCAB_STRIP_FIRST && vocab_is_end(&vocab, 1));
	free(blob);
	tok_free(tok);
}

/* ---- the files beside a tokenizer.json */

static void configuration_is_read(void **state)
{
	(void)state;
	struct tok *tok = NULL;
	struct span text;
	size_t n_ends;
	put_file("tokenizer.json", TOK_TEST_BYTE_LEVEL);
	put_file("tokenizer_config.json",
		 "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"<|end|>\","
		 "\"pad_token\":\"gone\",\"model_max_length\":1000000000000000019884624838656,"
		 "\"chat_template\":[{\"name\":\"default\",\"template\":\"D\"},"
		 "{\"name\":\"tool_use\",\"template\":\"T\"}]}");
	put_file("generation_config.json", "{\"eos_token_id\":[20,5,1]}");
	assert_int_equal(open_folder(&tok, NULL), SVC_OK);
	assert_true(tok_bos_id(tok) == 22 && tok_eos_id(tok) == 20 && tok_pad_id(tok) == -1 &&
		    tok_unk_id(tok) == -1);
	const int32_t *ends = tok_end_ids(tok, &n_ends);
	assert_true(n_ends == 3 && ends[0] == 1 && ends[1] == 5 && ends[2] == 20);
	assert_true(tok_chat_template(tok, NULL, &text) && span_is(text, "D"));
	assert_true(tok_chat_template(tok, "tool_use", &text) && span_is(text, "T"));
	assert_false(tok_chat_template(tok, "rag", &text));
	tok = tok_free(tok);
	put_file("generation_config.json", "{\"eos_token_id\":7}");
	put_file("chat_template.jinja", "J");
	put_file("tokenizer_config.json", "{\"add_bos_token\":false}");
	assert_int_equal(open_folder(&tok, NULL), SVC_OK);
	ends = tok_end_ids(tok, &n_ends);
	assert_true(n_ends == 2 && ends[0] == 7 && ends[1] == 20); /* <|end|> is known as one */
	assert_true(tok_chat_template(tok, NULL, &text) && span_is(text, "J"));
	assert_false(tok_adds_bos(tok));
	tok = tok_free(tok);
	unlink(path_of("tokenizer_config.json"));
	unlink(path_of("chat_template.jinja"));
	struct svc_err err = {0};
	put_file("generation_config.json", "{\"eos_token_id\":[999]}");
	assert_int_equal(open_folder(&tok, &err), SVC_BAD_MODEL);
	assert_non_null(strstr(err.msg, "generation_config.json: eos_token_id is 999"));
	unlink(path_of("generation_config.json"));
}

/* ---- refusals: what was changed in a good file, and the words that must name it */

struct refusal {
	const char *from, *to;
	enum svc_code code;
	const char *words;
};

static void expect_refusal(const char *json, const struct refusal *refusal)
{
	struct buf text = {0};
	struct svc_err err = {0};
	struct tok *tok = NULL;
	const char *at = strstr(json, refusal->from);
	assert_non_null(at);
	buf_append(&text, json, (size_t)(at - json));
	buf_print(&text, "%s%s", refusal->to, at + strlen(refusal->from));
	put_file("tokenizer.json", text.ptr);
	enum svc_code code = open_folder(&tok, &err);
	if (code != refusal->code || !strstr(err.msg, refusal->words))
		fail_msg("'%s' instead of '%s': code %d, '%s'", refusal->to, refusal->from, code,
			 err.msg);
	buf_free(&text);
}

static void bad_byte_level_files_are_refused(void **state)
{
	static const struct refusal refusals[] = {
		{"\"BPE\"", "\"WordPiece\"", SVC_UNSUPPORTED, "model.type is 'WordPiece'"},
		{"\"NFC\"", "\"Lowercase\"", SVC_UNSUPPORTED, "normalizer 'Lowercase'"},
		{"\"type\":\"ByteLevel\",\"add", "\"type\":\"Whitespace\",\"add", SVC_UNSUPPORTED,
		 "pre_tokenizer 'Whitespace'"},
		{"\"type\":\"ByteLevel\",\"add",
		 "\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"[a-z]+\"},"
		 "\"add",
		 SVC_UNSUPPORTED, "Split by '[a-z]+'"},
		{"\"add_prefix_space\":false", "\"add_prefix_space\":true", SVC_UNSUPPORTED,
		 "add_prefix_space"},
		{"\"TemplateProcessing\"", "\"BertProcessing\"", SVC_UNSUPPORTED,
		 "post_processor 'BertProcessing'"},
		{"{\"type\":\"ByteLevel\"}", "{\"type\":\"WordPiece\"}", SVC_UNSUPPORTED,
		 "decoder 'WordPiece'"},
		{"\"ids\":[22]", "\"ids\":[99]", SVC_BAD_MODEL, "post_processor"},
		{"\"a\":0", "\"a\":-1", SVC_BAD_MODEL, "the id of 'a'"},
		{"\"a\":0", "\"a\":4194304", SVC_BAD_MODEL, "the id of 'a'"},
		{"\"a\":0", "\"a\":3000000", SVC_BAD_MODEL, "the highest token id is 3000000"},
		{"\"a\":0", "\"a\":1", SVC_BAD_MODEL, "id 1 is given to"},
		{"\"a\":0", "\"b\":0", SVC_BAD_MODEL, "duplicate"},
		{"\"a\":0", "\"a\":0.5", SVC_BAD_MODEL, "the id of 'a'"},
		{"\"id\":20", "\"id\":13", SVC_BAD_MODEL, "which is 'ab' already"},
		{"\"id\":20", "\"id\":\"x\"", SVC_BAD_MODEL, "added_tokens[0].id"},
		{"\"<think>\"", "\"<|end|>\"", SVC_BAD_MODEL, "are the same: '<|end|>'"},
		{"\"<think>\"", "7", SVC_BAD_MODEL, "added_tokens[1].content"},
		{"\"a b\"", "\"a x\"", SVC_BAD_MODEL, "merge 0: 'x' is not in the vocabulary"},
		{"\"a b\"", "\"b a\"", SVC_BAD_MODEL, "'ba' is not in the vocabulary"},
		{"\"a b\"", "\"ab\"", SVC_BAD_MODEL, "model.merges[0]"},
		{"\"merges\":[", "\"merges\":{\"x\":[", SVC_BAD_MODEL, "line 1"},
		{"\"type\":\"BPE\"", "\"type\":\"BPE\",\"dropout\":0.1", SVC_UNSUPPORTED,
		 "model.dropout"},
		{"\"type\":\"BPE\"", "\"type\":\"BPE\",\"unk_token\":\"no\"", SVC_BAD_MODEL,
		 "model.unk_token 'no'"},
		{"\"type\":\"BPE\"", "\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\"",
		 SVC_UNSUPPORTED, "end_of_word_suffix"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
		expect_refusal(TOK_TEST_BYTE_LEVEL, &refusals[i]);
}

static void bad_sentencepiece_files_are_refused(void **state)
{
	static const struct refusal bpe[] = {
		{"{\"type\":\"Fuse\"}", "{\"type\":\"CTC\"}", SVC_UNSUPPORTED, "decoder 'CTC'"},
		{"\"start\":1", "\"start\":2", SVC_UNSUPPORTED, "decoder Strip"},
		{"\"String\":\" \"", "\"Regex\":\" \"", SVC_UNSUPPORTED, "normalizer Replace"},
		{"\"normalizer\":{",
		 "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"normalizer\":{",
		 SVC_UNSUPPORTED, "pre_tokenizer 'BertPreTokenizer'"},
	};
	static const struct refusal unigram[] = {
		{"\"unk_id\":0", "\"unk_id\":7", SVC_BAD_MODEL, "model.unk_id is 7"},
		{"\"unk_id\"", "\"unk_di\"", SVC_BAD_MODEL, "model.unk_id is missing"},
		{"[\"a\",-3]", "[\"a\"]", SVC_BAD_MODEL, "model.vocab[2]"},
		{"[\"a\",-3]", "[\"b\",-3]", SVC_BAD_MODEL, "are the same: 'b'"},
		{"\"always\"", "\"sometimes\"", SVC_UNSUPPORTED, "prepend_scheme 'sometimes'"},
		{"\"vocab\":[", "\"vocab\":{\"x\":[", SVC_BAD_MODEL, "line 1"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof bpe / sizeof *bpe; i++)
		expect_refusal(TOK_TEST_SENTENCEPIECE, &bpe[i]);
	for (size_t i = 0; i < sizeof unigram / sizeof *unigram; i++)
		expect_refusal(TOK_TEST_UNIGRAM, &unigram[i]);
	expect_refusal("{}", &(struct refusal){"{}", "[]", SVC_BAD_MODEL, "not a JSON object"});
	expect_refusal("{}",
		       &(struct refusal){"{}", "{\"a\":1}", SVC_BAD_MODEL, "model is missing"});
	struct svc_err err = {0};
	struct tok *tok = NULL;
	assert_int_equal(tok_open(&(struct tok_options){.path = "/nonexistent"}, &tok, &err),
			 SVC_IO);
	assert_non_null(strstr(err.msg, "/nonexistent"));
	assert_null(tok);
}

/* ---- size and threads */

/* A megabyte of each must come back whole; what it costs is measured elsewhere. */
static void long_runs_are_encoded(void **state)
{
	static const char *const units[] = {"a",	 " ",  "\n",	 "\xC3\xA9",
					    "e\xCC\x81", "ab", "<|end|", "\xCC\x81"};
	(void)state;
	struct tok *tok = open_text(TOK_TEST_BYTE_LEVEL);
	for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
		struct buf text = {0};
		struct tok_ids ids = {0};
		while (text.len < 1000000)
			buf_span(&text, span_of(units[i]));
		struct tok_piece piece = {{text.ptr, text.len}, i % 2 == 0};
		assert_int_equal(tok_encode(tok, &piece, 1, NULL, &ids, NULL), SVC_OK);
		assert_true(ids.len > 0 ||
			    i == 7); /* the last is made of a byte that this vocabulary lacks */
		tok_ids_free(&ids);
		buf_free(&text);
	}
	tok_free(tok);
}

static void *encode_often(void *argument)
{
	const struct tok *tok = argument;
	struct tok_piece piece =
		UNTRUSTED("abc ab <|end|> e\xCC\x81 "
			  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
	struct tok_ids first = {0};
	bool same = tok_encode(tok, &piece, 1, NULL, &first, NULL) == SVC_OK;
	for (int i = 0; i < 300; i++) {
		struct tok_ids ids = {0};
		same = same && tok_encode(tok, &piece, 1, NULL, &ids, NULL) == SVC_OK &&
		       ids.len == first.len &&
		       memcmp(ids.ptr, first.ptr, ids.len * sizeof *ids.ptr) == 0;
		tok_ids_free(&ids);
	}
	tok_ids_free(&first);
	return same ? argument : NULL;
}

static void threads_share_a_tokenizer(void **state)
{
	(void)state;
	struct tok *tok = open_text(TOK_TEST_BYTE_LEVEL);
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, encode_often, tok), 0);
	for (int i = 0; i < 4; i++) {
		void *result = NULL;
		pthread_join(threads[i], &result);
		assert_non_null(result);
	}
	tok_free(tok);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_becomes_ids),
		cmocka_unit_test(words_come_out_alike_each_time),
		cmocka_unit_test(control_tokens_need_trust),
		cmocka_unit_test(control_tokens_need_trust_after_normalizers),
		cmocka_unit_test(joints_leave_no_trace),
		cmocka_unit_test(tokens_around_a_text),
		cmocka_unit_test(bytes_that_are_no_text_come_back),
		cmocka_unit_test(limit_is_kept),
		cmocka_unit_test(tokens_have_bytes_and_flags),
		cmocka_unit_test(vocabulary_crosses_as_a_blob),
		cmocka_unit_test(configuration_is_read),
		cmocka_unit_test(bad_byte_level_files_are_refused),
		cmocka_unit_test(bad_sentencepiece_files_are_refused),
		cmocka_unit_test(long_runs_are_encoded),
		cmocka_unit_test(threads_share_a_tokenizer),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
