#include "cli/verify_pages.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/verify_html.h"
#include "cli/verify_side.h"
#include "npu-worker/engine/hooks.h"

/* ---- diverge */

struct verify_grid *verify_grid_new(void)
{
	struct verify_grid *grid = calloc(1, sizeof *grid);
	for (uint32_t c = 0; grid && c < VFY_CHECKPOINT_END; c++)
		for (uint32_t layer = 0; layer <= MODEL_MAX_LAYERS; layer++)
			grid->values[c][layer] = -1;
	return grid;
}

void verify_grid_visit(void *context, const struct vfy_record *record, const void *a, const void *b)
{
	struct verify_grid *grid = context;
	struct vfy_array left, right;
	struct vfy_diff diff;
	struct svc_err err;
	if (record->checkpoint >= VFY_CHECKPOINT_END || record->layer > MODEL_MAX_LAYERS ||
	    !vfy_record_array(record, a, &left) || !vfy_record_array(record, b, &right) ||
	    vfy_compare(&left, &right, &diff, &err) != SVC_OK)
		return;
	/* What has no distance (a NaN, a reference of zeros) is as far away as anything. */
	double far = isfinite(diff.relative_l2) ? diff.relative_l2 : 1;
	double *value = &grid->values[record->checkpoint][record->layer];
	*value = fmax(*value, far);
	if (record->layer >= grid->n_layers)
		grid->n_layers = record->layer + 1;
}

static void draw_grid(struct html *html, const struct verify_grid *grid)
{
	const char *labels[VFY_CHECKPOINT_END];
	uint32_t rows = 0, cols = grid->n_layers;
	double *values = calloc((size_t)VFY_CHECKPOINT_END * (cols + 1), sizeof *values);
	if (!values) {
		html->page.failed = true;
		return;
	}
	for (uint32_t c = 0; c < VFY_CHECKPOINT_END; c++) {
		bool seen = false;
		for (uint32_t layer = 0; layer < cols; layer++)
			seen |= grid->values[c][layer] >= 0;
		if (!seen)
			continue;
		memcpy(values + (size_t)rows * cols, grid->values[c], cols * sizeof *values);
		labels[rows++] = vfy_checkpoint_name(c);
	}
	const struct html_grid drawn = {rows, cols, labels, values, "layer", NULL};
	html_grid(html, &drawn);
	free(values);
}

enum svc_code verify_page_divergence(const char *path, const json_t *json,
				     const struct verify_grid *grid, struct svc_err *err)
{
	struct html html;
	html_begin(&html, "First divergence",
		   "Two configurations on the same tokens, record by record; lockstep verify "
		   "diverge");
	html_heading(&html, "Largest relative L2, by checkpoint and layer");
	html_note(&html, "Checkpoints in execution order, from the top. What comes after the last "
			 "layer stands one column behind it. An empty square: the same bits.");
	draw_grid(&html, grid);
	html_heading(&html, "All figures");
	html_json(&html, json);
	return html_end(&html, path, err);
}

/* ---- ladder */

/* The largest relative L2 of a rung; negative: its gates failed. What differs has some colour. */
static double height_of(const struct verify_rung *rung)
{
	double far = verify_is_same(&rung->d) ? 0 : 1e-9;
	for (int c = 0; c < VFY_CHECKPOINT_END; c++) {
		double l2 = rung->d.verdict.points[c].max_rel_l2;
		far = fmax(far, isfinite(l2) ? l2 : 1);
	}
	return rung->d.valid ? far : -1;
}

static json_t *rung_row(const struct verify_rung *rung)
{
	char place[128] = "";
	const struct vfy_place *first = &rung->d.verdict.first;
	if (first->found)
		vfy_place_text(&first->record, place);
	return json_pack("{s:I, s:o, s:s, s:s, s:o}", "tokens", (json_int_t)rung->n, "layers",
			 rung->depth ? json_integer(rung->depth) : json_string("all"), "result",
			 !rung->d.valid		    ? "FAIL"
			 : verify_is_same(&rung->d) ? "identical"
						    : "DIFFERENT",
			 "first difference", place, "largest relative L2",
			 json_real(height_of(rung)));
}

/* The depths of the first context stand in each. */
static uint32_t count_depths(const struct verify_rung *rungs, uint32_t n)
{
	uint32_t cols = 0;
	while (cols < n && rungs[cols].n == rungs[0].n)
		cols++;
	return cols;
}

enum { MAX_CONTEXTS = 24, MAX_DEPTHS = 8 };

static void draw_ladder(struct html *html, const struct verify_rung *rungs, uint32_t n)
{
	char texts[MAX_CONTEXTS + MAX_DEPTHS][16];
	const char *rows[MAX_CONTEXTS], *columns[MAX_DEPTHS];
	double values[MAX_CONTEXTS * MAX_DEPTHS];
	uint32_t cols = count_depths(rungs, n);
	uint32_t n_rows = cols ? n / cols : 0;
	if (n_rows > MAX_CONTEXTS || cols > MAX_DEPTHS)
		return;
	for (uint32_t i = 0; i < n_rows * cols; i++)
		values[i] = height_of(&rungs[i]);
	for (uint32_t i = 0; i < n_rows; i++) {
		snprintf(texts[i], sizeof texts[i], "%" PRIu32 " token%s", rungs[i * cols].n,
			 rungs[i * cols].n == 1 ? "" : "s");
		rows[i] = texts[i];
	}
	for (uint32_t i = 0; i < cols; i++) {
		char *text = texts[MAX_CONTEXTS + i];
		snprintf(text, sizeof *texts, rungs[i].depth ? "%" PRIu32 : "all", rungs[i].depth);
		columns[i] = text;
	}
	const struct html_grid drawn = {n_rows, cols, rows, values, "layers", columns};
	html_grid(html, &drawn);
}

enum svc_code verify_page_ladder(const char *path, const struct verify_rung *rungs, uint32_t n,
				 struct svc_err *err)
{
	struct html html;
	json_t *list = json_array();
	for (uint32_t i = 0; i < n; i++)
		json_array_append_new(list, rung_row(&rungs[i]));
	html_begin(&html, "Ladder of contexts and depths",
		   "Two configurations on the same tokens; lockstep verify ladder");
	html_heading(&html, "Largest relative L2 of each rung");
	html_note(&html, "Forced tokens downwards, compared layers to the right. An empty square: "
			 "the same bits; none: a gate failed.");
	draw_ladder(&html, rungs, n);
	html_heading(&html, "All rungs");
	html_json(&html, list);
	json_decref(list);
	return html_end(&html, path, err);
}

/* ---- histogram */

enum svc_code verify_page_histogram(const char *path, const char *family, const json_t *json,
				    const struct vfy_histogram *paths, struct svc_err *err)
{
	struct html html;
	struct html_bar bars[VFY_PATH_COUNT];
	char notes[VFY_PATH_COUNT][96], summary[128];
	snprintf(summary, sizeof summary, "Family %.40s; lockstep verify histogram", family);
	html_begin(&html, "How far ordinary decode would have chosen otherwise", summary);
	for (int p = 0; p < VFY_PATH_COUNT; p++) {
		const struct vfy_histogram *h = &paths[p];
		bool same = h->identical != UINT32_MAX;
		snprintf(notes[p], sizeof notes[p],
			 "%" PRIu32 " of %" PRIu32 ", worst %.3g; %s tokens", h->nonzero,
			 h->positions, h->worst, same ? "the same" : "other");
		bars[p] = (struct html_bar){vfy_path_name((enum vfy_path)p),
					    {h->up_to_0_1, h->up_to_0_5, h->up_to_2, h->above_2},
					    notes[p]};
	}
	const struct html_bars drawn = {
		{"gap to 0.1", "to 0.5", "to 2.0", "above 2.0"}, bars, VFY_PATH_COUNT, false};
	html_heading(&html, "Positions with a gap, by path");
	html_note(&html, "Each path's tokens, fed back one by one: gap = logit(argmax) - "
			 "logit(committed). No bar: there was none.");
	html_bars(&html, &drawn);
	html_heading(&html, "All figures");
	html_json(&html, json);
	return html_end(&html, path, err);
}

/* ---- sweep */

static void draw_sources(struct html *html, const struct vfy_sweep *sweep)
{
	struct html_bar bars[VFY_MAX_SOURCES];
	char labels[VFY_MAX_SOURCES][64], notes[VFY_MAX_SOURCES][64];
	for (uint32_t i = 0; i < sweep->n_sources; i++) {
		const struct vfy_source *s = &sweep->sources[i];
		const struct vfy_exact *e = &s->exact;
		bool decided = e->decided && e->same_inputs;
		snprintf(labels[i], sizeof labels[i], "%s at %s",
			 variant_primitive_name(s->primitive),
			 engine_checkpoint_name(s->checkpoint));
		snprintf(notes[i], sizeof notes[i],
			 !s->differs ? "the same bits"
			 : decided   ? "rel L2 %.2g"
				     : "rel L2 %.2g; UNKNOWN which is nearer",
			 s->point.max_rel_l2);
		bars[i] = (struct html_bar){labels[i], {0}, notes[i]};
		if (decided) {
			bars[i].counts[0] = (double)e->a_nearer;
			bars[i].counts[1] = (double)e->b_nearer;
			bars[i].counts[2] = (double)e->ties;
		}
	}
	const struct html_bars drawn = {{"A nearer to the exact value", "B nearer", "equally near"},
					bars,
					sweep->n_sources,
					true};
	html_bars(html, &drawn);
}

/* What a token takes without the repair, with it, and if all of it is done again. */
static void draw_costs(struct html *html, const struct vfy_sweep *sweep)
{
	const double costs[] = {sweep->cost_none, sweep->cost_selective, sweep->cost_full};
	static const char *const labels[] = {"no replay", "selective repair", "full replay"};
	char notes[3][32];
	struct html_bar bars[3];
	for (int i = 0; i < 3; i++) {
		snprintf(notes[i], sizeof notes[i], "%.2f ms", 1e3 * costs[i]);
		bars[i] = (struct html_bar){labels[i], {1e3 * costs[i]}, notes[i]};
	}
	const struct html_bars drawn = {{"milliseconds per committed token"}, bars, 3, false};
	html_bars(html, &drawn);
}

enum svc_code verify_page_sweep(const char *path, const json_t *json, const struct vfy_sweep *sweep,
				struct svc_err *err)
{
	struct html html;
	html_begin(&html, "Which arithmetic makes two configurations differ",
		   "By substitution, for these tokens and in this order; lockstep verify sweep");
	if (sweep->valid) {
		html_heading(&html, "Each source alone, on the same inputs");
		html_note(&html,
			  "Of the elements that differ: which side is nearer to the value in "
			  "double. That calls neither right.");
		draw_sources(&html, sweep);
	}
	if (sweep->valid && sweep->identical) {
		html_heading(&html, "What a token costs");
		html_note(&html,
			  "Selective repair: only the minimal set is substituted. Times of this "
			  "run, on this machine, beside what else it did.");
		draw_costs(&html, sweep);
	}
	html_heading(&html, "All figures");
	html_json(&html, json);
	return html_end(&html, path, err);
}
