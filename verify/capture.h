/* verify/capture.h: the instruments capture, replay and compare. */
#pragma once
#include "verify/match.h"
#include "verify/pass.h"

struct vfy_capture_job {
	struct vfy_config config;
	struct vfy_selection selection; /* last_layer is cut to what the model has */
	const char *folder;
	const int32_t *prompt; /* [n_prompt] */
	uint32_t n_prompt, n_new;
	bool all_logits;
	bool gate; /* run again without recording: the states and logits must be the same */
};
struct vfy_capture_result {
	struct vfy_manifest manifest; /* the caller frees */
	uint32_t fed, gate_identical; /* positions; gate_identical: state and logits are */
	double seconds, gate_seconds;
};
/* SVC_INVALID, SVC_BAD_CONFIG, SVC_USAGE: an option is wrong, and nothing was written. */
SVC_CHECKED enum svc_code vfy_capture(const struct vfy_capture_job *job,
				      struct vfy_capture_result *ret_result, struct svc_err *err);

struct vfy_replay_job {
	const char *folder;
	struct vfy_config config; /* family NULL: the capture's; chunk 0: the capture's; ctx 0: as
				     many as the capture needs */
	uint32_t answer_chunk;	  /* positions behind the prompt per step */
	bool gates; /* before: twice without recording; and that with recording must be the same */
	struct vfy_match_options match;
};
struct vfy_replay_result {
	struct vfy_gate control, probe; /* if job->gates */
	struct vfy_verdict verdict;
	struct vfy_config config; /* as it ran */
	char where[32];		  /* what computed */
	uint32_t n_new;
};
/* Runs the capture's tokens again, forced. SVC_CONFLICT if the model is another one. */
SVC_CHECKED enum svc_code vfy_replay(const struct vfy_replay_job *job,
				     struct vfy_replay_result *ret_result, struct svc_err *err);

/* Two captures of the same tokens; a's records are A. */
SVC_CHECKED enum svc_code vfy_compare_captures(const char *a, const char *b,
					       const struct vfy_match_options *options,
					       struct vfy_verdict *ret_verdict,
					       struct svc_err *err);

/* Seconds of the monotonic clock. */
double vfy_now(void);
