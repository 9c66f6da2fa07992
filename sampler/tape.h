/* sampler/tape.h: a record of every draw, for `lockstep verify tape` (--tape FILE, off by default):
 * a line of JSON each, written at once, so that what was drawn before a process died stands in the
 * file. A token that is drawn twice, because a process died before it was committed, stands there
 * twice. Holds token ids: treat it like the requests themselves. */
#pragma once
#include <stdint.h>

#include "base/err.h"
#include "shm/layout.h"

struct tape;

/* Appends to path. SVC_IO. */
SVC_CHECKED enum svc_code tape_open(const char *path, struct tape **ret_tape, struct svc_err *err);
/* NULL is fine. Returns NULL. */
struct tape *tape_close(struct tape *tape);

struct tape_draw {
	uint64_t generation; /* of the request */
	uint32_t choice;
	const int32_t *prompt;	  /* [n_prompt] */
	uint32_t n_prompt, index; /* index: tokens of the answer before this one */
	int32_t token;
	const float *logits; /* [n_vocab] */
	uint32_t n_vocab;
	/* Of which the token is a function, with the tokens before it; NULL: it depends on more
	 * than these numbers (a grammar, biases, a least length). */
	const struct body_params *sampling;
};
/* NULL is fine. Prompt and sampling are written with an answer's first token, of the logits only
 * the XXH3-128. A line that can't be written is lost, and said in the log once. */
void tape_put(struct tape *tape, const struct tape_draw *draw);
