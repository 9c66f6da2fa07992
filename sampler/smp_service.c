#include "sampler/smp_service.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "sampler/guides.h"
#include "sampler/sampler.h"
#include "sampler/tape.h"
#include "services/slots.h"
#include "shm/trace.h"
#include "shm/vocab.h"

#define VOCAB_WAIT_S 120

static const struct opt sampler_options[] = {
	{"isa", OPT_CHOICE, "auto", 0, 0, "auto|scalar|avx2|avx512|amx",
	 "instruction set; all give the same bits"},
	{"tape", OPT_STRING, "", 0, 0, NULL,
	 "append every draw to this file, with the hash of its logits, for lockstep verify tape"},
	{0},
};

/* What a sequence's draws depend on beside the logits, kept so that it isn't rebuilt at every
 * token. Only a cache: it is a function of the body. */
struct cached {
	uint64_t generation;
	struct smp_seq *seq;
};

struct sampler {
	struct smp_vocab vocab;
	bool strip_first; /* the vocabulary's rule for the space before a text */
	struct draw_work *work;
	struct smp_guides *guides;
	struct cached *cache; /* [n_table] */
	struct tape *tape;    /* NULL: none */
};

/* One slot's turn. */
struct turn {
	uint32_t slot;
	struct slot_state mine;
	struct body *body;
	int32_t *ids;
	size_t n_ids_max;
	uint32_t n_prompt, n_tokens, n_kv;
	const float *logits;
};

static enum svc_code open_turn(struct svc *svc, struct turn *turn, struct svc_err *err)
{
	struct shm_run *run = &svc->run;
	struct body *body = turn->body;
	size_t bytes = 0;
	turn->ids = body_region(run, body, REGION_IDS, 0, &bytes);
	turn->n_ids_max = bytes / sizeof *turn->ids;
	turn->n_prompt = atomic_load(&body->n_prompt);
	turn->n_tokens = atomic_load(&body->n_tokens);
	turn->n_kv = atomic_load_explicit(&body->n_kv, memory_order_acquire);
	turn->logits = run_logits(run, atomic_load(&body->row) - 1, turn->n_kv & 1);
	uint64_t known = (uint64_t)turn->n_prompt + turn->n_tokens;
	if (!turn->ids || !turn->logits || known > turn->n_ids_max || turn->n_kv > known ||
	    turn->n_kv == 0)
		return svc_fail(err, SVC_CORRUPT, __func__,
				"the request's body is damaged: counts or regions");
	return SVC_OK;
}

static struct smp_request request_of(struct svc *svc, const struct body *body)
{
	struct smp_request request = {.params = &body->params};
	struct span *spans[] = {&request.stops, &request.stop_ids, &request.biases};
	const enum body_region regions[] = {REGION_STOP, REGION_STOP_IDS, REGION_BIAS};
	for (int i = 0; i < 3; i++) {
		spans[i]->ptr = body_region(&svc->run, body, regions[i], 0, &spans[i]->len);
		if (!spans[i]->ptr)
			*spans[i] = (struct span){"", 0};
	}
	return request;
}

static enum svc_code open_sequence(struct svc *svc, struct turn *turn, struct smp_seq **ret_seq,
				   struct svc_err *err)
{
	struct sampler *sampler = svc->role_state;
	struct cached *cached = &sampler->cache[turn->slot];
	struct span grammar = {"", 0};
	grammar.ptr = body_region(&svc->run, turn->body, REGION_GRAMMAR, 0, &grammar.len);
	grammar.len = grammar.ptr ? grammar.len : 0;
	uint64_t generation = atomic_load(&svc->run.slots[turn->slot].generation);
	if (cached->seq && cached->generation == generation &&
	    smp_seq_made(cached->seq) == turn->n_tokens) {
		*ret_seq = cached->seq;
		return SVC_OK;
	}
	cached->seq = smp_seq_free(cached->seq);
	const struct smp_seq_spec spec = {
		.vocab = &sampler->vocab,
		.guides = sampler->guides,
		.grammar = grammar,
		.request = request_of(svc, turn->body),
		.prompt = turn->ids,
		.n_prompt = turn->n_prompt,
		/* A turn of a conversation is a text of its own; a completion goes on in one. */
		.strip_space = sampler->strip_first && turn->body->input == INPUT_CHAT,
		.n_ctx = turn->n_ids_max < svc->run.ctx ? (uint32_t)turn->n_ids_max : svc->run.ctx,
		.n_vocab = svc->run.n_vocab,
	};
	enum svc_code code = smp_seq_open(&spec, &cached->seq, err);
	if (code == SVC_OK)
		code = smp_seq_replay(cached->seq, turn->ids + turn->n_prompt, turn->n_tokens, err);
	if (code != SVC_OK) {
		cached->seq = smp_seq_free(cached->seq);
		return code;
	}
	cached->generation = generation;
	*ret_seq = cached->seq;
	return SVC_OK;
}

static void put_on_tape(struct svc *svc, const struct turn *turn, const struct smp_seq *seq,
			const uint32_t *allowed, int32_t token)
{
	const struct sampler *sampler = svc->role_state;
	const struct slot_line *line = &svc->run.slots[turn->slot];
	if (!sampler->tape)
		return;
	const struct body_params *num = &smp_seq_params(seq)->num;
	bool by_numbers = !allowed && num->n_bias == 0 && num->min_tokens == 0;
	const struct tape_draw drawn = {.generation = atomic_load(&line->generation),
					.choice = turn->body->params.choice,
					.prompt = turn->ids,
					.n_prompt = turn->n_prompt,
					.index = turn->n_tokens,
					.token = token,
					.logits = turn->logits,
					.n_vocab = svc->run.n_vocab,
					.sampling = by_numbers ? num : NULL};
	tape_put(sampler->tape, &drawn);
}

/* The record of the token at `index`: by absolute position if the prompt is scored too. */
static enum svc_code record(struct svc *svc, struct turn *turn, uint32_t index, int32_t token,
			    struct svc_err *err)
{
	struct sampler *sampler = svc->role_state;
	struct body *body = turn->body;
	uint32_t n_top = body->params.top_logprobs;
	if (n_top > SMP_TOP_LOGPROBS_MAX)
		n_top = SMP_TOP_LOGPROBS_MAX;
	size_t stride = body_logprob_bytes(n_top);
	char *records = body_region(&svc->run, body, REGION_LOGPROBS, (index + 1) * stride, NULL);
	if (!records)
		return svc_fail(err, SVC_CORRUPT, __func__,
				"the request's body has no room for log-probabilities");
	/* Filled outside and copied: the record's own count is never read back from shared memory.
	 */
	_Alignas(struct body_logprob) char
		room[sizeof(struct body_logprob) + SMP_TOP_LOGPROBS_MAX * 8u];
	enum svc_code code = smp_score(sampler->work, turn->logits, token, n_top,
				       (struct body_logprob *)room, err);
	if (code == SVC_OK)
		memcpy(records + index * stride, room, stride);
	return code;
}

static enum svc_code score_prompt(struct svc *svc, struct turn *turn, struct svc_err *err)
{
	int32_t token = turn->ids[turn->n_kv];
	if (token < 0 || (uint32_t)token >= svc->run.n_vocab)
		return svc_fail(err, SVC_CORRUPT, __func__,
				"the request's body holds ids that are no tokens");
	enum svc_code code = record(svc, turn, turn->n_kv, token, err);
	if (code == SVC_OK)
		atomic_store_explicit(&turn->body->n_scored, turn->n_kv + 1, memory_order_release);
	return code;
}

/* Appends the released text. An answer that outgrows its region ends with "length", wherever it is
 * computed. */
static void append_text(struct svc *svc, struct turn *turn, struct smp_event *event)
{
	struct body *body = turn->body;
	size_t room = 0, ends_room = 0;
	char *out = body_region(&svc->run, body, REGION_OUT, 0, &room);
	uint32_t *ends = body_region(&svc->run, body, REGION_ENDS, 0, &ends_room);
	uint32_t n_out = turn->n_tokens && ends && turn->n_tokens <= ends_room / 4
				 ? ends[turn->n_tokens - 1]
				 : 0;
	if (!out || !ends || (turn->n_tokens + 1ull) * 4 > ends_room || event->text.len > room ||
	    n_out > room || event->text.len > room - n_out) {
		event->finish = event->finish ? event->finish : FINISH_LENGTH;
		event->text.len = 0;
	}
	if (event->text.len)
		memcpy(out + n_out, event->text.ptr, event->text.len);
	n_out += (uint32_t)event->text.len;
	if (ends && (turn->n_tokens + 1ull) * 4 <= ends_room)
		ends[turn->n_tokens] = n_out;
	atomic_store(&body->n_out, n_out);
}

static enum svc_code draw(struct svc *svc, struct turn *turn, struct svc_err *err)
{
	struct sampler *sampler = svc->role_state;
	struct body *body = turn->body;
	struct smp_seq *seq = NULL;
	struct smp_event event;
	int32_t token = 0;
	const uint32_t *allowed = NULL;
	uint32_t position = turn->n_prompt + turn->n_tokens, flags = body->params.flags;
	if (flags & BODY_SCORE_ONLY) {
		atomic_store(&body->finish, FINISH_LENGTH);
		return SVC_OK;
	}
	enum svc_code code = open_sequence(svc, turn, &seq, err);
	if (code == SVC_OK && position >= turn->n_ids_max)
		code = svc_fail(err, SVC_CORRUPT, __func__,
				"the request's body has no room for another token");
	if (code == SVC_OK)
		code = smp_seq_mask(seq, &allowed, err);
	if (code == SVC_OK)
		code = smp_draw(seq, sampler->work, turn->logits, allowed, &token, err);
	if (code == SVC_OK)
		put_on_tape(svc, turn, seq, allowed, token);
	if (code == SVC_OK && (flags & BODY_LOGPROBS))
		code = record(svc, turn, flags & BODY_PROMPT_LOGPROBS ? position : turn->n_tokens,
			      token, err);
	if (code == SVC_OK)
		code = smp_push(seq, token, &event, err);
	if (code != SVC_OK)
		return code;
	append_text(svc, turn, &event);
	turn->ids[position] = token;
	atomic_store(&body->stop_id, event.stop_id);
	atomic_store(&body->stop_index, event.stop_index);
	atomic_store(&body->finish, (uint32_t)event.finish);
	fault_point("sampler.commit");
	atomic_store_explicit(&body->n_tokens, turn->n_tokens + 1, memory_order_release);
	return SVC_OK;
}

static void forget(struct sampler *sampler, uint32_t slot)
{
	sampler->cache[slot].seq = smp_seq_free(sampler->cache[slot].seq);
}

/* The next token's mask, while the npu-worker computes. What fails here fails again when the token
 * is drawn. */
static void mask_early(struct sampler *sampler, uint32_t slot)
{
	const uint32_t *allowed = NULL;
	struct svc_err err;
	if (sampler->cache[slot].seq &&
	    smp_seq_mask(sampler->cache[slot].seq, &allowed, &err) != SVC_OK)
		log_line(LOG_LEVEL_DEBUG, 0, err.code, "%s", err.msg);
}

static void take_turn(struct svc *svc, struct turn *turn)
{
	struct sampler *sampler = svc->role_state;
	struct svc_err err = {0};
	enum svc_code code = open_turn(svc, turn, &err);
	if (code == SVC_OK && slot_is_cancelled(&svc->run, turn->slot))
		code = svc_fail(&err, SVC_CANCELLED, __func__, "the client went away");
	/* A finish that stands already, or a token beyond the logits, was committed by one that
	 * died before it passed on. */
	bool done = code == SVC_OK && atomic_load(&turn->body->finish) != FINISH_NONE &&
		    turn->n_kv < turn->n_prompt + turn->n_tokens;
	if (code == SVC_OK && !done) {
		if (turn->n_kv < turn->n_prompt)
			code = score_prompt(svc, turn, &err);
		else if (turn->n_kv == turn->n_prompt + turn->n_tokens)
			code = draw(svc, turn, &err);
	}
	if (code != SVC_OK) {
		forget(sampler, turn->slot);
		svc_slot_fail(svc, turn->slot, &turn->mine, turn->body, &err);
		return;
	}
	fault_point("sampler.pass");
	if (atomic_load(&turn->body->finish) != FINISH_NONE) {
		forget(sampler, turn->slot);
		svc_slot_end(svc, turn->slot, &turn->mine, turn->body);
		return;
	}
	svc_hint(svc, atomic_load(&svc->run.slots[turn->slot].gateway), turn->slot);
	if (svc_slot_pass(svc, turn->slot, &turn->mine, STAGE_COMPUTE,
			  atomic_load(&turn->body->worker)) != SVC_OK)
		return;
	mask_early(sampler, turn->slot);
}

static void look(struct svc *svc, uint32_t slot)
{
	struct turn turn = {.slot = slot};
	if (slot_load(&svc->run, slot).stage != STAGE_SAMPLE ||
	    (svc->draining && inc_find(&svc->run, ROLE_SAMPLER, 0)))
		return;
	enum svc_claim claim = svc_slot_own(svc, slot, STAGE_SAMPLE, &turn.mine, &turn.body);
	if (claim == CLAIM_NO)
		return;
	atomic_store(&turn.body->sampler, svc->run.me);
	uint64_t start = svc_now_us(), start_ns = trace_begin(&svc->run);
	take_turn(svc, &turn);
	trace_put(&svc->run, TRACE_DRAW, slot, turn.n_kv, start_ns);
	atomic_fetch_add_explicit(&svc->run.ctl->incs[svc->run.me].busy_us, svc_now_us() - start,
				  memory_order_relaxed);
	atomic_fetch_add_explicit(&svc->run.ctl->incs[svc->run.me].gauge[GAUGE_SAMPLED], 1,
				  memory_order_relaxed);
	svc_beat(svc);
}

/* A slot that was handed to this instance goes to the others; there is nothing else to keep. */
static bool drain(struct svc *svc)
{
	struct slot_state mine;
	struct body *body;
	bool empty = true;
	for (uint32_t slot = 0; slot < svc->run.n_table && !svc->leaving; slot++) {
		struct slot_state state = slot_load(&svc->run, slot);
		if (state.stage != STAGE_SAMPLE || state.owner != svc->run.me)
			continue;
		if (svc_slot_own(svc, slot, STAGE_SAMPLE, &mine, &body) == CLAIM_NO ||
		    svc_slot_pass(svc, slot, &mine, STAGE_SAMPLE, 0) != SVC_OK)
			empty = false;
	}
	return empty;
}

_Static_assert((unsigned)SMP_TOKEN_CONTROL == (unsigned)VOCAB_CONTROL,
	       "the flags are used as they lie");

static enum svc_code map_vocab(struct svc *svc, struct svc_err *err)
{
	struct sampler *sampler = svc->role_state;
	struct vocab view;
	for (int i = 0;; i++) {
		enum svc_code code = run_map_vocab(&svc->run, err);
		if (code == SVC_OK)
			break;
		if (code != SVC_NOT_FOUND)
			return code;
		if (i >= VOCAB_WAIT_S * 200)
			return svc_fail(err, SVC_NO_WORKER, __func__,
					"no tokenizer has published the vocabulary within %d s",
					VOCAB_WAIT_S);
		svc_beat(svc);
		usleep(5000);
	}
	const char *base = svc->run.vocab.base;
	enum svc_code code =
		vocab_open(base + sizeof(struct seg_header),
			   svc->run.vocab.bytes - sizeof(struct seg_header), &view, err);
	if (code != SVC_OK)
		return code;
	sampler->strip_first = view.strip == VOCAB_STRIP_FIRST;
	sampler->vocab = (struct smp_vocab){
		.n_tokens = view.n_tokens,
		.n_bytes = view.bytes_len,
		.offsets = view.offsets,
		.bytes = view.bytes,
		.flags = view.flags,
		.ends = view.ends,
		.n_ends = view.n_ends,
		.max_piece_bytes = view.max_token_bytes,
	};
	return SVC_OK;
}

static void beat(void *svc)
{
	svc_beat(svc);
}

static enum svc_code start(struct svc *svc, struct svc_err *err)
{
	enum draw_isa isa = DRAW_ISA_AUTO;
	struct sampler *sampler = calloc(1, sizeof *sampler);
	if (!sampler)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	svc->role_state = sampler;
	sampler->cache = calloc(svc->run.n_table, sizeof *sampler->cache);
	if (!sampler->cache)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	enum svc_code code = map_vocab(svc, err);
	/* The table lists the same names. */
	if (!draw_isa_parse(opt_string(svc->options, "isa"), &isa))
		isa = DRAW_ISA_AUTO;
	if (code == SVC_OK)
		code = draw_work_open(svc->run.n_vocab, isa, &sampler->work, err);
	if (code == SVC_OK)
		code = smp_guides_open(&sampler->vocab, svc->run.n_vocab, &sampler->guides, err);
	if (code == SVC_OK)
		smp_guides_on_work(sampler->guides, beat, svc);
	if (code == SVC_OK && *opt_string(svc->options, "tape"))
		code = tape_open(opt_string(svc->options, "tape"), &sampler->tape, err);
	return code;
}

static void stop(struct svc *svc)
{
	struct sampler *sampler = svc->role_state;
	for (uint32_t slot = 0; slot < svc->run.n_table; slot++)
		forget(sampler, slot);
	smp_guides_free(sampler->guides);
	draw_work_free(sampler->work);
	tape_close(sampler->tape);
	free(sampler->cache);
	free(sampler);
	svc->role_state = NULL;
}

const struct svc_spec sampler_spec = {
	.role = ROLE_SAMPLER,
	.summary = "logits to token, token to text",
	.options = sampler_options,
	.start = start,
	.look = look,
	.drain = drain,
	.stop = stop,
};
