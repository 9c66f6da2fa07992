/* lockstep tokenize, lockstep detokenize: work offline, on any tokenizer that tok_open reads. */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "tokenizer/tokenizer.h"

/* clang-format off */
static const char usage[] =
	"usage: lockstep tokenize   --model FILE [options] [TEXT ...]\n"
	"       lockstep detokenize --model FILE [options] [ID ...]\n"
	"\n"
	"FILE is a GGUF file (without tensors will do), a tokenizer.json, or a folder with one. Without TEXT\n"
	"or ID, standard input is read to its end: one text, or ids separated by white space or commas.\n"
	"\n"
	"  --json              line by line; tokenize: a JSON string, or a list of them; each string's ids are\n"
	"                      written as one list per line; detokenize: a list of ids, or a list of those;\n"
	"                      each list's text is written as one JSON string per line\n"
	"  --no-special        tokenize: nothing is put around the text (no BOS, no EOS);\n"
	"                      detokenize: control tokens are left out\n"
	"  --no-parse-special  tokenize: control tokens in the text stay text\n"
	"  --pre NAME          the pre-tokenizer, instead of the one that a GGUF file names\n";
/* clang-format on */

struct command {
	struct tok *tok;
	bool detokenize, json, no_special, no_parse_special;
	struct buf out;
};

/* A text in the making. */
struct text {
	struct buf bytes;
	bool begun;
};

#define USAGE(err, ...) svc_fail(err, SVC_USAGE, "command", __VA_ARGS__)

static void print_ids(struct buf *out, const struct tok_ids *ids)
{
	buf_append(out, "[", 1);
	for (size_t i = 0; i < ids->len; i++)
		buf_print(out, i ? ", %d" : "%d", ids->ptr[i]);
	buf_append(out, "]\n", 2);
}

static enum svc_code tokenize(struct command *command, struct span text, struct svc_err *err)
{
	struct tok_ids ids = {0};
	struct tok_piece piece = {text, !command->no_parse_special};
	struct tok_encode_options options = {command->no_special ? TOK_ADD_NONE : TOK_ADD_ALWAYS,
					     0};
	enum svc_code code = tok_encode(command->tok, &piece, 1, &options, &ids, err);
	if (code == SVC_OK)
		print_ids(&command->out, &ids);
	tok_ids_free(&ids);
	return code;
}

static enum svc_code add_token(struct command *command, struct text *text, long long id,
			       struct svc_err *err)
{
	if (id < 0 || id >= tok_vocab_count(command->tok))
		return svc_fail(err, SVC_INVALID, "command",
				"token id %lld; the vocabulary has %u tokens", id,
				tok_vocab_count(command->tok));
	struct span bytes = tok_token_bytes(command->tok, (int32_t)id);
	if (!command->no_special || !(tok_token_flags(command->tok, (int32_t)id) & VOCAB_CONTROL)) {
		size_t strip = text->begun ? 0 : tok_strip_bytes(command->tok, bytes);
		buf_append(&text->bytes, bytes.ptr + strip, bytes.len - strip);
		text->begun = true;
	}
	return SVC_OK;
}

static void print_text(struct command *command, const struct buf *text)
{
	struct span span = {text->ptr ? text->ptr : "", text->len};
	if (command->json) {
		buf_json_string(&command->out, span);
		buf_append(&command->out, "\n", 1);
	} else {
		buf_span(&command->out, span);
	}
}

/* Ids separated by anything that isn't part of a number, brackets and commas included. */
static enum svc_code detokenize_words(struct command *command, struct span words,
				      struct svc_err *err)
{
	struct text text = {0};
	enum svc_code code = SVC_OK;
	for (size_t at = 0; code == SVC_OK && at < words.len;) {
		char *end;
		if (strchr(" \t\r\n,[]", words.ptr[at])) {
			at++;
			continue;
		}
		errno = 0;
		long long id = strtoll(words.ptr + at, &end, 10);
		if (end == words.ptr + at || errno)
			code = USAGE(err, "'%.20s' is not a token id", words.ptr + at);
		else
			code = add_token(command, &text, id, err);
		at = (size_t)(end - words.ptr);
	}
	if (code == SVC_OK)
		print_text(command, &text.bytes);
	buf_free(&text.bytes);
	return code;
}

static enum svc_code detokenize_list(struct command *command, const json_t *list,
				     struct svc_err *err)
{
	struct text text = {0};
	enum svc_code code = SVC_OK;
	for (size_t i = 0; code == SVC_OK && i < json_array_size(list); i++) {
		const json_t *id = json_array_get(list, i);
		code = json_is_integer(id)
			       ? add_token(command, &text, json_integer_value(id), err)
			       : USAGE(err, "element %zu of the list is not a token id", i);
	}
	if (code == SVC_OK)
		print_text(command, &text.bytes);
	buf_free(&text.bytes);
	return code;
}

static enum svc_code run_value(struct command *command, const json_t *value, struct svc_err *err)
{
	if (command->detokenize && json_is_array(value))
		return detokenize_list(command, value, err);
	if (!command->detokenize && json_is_string(value))
		return tokenize(command,
				(struct span){json_string_value(value), json_string_length(value)},
				err);
	return USAGE(err, "not a JSON %s", command->detokenize ? "list of token ids" : "string");
}

/* One value, or a list of them, which are answered as if each had a line. */
static enum svc_code run_line(struct command *command, struct span line, struct svc_err *err)
{
	json_error_t error;
	json_t *value = json_loadb(line.ptr, line.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
	enum svc_code code = SVC_OK;
	if (!value)
		return USAGE(err, "%s", error.text);
	bool list = json_is_array(value) &&
		    (!command->detokenize || json_is_array(json_array_get(value, 0)));
	if (!list)
		code = run_value(command, value, err);
	for (size_t i = 0; list && code == SVC_OK && i < json_array_size(value); i++)
		code = run_value(command, json_array_get(value, i), err);
	json_decref(value);
	return code;
}

static bool flush_out(struct command *command)
{
	bool ok = !command->out.failed && fwrite(command->out.ptr ? command->out.ptr : "", 1,
						 command->out.len, stdout) == command->out.len;
	buf_clear(&command->out);
	return ok && fflush(stdout) == 0;
}

static enum svc_code run_lines(struct command *command, struct svc_err *err)
{
	char *line = NULL;
	size_t room = 0, number = 0;
	ssize_t len;
	enum svc_code code = SVC_OK;
	while (code == SVC_OK && (len = getline(&line, &room, stdin)) >= 0) {
		number++;
		if (strspn(line, " \t\r\n") == (size_t)len)
			continue;
		code = run_line(command, (struct span){line, (size_t)len}, err);
		if (code != SVC_OK)
			svc_err_prefix(err, "line %zu", number);
		else if (command->out.len > 65536 && !flush_out(command))
			code = svc_fail_errno(err, "command", "cannot write");
	}
	free(line);
	return code;
}

static enum svc_code run_text(struct command *command, struct span text, struct svc_err *err)
{
	return command->detokenize ? detokenize_words(command, text, err)
				   : tokenize(command, text, err);
}

static enum svc_code run_input(struct command *command, int n_words, char **words,
			       struct svc_err *err)
{
	struct buf text = {0};
	char block[65536];
	size_t n;
	enum svc_code code = SVC_OK;
	if (command->json && n_words == 0)
		return run_lines(command, err);
	if (command->json) {
		for (int i = 0; code == SVC_OK && i < n_words; i++)
			code = run_line(command, span_of(words[i]), err);
		return code;
	}
	for (int i = 0; i < n_words; i++)
		buf_print(&text, i ? " %s" : "%s", words[i]);
	while (n_words == 0 && (n = fread(block, 1, sizeof block, stdin)) > 0)
		buf_append(&text, block, n);
	if (text.failed)
		code = svc_fail(err, SVC_NO_MEMORY, "command", "no memory for the input");
	else
		code = run_text(command, (struct span){text.ptr ? text.ptr : "", text.len}, err);
	buf_free(&text);
	return code;
}

static enum svc_code parse(int argc, char **argv, struct command *command,
			   struct tok_options *options, struct svc_err *err)
{
	static const struct option longs[] = {{"model", required_argument, NULL, 'm'},
					      {"pre", required_argument, NULL, 'p'},
					      {"json", no_argument, NULL, 'j'},
					      {"no-special", no_argument, NULL, 's'},
					      {"no-parse-special", no_argument, NULL, 't'},
					      {NULL, 0, NULL, 0}};
	command->detokenize = strcmp(argv[0], "detokenize") == 0;
	optind = 0;
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
		if (c == 'm')
			options->path = optarg;
		else if (c == 'p')
			options->pre = optarg;
		else if (c == 'j')
			command->json = true;
		else if (c == 's')
			command->no_special = true;
		else if (c == 't')
			command->no_parse_special = true;
		else
			return USAGE(err, "unknown option or missing value: %s", argv[optind - 1]);
	}
	if (!options->path)
		return USAGE(err, "--model FILE is missing");
	return SVC_OK;
}

int tok_command_main(int argc, char **argv)
{
	struct command command = {0};
	struct tok_options options = {0};
	struct svc_err err = {0};
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0) {
			fputs(usage, stdout);
			return 0;
		}
	}
	enum svc_code code = parse(argc, argv, &command, &options, &err);
	bool is_usage = code == SVC_USAGE;
	if (code == SVC_OK)
		code = tok_open(&options, &command.tok, &err);
	if (code == SVC_OK)
		code = run_input(&command, argc - optind, argv + optind, &err);
	/* What came before a bad line is answered. */
	if (!flush_out(&command) && code == SVC_OK)
		code = svc_fail_errno(&err, "command", "cannot write");
	if (code != SVC_OK)
		fprintf(stderr, "lockstep %s: %s\n%s", argv[0], err.msg, is_usage ? usage : "");
	buf_free(&command.out);
	tok_free(command.tok);
	return svc_code_info(code)->exit_status;
}
