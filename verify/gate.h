/* verify/gate.h: an engine against another implementation's logits (verify/reference.h). */
#pragma once
#include "verify/reference.h"
#include "verify/rig.h"

struct vfy_gate_job {
	struct vfy_config config; /* ctx 0: as many positions as the tokens need */
	const struct vfy_reference *reference;
	bool free_running; /* the greedy gate: own choices follow the prompt, until one is another
			    */
};

/* Over rows of logits. */
struct vfy_fidelity {
	uint32_t rows;
	double kl_mean, kl_median, kl_max, kl_min;
	double correlation_mean, correlation_min;
	double outside_mean;
	uint32_t flips; /* rows whose argmax differs */
	double gap_max; /* of those rows, the reference's gap between its two largest logits */
	uint32_t gap_row;
	uint64_t undefined;
};
/* distances, scratch: [rows]. */
struct vfy_fidelity vfy_fidelity_of(const struct vfy_row_distance *distances, uint32_t rows,
				    double *scratch);

struct vfy_split { /* a prompt of the greedy gate whose tokens part from the reference's */
	uint32_t prompt, step;
	int32_t reference, ours;
	double gap; /* the reference's */
};

struct vfy_gate_result {
	/* Of each row that was compared, in order: reference || ours, and source || reference.
	 * [engine.rows], [container.rows]; owned. */
	struct vfy_row_distance *engine_rows, *container_rows;
	struct vfy_fidelity engine;    /* reference || ours */
	struct vfy_fidelity container; /* source || reference; rows 0: the file has no source */
	struct vfy_fidelity whole;     /* source || ours; likewise */
	uint32_t n_splits;
	struct vfy_split *splits; /* [n_splits]; owned */
	uint32_t not_compared;	  /* rows behind a split: the two sides stand on other contexts */
	double seconds;
};
/* SVC_CONFLICT: the vocabularies differ. */
SVC_CHECKED enum svc_code vfy_gate_run(const struct vfy_gate_job *job,
				       struct vfy_gate_result *ret_result, struct svc_err *err);
void vfy_gate_result_free(struct vfy_gate_result *result);
