/* tokenizer/template/tmpl_value.h: the values a template computes with. Internal to tmpl_*.c.
 * Values are immutable once built (but for namespaces and generators) and live in the rendering's
 * arena or, as constants, in the compiled template. */
#pragma once
#include "tokenizer/template/tmpl.h"
#include "tokenizer/template/tmpl_string.h"

enum tmpl_kind {
	TV_MISSING, /* no value at all: an argument not given, a name not bound */
	TV_UNDEFINED,
	TV_NONE,
	TV_BOOL,
	TV_INT,
	TV_FLOAT,
	TV_STRING,
	TV_LIST,
	TV_TUPLE,
	TV_DICT,
	TV_GENERATOR, /* what map, select and their like give: can be walked once */
	TV_VIEW,      /* keys(), values(), items() of a dict */
	TV_RANGE,
	TV_NAMESPACE,
	TV_LOOP,
	TV_MACRO,
	TV_FUNCTION,
	TV_METHOD,
};

enum tmpl_view { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };
enum tmpl_why { WHY_NAME, WHY_ATTRIBUTE, WHY_UNSAFE, WHY_HINT }; /* of an undefined value */

struct tmpl_value {
	enum tmpl_kind kind;
	bool trusted;	/* characters printed for it are; a string has this per character */
	uint8_t detail; /* enum tmpl_view or enum tmpl_why */
	union {
		bool flag;
		int64_t integer;
		double real;
		const struct tmpl_str *str; /* of TV_UNDEFINED: the name asked for, or the hint */
		struct tmpl_list *list;	    /* TV_LIST, TV_TUPLE, TV_GENERATOR */
		struct tmpl_dict *dict;	    /* TV_DICT, TV_VIEW, TV_NAMESPACE */
		const struct tmpl_range *range;
		struct tmpl_loop *loop;
		const struct tmpl_closure *macro;
		const struct tmpl_builtin *function;
		const struct tmpl_method *method;
	};
};

struct tmpl_list {
	struct tmpl_value *items;
	size_t count, room;
	size_t next; /* of a generator: how many have been taken */
};

struct tmpl_entry {
	struct tmpl_value key, value;
};

/* Keeps the order of insertion. index: open addressing, entry number + 1, once it has grown. */
struct tmpl_dict {
	struct tmpl_entry *entries;
	size_t count, room;
	uint32_t *index;
	size_t index_size;
};

struct tmpl_range {
	int64_t start, stop, step;
	size_t count;
};

struct tmpl_method {
	const struct tmpl_builtin *builtin;
	struct tmpl_value self;
};

struct tmpl_value tmpl_undefined(const struct tmpl_str *name, enum tmpl_why why);
struct tmpl_value tmpl_bool(bool flag);
struct tmpl_value tmpl_int(int64_t integer);
struct tmpl_value tmpl_real(double real);
struct tmpl_value tmpl_str_value(const struct tmpl_str *str);
struct tmpl_value tmpl_dict_value(struct tmpl_dict *dict);
/* Of kind TV_LIST, TV_TUPLE or TV_GENERATOR. */
struct tmpl_value tmpl_list_value(enum tmpl_kind kind, struct tmpl_list *list);

struct tmpl_list *tmpl_list_new(struct tmpl_eval *e, size_t room);
bool tmpl_list_add(struct tmpl_eval *e, struct tmpl_list *list, struct tmpl_value value);
/* A tuple of two. */
bool tmpl_pair(struct tmpl_eval *e, struct tmpl_value a, struct tmpl_value b,
	       struct tmpl_value *ret);

struct tmpl_dict *tmpl_dict_new(struct tmpl_eval *e);
/* Replaces the value of an equal key, keeping that key. */
bool tmpl_dict_set(struct tmpl_eval *e, struct tmpl_dict *dict, struct tmpl_value key,
		   struct tmpl_value value);
/* TV_MISSING if there is none; fails for a key that can't be hashed. */
bool tmpl_dict_get(struct tmpl_eval *e, const struct tmpl_dict *dict, struct tmpl_value key,
		   struct tmpl_value *ret);
/* By a string known here; TV_MISSING if there is none. */
struct tmpl_value tmpl_dict_named(const struct tmpl_dict *dict, const char *name);

bool tmpl_truth(struct tmpl_value value);
/* Python's name of the value's type. */
const char *tmpl_type_name(struct tmpl_value value);
/* Also fails for a tuple nested too deep. */
bool tmpl_hashable(struct tmpl_eval *e, struct tmpl_value value, bool *ret_hashable);
bool tmpl_equal(struct tmpl_eval *e, struct tmpl_value a, struct tmpl_value b, bool *ret_equal);
/* a < b, as Python orders numbers, strings, lists and tuples. */
bool tmpl_less(struct tmpl_eval *e, struct tmpl_value a, struct tmpl_value b, bool *ret_less);
bool tmpl_contains(struct tmpl_eval *e, struct tmpl_value container, struct tmpl_value item,
		   bool *ret_found);
/* len(); fails for what has none. */
bool tmpl_length(struct tmpl_eval *e, struct tmpl_value value, size_t *ret_length);

/* Walks lists, tuples, strings, dicts (keys), views, ranges, generators; undefined is empty. */
struct tmpl_iter {
	struct tmpl_value value;
	size_t at;
};
bool tmpl_iterable(struct tmpl_value value);
bool tmpl_iter_start(struct tmpl_eval *e, struct tmpl_value value, struct tmpl_iter *ret_iter);
/* ret: TV_MISSING at the end. */
bool tmpl_iter_next(struct tmpl_eval *e, struct tmpl_iter *iter, struct tmpl_value *ret);
/* Everything that is left, in a list of its own. */
struct tmpl_list *tmpl_collect(struct tmpl_eval *e, struct tmpl_value value);
