#include "sampler/params.h"

#include "base/buf.h"
#include "draw/draw.h"

void smp_params_default(struct body_params *ret_params)
{
	*ret_params = (struct body_params){
		.temperature = 1.0f,
		.top_p = 1.0f,
		.typical_p = 1.0f,
		.repetition_penalty = 1.0f,
	};
}

static enum svc_code count_check(const char *param, uint32_t count, uint32_t max,
				 struct svc_err *err)
{
	if (count > max)
		return svc_fail_param(err, SVC_INVALID, param,
				      "%s has %u entries: at most %u are allowed", param, count,
				      max);
	return SVC_OK;
}

static enum svc_code counts_check(const struct body_params *params, struct svc_err *err)
{
	enum svc_code code = count_check("stop", params->n_stop, SMP_STOPS_MAX, err);
	if (code == SVC_OK)
		code = count_check("stop_token_ids", params->n_stop_ids, SMP_STOP_IDS_MAX, err);
	if (code == SVC_OK)
		code = count_check("logit_bias", params->n_bias, SMP_BIASES_MAX, err);
	if (code != SVC_OK)
		return code;
	if (params->top_logprobs > SMP_TOP_LOGPROBS_MAX)
		return svc_fail_param(err, SVC_INVALID, "top_logprobs",
				      "top_logprobs is %u: at most %u are allowed",
				      params->top_logprobs, SMP_TOP_LOGPROBS_MAX);
	if (params->max_tokens && params->min_tokens > params->max_tokens)
		return svc_fail_param(
			err, SVC_INVALID, "min_tokens",
			"min_tokens is %u: it must not exceed max_tokens, which is %u",
			params->min_tokens, params->max_tokens);
	return SVC_OK;
}

static enum svc_code id_check(const char *param, int32_t id, uint32_t n_vocab, struct svc_err *err)
{
	if (id < 0 || (uint32_t)id >= n_vocab)
		return svc_fail_param(err, SVC_INVALID, param,
				      "%s names token %d: the model's ids go from 0 to %u", param,
				      id, n_vocab - 1);
	return SVC_OK;
}

/* Copies count entries of a region; NULL with SVC_OK when there are none. */
static enum svc_code array_copy(struct span region, size_t entry_bytes, uint32_t count,
				struct arena *arena, void **ret_copy, struct svc_err *err)
{
	if (count == 0)
		return SVC_OK;
	if (region.len / entry_bytes < count)
		return svc_fail(err, SVC_CORRUPT, __func__,
				"request body: %u entries don't fit a region of %zu bytes", count,
				region.len);
	void *copy = arena_alloc(arena, entry_bytes * count);
	if (!copy)
		return svc_fail(err, SVC_NO_MEMORY, __func__,
				"no memory for a request's parameters");
	memcpy(copy, region.ptr, entry_bytes * count);
	*ret_copy = copy;
	return SVC_OK;
}

static enum svc_code stop_ids_read(struct span region, uint32_t n_vocab, struct arena *arena,
				   struct smp_params *params, struct svc_err *err)
{
	void *copy = NULL;
	enum svc_code code =
		array_copy(region, sizeof(int32_t), params->num.n_stop_ids, arena, &copy, err);
	params->stop_ids = copy;
	for (uint32_t i = 0; code == SVC_OK && i < params->num.n_stop_ids; i++)
		code = id_check("stop_token_ids", params->stop_ids[i], n_vocab, err);
	return code;
}

static enum svc_code biases_read(struct span region, uint32_t n_vocab, struct arena *arena,
				 struct smp_params *params, struct svc_err *err)
{
	void *copy = NULL;
	enum svc_code code =
		array_copy(region, sizeof(struct body_bias), params->num.n_bias, arena, &copy, err);
	params->biases = copy;
	for (uint32_t i = 0; code == SVC_OK && i < params->num.n_bias; i++) {
		const struct body_bias *bias = &params->biases[i];
		code = id_check("logit_bias", bias->id, n_vocab, err);
		if (code == SVC_OK &&
		    !(bias->value >= -SMP_BIAS_MAX && bias->value <= SMP_BIAS_MAX))
			code = svc_fail_param(
				err, SVC_INVALID, "logit_bias",
				"logit_bias of token %d is %g: it must lie between %g and %g",
				bias->id, (double)bias->value, (double)-SMP_BIAS_MAX,
				(double)SMP_BIAS_MAX);
	}
	return code;
}

/* The answer is UTF-8, so a stop string that isn't could never be found. */
static enum svc_code utf8_check(struct span stop, struct svc_err *err)
{
	for (size_t at = 0; at < stop.len;) {
		size_t len = utf8_length(stop.ptr + at, stop.len - at);
		if (len == 0)
			return svc_fail_param(err, SVC_INVALID, "stop",
					      "a stop string is not UTF-8 at byte %zu", at);
		at += len;
	}
	return SVC_OK;
}

/* Takes one stop string off the front of *region. */
static enum svc_code stop_read(struct span *region, struct arena *arena, struct span *ret_stop,
			       struct svc_err *err)
{
	uint32_t len;
	if (region->len < sizeof len)
		return svc_fail(err, SVC_CORRUPT, __func__,
				"request body: a stop string is missing");
	memcpy(&len, region->ptr, sizeof len);
	struct span rest = {region->ptr + sizeof len, region->len - sizeof len};
	if (len == 0 || len > SMP_STOP_BYTES_MAX)
		return svc_fail_param(err, SVC_INVALID, "stop",
				      "a stop string has %u bytes: 1 to %u are allowed", len,
				      SMP_STOP_BYTES_MAX);
	if (len > rest.len)
		return svc_fail(err, SVC_CORRUPT, __func__,
				"request body: a stop string leaves its region");
	struct span stop = {arena_copy(arena, (struct span){rest.ptr, len}), len};
	if (!stop.ptr)
		return svc_fail(err, SVC_NO_MEMORY, __func__,
				"no memory for a request's stop strings");
	size_t padded = (len + 3u) & ~(size_t)3;
	padded = padded < rest.len ? padded : rest.len;
	*region = (struct span){rest.ptr + padded, rest.len - padded};
	*ret_stop = stop;
	return utf8_check(stop, err);
}

enum svc_code smp_params_read(const struct smp_request *request, uint32_t n_vocab,
			      struct arena *arena, struct smp_params *ret_params,
			      struct svc_err *err)
{
	struct smp_params params = {0};
	memcpy(&params.num, request->params, sizeof params.num);
	enum svc_code code = draw_params_check(&params.num, err);
	if (code == SVC_OK)
		code = counts_check(&params.num, err);
	if (code == SVC_OK)
		code = stop_ids_read(request->stop_ids, n_vocab, arena, &params, err);
	if (code == SVC_OK)
		code = biases_read(request->biases, n_vocab, arena, &params, err);
	struct span stops = request->stops;
	for (uint32_t i = 0; code == SVC_OK && i < params.num.n_stop; i++)
		code = stop_read(&stops, arena, &params.stops[i], err);
	if (code == SVC_OK)
		*ret_params = params;
	return code;
}
