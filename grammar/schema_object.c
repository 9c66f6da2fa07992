/* grammar/schema_object.c: objects and arrays. Members come in the order in which the schema names
 * them. */
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_parts.h"

static enum svc_code value_put(struct schema *schema, struct view view, struct buf *out)
{
	uint32_t rule = 0;
	if (view.n == 0) {
		buf_print(out, "json-value");
		return SVC_OK;
	}
	enum svc_code code = schema_rule(schema, view, &rule);
	buf_print(out, "s%u", rule);
	return code;
}

static enum svc_code part_put(struct schema *schema, struct part part, struct buf *out)
{
	struct view view = {0};
	enum svc_code code = schema_view(schema, part.schema, part.path, &view);
	return code == SVC_OK ? value_put(schema, view, out) : code;
}

/* ---- objects ---- */

/* An object while it is written. Its rules are o<rule>-<member>-<count>: from that member on, with
 * that many members before. */
struct object {
	struct schema *schema;
	const struct facts *facts;
	uint32_t rule;
	uint32_t count_max; /* counts beyond it are the same */
	bool has_extra;
	struct buf extra; /* the item of a member that the schema doesn't name */
};

static void key_put(struct buf *out, const char *name)
{
	struct buf key = {0};
	buf_json_string(&key, span_of(name));
	buf_print(&key, ":");
	gr_put_literal(out, (struct span){key.ptr, key.len});
	out->failed |= key.failed;
	buf_free(&key);
	buf_print(out, " json-ws ");
}

/* Names other than those of the object's members, without escapes; by the characters at which they
 * differ. */
static void other_names_put(struct buf *out, const struct span *names, size_t n, size_t from)
{
	struct char_set others = {0};
	bool may_end = true, any = false;
	static const char rest[] = "[^\\\"\\\\\\x00-\\x1F]*";
	for (uint32_t c = 0; c < 0x20; c++)
		char_set_add(&others, c, c);
	char_set_add(&others, '"', '"');
	char_set_add(&others, '\\', '\\');
	buf_print(out, "(");
	for (size_t i = 0, next = 0; i < n; i = next) {
		size_t at = from;
		uint32_t c = 0;
		next = i + 1;
		if (!char_next(names[i], &at, &c)) { /* the name is all of it */
			may_end = false;
			continue;
		}
		for (; next < n && names[next].len >= at &&
		       memcmp(names[next].ptr, names[i].ptr, at) == 0;)
			next++;
		char_set_add(&others, c, c);
		if (c < 0x20 || c == '"' || c == '\\') /* such a name can't be written unescaped */
			continue;
		buf_print(out, any ? " | " : "");
		any = true;
		gr_put_literal(out, (struct span){names[i].ptr + from, at - from});
		buf_print(out, " ");
		other_names_put(out, names + i, next - i, at);
	}
	char_set_invert(&others);
	buf_print(out, any ? " | " : "");
	gr_put_class(out, &others);
	buf_print(out, " %s%s)", rest, may_end ? " | \"\"" : "");
	out->failed |= others.failed;
	char_set_free(&others);
}

static int name_compare(const void *a, const void *b)
{
	const struct span *x = a, *y = b;
	size_t n = x->len < y->len ? x->len : y->len;
	int order = n ? memcmp(x->ptr, y->ptr, n) : 0;
	return order ? order : (x->len > y->len) - (x->len < y->len);
}

static enum svc_code extra_names_put(struct object *object)
{
	const struct facts *facts = object->facts;
	struct span *names = calloc(facts->n_properties + 1, sizeof *names);
	if (!names)
		return schema_no_memory(object->schema);
	size_t longest = 0;
	for (uint32_t i = 0; i < facts->n_properties; i++) {
		names[i] = span_of(facts->properties[i].name);
		longest = names[i].len > longest ? names[i].len : longest;
	}
	enum svc_code code = SVC_OK;
	if (longest > 64)
		code = schema_wrong(object->schema, facts->path,
				    "additionalProperties beside a member whose name has more "
				    "than 64 bytes is not supported");
	qsort(names, facts->n_properties, sizeof *names, name_compare);
	buf_print(&object->extra, "\"\\\"\" ");
	if (code == SVC_OK)
		other_names_put(&object->extra, names, facts->n_properties, 0);
	buf_print(&object->extra, " \"\\\":\" json-ws ");
	free(names);
	return code;
}

/* patternProperties: members whose names match, and no others. */
static enum svc_code pattern_extra(struct object *object)
{
	const struct facts *facts = object->facts;
	json_t *patterns = (json_t *)(uintptr_t)facts->key_patterns;
	void *first = json_object_iter(patterns);
	const char *regex = json_object_iter_key(first);
	const char *path = schema_path(object->schema, facts->key_patterns_path, regex);
	struct svc_err why;
	bool own_extra =
		facts->extra == EXTRA_UNSAID ||
		(facts->extra == EXTRA_NONE &&
		 json_object_get(facts->extra_owner, "patternProperties") == facts->key_patterns);
	if (json_object_size(patterns) > 1 || facts->n_properties || facts->key_names.schema ||
	    !own_extra)
		return schema_wrong(object->schema, facts->key_patterns_path,
				    "patternProperties is supported with one pattern, without "
				    "properties, required and propertyNames, and with "
				    "additionalProperties absent, or false in the same schema");
	if (!path)
		return schema_no_memory(object->schema);
	buf_print(&object->extra, "\"\\\"\" ");
	if (gr_put_regex(&object->extra, span_of(regex), GR_REGEX_JSON, &why) != SVC_OK)
		return schema_wrong(object->schema, path, "%s", why.msg);
	buf_print(&object->extra, " \"\\\":\" json-ws ");
	object->has_extra = true;
	return part_put(object->schema, (struct part){json_object_iter_value(first), path, 0},
			&object->extra);
}

/* propertyNames: a schema of strings for the names. */
static enum svc_code names_extra(struct object *object)
{
	const struct facts *facts = object->facts;
	static const char only_strings[] = "{\"type\":\"string\"}";
	if (facts->n_properties)
		return schema_wrong(object->schema, facts->key_names.path,
				    "propertyNames beside properties or required is not supported");
	json_t *string = json_loads(only_strings, 0, NULL);
	if (!string || json_array_append_new(object->schema->owned, string) != 0)
		return schema_no_memory(object->schema);
	struct view view = {0};
	enum svc_code code =
		schema_view(object->schema, facts->key_names.schema, facts->key_names.path, &view);
	if (code == SVC_OK)
		code = schema_view_add(object->schema, view,
				       (struct part){string, facts->key_names.path, 0}, &view);
	if (code == SVC_OK)
		code = value_put(object->schema, view, &object->extra);
	buf_print(&object->extra, " \":\" json-ws ");
	return code;
}

/* Which members there may be beside those that are named: without a word about it, any in an object
 * that names none, else none. */
static enum svc_code extra_make(struct object *object)
{
	const struct facts *facts = object->facts;
	enum svc_code code = SVC_OK;
	if (facts->key_patterns)
		return pattern_extra(object);
	/* It speaks of the properties of its own schema alone. */
	uint32_t n_own = json_object_get(facts->extra_owner, "properties") != NULL;
	if ((facts->extra == EXTRA_NONE || facts->extra == EXTRA_SCHEMA) &&
	    facts->n_declaring > n_own)
		return schema_wrong(object->schema, facts->extra_part.path,
				    "additionalProperties beside properties of another schema "
				    "(allOf, $ref) is not supported");
	if (facts->extra == EXTRA_NONE || (facts->extra == EXTRA_UNSAID && facts->n_properties))
		return SVC_OK;
	object->has_extra = true;
	if (facts->key_names.schema) {
		code = names_extra(object);
	} else if (facts->n_properties) {
		code = extra_names_put(object);
	} else {
		buf_print(&object->extra, "json-string \":\" json-ws ");
	}
	if (code != SVC_OK)
		return code;
	if (facts->extra == EXTRA_SCHEMA)
		return part_put(object->schema, facts->extra_part, &object->extra);
	buf_print(&object->extra, "json-value");
	return SVC_OK;
}

static void separator_put(struct buf *out, uint32_t count)
{
	if (count)
		buf_print(out, "\",\" json-ws ");
}

static void close_put(struct buf *out, uint32_t count)
{
	buf_print(out, count ? "json-ws" : "\"\"");
}

static uint32_t count_next(const struct object *object, uint32_t count)
{
	return count < object->count_max ? count + 1 : count;
}

static enum svc_code member_rule_put(struct object *object, uint32_t index, uint32_t count)
{
	const struct facts *facts = object->facts;
	const struct property *property = &facts->properties[index];
	struct buf *out = &object->schema->writer->out;
	enum svc_code code = SVC_OK;
	bool may = count < facts->max_properties;
	buf_print(out, "o%u-%u-%u ::= ", object->rule, index, count);
	if (may) {
		separator_put(out, count);
		key_put(out, property->name);
		/* A name that is only required is a member like those that aren't named. */
		if (property->declared || facts->extra == EXTRA_UNSAID || facts->extra == EXTRA_ANY)
			code = value_put(object->schema, property->view, out);
		else if (facts->extra == EXTRA_SCHEMA)
			code = part_put(object->schema, facts->extra_part, out);
		else
			buf_print(out, "[]");
		buf_print(out, " o%u-%u-%u", object->rule, index + 1, count_next(object, count));
	}
	if (!property->required)
		buf_print(out, "%so%u-%u-%u", may ? " | " : "", object->rule, index + 1, count);
	else if (!may)
		buf_print(out, "[]");
	buf_print(out, "\n");
	return code;
}

/* Behind the members that are named. Others may have the same name twice, so that any number of
 * them is sure to be one member only. */
static void end_rule_put(struct object *object, uint32_t count)
{
	const struct facts *facts = object->facts;
	struct buf *out = &object->schema->writer->out;
	uint32_t next = count_next(object, count);
	struct span extra = {object->extra.ptr, object->extra.len};
	bool more = object->has_extra && count < facts->max_properties;
	buf_print(out, "o%u-%u-%u ::= ", object->rule, facts->n_properties, count);
	if (count >= facts->min_properties)
		close_put(out, count);
	if (more && next >= facts->min_properties) {
		buf_print(out, count >= facts->min_properties ? " | " : "");
		separator_put(out, count);
		buf_span(out, extra);
		buf_print(out, " o%u-e-%u", object->rule, next);
	} else if (count < facts->min_properties) {
		buf_print(out, "[]");
	}
	buf_print(out, "\no%u-e-%u ::= json-ws", object->rule, count);
	if (more && count) {
		buf_print(out, " | ");
		separator_put(out, count);
		buf_span(out, extra);
		buf_print(out, " o%u-e-%u", object->rule, next);
	}
	buf_print(out, "\n");
}

static enum svc_code object_check(const struct object *object)
{
	const struct facts *facts = object->facts;
	uint32_t most = facts->n_properties + object->has_extra;
	if (facts->min_properties > most && object->has_extra)
		return schema_wrong(object->schema, facts->path,
				    "minProperties above %u is not supported here: members that "
				    "the schema doesn't name might repeat a name",
				    most);
	if ((uint64_t)(facts->n_properties + 1) * (object->count_max + 1) > RULES_MAX)
		return schema_wrong(object->schema, facts->path,
				    "minProperties and maxProperties of so many members are not "
				    "supported");
	return SVC_OK;
}

enum svc_code object_put(struct schema *schema, const struct facts *facts, struct buf *out)
{
	struct object object = {.schema = schema, .facts = facts};
	object.rule = schema->writer->n_names++;
	object.count_max = facts->min_properties ? facts->min_properties : 1;
	if (facts->max_properties != GR_NONE && facts->max_properties > object.count_max)
		object.count_max = facts->max_properties;
	enum svc_code code = extra_make(&object);
	if (code == SVC_OK)
		code = object_check(&object);
	for (uint32_t i = 0; code == SVC_OK && i < facts->n_properties; i++)
		for (uint32_t n = 0; code == SVC_OK && n <= object.count_max && n <= i; n++)
			code = member_rule_put(&object, i, n);
	for (uint32_t n = 0; code == SVC_OK && n <= object.count_max; n++)
		end_rule_put(&object, n);
	buf_print(out, "\"{\" json-ws o%u-0-0 \"}\"", object.rule);
	out->failed |= object.extra.failed;
	buf_free(&object.extra);
	return code;
}

/* ---- arrays ---- */

static uint32_t left_of(uint32_t count, uint32_t before)
{
	return count > before ? count - before : 0;
}

/* From min to max times a comma and an item. */
static void items_put(struct buf *out, const char *item, uint32_t min, uint32_t max)
{
	buf_print(out, "(\",\" json-ws %s){%u,", item, min);
	if (max != GR_NONE)
		buf_print(out, "%u", max);
	buf_print(out, "} json-ws");
}

/* The items behind the first ones, from `min` to `max` of them, of which the first comes after
 * `before` others. */
static enum svc_code rest_put(struct schema *schema, const struct facts *facts, uint32_t before,
			      struct buf *out)
{
	bool bounded = facts->max_items != GR_NONE;
	uint32_t min = left_of(facts->min_items, before);
	uint32_t max = bounded ? left_of(facts->max_items, before) : GR_NONE;
	struct buf item = {0};
	enum svc_code code = SVC_OK;
	if (facts->items_given)
		code = part_put(schema, facts->items, &item);
	else
		buf_print(&item, "json-value");
	const char *text = item.ptr ? item.ptr : "[]";
	if (max == 0) {
		buf_print(out, min ? "[]" : before ? "json-ws" : "\"\"");
	} else if (before) {
		items_put(out, text, min, max);
	} else {
		buf_print(out, "(%s ", text);
		items_put(out, text, min ? min - 1 : 0, max == GR_NONE ? max : max - 1);
		buf_print(out, ")%s", min ? "" : "?");
	}
	out->failed |= item.failed;
	buf_free(&item);
	return code;
}

/* The items that have schemas of their own; each may be the last one. */
static enum svc_code prefix_put(struct schema *schema, const struct facts *facts, uint32_t rule)
{
	struct buf *out = &schema->writer->out;
	uint32_t n = (uint32_t)json_array_size(facts->prefix);
	enum svc_code code = SVC_OK;
	for (uint32_t i = 0; code == SVC_OK && i < n; i++) {
		char number[16];
		snprintf(number, sizeof number, "%u", i);
		struct part part = {json_array_get(facts->prefix, i),
				    schema_path(schema, facts->prefix_path, number), 0};
		bool may_end = i >= facts->min_items, may_go = i < facts->max_items;
		buf_print(out, "a%u-%u ::= ", rule, i);
		if (may_end)
			close_put(out, i);
		if (may_go) {
			buf_print(out, may_end ? " | " : "");
			separator_put(out, i);
			code = part_put(schema, part, out);
			buf_print(out, " a%u-%u", rule, i + 1);
		}
		buf_print(out, may_end || may_go ? "\n" : "[]\n");
	}
	buf_print(out, "a%u-%u ::= ", rule, n);
	/* Without a word about further items none are made, unless there must be some. */
	if (code == SVC_OK && (facts->items_given || facts->min_items > n))
		code = rest_put(schema, facts, n, out);
	else
		buf_print(out, "json-ws");
	buf_print(out, "\n");
	return code;
}

/* items speaks of what is behind the prefix of its own schema alone. */
static bool rest_is_of_prefix(const struct facts *facts)
{
	return !facts->prefix || !facts->items_given ||
	       json_object_get(facts->items_owner, "prefixItems") == facts->prefix ||
	       json_object_get(facts->items_owner, "items") == facts->prefix;
}

enum svc_code array_put(struct schema *schema, const struct facts *facts, struct buf *out)
{
	uint32_t rule = schema->writer->n_names++;
	enum svc_code code;
	if (facts->unique_path && facts->max_items > 1)
		return schema_wrong(
			schema, facts->unique_path,
			"uniqueItems is not supported for arrays of more than one item");
	if (!rest_is_of_prefix(facts))
		return schema_wrong(schema, facts->items.path,
				    "items beside prefixItems of another schema (allOf, $ref) is "
				    "not supported");
	if ((facts->max_items != GR_NONE && facts->max_items > GR_REPEAT_MAX) ||
	    facts->min_items > GR_REPEAT_MAX)
		return schema_wrong(schema, facts->path,
				    "minItems or maxItems above %u is not supported",
				    GR_REPEAT_MAX);
	buf_print(out, "\"[\" json-ws ");
	if (facts->prefix) {
		buf_print(out, "a%u-0", rule);
		code = prefix_put(schema, facts, rule);
	} else {
		code = rest_put(schema, facts, 0, out);
	}
	buf_print(out, " \"]\"");
	return code;
}
