#include "cli/verify_html.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Blue for a little, red for much; four hues that differ in lightness, too. */
static const char *const SERIES[HTML_MAX_SERIES] = {"#4477aa", "#ccbb44", "#ee7733", "#aa3377"};

static const char STYLE[] =
	"body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;"
	"color:#222;background:#fff}h1{font-size:1.5rem;margin-bottom:0}h2{font-size:1.15rem;"
	"margin-top:2rem}p{color:#555;margin:.3rem 0}table{border-collapse:collapse;"
	"font-variant-numeric:tabular-nums;font-size:.85rem;margin:.3rem 0}td,th{border:1px solid "
	"#ddd;padding:.15rem .5rem;text-align:left;vertical-align:top}th{background:#f4f4f4;"
	"font-weight:600}svg{max-width:100%;height:auto;display:block;margin:.5rem 0}svg text{font:"
	"12px system-ui,sans-serif;fill:#333}.wide{overflow-x:auto}";

static void escape(struct buf *page, const char *text)
{
	for (; *text; text++) {
		const char *entity = *text == '<'   ? "&lt;"
				     : *text == '>' ? "&gt;"
				     : *text == '&' ? "&amp;"
				     : *text == '"' ? "&quot;"
						    : NULL;
		if (entity)
			buf_append(page, entity, strlen(entity));
		else
			buf_append(page, text, 1);
	}
}

static void element(struct buf *page, const char *tag, const char *text)
{
	buf_print(page, "<%s>", tag);
	escape(page, text);
	buf_print(page, "</%s>\n", tag);
}

void html_begin(struct html *html, const char *title, const char *summary)
{
	*html = (struct html){0};
	buf_print(&html->page,
		  "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta "
		  "name=\"viewport\" content=\"width=device-width\">\n<style>%s</style>\n",
		  STYLE);
	element(&html->page, "title", title);
	buf_print(&html->page, "</head><body>\n");
	element(&html->page, "h1", title);
	element(&html->page, "p", summary);
}

void html_heading(struct html *html, const char *text)
{
	element(&html->page, "h2", text);
}

void html_note(struct html *html, const char *text)
{
	element(&html->page, "p", text);
}

/* ---- tables */

static void put_value(struct buf *page, const json_t *value);

static void put_scalar(struct buf *page, const json_t *value)
{
	char text[64];
	if (json_is_string(value)) {
		escape(page, json_string_value(value));
		return;
	}
	if (json_is_integer(value))
		snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
	else if (json_is_real(value))
		snprintf(text, sizeof text, "%.6g", json_real_value(value));
	else
		snprintf(text, sizeof text, "%s",
			 json_is_true(value)	? "yes"
			 : json_is_false(value) ? "no"
						: "-");
	escape(page, text);
}

static void put_object(struct buf *page, const json_t *object)
{
	const char *name;
	json_t *value;
	buf_print(page, "<table>\n");
	/* jansson doesn't change what it walks, but its signature can't say so. */
	json_object_foreach((json_t *)(uintptr_t)object, name, value)
	{
		buf_print(page, "<tr><th>");
		escape(page, name);
		buf_print(page, "</th><td>");
		put_value(page, value);
		buf_print(page, "</td></tr>\n");
	}
	buf_print(page, "</table>\n");
}

/* Objects whose names are the first one's. */
static void put_rows(struct buf *page, const json_t *list)
{
	const char *name;
	json_t *value, *first = json_array_get(list, 0);
	buf_print(page, "<table>\n<tr>");
	json_object_foreach(first, name, value)
	{
		buf_print(page, "<th>");
		escape(page, name);
		buf_print(page, "</th>");
	}
	buf_print(page, "</tr>\n");
	for (size_t i = 0; i < json_array_size(list); i++) {
		buf_print(page, "<tr>");
		json_object_foreach(first, name, value)
		{
			buf_print(page, "<td>");
			put_value(page, json_object_get(json_array_get(list, i), name));
			buf_print(page, "</td>");
		}
		buf_print(page, "</tr>\n");
	}
	buf_print(page, "</table>\n");
}

static void put_value(struct buf *page, const json_t *value)
{
	if (json_is_object(value)) {
		put_object(page, value);
	} else if (json_is_array(value) && json_is_object(json_array_get(value, 0))) {
		put_rows(page, value);
	} else if (json_is_array(value)) {
		for (size_t i = 0; i < json_array_size(value); i++) {
			buf_print(page, i ? ", " : "");
			put_value(page, json_array_get(value, i));
		}
	} else {
		put_scalar(page, value);
	}
}

void html_json(struct html *html, const json_t *value)
{
	buf_print(&html->page, "<div class=\"wide\">\n");
	put_value(&html->page, value);
	buf_print(&html->page, "</div>\n");
}

/* ---- bars */

enum { LABEL = 190, BAR = 460, ROW = 24, NOTE = 330 };

static double sum_of(const struct html_bar *bar)
{
	double sum = 0;
	for (int s = 0; s < HTML_MAX_SERIES; s++)
		sum += bar->counts[s];
	return sum;
}

static void put_legend(struct buf *page, const char *const *series)
{
	for (int s = 0, x = LABEL; s < HTML_MAX_SERIES; s++) {
		if (!series[s])
			continue;
		buf_print(page,
			  "<rect x=\"%d\" y=\"4\" width=\"12\" height=\"12\" fill=\"%s\"/><text "
			  "x=\"%d\" y=\"15\">",
			  x, SERIES[s], x + 17);
		escape(page, series[s]);
		buf_print(page, "</text>\n");
		x += 40 + 7 * (int)strlen(series[s]);
	}
}

static void put_bar(struct buf *page, const struct html_bars *bars, uint32_t i, double whole)
{
	const struct html_bar *bar = &bars->bars[i];
	double x = LABEL, top = (double)(i + 1) * ROW;
	buf_print(page, "<text x=\"%d\" y=\"%.0f\" text-anchor=\"end\">", LABEL - 8, top + 15);
	escape(page, bar->label);
	buf_print(page, "</text>\n");
	for (int s = 0; s < HTML_MAX_SERIES; s++) {
		double width = whole > 0 ? bar->counts[s] / whole * BAR : 0;
		if (!bars->series[s] || !(width > 0))
			continue;
		buf_print(page,
			  "<rect x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"%d\" "
			  "fill=\"%s\"><title>",
			  x, top + 3, width, ROW - 6, SERIES[s]);
		escape(page, bars->series[s]);
		buf_print(page, ": %.6g</title></rect>\n", bar->counts[s]);
		x += width;
	}
	if (!bar->note)
		return;
	buf_print(page, "<text x=\"%.1f\" y=\"%.0f\">", x + 8, top + 15);
	escape(page, bar->note);
	buf_print(page, "</text>\n");
}

void html_bars(struct html *html, const struct html_bars *bars)
{
	double largest = 0;
	for (uint32_t i = 0; i < bars->n; i++)
		largest = fmax(largest, sum_of(&bars->bars[i]));
	buf_print(&html->page, "<svg role=\"img\" width=\"%d\" viewBox=\"0 0 %d %" PRIu32 "\">\n",
		  LABEL + BAR + NOTE, LABEL + BAR + NOTE, (bars->n + 1) * ROW + 6);
	put_legend(&html->page, bars->series);
	for (uint32_t i = 0; i < bars->n; i++)
		put_bar(&html->page, bars, i, bars->shares ? sum_of(&bars->bars[i]) : largest);
	buf_print(&html->page, "</svg>\n");
}

/* ---- grid */

enum { CELL = 22, DECADES = 9 };

/* From 1e-9 (nearly white) to 1 (dark red), by way of blue. */
static void put_colour(struct buf *page, double value)
{
	static const int stops[][3] = {
		{226, 236, 246}, {68, 119, 170}, {238, 119, 51}, {120, 10, 30}};
	double at = (fmin(fmax(log10(value), -DECADES), 0) + DECADES) / DECADES * 3;
	int from = at >= 3 ? 2 : (int)at;
	double share = at - from;
	int mix[3];
	for (int c = 0; c < 3; c++)
		mix[c] = (int)(stops[from][c] + share * (stops[from + 1][c] - stops[from][c]));
	buf_print(page, "#%02x%02x%02x", (unsigned)mix[0], (unsigned)mix[1], (unsigned)mix[2]);
}

static void put_column(struct buf *page, const struct html_grid *g, uint32_t col)
{
	if (g->col_labels)
		escape(page, g->col_labels[col]);
	else
		buf_print(page, "%" PRIu32, col);
}

static void put_cell(struct buf *page, const struct html_grid *g, uint32_t row, uint32_t col)
{
	double value = g->values[(size_t)row * g->cols + col];
	if (value < 0)
		return;
	buf_print(page, "<rect x=\"%" PRIu32 "\" y=\"%" PRIu32 "\" width=\"%d\" height=\"%d\" ",
		  LABEL + col * CELL, (row + 1) * CELL, CELL - 2, CELL - 2);
	if (value > 0) {
		buf_print(page, "fill=\"");
		put_colour(page, value);
		buf_print(page, "\"");
	} else {
		buf_print(page, "fill=\"none\" stroke=\"#bbb\"");
	}
	buf_print(page, "><title>");
	escape(page, g->labels[row]);
	buf_print(page, ", %s ", g->col_name);
	put_column(page, g, col);
	buf_print(page, ": %s%.3g</title></rect>\n", value > 0 ? "" : "identical, ", value);
}

static void put_scale(struct buf *page, uint32_t top)
{
	for (int d = 0; d <= DECADES; d++) {
		int x = LABEL + d * 52;
		buf_print(page,
			  "<rect x=\"%d\" y=\"%" PRIu32 "\" width=\"14\" height=\"14\" fill=\"", x,
			  top);
		put_colour(page, pow(10, d - DECADES));
		buf_print(page, "\"/><text x=\"%d\" y=\"%" PRIu32 "\">1e%d</text>\n", x + 17,
			  top + 12, d - DECADES);
	}
	buf_print(page,
		  "<rect x=\"%d\" y=\"%" PRIu32 "\" width=\"13\" height=\"13\" fill=\"none\" "
		  "stroke=\"#bbb\"/><text x=\"%d\" y=\"%" PRIu32 "\">identical</text>\n",
		  LABEL + 11 * 50, top, LABEL + 11 * 50 + 18, top + 12);
}

void html_grid(struct html *html, const struct html_grid *g)
{
	struct buf *page = &html->page;
	uint32_t width = LABEL + g->cols * CELL, least = LABEL + 640;
	uint32_t height = (g->rows + 3) * CELL;
	width = width < least ? least : width;
	buf_print(page,
		  "<div class=\"wide\"><svg role=\"img\" width=\"%" PRIu32
		  "\" viewBox=\"0 0 %" PRIu32 " %" PRIu32 "\">\n",
		  width, width, height);
	buf_print(page, "<text x=\"%d\" y=\"15\" text-anchor=\"end\">%s</text>\n", LABEL - 8,
		  g->col_name);
	for (uint32_t col = 0; col < g->cols; col++) {
		if (col % 5 != 0 && g->cols > 12)
			continue;
		buf_print(page, "<text x=\"%" PRIu32 "\" y=\"15\">", LABEL + col * CELL + 2);
		put_column(page, g, col);
		buf_print(page, "</text>\n");
	}
	for (uint32_t row = 0; row < g->rows; row++) {
		buf_print(page, "<text x=\"%d\" y=\"%" PRIu32 "\" text-anchor=\"end\">", LABEL - 8,
			  (row + 1) * CELL + 14);
		escape(page, g->labels[row]);
		buf_print(page, "</text>\n");
		for (uint32_t col = 0; col < g->cols; col++)
			put_cell(page, g, row, col);
	}
	put_scale(page, (g->rows + 2) * CELL - 8);
	buf_print(page, "</svg></div>\n");
}

/* ---- points */

enum { LEFT = 80, TOP = 28, ACROSS = 860, DOWN = 240, FOOT = 22, MAX_TICKS = 10 };

/* What the axes span: x from 0 to right, y from 10^low to 10^high. */
struct span_of_points {
	double right;
	int low, high;
};

static struct span_of_points span_of_points(const struct html_points *p)
{
	struct span_of_points span = {.right = 1, .low = 0, .high = 1};
	bool any = false;
	for (uint32_t i = 0; i < p->n; i++) {
		double y = p->points[i].y;
		span.right = fmax(span.right, p->points[i].x);
		if (!isfinite(y) || !(y > 0))
			continue;
		int below = (int)floor(log10(y));
		span.low = any && span.low < below ? span.low : below;
		span.high = any && span.high > below ? span.high : below + 1;
		any = true;
	}
	span.high = span.high > span.low ? span.high : span.low + 1;
	return span;
}

/* 1, 2 or 5 times a power of ten, so that there are few ticks. */
static double tick_of(double right)
{
	double tick = 1;
	for (int i = 0; right / tick > MAX_TICKS; i++)
		tick *= i % 3 == 1 ? 2.5 : 2;
	return tick;
}

static double y_place(const struct span_of_points *span, double y)
{
	double share = isfinite(y) ? (log10(y) - span->low) / (span->high - span->low) : 1;
	return !(y > 0) && !isnan(y) ? TOP + DOWN + FOOT
				     : TOP + DOWN * (1 - fmin(fmax(share, 0), 1));
}

static void put_rule(struct buf *page, double y)
{
	buf_print(page,
		  "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/><text "
		  "x=\"%d\" y=\"%.1f\" text-anchor=\"end\">",
		  LEFT, LEFT + ACROSS, y, y, LEFT - 8, y + 4);
}

static void put_axes(struct buf *page, const struct html_points *p,
		     const struct span_of_points *span)
{
	int step = (span->high - span->low + MAX_TICKS - 1) / MAX_TICKS;
	for (int d = span->low; d <= span->high; d += step) {
		put_rule(page,
			 TOP + DOWN * (1 - (double)(d - span->low) / (span->high - span->low)));
		buf_print(page, "1e%d</text>\n", d);
	}
	put_rule(page, TOP + DOWN + FOOT);
	buf_print(page, "0</text>\n");
	double tick = tick_of(span->right);
	for (int i = 0; i * tick <= span->right; i++)
		buf_print(page, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0f</text>\n",
			  LEFT + i * tick / span->right * ACROSS, TOP + DOWN + FOOT + 18, i * tick);
	buf_print(page, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">", LEFT + ACROSS,
		  TOP + DOWN + FOOT + 34);
	escape(page, p->x_name);
	buf_print(page, "</text>\n<text x=\"4\" y=\"15\">");
	escape(page, p->y_name);
	buf_print(page, "</text>\n");
}

static void put_point(struct buf *page, const struct html_points *p,
		      const struct span_of_points *span, const struct html_point *point)
{
	buf_print(page,
		  "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\" "
		  "fill-opacity=\".75\"><title>",
		  LEFT + point->x / span->right * ACROSS, y_place(span, point->y),
		  SERIES[point->series]);
	escape(page, p->series[point->series]);
	buf_print(page, ", %.6g: %.4g</title></circle>\n", point->x, point->y);
}

void html_points(struct html *html, const struct html_points *p)
{
	struct buf *page = &html->page;
	struct span_of_points span = span_of_points(p);
	int width = LEFT + ACROSS + 10, height = TOP + DOWN + FOOT + 40;
	buf_print(page, "<svg role=\"img\" width=\"%d\" viewBox=\"0 0 %d %d\">\n", width, width,
		  height);
	put_legend(page, p->series);
	put_axes(page, p, &span);
	for (uint32_t i = 0; i < p->n; i++)
		put_point(page, p, &span, &p->points[i]);
	buf_print(page, "</svg>\n");
}

enum svc_code html_end(struct html *html, const char *path, struct svc_err *err)
{
	char temporary[4128];
	struct buf *page = &html->page;
	buf_print(page, "</body></html>\n");
	snprintf(temporary, sizeof temporary, "%s.new", path);
	enum svc_code code = SVC_OK;
	FILE *file = page->failed ? NULL : fopen(temporary, "wb");
	if (page->failed)
		code = svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for the report");
	else if (!file)
		code = svc_fail_errno(err, __func__, "can't write %s", temporary);
	if (file) {
		bool whole = fwrite(page->ptr, 1, page->len, file) == page->len;
		whole &= fclose(file) == 0;
		if (!whole || rename(temporary, path))
			code = svc_fail_errno(err, __func__, "can't write %s", path);
	}
	buf_free(page);
	return code;
}
