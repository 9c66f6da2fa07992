/* tests/fuzz/tmpl_fuzz.c: any bytes as a chat template, rendered with a fixed conversation.
 * Whatever comes out is UTF-8, its pieces cover it, and no character of the request is in a trusted
 * one. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "tokenizer/template/tmpl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every string of the request consists of U+E000 and letters that case mapping leaves recognisable.
 */
#define MARK "\xEE\x80\x80"

static const char request_text[] =
	"{\"messages\": [{\"role\": \"user\", \"content\": \"" MARK MARK " " MARK "\"},"
	" {\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"" MARK "\\n" MARK
	"\"}]},"
	" {\"role\": \"" MARK
	"\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"" MARK "\","
	"  \"arguments\": {\"" MARK "\": [1, 2.5, true, null, {}]}}}]}],"
	" \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"" MARK "\"}}],"
	" \"kwargs\": {\"s\": \"" MARK "," MARK
	"\", \"xs\": [3, 1, 2], \"d\": {\"b\": 1, \"a\": \"" MARK "\"}}}";

static const json_t *request(const char *name)
{
	static json_t *root;
	if (!root)
		root = json_loads(request_text, 0, NULL);
	return json_object_get(root, name);
}

static bool holds(const char *text, size_t len, const char *part)
{
	return memmem(text, len, part, strlen(part)) != NULL;
}

/* A template that can make the mark itself says nothing about where it came from. */
static bool can_forge(const char *text, size_t len)
{
	static const char *const ways[] = {MARK, "\\u", "\\U", "\\x", "%", "\xEE", "\\3"};
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		if (holds(text, len, ways[i]) && (i != 4 || holds(text, len, "c")))
			return true;
	return false;
}

static void check(const struct tmpl_output *output, bool forged)
{
	size_t at = 0;
	for (size_t i = 0; i < output->len;) {
		size_t n = utf8_length(output->text + i, output->len - i);
		if (n == 0)
			abort();
		i += n;
	}
	for (size_t i = 0; i < output->piece_count; i++) {
		struct tmpl_piece piece = output->pieces[i];
		bool alternates = i == 0 || output->pieces[i - 1].trusted != piece.trusted;
		if (piece.offset != at || piece.length == 0 || !alternates)
			abort();
		if (piece.trusted && !forged && holds(output->text + at, piece.length, MARK))
			abort();
		at += piece.length;
	}
	if (at != output->len || output->text[at] != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct svc_err err = {0};
	struct tmpl *tmpl = NULL;
	struct tmpl_output output = {0};
	const struct tmpl_input input = {
		.messages = request("messages"),
		.tools = request("tools"),
		.kwargs = request("kwargs"),
		.add_generation_prompt = true,
		.join_parts = size & 1,
		.parse_arguments = size & 2,
		.bos_token = span_of("<s>"),
		.limits = {.steps = 30000, .memory_bytes = 4u << 20, .output_bytes = 1u << 20},
	};
	struct span source = {(const char *)data, size};
	if (tmpl_compile(source, &tmpl, &err) != SVC_OK)
		return 0;
	enum svc_code code = tmpl_render(tmpl, &input, &output, &err);
	if (code == SVC_INTERNAL || (code != SVC_OK && output.text))
		abort();
	if (code == SVC_OK)
		check(&output, can_forge(source.ptr, source.len));
	tmpl_output_free(&output);
	tmpl_free(tmpl);
	return 0;
}
