#include "verify/choose.h"

#include <stdlib.h>

#include "sampler/sampler.h"
#include "verify/rig.h"

struct vfy_chooser {
	struct body_params params;
	struct smp_vocab vocab; /* of tokens without text */
	uint32_t *offsets;
	uint8_t *flags;
	struct draw_work *work;
	struct smp_seq *seq; /* NULL: to be opened */
	const int32_t *prompt;
	uint32_t n_prompt;
};

static enum svc_code open_seq(struct vfy_chooser *c, struct svc_err *err)
{
	const struct smp_seq_spec spec = {.vocab = &c->vocab,
					  .request = {.params = &c->params},
					  .prompt = c->prompt,
					  .n_prompt = c->n_prompt,
					  .n_ctx = UINT32_MAX};
	c->seq = smp_seq_free(c->seq);
	return smp_seq_open(&spec, &c->seq, err);
}

enum svc_code vfy_chooser_open(const struct body_params *params, uint32_t n_vocab,
			       struct vfy_chooser **ret_chooser, struct svc_err *err)
{
	struct vfy_chooser *c = calloc(1, sizeof *c);
	if (!c)
		return svc_fail_errno(err, __func__, "no memory for a sampler");
	c->params = *params;
	c->params.max_tokens = 0; /* no limit */
	c->offsets = calloc((size_t)n_vocab + 1, sizeof *c->offsets);
	c->flags = calloc(n_vocab, 1);
	c->vocab = (struct smp_vocab){
		.n_tokens = n_vocab, .offsets = c->offsets, .bytes = "", .flags = c->flags};
	enum svc_code code = c->offsets && c->flags
				     ? draw_work_open(n_vocab, DRAW_ISA_AUTO, &c->work, err)
				     : svc_fail_errno(err, __func__, "no memory for a vocabulary");
	code = code ? code : open_seq(c, err); /* checks the parameters */
	if (code)
		vfy_chooser_close(c);
	else
		*ret_chooser = c;
	return code;
}

struct vfy_chooser *vfy_chooser_close(struct vfy_chooser *c)
{
	if (!c)
		return NULL;
	smp_seq_free(c->seq);
	draw_work_free(c->work);
	free(c->offsets);
	free(c->flags);
	free(c);
	return NULL;
}

void vfy_chooser_start(struct vfy_chooser *c, const int32_t *tokens, uint32_t n_prompt)
{
	if (!c)
		return;
	c->seq = smp_seq_free(c->seq);
	c->prompt = tokens;
	c->n_prompt = n_prompt;
}

enum svc_code vfy_choose(struct vfy_chooser *c, const int32_t *tokens, uint32_t n,
			 struct vfy_logits logits, int32_t *ret_token, struct svc_err *err)
{
	if (!c) {
		*ret_token = vfy_argmax(logits.row, logits.n_vocab);
		return SVC_OK;
	}
	enum svc_code code = SVC_OK;
	/* Going back is starting again: a draw needs nothing but the tokens before it. */
	if (!c->seq || smp_seq_made(c->seq) > n - c->n_prompt)
		code = open_seq(c, err);
	uint32_t made = code ? 0 : smp_seq_made(c->seq);
	if (!code)
		code = smp_seq_replay(c->seq, tokens + c->n_prompt + made, n - c->n_prompt - made,
				      err);
	return code ? code : smp_draw(c->seq, c->work, logits.row, NULL, ret_token, err);
}
