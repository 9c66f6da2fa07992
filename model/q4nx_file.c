#include "model/q4nx_file.h"

#include <stdlib.h>

/* An item's name lies in the item, which moves while it is sorted. */
static int item_order(const void *a, const void *b)
{
	const struct q4nx_item *first = a, *second = b;
	struct safetensors_tensor x = first->entry, y = second->entry;
	x.name = span_of(first->tensor.name);
	y.name = span_of(second->tensor.name);
	return safetensors_file_order(&x, &y);
}

enum svc_code q4nx_arrange(struct q4nx_item *items, size_t n, struct draft *draft,
			   struct svc_err *err)
{
	struct safetensors_tensor *entries = calloc(n + 1, sizeof *entries);
	draft->tensors = calloc(n + 1, sizeof *draft->tensors);
	if (!entries || !draft->tensors) {
		free(entries);
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for the directory");
	}
	qsort(items, n, sizeof *items, item_order);
	for (size_t i = 0; i < n; i++) {
		draft->tensors[i] = items[i].tensor;
		entries[i] = items[i].entry;
		entries[i].name = span_of(draft->tensors[i].name);
	}
	draft->n = n;
	safetensors_header(entries, n, &draft->head);
	free(entries);
	draft->total_bytes = draft->head.len;
	for (size_t i = 0; i < draft->n; i++) {
		draft->tensors[i].offset = draft->total_bytes;
		draft->total_bytes += draft->tensors[i].size_bytes;
	}
	return draft->head.failed
		       ? svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for the header")
		       : SVC_OK;
}
