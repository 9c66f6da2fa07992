/* The work area of a pass: see work.h. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "npu-worker/device/layers_private.h"

enum { ALIGNMENT = 64 };

static uint32_t take(size_t *at, size_t bytes)
{
	size_t start = *at;
	*at = (start + bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	return (uint32_t)start;
}

static size_t table_bytes(const struct layers *l, uint32_t rows)
{
	return (size_t)rows * 2 * l->shape.pairs * sizeof(float);
}

/* ret_bytes: of the whole. */
static void lay_out(struct layers *l, size_t *ret_bytes)
{
	struct work_head *w = &l->shape;
	size_t at = 0, rows = l->max_rows;
	(void)take(&at, sizeof *w);
	w->x = take(&at, rows * l->embd * sizeof(float));
	w->bad = take(&at, rows * sizeof(uint32_t));
	w->logits = take(&at, rows * sizeof(struct work_logits));
	for (uint32_t s = 0; s < WORK_SLOTS; s++) {
		w->places[s] = take(&at, rows * sizeof(struct work_place));
		w->tables[s] = take(&at, table_bytes(l, l->max_rows));
		w->page_lists[s] = take(&at, rows * l->pages_per_row * sizeof(uint64_t));
		if (l->has_local)
			w->local_tables[s] = take(&at, table_bytes(l, l->max_rows));
	}
	*ret_bytes = at;
}

enum svc_code work_open(struct layers *l, const struct plan *plan, struct svc_err *err)
{
	size_t bytes = 0;
	l->shape.pairs = plan->config.rope.dims / 2;
	l->shape.norm_eps = plan->config.norm_eps;
	l->shape.attn_scale = plan->config.attn_scale;
	l->shape.attn_softcap = plan->config.attn_softcap;
	l->pages_per_row = (plan->ctx + ENGINE_PAGE_TOKENS - 1) / ENGINE_PAGE_TOKENS;
	lay_out(l, &bytes);
	l->places = calloc(l->max_rows, sizeof *l->places);
	l->page_list = calloc((size_t)l->max_rows * l->pages_per_row, sizeof *l->page_list);
	if (!l->places || !l->page_list || bytes > UINT32_MAX)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a pass of %u rows",
				l->max_rows);
	void *memory = NULL;
	enum svc_code code = l->options.memory(l->options.context, bytes, &memory, err);
	return code == SVC_OK
		       ? area_open(l->options.device, memory, bytes, "activations", &l->work, err)
		       : code;
}

static char *work(const struct layers *l, uint32_t offset)
{
	return l->work.base + offset;
}

static enum svc_code send(const struct layers *l, uint32_t offset, size_t bytes,
			  struct svc_err *err)
{
	return bytes ? area_send(&l->work, offset, bytes, err) : SVC_OK;
}

/* Where the rows are, `ahead` positions on. false: a page isn't known yet, or the context ends. */
static bool list_places(struct layers *l, const struct layers_rows *rows, uint32_t ahead)
{
	const struct engine_pass_row *before = NULL;
	uint32_t first_page = 0;
	l->n_pages = 0;
	for (uint32_t i = 0; i < rows->count; i++) {
		const struct engine_pass_row *row = &rows->pass->rows[rows->first + i];
		uint32_t position = row->position + ahead, n = position / ENGINE_PAGE_TOKENS + 1;
		if (ahead && (position / ENGINE_PAGE_TOKENS != row->position / ENGINE_PAGE_TOKENS ||
			      position >= rows->pass->ctx))
			return false;
		/* Rows of one sequence share a list. */
		if (!before || row->pages != before->pages)
			first_page = l->n_pages;
		for (uint32_t p = l->n_pages - first_page; p < n; p++)
			l->page_list[l->n_pages++] =
				(uint64_t)(row->pages[p] - (const uint8_t *)l->pages.base);
		l->places[i] = (struct work_place){position, first_page};
		before = row;
	}
	return true;
}

static bool slot_holds(const struct layers *l, uint32_t slot, uint32_t rows)
{
	return l->slot_rows[slot] == rows && l->slot_pages[slot] == l->n_pages &&
	       memcmp(work(l, l->shape.places[slot]), l->places, rows * sizeof *l->places) == 0 &&
	       memcmp(work(l, l->shape.page_lists[slot]), l->page_list,
		      l->n_pages * sizeof *l->page_list) == 0;
}

static enum svc_code fill_tables(struct layers *l, uint32_t slot, const struct layers_rows *rows,
				 uint32_t ahead, struct svc_err *err)
{
	const struct work_head *w = &l->shape;
	size_t row_bytes = table_bytes(l, 1), on = (size_t)ahead * 2 * w->pairs;
	for (uint32_t i = 0; i < rows->count; i++) {
		const struct engine_pass_row *row = &rows->pass->rows[rows->first + i];
		memcpy(work(l, w->tables[slot]) + i * row_bytes, row->table + on, row_bytes);
		if (l->has_local)
			memcpy(work(l, w->local_tables[slot]) + i * row_bytes,
			       row->local_table + on, row_bytes);
	}
	enum svc_code code = send(l, w->tables[slot], rows->count * row_bytes, err);
	if (code == SVC_OK && l->has_local)
		code = send(l, w->local_tables[slot], rows->count * row_bytes, err);
	return code;
}

/* What list_places listed, with the positions' tables. */
static enum svc_code fill_slot(struct layers *l, uint32_t slot, const struct layers_rows *rows,
			       uint32_t ahead, struct svc_err *err)
{
	const struct work_head *w = &l->shape;
	memcpy(work(l, w->places[slot]), l->places, rows->count * sizeof *l->places);
	memcpy(work(l, w->page_lists[slot]), l->page_list, l->n_pages * sizeof *l->page_list);
	l->slot_rows[slot] = rows->count;
	l->slot_pages[slot] = l->n_pages;
	enum svc_code code = send(l, w->places[slot], rows->count * sizeof *l->places, err);
	if (code == SVC_OK)
		code = fill_tables(l, slot, rows, ahead, err);
	if (code == SVC_OK)
		code = send(l, w->page_lists[slot], l->n_pages * sizeof *l->page_list, err);
	return code;
}

/* Which rows want logits, and where. */
static uint32_t list_logits(const struct layers *l, const struct layers_rows *rows)
{
	struct work_logits *list = (void *)work(l, l->shape.logits);
	uint32_t n = 0;
	for (uint32_t i = 0; i < rows->count; i++) {
		const float *to = rows->pass->rows[rows->first + i].logits;
		if (to)
			list[n++] = (struct work_logits){
				i, 0, (uint64_t)((const char *)to - l->logits.base)};
	}
	return n;
}

enum svc_code work_send(struct layers *l, struct layers_rows *rows, struct svc_err *err)
{
	const struct work_head *w = &l->shape;
	struct work_head head = *w;
	enum svc_code code = SVC_OK;
	l->slot = 1 - l->slot;
	(void)list_places(l, rows, 0);
	if (slot_holds(l, l->slot, rows->count))
		l->counts.prepared++;
	else
		code = fill_slot(l, l->slot, rows, 0, err);
	for (uint32_t i = 0; i < rows->count; i++)
		memcpy(work(l, w->x) + (size_t)i * l->embd * sizeof(float),
		       rows->pass->rows[rows->first + i].x, l->embd * sizeof(float));
	memset(work(l, w->bad), 0, rows->count * sizeof(uint32_t));
	rows->n_logits = list_logits(l, rows);
	head.rows = rows->count;
	head.logit_rows = rows->n_logits;
	head.slot = l->slot;
	memcpy(work(l, 0), &head, sizeof head);
	if (code == SVC_OK)
		code = send(l, 0, sizeof head, err);
	if (code == SVC_OK)
		code = send(l, w->x, (size_t)rows->count * l->embd * sizeof(float), err);
	if (code == SVC_OK)
		code = send(l, w->bad, rows->count * sizeof(uint32_t), err);
	if (code == SVC_OK)
		code = send(l, w->logits, rows->n_logits * sizeof(struct work_logits), err);
	return code;
}

enum svc_code work_prepare(struct layers *l, const struct layers_rows *rows, struct svc_err *err)
{
	uint32_t slot = 1 - l->slot;
	/* Each sequence goes on by one token: what generation does. */
	for (uint32_t i = 1; i < rows->count; i++)
		if (rows->pass->rows[rows->first + i].pages ==
		    rows->pass->rows[rows->first + i - 1].pages)
			return SVC_OK;
	return list_places(l, rows, 1) ? fill_slot(l, slot, rows, 1, err) : SVC_OK;
}

/* What the last layer gave, of the rows that are wanted. */
static enum svc_code fetch_x(struct layers *l, const struct layers_rows *rows, struct svc_err *err)
{
	size_t bytes = l->embd * sizeof(float);
	enum svc_code code = SVC_OK;
	for (uint32_t i = 0; i < rows->count && code == SVC_OK; i++) {
		const struct engine_pass_row *row = &rows->pass->rows[rows->first + i];
		if (!row->keeps_x)
			continue;
		size_t at = l->shape.x + i * bytes;
		code = area_fetch(&l->work, at, bytes, err);
		if (code == SVC_OK)
			memcpy(row->x, work(l, (uint32_t)at), bytes);
	}
	return code;
}

enum svc_code work_fetch(struct layers *l, const struct layers_rows *rows, struct svc_err *err)
{
	const uint32_t *bad = (const void *)work(l, l->shape.bad);
	enum svc_code code = area_fetch(&l->work, l->shape.bad, rows->count * sizeof *bad, err);
	for (uint32_t i = 0; i < rows->count && code == SVC_OK; i++)
		if (bad[i])
			atomic_store_explicit(rows->pass->rows[rows->first + i].bad, true,
					      memory_order_relaxed);
	return code == SVC_OK ? fetch_x(l, rows, err) : code;
}
