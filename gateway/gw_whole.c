/* Answers that come in one piece and are no generation: the tokenizer's, and embeddings. */
#include "gateway/api/render_vectors.h"
#include "gateway/gw_call.h"

/* *ret_body stays NULL until the choice is done. Whether it failed is asked after that, not before:
 * in between it may have, and what stands in a failed one is what the last request left there. */
static enum svc_code done_see(struct gateway *gateway, const struct gw_choice *choice,
			      const struct body **ret_body, struct svc_err *err)
{
	struct gw_seen seen = {0};
	enum svc_code code = gw_choice_see(gateway, choice, &seen, err);
	if (code != SVC_OK || !seen.done)
		return code;
	if (body_failure(seen.body, err))
		return err->code;
	*ret_body = seen.body;
	return SVC_OK;
}

/* ---- answers of the tokenizer ---- */

static void ids_append(struct buf *out, const int32_t *ids, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		buf_print(out, "%s%d", i ? "," : "", ids[i]);
}

static enum svc_code text_answer(struct gateway *gateway, const struct gw_call *call,
				 const struct body *body, struct buf *out, struct svc_err *err)
{
	const struct shm_run *run = &gateway->svc->run;
	uint32_t n = call->shape.endpoint == GW_TOKENIZE ? atomic_load(&body->n_prompt)
							 : atomic_load(&body->n_out);
	enum body_region region = call->shape.endpoint == GW_TOKENIZE ? REGION_IDS : REGION_OUT;
	const void *bytes =
		body_region(run, body, region, region == REGION_IDS ? 4ull * n : n, NULL);
	if (!bytes)
		return svc_fail(err, SVC_CORRUPT, __func__, "the request's body is damaged");
	if (call->shape.meta.form == GW_FORM_ANTHROPIC) {
		buf_print(out, "{\"input_tokens\":%u}", n);
	} else if (call->shape.endpoint == GW_TOKENIZE) {
		buf_print(out, "{\"count\":%u,\"max_model_len\":%u,\"tokens\":[", n, run->ctx);
		ids_append(out, bytes, n);
		buf_print(out, "]}");
	} else {
		buf_print(out, "{\"prompt\":");
		buf_json_string(out, (struct span){bytes, n});
		buf_print(out, "}");
	}
	return SVC_OK;
}

void gw_text_look(struct gateway *gateway, struct gw_call *call)
{
	const struct body *body = NULL;
	struct svc_err err;
	struct buf out = {.limit = GW_ANSWER_BYTES_MAX};
	enum svc_code code = done_see(gateway, &call->choices[0], &body, &err);
	if (code == SVC_OK && !body)
		return;
	if (code == SVC_OK)
		code = text_answer(gateway, call, body, &out, &err);
	if (code == SVC_OK) {
		gw_reply_json(call->exchange, 200, &out);
		gw_call_end(gateway, call, SVC_OK, false);
	} else {
		gw_call_fail(gateway, call, &err);
	}
	buf_free(&out);
}

/* ---- embeddings ---- */

static enum svc_code vector_see(struct gateway *gateway, const struct gw_choice *choice,
				struct gw_vector *ret_vector, bool *ret_done, struct svc_err *err)
{
	const struct shm_run *run = &gateway->svc->run;
	const struct body *body = NULL;
	enum svc_code code = done_see(gateway, choice, &body, err);
	*ret_done = body != NULL;
	if (!body)
		return code;
	const char *region =
		body_region(run, body, REGION_VECTOR, body_vector_bytes(run->n_embd), NULL);
	uint32_t n = body->params.dimensions;
	if (!region || n > run->n_embd)
		return svc_fail(err, SVC_CORRUPT, __func__, "the request's body is damaged");
	*ret_vector = (struct gw_vector){(const float *)(region + 2 * body_sum_bytes(run->n_embd)),
					 n, atomic_load(&body->n_prompt)};
	return code;
}

void gw_vectors_look(struct gateway *gateway, struct gw_call *call)
{
	struct gw_vector vectors[GW_CHOICES_MAX] = {0};
	struct buf out = {.limit = GW_ANSWER_BYTES_MAX};
	const struct gw_render render = gw_call_render(gateway, call, "", &out);
	struct svc_err err;
	bool done = true;
	for (uint32_t i = 0; i < call->n_choices && done; i++) {
		if (vector_see(gateway, &call->choices[i], &vectors[i], &done, &err) == SVC_OK)
			continue;
		gw_call_fail(gateway, call, &err);
		return;
	}
	if (!done)
		return;
	gw_render_vectors(&render, vectors, call->n_choices);
	for (uint32_t i = 0; i < call->n_choices; i++)
		gateway->metrics.prompt_tokens += vectors[i].n_prompt;
	gw_reply_json(call->exchange, 200, &out);
	buf_free(&out);
	gw_call_end(gateway, call, SVC_OK, false);
}
