/* npu-worker/device/manifest.h: a folder of NPU kernels: manifest.json, a program (xclbin), and for
 * every product it can do the instruction stream of one token.
 *
 *   {"format": 1, "family": "a16-v1", "program": "p.xclbin", "xxh3": "16 hex digits", "kernel":
 * "NAME", "max_tokens": 64, "products": [{"type": "Q4_1", "rows": 576, "cols": 576, "words": [...],
 *                  "linear": [{"word": 5, "step": 1}], "block": [{"word": 9, "tokens": 16, "step":
 * 1}], "weights": 6, "output": 11}]}
 *
 * The stream for n tokens is the one for 1 token with the rules applied: a linear word grows by
 * step for each further token, a block word by step for each further `tokens` of them. Then the
 * offset of the weights in their buffer (bytes, 64 bits in two words) and that of the output (32
 * bits) are put at their places. */
#pragma once
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "npu-worker/kernels/kernels.h"

enum { MANIFEST_MAX_WORDS = 256, MANIFEST_MAX_RULES = 16, MANIFEST_MAX_PRODUCTS = 256 };

struct manifest_rule {
	uint32_t word, tokens, step; /* tokens 1: linear */
};

struct manifest_product {
	uint32_t type, rows, cols;
	uint32_t n_words, n_rules;
	uint32_t weights, output; /* words */
	uint32_t words[MANIFEST_MAX_WORDS];
	struct manifest_rule rules[MANIFEST_MAX_RULES];
};

struct manifest {
	char program[4096], kernel[64], family[16];
	uint32_t max_tokens, n_products;
	struct manifest_product *products;
};

/* Reads folder/manifest.json and checks the program against its hash. SVC_NO_DEVICE names the file
 * and field. */
SVC_CHECKED enum svc_code manifest_open(const char *folder, struct manifest **ret_manifest,
					struct svc_err *err);
/* The fields alone, without a look at the program. */
SVC_CHECKED enum svc_code manifest_read(const json_t *root, const char *folder,
					struct manifest **ret_manifest, struct svc_err *err);
struct manifest *manifest_close(struct manifest *manifest);

/* NULL: there is no such product. */
const struct manifest_product *manifest_find(const struct manifest *manifest,
					     const struct kernels_matrix *matrix);
/* "Q4_1 576x576, ...": what there is, cut to size. */
void manifest_list(const struct manifest *manifest, char *text, size_t size);
/* ret_words: [product->n_words]. */
void manifest_stream(const struct manifest_product *product, uint32_t tokens,
		     uint64_t weights_offset, uint32_t output_offset, uint32_t *ret_words);
