/* model/gguf_private.h: what gguf.c (the reader) and gguf_value.c (metadata look-up) share. */
#pragma once
#include "model/gguf.h"

struct gguf_pair {
	struct span key;
	enum gguf_type type;
	const unsigned char *value; /* a scalar's bytes */
	struct span string;	    /* GGUF_STRING */
	struct gguf_array array;    /* GGUF_ARRAY */
	struct span *owned_strings;
};

struct gguf {
	struct span file, pairs_bytes;
	uint32_t alignment;
	size_t n_pairs, n_tensors;
	struct gguf_pair *pairs;
	struct gguf_tensor *tensors;
	uint64_t *offsets; /* of tensor data, relative; only until they are resolved */
	const struct gguf_pair **pairs_by_name;
	const struct gguf_tensor **tensors_by_name;
};

/* Bytes of a metadata scalar; 0 for strings, arrays and unknown numbers. */
size_t gguf_scalar_bytes(uint32_t type);
int gguf_name_order(struct span a, struct span b);
/* For qsort and bsearch over pairs_by_name. */
int gguf_pair_order(const void *a, const void *b);
