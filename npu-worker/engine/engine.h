/* npu-worker/engine/engine.h: the host engine. Token ids in, logits out, over packed weights
 * (region.h) and KV pages that the caller owns. Knows nothing of text, requests or messages.
 *
 * A sequence's logits and KV depend on its own tokens, the model and the arithmetic family only:
 * never on the other sequences of a step, on how its tokens were cut into steps, on threads or
 * instruction set. One thread calls; the engine's pool helps. Nothing is allocated after
 * engine_open. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "npu-worker/engine/region.h"
#include "npu-worker/kernels/kernels.h"

struct engine;
struct engine_hooks; /* hooks.h */

enum { ENGINE_PAGE_TOKENS = 64 };

struct engine_options {
	const void *region; /* packed; stays mapped and unchanged while the engine is open */
	size_t region_bytes;
	const struct model_hash *model; /* NULL, or the hash the region must have */
	bool check_content;		/* hash the whole region first */
	enum kernels_family family;
	const char *isa;	   /* as kernels_select */
	uint32_t threads;	   /* the caller included */
	struct engine *threads_of; /* NULL, or whose threads to use instead: it must stay open
				    * longer, and they never step at the same time */
	const uint32_t *cores;	   /* NULL, or [threads]: the processor that each is held on */
	uint32_t max_rows;	   /* tokens of one step, over all sequences */
	uint32_t max_seqs;	   /* sequences of one step */
};
SVC_CHECKED enum svc_code engine_open(const struct engine_options *options,
				      struct engine **ret_engine, struct svc_err *err);
/* NULL is fine. Returns NULL. */
struct engine *engine_close(struct engine *engine);

/* The family of a name such as "a16-v1". SVC_BAD_CONFIG lists what there is. */
SVC_CHECKED enum svc_code engine_family_parse(const char *name, enum kernels_family *ret_family,
					      struct svc_err *err);

struct engine_info {
	struct model_config config;
	struct model_hash model;    /* of the model file */
	struct model_hash identity; /* of all that KV pages depend on: model, family, page layout,
				       position tables */
	enum kernels_family family;
	const char *isa; /* the kernels that were chosen */
	uint32_t threads, ctx, max_rows, max_seqs;
	size_t page_bytes; /* of ENGINE_PAGE_TOKENS positions, all layers; a multiple of 64 */
};
const struct engine_info *engine_info(const struct engine *engine);

/* Where pages lie: page i at base + i * stride. base 64-byte aligned, stride a multiple of 64 and
 * at least page_bytes. May be called again, between steps. */
SVC_CHECKED enum svc_code engine_set_pages(struct engine *engine, void *base, size_t stride,
					   uint32_t count, struct svc_err *err);

/* One dispatch of matrix products: the same rounded activations with up to three matrices, whose
 * outputs stand side by side in a row of y. matrices[i].data lies in the region. */
struct engine_product {
	const struct kernels_matrix *matrices;
	uint32_t n_matrices;
	const struct kernels_acts *acts;
	float *y; /* [acts->rows][y_stride] */
	size_t y_stride;
};

/* One token at one position, on its way through all layers. */
struct engine_pass_row {
	uint32_t position;
	const uint8_t *const *pages; /* of its sequence; the same pointer for rows of the same */
	bool settled;		     /* of its sequence: see engine_seq */
	const float *table;	     /* rope [2][pairs] of the position; the next one's follows */
	const float *local_table;    /* of windowed layers; NULL: they have none of their own */
	float *x; /* [n_embd]: the embedding; out, if keeps_x: the last layer's */
	bool keeps_x;
	float *logits;	   /* [n_vocab], out; NULL: none are wanted */
	_Atomic bool *bad; /* set if a NaN or an infinity was met */
};

struct engine_pass {
	const struct engine_pass_row *rows; /* sequence after sequence */
	uint32_t n_rows, ctx;
};

/* Who computes, if not the engine's own kernels: either products, or all layers and the head at
 * once (keys and values go to their pages). Must give the family's bits, in the caller's thread,
 * and doesn't fail: a device that does ends the process. */
struct engine_executor {
	void *context;
	void (*multiply)(void *context, const struct engine_product *product); /* or NULL */
	void (*layers)(void *context, const struct engine_pass *pass);	       /* or NULL */
};
/* NULL: the engine's own kernels. executor is copied. Between steps. */
void engine_set_executor(struct engine *engine, const struct engine_executor *executor);

struct engine_seq {
	const int32_t *tokens; /* [n_tokens], the ids at positions pos, pos + 1, ... */
	uint32_t n_tokens;     /* >= 1 */
	uint32_t pos;
	const uint32_t *pages; /* [n_pages] page indices; page p has positions 64p .. 64p + 63 */
	uint32_t n_pages;      /* enough for pos + n_tokens positions */
	bool settled;	       /* nobody but this engine has written the pages since its last step
				* with them; false is always right */
	uint32_t n_logits;     /* how many of the last tokens get logits: 0, 1, ... n_tokens */
	float *logits; /* [n_logits][logits_stride], written only if status is SVC_OK or SVC_NUMERIC
			*/
	size_t logits_stride; /* floats, >= n_vocab */
	/* To this vector of n_embd the final norms of the last n_pooled tokens are added, in the
	 * order of their positions; worth something only if status is SVC_OK. */
	double *pooled;
	uint32_t n_pooled; /* 0 to n_tokens */
	enum svc_code
		status; /* out: SVC_OK; SVC_INVALID or SVC_TOO_LONG: not run, an argument is wrong;
			 * SVC_NUMERIC: NaN or infinity, its KV and logits are worth nothing */
};

struct engine_batch {
	struct engine_seq *seqs;
	uint32_t n_seqs;
	const struct engine_hooks *hooks; /* NULL is fine */
	/* 0: all. Else only so many layers, then the head: a guess at what all would say. The KV of
	 * these layers is the model's own. Not with an executor of layers. */
	uint32_t n_layers;
};

/* One step for all sequences: their tokens' keys and values are written to their pages, and the
 * logits that are asked for to theirs. A sequence that fails leaves the others as they are. Fails
 * as a whole (SVC_INVALID) only if the batch is larger than max_rows or max_seqs, or no pages were
 * set, or n_layers is more than there are, or if its hook abandoned it (SVC_CANCELLED). */
SVC_CHECKED enum svc_code engine_step(struct engine *engine, const struct engine_batch *batch,
				      struct svc_err *err);

/* The lowest index of the largest of logits[n], n >= 1; any index if there is a NaN. */
int32_t engine_likeliest(const float *logits, uint32_t n);
