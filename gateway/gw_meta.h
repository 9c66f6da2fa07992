/* gateway/gw_meta.h: what another gateway needs to go on with a request's answer, as JSON in the
 * body (REGION_META). What stands in the slot or the body already isn't repeated. */
#pragma once
#include "gateway/api/api_request.h"
#include "gateway/api/render.h"

/* A request as its answer shows it. */
struct gw_shape {
	enum gw_endpoint endpoint;
	bool stream;
	struct gw_meta meta;
};

/* Appends the JSON: with its terminator at most GW_SHAPE_BYTES. */
void gw_shape_print(struct buf *out, const struct gw_shape *shape);
/* Model, fingerprint and id are the caller's to set. SVC_CORRUPT if it isn't what gw_shape_print
 * wrote. */
enum svc_code gw_shape_read(struct span text, struct gw_shape *ret_shape,
			    struct svc_err *err) SVC_CHECKED;
