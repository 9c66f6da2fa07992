#include "gateway/tools.h"

#include <stdio.h>
#include <string.h>

#include "gateway/speech.h"

static const struct gw_tool_form forms[VOCAB_TOOLS_COUNT] = {
	/* Hermes and Qwen; also for templates that know no tools, which are told of this form. */
	[VOCAB_TOOLS_NONE] = {"<tool_call>\n{\"name\": \"", "\", \"arguments\": ",
			      "}\n</tool_call>", "\n<tool_call>\n{\"name\": \"", "",
			      sizeof "<tool_call>" - 1, true, false},
	[VOCAB_TOOLS_HERMES] = {"<tool_call>\n{\"name\": \"", "\", \"arguments\": ",
				"}\n</tool_call>", "\n<tool_call>\n{\"name\": \"", "",
				sizeof "<tool_call>" - 1, true, false},
	[VOCAB_TOOLS_LLAMA3] = {"{\"name\": \"", "\", \"parameters\": ", "}", NULL, "",
				sizeof "{\"name\": \"" - 1, false, false},
	[VOCAB_TOOLS_MISTRAL] = {"[{\"name\": \"", "\", \"arguments\": ", "}", ", {\"name\": \"",
				 "]", sizeof "[{\"name\": \"" - 1, false, false},
	/* Templates that show tools in a way of their own: what most models were shown as JSON. */
	[VOCAB_TOOLS_OTHER] = {"{\"name\": \"", "\", \"arguments\": ", "}", NULL, "",
			       sizeof "{\"name\": \"" - 1, false, false},
	[VOCAB_TOOLS_MISTRAL_LIST] = {GW_MARK "[{\"name\": \"", "\", \"arguments\": ", "}",
				      ", {\"name\": \"", "]", 1, true, false},
	[VOCAB_TOOLS_MISTRAL_SPACED] = {GW_MARK " [{\"name\": \"", "\", \"arguments\": ", "}",
					", {\"name\": \"", "]", 1, true, false},
	[VOCAB_TOOLS_MISTRAL_ARGS] = {GW_MARK, GW_MARK, "", GW_MARK, "", 1, true, false},
	[VOCAB_TOOLS_MISTRAL_IDS] = {GW_MARK, GW_MARK, "", GW_MARK, "", 1, true, true},
};

const struct gw_tool_form *gw_tool_form_of(enum vocab_tools tools)
{
	return tools < VOCAB_TOOLS_COUNT ? &forms[tools] : NULL;
}

/* ---- calls ---- */

static const json_t *function_of(const json_t *tools, size_t index)
{
	return json_object_get(json_array_get(tools, index), "function");
}

static enum svc_code arguments_put(struct gr_writer *writer, const json_t *tools, size_t index,
				   struct svc_err *err)
{
	const json_t *schema = json_object_get(function_of(tools, index), "parameters");
	char rule[32];
	snprintf(rule, sizeof rule, "arguments-%zu", index);
	if (!schema || json_is_null(schema) || json_object_size(schema) == 0) {
		buf_print(&writer->out, "%s ::= \"{}\"\n", rule);
		return SVC_OK;
	}
	enum svc_code code = gr_put_schema(writer, rule, schema, err);
	if (code != SVC_OK)
		svc_err_prefix(err, "tools[%zu].function.parameters", index);
	return code;
}

/* Text of a form, in which each mark is that token. */
static void marked_put(struct buf *out, const char *text, int32_t token)
{
	for (;;) {
		size_t n = strcspn(text, GW_MARK);
		if (n)
			gr_put_literal(out, (struct span){text, n});
		if (text[n] == 0)
			break;
		buf_print(out, " <[%d]> ", token);
		text += n + 1;
	}
}

/* What lies between the name and the arguments. */
static void middle_put(struct buf *out, const struct gw_tool_use *use,
		       const struct gw_tool_form *form)
{
	if (form->has_ids)
		buf_print(out, " <[%d]> [0-9A-Za-z]{%u} ", use->tokens.call_id, GW_CALL_ID_LETTERS);
	marked_put(out, form->middle, use->tokens.args);
}

/* The rule `call`: name, arguments, end; of the tools that may be called. */
static enum svc_code call_put(struct gr_writer *writer, const struct gw_tool_use *use,
			      const struct gw_tool_form *form, struct svc_err *err)
{
	struct buf call = {0};
	enum svc_code code = SVC_OK;
	bool any = false;
	for (size_t i = 0; code == SVC_OK && i < json_array_size(use->tools); i++) {
		const char *name =
			json_string_value(json_object_get(function_of(use->tools, i), "name"));
		if (use->choice == GW_TOOL_NAMED && strcmp(name, use->name) != 0)
			continue;
		code = arguments_put(writer, use->tools, i, err);
		buf_print(&call, any ? " | " : "");
		gr_put_literal(&call, span_of(name));
		middle_put(&call, use, form);
		buf_print(&call, " arguments-%zu ", i);
		gr_put_literal(&call, span_of(form->end));
		any = true;
	}
	buf_print(&writer->out, "call ::= ");
	buf_span(&writer->out, (struct span){call.ptr, call.len});
	buf_print(&writer->out, "\n");
	writer->out.failed |= call.failed;
	buf_free(&call);
	return code;
}

/* The rule `calls`: what follows the first one's beginning. */
static void calls_put(struct buf *out, const struct gw_tool_use *use,
		      const struct gw_tool_form *form)
{
	bool several = form->next && !use->single && use->choice != GW_TOOL_NAMED;
	buf_print(out, "calls ::= call ");
	if (several) {
		buf_print(out, "(");
		marked_put(out, form->next, use->tokens.calls);
		buf_print(out, " call){0,%u} ", GW_CALLS_MAX - 1);
	}
	gr_put_literal(out, span_of(form->close));
	buf_print(out, "\n");
}

/* ---- text, until a call begins ---- */

/* How many bytes of the trigger the text ends with, when byte follows its first n bytes. */
static size_t matched(const char *trigger, size_t n, char byte)
{
	char text[64];
	memcpy(text, trigger, n);
	text[n] = byte;
	for (size_t length = n + 1; length > 0; length--)
		if (memcmp(text + n + 1 - length, trigger, length) == 0)
			return length;
	return 0;
}

/* A control token can't be mistaken for text. */
static void text_to_mark_put(struct buf *out, const struct gw_tool_use *use,
			     const struct gw_tool_form *form)
{
	buf_print(out, "text-0 ::= \"\" | . text-0 | ");
	marked_put(out, form->first, use->tokens.calls);
	buf_print(out, " calls\n");
}

/* Rules text-0 to text-N: as much of the trigger has been read. A text may end anywhere. */
static void text_put(struct buf *out, const struct gw_tool_form *form)
{
	for (size_t n = 0; n < form->trigger; n++) {
		struct char_set others = {0};
		buf_print(out, "text-%zu ::= \"\"", n);
		for (size_t i = 0; i < form->trigger; i++) {
			char byte = form->first[i];
			size_t next = matched(form->first, n, byte);
			if (memchr(form->first, byte, i) || next == 0 ||
			    (!form->anywhere && next <= n))
				continue;
			char_set_add(&others, (unsigned char)byte, (unsigned char)byte);
			buf_print(out, " | ");
			gr_put_literal(out, (struct span){&byte, 1});
			if (next < form->trigger) {
				buf_print(out, " text-%zu", next);
				continue;
			}
			buf_print(out, " ");
			gr_put_literal(out, span_of(form->first + form->trigger));
			buf_print(out, " calls");
		}
		char_set_invert(&others);
		buf_print(out, " | ");
		gr_put_class(out, &others);
		buf_print(out, form->anywhere ? " text-0\n" : " .*\n");
		out->failed |= others.failed;
		char_set_free(&others);
	}
}

enum svc_code gw_tools_put(struct gr_writer *writer, const struct gw_tool_use *use, bool content,
			   struct svc_err *err)
{
	const struct gw_tool_form *form = gw_tool_form_of(use->form);
	struct buf *out = &writer->out;
	if (!form)
		return svc_fail(err, SVC_INTERNAL, __func__, "calls without a form");
	enum svc_code code = call_put(writer, use, form, err);
	if (code != SVC_OK)
		return code;
	calls_put(out, use, form);
	if (use->choice == GW_TOOL_AUTO && !content) {
		if (*form->first == *GW_MARK)
			text_to_mark_put(out, use, form);
		else
			text_put(out, form);
		buf_print(out, "root ::= text-0\n");
		return SVC_OK;
	}
	buf_print(out, "root ::= ");
	if (use->choice == GW_TOOL_AUTO)
		buf_print(out, "content | ");
	marked_put(out, form->first, use->tokens.calls);
	buf_print(out, " calls\n");
	return SVC_OK;
}
