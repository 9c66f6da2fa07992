/* grammar/schema_keywords.c: what each keyword says. */
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_parts.h"

/* One keyword of one part. */
struct keyword {
	struct schema *schema;
	struct facts *facts;
	const struct part *part;
	const char *name, *path;
	const json_t *value;
};

typedef enum svc_code (*keyword_reader)(struct keyword *keyword);

static enum svc_code wrong(const struct keyword *keyword, const char *what)
{
	return schema_wrong(keyword->schema, keyword->path, "%s %s", keyword->name, what);
}

static enum svc_code twice(const struct keyword *keyword)
{
	return wrong(keyword,
		     "is said by two schemas that hold of one value, which is not supported");
}

/* ---- types and values ---- */

static unsigned type_of(const json_t *name)
{
	static const struct {
		const char *name;
		unsigned types;
	} types[] = {{"null", TYPE_NULL},	{"boolean", TYPE_BOOLEAN},
		     {"integer", TYPE_INTEGER}, {"number", TYPE_INTEGER | TYPE_NUMBER},
		     {"string", TYPE_STRING},	{"array", TYPE_ARRAY},
		     {"object", TYPE_OBJECT}};
	for (size_t i = 0; json_is_string(name) && i < sizeof types / sizeof *types; i++)
		if (strcmp(json_string_value(name), types[i].name) == 0)
			return types[i].types;
	return 0;
}

static enum svc_code type_read(struct keyword *keyword)
{
	unsigned types = 0;
	if (json_is_array(keyword->value)) {
		for (size_t i = 0; i < json_array_size(keyword->value); i++) {
			unsigned one = type_of(json_array_get(keyword->value, i));
			if (!one)
				return wrong(keyword, "names a type that there isn't");
			types |= one;
		}
	} else {
		types = type_of(keyword->value);
	}
	if (!types)
		return wrong(keyword, "must be null, boolean, integer, number, string, array or "
				      "object, or a list of these");
	keyword->facts->types &= types;
	return SVC_OK;
}

static enum svc_code values_read(struct keyword *keyword)
{
	struct facts *facts = keyword->facts;
	bool is_const = strcmp(keyword->name, "const") == 0;
	if (!is_const && !json_is_array(keyword->value))
		return wrong(keyword, "must be an array");
	facts->values[facts->n_values++] = (struct value_list){keyword->value, is_const};
	return SVC_OK;
}

/* ---- counts, strings, numbers ---- */

static enum svc_code count_read(const struct keyword *keyword, uint32_t *ret_count)
{
	double value = json_number_value(keyword->value);
	if (!json_is_number(keyword->value) || value < 0 || value > 1e9 ||
	    value != (double)(uint32_t)value)
		return wrong(keyword, "must be a whole number from 0 to 1000000000");
	*ret_count = (uint32_t)value;
	return SVC_OK;
}

static enum svc_code least_read(const struct keyword *keyword, uint32_t *least)
{
	uint32_t count = 0;
	enum svc_code code = count_read(keyword, &count);
	*least = count > *least ? count : *least;
	return code;
}

static enum svc_code most_read(const struct keyword *keyword, uint32_t *most)
{
	uint32_t count = GR_NONE;
	enum svc_code code = count_read(keyword, &count);
	*most = count < *most ? count : *most;
	return code;
}

#define COUNT(function, reader, field)                          \
	static enum svc_code function(struct keyword *keyword)  \
	{                                                       \
		return reader(keyword, &keyword->facts->field); \
	}
COUNT(min_length_read, least_read, min_length)
COUNT(max_length_read, most_read, max_length)
COUNT(min_items_read, least_read, min_items)
COUNT(max_items_read, most_read, max_items)
COUNT(min_properties_read, least_read, min_properties)
COUNT(max_properties_read, most_read, max_properties)

static enum svc_code pattern_read(struct keyword *keyword)
{
	if (!json_is_string(keyword->value))
		return wrong(keyword, "must be a string");
	if (keyword->facts->pattern)
		return twice(keyword);
	keyword->facts->pattern = json_string_value(keyword->value);
	keyword->facts->pattern_path = keyword->path;
	return SVC_OK;
}

static enum svc_code format_read(struct keyword *keyword)
{
	if (!json_is_string(keyword->value))
		return wrong(keyword, "must be a string");
	if (keyword->facts->format &&
	    strcmp(keyword->facts->format, json_string_value(keyword->value)) != 0)
		return twice(keyword);
	keyword->facts->format = json_string_value(keyword->value);
	return SVC_OK;
}

static enum svc_code bound_read(struct keyword *keyword)
{
	bool upper = strstr(keyword->name, "axi") != NULL;
	struct gr_bound *bound = upper ? &keyword->facts->high : &keyword->facts->low;
	struct gr_bound own = {true, *keyword->name == 'e', json_number_value(keyword->value)};
	if (!json_is_number(keyword->value))
		return wrong(keyword, "must be a number");
	bool tighter = upper ? own.value < bound->value : own.value > bound->value;
	if (!bound->given || tighter)
		*bound = own;
	else if (own.value == bound->value)
		bound->exclusive |= own.exclusive;
	return SVC_OK;
}

static enum svc_code multiple_read(struct keyword *keyword)
{
	if (!json_is_number(keyword->value) || json_number_value(keyword->value) <= 0)
		return wrong(keyword, "must be a number above 0");
	if (json_number_value(keyword->value) != 1)
		return wrong(keyword, "is supported with the value 1 only");
	/* Numbers that are no integers are no multiples of 1. */
	keyword->facts->types &= ~(unsigned)TYPE_NUMBER;
	return SVC_OK;
}

/* ---- arrays ---- */

static bool is_schema(const json_t *value)
{
	return json_is_object(value) || json_is_boolean(value);
}

static enum svc_code rest_read(struct keyword *keyword)
{
	if (!is_schema(keyword->value))
		return wrong(keyword, "must be a schema");
	if (keyword->facts->items_given)
		return twice(keyword);
	keyword->facts->items = (struct part){keyword->value, keyword->path, 0};
	keyword->facts->items_given = true;
	keyword->facts->items_owner = keyword->part->schema;
	return SVC_OK;
}

static enum svc_code prefix_read(struct keyword *keyword)
{
	if (!json_is_array(keyword->value) || json_array_size(keyword->value) == 0)
		return wrong(keyword, "must be an array of schemas");
	if (keyword->facts->prefix)
		return twice(keyword);
	keyword->facts->prefix = keyword->value;
	keyword->facts->prefix_path = keyword->path;
	return SVC_OK;
}

/* An array of schemas was the old form of prefixItems. */
static enum svc_code items_read(struct keyword *keyword)
{
	if (json_is_array(keyword->value))
		return json_array_size(keyword->value) ? prefix_read(keyword) : SVC_OK;
	return rest_read(keyword);
}

static enum svc_code additional_items_read(struct keyword *keyword)
{
	const json_t *items = json_object_get(keyword->part->schema, "items");
	/* Beside one schema for all it says nothing. */
	return json_is_array(items) ? rest_read(keyword) : SVC_OK;
}

static enum svc_code unique_read(struct keyword *keyword)
{
	if (!json_is_boolean(keyword->value))
		return wrong(keyword, "must be true or false");
	if (json_is_true(keyword->value))
		keyword->facts->unique_path = keyword->path;
	return SVC_OK;
}

/* ---- objects ---- */

static struct property *property_get(struct keyword *keyword, const char *name)
{
	struct facts *facts = keyword->facts;
	for (uint32_t i = 0; i < facts->n_properties; i++)
		if (strcmp(facts->properties[i].name, name) == 0)
			return &facts->properties[i];
	if (facts->n_properties == PROPERTIES_MAX)
		return NULL;
	if (facts->n_properties == facts->room_properties) {
		uint32_t room = facts->room_properties ? 2 * facts->room_properties : 16;
		struct property *larger = realloc(facts->properties, room * sizeof *larger);
		if (!larger)
			return NULL;
		facts->properties = larger;
		facts->room_properties = room;
	}
	facts->properties[facts->n_properties] = (struct property){.name = name};
	return &facts->properties[facts->n_properties++];
}

static enum svc_code too_many(const struct keyword *keyword)
{
	return schema_wrong(keyword->schema, keyword->path, "more than %u members of one object",
			    PROPERTIES_MAX);
}

static enum svc_code properties_read(struct keyword *keyword)
{
	const char *name;
	json_t *value, *object = (json_t *)(uintptr_t)keyword->value;
	if (!json_is_object(keyword->value))
		return wrong(keyword, "must be an object of schemas");
	json_object_foreach(object, name, value)
	{
		const char *path = schema_path(keyword->schema, keyword->path, name);
		struct property *property = property_get(keyword, name);
		if (!property)
			return too_many(keyword);
		enum svc_code code =
			schema_view_add(keyword->schema, property->view,
					(struct part){value, path, 0}, &property->view);
		if (code != SVC_OK)
			return code;
		property->declared = true;
	}
	keyword->facts->n_declaring++;
	return SVC_OK;
}

static enum svc_code required_read(struct keyword *keyword)
{
	if (!json_is_array(keyword->value))
		return wrong(keyword, "must be an array of names");
	for (size_t i = 0; i < json_array_size(keyword->value); i++) {
		const json_t *name = json_array_get(keyword->value, i);
		if (!json_is_string(name))
			return wrong(keyword, "must be an array of names");
		struct property *property = property_get(keyword, json_string_value(name));
		if (!property)
			return too_many(keyword);
		property->required = true;
	}
	return SVC_OK;
}

static enum svc_code extra_read(struct keyword *keyword)
{
	struct facts *facts = keyword->facts;
	if (!is_schema(keyword->value))
		return wrong(keyword, "must be a schema, true or false");
	if (json_is_true(keyword->value)) {
		facts->extra = facts->extra == EXTRA_UNSAID ? EXTRA_ANY : facts->extra;
		return SVC_OK;
	}
	if (facts->extra == EXTRA_NONE || facts->extra == EXTRA_SCHEMA)
		return twice(keyword);
	facts->extra = json_is_false(keyword->value) ? EXTRA_NONE : EXTRA_SCHEMA;
	facts->extra_part = (struct part){keyword->value, keyword->path, 0};
	facts->extra_owner = keyword->part->schema;
	return SVC_OK;
}

static enum svc_code key_patterns_read(struct keyword *keyword)
{
	if (!json_is_object(keyword->value))
		return wrong(keyword, "must be an object of schemas");
	if (json_object_size(keyword->value) == 0)
		return SVC_OK;
	if (keyword->facts->key_patterns)
		return twice(keyword);
	keyword->facts->key_patterns = keyword->value;
	keyword->facts->key_patterns_path = keyword->path;
	return SVC_OK;
}

static enum svc_code key_names_read(struct keyword *keyword)
{
	if (!is_schema(keyword->value))
		return wrong(keyword, "must be a schema");
	if (keyword->facts->key_names.schema)
		return twice(keyword);
	keyword->facts->key_names = (struct part){keyword->value, keyword->path, 0};
	return SVC_OK;
}

/* ---- the table ---- */

/* Values that say nothing, of keywords that are not supported otherwise. */
static enum svc_code refused_read(struct keyword *keyword)
{
	const json_t *value = keyword->value;
	if (json_is_false(value) && strcmp(keyword->name, "nullable") == 0)
		return SVC_OK;
	return wrong(keyword, "is not supported");
}

static enum svc_code annotation_read(struct keyword *keyword)
{
	(void)keyword;
	return SVC_OK;
}

#define NUMBERS (TYPE_INTEGER | TYPE_NUMBER)

static const struct {
	const char *name;
	unsigned types; /* that it concerns; 0: none in particular */
	keyword_reader read;
} keywords[] = {
	{"type", 0, type_read},
	{"enum", 0, values_read},
	{"const", 0, values_read},
	{"minLength", TYPE_STRING, min_length_read},
	{"maxLength", TYPE_STRING, max_length_read},
	{"pattern", TYPE_STRING, pattern_read},
	{"format", TYPE_STRING, format_read},
	{"minimum", NUMBERS, bound_read},
	{"maximum", NUMBERS, bound_read},
	{"exclusiveMinimum", NUMBERS, bound_read},
	{"exclusiveMaximum", NUMBERS, bound_read},
	{"multipleOf", NUMBERS, multiple_read},
	{"items", TYPE_ARRAY, items_read},
	{"prefixItems", TYPE_ARRAY, prefix_read},
	{"additionalItems", TYPE_ARRAY, additional_items_read},
	{"minItems", TYPE_ARRAY, min_items_read},
	{"maxItems", TYPE_ARRAY, max_items_read},
	{"uniqueItems", TYPE_ARRAY, unique_read},
	{"properties", TYPE_OBJECT, properties_read},
	{"required", TYPE_OBJECT, required_read},
	{"additionalProperties", TYPE_OBJECT, extra_read},
	{"patternProperties", TYPE_OBJECT, key_patterns_read},
	{"propertyNames", TYPE_OBJECT, key_names_read},
	{"minProperties", TYPE_OBJECT, min_properties_read},
	{"maxProperties", TYPE_OBJECT, max_properties_read},
	/* Taken care of before. */
	{"$ref", 0, annotation_read},
	{"allOf", 0, annotation_read},
	{"anyOf", 0, annotation_read},
	{"oneOf", 0, annotation_read},
	/* Say nothing of the value. */
	{"$schema", 0, annotation_read},
	{"$comment", 0, annotation_read},
	{"$defs", 0, annotation_read},
	{"definitions", 0, annotation_read},
	{"title", 0, annotation_read},
	{"description", 0, annotation_read},
	{"default", 0, annotation_read},
	{"examples", 0, annotation_read},
	{"example", 0, annotation_read},
	{"deprecated", 0, annotation_read},
	{"readOnly", 0, annotation_read},
	{"writeOnly", 0, annotation_read},
	{"discriminator", 0, annotation_read},
};

static bool is_root_id(const struct keyword *keyword)
{
	return keyword->part->schema == keyword->schema->root && strcmp(keyword->name, "$id") == 0;
}

static enum svc_code keyword_read(struct keyword *keyword)
{
	for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
		if (strcmp(keywords[i].name, keyword->name) != 0)
			continue;
		keyword->name = keywords[i].name;
		keyword->facts->implied |= keywords[i].types;
		keyword->facts->constrained |= keywords[i].types != 0;
		return keywords[i].read(keyword);
	}
	/* x-...: a note of the client's own. */
	if (strncmp(keyword->name, "x-", 2) == 0 || is_root_id(keyword))
		return SVC_OK;
	keyword->name = "this keyword";
	return refused_read(keyword);
}

static enum svc_code part_read(struct schema *schema, const struct part *part, struct facts *facts)
{
	json_t *object = (json_t *)(uintptr_t)part->schema, *value;
	const char *name;
	if (!json_is_object(object))
		return SVC_OK;
	facts->path = part->path;
	json_object_foreach(object, name, value)
	{
		struct keyword keyword = {
			schema, facts, part, name, schema_path(schema, part->path, name), value};
		enum svc_code code =
			keyword.path ? keyword_read(&keyword) : schema_no_memory(schema);
		if (code != SVC_OK)
			return code;
	}
	return SVC_OK;
}

enum svc_code facts_read(struct schema *schema, const struct view *view, struct facts *facts)
{
	facts->types = TYPE_ANY;
	facts->path = "";
	facts->max_length = facts->max_items = facts->max_properties = GR_NONE;
	for (uint32_t i = 0; i < view->n; i++) {
		enum svc_code code = part_read(schema, &view->parts[i], facts);
		if (code != SVC_OK)
			return code;
	}
	/* Keywords of one type only say something of that type; a schema that has them and no type
	 * means it. */
	if (facts->types == TYPE_ANY && facts->implied && facts->n_values == 0)
		facts->types = facts->implied;
	return SVC_OK;
}
