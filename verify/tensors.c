#include "verify/tensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "model/gguf_block.h"

enum { CONTROL_SIDE = 512 };

struct moments {
	uint64_t n;
	double a, b, aa, bb, ab;
};

struct checker {
	const struct gguf_tensor *a, *b;
	uint64_t rows;
	uint32_t cols;
	float *row_a, *row_b;	    /* [cols] */
	double *col_aa, *col_ab;    /* [cols]: least squares of one scale each */
	double *row_corr;	    /* [rows] */
	float *square_a, *square_b; /* [side][side] */
	uint32_t side;
};

static void add(struct moments *m, double a, double b)
{
	m->n++;
	m->a += a;
	m->b += b;
	m->aa += a * a;
	m->bb += b * b;
	m->ab += a * b;
}

static double correlation(const struct moments *m)
{
	double n = (double)m->n;
	double aa = m->aa - m->a * m->a / n, bb = m->bb - m->b * m->b / n;
	return aa > 0 && bb > 0 ? (m->ab - m->a * m->b / n) / sqrt(aa) / sqrt(bb) : (double)NAN;
}

static void read_row(const struct gguf_tensor *t, uint64_t row, float *ret)
{
	const uint8_t *bytes = t->data;
	gguf_row_values(t->type, bytes + t->size_bytes / t->dims[1] * row, (uint32_t)t->dims[0],
			ret);
}

static void read_rows(const struct checker *c, uint64_t row)
{
	read_row(c->a, row, c->row_a);
	read_row(c->b, row, c->row_b);
}

static void first_pass(struct checker *c, struct vfy_tensor_check *check)
{
	struct moments all = {0};
	for (uint64_t row = 0; row < c->rows; row++) {
		struct moments one = {0};
		read_rows(c, row);
		for (uint32_t i = 0; i < c->cols; i++) {
			double a = (double)c->row_a[i], b = (double)c->row_b[i];
			if (row < c->side && i < c->side) {
				c->square_a[row * c->side + i] = c->row_a[i];
				c->square_b[row * c->side + i] = c->row_b[i];
			}
			if (!isfinite(a) || !isfinite(b)) {
				check->undefined++;
				continue;
			}
			c->col_aa[i] += a * a;
			c->col_ab[i] += a * b;
			add(&one, a, b);
			add(&all, a, b);
		}
		c->row_corr[row] = correlation(&one);
	}
	check->corr = correlation(&all);
}

static void second_pass(struct checker *c, struct vfy_tensor_check *check)
{
	struct moments scaled = {0}, turned = {0};
	for (uint64_t row = 0; row < c->rows; row++) {
		read_rows(c, row);
		for (uint32_t i = 0; i < c->cols; i++) {
			double a = (double)c->row_a[i], b = (double)c->row_b[i];
			double scale = c->col_aa[i] > 0 ? c->col_ab[i] / c->col_aa[i] : 0;
			if (isfinite(a) && isfinite(b))
				add(&scaled, a * scale, b);
		}
	}
	for (uint32_t i = 0; i < c->side; i++) {
		for (uint32_t k = 0; k < c->side; k++) {
			double a = (double)c->square_a[i * c->side + k];
			double b = (double)c->square_b[k * c->side + i];
			if (isfinite(a) && isfinite(b))
				add(&turned, a, b);
		}
	}
	check->corr_f = correlation(&scaled);
	check->corr_t = correlation(&turned);
}

/* NaN (a row without variance) counts as the least. */
static int ascending(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;
	if (isnan(a) || isnan(b))
		return isnan(b) - isnan(a);
	return a < b ? -1 : a > b;
}

static void summarise_rows(struct checker *c, double limit, struct vfy_tensor_check *check)
{
	for (uint64_t row = 0; row < c->rows; row++) {
		check->rows_below += c->row_corr[row] >= limit ? 0 : 1;
		if (ascending(&c->row_corr[row], &c->row_corr[check->row_worst]) < 0)
			check->row_worst = row;
	}
	check->row_min = c->row_corr[check->row_worst];
	qsort(c->row_corr, c->rows, sizeof *c->row_corr, ascending);
	check->row_median = c->row_corr[(c->rows - 1) / 2];
}

static void close_checker(struct checker *c)
{
	free(c->row_a);
	free(c->row_b);
	free(c->col_aa);
	free(c->col_ab);
	free(c->row_corr);
	free(c->square_a);
	free(c->square_b);
}

static bool open_checker(struct checker *c)
{
	uint64_t side = c->rows < c->cols ? c->rows : c->cols;
	c->side = (uint32_t)(side < CONTROL_SIDE ? side : CONTROL_SIDE);
	c->row_a = calloc(c->cols, sizeof *c->row_a);
	c->row_b = calloc(c->cols, sizeof *c->row_b);
	c->col_aa = calloc(c->cols, sizeof *c->col_aa);
	c->col_ab = calloc(c->cols, sizeof *c->col_ab);
	c->row_corr = calloc(c->rows, sizeof *c->row_corr);
	c->square_a = calloc((size_t)c->side * c->side, sizeof *c->square_a);
	c->square_b = calloc((size_t)c->side * c->side, sizeof *c->square_b);
	return c->row_a && c->row_b && c->col_aa && c->col_ab && c->row_corr && c->square_a &&
	       c->square_b;
}

enum svc_code vfy_tensor_compare(const struct gguf_tensor *a, const struct gguf_tensor *checkpoint,
				 double row_limit, struct vfy_tensor_check *ret,
				 struct svc_err *err)
{
	if (a->n_dims != 2 || checkpoint->n_dims != 2 || a->dims[0] != checkpoint->dims[0] ||
	    a->dims[1] != checkpoint->dims[1])
		return svc_fail(err, SVC_CONFLICT, __func__,
				"tensor %.*s has %" PRIu64 " x %" PRIu64 " weights, the "
				"checkpoint's %" PRIu64 " x %" PRIu64
				"; two matrices of one shape can be compared",
				(int)a->name.len, a->name.ptr, a->dims[1], a->dims[0],
				checkpoint->dims[1], checkpoint->dims[0]);
	struct checker c = {
		.a = a, .b = checkpoint, .rows = a->dims[1], .cols = (uint32_t)a->dims[0]};
	struct vfy_tensor_check check = {.rows = c.rows, .cols = c.cols};
	bool opened = open_checker(&c);
	if (opened) {
		first_pass(&c, &check);
		second_pass(&c, &check);
		summarise_rows(&c, row_limit, &check);
		*ret = check;
	}
	close_checker(&c);
	return opened ? SVC_OK : svc_fail_errno(err, __func__, "no memory for a matrix");
}
