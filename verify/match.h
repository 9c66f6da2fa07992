/* verify/match.h: two streams of records in execution order, matched by position, layer,
 * checkpoint, part and run, and compared. */
#pragma once
#include <jansson.h>

#include "verify/capture_file.h"

struct vfy_point { /* what is known of one checkpoint, over all layers and positions */
	uint64_t compared, different;
	double max_ulp, max_abs, max_rel_l2;
	double min_correlation; /* of the different ones; 1 if there are none */
};

struct vfy_place {
	bool found;
	struct vfy_record record; /* side A's head */
	bool is_numbers;
	struct vfy_diff diff; /* if is_numbers */
};

enum { VFY_TRACE = 24 };

struct vfy_verdict {
	uint64_t compared, identical;
	uint64_t only_a, only_b;	   /* records that the other side lacks */
	uint64_t incomparable;		   /* same place, other type or shape */
	uint64_t rows, rows_identical;	   /* positions with logits, or a hash of them */
	uint64_t states, states_identical; /* positions with a state hash or written KV */
	uint64_t argmax_compared, argmax_flips;
	double max_ulp;
	uint64_t ulp_undefined;
	struct vfy_place first;	    /* the earliest difference */
	struct vfy_place first_rel; /* the earliest whose relative L2 is above options.rel */
	struct vfy_point points[VFY_CHECKPOINT_END];
	/* The first difference and what was compared after it, the same or not. */
	struct vfy_place trace[VFY_TRACE];
	uint32_t n_trace;
};

struct vfy_match_options {
	uint32_t depth; /* compare only layers 0 .. depth - 1; 0: everything */
	double rel;	/* for first_rel */
	/* Every pair of records that is compared, in execution order; NULL: nobody looks. */
	void (*visit)(void *context, const struct vfy_record *record, const void *a, const void *b);
	void *visit_context;
};

struct vfy_match {
	struct vfy_match_options options;
	struct vfy_reader *a;	   /* borrowed; NULL: frame is all of A */
	struct vfy_recorder frame; /* of a, and the next record in it */
	size_t next;
	bool drained;
	uint32_t state_position; /* the last position whose state was counted, + 1 */
	bool state_differs;
	struct vfy_verdict verdict;
};

/* A verify/pass.h emit function too: context is a struct vfy_match. The records of b, in execution
 * order, behind all that came before; they are cleared. */
SVC_CHECKED enum svc_code vfy_match_put(void *context, struct vfy_recorder *b, struct svc_err *err);
/* After the last: what a has left is only_a. */
SVC_CHECKED enum svc_code vfy_match_finish(struct vfy_match *match, struct svc_err *err);
void vfy_match_free(struct vfy_match *match);

/* Nothing differs, nothing is missing on either side, and something was compared. */
bool vfy_verdict_is_identical(const struct vfy_verdict *verdict);
/* New reference. */
json_t *vfy_verdict_json(const struct vfy_verdict *verdict);
void vfy_verdict_print(const struct vfy_verdict *verdict, const char *title, FILE *out);
/* "position 3, layer 2, q_proj, part 0" */
void vfy_place_text(const struct vfy_record *record, char text[128]);
