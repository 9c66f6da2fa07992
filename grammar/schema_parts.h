/* grammar/schema_parts.h: what the files that translate JSON schemas share. Internal to schema*.c.
 */
#pragma once
#include "grammar/schema.h"

#define PARTS_MAX      64u    /* schemas that hold of one value together */
#define PROPERTIES_MAX 1024u  /* of one object */
#define RULES_MAX      12000u /* of one schema */

enum type_bit {
	TYPE_NULL = 1u << 0,
	TYPE_BOOLEAN = 1u << 1,
	TYPE_INTEGER = 1u << 2,
	TYPE_NUMBER = 1u << 3, /* that is no integer */
	TYPE_STRING = 1u << 4,
	TYPE_ARRAY = 1u << 5,
	TYPE_OBJECT = 1u << 6,
	TYPE_ANY = 127,
};

/* Applicators that a part's schema has but that are taken care of already. */
enum used_bit {
	USED_REF = 1u << 0,
	USED_ALL_OF = 1u << 1,
	USED_ANY_OF = 1u << 2,
	USED_ONE_OF = 1u << 3
};

struct part {
	const json_t *schema;
	const char *path; /* JSON pointer */
	unsigned used;	  /* enum used_bit */
};

/* Schemas that must all hold of one value. */
struct view {
	struct part *parts;
	uint32_t n;
};

struct job {
	struct view view;
	uint32_t rule;
};

/* One schema while it is translated: views get a rule each, which is written when its turn comes.
 */
struct schema {
	struct gr_writer *writer;
	struct arena arena;
	const json_t *root;
	struct job *jobs;
	uint32_t n_jobs, room_jobs;
	uint32_t *index; /* job + 1 by view */
	json_t *owned;	 /* an array: schemas that the translation itself makes */
	struct svc_err *err;
};

struct property {
	const char *name;
	struct view view; /* of no part: any value */
	bool declared;	  /* by properties, not by required alone */
	bool required;
};

struct value_list {
	const json_t *json;
	bool is_const; /* else an array */
};

enum extra_kind { EXTRA_UNSAID, EXTRA_NONE, EXTRA_ANY, EXTRA_SCHEMA };

/* What the keywords of a view's parts say together. */
struct facts {
	unsigned types, implied;
	const char *path; /* of the last part */
	/* enum and const: the values of the first, which all others must have too. */
	struct value_list values[PARTS_MAX * 2];
	uint32_t n_values;
	bool constrained; /* by something else than type, enum and const */
	uint32_t min_length, max_length;
	const char *pattern, *pattern_path, *format;
	struct gr_bound low, high;
	uint32_t min_items, max_items;
	const json_t *prefix;
	const char *prefix_path;
	struct part items;
	bool items_given;
	const json_t *items_owner; /* the schema that says it */
	const char *unique_path;   /* uniqueItems: true */
	struct property *properties;
	uint32_t n_properties, room_properties;
	enum extra_kind extra;
	struct part extra_part;
	const json_t *extra_owner;  /* the schema that says it */
	uint32_t n_declaring;	    /* schemas with properties */
	const json_t *key_patterns; /* patternProperties */
	const char *key_patterns_path;
	struct part key_names; /* propertyNames; .schema NULL: none */
	uint32_t min_properties, max_properties;
};

/* Is the value of one of the types (enum type_bit)? */
bool schema_type_fits(unsigned types, const json_t *value);
/* Refuses: "schema refused at PATH: ...". */
#define schema_wrong(schema, path, ...) schema_fail((schema), (path), __VA_ARGS__)
enum svc_code schema_fail(struct schema *schema, const char *path, const char *format, ...)
	SVC_PRINTF(3, 4);
enum svc_code schema_no_memory(struct schema *schema);
/* path/member, in the arena; NULL: memory. Characters that say nothing are left out. */
const char *schema_path(struct schema *schema, const char *path, const char *member);
/* The rule of a view, made sooner or later. */
enum svc_code schema_rule(struct schema *schema, struct view view, uint32_t *ret_rule) SVC_CHECKED;
/* A view of one schema. */
enum svc_code schema_view(struct schema *schema, const json_t *sub, const char *path,
			  struct view *ret_view) SVC_CHECKED;
/* Adds a part to a view's copy. */
enum svc_code schema_view_add(struct schema *schema, struct view view, struct part part,
			      struct view *ret_view) SVC_CHECKED;
/* Follows $ref and allOf. */
enum svc_code schema_flatten(struct schema *schema, struct view view,
			     struct view *ret_view) SVC_CHECKED;

/* schema_keywords.c */
enum svc_code facts_read(struct schema *schema, const struct view *view,
			 struct facts *facts) SVC_CHECKED;
/* schema_object.c */
enum svc_code object_put(struct schema *schema, const struct facts *facts,
			 struct buf *out) SVC_CHECKED;
enum svc_code array_put(struct schema *schema, const struct facts *facts,
			struct buf *out) SVC_CHECKED;
/* schema_string.c */
enum svc_code string_put(struct schema *schema, const struct facts *facts,
			 struct buf *out) SVC_CHECKED;
/* schema_choice.c: are the alternatives of a oneOf such that no value fits two? */
enum svc_code alternatives_differ(struct schema *schema, const struct view *view,
				  const json_t *alternatives, bool *ret_differ) SVC_CHECKED;
