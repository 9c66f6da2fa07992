/* verify/tape.h: what a server's samplers saw (--tape, sampler/tape.h), held against an engine of
 * one's own: the same tokens, forced, must give the logits from which each was drawn, whatever
 * batch, restart or death lay between; and these logits must give each token again. */
#pragma once
#include "verify/pass.h"

struct vfy_tape_draw {
	int32_t token;
	struct vfy_hash128 logits;
};

struct vfy_answer {
	uint64_t request;
	uint32_t choice;
	int32_t *prompt; /* NULL: its first line isn't there */
	uint32_t n_prompt;
	bool by_numbers;	     /* the draws are a function of sampling, as far as is known */
	struct body_params sampling; /* if by_numbers */
	bool gap;		     /* lines are missing; none behind the gap counts */
	struct vfy_tape_draw *draws; /* [n] */
	uint32_t n, room;
};

struct vfy_tape {
	struct vfy_answer *answers; /* [n], by first appearance */
	uint32_t n, room;
	/* Lines for a token that stood there already: it was drawn again, because a process died
	 * before it was committed; and those of them that drew or saw something else. */
	uint64_t lines, again, again_different;
	uint64_t cut;	      /* lines that were begun and not written to their end */
	uint64_t behind_gaps; /* lines of answers whose earlier ones are missing */
};

/* SVC_CORRUPT names the line and the member. Lines that were cut off (their writer died, or had no
 * room) are left out. */
SVC_CHECKED enum svc_code vfy_tape_parse(const char *text, size_t len, struct vfy_tape *ret_tape,
					 struct svc_err *err);
SVC_CHECKED enum svc_code vfy_tape_read(const char *path, struct vfy_tape *ret_tape,
					struct svc_err *err);
void vfy_tape_free(struct vfy_tape *tape);

struct vfy_tape_place {
	uint64_t request;
	uint32_t choice, index;
};

struct vfy_tape_result {
	uint32_t answers;	   /* that were run again */
	uint32_t incomplete;	   /* that weren't: lines are missing */
	uint64_t draws, identical; /* of those that were: logits, bit for bit */
	/* Tokens drawn again, from the own logits, where the tape says how; those that came out the
	 * same. */
	uint64_t redrawn, redrawn_same;
	struct vfy_tape_place first;	   /* if draws > identical: the first that isn't */
	struct vfy_tape_place first_other; /* if redrawn > redrawn_same: likewise */
};
/* config->ctx 0: as many positions as the longest answer needs. */
SVC_CHECKED enum svc_code vfy_tape_replay(const struct vfy_config *config,
					  const struct vfy_tape *tape,
					  struct vfy_tape_result *ret_result, struct svc_err *err);
