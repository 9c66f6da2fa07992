/* JSON in and out. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "tokenizer/template/tmpl_number.h"
#include "tokenizer/template/tmpl_print.h"
#include "tokenizer/template/tmpl_sort.h"

static void add_escaped(struct tmpl_builder *b, uint32_t code, bool trusted)
{
	static const char letters[] = "btn?fr"; /* U+0008.. */
	char text[16];
	if (code == '"' || code == '\\')
		snprintf(text, sizeof text, "\\%c", (char)code);
	else if (code >= 0x08 && code <= 0x0D && code != 0x0B)
		snprintf(text, sizeof text, "\\%c", letters[code - 0x08]);
	else if (code < 0x10000)
		snprintf(text, sizeof text, "\\u%04" PRIx32, code);
	else
		snprintf(text, sizeof text, "\\u%04" PRIx32 "\\u%04" PRIx32,
			 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + (code & 0x3FF));
	tmpl_add_text(b, text, trusted);
}

static void print_string(struct tmpl_builder *b, const struct tmpl_str *s, bool ensure_ascii)
{
	bool trusted = tmpl_trusted(s);
	tmpl_add_text(b, "\"", trusted);
	size_t start = 0;
	for (size_t at = 0; at < s->len && !b->failed;) {
		uint32_t code;
		size_t len = tmpl_decode(s->ptr + at, &code);
		if (code < 0x20 || code == '"' || code == '\\' || (ensure_ascii && code > 0x7E)) {
			tmpl_add_slice(b, s, start, at);
			add_escaped(b, code, tmpl_trusted_at(s, at));
			start = at + len;
		}
		at += len;
	}
	tmpl_add_slice(b, s, start, s->len);
	tmpl_add_text(b, "\"", trusted);
}

static bool print_number(struct tmpl_builder *b, struct tmpl_value value)
{
	if (value.kind == TV_FLOAT && !isfinite(value.real)) {
		const char *name = isnan(value.real) ? "NaN"
				   : value.real < 0  ? "-Infinity"
						     : "Infinity";
		tmpl_add_text(b, name, value.trusted);
		return true;
	}
	return tmpl_repr(b, value);
}

struct printer {
	struct tmpl_builder *b;
	const struct tmpl_json_style *style;
	unsigned level;
};

static bool print_value(struct printer *p, struct tmpl_value value);

/* Layout is trusted only as far as the value is: it lies between the request's own characters. */
static void print_layout(struct printer *p, const struct tmpl_str *text, bool trusted)
{
	tmpl_add_bytes(p->b, text->ptr, text->len, trusted && tmpl_trusted(text));
}

static void print_line(struct printer *p, bool trusted)
{
	if (!p->style->multi_line)
		return;
	tmpl_add_text(p->b, "\n", trusted);
	for (unsigned i = 0; i < p->level && !p->b->failed; i++)
		print_layout(p, p->style->indent, trusted);
}

static bool print_list(struct printer *p, struct tmpl_value value)
{
	if (value.list->count == 0) {
		tmpl_add_text(p->b, "[]", value.trusted);
		return true;
	}
	tmpl_add_text(p->b, "[", value.trusted);
	p->level++;
	for (size_t i = 0; i < value.list->count; i++) {
		if (i > 0)
			print_layout(p, p->style->item_separator, value.trusted);
		print_line(p, value.trusted);
		if (!print_value(p, value.list->items[i]))
			return false;
	}
	p->level--;
	print_line(p, value.trusted);
	tmpl_add_text(p->b, "]", value.trusted);
	return true;
}

/* Keys are strings; Python also takes numbers, true, false and null, as strings. */
static bool print_key(struct printer *p, struct tmpl_value key)
{
	if (key.kind == TV_STRING) {
		print_string(p->b, key.str, p->style->ensure_ascii);
		return true;
	}
	if (!tmpl_is_number(key) && key.kind != TV_NONE)
		return tmpl_fail_type(p->b->e, "use as a JSON key", key);
	tmpl_add_text(p->b, "\"", key.trusted);
	bool ok = print_value(p, key);
	tmpl_add_text(p->b, "\"", key.trusted);
	return ok;
}

static bool print_dict(struct printer *p, struct tmpl_value value)
{
	struct tmpl_dict dict = *value.dict; /* sorting gives it entries of its own */
	if (dict.count == 0) {
		tmpl_add_text(p->b, "{}", value.trusted);
		return true;
	}
	if (p->style->sort_keys && !tmpl_sort_entries(p->b->e, &dict))
		return false;
	tmpl_add_text(p->b, "{", value.trusted);
	p->level++;
	for (size_t i = 0; i < dict.count; i++) {
		if (i > 0)
			print_layout(p, p->style->item_separator, value.trusted);
		print_line(p, value.trusted);
		if (!print_key(p, dict.entries[i].key))
			return false;
		print_layout(p, p->style->key_separator, value.trusted);
		if (!print_value(p, dict.entries[i].value))
			return false;
	}
	p->level--;
	print_line(p, value.trusted);
	tmpl_add_text(p->b, "}", value.trusted);
	return true;
}

static bool print_value(struct printer *p, struct tmpl_value value)
{
	struct tmpl_eval *e = p->b->e;
	bool ok = true;
	if (p->b->failed || !tmpl_charge(e, 1))
		return false;
	if (value.kind == TV_STRING)
		print_string(p->b, value.str, p->style->ensure_ascii);
	else if (value.kind == TV_NONE)
		tmpl_add_text(p->b, "null", value.trusted);
	else if (value.kind == TV_BOOL)
		tmpl_add_text(p->b, value.flag ? "true" : "false", value.trusted);
	else if (value.kind == TV_INT || value.kind == TV_FLOAT)
		ok = print_number(p->b, value);
	else if (value.kind == TV_LIST || value.kind == TV_TUPLE || value.kind == TV_DICT) {
		if (!tmpl_enter(e))
			return false;
		ok = value.kind == TV_DICT ? print_dict(p, value) : print_list(p, value);
		tmpl_leave(e);
	} else
		return tmpl_fail_type(e, "tojson", value);
	return ok && !p->b->failed;
}

bool tmpl_print_json(struct tmpl_builder *b, struct tmpl_value value,
		     const struct tmpl_json_style *style)
{
	struct printer printer = {.b = b, .style = style};
	return print_value(&printer, value);
}

static bool from_array(struct tmpl_eval *e, const json_t *json, struct tmpl_value *ret)
{
	size_t count = json_array_size(json);
	struct tmpl_list *list = tmpl_list_new(e, count);
	if (!list || !tmpl_enter(e))
		return false;
	for (size_t i = 0; i < count; i++)
		if (!tmpl_from_json(e, json_array_get(json, i), &list->items[list->count++]))
			return false;
	tmpl_leave(e);
	*ret = tmpl_list_value(TV_LIST, list);
	return true;
}

static bool from_object(struct tmpl_eval *e, const json_t *json, struct tmpl_value *ret)
{
	struct tmpl_dict *dict = tmpl_dict_new(e);
	if (!dict || !tmpl_enter(e))
		return false;
	/* jansson's iteration takes a pointer to non-const, but changes nothing. */
	union {
		const json_t *given;
		json_t *walked;
	} object = {json};
	for (void *it = json_object_iter(object.walked); it;
	     it = json_object_iter_next(object.walked, it)) {
		struct span name = span_of(json_object_iter_key(it));
		const struct tmpl_str *key = tmpl_str_new(e, name, false);
		struct tmpl_value value = {.kind = TV_MISSING};
		if (!key || !tmpl_from_json(e, json_object_iter_value(it), &value) ||
		    !tmpl_dict_set(e, dict, tmpl_str_value(key), value))
			return false;
	}
	tmpl_leave(e);
	*ret = tmpl_dict_value(dict);
	return true;
}

bool tmpl_from_json(struct tmpl_eval *e, const json_t *json, struct tmpl_value *ret)
{
	bool ok = tmpl_charge(e, 1);
	const struct tmpl_str *str;
	switch (json ? json_typeof(json) : JSON_NULL) {
	case JSON_OBJECT:
		ok = ok && from_object(e, json, ret);
		break;
	case JSON_ARRAY:
		ok = ok && from_array(e, json, ret);
		break;
	case JSON_STRING:
		str = tmpl_str_new(
			e, (struct span){json_string_value(json), json_string_length(json)}, false);
		ok = ok && str;
		*ret = tmpl_str_value(str);
		break;
	case JSON_INTEGER:
		*ret = tmpl_int(json_integer_value(json));
		break;
	case JSON_REAL:
		*ret = tmpl_real(json_real_value(json));
		break;
	case JSON_TRUE:
	case JSON_FALSE:
		*ret = tmpl_bool(json_is_true(json));
		break;
	case JSON_NULL:
		*ret = (struct tmpl_value){.kind = TV_NONE};
		break;
	}
	ret->trusted = false;
	return ok;
}
