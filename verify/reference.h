/* verify/reference.h: another implementation's logits on given tokens: an .npz file with
 *
 *   prompts    int32 [all prompts' ids]      lengths  int32 [n]: ids of each prompt
 *   tokens     int32 [n, steps]: what follows each prompt
 *   positions  int32 [rows]: the positions of a single prompt whose logits are held. Absent: of
 *              each prompt `steps` rows, from its last position on
 *   logits     float32 [rows, vocabulary]; or, of each row, `id_deltas` uint32 [rows, width]
 *              (ascending ids, as differences), `top` float32 [rows, width] (their logits) and
 *              `lse` float64 [rows] (the log-sum-exp of all)
 *   source_logits; or source_top and source_lse, of the same ids: the same tokens on the weights
 *              that the model was made from. Optional
 *   provenance text: JSON; its model_sha256 names the model file. Optional */
#pragma once
#include "verify/npz.h"

/* Rows of logits, whole or in the small form (ids != NULL). */
struct vfy_rows {
	uint32_t n, width;   /* width: the vocabulary, or the ids that a row holds */
	const float *values; /* [n][width] */
	uint32_t *ids;	     /* [n][width], ascending; owned. NULL: the row is whole */
	double *lse;	     /* [n]; owned */
};

struct vfy_reference {
	struct npz *npz;
	uint32_t n_prompts, steps, n_ids;
	const int32_t *prompts, *lengths, *tokens;
	const int32_t
		*positions; /* [rows.n], ascending, of the one prompt; NULL: `steps` of each */
	struct vfy_rows rows, source; /* source.n == 0: none. source has rows' ids */
	char model_sha256[65];	      /* "": unknown */
};

/* SVC_CORRUPT names the array and what it must be. */
SVC_CHECKED enum svc_code vfy_reference_open(const char *path, struct vfy_reference **ret,
					     struct svc_err *err);
/* Of an archive that was read, which it takes over. */
SVC_CHECKED enum svc_code vfy_reference_take(struct npz *npz, struct vfy_reference **ret,
					     struct svc_err *err);
/* NULL is fine. Returns NULL. */
struct vfy_reference *vfy_reference_close(struct vfy_reference *reference);

/* How far a row of logits is from a reference's. Sums in double, in index order. */
struct vfy_row_distance {
	double kl; /* KL(reference || other) in nats. Small form: what the row doesn't hold counts
		      as one token, which makes it at most the whole one. */
	double correlation; /* over the ids that are held */
	double outside;	    /* the reference's probability of what the row doesn't hold */
	double gap;	    /* the reference's, between its two largest logits */
	uint32_t best, other_best;
	uint64_t undefined; /* elements that are not finite on one side: left out */
};
/* other: a whole row of n_vocab logits. */
void vfy_row_compare(const struct vfy_rows *rows, uint32_t row, const float *other,
		     uint32_t n_vocab, struct vfy_row_distance *ret);
/* The same of two references on the same ids. */
void vfy_row_compare_rows(const struct vfy_rows *rows, const struct vfy_rows *other, uint32_t row,
			  struct vfy_row_distance *ret);
