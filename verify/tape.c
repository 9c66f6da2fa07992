#include "verify/tape.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sampler/params.h"

enum { MAX_TOKENS = 1 << 22 };
static const size_t MAX_FILE_BYTES = (size_t)1 << 30;

/* ---- reading */

static enum svc_code bad_line(const struct vfy_tape *tape, const char *wanted, struct svc_err *err)
{
	return svc_fail(err, SVC_CORRUPT, "tape", "line %" PRIu64 ": %s", tape->lines + 1, wanted);
}

static bool read_number(const json_t *line, const char *name, uint64_t most, uint64_t *ret)
{
	const json_t *value = json_object_get(line, name);
	if (!json_is_integer(value) || json_integer_value(value) < 0 ||
	    (uint64_t)json_integer_value(value) > most)
		return false;
	*ret = (uint64_t)json_integer_value(value);
	return true;
}

/* A string of 16 or 32 hexadecimal digits; ret_low: of the last 16 of 32. */
static bool read_digits(const json_t *value, size_t n, uint64_t *ret, uint64_t *ret_low)
{
	const char *text = json_string_value(value);
	if (!text || strlen(text) != n || strspn(text, "0123456789abcdef") != n)
		return false;
	char first[17] = {0};
	memcpy(first, text, 16);
	*ret = strtoull(first, NULL, 16);
	if (ret_low)
		*ret_low = strtoull(text + 16, NULL, 16);
	return true;
}

static bool read_hash(const json_t *line, struct vfy_hash128 *ret)
{
	return read_digits(json_object_get(line, "logits"), 32, &ret->high, &ret->low);
}

/* The last answers are the likeliest. */
static struct vfy_answer *find_answer(struct vfy_tape *tape, uint64_t request, uint32_t choice)
{
	for (uint32_t i = tape->n; i-- > 0;)
		if (tape->answers[i].request == request && tape->answers[i].choice == choice)
			return &tape->answers[i];
	if (tape->n == tape->room) {
		uint32_t room = tape->room * 2 + 16;
		struct vfy_answer *more = realloc(tape->answers, room * sizeof *more);
		if (!more)
			return NULL;
		tape->answers = more;
		tape->room = room;
	}
	tape->answers[tape->n] = (struct vfy_answer){.request = request, .choice = choice};
	return &tape->answers[tape->n++];
}

static bool append(struct vfy_answer *answer, const struct vfy_tape_draw *draw)
{
	if (answer->n == answer->room) {
		uint32_t room = answer->room * 2 + 64;
		struct vfy_tape_draw *more = realloc(answer->draws, room * sizeof *more);
		if (!more)
			return false;
		answer->draws = more;
		answer->room = room;
	}
	answer->draws[answer->n++] = *draw;
	return true;
}

/* A token is drawn when those before it are committed, so lines come in order, but for repeats. */
static bool take(struct vfy_tape *tape, struct vfy_answer *answer, uint32_t index,
		 const struct vfy_tape_draw *draw)
{
	if (answer->gap || index > answer->n) {
		answer->gap = true;
		tape->behind_gaps++;
		return true;
	}
	if (index == answer->n)
		return append(answer, draw);
	const struct vfy_tape_draw *before = &answer->draws[index];
	tape->again++;
	tape->again_different += before->token != draw->token ||
				 memcmp(&before->logits, &draw->logits, sizeof draw->logits) != 0;
	return true;
}

static enum svc_code read_prompt(const struct vfy_tape *tape, const json_t *line,
				 struct vfy_answer *answer, struct svc_err *err)
{
	const json_t *list = json_object_get(line, "prompt");
	size_t n = json_array_size(list);
	if (n == 0 || n > MAX_TOKENS)
		return bad_line(tape, "prompt must be a list of 1 to 4194304 ids", err);
	int32_t *ids = calloc(n, sizeof *ids);
	if (!ids)
		return svc_fail_errno(err, __func__, "no memory for a prompt");
	for (size_t i = 0; i < n; i++) {
		const json_t *id = json_array_get(list, i);
		if (!json_is_integer(id) || json_integer_value(id) < 0 ||
		    json_integer_value(id) > INT32_MAX) {
			free(ids);
			return bad_line(tape, "prompt must be a list of token ids", err);
		}
		ids[i] = (int32_t)json_integer_value(id);
	}
	free(answer->prompt);
	answer->prompt = ids;
	answer->n_prompt = (uint32_t)n;
	return SVC_OK;
}

static bool read_real(const json_t *object, const char *name, float *ret)
{
	const json_t *value = json_object_get(object, name);
	*ret = json_is_number(value) ? (float)json_number_value(value) : NAN;
	return json_is_number(value);
}

static bool read_count(const json_t *object, const char *name, uint32_t *ret)
{
	uint64_t value = 0;
	bool good = read_number(object, name, UINT32_MAX, &value);
	*ret = (uint32_t)value;
	return good;
}

/* Ranges are checked by who draws. */
static enum svc_code read_sampling(const struct vfy_tape *tape, const json_t *line,
				   struct vfy_answer *answer, struct svc_err *err)
{
	const json_t *object = json_object_get(line, "sampling");
	struct body_params *p = &answer->sampling;
	answer->by_numbers = json_is_object(object);
	if (!answer->by_numbers)
		return SVC_OK;
	smp_params_default(p);
	p->choice = answer->choice;
	if (!read_digits(json_object_get(object, "seed"), 16, &p->seed, NULL) ||
	    !read_count(object, "top_k", &p->top_k) ||
	    !read_count(object, "repetition_window", &p->repetition_window) ||
	    !read_real(object, "temperature", &p->temperature) ||
	    !read_real(object, "top_p", &p->top_p) || !read_real(object, "min_p", &p->min_p) ||
	    !read_real(object, "typical_p", &p->typical_p) ||
	    !read_real(object, "repetition_penalty", &p->repetition_penalty) ||
	    !read_real(object, "presence_penalty", &p->presence_penalty) ||
	    !read_real(object, "frequency_penalty", &p->frequency_penalty))
		return bad_line(tape,
				"sampling must hold a seed of 16 hexadecimal digits, and numbers: "
				"temperature, top_k, ... frequency_penalty",
				err);
	return SVC_OK;
}

static enum svc_code read_line(struct vfy_tape *tape, const json_t *line, struct svc_err *err)
{
	uint64_t request, choice, index, token;
	struct vfy_hash128 hash;
	if (!read_number(line, "request", INT64_MAX, &request) ||
	    !read_number(line, "choice", UINT32_MAX, &choice) ||
	    !read_number(line, "index", MAX_TOKENS - 1, &index) ||
	    !read_number(line, "token", INT32_MAX, &token))
		return bad_line(tape,
				"request, choice, index (below 4194304) and token must be "
				"whole numbers",
				err);
	if (!read_hash(line, &hash))
		return bad_line(tape, "logits must be 32 hexadecimal digits", err);
	const struct vfy_tape_draw draw = {(int32_t)token, hash};
	struct vfy_answer *answer = find_answer(tape, request, (uint32_t)choice);
	if (!answer || !take(tape, answer, (uint32_t)index, &draw))
		return svc_fail_errno(err, __func__, "no memory for the tape");
	if (index > 0)
		return SVC_OK;
	enum svc_code code = read_prompt(tape, line, answer, err);
	return code ? code : read_sampling(tape, line, answer, err);
}

enum svc_code vfy_tape_parse(const char *text, size_t len, struct vfy_tape *ret_tape,
			     struct svc_err *err)
{
	struct vfy_tape tape = {0};
	enum svc_code code = SVC_OK;
	const char *end;
	for (; !code && (end = memchr(text, '\n', len)); tape.lines++) {
		json_t *line = json_loadb(text, (size_t)(end - text), 0, NULL);
		bool is_cut = !line && end > text && *text == '{' && end[-1] != '}';
		tape.cut += is_cut;
		if (!is_cut)
			code = json_is_object(line) ? read_line(&tape, line, err)
						    : bad_line(&tape, "isn't a JSON object", err);
		json_decref(line);
		len -= (size_t)(end - text) + 1;
		text = end + 1;
	}
	if (code)
		vfy_tape_free(&tape);
	else
		*ret_tape = tape;
	return code;
}

enum svc_code vfy_tape_read(const char *path, struct vfy_tape *ret_tape, struct svc_err *err)
{
	FILE *file = fopen(path, "rb");
	if (!file)
		return svc_fail_errno(err, __func__, "can't open %s", path);
	char *text = NULL;
	size_t len = 0, room = 0, n = 1;
	while (n > 0 && len < MAX_FILE_BYTES) {
		if (len == room) {
			room = room * 2 + 65536;
			char *more = realloc(text, room);
			if (!more)
				break;
			text = more;
		}
		n = fread(text + len, 1, room - len, file);
		len += n;
	}
	bool whole = n == 0 && !ferror(file);
	fclose(file);
	enum svc_code code = whole ? vfy_tape_parse(text, len, ret_tape, err)
				   : svc_fail(err, SVC_TOO_LARGE, __func__,
					      "it can't be read, or has more than 1 GiB");
	free(text);
	if (code)
		svc_err_prefix(err, "%s", path);
	return code;
}

void vfy_tape_free(struct vfy_tape *tape)
{
	for (uint32_t i = 0; i < tape->n; i++) {
		free(tape->answers[i].prompt);
		free(tape->answers[i].draws);
	}
	free(tape->answers);
	*tape = (struct vfy_tape){0};
}

/* ---- running again */

static bool is_complete(const struct vfy_answer *answer)
{
	return answer->prompt && answer->n > 0 && !answer->gap;
}

struct player {
	const struct vfy_answer *answer;
	const int32_t *tokens;	     /* prompt and answer */
	struct vfy_chooser *chooser; /* NULL: its tokens aren't drawn again */
	struct vfy_tape_result *result;
};

static enum svc_code compare(struct player *p, uint32_t index, struct vfy_logits logits,
			     struct svc_err *err)
{
	const struct vfy_answer *answer = p->answer;
	const struct vfy_tape_draw *drawn = &answer->draws[index];
	const struct vfy_tape_place here = {answer->request, answer->choice, index};
	struct vfy_tape_result *result = p->result;
	const struct vfy_hash128 own = vfy_hash_logits(logits.row, logits.n_vocab);
	bool same = memcmp(&own, &drawn->logits, sizeof own) == 0;
	if (!same && result->draws == result->identical)
		result->first = here;
	result->draws++;
	result->identical += same;
	if (!p->chooser)
		return SVC_OK;
	int32_t token = 0;
	enum svc_code code =
		vfy_choose(p->chooser, p->tokens, answer->n_prompt + index, logits, &token, err);
	if (token != drawn->token && result->redrawn == result->redrawn_same)
		result->first_other = here;
	result->redrawn++;
	result->redrawn_same += token == drawn->token;
	return code;
}

/* A pass's emit function. */
static enum svc_code take_rows(void *context, struct vfy_recorder *recorder, struct svc_err *err)
{
	struct player *p = context;
	enum svc_code code = SVC_OK;
	for (size_t i = 0; i < recorder->count && !code; i++) {
		const void *row;
		const struct vfy_record *record = vfy_recorder_at(recorder, i, &row);
		if (record->checkpoint == VFY_LOGITS)
			code = compare(p, record->position + 1 - p->answer->n_prompt,
				       (struct vfy_logits){row, record->cols}, err);
	}
	vfy_recorder_clear(recorder);
	return code;
}

/* Forces the answer's tokens, in one pass. */
static enum svc_code play(struct vfy_rig *rig, struct player *p, int32_t *tokens,
			  struct svc_err *err)
{
	struct vfy_recorder recorder = {
		.selection = {VFY_LEVEL_LEAN, 0, UINT32_MAX, 0, UINT32_MAX, false}};
	const struct vfy_pass pass = {.rig = rig,
				      .tokens = tokens,
				      .n_prompt = p->answer->n_prompt,
				      .n_new = p->answer->n,
				      .forced = true,
				      .answer_chunk = 1,
				      .recorder = &recorder,
				      .emit = take_rows,
				      .context = p};
	enum svc_code code = SVC_OK;
	if (p->answer->by_numbers)
		code = vfy_chooser_open(&p->answer->sampling, vfy_rig_info(rig)->config.n_vocab,
					&p->chooser, err);
	vfy_chooser_start(p->chooser, tokens, p->answer->n_prompt);
	vfy_rig_reset(rig);
	code = code ? code : vfy_pass_run(&pass, NULL, err);
	vfy_recorder_free(&recorder);
	vfy_chooser_close(p->chooser);
	return code;
}

static enum svc_code run_answer(struct vfy_rig *rig, const struct vfy_answer *answer,
				struct vfy_tape_result *result, struct svc_err *err)
{
	uint32_t n = answer->n_prompt + answer->n;
	int32_t *tokens = calloc(n, sizeof *tokens);
	if (!tokens)
		return svc_fail_errno(err, __func__, "no memory for tokens");
	memcpy(tokens, answer->prompt, answer->n_prompt * sizeof *tokens);
	for (uint32_t i = 0; i < answer->n; i++)
		tokens[answer->n_prompt + i] = answer->draws[i].token;
	struct player player = {.answer = answer, .tokens = tokens, .result = result};
	enum svc_code code = play(rig, &player, tokens, err);
	if (code)
		svc_err_prefix(err, "request %" PRIu64 ", choice %" PRIu32, answer->request,
			       answer->choice);
	free(tokens);
	return code;
}

enum svc_code vfy_tape_replay(const struct vfy_config *config, const struct vfy_tape *tape,
			      struct vfy_tape_result *ret_result, struct svc_err *err)
{
	struct vfy_tape_result result = {0};
	struct vfy_config sized = *config;
	struct vfy_rig *rig = NULL;
	for (uint32_t i = 0; i < tape->n && config->ctx == 0; i++) {
		uint32_t n = tape->answers[i].n_prompt + tape->answers[i].n;
		sized.ctx = n > sized.ctx ? n : sized.ctx;
	}
	if (sized.ctx == 0)
		return svc_fail(err, SVC_INVALID, __func__, "the tape holds no draw");
	enum svc_code code = vfy_rig_open(&sized, &rig, err);
	for (uint32_t i = 0; i < tape->n && !code; i++) {
		bool complete = is_complete(&tape->answers[i]);
		result.incomplete += !complete;
		result.answers += complete;
		if (complete)
			code = run_answer(rig, &tape->answers[i], &result, err);
	}
	vfy_rig_close(rig);
	if (!code)
		*ret_result = result;
	return code;
}
