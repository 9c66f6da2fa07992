/* Dicts: entries in the order of insertion; beyond a few, an index by hash. Probes are charged,
 * so that keys chosen to collide hit the step limit. */
#include "tokenizer/template/tmpl_number.h"
#include "tokenizer/template/tmpl_state.h"

#define SMALL_DICT 8 /* up to here a walk is as quick as a hash */

static uint64_t hash_bytes(struct span bytes)
{
	uint64_t hash = 0xCBF29CE484222325u; /* FNV-1a */
	for (size_t i = 0; i < bytes.len; i++)
		hash = (hash ^ (unsigned char)bytes.ptr[i]) * 0x100000001B3u;
	return hash;
}

/* Equal values have equal hashes: 1, 1.0 and true are one key. Only for what check_key let pass: it
 * walks the same tuples, and bounds and charges the walk. */
static uint64_t hash_value(struct tmpl_value value)
{
	if (value.kind == TV_STRING)
		return hash_bytes(tmpl_span(value.str));
	if (tmpl_is_number(value)) {
		double real = tmpl_to_double(value);
		return hash_bytes((struct span){(const char *)&real, sizeof real});
	}
	if (value.kind == TV_TUPLE) {
		uint64_t hash = value.list->count;
		for (size_t i = 0; i < value.list->count; i++)
			hash = hash * 0x9E3779B97F4A7C15u + hash_value(value.list->items[i]);
		return hash;
	}
	return value.kind;
}

struct tmpl_dict *tmpl_dict_new(struct tmpl_eval *e)
{
	return tmpl_alloc(e, 1, sizeof(struct tmpl_dict));
}

static bool check_key(struct tmpl_eval *e, struct tmpl_value key)
{
	bool hashable;
	if (key.kind == TV_STRING)
		return tmpl_charge(e, 1 + key.str->len / 64);
	if (!tmpl_hashable(e, key, &hashable))
		return false;
	return hashable || tmpl_fail_type(e, "use as a key", key);
}

/* Entry number of an equal key, or count. */
static bool find(struct tmpl_eval *e, const struct tmpl_dict *dict, struct tmpl_value key,
		 size_t *ret_at)
{
	bool equal = false;
	*ret_at = dict->count;
	if (!dict->index) {
		for (size_t i = 0; i < dict->count; i++) {
			if (!tmpl_equal(e, dict->entries[i].key, key, &equal))
				return false;
			if (equal)
				return *ret_at = i, true;
		}
		return true;
	}
	size_t mask = dict->index_size - 1;
	for (size_t slot = hash_value(key) & mask; dict->index[slot]; slot = (slot + 1) & mask) {
		size_t at = dict->index[slot] - 1;
		if (!tmpl_equal(e, dict->entries[at].key, key, &equal))
			return false;
		if (equal)
			return *ret_at = at, true;
	}
	return true;
}

static void index_add(struct tmpl_dict *dict, size_t at)
{
	size_t mask = dict->index_size - 1;
	size_t slot = hash_value(dict->entries[at].key) & mask;
	while (dict->index[slot])
		slot = (slot + 1) & mask;
	dict->index[slot] = (uint32_t)at + 1;
}

static bool grow(struct tmpl_eval *e, struct tmpl_dict *dict)
{
	size_t room = dict->room ? dict->room * 2 : 4;
	struct tmpl_entry *entries = tmpl_alloc(e, room, sizeof *entries);
	if (!entries || !tmpl_charge(e, room))
		return false;
	if (dict->count)
		memcpy(entries, dict->entries, dict->count * sizeof *entries);
	dict->entries = entries;
	dict->room = room;
	if (room <= SMALL_DICT)
		return true;
	dict->index_size = room * 2;
	dict->index = tmpl_alloc(e, dict->index_size, sizeof *dict->index);
	if (!dict->index)
		return false;
	for (size_t i = 0; i < dict->count; i++)
		index_add(dict, i);
	return true;
}

bool tmpl_dict_set(struct tmpl_eval *e, struct tmpl_dict *dict, struct tmpl_value key,
		   struct tmpl_value value)
{
	size_t at;
	if (!check_key(e, key) || !find(e, dict, key, &at))
		return false;
	if (at < dict->count) {
		dict->entries[at].value = value;
		return true;
	}
	if (dict->count == dict->room && !grow(e, dict))
		return false;
	dict->entries[dict->count++] = (struct tmpl_entry){key, value};
	if (dict->index)
		index_add(dict, dict->count - 1);
	return true;
}

bool tmpl_dict_get(struct tmpl_eval *e, const struct tmpl_dict *dict, struct tmpl_value key,
		   struct tmpl_value *ret)
{
	size_t at;
	if (!check_key(e, key) || !find(e, dict, key, &at))
		return false;
	*ret = at < dict->count ? dict->entries[at].value : (struct tmpl_value){.kind = TV_MISSING};
	return true;
}

struct tmpl_value tmpl_dict_named(const struct tmpl_dict *dict, const char *name)
{
	for (size_t i = 0; i < dict->count; i++) {
		struct tmpl_value key = dict->entries[i].key;
		if (key.kind == TV_STRING && span_is(tmpl_span(key.str), name))
			return dict->entries[i].value;
	}
	return (struct tmpl_value){.kind = TV_MISSING};
}
