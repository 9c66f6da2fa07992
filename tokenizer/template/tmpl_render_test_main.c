/* lockstep-tmpl-render: renders what comes as JSON lines, for tests that compare with jinja2.
 * In:  {"template": "...", "messages": [...], "tools": [...], "documents": [...], "kwargs": {...},
 *       "add_generation_prompt": true, "bos_token": "...", "eos_token": "...", "now": 0,
 *       "join_parts": false, "parse_arguments": false,
 *       "steps": 0, "memory": 0, "output": 0, "depth": 0, "repeat": 1}
 * Out: {"text": "...", "pieces": [[offset, length, trusted], ...]}
 *      or {"code": "...", "error": "..."}, a line each; with "repeat", also "us": the mean
 * processor time of a rendering. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/buf.h"
#include "tokenizer/template/tmpl.h"

static struct span text_of(const json_t *request, const char *name)
{
	const json_t *value = json_object_get(request, name);
	if (!json_is_string(value))
		return (struct span){0};
	return (struct span){json_string_value(value), json_string_length(value)};
}

static size_t number_of(const json_t *request, const char *name)
{
	return (size_t)json_integer_value(json_object_get(request, name));
}

static int64_t clock_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void print_output(const struct tmpl_output *output, struct buf *line)
{
	buf_print(line, "{\"text\":");
	buf_json_string(line, (struct span){output->text, output->len});
	buf_print(line, ",\"pieces\":[");
	for (size_t i = 0; i < output->piece_count; i++)
		buf_print(line, "%s[%zu,%zu,%s]", i ? "," : "", output->pieces[i].offset,
			  output->pieces[i].length, output->pieces[i].trusted ? "true" : "false");
	buf_print(line, "]");
}

static enum svc_code render(const json_t *request, struct buf *line, struct svc_err *err)
{
	struct tmpl_input input = {
		.messages = json_object_get(request, "messages"),
		.tools = json_object_get(request, "tools"),
		.documents = json_object_get(request, "documents"),
		.kwargs = json_object_get(request, "kwargs"),
		.add_generation_prompt =
			json_is_true(json_object_get(request, "add_generation_prompt")),
		.join_parts = json_is_true(json_object_get(request, "join_parts")),
		.parse_arguments = json_is_true(json_object_get(request, "parse_arguments")),
		.bos_token = text_of(request, "bos_token"),
		.eos_token = text_of(request, "eos_token"),
		.now_s = (int64_t)number_of(request, "now"),
		.limits = {.steps = number_of(request, "steps"),
			   .memory_bytes = number_of(request, "memory"),
			   .output_bytes = number_of(request, "output"),
			   .depth = (unsigned)number_of(request, "depth")},
	};
	struct tmpl *tmpl = NULL;
	enum svc_code code = tmpl_compile(text_of(request, "template"), &tmpl, err);
	size_t repeat = number_of(request, "repeat");
	int64_t start = clock_us();
	for (size_t i = 0; i < (repeat ? repeat : 1) && code == SVC_OK; i++) {
		struct tmpl_output output = {0};
		code = tmpl_render(tmpl, &input, &output, err);
		if (code == SVC_OK && i == 0)
			print_output(&output, line);
		tmpl_output_free(&output);
	}
	if (repeat && code == SVC_OK)
		buf_print(line, ",\"us\":%.1f", (double)(clock_us() - start) / (double)repeat);
	tmpl_free(tmpl);
	return code;
}

static bool answer(const char *text, size_t len)
{
	struct svc_err err = {0};
	struct buf line = {0};
	json_error_t why;
	json_t *request = json_loadb(text, len, JSON_ALLOW_NUL, &why);
	if (!request) {
		fprintf(stderr, "lockstep-tmpl-render: not JSON: %s\n", why.text);
		return false;
	}
	enum svc_code code = render(request, &line, &err);
	if (code != SVC_OK) {
		buf_clear(&line);
		buf_print(&line, "{\"code\":\"%s\",\"error\":", svc_code_info(code)->name);
		buf_json_string(&line, span_of(err.msg));
	}
	buf_print(&line, "}\n");
	bool ok = !line.failed && fwrite(line.ptr, 1, line.len, stdout) == line.len;
	buf_free(&line);
	json_decref(request);
	return ok;
}

int main(void)
{
	char *line = NULL;
	size_t room = 0;
	ssize_t len;
	bool ok = true;
	while (ok && (len = getline(&line, &room, stdin)) > 0)
		ok = answer(line, (size_t)len);
	free(line);
	return ok && fflush(stdout) == 0 ? 0 : 1;
}
