/* gateway/api/api_constraint.c: what an answer must be: JSON, JSON of a schema, a match of a
 * regular expression, one of some texts, a text of a grammar. OpenAI's, vLLM's and llama-server's
 * names for it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/api/api_read.h"
#include "gateway/api/json_read.h"
#include "grammar/schema.h"

static enum svc_code constraint_set(struct gw_reading *reading, const char *name,
				    enum gw_bound bound, const json_t *value)
{
	struct gw_constraint *constraint = &reading->constraint;
	if (constraint->bound != GW_BOUND_NONE)
		return gw_wrong(reading, name,
				"%s and %s both say what the answer must be: give one of them",
				name, constraint->param);
	*constraint = (struct gw_constraint){bound, name, value, NULL};
	return SVC_OK;
}

static enum svc_code text_set(struct gw_reading *reading, const char *name, enum gw_bound bound,
			      const json_t *value)
{
	if (!json_is_string(value) || json_string_length(value) > GR_TEXT_MAX)
		return gw_wrong(reading, name, "%s must be a string of at most %u bytes", name,
				GR_TEXT_MAX);
	return constraint_set(reading, name, bound, value);
}

/* A schema, or the text of one. */
static enum svc_code schema_set(struct gw_reading *reading, const char *name, const json_t *value)
{
	json_t *own = NULL;
	if (json_is_string(value)) {
		enum svc_code code = gw_json_read(gw_json_span(value), NULL, &own, reading->err);
		if (code != SVC_OK) {
			/* The place is one in that text, not in the body. */
			svc_err_prefix(reading->err, "%s: the text of a schema", name);
			snprintf(reading->err->param, sizeof reading->err->param, "%s", name);
			return code;
		}
		value = own;
	}
	enum svc_code code = SVC_OK;
	if (!json_is_object(value) && !json_is_boolean(value))
		code = gw_wrong(reading, name, "%s must be a JSON schema: an object", name);
	if (code == SVC_OK)
		code = constraint_set(reading, name, GW_BOUND_SCHEMA, value);
	if (code == SVC_OK)
		reading->constraint.own = own;
	else
		json_decref(own);
	return code;
}

static enum svc_code choice_set(struct gw_reading *reading, const char *name, const json_t *value)
{
	size_t n = json_array_size(value);
	bool good = json_is_array(value) && n > 0 && n <= GR_CHOICES_MAX;
	for (size_t i = 0; good && i < n; i++)
		good = json_is_string(json_array_get(value, i));
	if (!good)
		return gw_wrong(reading, name, "%s must be an array of 1 to %u strings", name,
				GR_CHOICES_MAX);
	return constraint_set(reading, name, GW_BOUND_CHOICE, value);
}

enum svc_code gw_read_guided_json(struct gw_reading *reading, const char *name, json_t *value)
{
	return schema_set(reading, name, value);
}

enum svc_code gw_read_guided_regex(struct gw_reading *reading, const char *name, json_t *value)
{
	return text_set(reading, name, GW_BOUND_REGEX, value);
}

enum svc_code gw_read_guided_choice(struct gw_reading *reading, const char *name, json_t *value)
{
	return choice_set(reading, name, value);
}

/* An empty grammar is how llama-server's clients say: none. */
enum svc_code gw_read_guided_grammar(struct gw_reading *reading, const char *name, json_t *value)
{
	if (json_is_string(value) && json_string_length(value) == 0)
		return SVC_OK;
	return text_set(reading, name, GW_BOUND_GRAMMAR, value);
}

/* {"type": "json_schema", "json_schema": {"name", "description", "schema", "strict"}}: it is always
 * strict here. */
static enum svc_code schema_format_read(struct gw_reading *reading, const char *name,
					const json_t *value)
{
	const json_t *format = json_object_get(value, "json_schema");
	const json_t *schema = json_object_get(format, "schema");
	/* llama-server's form has the schema right here. */
	if (!format)
		schema = json_object_get(value, "schema");
	if (!schema)
		return gw_wrong(reading, name,
				"response_format of type json_schema needs json_schema.schema");
	return schema_set(reading, name, schema);
}

enum svc_code gw_read_response_format(struct gw_reading *reading, const char *name, json_t *value)
{
	const json_t *type = json_object_get(value, "type");
	struct span text = gw_json_span(type);
	if (!json_is_string(type))
		return gw_wrong(reading, name,
				"response_format must be an object with a string type");
	if (span_is(text, "text"))
		return SVC_OK;
	if (span_is(text, "json_schema"))
		return schema_format_read(reading, name, value);
	if (span_is(text, "json_object") && json_object_get(value, "schema"))
		return schema_format_read(reading, name, value);
	if (span_is(text, "json_object"))
		return constraint_set(reading, name, GW_BOUND_OBJECT, NULL);
	return svc_fail_param(reading->err, SVC_UNSUPPORTED, "response_format",
			      "response_format: there are the types text, json_object and "
			      "json_schema");
}

static enum svc_code structured_member_read(struct gw_reading *reading, const char *name,
					    const char *member, const json_t *value)
{
	if (strcmp(member, "json") == 0)
		return schema_set(reading, name, value);
	if (strcmp(member, "regex") == 0)
		return text_set(reading, name, GW_BOUND_REGEX, value);
	if (strcmp(member, "choice") == 0)
		return choice_set(reading, name, value);
	if (strcmp(member, "grammar") == 0)
		return text_set(reading, name, GW_BOUND_GRAMMAR, value);
	if (strcmp(member, "json_object") == 0)
		return constraint_set(reading, name, GW_BOUND_OBJECT, NULL);
	return svc_fail_param(reading->err, SVC_UNSUPPORTED, name,
			      "structured_outputs: only the members json, json_object, regex, "
			      "choice and grammar are supported");
}

/* vLLM's newer form: one object with one of these members. */
enum svc_code gw_read_structured(struct gw_reading *reading, const char *name, json_t *value)
{
	const char *member;
	json_t *json;
	if (!json_is_object(value))
		return gw_wrong(reading, name, "structured_outputs must be an object");
	json_object_foreach(value, member, json)
	{
		if (json_is_null(json) || json_is_false(json))
			continue;
		enum svc_code code = structured_member_read(reading, name, member, json);
		if (code != SVC_OK)
			return code;
	}
	return SVC_OK;
}

/* ---- the grammar ---- */

static enum svc_code choices_put(struct gw_reading *reading, struct gr_writer *writer,
				 const char *rule)
{
	const json_t *list = reading->constraint.value;
	size_t n = json_array_size(list);
	struct span *texts = arena_alloc(&reading->request->arena, n * sizeof *texts);
	struct buf item = {0};
	if (!texts)
		return gw_no_memory(reading);
	for (size_t i = 0; i < n; i++)
		texts[i] = gw_json_span(json_array_get(list, i));
	gr_put_choices(writer, &item, texts, n);
	buf_print(&writer->out, "%s ::= ", rule);
	buf_span(&writer->out, (struct span){item.ptr, item.len});
	buf_print(&writer->out, "\n");
	writer->out.failed |= item.failed;
	buf_free(&item);
	return SVC_OK;
}

static enum svc_code regex_put(struct gw_reading *reading, struct buf *out, const char *rule)
{
	buf_print(out, "%s ::= ", rule);
	enum svc_code code = gr_put_regex(out, gw_json_span(reading->constraint.value),
					  GR_REGEX_WHOLE, reading->err);
	buf_print(out, "\n");
	return code;
}

/* Adds the rule of what the answer's text must be. */
static enum svc_code bound_put(struct gw_reading *reading, struct gr_writer *writer,
			       const char *rule)
{
	const struct gw_constraint *constraint = &reading->constraint;
	switch (constraint->bound) {
	case GW_BOUND_OBJECT:
		buf_print(&writer->out, "%s ::= json-object\n", rule);
		break;
	case GW_BOUND_SCHEMA:
		return gr_put_schema(writer, rule, constraint->value, reading->err);
	case GW_BOUND_REGEX:
		return regex_put(reading, &writer->out, rule);
	case GW_BOUND_CHOICE:
		return choices_put(reading, writer, rule);
	case GW_BOUND_GRAMMAR:
		if (reading->tools)
			return gw_wrong(reading, constraint->param,
					"a grammar beside tools is not supported");
		buf_clear(&writer->out);
		buf_span(&writer->out, gw_json_span(constraint->value));
		break;
	case GW_BOUND_NONE:
		break;
	}
	return SVC_OK;
}

static enum svc_code grammar_put(struct gw_reading *reading, struct gr_writer *writer)
{
	bool bound = reading->constraint.bound != GW_BOUND_NONE;
	enum svc_code code = SVC_OK;
	gr_put_json_rules(&writer->out);
	if (bound)
		code = bound_put(reading, writer, reading->tools ? "content" : "root");
	if (code == SVC_OK && reading->tools)
		code = gw_tools_build(reading, writer, bound);
	return code;
}

/* Compiles what was written once, for what is wrong with it. */
static enum svc_code grammar_check(struct gw_reading *reading, const struct buf *text)
{
	struct gr_grammar *grammar = NULL;
	if (text->failed)
		return gw_wrong(reading, "", "its grammar has more than %u bytes", GR_TEXT_MAX);
	enum svc_code code =
		gr_compile((struct span){text->ptr, text->len}, &grammar, reading->err);
	bool steers = grammar && grammar->names_tokens;
	gr_free(grammar);
	if (steers && reading->constraint.bound == GW_BOUND_GRAMMAR)
		return gw_wrong(reading, reading->constraint.param,
				"a request's grammar may not name tokens (<[ID]>)");
	return code;
}

enum svc_code gw_constraint_build(struct gw_reading *reading)
{
	const struct gw_constraint *constraint = &reading->constraint;
	const char *param = constraint->bound == GW_BOUND_NONE ? "tools" : constraint->param;
	struct gr_writer writer = {0};
	if (constraint->bound == GW_BOUND_NONE &&
	    !(reading->tools && reading->request->endpoint == GW_CHAT))
		return SVC_OK;
	enum svc_code code = grammar_put(reading, &writer);
	if (code == SVC_OK)
		code = grammar_check(reading, &writer.out);
	if (code != SVC_OK) {
		buf_free(&writer.out);
		if (strncmp(reading->err->msg, "tools[", 6) == 0)
			param = "tools";
		snprintf(reading->err->param, sizeof reading->err->param, "%s", param);
		if (strncmp(reading->err->msg, param, strlen(param)) != 0)
			svc_err_prefix(reading->err, "%s", param);
		return code;
	}
	/* A bound answer has no reasoning before it. */
	if (constraint->bound != GW_BOUND_NONE)
		reading->request->thinks = false;
	reading->request->grammar_text = writer.out.ptr;
	reading->request->grammar = (struct span){writer.out.ptr, writer.out.len};
	return SVC_OK;
}
