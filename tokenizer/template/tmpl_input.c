/* The variables a template sees: the request's, normalised as transformers does, and functions. */
#include "tokenizer/template/tmpl_builtin.h"
#include "tokenizer/template/tmpl_eval.h"
#include "tokenizer/template/tmpl_print.h"

/* Names under which a message's reasoning comes; templates read the first, gpt-oss the second. */
static const char *const reasoning_names[] = {"reasoning_content", "thinking", "reasoning"};

/* The roles of the API. A template may build a control token from one ("<|" ~ role ~ "|>"), and
 * naming one of a fixed few is no injection: these are trusted, any other role is not. */
static const char *const known_roles[] = {"system",    "developer", "user",
					  "assistant", "tool",	    "function"};

static bool set_named(struct tmpl_eval *e, struct tmpl_dict *dict, const char *name,
		      struct tmpl_value value)
{
	const struct tmpl_str *key = tmpl_str_static(e, name);
	return key && tmpl_dict_set(e, dict, tmpl_str_value(key), value);
}

static bool trust_role(struct tmpl_eval *e, struct tmpl_dict *message)
{
	struct tmpl_value role = tmpl_dict_named(message, "role");
	if (role.kind != TV_STRING)
		return true;
	for (size_t i = 0; i < sizeof known_roles / sizeof *known_roles; i++)
		if (span_is(tmpl_span(role.str), known_roles[i])) {
			const struct tmpl_str *own = tmpl_str_static(e, known_roles[i]);
			return own && set_named(e, message, "role", tmpl_str_value(own));
		}
	return true;
}

/* Whichever name the reasoning came under, the template finds it under its own. */
static bool name_reasoning(struct tmpl_eval *e, struct tmpl_dict *message)
{
	struct tmpl_value reasoning = {.kind = TV_MISSING};
	for (size_t i = 0; i < 3 && reasoning.kind == TV_MISSING; i++)
		reasoning = tmpl_dict_named(message, reasoning_names[i]);
	if (reasoning.kind == TV_MISSING)
		return true;
	if (!set_named(e, message, "reasoning_content", reasoning))
		return false;
	return tmpl_dict_named(message, "thinking").kind != TV_MISSING ||
	       set_named(e, message, "thinking", reasoning);
}

/* The text of a part {"type": "text", "text": ...}; NULL for any other. */
static const struct tmpl_str *part_text(struct tmpl_value part)
{
	if (part.kind == TV_STRING)
		return part.str;
	if (part.kind != TV_DICT)
		return NULL;
	struct tmpl_value type = tmpl_dict_named(part.dict, "type");
	struct tmpl_value text = tmpl_dict_named(part.dict, "text");
	bool is_text = type.kind == TV_STRING && span_is(tmpl_span(type.str), "text");
	return is_text && text.kind == TV_STRING ? text.str : NULL;
}

static bool join_parts(struct tmpl_eval *e, struct tmpl_dict *message)
{
	struct tmpl_value content = tmpl_dict_named(message, "content");
	if (content.kind != TV_LIST)
		return true;
	struct tmpl_builder b;
	tmpl_build(&b, e, 0);
	for (size_t i = 0; i < content.list->count; i++) {
		const struct tmpl_str *text = part_text(content.list->items[i]);
		if (!text)
			return true;
		if (i > 0)
			tmpl_add_text(&b, "\n", false);
		tmpl_add(&b, text);
	}
	const struct tmpl_str *joined = tmpl_built(&b);
	return joined && set_named(e, message, "content", tmpl_str_value(joined));
}

/* The object that a string of JSON is; *value stays as it is if it isn't one. */
static bool parse_object(struct tmpl_eval *e, struct tmpl_value *value)
{
	if (value->kind != TV_STRING)
		return true;
	json_t *json = json_loadb(value->str->ptr, value->str->len, JSON_ALLOW_NUL, NULL);
	if (!json_is_object(json)) {
		json_decref(json);
		return true;
	}
	if (!e->parsed)
		e->parsed = json_array();
	if (json_array_append_new(e->parsed, json) != 0)
		return tmpl_fail(e, SVC_NO_MEMORY, "no memory for a tool call's arguments");
	return tmpl_from_json(e, json, value);
}

/* Of {"tool_calls": [{"function": {"arguments": ...}}]}. The dicts are this rendering's own. */
static bool parse_arguments(struct tmpl_eval *e, struct tmpl_dict *message)
{
	struct tmpl_value calls = tmpl_dict_named(message, "tool_calls");
	for (size_t i = 0; calls.kind == TV_LIST && i < calls.list->count; i++) {
		struct tmpl_value call = calls.list->items[i], arguments;
		struct tmpl_value function =
			call.kind == TV_DICT ? tmpl_dict_named(call.dict, "function") : call;
		if (function.kind != TV_DICT)
			continue;
		arguments = tmpl_dict_named(function.dict, "arguments");
		if (!tmpl_given(arguments))
			continue;
		if (!parse_object(e, &arguments) ||
		    !set_named(e, function.dict, "arguments", arguments))
			return false;
	}
	return true;
}

/* Without the keys that are null: to a template, those are not there. */
static bool normalise_message(struct tmpl_eval *e, struct tmpl_value *message)
{
	struct tmpl_dict *all = message->dict, *kept = tmpl_dict_new(e);
	if (!kept)
		return false;
	for (size_t i = 0; i < all->count; i++)
		if (all->entries[i].value.kind != TV_NONE &&
		    !tmpl_dict_set(e, kept, all->entries[i].key, all->entries[i].value))
			return false;
	message->dict = kept;
	return trust_role(e, kept) && name_reasoning(e, kept) &&
	       (!e->input->join_parts || join_parts(e, kept)) &&
	       (!e->input->parse_arguments || parse_arguments(e, kept));
}

static bool bind_messages(struct tmpl_eval *e, struct tmpl_value *ret)
{
	if (!e->input->messages) {
		struct tmpl_list *none = tmpl_list_new(e, 0);
		*ret = tmpl_list_value(TV_LIST, none);
		return none != NULL;
	}
	if (!tmpl_from_json(e, e->input->messages, ret))
		return false;
	for (size_t i = 0; i < ret->list->count; i++)
		if (!normalise_message(e, &ret->list->items[i]))
			return false;
	return true;
}

static bool bind_token(struct tmpl_eval *e, struct span token, struct tmpl_value *ret)
{
	if (!token.ptr)
		return true;
	const struct tmpl_str *str = tmpl_str_new(e, token, true);
	*ret = tmpl_str_value(str);
	return str != NULL;
}

/* The variable of this name, or TV_MISSING. Only what the template names is converted. */
static bool bind_name(struct tmpl_eval *e, struct span name, struct tmpl_value *ret)
{
	const struct tmpl_input *input = e->input;
	const struct tmpl_builtin *function = tmpl_function_find(name);
	if (function)
		*ret = (struct tmpl_value){
			.kind = TV_FUNCTION, .trusted = true, .function = function};
	if (span_is(name, "messages"))
		return bind_messages(e, ret);
	const json_t *given = input->kwargs ? json_object_get(input->kwargs, name.ptr) : NULL;
	if (given)
		return tmpl_from_json(e, given, ret);
	if (span_is(name, "tools"))
		return tmpl_from_json(e, input->tools, ret);
	if (span_is(name, "documents"))
		return tmpl_from_json(e, input->documents, ret);
	if (span_is(name, "add_generation_prompt"))
		*ret = tmpl_bool(input->add_generation_prompt);
	if (span_is(name, "bos_token"))
		return bind_token(e, input->bos_token, ret);
	if (span_is(name, "eos_token"))
		return bind_token(e, input->eos_token, ret);
	if (span_is(name, "pad_token"))
		return bind_token(e, input->pad_token, ret);
	if (span_is(name, "unk_token"))
		return bind_token(e, input->unk_token, ret);
	return true;
}

/* What the code here relies on, whether or not the template looks at messages. */
static bool check_messages(struct tmpl_eval *e)
{
	const json_t *messages = e->input->messages;
	if (messages && !json_is_array(messages))
		return tmpl_fail(e, SVC_INVALID, "messages is not an array");
	for (size_t i = 0; i < json_array_size(messages); i++)
		if (!json_is_object(json_array_get(messages, i)))
			return tmpl_fail(e, SVC_INVALID, "messages[%zu] is not an object", i);
	return true;
}

bool tmpl_bind_input(struct tmpl_eval *e)
{
	const struct tmpl *tmpl = e->tmpl;
	if (!check_messages(e))
		return false;
	if (e->input->kwargs && json_object_get(e->input->kwargs, "messages"))
		return tmpl_fail(e, SVC_INVALID, "the template's arguments may not name messages");
	e->context = tmpl_alloc(e, tmpl->symbol_count, sizeof *e->context);
	if (!e->context)
		return false;
	for (uint32_t i = 0; i < tmpl->symbol_count; i++) {
		struct span symbol = tmpl_span(tmpl->symbols[i].name);
		char *name = tmpl_alloc(e, symbol.len + 1, 1); /* terminated, for jansson */
		if (!name)
			return false;
		memcpy(name, symbol.ptr, symbol.len);
		if (!bind_name(e, (struct span){name, symbol.len}, &e->context[i]))
			return false;
	}
	return true;
}
