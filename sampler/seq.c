#include "sampler/seq.h"

#include <stdlib.h>

#include "draw/draw.h"
#include "sampler/guides.h"

static enum svc_code prompt_count(struct smp_seq *seq, const struct smp_seq_spec *spec,
				  struct svc_err *err)
{
	const struct body_params *num = &seq->params.num;
	seq->penalized = draw_is_penalized(num);
	if (!seq->penalized)
		return SVC_OK;
	enum svc_code code =
		smp_counts_init(spec->n_prompt + seq->limit, seq->n_vocab, num->repetition_window,
				&seq->arena, &seq->counts, err);
	for (uint32_t i = 0; code == SVC_OK && i < spec->n_prompt; i++) {
		int32_t id = spec->prompt[i];
		if (id < 0 || (uint32_t)id >= seq->n_vocab)
			return svc_fail(err, SVC_CORRUPT, __func__,
					"prompt token %u is %d: the model's ids go from 0 to %u", i,
					id, seq->n_vocab - 1);
		smp_counts_add(&seq->counts, id, false);
	}
	return code;
}

/* Without ignore_eos the vocabulary's end tokens and the request's are one list. */
static enum svc_code ends_join(struct smp_seq *seq, struct svc_err *err)
{
	const struct smp_vocab *vocab = seq->vocab;
	const struct smp_params *params = &seq->params;
	uint32_t n_own = smp_params_has(params, BODY_IGNORE_EOS) ? 0 : vocab->n_ends;
	seq->ends = arena_alloc(&seq->arena,
				((size_t)n_own + params->num.n_stop_ids) * sizeof *seq->ends);
	if (!seq->ends)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a list of end tokens");
	for (uint32_t i = 0; i < n_own; i++) {
		int32_t id = vocab->ends[i];
		if (id < 0 || (uint32_t)id >= seq->n_vocab)
			return svc_fail(err, SVC_CORRUPT, __func__,
					"vocabulary: end token %d: the model's ids go from 0 to %u",
					id, seq->n_vocab - 1);
		seq->ends[seq->n_ends++] = id;
	}
	for (uint32_t i = 0; i < params->num.n_stop_ids; i++)
		seq->ends[seq->n_ends++] = params->stop_ids[i];
	return SVC_OK;
}

static enum svc_code grammar_open(struct smp_seq *seq, const struct smp_seq_spec *spec,
				  struct svc_err *err)
{
	struct gr_guide *guide = NULL;
	if (spec->grammar.len == 0)
		return SVC_OK;
	if (!spec->guides)
		return svc_fail(err, SVC_INTERNAL, __func__, "this sampler has no grammars");
	seq->allowed = arena_alloc(&seq->arena, (seq->n_vocab + 31) / 32 * sizeof *seq->allowed);
	if (!seq->allowed)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a token mask");
	enum svc_code code = smp_guides_get(spec->guides, spec->grammar, &guide, err);
	return code == SVC_OK ? gr_seq_open(guide, &seq->grammar, err) : code;
}

static enum svc_code seq_fill(struct smp_seq *seq, const struct smp_seq_spec *spec,
			      struct svc_err *err)
{
	enum svc_code code =
		smp_params_read(&spec->request, seq->n_vocab, &seq->arena, &seq->params, err);
	if (code != SVC_OK)
		return code;
	const struct smp_params *params = &seq->params;
	if (spec->n_prompt >= spec->n_ctx)
		return svc_fail(err, SVC_TOO_LONG, __func__,
				"the prompt has %u tokens and the context %u: shorten the prompt, "
				"or raise --ctx",
				spec->n_prompt, spec->n_ctx);
	seq->limit = spec->n_ctx - spec->n_prompt;
	if (params->num.max_tokens && params->num.max_tokens < seq->limit)
		seq->limit = params->num.max_tokens;
	code = ends_join(seq, err);
	if (code == SVC_OK)
		code = smp_text_init(params, spec->vocab->max_piece_bytes, &seq->arena, &seq->text,
				     err);
	if (code == SVC_OK)
		code = grammar_open(seq, spec, err);
	return code == SVC_OK ? prompt_count(seq, spec, err) : code;
}

enum svc_code smp_seq_open(const struct smp_seq_spec *spec, struct smp_seq **ret_seq,
			   struct svc_err *err)
{
	struct smp_seq *seq = calloc(1, sizeof *seq);
	if (!seq)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a sequence");
	arena_init(&seq->arena, 0);
	seq->vocab = spec->vocab;
	seq->n_vocab = spec->n_vocab ? spec->n_vocab : spec->vocab->n_tokens;
	seq->strip_space = spec->strip_space;
	enum svc_code code = seq_fill(seq, spec, err);
	if (code != SVC_OK) {
		smp_seq_free(seq);
		return code;
	}
	*ret_seq = seq;
	return SVC_OK;
}

struct smp_seq *smp_seq_free(struct smp_seq *seq)
{
	if (seq) {
		gr_seq_close(&seq->grammar);
		arena_free(&seq->arena);
	}
	free(seq);
	return NULL;
}

static bool token_ends(const struct smp_seq *seq, int32_t token)
{
	for (uint32_t i = 0; i < seq->n_ends; i++)
		if (seq->ends[i] == token)
			return true;
	return false;
}

/* A token's bytes; none for control tokens unless the request keeps them. */
static enum svc_code piece_find(const struct smp_seq *seq, int32_t token, struct span *ret_piece,
				struct svc_err *err)
{
	const struct smp_vocab *vocab = seq->vocab;
	*ret_piece = (struct span){"", 0};
	if (token < 0 || (uint32_t)token >= seq->n_vocab)
		return svc_fail(err, SVC_CORRUPT, __func__,
				"token %d: the model's ids go from 0 to %u", token,
				seq->n_vocab - 1);
	if ((uint32_t)token >= vocab->n_tokens)
		return SVC_OK;
	uint32_t begin = vocab->offsets[token], end = vocab->offsets[token + 1];
	if (begin > end || end > vocab->n_bytes || end - begin > vocab->max_piece_bytes)
		return svc_fail(err, SVC_CORRUPT, __func__,
				"vocabulary: token %d has bytes %u to %u of %u", token, begin, end,
				vocab->n_bytes);
	if (!(vocab->flags[token] & SMP_TOKEN_CONTROL) ||
	    smp_params_has(&seq->params, BODY_KEEP_SPECIAL))
		*ret_piece = (struct span){vocab->bytes + begin, end - begin};
	return SVC_OK;
}

/* Once, from the first token that has bytes. */
static struct span space_stripped(const struct smp_seq *seq, struct span piece)
{
	if (seq->strip_space && piece.len && piece.ptr[0] == ' ')
		return (struct span){piece.ptr + 1, piece.len - 1};
	return piece;
}

enum svc_code smp_seq_mask(struct smp_seq *seq, const uint32_t **ret_allowed, struct svc_err *err)
{
	*ret_allowed = NULL;
	if (!seq->grammar.guide)
		return SVC_OK;
	if (!seq->allowed_known) {
		enum svc_code code =
			gr_seq_mask(&seq->grammar, seq->strip_space, seq->allowed, err);
		if (code != SVC_OK)
			return code;
		/* What ends the answer isn't part of it, whatever its bytes are. */
		bool may_end = gr_seq_ends(&seq->grammar);
		for (uint32_t i = 0; i < seq->n_ends; i++) {
			uint32_t id = (uint32_t)seq->ends[i], bit = 1u << id % 32;
			seq->allowed[id / 32] &= ~bit;
			seq->allowed[id / 32] |= may_end ? bit : 0;
		}
		seq->allowed_known = true;
	}
	*ret_allowed = seq->allowed;
	return SVC_OK;
}

/* A control token that the answer's grammar asks for: in the language it is its code. */
static bool token_steers(const struct smp_seq *seq, int32_t token, bool ends)
{
	return seq->grammar.guide && !ends && (uint32_t)token < seq->vocab->n_tokens &&
	       seq->vocab->flags[token] & SMP_TOKEN_CONTROL;
}

/* Moves the grammar on. Only what a mask forbids can fail. */
static enum svc_code grammar_push(struct smp_seq *seq, int32_t token, struct span piece, bool ends,
				  struct svc_err *err)
{
	char code[GR_TOKEN_CODE_BYTES];
	if (!seq->grammar.guide)
		return SVC_OK;
	if (token_steers(seq, token, ends)) {
		gr_token_code((uint32_t)token, code);
		piece = (struct span){code, sizeof code};
	} else if (!gr_is_text(piece))
		piece.len = 0;
	bool may =
		ends ? gr_seq_ends(&seq->grammar) : piece.len && gr_seq_push(&seq->grammar, piece);
	if (!may)
		return svc_fail(err, SVC_CORRUPT, __func__,
				"token %d is none that the grammar allows here", token);
	seq->allowed_known = false;
	return SVC_OK;
}

enum svc_code smp_push(struct smp_seq *seq, int32_t token, struct smp_event *ret_event,
		       struct svc_err *err)
{
	struct smp_event event = {.finish = FINISH_NONE, .stop_id = -1, .stop_index = -1};
	struct span piece = {"", 0};
	if (seq->finish != FINISH_NONE)
		return svc_fail(err, SVC_CORRUPT, __func__, "token %d comes after the answer's end",
				token);
	enum svc_code code = piece_find(seq, token, &piece, err);
	if (code != SVC_OK)
		return code;
	bool ends = token_ends(seq, token);
	if (ends && !seq->text.keep_stop) /* what stops the answer is not part of it */
		piece.len = 0;
	struct span shown = space_stripped(seq, piece);
	code = grammar_push(seq, token, shown, ends, err);
	if (code != SVC_OK)
		return code;
	seq->strip_space = seq->strip_space && piece.len == 0;
	if (seq->penalized)
		smp_counts_add(&seq->counts, token, true);
	seq->n_made++;
	bool may_stop = seq->n_made >= seq->params.num.min_tokens;
	bool complete = seq->grammar.guide && !gr_seq_reads(&seq->grammar);
	smp_text_next(&seq->text);
	if (token_steers(seq, token, ends))
		smp_text_mark(&seq->text);
	else
		event.stop_index = smp_text_feed(&seq->text, shown, may_stop);
	bool last = ends || complete || seq->n_made == seq->limit;
	if (event.stop_index < 0 && last)
		event.stop_index = smp_text_end(&seq->text, may_stop);
	if (event.stop_index >= 0 || ends || complete) {
		event.finish = FINISH_STOP;
		event.stop_id = event.stop_index < 0 && ends ? token : -1;
	} else if (last) {
		event.finish = FINISH_LENGTH;
	}
	event.text = smp_text_released(&seq->text);
	seq->finish = event.finish;
	*ret_event = event;
	return SVC_OK;
}

enum svc_code smp_seq_replay(struct smp_seq *seq, const int32_t *tokens, size_t n,
			     struct svc_err *err)
{
	struct smp_event event;
	enum svc_code code = SVC_OK;
	for (size_t i = 0; code == SVC_OK && i < n; i++)
		code = smp_push(seq, tokens[i], &event, err);
	return code;
}

uint32_t smp_seq_made(const struct smp_seq *seq)
{
	return seq->n_made;
}

enum body_finish smp_seq_finish(const struct smp_seq *seq)
{
	return seq->finish;
}

const struct smp_params *smp_seq_params(const struct smp_seq *seq)
{
	return &seq->params;
}
