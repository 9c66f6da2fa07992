/* A text's way to ids: added tokens that stand in the raw text, normalizers, added tokens that
 * stand in the normalized text, pre-tokenizer, model. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tok_job.h"

#define MAX_TEXT_BYTES (64u << 20) /* a word takes some 40 bytes of memory per byte */

void tok_ids_free(struct tok_ids *ids)
{
	free(ids->ptr);
	*ids = (struct tok_ids){0};
}

static bool reserve_ids(struct tok_ids *ids, size_t more)
{
	if (ids->room - ids->len >= more)
		return true;
	size_t room = ids->room ? ids->room : 64;
	while (room - ids->len < more)
		room *= 2;
	int32_t *ptr = realloc(ids->ptr, room * sizeof *ptr);
	if (!ptr)
		return false;
	ids->ptr = ptr;
	ids->room = room;
	return true;
}

void tok_push(struct tok_job *job, int32_t id)
{
	if (reserve_ids(&job->ids, 1))
		job->ids.ptr[job->ids.len++] = id;
	else
		job->failed = true;
}

static void encode_word(struct tok_job *job, struct span word)
{
	if (job->tok->model == TOK_MODEL_BPE)
		tok_bpe_encode(job, word);
	else
		tok_unigram_encode(job, word);
}

/* Cuts text by splitters[step], each piece by the next, and gives the last ones' pieces to the
 * model. */
static void split(struct tok_job *job, size_t step, struct span text)
{
	const struct tok *tok = job->tok;
	if (step == tok->n_splitters) {
		encode_word(job, text);
		return;
	}
	for (size_t at = 0; at < text.len && !job->failed;) {
		size_t end = tok_split_next(&tok->splitters[step], text, at);
		split(job, step + 1, (struct span){text.ptr + at, end - at});
		at = end;
	}
}

static void encode_words(struct tok_job *job, struct span text, bool first)
{
	if (text.len == 0 || job->failed)
		return;
	if (job->tok->metaspace) {
		const struct tok_run whole = {text.len, false};
		const struct tok_text in = {text.ptr, text.len, &whole, 1};
		tok_normal_run(&job->tok->metaspace_step, &in, first, &job->metaspace);
		text = (struct span){job->metaspace.bytes.ptr, job->metaspace.bytes.len};
		job->failed = job->failed || job->metaspace.bytes.failed;
	}
	if (!job->failed)
		split(job, 0, text);
}

/* from..end of the raw text, where no raw added token stands. */
static void encode_plain(struct tok_job *job, const struct tok_text *raw, size_t from, size_t end)
{
	const struct tok *tok = job->tok;
	struct tok_text text = *raw;
	size_t floor = from, at = from, stop = end;
	if (from == end || job->failed)
		return;
	if (tok->n_normals) {
		if (!tok_normalize(job, raw, from, end, &text)) {
			job->failed = true;
			return;
		}
		floor = at = 0;
		stop = text.len;
	}
	while (at < stop) {
		struct tok_match match = {floor, stop, -1};
		if (!tok_matcher_next(&tok->normalized, &text, &match, at))
			break;
		encode_words(job, (struct span){text.ptr + at, match.begin - at},
			     from == 0 && at == floor);
		tok_push(job, match.id);
		at = match.end;
	}
	if (at < stop)
		encode_words(job, (struct span){text.ptr + at, stop - at},
			     from == 0 && at == floor);
}

static void encode_text(struct tok_job *job, const struct tok_text *text)
{
	size_t at = 0;
	while (at < text->len && !job->failed) {
		struct tok_match match = {0, text->len, -1};
		if (!tok_matcher_next(&job->tok->raw, text, &match, at))
			break;
		encode_plain(job, text, at, match.begin);
		tok_push(job, match.id);
		at = match.end;
	}
	encode_plain(job, text, at, text->len);
}

/* The ids that go around the text, unless they are there. */
static void add_before(struct tok_job *job, enum tok_add add)
{
	for (size_t i = 0; add != TOK_ADD_NONE && i < job->tok->n_before; i++)
		tok_push(job, job->tok->before[i]);
}

static void add_after(struct tok_job *job, enum tok_add add)
{
	const struct tok *tok = job->tok;
	struct tok_ids *ids = &job->ids;
	if (add == TOK_ADD_NONE || job->failed)
		return;
	if (add == TOK_ADD_MISSING && tok->n_before && ids->len >= 2 * tok->n_before &&
	    memcmp(ids->ptr, ids->ptr + tok->n_before, tok->n_before * sizeof *ids->ptr) == 0) {
		ids->len -= tok->n_before;
		memmove(ids->ptr, ids->ptr + tok->n_before, ids->len * sizeof *ids->ptr);
	}
	bool there = add == TOK_ADD_MISSING && tok->n_after && ids->len >= tok->n_after &&
		     memcmp(ids->ptr + ids->len - tok->n_after, tok->after,
			    tok->n_after * sizeof *ids->ptr) == 0;
	for (size_t i = 0; !there && i < tok->n_after; i++)
		tok_push(job, tok->after[i]);
}

/* The pieces as one text. One piece is borrowed, several are copied to *joined. */
static bool join(const struct tok_piece *pieces, size_t n_pieces, struct tok_text_buf *joined,
		 struct tok_text *ret)
{
	struct tok_run *runs = malloc((n_pieces + 1) * sizeof *runs);
	if (!runs)
		return false;
	size_t n_runs = 0, len = 0;
	for (size_t i = 0; i < n_pieces; i++) {
		if (pieces[i].text.len == 0)
			continue;
		len += pieces[i].text.len;
		if (n_pieces > 1)
			buf_span(&joined->bytes, pieces[i].text);
		if (n_runs == 0 || runs[n_runs - 1].trusted != pieces[i].trusted)
			runs[n_runs++].trusted = pieces[i].trusted;
		runs[n_runs - 1].end = len;
	}
	joined->runs = runs;
	*ret = (struct tok_text){n_pieces == 1 ? pieces[0].text.ptr : joined->bytes.ptr, len, runs,
				 n_runs};
	return !joined->bytes.failed;
}

void tok_job_free(struct tok_job *job)
{
	tok_text_buf_free(&job->normal[0]);
	tok_text_buf_free(&job->normal[1]);
	tok_text_buf_free(&job->metaspace);
	tok_long_free(job->longs);
	tok_ids_free(&job->ids);
}

static enum svc_code append(struct tok_ids *ids, const struct tok_ids *more, size_t limit,
			    struct svc_err *err)
{
	if (limit && more->len > limit)
		return svc_fail(err, SVC_TOO_LONG, "tokenizer",
				"the text has %zu tokens; the limit is %zu", more->len, limit);
	if (!reserve_ids(ids, more->len))
		return svc_fail(err, SVC_NO_MEMORY, "tokenizer", "no memory for %zu tokens",
				more->len);
	if (more->len)
		memcpy(ids->ptr + ids->len, more->ptr, more->len * sizeof *ids->ptr);
	ids->len += more->len;
	return SVC_OK;
}

enum svc_code tok_encode(const struct tok *tok, const struct tok_piece *pieces, size_t n_pieces,
			 const struct tok_encode_options *options, struct tok_ids *ret_ids,
			 struct svc_err *err)
{
	static const struct tok_encode_options plain = {TOK_ADD_NONE, 0};
	struct tok_job job = {.tok = tok};
	struct tok_text_buf joined = {0};
	struct tok_text text;
	size_t bytes = 0;
	options = options ? options : &plain;
	for (size_t i = 0; i < n_pieces; i++) {
		if (pieces[i].text.len > MAX_TEXT_BYTES - bytes)
			return svc_fail(err, SVC_TOO_LARGE, "tokenizer",
					"a text of more than %u bytes", MAX_TEXT_BYTES);
		bytes += pieces[i].text.len;
	}
	job.failed = !join(pieces, n_pieces, &joined, &text);
	if (!job.failed) {
		add_before(&job, options->add);
		encode_text(&job, &text);
		add_after(&job, options->add);
	}
	enum svc_code code = job.failed ? svc_fail(err, SVC_NO_MEMORY, "tokenizer",
						   "no memory to tokenize %zu bytes", bytes)
					: append(ret_ids, &job.ids, options->limit, err);
	tok_job_free(&job);
	tok_text_buf_free(&joined);
	return code;
}
