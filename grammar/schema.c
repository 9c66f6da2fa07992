#include "grammar/schema_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum svc_code schema_fail(struct schema *schema, const char *path, const char *format, ...)
{
	char text[256];
	va_list list;
	va_start(list, format);
	vsnprintf(text, sizeof text, format, list);
	va_end(list);
	size_t len = strlen(path), from = len > 160 ? len - 160 : 0;
	return svc_fail(schema->err, SVC_INVALID, __func__, "schema refused at %s%s: %s",
			from ? "..." : "", *path ? path + from : "its root", text);
}

enum svc_code schema_no_memory(struct schema *schema)
{
	return svc_fail(schema->err, SVC_NO_MEMORY, __func__, "no memory for a schema");
}

/* Only what looks like a name is repeated in an error's text. */
const char *schema_path(struct schema *schema, const char *path, const char *member)
{
	static const char plain[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-$.";
	size_t room = strlen(path) + 82;
	char *joined = arena_alloc(&schema->arena, room);
	if (!joined)
		return NULL;
	int n = snprintf(joined, room, "%s/%.80s", path, member);
	for (size_t i = strlen(path) + 1; i < (size_t)n; i++)
		joined[i] = strchr(plain, joined[i]) ? joined[i] : '*';
	return joined;
}

/* ---- views ---- */

enum svc_code schema_view_add(struct schema *schema, struct view view, struct part part,
			      struct view *ret_view)
{
	if (!part.path)
		return schema_no_memory(schema);
	if (view.n == PARTS_MAX)
		return schema_wrong(schema, part.path,
				    "more than %u schemas hold of this value ($ref, allOf, "
				    "anyOf), or it refers to itself",
				    PARTS_MAX);
	struct part *parts = arena_alloc(&schema->arena, (view.n + 1) * sizeof *parts);
	if (!parts)
		return schema_no_memory(schema);
	if (view.n)
		memcpy(parts, view.parts, view.n * sizeof *parts);
	parts[view.n] = part;
	*ret_view = (struct view){parts, view.n + 1};
	return SVC_OK;
}

enum svc_code schema_view(struct schema *schema, const json_t *sub, const char *path,
			  struct view *ret_view)
{
	return schema_view_add(schema, (struct view){0}, (struct part){sub, path, 0}, ret_view);
}

static uint32_t view_hash(const struct view *view)
{
	uint64_t hash = view->n;
	for (uint32_t i = 0; i < view->n; i++)
		hash = (hash ^ (uintptr_t)view->parts[i].schema ^ view->parts[i].used) *
		       0x9E3779B97F4A7C15u;
	return (uint32_t)(hash >> 32);
}

static bool view_equal(const struct view *a, const struct view *b)
{
	if (a->n != b->n)
		return false;
	for (uint32_t i = 0; i < a->n; i++)
		if (a->parts[i].schema != b->parts[i].schema ||
		    a->parts[i].used != b->parts[i].used)
			return false;
	return true;
}

static bool jobs_grow(struct schema *schema)
{
	uint32_t room = schema->room_jobs ? 2 * schema->room_jobs : 64;
	struct job *jobs = realloc(schema->jobs, room * sizeof *jobs);
	if (jobs)
		schema->jobs = jobs;
	uint32_t *index = calloc(2 * (size_t)room, sizeof *index);
	if (!jobs || !index) {
		free(index);
		return false;
	}
	for (uint32_t i = 0; i < schema->n_jobs; i++) {
		uint32_t at = view_hash(&jobs[i].view) & (2 * room - 1);
		while (index[at])
			at = (at + 1) & (2 * room - 1);
		index[at] = i + 1;
	}
	free(schema->index);
	schema->index = index;
	schema->room_jobs = room;
	return true;
}

enum svc_code schema_rule(struct schema *schema, struct view view, uint32_t *ret_rule)
{
	if (schema->n_jobs == schema->room_jobs && !jobs_grow(schema))
		return schema_no_memory(schema);
	uint32_t mask = 2 * schema->room_jobs - 1, at = view_hash(&view) & mask;
	for (; schema->index[at]; at = (at + 1) & mask) {
		const struct job *job = &schema->jobs[schema->index[at] - 1];
		if (view_equal(&job->view, &view)) {
			*ret_rule = job->rule;
			return SVC_OK;
		}
	}
	if (schema->n_jobs == RULES_MAX)
		return schema_wrong(schema, view.n ? view.parts[0].path : "",
				    "it has more than %u different schemas", RULES_MAX);
	*ret_rule = schema->writer->n_names++;
	schema->jobs[schema->n_jobs] = (struct job){view, *ret_rule};
	schema->index[at] = ++schema->n_jobs;
	return SVC_OK;
}

/* ---- $ref and allOf ---- */

/* One step of a JSON pointer: unescapes ~0 and ~1 into name. */
static bool token_take(const char **pointer, char *name, size_t room)
{
	size_t n = 0;
	const char *at = *pointer;
	for (; *at && *at != '/'; at++) {
		char c = *at;
		if (c == '~' && (at[1] == '0' || at[1] == '1'))
			c = *++at == '0' ? '~' : '/';
		if (n + 1 >= room)
			return false;
		name[n++] = c;
	}
	name[n] = 0;
	*pointer = at;
	return true;
}

/* %XX in a URI's fragment. */
static bool fragment_decode(const char *text, char *out, size_t room)
{
	size_t n = 0;
	for (; *text; text++) {
		uint32_t c = (unsigned char)*text;
		size_t at = 1;
		if (c == '%') {
			if (!char_hex(span_of(text), &at, 2, &c) || c == 0)
				return false;
			text += 2;
		}
		if (n + 1 >= room)
			return false;
		out[n++] = (char)c;
	}
	out[n] = 0;
	return true;
}

static const json_t *pointer_find(const json_t *root, const char *pointer)
{
	char name[512];
	while (root && *pointer == '/') {
		pointer++;
		if (!token_take(&pointer, name, sizeof name))
			return NULL;
		if (json_is_array(root))
			root = *name && strspn(name, "0123456789") == strlen(name) &&
					       strlen(name) < 7
				       ? json_array_get(root, strtoul(name, NULL, 10))
				       : NULL;
		else
			root = json_object_get(root, name);
	}
	return *pointer ? NULL : root;
}

static enum svc_code ref_follow(struct schema *schema, const struct part *part, struct view *view)
{
	const json_t *ref = json_object_get(part->schema, "$ref");
	const char *path = schema_path(schema, part->path, "$ref");
	char pointer[1024];
	if (!path)
		return schema_no_memory(schema);
	if (!json_is_string(ref))
		return schema_wrong(schema, path, "$ref must be a string");
	const char *text = json_string_value(ref);
	if (*text != '#' || (text[1] && text[1] != '/'))
		return schema_wrong(schema, path,
				    "$ref must be a pointer within this schema: # or #/...");
	const json_t *target = fragment_decode(text + 1, pointer, sizeof pointer)
				       ? pointer_find(schema->root, pointer)
				       : NULL;
	if (!json_is_object(target) && !json_is_boolean(target))
		return schema_wrong(schema, path, "$ref points to no schema");
	return schema_view_add(schema, *view, (struct part){target, path, 0}, view);
}

static enum svc_code all_of_follow(struct schema *schema, const struct part *part,
				   struct view *view)
{
	const json_t *list = json_object_get(part->schema, "allOf");
	const char *path = schema_path(schema, part->path, "allOf");
	if (!path)
		return schema_no_memory(schema);
	if (!json_is_array(list) || json_array_size(list) == 0)
		return schema_wrong(schema, path, "allOf must be an array of schemas");
	for (size_t i = 0; i < json_array_size(list); i++) {
		char number[24];
		snprintf(number, sizeof number, "%zu", i);
		struct part branch = {json_array_get(list, i), schema_path(schema, path, number),
				      0};
		enum svc_code code = schema_view_add(schema, *view, branch, view);
		if (code != SVC_OK)
			return code;
	}
	return SVC_OK;
}

enum svc_code schema_flatten(struct schema *schema, struct view view, struct view *ret_view)
{
	for (uint32_t i = 0; i < view.n; i++) {
		struct part part = view.parts[i];
		bool ref = !(part.used & USED_REF) && json_object_get(part.schema, "$ref");
		bool all = !(part.used & USED_ALL_OF) && json_object_get(part.schema, "allOf");
		enum svc_code code = SVC_OK;
		if (!json_is_object(part.schema) && !json_is_boolean(part.schema))
			return schema_wrong(schema, part.path,
					    "a schema must be an object, true or "
					    "false");
		if (ref)
			code = ref_follow(schema, &part, &view);
		if (code == SVC_OK && all)
			code = all_of_follow(schema, &part, &view);
		if (code != SVC_OK)
			return code;
		if (ref || all) /* the array was copied: it is this view's own */
			view.parts[i].used |= USED_REF | USED_ALL_OF;
	}
	*ret_view = view;
	return SVC_OK;
}

/* ---- alternatives ---- */

/* The view without its keyword, and with one alternative of it. */
static enum svc_code alternative_put(struct schema *schema, const struct view *view, uint32_t index,
				     unsigned used, struct part branch, struct buf *out)
{
	struct view own = {0};
	uint32_t rule = 0;
	enum svc_code code = schema_view_add(schema, *view, branch, &own);
	if (code != SVC_OK)
		return code;
	own.parts[index].used |= used;
	code = schema_rule(schema, own, &rule);
	buf_print(out, "s%u", rule);
	return code;
}

static enum svc_code alternatives_put(struct schema *schema, const struct view *view,
				      uint32_t index, const char *keyword, struct buf *out)
{
	const struct part *part = &view->parts[index];
	const json_t *list = json_object_get(part->schema, keyword);
	const char *path = schema_path(schema, part->path, keyword);
	bool one = strcmp(keyword, "oneOf") == 0, differ = true;
	enum svc_code code = SVC_OK;
	if (!path)
		return schema_no_memory(schema);
	if (!json_is_array(list) || json_array_size(list) == 0)
		return schema_wrong(schema, path, "%s must be an array of schemas", keyword);
	if (one)
		code = alternatives_differ(schema, view, list, &differ);
	if (code == SVC_OK && !differ)
		return schema_wrong(schema, path,
				    "oneOf: a value might fit two of the alternatives; let them "
				    "differ in type or in a required member's const, or use anyOf");
	for (size_t i = 0; code == SVC_OK && i < json_array_size(list); i++) {
		char number[24];
		snprintf(number, sizeof number, "%zu", i);
		struct part branch = {json_array_get(list, i), schema_path(schema, path, number),
				      0};
		buf_print(out, i ? " | " : "");
		code = alternative_put(schema, view, index, one ? USED_ONE_OF : USED_ANY_OF, branch,
				       out);
	}
	return code;
}

/* ---- values ---- */

bool schema_type_fits(unsigned types, const json_t *value)
{
	switch (json_typeof(value)) {
	case JSON_NULL:
		return types & TYPE_NULL;
	case JSON_TRUE:
	case JSON_FALSE:
		return types & TYPE_BOOLEAN;
	case JSON_INTEGER:
		return types & TYPE_INTEGER;
	case JSON_REAL:
		return json_real_value(value) == (double)(int64_t)json_real_value(value)
			       ? types & (TYPE_INTEGER | TYPE_NUMBER)
			       : types & TYPE_NUMBER;
	case JSON_STRING:
		return types & TYPE_STRING;
	case JSON_ARRAY:
		return types & TYPE_ARRAY;
	case JSON_OBJECT:
		return types & TYPE_OBJECT;
	}
	return false;
}

static size_t list_size(const struct value_list *list)
{
	return list->is_const ? 1 : json_array_size(list->json);
}

static const json_t *list_get(const struct value_list *list, size_t at)
{
	return list->is_const ? list->json : json_array_get(list->json, at);
}

/* In every list? */
static bool value_is_allowed(const struct facts *facts, const json_t *value)
{
	for (uint32_t i = 1; i < facts->n_values; i++) {
		bool found = false;
		for (size_t at = 0; !found && at < list_size(&facts->values[i]); at++)
			found = json_equal(list_get(&facts->values[i], at), value);
		if (!found)
			return false;
	}
	return schema_type_fits(facts->types, value);
}

/* With the fewest digits that read back as the same number. */
static char *value_print(const json_t *value)
{
	const size_t flags = JSON_COMPACT | JSON_ENCODE_ANY;
	char *text = json_dumps(value, flags | JSON_REAL_PRECISION(15));
	json_t *again = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
	bool same = json_equal(value, again);
	json_decref(again);
	if (same)
		return text;
	free(text);
	return json_dumps(value, flags | JSON_REAL_PRECISION(17));
}

static enum svc_code values_put(struct schema *schema, const struct facts *facts, struct buf *out)
{
	const struct value_list *list = &facts->values[0];
	size_t n = list_size(list), kept = 0;
	if (facts->constrained)
		return schema_wrong(schema, facts->path,
				    "enum and const are supported beside type only, not beside "
				    "keywords that say more of the value");
	struct span *texts = calloc(n + 1, sizeof *texts);
	bool failed = !texts;
	for (size_t i = 0; !failed && i < n; i++) {
		const json_t *value = list_get(list, i);
		char *text = value_is_allowed(facts, value) ? value_print(value) : NULL;
		failed = value_is_allowed(facts, value) && !text;
		if (text)
			texts[kept++] = span_of(text);
	}
	if (!failed)
		gr_put_choices(schema->writer, out, texts, kept);
	for (size_t i = 0; i < kept; i++)
		free((void *)(uintptr_t)texts[i].ptr);
	free(texts);
	return failed ? schema_no_memory(schema) : SVC_OK;
}

static enum svc_code number_put(struct schema *schema, const struct facts *facts, struct buf *out)
{
	struct svc_err why;
	enum svc_code code = SVC_OK;
	bool free_of = !facts->low.given && !facts->high.given;
	if (!(facts->types & TYPE_NUMBER) && free_of)
		buf_print(out, "json-integer");
	else if (free_of)
		buf_print(out, "json-number");
	else if (facts->types & TYPE_NUMBER)
		code = gr_put_number(out, facts->low, facts->high, &why);
	else
		code = gr_put_integer(out, facts->low, facts->high, &why);
	return code == SVC_OK ? SVC_OK : schema_wrong(schema, facts->path, "%s", why.msg);
}

static enum svc_code types_put(struct schema *schema, const struct facts *facts, struct buf *out)
{
	enum svc_code code = SVC_OK;
	const char *between = "";
	for (unsigned bit = 1; code == SVC_OK && bit <= TYPE_OBJECT; bit <<= 1) {
		/* A number is an integer, too. */
		if (!(facts->types & bit) || (bit == TYPE_INTEGER && facts->types & TYPE_NUMBER))
			continue;
		buf_print(out, "%s", between);
		between = " | ";
		if (bit == TYPE_NULL)
			buf_print(out, "\"null\"");
		else if (bit == TYPE_BOOLEAN)
			buf_print(out, "\"true\" | \"false\"");
		else if (bit == TYPE_STRING)
			code = string_put(schema, facts, out);
		else if (bit == TYPE_ARRAY)
			code = array_put(schema, facts, out);
		else if (bit == TYPE_OBJECT)
			code = object_put(schema, facts, out);
		else
			code = number_put(schema, facts, out);
	}
	buf_print(out, "%s", *between ? "" : "[]");
	return code;
}

/* ---- rules ---- */

/* The part that has alternatives still to be made, and which. */
static const char *alternatives_find(const struct view *view, uint32_t *ret_index)
{
	static const struct {
		const char *name;
		unsigned used;
	} keywords[] = {{"anyOf", USED_ANY_OF}, {"oneOf", USED_ONE_OF}};
	for (uint32_t i = 0; i < view->n; i++)
		for (size_t k = 0; k < 2; k++) {
			*ret_index = i;
			if (!(view->parts[i].used & keywords[k].used) &&
			    json_object_get(view->parts[i].schema, keywords[k].name))
				return keywords[k].name;
		}
	return NULL;
}

static enum svc_code view_put(struct schema *schema, struct view view, struct buf *out)
{
	uint32_t index = 0;
	struct view flat = {0};
	enum svc_code code = schema_flatten(schema, view, &flat);
	if (code != SVC_OK)
		return code;
	bool says = false;
	for (uint32_t i = 0; i < flat.n; i++) {
		says |= json_object_size(flat.parts[i].schema) > 0;
		if (json_is_false(flat.parts[i].schema)) {
			buf_print(out, "[]");
			return SVC_OK;
		}
	}
	if (!says) {
		buf_print(out, "json-value");
		return SVC_OK;
	}
	const char *keyword = alternatives_find(&flat, &index);
	if (keyword)
		return alternatives_put(schema, &flat, index, keyword, out);
	struct facts *facts = calloc(1, sizeof *facts);
	if (!facts)
		return schema_no_memory(schema);
	code = facts_read(schema, &flat, facts);
	if (code == SVC_OK && facts->n_values)
		code = values_put(schema, facts, out);
	else if (code == SVC_OK && facts->types == TYPE_ANY && !facts->constrained)
		buf_print(out, "json-value");
	else if (code == SVC_OK)
		code = types_put(schema, facts, out);
	free(facts->properties);
	free(facts);
	return code;
}

static enum svc_code jobs_do(struct schema *schema)
{
	enum svc_code code = SVC_OK;
	for (uint32_t i = 0; code == SVC_OK && i < schema->n_jobs; i++) {
		struct buf rule = {.limit = GR_TEXT_MAX};
		uint32_t number = schema->jobs[i].rule;
		code = view_put(schema, schema->jobs[i].view, &rule);
		buf_print(&schema->writer->out, "s%u ::= ", number);
		buf_span(&schema->writer->out, (struct span){rule.ptr, rule.len});
		buf_print(&schema->writer->out, "\n");
		bool failed = rule.failed || schema->writer->out.failed;
		buf_free(&rule);
		if (code == SVC_OK && failed)
			code = schema_wrong(schema, "",
					    "its grammar has more than %u bytes; shorten lists of "
					    "values and members",
					    GR_TEXT_MAX);
	}
	return code;
}

enum svc_code gr_put_schema(struct gr_writer *writer, const char *name, const json_t *schema,
			    struct svc_err *err)
{
	struct svc_err own;
	struct schema work = {.writer = writer, .root = schema, .err = err ? err : &own};
	struct view view = {0};
	uint32_t rule = 0;
	arena_init(&work.arena, 64u << 20);
	writer->out.limit = GR_TEXT_MAX;
	work.owned = json_array();
	enum svc_code code =
		work.owned ? schema_view(&work, schema, "", &view) : schema_no_memory(&work);
	if (code == SVC_OK)
		code = schema_rule(&work, view, &rule);
	buf_print(&writer->out, "%s ::= s%u\n", name, rule);
	if (code == SVC_OK)
		code = jobs_do(&work);
	json_decref(work.owned);
	free(work.jobs);
	free(work.index);
	arena_free(&work.arena);
	return code;
}
