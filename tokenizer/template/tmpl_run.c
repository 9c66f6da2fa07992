/* One rendering from beginning to end: its limits, its failures, its input and its output. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tokenizer/template/tmpl_eval.h"
#include "tokenizer/template/tmpl_print.h"

#define DEFAULT_STEPS  5000000u
#define DEFAULT_MEMORY ((size_t)256 << 20)
#define DEFAULT_OUTPUT ((size_t)64 << 20)

void tmpl_failed(struct tmpl_eval *e, enum svc_code code, const char *format, ...)
{
	if (e->code != SVC_OK)
		return;
	char text[400];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	const char *what = code == SVC_UNSUPPORTED ? "not supported: " : "";
	e->code = svc_fail_param(e->err, code, "chat_template", "chat template, line %u: %s%s",
				 e->line, what, text);
}

void tmpl_failed_undefined(struct tmpl_eval *e, struct tmpl_value value)
{
	static const char *const why[] = {
		[WHY_NAME] = "'%.*s' is undefined",
		[WHY_ATTRIBUTE] = "there is no attribute or item '%.*s'",
		[WHY_UNSAFE] = "'%.*s' would change a value, which templates may not",
		[WHY_HINT] = "%.*s is undefined",
	};
	struct span name = value.str ? tmpl_span(value.str) : span_of("value");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	tmpl_failed(e, SVC_INVALID, why[value.detail], (int)(name.len < 200 ? name.len : 200),
		    name.ptr);
#pragma GCC diagnostic pop
}

void tmpl_failed_type(struct tmpl_eval *e, const char *what, struct tmpl_value value)
{
	if (value.kind == TV_UNDEFINED)
		tmpl_failed_undefined(e, value);
	else
		tmpl_failed(e, SVC_INVALID, "%s: not with a value of type %s", what,
			    tmpl_type_name(value));
}

bool tmpl_charge(struct tmpl_eval *e, uint64_t steps)
{
	if (e->code != SVC_OK)
		return false;
	e->steps += steps;
	return e->steps <= e->limits.steps ||
	       tmpl_fail(e, SVC_TOO_LARGE, "more than %llu steps, the limit of one rendering",
			 (unsigned long long)e->limits.steps);
}

bool tmpl_enter(struct tmpl_eval *e)
{
	return ++e->depth <= e->limits.depth ||
	       tmpl_fail(e, SVC_TOO_LARGE, "nested deeper than %u, the limit of one rendering",
			 e->limits.depth);
}

void tmpl_leave(struct tmpl_eval *e)
{
	e->depth--;
}

void *tmpl_alloc(struct tmpl_eval *e, size_t count, size_t size)
{
	size_t total;
	void *memory = NULL;
	if (e->code != SVC_OK)
		return NULL;
	bool big = __builtin_mul_overflow(count, size, &total) || total > e->limits.memory_bytes ||
		   e->arena.used_bytes > e->limits.memory_bytes - total;
	if (!big)
		memory = arena_alloc(&e->arena, total);
	if (memory)
		return memory;
	/* The arena's own limit is a little above: within it, the machine is out of memory. */
	if (big)
		tmpl_failed(e, SVC_TOO_LARGE, "more than %zu bytes of memory, the limit of one %s",
			    e->limits.memory_bytes, e->tmpl ? "rendering" : "template");
	else
		tmpl_failed(e, SVC_NO_MEMORY, "no memory for %zu bytes", total);
	return NULL;
}

static bool make_output(struct tmpl_eval *e, const struct tmpl_builder *out,
			struct tmpl_output *ret)
{
	if (out->failed)
		return false;
	uint32_t count = out->run_count;
	char *text = malloc(out->len + 1);
	struct tmpl_piece *pieces = malloc((count ? count : 1) * sizeof *pieces);
	if (!text || !pieces) {
		free(text);
		free(pieces);
		return tmpl_fail(e, SVC_NO_MEMORY, "no memory for the output");
	}
	if (out->len)
		memcpy(text, out->ptr, out->len);
	text[out->len] = 0;
	for (uint32_t i = 0; i < count; i++) {
		size_t from = i ? out->runs[i - 1].end : 0;
		pieces[i] = (struct tmpl_piece){.offset = from,
						.length = out->runs[i].end - from,
						.trusted = out->runs[i].trusted};
	}
	*ret = (struct tmpl_output){
		.text = text, .len = out->len, .pieces = pieces, .piece_count = count};
	return true;
}

static bool render(struct tmpl_eval *e, struct tmpl_output *ret)
{
	struct tmpl_builder out;
	tmpl_build(&out, e, 4096);
	e->out = &out;
	e->scope = tmpl_scope_open(e, NULL);
	return e->scope && tmpl_scope_unset(e, e->scope, e->tmpl->unset) && tmpl_bind_input(e) &&
	       tmpl_exec(e, e->tmpl->body) == FLOW_NEXT && make_output(e, &out, ret);
}

enum svc_code tmpl_render(const struct tmpl *tmpl, const struct tmpl_input *input,
			  struct tmpl_output *ret_output, struct svc_err *err)
{
	struct tmpl_limits limits = input->limits;
	limits.steps = limits.steps ? limits.steps : DEFAULT_STEPS;
	limits.memory_bytes = limits.memory_bytes ? limits.memory_bytes : DEFAULT_MEMORY;
	limits.output_bytes = limits.output_bytes ? limits.output_bytes : DEFAULT_OUTPUT;
	limits.depth =
		limits.depth && limits.depth < TMPL_MOST_DEPTH ? limits.depth : TMPL_MOST_DEPTH;
	struct tmpl_eval e = {
		.tmpl = tmpl, .input = input, .err = err, .limits = limits, .line = 1};
	arena_init(&e.arena, 0);
	if (!render(&e, ret_output) && e.code == SVC_OK)
		tmpl_failed(&e, SVC_INTERNAL, "failed without a reason");
	arena_free(&e.arena);
	json_decref(e.parsed);
	return e.code;
}

void tmpl_output_free(struct tmpl_output *output)
{
	free(output->text);
	free(output->pieces);
	*output = (struct tmpl_output){0};
}
