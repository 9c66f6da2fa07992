#include "gateway/api/view.h"

#include <string.h>

#include "shm/body.h"

_Static_assert(sizeof(struct body_logprob) == 8, "a record's fixed part");

static uint32_t load(const _Atomic uint32_t *counter)
{
	return atomic_load_explicit(counter, memory_order_acquire);
}

/* Entry `index` of REGION_STOP: lengths and bytes, each padded to 4. */
static struct span stop_find(const struct shm_run *run, const struct body *body, int32_t index)
{
	size_t bytes = 0, at = 0;
	const char *stops = body_region(run, body, REGION_STOP, 0, &bytes);
	for (int32_t i = 0; stops && index >= 0 && bytes - at >= 4; i++) {
		uint32_t len;
		memcpy(&len, stops + at, sizeof len);
		if (len > bytes - at - 4)
			break;
		if (i == index)
			return (struct span){stops + at + 4, len};
		size_t step = 4 + (((size_t)len + 3) & ~(size_t)3);
		at = step < bytes - at ? at + step : bytes;
	}
	return (struct span){NULL, 0};
}

static struct span settings_find(const struct shm_run *run, const struct body *body)
{
	size_t bytes = 0;
	const char *meta = body_region(run, body, REGION_META, 0, &bytes);
	if (!meta || bytes <= GW_SHAPE_BYTES)
		return (struct span){"", 0};
	meta += GW_SHAPE_BYTES;
	return (struct span){meta, strnlen(meta, bytes - GW_SHAPE_BYTES)};
}

enum svc_code gw_view_open(const struct shm_run *run, const struct body *body, bool ended,
			   struct gw_view *ret_view, struct svc_err *err)
{
	struct gw_view view = {.finish = FINISH_NONE};
	size_t ids_bytes = 0, ends_bytes = 0, records_bytes = 0;
	uint32_t flags = body->params.flags;
	/* The count of tokens first: whatever is read after it belongs to at least these tokens. */
	view.n_tokens = load(&body->n_tokens);
	view.tokenized = load(&body->tokenized) == 1;
	view.n_prompt = load(&body->n_prompt);
	view.n_scored = load(&body->n_scored);
	uint32_t cached = load(&body->n_cached);
	view.n_cached = cached < view.n_prompt ? cached : view.n_prompt;
	uint32_t finish = ended ? load(&body->finish) : FINISH_NONE;
	view.ids = body_region(run, body, REGION_IDS, 0, &ids_bytes);
	view.ends = body_region(run, body, REGION_ENDS, 0, &ends_bytes);
	view.out.ptr = body_region(run, body, REGION_OUT, 0, &view.out.len);
	view.records = body_region(run, body, REGION_LOGPROBS, 0, &records_bytes);
	if (body->input == INPUT_TEXT)
		view.prompt_text.ptr =
			body_region(run, body, REGION_TEXT, 0, &view.prompt_text.len);
	view.n_top =
		body->params.top_logprobs < GW_TOP_MAX ? body->params.top_logprobs : GW_TOP_MAX;
	if (flags & (BODY_LOGPROBS | BODY_PROMPT_LOGPROBS))
		view.n_records = (uint32_t)(records_bytes / body_logprob_bytes(view.n_top));
	view.first_record = flags & BODY_PROMPT_LOGPROBS ? view.n_prompt : 0;
	if (!view.ids || !view.ends || !view.out.ptr ||
	    (uint64_t)view.n_prompt + view.n_tokens > ids_bytes / sizeof *view.ids ||
	    view.n_tokens > ends_bytes / sizeof *view.ends || view.n_scored > view.n_prompt)
		return svc_fail(err, SVC_CORRUPT, __func__, "the request's body is damaged");
	view.settings = settings_find(run, body);
	view.temperature = body->params.temperature;
	view.top_p = body->params.top_p;
	view.max_tokens = body->params.max_tokens;
	view.first_us = atomic_load(&body->first_us);
	view.last_us = atomic_load(&body->last_us);
	if (finish == FINISH_STOP)
		view.stop = stop_find(run, body, atomic_load(&body->stop_index));
	view.finish = finish <= FINISH_ERROR ? (enum body_finish)finish : FINISH_ERROR;
	*ret_view = view;
	return SVC_OK;
}

struct span gw_view_text(const struct gw_view *view, uint32_t k)
{
	uint32_t start = k ? view->ends[k - 1] : 0, end = view->ends[k];
	if (start > end || end > view->out.len)
		return (struct span){"", 0};
	return (struct span){view->out.ptr + start, end - start};
}

struct span gw_view_answer(const struct gw_view *view)
{
	uint32_t end = view->n_tokens ? view->ends[view->n_tokens - 1] : 0;
	return (struct span){view->out.ptr, end <= view->out.len ? end : 0};
}

static bool record_read(const struct gw_view *view, uint32_t index, struct gw_record *ret_record)
{
	size_t stride = body_logprob_bytes(view->n_top);
	if (!view->records || index >= view->n_records)
		return false;
	_Static_assert(offsetof(struct gw_record, top) == sizeof(struct body_logprob),
		       "the copy has the record's layout");
	memcpy(ret_record, view->records + index * stride, stride);
	if (ret_record->n_top > view->n_top)
		ret_record->n_top = view->n_top;
	return true;
}

bool gw_view_record(const struct gw_view *view, uint32_t k, struct gw_record *ret_record)
{
	return k < view->n_tokens && record_read(view, view->first_record + k, ret_record);
}

bool gw_view_prompt_record(const struct gw_view *view, uint32_t k, struct gw_record *ret_record)
{
	/* Nothing comes before the first token, so nothing says how likely it was. */
	return k > 0 && k < view->n_scored && view->first_record &&
	       record_read(view, k, ret_record);
}
