/* gateway/api/view.h: what is committed of one choice's answer, as checked pointers into its body.
 * What lies below the counts doesn't change any more; the body itself may move, so a view is made
 * anew at every look. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/span.h"
#include "shm/layout.h"
#include "shm/run.h"

#define GW_TOP_MAX 20u
/* REGION_META: the shape (gw_meta.h), and from here on what the answer repeats of its request. */
#define GW_SHAPE_BYTES 384u

struct gw_view {
	const int32_t *ids;   /* [n_prompt + n_tokens] */
	const uint32_t *ends; /* [n_tokens] */
	struct span out;
	struct span prompt_text; /* as given; ptr NULL for ids */
	const char *records;	 /* log-probabilities; those of the answer start at first_record */
	uint32_t n_records, n_top, first_record;
	uint32_t n_prompt, n_tokens, n_scored;
	uint32_t n_cached;   /* positions of the prompt that were not computed for this answer */
	uint32_t max_tokens; /* 0: the rest of the context */
	float temperature, top_p;
	enum body_finish finish;
	bool tokenized;		    /* n_prompt is final */
	struct span settings;	    /* a JSON object's text; empty: none */
	struct span stop;	    /* the stop string that ended it; ptr NULL: none did */
	uint64_t first_us, last_us; /* CLOCK_MONOTONIC of the first and the last logits */
};

/* One log-probability record, copied. */
struct gw_record {
	float chosen;
	uint32_t n_top;
	struct {
		int32_t id;
		float logprob;
	} top[GW_TOP_MAX];
};

/* ended: the slot's word, read before, says that it has left the sampler for good. Only then does
 * `finish` count: the sampler writes it before the token that it belongs to. SVC_CORRUPT if the
 * body is damaged. */
enum svc_code gw_view_open(const struct shm_run *run, const struct body *body, bool ended,
			   struct gw_view *ret_view, struct svc_err *err) SVC_CHECKED;
/* The text that token k of the answer has released; empty if the counts are damaged. */
struct span gw_view_text(const struct gw_view *view, uint32_t k);
/* All text that is released. */
struct span gw_view_answer(const struct gw_view *view);
/* The record of token k of the answer, or of prompt position k. false if there is none. */
bool gw_view_record(const struct gw_view *view, uint32_t k, struct gw_record *ret_record);
bool gw_view_prompt_record(const struct gw_view *view, uint32_t k, struct gw_record *ret_record);
