/* grammar/schema_choice.c: oneOf is anyOf where no value can fit two of the alternatives. That is
 * seen where their types differ, or the values that they list, or those that they list for a member
 * that both require. */
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_parts.h"

static bool list_has(const struct value_list *list, const json_t *value)
{
	if (list->is_const)
		return json_equal(list->json, value);
	for (size_t i = 0; i < json_array_size(list->json); i++)
		if (json_equal(json_array_get(list->json, i), value))
			return true;
	return false;
}

/* No value is in both. Numbers that are equal may be written differently, so they never count. */
static bool lists_differ(const struct value_list *a, const struct value_list *b)
{
	size_t n = a->is_const ? 1 : json_array_size(a->json);
	for (size_t i = 0; i < n; i++) {
		const json_t *value = a->is_const ? a->json : json_array_get(a->json, i);
		if (json_is_real(value) || json_is_array(value) || json_is_object(value) ||
		    list_has(b, value))
			return false;
	}
	return true;
}

/* The values that a schema itself lists for what it holds of. */
static bool list_of(const json_t *schema, struct value_list *ret_list)
{
	const json_t *constant = json_object_get(schema, "const");
	const json_t *values = json_object_get(schema, "enum");
	*ret_list = (struct value_list){constant ? constant : values, constant != NULL};
	return constant || json_is_array(values);
}

/* Do both require a member for which they list different values? */
static bool members_differ(const struct facts *a, const struct facts *b)
{
	for (uint32_t i = 0; i < a->n_properties; i++)
		for (uint32_t k = 0; k < b->n_properties; k++) {
			const struct property *x = &a->properties[i], *y = &b->properties[k];
			struct value_list mine, other;
			if (x->required && y->required && strcmp(x->name, y->name) == 0 &&
			    x->view.n && y->view.n && list_of(x->view.parts[0].schema, &mine) &&
			    list_of(y->view.parts[0].schema, &other) && lists_differ(&mine, &other))
				return true;
		}
	return false;
}

/* None of the values that a lists is of a type that b allows. */
static bool types_exclude(const struct facts *a, const struct facts *b)
{
	const struct value_list *list = &a->values[0];
	size_t n = a->n_values == 0 ? 0 : list->is_const ? 1 : json_array_size(list->json);
	for (size_t i = 0; i < n; i++)
		if (schema_type_fits(b->types,
				     list->is_const ? list->json : json_array_get(list->json, i)))
			return false;
	return n > 0;
}

static bool facts_differ(const struct facts *a, const struct facts *b)
{
	unsigned both = a->types & b->types;
	if (both == 0 || types_exclude(a, b) || types_exclude(b, a))
		return true;
	if (a->n_values && b->n_values && lists_differ(&a->values[0], &b->values[0]))
		return true;
	return both == TYPE_OBJECT && members_differ(a, b);
}

/* Types that are said, not meant: what a schema without a type allows counts in full. */
static enum svc_code facts_of(struct schema *schema, const struct view *view, struct part branch,
			      struct facts *facts)
{
	struct view own = {0};
	enum svc_code code = schema_view_add(schema, *view, branch, &own);
	if (code == SVC_OK)
		code = schema_flatten(schema, own, &own);
	if (code == SVC_OK)
		code = facts_read(schema, &own, facts);
	bool says_type = false;
	for (uint32_t i = 0; code == SVC_OK && i < own.n; i++)
		says_type |= json_object_get(own.parts[i].schema, "type") != NULL;
	if (!says_type)
		facts->types = TYPE_ANY;
	return code;
}

enum svc_code alternatives_differ(struct schema *schema, const struct view *view,
				  const json_t *alternatives, bool *ret_differ)
{
	size_t n = json_array_size(alternatives);
	*ret_differ = true;
	if (n > 64) {
		*ret_differ = false;
		return SVC_OK;
	}
	struct facts *all = calloc(n, sizeof *all);
	enum svc_code code = SVC_OK;
	if (!all)
		return schema_no_memory(schema);
	for (size_t i = 0; code == SVC_OK && i < n; i++) {
		struct part branch = {json_array_get(alternatives, i), view->parts[0].path, 0};
		code = facts_of(schema, view, branch, &all[i]);
		for (size_t k = 0; code == SVC_OK && k < i; k++)
			*ret_differ &= facts_differ(&all[i], &all[k]);
	}
	for (size_t i = 0; i < n; i++)
		free(all[i].properties);
	free(all);
	return code;
}
