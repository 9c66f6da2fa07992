/* verify/choose.h: the next token, as the server's sampler draws it: a function of the parameters,
 * the tokens so far and the logits, whatever was drawn before. So it verifies drafts, and goes on
 * after a state was lost. */
#pragma once
#include <stdint.h>

#include "base/err.h"
#include "shm/layout.h"

struct vfy_chooser;

struct vfy_logits {
	const float *row; /* [n_vocab] */
	uint32_t n_vocab;
};

/* params: temperature, filters, penalties, seed; copied. The answer never ends by itself.
 * SVC_INVALID names what is out of range. */
SVC_CHECKED enum svc_code vfy_chooser_open(const struct body_params *params, uint32_t n_vocab,
					   struct vfy_chooser **ret_chooser, struct svc_err *err);
/* NULL is fine. Returns NULL. */
struct vfy_chooser *vfy_chooser_close(struct vfy_chooser *chooser);

/* The answers that are chosen from now on stand behind tokens[n_prompt]; borrowed until the next
 * call. */
void vfy_chooser_start(struct vfy_chooser *chooser, const int32_t *tokens, uint32_t n_prompt);

/* Token n of tokens[n], n >= n_prompt, from its logits. chooser NULL: the argmax. */
SVC_CHECKED enum svc_code vfy_choose(struct vfy_chooser *chooser, const int32_t *tokens, uint32_t n,
				     struct vfy_logits logits, int32_t *ret_token,
				     struct svc_err *err);
