/* cli/verify_html.h: a measurement as one HTML file that needs no other: tables made of its JSON,
 * and plots in SVG. */
#pragma once
#include <jansson.h>
#include <stdint.h>

#include "base/buf.h"

struct html {
	struct buf page;
};

/* summary: one line under the title. Both are escaped. */
void html_begin(struct html *html, const char *title, const char *summary);
void html_heading(struct html *html, const char *text);
/* What a figure shows, in a sentence. */
void html_note(struct html *html, const char *text);
/* An object as a table of names and values, an array of objects as rows, nested ones inside. */
void html_json(struct html *html, const json_t *value);

enum { HTML_MAX_SERIES = 4 };
/* Horizontal bars: a row of up to four counts, one behind the other. */
struct html_bar {
	const char *label;
	double counts[HTML_MAX_SERIES];
	const char *note; /* behind the bar; NULL: none */
};
struct html_bars {
	const char *series[HTML_MAX_SERIES]; /* NULL: not used */
	const struct html_bar *bars;
	uint32_t n;
	bool shares; /* each bar is as long as the others: its counts are parts of a whole */
};
void html_bars(struct html *html, const struct html_bars *bars);

/* A grid of values >= 0 on a logarithmic scale from 1e-9 to 1. 0: identical; < 0: nothing there. */
struct html_grid {
	uint32_t rows, cols;
	const char *const *labels; /* [rows] */
	const double *values;	   /* [rows][cols] */
	const char *col_name;	   /* "layer" */
	/* [cols]; NULL: numbers from 0 */
	const char *const *col_labels;
};
void html_grid(struct html *html, const struct html_grid *grid);

/* Points over a linear x and a logarithmic y. 0 has a line of its own at the foot; what isn't
 * finite stands at the upper edge. */
struct html_point {
	double x, y; /* x >= 0 */
	uint32_t series;
};
struct html_points {
	const char *series[HTML_MAX_SERIES]; /* NULL: not used */
	const char *x_name, *y_name;
	const struct html_point *points;
	uint32_t n;
};
void html_points(struct html *html, const struct html_points *points);

/* Writes path (as a new file that takes its name when it is whole) and frees the page; if `begun`
 * failed somewhere for lack of memory, that is said here. */
SVC_CHECKED enum svc_code html_end(struct html *html, const char *path, struct svc_err *err);
