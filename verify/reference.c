#include "verify/reference.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 1 << 20, MAX_TOKENS = 1 << 22, MAX_PROVENANCE = 4096 };

static enum svc_code bad_array(struct svc_err *err, const char *name, const char *wanted)
{
	return svc_fail(err, SVC_CORRUPT, "reference", "array %s must be %s", name, wanted);
}

/* ---- reading */

static const struct npz_array *find(const struct npz *npz, const char *name, enum npz_type type,
				    uint32_t n_dims)
{
	const struct npz_array *a = npz_find(npz, name);
	return a && a->type == type && a->n_dims == n_dims ? a : NULL;
}

static double log_sum_exp(const float *values, uint32_t n)
{
	double high = -INFINITY, sum = 0;
	for (uint32_t i = 0; i < n; i++)
		high = (double)values[i] > high ? (double)values[i] : high;
	for (uint32_t i = 0; i < n; i++)
		sum += isfinite(values[i]) ? exp((double)values[i] - high) : 0;
	return high + log(sum);
}

static enum svc_code read_whole(const struct npz_array *logits, struct vfy_rows *rows,
				struct svc_err *err)
{
	rows->n = (uint32_t)logits->dims[0];
	rows->width = (uint32_t)logits->dims[1];
	rows->values = logits->data;
	rows->lse = calloc(rows->n, sizeof *rows->lse);
	if (!rows->lse)
		return svc_fail_errno(err, __func__, "no memory for a reference");
	for (uint32_t row = 0; row < rows->n; row++)
		rows->lse[row] = log_sum_exp(rows->values + (size_t)row * rows->width, rows->width);
	return SVC_OK;
}

static enum svc_code read_ids(const struct npz_array *deltas, struct vfy_rows *rows,
			      struct svc_err *err)
{
	const uint32_t *delta = deltas->data;
	rows->ids = calloc(deltas->count, sizeof *rows->ids);
	if (!rows->ids)
		return svc_fail_errno(err, __func__, "no memory for a reference");
	for (size_t i = 0; i < deltas->count; i++) {
		bool first = i % rows->width == 0;
		uint64_t id = delta[i] + (first ? 0 : (uint64_t)rows->ids[i - 1]);
		if (id > INT32_MAX || (!first && delta[i] == 0))
			return bad_array(err, "id_deltas", "differences of ascending ids");
		rows->ids[i] = (uint32_t)id;
	}
	return SVC_OK;
}

static bool shapes_agree(const struct npz_array *a, const struct npz_array *b)
{
	return a->dims[0] == b->dims[0] && a->dims[1] == b->dims[1];
}

static enum svc_code read_small(const struct npz *npz, const char *top_name, const char *lse_name,
				struct vfy_rows *rows, struct svc_err *err)
{
	const struct npz_array *deltas = find(npz, "id_deltas", NPZ_U32, 2);
	const struct npz_array *top = find(npz, top_name, NPZ_F32, 2);
	const struct npz_array *lse = find(npz, lse_name, NPZ_F64, 1);
	if (!deltas || !top || !lse || !shapes_agree(deltas, top) || lse->count != top->dims[0] ||
	    top->dims[1] < 2 || top->dims[1] > INT32_MAX || top->dims[0] > MAX_ROWS)
		return bad_array(err, top_name,
				 "float32 [rows, 2 or more], id_deltas uint32 of that shape, and "
				 "lse float64 [rows]; or there must be logits");
	rows->n = (uint32_t)top->dims[0];
	rows->width = (uint32_t)top->dims[1];
	rows->values = top->data;
	rows->lse = calloc(rows->n, sizeof *rows->lse);
	if (!rows->lse)
		return svc_fail_errno(err, __func__, "no memory for a reference");
	memcpy(rows->lse, lse->data, rows->n * sizeof *rows->lse);
	return read_ids(deltas, rows, err);
}

static enum svc_code read_rows(const struct npz *npz, const char *const names[3],
			       struct vfy_rows *rows, struct svc_err *err)
{
	const struct npz_array *logits = npz_find(npz, names[0]);
	if (!logits)
		return read_small(npz, names[1], names[2], rows, err);
	if (logits->type != NPZ_F32 || logits->n_dims != 2 || logits->dims[0] > MAX_ROWS ||
	    logits->dims[1] < 2 || logits->dims[1] > INT32_MAX)
		return bad_array(err, names[0], "float32 [rows, vocabulary]");
	return read_whole(logits, rows, err);
}

static enum svc_code read_tokens(const struct npz *npz, struct vfy_reference *r,
				 struct svc_err *err)
{
	const struct npz_array *prompts = find(npz, "prompts", NPZ_I32, 1);
	const struct npz_array *lengths = find(npz, "lengths", NPZ_I32, 1);
	const struct npz_array *tokens = find(npz, "tokens", NPZ_I32, 2);
	int64_t sum = 0;
	if (!prompts || prompts->count > MAX_TOKENS)
		return bad_array(err, "prompts", "int32 [ids of all prompts]");
	if (!lengths || lengths->count == 0 || lengths->count > MAX_TOKENS)
		return bad_array(err, "lengths", "int32 [prompts]");
	if (!tokens || tokens->dims[0] != lengths->count || tokens->dims[1] > MAX_TOKENS)
		return bad_array(err, "tokens", "int32 [prompts, steps]");
	r->prompts = prompts->data;
	r->lengths = lengths->data;
	r->tokens = tokens->data;
	r->n_prompts = (uint32_t)lengths->count;
	r->steps = (uint32_t)tokens->dims[1];
	r->n_ids = (uint32_t)prompts->count;
	for (uint32_t i = 0; i < r->n_prompts; i++) {
		if (r->lengths[i] < 1)
			return bad_array(err, "lengths", "1 or more each");
		sum += r->lengths[i];
	}
	return sum == r->n_ids ? SVC_OK
			       : bad_array(err, "lengths", "as long, together, as prompts");
}

static enum svc_code read_positions(const struct npz *npz, struct vfy_reference *r,
				    struct svc_err *err)
{
	const struct npz_array *positions = npz_find(npz, "positions");
	if (!positions)
		return r->rows.n == (uint64_t)r->n_prompts * r->steps
			       ? SVC_OK
			       : bad_array(err, "tokens", "as many, together, as rows of logits");
	if (positions->type != NPZ_I32 || positions->n_dims != 1 || positions->count != r->rows.n ||
	    r->n_prompts != 1)
		return bad_array(err, "positions", "int32 [rows], of one prompt");
	r->positions = positions->data;
	for (uint32_t i = 0; i < r->rows.n; i++)
		if (r->positions[i] < (i ? r->positions[i - 1] + 1 : 0) ||
		    r->positions[i] >= r->lengths[0])
			return bad_array(err, "positions", "ascending, and within the prompt");
	return SVC_OK;
}

/* A text of numpy's is UTF-32; JSON's own characters are ASCII. */
static void read_provenance(const struct npz *npz, struct vfy_reference *r)
{
	const struct npz_array *text = npz_find(npz, "provenance");
	char ascii[MAX_PROVENANCE];
	if (!text || text->type != NPZ_TEXT || text->count >= sizeof ascii)
		return;
	const uint32_t *characters = text->data;
	for (size_t i = 0; i < text->count; i++)
		ascii[i] = characters[i] < 128 ? (char)characters[i] : '?';
	json_t *root = json_loadb(ascii, text->count, 0, NULL);
	const char *hash = json_string_value(json_object_get(root, "model_sha256"));
	if (hash && strlen(hash) == 64)
		memcpy(r->model_sha256, hash, 65);
	json_decref(root);
}

static enum svc_code read_all(struct vfy_reference *r, struct svc_err *err)
{
	static const char *const own[] = {"logits", "top", "lse"};
	static const char *const source[] = {"source_logits", "source_top", "source_lse"};
	const struct npz *npz = r->npz;
	enum svc_code code = read_tokens(npz, r, err);
	code = code ? code : read_rows(npz, own, &r->rows, err);
	code = code ? code : read_positions(npz, r, err);
	if (!code && (npz_find(npz, source[0]) || npz_find(npz, source[1]))) {
		code = read_rows(npz, source, &r->source, err);
		if (!code && (r->source.n != r->rows.n || r->source.width != r->rows.width ||
			      !r->source.ids != !r->rows.ids))
			code = bad_array(err, "source_logits", "of the shape of logits");
	}
	if (!code)
		read_provenance(npz, r);
	return code;
}

enum svc_code vfy_reference_take(struct npz *npz, struct vfy_reference **ret, struct svc_err *err)
{
	struct vfy_reference *r = calloc(1, sizeof *r);
	if (!r) {
		npz_close(npz);
		return svc_fail_errno(err, __func__, "no memory for a reference");
	}
	r->npz = npz;
	enum svc_code code = read_all(r, err);
	if (code)
		vfy_reference_close(r);
	else
		*ret = r;
	return code;
}

enum svc_code vfy_reference_open(const char *path, struct vfy_reference **ret, struct svc_err *err)
{
	struct npz *npz = NULL;
	enum svc_code code = npz_open(path, &npz, err);
	if (code)
		return code;
	code = vfy_reference_take(npz, ret, err);
	if (code)
		svc_err_prefix(err, "%s", path);
	return code;
}

struct vfy_reference *vfy_reference_close(struct vfy_reference *r)
{
	if (!r)
		return NULL;
	npz_close(r->npz);
	free(r->rows.ids);
	free(r->rows.lse);
	free(r->source.ids);
	free(r->source.lse);
	free(r);
	return NULL;
}

/* ---- distances */

/* Two distributions, element by element of the reference's row. */
struct sums {
	uint64_t n;
	double a, b, aa, bb, ab; /* for the correlation */
	double kl, p, q;	 /* p, q: probability that the elements hold */
	double high, second;	 /* the reference's largest logits */
	double other_high;
	uint32_t best, other_best;
	uint64_t undefined;
};

static void add(struct sums *s, uint32_t id, double a, double b, const double lse[2])
{
	if (!isfinite(a) || !isfinite(b)) {
		s->undefined++;
		return;
	}
	double p = exp(a - lse[0]);
	s->kl += p * ((a - lse[0]) - (b - lse[1]));
	s->p += p;
	s->q += exp(b - lse[1]);
	s->n++;
	s->a += a;
	s->b += b;
	s->aa += a * a;
	s->bb += b * b;
	s->ab += a * b;
	if (a > s->high) {
		s->second = s->high;
		s->high = a;
		s->best = id;
	} else if (a > s->second) {
		s->second = a;
	}
	if (b > s->other_high) {
		s->other_high = b;
		s->other_best = id;
	}
}

static void finish(const struct sums *s, bool is_whole, struct vfy_row_distance *ret)
{
	double n = (double)s->n;
	double aa = s->aa - s->a * s->a / n, bb = s->bb - s->b * s->b / n;
	double p = is_whole ? 0 : fmax(1 - s->p, 0), q = is_whole ? 0 : fmax(1 - s->q, 1e-300);
	*ret = (struct vfy_row_distance){
		.kl = s->kl + (p > 0 ? p * log(p / q) : 0),
		.correlation = aa > 0 && bb > 0 ? (s->ab - s->a * s->b / n) / sqrt(aa) / sqrt(bb)
						: (double)NAN,
		.outside = p,
		.gap = s->high - s->second,
		.best = s->best,
		.other_best = s->other_best,
		.undefined = s->undefined,
	};
}

static const struct sums EMPTY = {.high = -INFINITY, .second = -INFINITY, .other_high = -INFINITY};

void vfy_row_compare(const struct vfy_rows *rows, uint32_t row, const float *other,
		     uint32_t n_vocab, struct vfy_row_distance *ret)
{
	const float *values = rows->values + (size_t)row * rows->width;
	const uint32_t *ids = rows->ids ? rows->ids + (size_t)row * rows->width : NULL;
	const double lse[2] = {rows->lse[row], log_sum_exp(other, n_vocab)};
	struct sums sums = EMPTY;
	for (uint32_t i = 0; i < rows->width; i++) {
		uint32_t id = ids ? ids[i] : i;
		if (id < n_vocab)
			add(&sums, id, (double)values[i], (double)other[id], lse);
	}
	finish(&sums, !ids, ret);
	for (uint32_t i = 0; i < n_vocab; i++) /* its argmax may be among what isn't held */
		if (other[i] > other[ret->other_best] ||
		    (i < ret->other_best && !(other[i] < other[ret->other_best])))
			ret->other_best = i;
}

void vfy_row_compare_rows(const struct vfy_rows *rows, const struct vfy_rows *other, uint32_t row,
			  struct vfy_row_distance *ret)
{
	size_t at = (size_t)row * rows->width;
	const double lse[2] = {rows->lse[row], other->lse[row]};
	struct sums sums = EMPTY;
	for (uint32_t i = 0; i < rows->width; i++)
		add(&sums, rows->ids ? rows->ids[at + i] : i, (double)rows->values[at + i],
		    (double)other->values[at + i], lse);
	finish(&sums, !rows->ids, ret);
}
