#include "tokenizer/template/tmpl_sort.h"

/* left[0..n) and right[0..m) to out. The right one goes first only where it must: stable. */
static bool merge(struct tmpl_eval *e, const struct tmpl_entry *left, size_t n, size_t m,
		  struct tmpl_entry *out, bool reverse)
{
	const struct tmpl_entry *right = left + n;
	for (size_t i = 0, j = 0; i < n || j < m;) {
		bool take_right = i == n;
		if (i < n && j < m) {
			struct tmpl_value a = left[i].key, b = right[j].key;
			if (!tmpl_less(e, reverse ? a : b, reverse ? b : a, &take_right))
				return false;
		}
		*out++ = take_right ? right[j++] : left[i++];
	}
	return true;
}

bool tmpl_sort(struct tmpl_eval *e, struct tmpl_entry *entries, size_t count, bool reverse)
{
	struct tmpl_entry *other = tmpl_alloc(e, count ? count : 1, sizeof *other);
	if (!other)
		return false;
	struct tmpl_entry *from = entries, *to = other;
	for (size_t width = 1; width < count; width *= 2) {
		for (size_t at = 0; at < count; at += 2 * width) {
			size_t n = count - at < width ? count - at : width;
			size_t m = count - at - n < width ? count - at - n : width;
			if (!merge(e, from + at, n, m, to + at, reverse))
				return false;
		}
		struct tmpl_entry *swap = from;
		from = to;
		to = swap;
	}
	if (from != entries)
		memcpy(entries, from, count * sizeof *entries);
	return true;
}

bool tmpl_sort_entries(struct tmpl_eval *e, struct tmpl_dict *dict)
{
	struct tmpl_entry *copy = tmpl_alloc(e, dict->count + 1, sizeof *copy);
	if (!copy)
		return false;
	memcpy(copy, dict->entries, dict->count * sizeof *copy);
	dict->entries = copy;
	dict->index = NULL;
	return tmpl_sort(e, copy, dict->count, false);
}
