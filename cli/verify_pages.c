#include "cli/verify_pages.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/verify_html.h"
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
	const struct html_grid drawn = {rows, cols, labels, values, "layer"};
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
	html_heading(&html, "All figures");
	html_json(&html, json);
	return html_end(&html, path, err);
}
