/* Sequences: what another sampler finds after a crash, at every point; what a damaged body or
 * vocabulary does; counts. Filters, draws and texts against independent implementations:
 * tests/unit/test_sampler.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <malloc.h>
#include <math.h>
#include <cmocka.h>

#include "sampler/counts.h"
#include "sampler/guides.h"
#include "sampler/sampler.h"

#define N_VOCAB 70u
#define N_TURNS 48u

static uint64_t seed = 42;

static uint32_t random_bits(void)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 32);
}

/* Letters, broken and whole characters, two control tokens of which one is an end. */
struct words {
	struct smp_vocab vocab;
	uint32_t offsets[N_VOCAB + 1];
	char bytes[1024];
	uint8_t flags[N_VOCAB];
	int32_t ends[2];
};

static void words_fill(struct words *words)
{
	static const char *const some[] = {"🦙",     "歪", "\xF0\x9F", "\xA6\x99", "\xE6",
					   "\xAD\xAA", "ab", "a",	 "b\n",	     ""};
	*words = (struct words){.ends = {N_VOCAB - 1, N_VOCAB - 2}};
	uint32_t used = 0;
	for (uint32_t id = 0; id < N_VOCAB; id++) {
		const char *piece = some[id % (sizeof some / sizeof *some)];
		memcpy(words->bytes + used, piece, strlen(piece));
		used += (uint32_t)strlen(piece);
		words->offsets[id + 1] = used;
	}
	words->flags[N_VOCAB - 1] = words->flags[5] = SMP_TOKEN_CONTROL;
	words->vocab = (struct smp_vocab){
		.n_tokens = N_VOCAB,
		.n_bytes = used,
		.offsets = words->offsets,
		.bytes = words->bytes,
		.flags = words->flags,
		.ends = words->ends,
		.n_ends = 2,
		.max_piece_bytes = 8,
	};
}

/* A request as it stands in a body. */
struct request {
	struct body_params num;
	char stops[64];
	int32_t stop_ids[2];
	struct body_bias biases[3];
	int32_t prompt[9];
	struct smp_seq_spec spec;
};

static void stops_fill(struct request *r, const char *first, const char *second)
{
	const char *const stops[] = {first, second};
	size_t used = 0;
	r->num.n_stop = 2;
	for (int i = 0; i < 2; i++) {
		uint32_t len = (uint32_t)strlen(stops[i]);
		memcpy(r->stops + used, &len, sizeof len);
		memcpy(r->stops + used + sizeof len, stops[i], len);
		used += sizeof len + ((len + 3u) & ~3u);
	}
	r->spec.request.stops = (struct span){r->stops, used};
}

/* round's bits switch features on, so that 64 rounds have them in every combination. */
static void request_fill(struct request *r, const struct smp_vocab *vocab, unsigned round)
{
	*r = (struct request){.biases = {{1, 2.5f}, {3, -100}, {4, 0.5f}}, .stop_ids = {11, 12}};
	smp_params_default(&r->num);
	r->num.seed = 0x123456789ABCDEFu * (round + 1);
	r->num.max_tokens = N_TURNS;
	r->num.choice = round % 3;
	for (uint32_t i = 0; i < 9; i++)
		r->prompt[i] = (int32_t)(random_bits() % N_VOCAB);
	r->spec = (struct smp_seq_spec){
		.vocab = vocab, .prompt = r->prompt, .n_prompt = round % 10, .n_ctx = 100};
	r->spec.request.params = &r->num;
	r->spec.request.stop_ids = (struct span){(const char *)r->stop_ids, sizeof r->stop_ids};
	r->spec.request.biases = (struct span){(const char *)r->biases, sizeof r->biases};
	if (round & 1)
		r->num.repetition_penalty = 1.3f, r->num.repetition_window = round % 7;
	if (round & 2)
		r->num.presence_penalty = 0.7f, r->num.frequency_penalty = -0.4f;
	if (round & 4)
		r->num.top_p = 0.9f, r->num.top_k = 40, r->num.n_bias = 3;
	if (round & 8)
		r->num.n_stop_ids = 2, r->num.min_tokens = 12, r->num.min_p = 0.01f;
	if (round & 16)
		r->num.flags = BODY_IGNORE_EOS | BODY_KEEP_SPECIAL, r->num.typical_p = 0.8f;
	if (round & 32)
		stops_fill(r, "aab\nab",
			   "歪\xF0\x9F\xA6\x99"
			   "ab");
}

/* The model: logits that depend on how far the answer is. */
static void logits_fill(float *logits, uint32_t position)
{
	uint64_t saved = seed;
	seed = position * 7919u + 1;
	for (uint32_t id = 0; id < N_VOCAB; id++)
		logits[id] = (float)(random_bits() % 4096) / 512.0f - 4.0f -
			     (id >= N_VOCAB - 2 ? 4.0f : 0.0f);
	seed = saved;
}

struct answer {
	int32_t tokens[N_TURNS];
	struct smp_event events[N_TURNS];
	char texts[N_TURNS][64];
	uint32_t n;
};

static void answer_go_on(struct answer *answer, struct smp_seq *seq, struct draw_work *work)
{
	float logits[N_VOCAB];
	answer->n = smp_seq_made(seq);
	while (smp_seq_finish(seq) == FINISH_NONE) {
		uint32_t at = answer->n++;
		struct smp_event *event = &answer->events[at];
		logits_fill(logits, at);
		assert_int_equal(smp_draw(seq, work, logits, NULL, &answer->tokens[at], NULL),
				 SVC_OK);
		assert_int_equal(smp_push(seq, answer->tokens[at], event, NULL), SVC_OK);
		assert_true(event->text.len < sizeof answer->texts[at]);
		memcpy(answer->texts[at], event->text.ptr, event->text.len);
		event->text.ptr = answer->texts[at];
	}
}

static void answers_compare(const struct answer *a, const struct answer *b, uint32_t from)
{
	assert_int_equal(a->n, b->n);
	for (uint32_t i = from; i < a->n; i++) {
		assert_int_equal(a->tokens[i], b->tokens[i]);
		assert_true(span_equal(a->events[i].text, b->events[i].text));
		assert_int_equal(a->events[i].finish, b->events[i].finish);
		assert_int_equal(a->events[i].stop_id, b->events[i].stop_id);
		assert_int_equal(a->events[i].stop_index, b->events[i].stop_index);
	}
}

static void replay_goes_on_with_the_same_bytes(void **state)
{
	(void)state;
	static struct answer whole, after;
	struct words words;
	struct request request;
	struct draw_work *work;
	struct smp_seq *seq;
	uint32_t finishes[3] = {0}, stops = 0;
	words_fill(&words);
	assert_int_equal(draw_work_open(N_VOCAB, DRAW_ISA_AUTO, &work, NULL), SVC_OK);
	for (unsigned round = 0; round < 64; round++) {
		request_fill(&request, &words.vocab, round);
		assert_int_equal(smp_seq_open(&request.spec, &seq, NULL), SVC_OK);
		answer_go_on(&whole, seq, work);
		finishes[smp_seq_finish(seq)]++;
		stops += whole.events[whole.n - 1].stop_index >= 0;
		smp_seq_free(seq);
		for (uint32_t died_at = 0; died_at < whole.n; died_at++) {
			memset(&after, 0, sizeof after);
			assert_int_equal(smp_seq_open(&request.spec, &seq, NULL), SVC_OK);
			assert_int_equal(smp_seq_replay(seq, whole.tokens, died_at, NULL), SVC_OK);
			memcpy(after.tokens, whole.tokens, sizeof after.tokens);
			answer_go_on(&after, seq, work);
			answers_compare(&whole, &after, died_at);
			smp_seq_free(seq);
		}
	}
	print_message("64 answers: %u stopped, %u of them by a string, %u by length\n",
		      finishes[FINISH_STOP], stops, finishes[FINISH_LENGTH]);
	assert_true(finishes[FINISH_STOP] && finishes[FINISH_LENGTH] && stops);
	draw_work_free(work);
}

/* Not a sanitizer build's allocator: there the numbers are 0 and equal. */
static void steps_do_not_allocate(void **state)
{
	(void)state;
	struct words words;
	struct request request;
	struct draw_work *work;
	struct smp_seq *seq;
	float logits[N_VOCAB];
	words_fill(&words);
	request_fill(&request, &words.vocab, 63);
	assert_int_equal(draw_work_open(N_VOCAB, DRAW_ISA_AUTO, &work, NULL), SVC_OK);
	assert_int_equal(smp_seq_open(&request.spec, &seq, NULL), SVC_OK);
	logits_fill(logits, 0);
	struct mallinfo2 before = mallinfo2();
	for (uint32_t i = 0; i < N_TURNS && smp_seq_finish(seq) == FINISH_NONE; i++) {
		struct smp_event event;
		int32_t token;
		assert_int_equal(smp_draw(seq, work, logits, NULL, &token, NULL), SVC_OK);
		assert_int_equal(smp_push(seq, token, &event, NULL), SVC_OK);
	}
	struct mallinfo2 after = mallinfo2();
	assert_int_equal(before.uordblks, after.uordblks);
	smp_seq_free(seq);
	draw_work_free(work);
}

static void refused_push_changes_nothing(void **state)
{
	(void)state;
	struct words words;
	struct request request;
	struct smp_seq *seq;
	struct smp_event event;
	struct svc_err err;
	words_fill(&words);
	request_fill(&request, &words.vocab, 3);
	assert_int_equal(smp_seq_open(&request.spec, &seq, NULL), SVC_OK);
	assert_int_equal(smp_push(seq, -1, &event, &err), SVC_CORRUPT);
	assert_int_equal(smp_push(seq, N_VOCAB, &event, &err), SVC_CORRUPT);
	words.offsets[8] = UINT32_MAX; /* the tokenizer's segment was damaged */
	assert_int_equal(smp_push(seq, 7, &event, &err), SVC_CORRUPT);
	assert_int_equal(smp_push(seq, 8, &event, &err), SVC_CORRUPT);
	words.offsets[8] = 0;
	assert_int_equal(smp_push(seq, 7, &event, &err), SVC_CORRUPT);
	assert_int_equal(smp_seq_made(seq), 0);
	int32_t beyond[] = {0, 1, N_VOCAB};
	assert_int_equal(smp_seq_replay(seq, beyond, 3, &err), SVC_CORRUPT);
	assert_int_equal(smp_seq_made(seq), 2);
	smp_seq_free(seq);
}

static enum svc_code open_code(const struct request *request, struct svc_err *err)
{
	struct smp_seq *seq = NULL;
	enum svc_code code = smp_seq_open(&request->spec, &seq, err);
	smp_seq_free(seq);
	return code;
}

static void damaged_bodies_are_refused(void **state)
{
	(void)state;
	struct words words;
	struct request request;
	struct svc_err err;
	words_fill(&words);
	request_fill(&request, &words.vocab, 63);
	assert_int_equal(open_code(&request, &err), SVC_OK);
	request.spec.request.biases.len--;
	assert_int_equal(open_code(&request, &err), SVC_CORRUPT);
	request_fill(&request, &words.vocab, 63);
	request.spec.request.stop_ids.len = 0;
	assert_int_equal(open_code(&request, &err), SVC_CORRUPT);
	request_fill(&request, &words.vocab, 63);
	for (size_t len = 0, whole = request.spec.request.stops.len - 3; len < whole; len++) {
		request.spec.request.stops.len = len;
		assert_int_equal(open_code(&request, &err), SVC_CORRUPT);
	}
	request_fill(&request, &words.vocab, 63);
	request.stops[0] = (char)0xFF; /* a length that leaves the region */
	assert_int_equal(open_code(&request, &err), SVC_CORRUPT);
	request.stops[1] = 1;
	assert_int_equal(open_code(&request, &err), SVC_INVALID);
	request_fill(&request, &words.vocab, 63);
	request.stops[4] = (char)0xC3; /* not UTF-8 */
	assert_int_equal(open_code(&request, &err), SVC_INVALID);
	assert_string_equal(err.param, "stop");
	request_fill(&request, &words.vocab, 9);
	request.prompt[0] = (int32_t)N_VOCAB;
	assert_int_equal(open_code(&request, &err), SVC_CORRUPT);
	request_fill(&request, &words.vocab, 9);
	words.ends[1] = -5;
	assert_int_equal(open_code(&request, &err), SVC_CORRUPT);
	request.num.flags = BODY_IGNORE_EOS;
	assert_int_equal(open_code(&request, &err), SVC_OK);
}

static void works_are_checked(void **state)
{
	(void)state;
	struct words words;
	struct request request;
	struct draw_work *work = NULL;
	struct smp_seq *seq;
	struct svc_err err;
	float logits[N_VOCAB + 1] = {0};
	int32_t token = -7;
	assert_int_equal(draw_work_open(0, DRAW_ISA_AUTO, &work, &err), SVC_BAD_MODEL);
	assert_int_equal(draw_work_open(DRAW_VOCAB_MAX + 1, DRAW_ISA_AUTO, &work, &err),
			 SVC_BAD_MODEL);
	words_fill(&words);
	request_fill(&request, &words.vocab, 0);
	assert_int_equal(smp_seq_open(&request.spec, &seq, NULL), SVC_OK);
	assert_int_equal(draw_work_open(N_VOCAB + 1, DRAW_ISA_SCALAR, &work, NULL), SVC_OK);
	assert_int_equal(smp_draw(seq, work, logits, NULL, &token, &err), SVC_INTERNAL);
	assert_int_equal(token, -7);
	struct body_logprob score;
	assert_int_equal(smp_score(work, logits, -1, 0, &score, &err), SVC_CORRUPT);
	assert_int_equal(smp_score(work, logits, N_VOCAB + 1, 0, &score, &err), SVC_CORRUPT);
	assert_int_equal(smp_score(work, logits, 0, 21, &score, &err), SVC_INVALID);
	smp_seq_free(seq);
	/* A model may have more logits than tokens: the others are drawn like any, and have no
	 * text. */
	struct smp_event event;
	request.spec.n_vocab = N_VOCAB + 1;
	logits[N_VOCAB] = 50;
	assert_int_equal(smp_seq_open(&request.spec, &seq, NULL), SVC_OK);
	assert_int_equal(smp_draw(seq, work, logits, NULL, &token, &err), SVC_OK);
	assert_int_equal(token, N_VOCAB);
	assert_int_equal(smp_push(seq, token, &event, &err), SVC_OK);
	assert_int_equal(event.text.len, 0);
	assert_int_equal(smp_push(seq, N_VOCAB + 1, &event, &err), SVC_CORRUPT);
	smp_seq_free(seq);
	draw_work_free(work);
	assert_null(draw_work_free(NULL));
	assert_null(smp_seq_free(NULL));
}

/* A control token that the grammar asks for is a mark in the text; byte tokens that spell its code
 * are none of it. */
static void a_named_token_is_a_mark(void **state)
{
	(void)state;
	struct words words;
	struct request request;
	struct smp_guides *guides = NULL;
	struct smp_seq *seq;
	struct smp_event event;
	const uint32_t *allowed = NULL;
	words_fill(&words);
	request_fill(&request, &words.vocab, 32);
	words.bytes[words.offsets[8]] = '\xFF'; /* was "b" */
	request.spec.grammar = span_of("root ::= \"a\"+ <[5]> <[69]>? .*");
	assert_int_equal(smp_guides_open(&words.vocab, N_VOCAB, &guides, NULL), SVC_OK);
	request.spec.guides = guides;
	assert_int_equal(smp_seq_open(&request.spec, &seq, NULL), SVC_OK);
	assert_int_equal(smp_push(seq, 7, &event, NULL), SVC_OK); /* "a": may begin "aab\nab" */
	assert_int_equal(event.text.len, 0);
	assert_int_equal(smp_seq_mask(seq, &allowed, NULL), SVC_OK);
	assert_int_equal(allowed[0] & 0x3FF, 1u << 5 | 1u << 7);
	assert_int_equal(smp_push(seq, 8, &event, NULL), SVC_CORRUPT);
	assert_int_equal(smp_push(seq, 5, &event, NULL), SVC_OK);
	assert_true(span_is(event.text, "a\xFF") && event.finish == FINISH_NONE);
	assert_int_equal(smp_push(seq, 0, &event, NULL), SVC_OK);
	assert_true(span_is(event.text, "🦙"));
	assert_int_equal(smp_push(seq, 5, &event, NULL), SVC_CORRUPT);
	/* 69 is an end token: it ends the answer, whatever the grammar calls it. */
	assert_int_equal(smp_push(seq, 69, &event, NULL), SVC_OK);
	assert_true(event.finish == FINISH_STOP && event.stop_id == 69);
	smp_seq_free(seq);
	smp_guides_free(guides);
}

/* A grammar is compiled once, whoever asks for it; what a sequence uses stays, however many others
 * come. */
static void a_grammar_is_compiled_once(void **state)
{
	(void)state;
	struct words words;
	struct request request;
	struct smp_guides *guides = NULL;
	struct gr_guide *first = NULL, *again = NULL, *other = NULL;
	struct smp_seq *seq;
	char text[64];
	words_fill(&words);
	request_fill(&request, &words.vocab, 32);
	assert_int_equal(smp_guides_open(&words.vocab, N_VOCAB, &guides, NULL), SVC_OK);
	request.spec.guides = guides;
	request.spec.grammar = span_of("root ::= \"a\"+");
	assert_int_equal(smp_seq_open(&request.spec, &seq, NULL), SVC_OK);
	assert_int_equal(smp_guides_get(guides, request.spec.grammar, &first, NULL), SVC_OK);
	for (unsigned i = 0; i < 2 * SMP_GUIDES_KEPT; i++) {
		snprintf(text, sizeof text, "root ::= \"b\"{%u}", i + 1);
		assert_int_equal(smp_guides_get(guides, span_of(text), &other, NULL), SVC_OK);
		assert_ptr_not_equal(other, first);
		assert_int_equal(smp_guides_get(guides, span_of(text), &again, NULL), SVC_OK);
		assert_ptr_equal(again, other);
	}
	snprintf(text, sizeof text, "root ::= \"a\"+");
	assert_int_equal(smp_guides_get(guides, span_of(text), &again, NULL), SVC_OK);
	assert_ptr_equal(again, first);
	smp_seq_free(seq);
	smp_guides_free(guides);
}

/* Counts against counting the text anew. */
static void counts_are_what_stands_in_the_window(void **state)
{
	(void)state;
	enum { N = 400, IDS = 37 };
	for (uint32_t window = 0; window < 50; window += 7) {
		struct arena arena;
		struct smp_counts counts;
		int32_t text[N];
		arena_init(&arena, 0);
		assert_int_equal(smp_counts_init(N, IDS * 1000, window, &arena, &counts, NULL),
				 SVC_OK);
		for (uint32_t n = 0; n < N; n++) {
			text[n] = (int32_t)(random_bits() % IDS * 1000);
			smp_counts_add(&counts, text[n], n >= 50);
			for (uint32_t i = 0; i < counts.n; i++) {
				uint32_t seen = 0, made = 0,
					 from = window && n + 1 > window ? n + 1 - window : 0;
				for (uint32_t at = 0; at <= n; at++) {
					seen += at >= from && text[at] == counts.items[i].id;
					made += at >= 50 && text[at] == counts.items[i].id;
				}
				assert_int_equal(counts.items[i].seen, seen);
				assert_int_equal(counts.items[i].made, made);
			}
		}
		arena_free(&arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(replay_goes_on_with_the_same_bytes),
		cmocka_unit_test(steps_do_not_allocate),
		cmocka_unit_test(refused_push_changes_nothing),
		cmocka_unit_test(damaged_bodies_are_refused),
		cmocka_unit_test(works_are_checked),
		cmocka_unit_test(a_named_token_is_a_mark),
		cmocka_unit_test(a_grammar_is_compiled_once),
		cmocka_unit_test(counts_are_what_stands_in_the_window),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
