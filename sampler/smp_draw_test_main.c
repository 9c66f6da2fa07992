/* smp_draw_test: the sampler library on JSON lines, for tests that compare it with other
 * implementations. One request object per line of standard input, one answer per line of standard
 * output:
 *
 *   {"logits": [...], "draws": n, ...}     draws n tokens from the same logits, taking each:
 * {"tokens", "finish"}
 *   {"logits": [...], "score": id, ...}    {"chosen", "top": [[id, logprob], ...]}
 *   {"tokens": [...], ...}                 {"events": [[text, finish, stop_id, stop_index], ...]}
 *
 * Further members: params (the API's names), prompt, allowed (ids a grammar allows), pieces (the
 * vocabulary's texts, as arrays of bytes), control (ids), ends (ids), n_ctx, isa. In logits a
 * string is read as strtof does ("nan", "-inf"). A refusal is {"error": code, "param", "message"}.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "sampler/sampler.h"

struct job {
	json_t *request;
	uint32_t n_vocab;
	struct smp_vocab vocab;
	float *logits;
	struct smp_request params;
	struct body_params num;
	struct svc_err err;
};

static void *need(void *memory)
{
	if (!memory)
		abort();
	return memory;
}

static int32_t *ids_read(json_t *array, uint32_t *ret_n)
{
	size_t n = json_array_size(array);
	int32_t *ids = need(calloc(n + 1, sizeof *ids));
	for (size_t i = 0; i < n; i++)
		ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
	*ret_n = (uint32_t)n;
	return ids;
}

static float float_read(json_t *value)
{
	return json_is_string(value) ? strtof(json_string_value(value), NULL)
				     : (float)json_number_value(value);
}

static void vocab_read(struct job *job)
{
	json_t *pieces = json_object_get(job->request, "pieces"),
	       *control = json_object_get(job->request, "control");
	struct smp_vocab *vocab = &job->vocab;
	uint32_t *offsets = need(calloc((size_t)job->n_vocab + 1, sizeof *offsets));
	uint8_t *flags = need(calloc(job->n_vocab, 1));
	char *bytes = need(malloc(1 << 20));
	for (uint32_t id = 0; id < job->n_vocab; id++) {
		json_t *piece = json_array_get(pieces, id);
		size_t n = json_array_size(piece);
		for (size_t i = 0; i < n; i++)
			bytes[vocab->n_bytes++] =
				(char)json_integer_value(json_array_get(piece, i));
		offsets[id + 1] = vocab->n_bytes;
		if (n > vocab->max_piece_bytes)
			vocab->max_piece_bytes = (uint32_t)n;
	}
	for (size_t i = 0; i < json_array_size(control); i++)
		flags[json_integer_value(json_array_get(control, i))] = SMP_TOKEN_CONTROL;
	vocab->n_tokens = job->n_vocab;
	vocab->offsets = offsets;
	vocab->flags = flags;
	vocab->bytes = bytes;
	vocab->ends = ids_read(json_object_get(job->request, "ends"), &vocab->n_ends);
}

static void numbers_read(json_t *params, struct body_params *num)
{
	const struct {
		const char *name;
		float *to;
	} floats[] = {
		{"temperature", &num->temperature},
		{"top_p", &num->top_p},
		{"min_p", &num->min_p},
		{"typical_p", &num->typical_p},
		{"repetition_penalty", &num->repetition_penalty},
		{"presence_penalty", &num->presence_penalty},
		{"frequency_penalty", &num->frequency_penalty},
	};
	const struct {
		const char *name;
		uint32_t *to, flag; /* flag: a bit of *to */
	} words[] = {
		{"top_k", &num->top_k, 0},
		{"max_tokens", &num->max_tokens, 0},
		{"min_tokens", &num->min_tokens, 0},
		{"choice", &num->choice, 0},
		{"top_logprobs", &num->top_logprobs, 0},
		{"repetition_window", &num->repetition_window, 0},
		{"ignore_eos", &num->flags, BODY_IGNORE_EOS},
		{"include_stop_str_in_output", &num->flags, BODY_KEEP_STOP},
		{"keep_special", &num->flags, BODY_KEEP_SPECIAL},
	};
	json_t *value;
	for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
		if ((value = json_object_get(params, floats[i].name)))
			*floats[i].to = float_read(value);
	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		value = json_object_get(params, words[i].name);
		if (words[i].flag && json_is_true(value))
			*words[i].to |= words[i].flag;
		else if (json_is_integer(value))
			*words[i].to = (uint32_t)json_integer_value(value);
	}
	num->seed = (uint64_t)json_integer_value(json_object_get(params, "seed"));
}

static struct span stops_read(json_t *array, uint32_t *ret_n)
{
	char *region = need(calloc(1, 1 << 16));
	size_t used = 0;
	for (size_t i = 0; i < json_array_size(array); i++) {
		json_t *stop = json_array_get(array, i);
		uint32_t len = (uint32_t)json_string_length(stop);
		memcpy(region + used, &len, sizeof len);
		memcpy(region + used + sizeof len, json_string_value(stop), len);
		used += sizeof len + ((len + 3u) & ~3u);
	}
	*ret_n = (uint32_t)json_array_size(array);
	return (struct span){region, used};
}

static void params_read(struct job *job)
{
	json_t *params = json_object_get(job->request, "params"),
	       *bias = json_object_get(params, "logit_bias");
	smp_params_default(&job->num);
	numbers_read(params, &job->num);
	job->params.params = &job->num;
	job->params.stops = stops_read(json_object_get(params, "stop"), &job->num.n_stop);
	job->params.stop_ids.ptr =
		(char *)ids_read(json_object_get(params, "stop_token_ids"), &job->num.n_stop_ids);
	job->params.stop_ids.len = job->num.n_stop_ids * sizeof(int32_t);
	job->num.n_bias = (uint32_t)json_array_size(bias);
	struct body_bias *biases = need(calloc(job->num.n_bias + 1, sizeof *biases));
	for (uint32_t i = 0; i < job->num.n_bias; i++) {
		biases[i].id =
			(int32_t)json_integer_value(json_array_get(json_array_get(bias, i), 0));
		biases[i].value = float_read(json_array_get(json_array_get(bias, i), 1));
	}
	job->params.biases = (struct span){(char *)biases, job->num.n_bias * sizeof *biases};
}

static uint32_t *allowed_read(const struct job *job)
{
	json_t *ids = json_object_get(job->request, "allowed");
	if (!ids)
		return NULL;
	uint32_t *mask = need(calloc(job->n_vocab / 32 + 1, sizeof *mask));
	for (size_t i = 0; i < json_array_size(ids); i++) {
		uint32_t id = (uint32_t)json_integer_value(json_array_get(ids, i));
		mask[id / 32] |= 1u << id % 32;
	}
	return mask;
}

static json_t *events_answer(struct job *job, struct smp_seq *seq)
{
	json_t *events = json_array(), *tokens = json_object_get(job->request, "tokens");
	for (size_t i = 0; i < json_array_size(tokens); i++) {
		struct smp_event event;
		int32_t token = (int32_t)json_integer_value(json_array_get(tokens, i));
		if (smp_push(seq, token, &event, &job->err) != SVC_OK) {
			json_decref(events);
			return NULL;
		}
		json_array_append_new(events,
				      json_pack("[s%iii]", event.text.len ? event.text.ptr : "",
						event.text.len, (int)event.finish, event.stop_id,
						event.stop_index));
	}
	return json_pack("{so}", "events", events);
}

static json_t *draws_answer(struct job *job, struct smp_seq *seq, struct draw_work *work)
{
	json_int_t n = json_integer_value(json_object_get(job->request, "draws"));
	json_t *tokens = json_array();
	uint32_t *allowed = allowed_read(job);
	enum svc_code code = SVC_OK;
	while (code == SVC_OK && n-- > 0 && smp_seq_finish(seq) == FINISH_NONE) {
		struct smp_event event;
		int32_t token;
		code = smp_draw(seq, work, job->logits, allowed, &token, &job->err);
		if (code == SVC_OK)
			code = smp_push(seq, token, &event, &job->err);
		if (code == SVC_OK)
			json_array_append_new(tokens, json_integer(token));
	}
	free(allowed);
	if (code != SVC_OK) {
		json_decref(tokens);
		return NULL;
	}
	return json_pack("{sosi}", "tokens", tokens, "finish", (int)smp_seq_finish(seq));
}

static json_t *score_answer(struct job *job, struct draw_work *work, int32_t token)
{
	union {
		struct body_logprob record;
		char room[sizeof(struct body_logprob) + SMP_TOP_LOGPROBS_MAX * 8];
	} score;
	if (smp_score(work, job->logits, token, job->num.top_logprobs, &score.record, &job->err) !=
	    SVC_OK)
		return NULL;
	json_t *top = json_array();
	for (uint32_t i = 0; i < score.record.n_top; i++)
		json_array_append_new(top, json_pack("[if]", score.record.top[i].id,
						     (double)score.record.top[i].logprob));
	return json_pack("{sfso}", "chosen", (double)score.record.chosen, "top", top);
}

/* NULL: job->err says why. */
static json_t *answer(struct job *job)
{
	json_t *logits = json_object_get(job->request, "logits"),
	       *score = json_object_get(job->request, "score");
	json_t *n_ctx = json_object_get(job->request, "n_ctx");
	json_t *isa_name = json_object_get(job->request, "isa");
	enum draw_isa isa = DRAW_ISA_AUTO;
	size_t n = json_array_size(logits ? logits : json_object_get(job->request, "pieces"));
	job->n_vocab = (uint32_t)n;
	job->logits = need(malloc(n * sizeof *job->logits +
				  1)); /* nothing after it: a sanitizer sees reads beyond */
	for (size_t i = 0; i < json_array_size(logits); i++)
		job->logits[i] = float_read(json_array_get(logits, i));
	vocab_read(job);
	params_read(job);
	if (isa_name)
		draw_isa_parse(json_string_value(isa_name), &isa);
	struct smp_seq_spec spec = {.vocab = &job->vocab, .request = job->params};
	spec.strip_space = json_is_true(json_object_get(job->request, "strip_space"));
	spec.n_ctx = n_ctx ? (uint32_t)json_integer_value(n_ctx) : 1u << 20;
	spec.prompt = ids_read(json_object_get(job->request, "prompt"), &spec.n_prompt);
	struct draw_work *work = NULL;
	struct smp_seq *seq = NULL;
	json_t *result = NULL;
	if (draw_work_open(job->n_vocab, isa, &work, &job->err) == SVC_OK &&
	    smp_seq_open(&spec, &seq, &job->err) == SVC_OK)
		result = score	  ? score_answer(job, work, (int32_t)json_integer_value(score))
			 : logits ? draws_answer(job, seq, work)
				  : events_answer(job, seq);
	smp_seq_free(seq);
	draw_work_free(work);
	free((void *)(uintptr_t)spec.prompt);
	return result;
}

static void job_free(struct job *job)
{
	free((void *)(uintptr_t)job->vocab.offsets);
	free((void *)(uintptr_t)job->vocab.flags);
	free((void *)(uintptr_t)job->vocab.bytes);
	free((void *)(uintptr_t)job->vocab.ends);
	free((void *)(uintptr_t)job->params.stops.ptr);
	free((void *)(uintptr_t)job->params.stop_ids.ptr);
	free((void *)(uintptr_t)job->params.biases.ptr);
	free(job->logits);
	json_decref(job->request);
}

int main(void)
{
	char *line = NULL;
	size_t room = 0;
	while (getline(&line, &room, stdin) > 0) {
		struct job job = {.request = json_loads(line, JSON_ALLOW_NUL, NULL)};
		if (!job.request)
			return 2;
		json_t *result = answer(&job);
		if (!result)
			result = json_pack("{ssssss}", "error", svc_code_info(job.err.code)->name,
					   "param", job.err.param, "message", job.err.msg);
		json_dumpf(result, stdout, JSON_COMPACT | JSON_REAL_PRECISION(17));
		puts("");
		fflush(stdout);
		json_decref(result);
		job_free(&job);
	}
	free(line);
	return 0;
}
