/* npu-worker/engine/rope.h: rotary position tables. A variant gives the inverse frequencies of the
 * rotated pairs, float32, in the order of operations of Hugging Face transformers
 * (modeling_rope_utils.py), so that they agree with its own within 1 ulp; the angle of a position
 * is float32 inv_freq times (float)position, one rounding; its cosine and sine are computed in
 * double and rounded once (and once more for an attention factor). `dynamic` and `longrope` depend
 * on the context size: it is fixed at load, so a table is one for all requests. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/span.h"

enum rope_type { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_DYNAMIC, ROPE_YARN, ROPE_LONGROPE };

struct rope_config {
	uint32_t type; /* enum rope_type */
	uint32_t dims; /* rotated dimensions of a head, even; pairs = dims / 2 */
	double theta;
	double factor; /* all but default; longrope: 0 = trained / original context */
	double low_freq_factor, high_freq_factor; /* llama3 */
	double original_ctx;	     /* llama3, yarn, longrope; dynamic: the trained context */
	double trained_ctx;	     /* longrope without a factor */
	double beta_fast, beta_slow; /* yarn */
	double attention_factor;     /* yarn, longrope; 0: derived from factor */
};

/* "default", "none", "linear", "llama3", "dynamic", "yarn", "longrope", "su". false: no such type.
 */
bool rope_type_parse(struct span name, uint32_t *ret_type);
const char *rope_type_name(uint32_t type);

/* ret_inv_freq: [dims/2]. divisors: [dims/2] or NULL, a model's literal table (llama3's rope_freqs,
 * longrope's factors for this ctx). Returns what cosines and sines are multiplied with. */
float rope_inv_freq(const struct rope_config *config, uint32_t ctx, const float *divisors,
		    float *ret_inv_freq);
/* The name of a tensor of a model's own inverse frequencies, [dims/2], instead of all that. */
#define ROPE_OWN_TABLE "rope_inv_freq.weight"

/* The table's row of one position: pairs cosines, then pairs sines. */
void rope_row(const float *inv_freq, uint32_t pairs, float factor, uint32_t position,
	      float *ret_row);
