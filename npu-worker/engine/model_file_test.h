/* npu-worker/engine/model_file_test.h: writes small GGUF models with random weights, right or wrong
 * in one place, for tests. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct model_file {
	const char *arch;
	uint32_t layers, width, ffn, heads, kv_heads, head_dim, vocab, ctx;
	uint32_t type; /* of matrices: GGUF_TENSOR_F32 or GGUF_TENSOR_Q8_0 */
	bool untied;   /* with an output.weight of its own */
	bool gemma;    /* with q/k norms, post norms and a window of 70 */
	/* One thing that is wrong, or more that is there. */
	const char *omit_key, *omit_tensor; /* full names; NULL: none */
	const char *extra_key;		    /* a u32 key... */
	uint32_t extra_value;
	const char *text_key, *text; /* ... a string key */
	const char *extra_tensor;    /* [1] float32 */
	const char *wide_tensor;     /* gets one column block more than it should */
	const char *huge_tensor;     /* its values are 2^24 times as large; needs F32 */
	int32_t nan_token;	     /* its embedding holds a NaN; -1: none. Needs F32. */
};

/* llama, 2 layers, all sizes small, Q8_0. */
struct model_file model_file_default(void);
/* Fills a temporary file; path[] is at least 32 bytes. */
void model_file_write(const struct model_file *file, char *path);
/* The same, packed for an engine (free); aborts if it can't be. What packing doesn't write is 0xee,
 * and would show in a hash. */
void *model_file_pack(const struct model_file *file, size_t *ret_bytes);
