#include "tokenizer/template/tmpl_print.h"

#include <inttypes.h>
#include <stdio.h>

#include "tokenizer/template/tmpl_number.h"
#include "tokenizer/template/tmpl_program.h"
#include "tokenizer/template/tmpl_unicode.h"

/* The escape for code in a repr, or an empty string. */
static void escape_code(uint32_t code, char quote, char ret[12])
{
	if (code == (unsigned char)quote || code == '\\')
		snprintf(ret, 12, "\\%c", (char)code);
	else if (code == '\n' || code == '\r' || code == '\t')
		snprintf(ret, 12, "\\%c", code == '\n' ? 'n' : code == '\r' ? 'r' : 't');
	else if ((code >= 0x20 && code < 0x7F) || (code >= 0xA0 && tmpl_is_printable(code)))
		ret[0] = 0;
	else if (code < 0x100)
		snprintf(ret, 12, "\\x%02" PRIx32, code);
	else
		snprintf(ret, 12, code < 0x10000 ? "\\u%04" PRIx32 : "\\U%08" PRIx32, code);
}

static void repr_string(struct tmpl_builder *b, const struct tmpl_str *s)
{
	bool single = memchr(s->ptr, '\'', s->len) != NULL;
	bool twice = memchr(s->ptr, '"', s->len) != NULL;
	char quote = single && !twice ? '"' : '\'', escape[12];
	bool trusted = tmpl_trusted(s);
	if (s->markup)
		tmpl_add_text(b, "Markup(", trusted);
	tmpl_add_bytes(b, &quote, 1, trusted);
	size_t start = 0;
	for (size_t at = 0; at < s->len && !b->failed;) {
		uint32_t code;
		size_t len = tmpl_decode(s->ptr + at, &code);
		escape_code(code, quote, escape);
		if (escape[0]) {
			tmpl_add_slice(b, s, start, at);
			tmpl_add_text(b, escape, tmpl_trusted_at(s, at));
			start = at + len;
		}
		at += len;
	}
	tmpl_add_slice(b, s, start, s->len);
	tmpl_add_bytes(b, &quote, 1, trusted);
	if (s->markup)
		tmpl_add_text(b, ")", trusted);
}

static bool repr_items(struct tmpl_builder *b, struct tmpl_value value)
{
	const struct tmpl_list *list = value.list;
	bool tuple = value.kind == TV_TUPLE;
	tmpl_add_text(b, tuple ? "(" : "[", value.trusted);
	for (size_t i = 0; i < list->count; i++) {
		if (i > 0)
			tmpl_add_text(b, ", ", value.trusted);
		if (!tmpl_repr(b, list->items[i]))
			return false;
	}
	tmpl_add_text(b, !tuple ? "]" : list->count == 1 ? ",)" : ")", value.trusted);
	return true;
}

static bool repr_dict(struct tmpl_builder *b, struct tmpl_value value)
{
	tmpl_add_text(b, "{", value.trusted);
	for (size_t i = 0; i < value.dict->count; i++) {
		if (i > 0)
			tmpl_add_text(b, ", ", value.trusted);
		if (!tmpl_repr(b, value.dict->entries[i].key))
			return false;
		tmpl_add_text(b, ": ", value.trusted);
		if (!tmpl_repr(b, value.dict->entries[i].value))
			return false;
	}
	tmpl_add_text(b, "}", value.trusted);
	return true;
}

static bool repr_view(struct tmpl_builder *b, struct tmpl_value value)
{
	static const char *const names[] = {"dict_keys(", "dict_values(", "dict_items("};
	struct tmpl_list *items = tmpl_collect(b->e, value);
	if (!items)
		return false;
	struct tmpl_value list = tmpl_list_value(TV_LIST, items);
	list.trusted = value.trusted;
	tmpl_add_text(b, names[value.detail], value.trusted);
	if (!repr_items(b, list))
		return false;
	tmpl_add_text(b, ")", value.trusted);
	return true;
}

static void repr_range(struct tmpl_builder *b, struct tmpl_value value)
{
	char text[80];
	const struct tmpl_range *range = value.range;
	int len = snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64, range->start,
			   range->stop);
	if (range->step != 1)
		snprintf(text + len, sizeof text - (size_t)len, ", %" PRId64, range->step);
	tmpl_add_text(b, text, value.trusted);
	tmpl_add_text(b, ")", value.trusted);
}

static void print_integer(struct tmpl_builder *b, struct tmpl_value value)
{
	char text[24];
	snprintf(text, sizeof text, "%" PRId64, value.integer);
	tmpl_add_text(b, text, value.trusted);
}

/* The values that hold others, or are none of JSON's. */
static bool repr_object(struct tmpl_builder *b, struct tmpl_value value)
{
	switch (value.kind) {
	case TV_LIST:
	case TV_TUPLE:
		return repr_items(b, value);
	case TV_DICT:
		return repr_dict(b, value);
	case TV_VIEW:
		return repr_view(b, value);
	case TV_RANGE:
		repr_range(b, value);
		return true;
	case TV_NAMESPACE:
		tmpl_add_text(b, "<Namespace ", value.trusted);
		if (!repr_dict(b, value))
			return false;
		tmpl_add_text(b, ">", value.trusted);
		return true;
	case TV_MACRO:
		tmpl_add_text(b, "<Macro ", true);
		if (value.macro->macro->name)
			repr_string(b, value.macro->macro->name);
		else
			tmpl_add_text(b, "anonymous", true);
		tmpl_add_text(b, ">", true);
		return true;
	case TV_MISSING:
	case TV_UNDEFINED:
	case TV_NONE:
	case TV_BOOL:
	case TV_INT:
	case TV_FLOAT:
	case TV_STRING:
	case TV_GENERATOR:
	case TV_LOOP:
	case TV_FUNCTION:
	case TV_METHOD:
		break;
	}
	return tmpl_fail(b->e, SVC_UNSUPPORTED, "printing a %s%s", tmpl_type_name(value),
			 value.kind == TV_GENERATOR ? " (add |list)" : "");
}

bool tmpl_repr(struct tmpl_builder *b, struct tmpl_value value)
{
	char text[TMPL_NUMBER_BYTES];
	if (!tmpl_charge(b->e, 1) || b->failed)
		return false;
	switch (value.kind) {
	case TV_MISSING:
	case TV_UNDEFINED:
		tmpl_add_text(b, "Undefined", value.trusted);
		return true;
	case TV_NONE:
		tmpl_add_text(b, "None", value.trusted);
		return true;
	case TV_BOOL:
		tmpl_add_text(b, value.flag ? "True" : "False", value.trusted);
		return true;
	case TV_INT:
		print_integer(b, value);
		return true;
	case TV_FLOAT:
		tmpl_print_double(value.real, text);
		tmpl_add_text(b, text, value.trusted);
		return true;
	case TV_STRING:
		repr_string(b, value.str);
		return !b->failed;
	case TV_LIST:
	case TV_TUPLE:
	case TV_DICT:
	case TV_GENERATOR:
	case TV_VIEW:
	case TV_RANGE:
	case TV_NAMESPACE:
	case TV_LOOP:
	case TV_MACRO:
	case TV_FUNCTION:
	case TV_METHOD:
		break;
	}
	if (!tmpl_enter(b->e) || !repr_object(b, value))
		return false;
	tmpl_leave(b->e);
	return true;
}

bool tmpl_print(struct tmpl_builder *b, struct tmpl_value value)
{
	if (value.kind == TV_UNDEFINED)
		return true;
	if (value.kind != TV_STRING)
		return tmpl_repr(b, value);
	tmpl_add(b, value.str);
	return !b->failed;
}

const struct tmpl_str *tmpl_to_str(struct tmpl_eval *e, struct tmpl_value value)
{
	if (value.kind == TV_STRING)
		return value.str;
	struct tmpl_builder b;
	tmpl_build(&b, e, 0);
	return tmpl_print(&b, value) ? tmpl_built(&b) : NULL;
}
