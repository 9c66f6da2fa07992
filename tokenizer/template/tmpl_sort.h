/* tokenizer/template/tmpl_sort.h: Python's sorted() and what stands on it. Internal to tmpl_*.c. */
#pragma once
#include "tokenizer/template/tmpl_state.h"

/* By key, stable (reverse too, as Python's). Uses tmpl_less; fails where it does. */
bool tmpl_sort(struct tmpl_eval *e, struct tmpl_entry *entries, size_t count, bool reverse);
/* Gives the dict sorted entries of its own; its index is then gone, it can only be walked. */
bool tmpl_sort_entries(struct tmpl_eval *e, struct tmpl_dict *dict);
