/* gateway/gw_pipeline_test_main.c: everything behind the gateway in one process, for tests of the
 * gateway alone. Not installed. Creates a run in the directory given and plays keeper, tokenizer,
 * npu-worker and sampler, without a model: a token is a byte, and the answer to a prompt is the
 * prompt, token by token, then the end token.
 *
 *   gw_pipeline_test RUN_DIR [STEP_US [NAME [FINGERPRINT]]]     runs until its standard input ends
 *
 * The first word of a prompt can ask for trouble: "!reject" fails as the tokenizer's template
 * would, "!wait" never gets past the worker, "!fail" dies after eight tokens, "!flood" goes on
 * until max_tokens. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "services/bus.h"
#include "shm/body.h"
#include "shm/incarnation.h"
#include "shm/slot.h"
#include "shm/vocab.h"

#define N_VOCAB	  258u
#define TOKEN_END 256
#define TOKEN_BOS 257
#define CTX	  512u

struct pipeline {
	struct shm_run keeper, tokenizer, worker, sampler;
};

static struct bus *bus; /* the sampler's */

/* One slot in one role's hands. */
struct turn {
	struct shm_run *run;
	uint32_t slot;
	struct slot_state mine;
	struct body *body;
};

static void die(const struct svc_err *err)
{
	fprintf(stderr, "%s\n", err->msg);
	exit(1);
}

static void vocab_publish(const struct shm_run *run)
{
	static char bytes[256 + 10];
	uint32_t offsets[N_VOCAB + 1];
	uint8_t flags[N_VOCAB] = {0};
	const int32_t ends[] = {TOKEN_END};
	struct segment seg;
	struct svc_err err;
	bool won;
	for (uint32_t i = 0; i < 256; i++) {
		bytes[i] = (char)i;
		offsets[i] = i;
		flags[i] = VOCAB_BYTE;
	}
	for (int i = 0; i < 10; i++)
		bytes[256 + i] = "<eos><bos>"[i];
	offsets[256] = 256;
	offsets[257] = 261;
	offsets[258] = 266;
	flags[256] = VOCAB_CONTROL | VOCAB_END;
	flags[257] = VOCAB_CONTROL;
	const struct vocab_parts parts = {.n_tokens = N_VOCAB,
					  .n_ends = 1,
					  .bos_id = TOKEN_BOS,
					  .eos_id = TOKEN_END,
					  .unk_id = -1,
					  .pad_id = -1,
					  .offsets = offsets,
					  .bytes = bytes,
					  .flags = flags,
					  .ends = ends};
	const struct seg_place place = {run->dir, "vocab", SEG_VOCAB, run->ctl->header.run_id};
	if (seg_create(&place, sizeof(struct seg_header) + vocab_size(&parts), &seg, &err) !=
	    SVC_OK)
		die(&err);
	vocab_write(&parts, (char *)seg.base + sizeof(struct seg_header));
	if (seg_publish(&place, &seg, &won, &err) != SVC_OK)
		die(&err);
}

static void join(struct shm_run *run, const char *dir, const char *bulk, enum shm_role role)
{
	struct svc_err err;
	if (run_attach(dir, bulk, role, run, &err) != SVC_OK ||
	    inc_register(run, role, 0, &err) != SVC_OK)
		die(&err);
	inc_set_state(run, INC_READY);
}

/* ---- a slot's way ---- */

static bool turn_open(struct turn *turn, enum slot_stage stage)
{
	if (!slot_claim(turn->run, turn->slot, stage, &turn->mine))
		return false;
	turn->body = body_get(turn->run, turn->mine.body, turn->slot);
	return turn->body;
}

static void turn_pass(struct turn *turn, enum slot_stage stage)
{
	const struct slot_state next = {.stage = stage, .body = turn->mine.body};
	if (slot_pass(turn->run, turn->slot, &turn->mine, next) != SVC_OK)
		fprintf(stderr, "slot %u: the swap failed\n", turn->slot);
	struct msg hint = {.kind = MSG_LOOK, .n_slots = 1, .slots = {turn->slot}};
	bus_send(bus, atomic_load(&turn->run->slots[turn->slot].gateway), &hint);
}

static void turn_fail(struct turn *turn, enum svc_code code, const char *message)
{
	struct svc_err err = {0};
	(void)svc_fail(&err, code, "test", "%s", message);
	body_fail(turn->body, &err);
	turn_pass(turn, STAGE_DONE);
}

static int32_t *ids_of(const struct turn *turn)
{
	return body_region(turn->run, turn->body, REGION_IDS, 0, NULL);
}

static bool prompt_says(const struct turn *turn, const char *word)
{
	const int32_t *ids = ids_of(turn);
	size_t len = strlen(word), n = atomic_load(&turn->body->n_prompt);
	/* In a conversation the word stands somewhere inside. */
	for (size_t start = 0; start + len <= n; start++) {
		size_t i = 0;
		while (i < len && ids[start + i] == word[i])
			i++;
		if (i == len)
			return true;
	}
	return false;
}

static bool text_answer(struct turn *turn)
{
	size_t len = 0, room = 0;
	const char *text = body_region(turn->run, turn->body, REGION_TEXT, 0, &len);
	char *out = body_region(turn->run, turn->body, REGION_OUT, 0, &room);
	uint32_t n = atomic_load(&turn->body->n_prompt);
	if (turn->body->kind == BODY_TEMPLATE) {
		memcpy(out, text, len);
		atomic_store(&turn->body->n_out, (uint32_t)len);
	} else if (turn->body->kind == BODY_DETOKENIZE) {
		for (uint32_t i = 0; i < n; i++)
			out[i] = (char)ids_of(turn)[i];
		atomic_store(&turn->body->n_out, n);
	}
	return turn->body->kind != BODY_GENERATE;
}

static void tokenize(struct turn *turn)
{
	size_t len = 0;
	const char *text = body_region(turn->run, turn->body, REGION_TEXT, 0, &len);
	if (turn->body->input != INPUT_IDS) {
		for (size_t i = 0; i < len && i < CTX; i++)
			ids_of(turn)[i] = (unsigned char)text[i];
		atomic_store(&turn->body->n_prompt, (uint32_t)len);
	}
	if (slot_is_cancelled(turn->run, turn->slot))
		turn_fail(turn, SVC_CANCELLED, "the client went away");
	else if (turn->body->kind == BODY_GENERATE && len + turn->body->params.max_tokens > CTX)
		turn_fail(turn, SVC_TOO_LONG, "maximum context length is 512 tokens");
	else if (prompt_says(turn, "!reject"))
		turn_fail(turn, SVC_INVALID, "the template says no");
	else if (text_answer(turn))
		turn_pass(turn, STAGE_DONE);
	else {
		atomic_store(&turn->body->tokenized, 1);
		turn_pass(turn, STAGE_COMPUTE);
	}
}

static void record_write(struct turn *turn, uint32_t index, int32_t token)
{
	uint32_t n_top = turn->body->params.top_logprobs;
	size_t stride = body_logprob_bytes(n_top);
	char *records =
		body_region(turn->run, turn->body, REGION_LOGPROBS, (index + 1) * stride, NULL);
	if (!records)
		return;
	struct body_logprob *record = (struct body_logprob *)(void *)(records + index * stride);
	record->chosen = -0.1f;
	record->n_top = n_top;
	for (uint32_t i = 0; i < n_top; i++) {
		record->top[i].id = i == 0 ? token : (token + (int32_t)i) % 256;
		record->top[i].logprob = -0.1f - (float)i;
	}
}

/* Bytes that are whole characters by now, counted from the answer's start. */
static uint32_t released(const struct turn *turn, uint32_t n_tokens, char *out)
{
	const int32_t *answer = ids_of(turn) + atomic_load(&turn->body->n_prompt);
	uint32_t n = 0;
	for (uint32_t i = 0; i < n_tokens; i++)
		if (answer[i] < 256)
			out[n++] = (char)answer[i];
	uint32_t back = 0;
	while (back < n && back < 4 && ((unsigned char)out[n - 1 - back] & 0xC0) == 0x80)
		back++;
	return back < n && (unsigned char)out[n - 1 - back] >= 0x80 &&
			       !utf8_length(out + n - 1 - back, back + 1)
		       ? n - 1 - back
		       : n;
}

static void draw(struct turn *turn)
{
	struct body *body = turn->body;
	int32_t *ids = ids_of(turn);
	uint32_t n_prompt = atomic_load(&body->n_prompt), k = atomic_load(&body->n_tokens);
	bool flood = prompt_says(turn, "!flood");
	int32_t token = k < n_prompt || flood ? ids[k % n_prompt] : TOKEN_END;
	uint32_t limit = body->params.max_tokens ? body->params.max_tokens : CTX - n_prompt;
	uint32_t *ends = body_region(turn->run, body, REGION_ENDS, 4 * (k + 1ull), NULL);
	char *out = body_region(turn->run, body, REGION_OUT, k + 1ull, NULL);
	if (token == 257)
		token = TOKEN_END;
	ids[n_prompt + k] = token;
	if (body->params.flags & BODY_LOGPROBS)
		record_write(turn, body->params.flags & BODY_PROMPT_LOGPROBS ? n_prompt + k : k,
			     token);
	ends[k] = released(turn, k + 1, out);
	if (token == TOKEN_END)
		atomic_store(&body->finish, FINISH_STOP);
	else if (k + 1 >= limit)
		atomic_store(&body->finish, FINISH_LENGTH);
	atomic_store_explicit(&body->n_tokens, k + 1, memory_order_release);
}

static void sample(struct turn *turn)
{
	struct body *body = turn->body;
	uint32_t n_prompt = atomic_load(&body->n_prompt);
	if (slot_is_cancelled(turn->run, turn->slot)) {
		turn_fail(turn, SVC_CANCELLED, "the client went away");
		return;
	}
	if (prompt_says(turn, "!fail") && atomic_load(&body->n_tokens) == 8) {
		turn_fail(turn, SVC_NUMERIC, "the logits are not numbers");
		return;
	}
	if ((body->params.flags & BODY_PROMPT_LOGPROBS) && !atomic_load(&body->n_scored)) {
		for (uint32_t p = 1; p < n_prompt; p++)
			record_write(turn, p, ids_of(turn)[p]);
		atomic_store(&body->n_scored, n_prompt);
	}
	if (body->params.flags & BODY_SCORE_ONLY)
		atomic_store(&body->finish, FINISH_LENGTH);
	else
		draw(turn);
	turn_pass(turn, atomic_load(&body->finish) ? STAGE_RECLAIM : STAGE_COMPUTE);
}

static void compute(struct turn *turn)
{
	if (slot_is_cancelled(turn->run, turn->slot))
		turn_fail(turn, SVC_CANCELLED, "the client went away");
	else
		turn_pass(turn, prompt_says(turn, "!wait") ? STAGE_COMPUTE : STAGE_SAMPLE);
}

static void step(struct pipeline *pipeline)
{
	for (uint32_t slot = 0; slot < pipeline->keeper.n_table; slot++) {
		struct turn tokenizing = {.run = &pipeline->tokenizer, .slot = slot};
		struct turn computing = {.run = &pipeline->worker, .slot = slot};
		struct turn sampling = {.run = &pipeline->sampler, .slot = slot};
		struct turn reclaiming = {.run = &pipeline->worker, .slot = slot};
		if (turn_open(&tokenizing, STAGE_TOKENIZE))
			tokenize(&tokenizing);
		if (turn_open(&computing, STAGE_COMPUTE))
			compute(&computing);
		if (turn_open(&sampling, STAGE_SAMPLE))
			sample(&sampling);
		if (turn_open(&reclaiming, STAGE_RECLAIM))
			turn_pass(&reclaiming, STAGE_DONE);
	}
}

int main(int argc, char **argv)
{
	static struct pipeline pipeline;
	const struct run_plan plan = {.n_slots = 8,
				      .queue = 24,
				      .kept = 32,
				      .n_blocks = 512,
				      .n_pages = 8,
				      .ctx = CTX,
				      .n_vocab = N_VOCAB,
				      .page_bytes = 4096,
				      .stall_ms = 1000,
				      .family = "test",
				      .model_name = argc > 3 ? argv[3] : "echo",
				      .model_path = "",
				      .fingerprint = argc > 4 ? argv[4] : "ls_test"};
	struct svc_err err;
	bool created;
	char bulk[300];
	long step_us = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
	log_open("test", 0, 0, LOG_LEVEL_ERROR);
	if (argc < 2)
		return 64;
	snprintf(bulk, sizeof bulk, "%s/bulk", argv[1]);
	if (run_create(argv[1], bulk, &plan, &pipeline.keeper, &created, &err) != SVC_OK)
		die(&err);
	vocab_publish(&pipeline.keeper);
	join(&pipeline.tokenizer, argv[1], bulk, ROLE_TOKENIZER);
	join(&pipeline.worker, argv[1], bulk, ROLE_WORKER);
	join(&pipeline.sampler, argv[1], bulk, ROLE_SAMPLER);
	if (bus_open(&pipeline.sampler, &bus, &err) != SVC_OK)
		die(&err);
	printf("ready\n");
	fflush(stdout);
	struct pollfd input = {STDIN_FILENO, POLLIN, 0};
	for (;;) {
		char byte;
		struct msg ignored;
		bus_refresh(bus);
		while (bus_receive(bus, &ignored))
			;
		step(&pipeline);
		inc_beat(&pipeline.tokenizer);
		inc_beat(&pipeline.worker);
		inc_beat(&pipeline.sampler);
		nanosleep(&(struct timespec){.tv_nsec = 1000 * (step_us + 200)}, NULL);
		if (poll(&input, 1, 0) > 0 && read(STDIN_FILENO, &byte, 1) <= 0)
			return 0;
	}
}
