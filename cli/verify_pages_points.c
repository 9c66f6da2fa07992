/* The pages whose figures stand position by position: prefill, and the gates against a reference.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/verify_html.h"
#include "cli/verify_pages.h"

/* Which series, and colour. */
enum { SAME_ARGMAX = 0, SECOND = 1, OTHER_ARGMAX = 3 };

static struct html_point *points_new(struct html *html, uint32_t n)
{
	struct html_point *points = calloc(n + 1u, sizeof *points);
	html->page.failed |= !points;
	return points;
}

/* ---- prefill */

void verify_positions_visit(void *context, const struct vfy_record *record, const void *a,
			    const void *b)
{
	struct verify_positions *positions = context;
	struct vfy_array left, right;
	struct vfy_diff diff;
	if (record->checkpoint != VFY_LOGITS || positions->n == positions->room ||
	    !vfy_record_array(record, a, &left) || !vfy_record_array(record, b, &right) ||
	    vfy_compare(&left, &right, &diff, NULL) != SVC_OK)
		return;
	uint32_t n_vocab = record->rows * record->cols;
	positions->at[positions->n++] =
		(struct verify_position){.position = record->position,
					 .max_abs = diff.abs.value,
					 .relative_l2 = diff.relative_l2,
					 .flips = vfy_argmax(a, n_vocab) != vfy_argmax(b, n_vocab)};
}

static void draw_positions(struct html *html, const struct verify_positions *positions)
{
	struct html_point *points = points_new(html, 2 * positions->n);
	for (uint32_t i = 0; i < positions->n && points; i++) {
		const struct verify_position *at = &positions->at[i];
		points[2 * i] = (struct html_point){at->position, at->relative_l2, SECOND};
		points[2 * i + 1] = (struct html_point){at->position, at->max_abs,
							at->flips ? OTHER_ARGMAX : SAME_ARGMAX};
	}
	const struct html_points drawn = {
		.series = {[SAME_ARGMAX] = "largest |a - b|",
			   [SECOND] = "relative L2",
			   [OTHER_ARGMAX] = "largest |a - b|, another argmax"},
		.x_name = "position",
		.y_name = "batched - one by one",
		.points = points,
		.n = points ? 2 * positions->n : 0};
	html_points(html, &drawn);
	free(points);
}

static void draw_seconds(struct html *html, const struct vfy_prefill_result *result)
{
	char notes[2][32];
	snprintf(notes[0], sizeof notes[0], "%.3f s", result->seconds_batched);
	snprintf(notes[1], sizeof notes[1], "%.3f s", result->seconds_single);
	const struct html_bar bars[] = {{"batched", {result->seconds_batched}, notes[0]},
					{"one by one", {result->seconds_single}, notes[1]}};
	const struct html_bars drawn = {{"seconds"}, bars, 2, false};
	html_bars(html, &drawn);
}

enum svc_code verify_page_prefill(const char *path, const json_t *json,
				  const struct vfy_prefill_result *result,
				  const struct verify_positions *positions, struct svc_err *err)
{
	struct html html;
	html_begin(&html, "A prompt in batches, and one by one",
		   "Every position's logits and state; lockstep verify prefill");
	html_heading(&html, "How far the logits are apart, by position");
	html_note(&html, "On the line at the foot: the same bits.");
	draw_positions(&html, positions);
	html_heading(&html, "What the prompt took");
	html_note(&html,
		  "Of this run, on this machine, beside what else it did; recording included.");
	draw_seconds(&html, result);
	html_heading(&html, "All figures");
	html_json(&html, json);
	return html_end(&html, path, err);
}

/* ---- gates */

static void draw_distances(struct html *html, const struct vfy_gate_result *result)
{
	uint32_t n = result->engine.rows, more = result->container.rows;
	struct html_point *points = points_new(html, n + more);
	for (uint32_t i = 0; i < n && points; i++) {
		const struct vfy_row_distance *row = &result->engine_rows[i];
		bool flips = row->best != row->other_best;
		points[i] = (struct html_point){i, row->kl, flips ? OTHER_ARGMAX : SAME_ARGMAX};
	}
	for (uint32_t i = 0; i < more && points; i++)
		points[n + i] = (struct html_point){i, result->container_rows[i].kl, SECOND};
	const struct html_points drawn = {
		.series = {[SAME_ARGMAX] = "engine",
			   [SECOND] = more ? "container (source || reference)" : NULL,
			   [OTHER_ARGMAX] = "engine, another argmax"},
		.x_name = "row",
		.y_name = "KL, nats",
		.points = points,
		.n = points ? n + more : 0};
	html_points(html, &drawn);
	free(points);
}

static void draw_margins(struct html *html, const struct vfy_gate_result *result)
{
	uint32_t n = result->engine.rows;
	struct html_point *points = points_new(html, n);
	for (uint32_t i = 0; i < n && points; i++) {
		const struct vfy_row_distance *row = &result->engine_rows[i];
		bool flips = row->best != row->other_best;
		points[i] = (struct html_point){i, row->gap, flips ? OTHER_ARGMAX : SAME_ARGMAX};
	}
	const struct html_points drawn = {
		.series = {[SAME_ARGMAX] = "the same argmax", [OTHER_ARGMAX] = "another argmax"},
		.x_name = "row",
		.y_name = "the reference's margin",
		.points = points,
		.n = points ? n : 0};
	html_points(html, &drawn);
	free(points);
}

enum svc_code verify_page_gate(const char *path, const char *verb, const json_t *json,
			       const struct vfy_gate_result *result, struct svc_err *err)
{
	struct html html;
	char summary[96];
	snprintf(summary, sizeof summary, "Row by row, prompt after prompt; lockstep verify %s",
		 verb);
	html_begin(&html, "Logits against a reference's", summary);
	html_heading(&html, "KL(reference || engine) of each row");
	html_note(&html,
		  "What the sum's own rounding leaves of a distance of nothing stands at the "
		  "foot.");
	draw_distances(&html, result);
	html_heading(&html, "The reference's margin at each row");
	html_note(&html,
		  "The gap between its two largest logits: where it is small, little decides "
		  "the token.");
	draw_margins(&html, result);
	html_heading(&html, "All figures");
	html_json(&html, json);
	return html_end(&html, path, err);
}
