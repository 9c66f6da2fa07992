#include "gateway/gw_meta.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

/* Member and flag, in one order for writing and reading. */
struct flag {
	const char *name;
	size_t offset; /* of a bool in struct gw_shape */
};

static const struct flag flags[] = {
	{"stream", offsetof(struct gw_shape, stream)},
	{"usage", offsetof(struct gw_shape, meta.include_usage)},
	{"logprobs", offsetof(struct gw_shape, meta.logprobs)},
	{"echo", offsetof(struct gw_shape, meta.echo)},
	{"ids", offsetof(struct gw_shape, meta.token_ids)},
	{"special", offsetof(struct gw_shape, meta.keep_special)},
	{"stored", offsetof(struct gw_shape, meta.stored)},
	{"instructed", offsetof(struct gw_shape, meta.instructed)},
	{"calls", offsetof(struct gw_shape, meta.calls)},
	{"thinks", offsetof(struct gw_shape, meta.thinks)},
};

#define N_FLAGS (sizeof flags / sizeof *flags)

void gw_shape_print(struct buf *out, const struct gw_shape *shape)
{
	buf_print(out, "{\"endpoint\":%u,\"created\":%" PRId64 ",\"n\":%" PRIu32 ",\"tools\":%u",
		  (unsigned)shape->endpoint, shape->meta.created_s, shape->meta.n,
		  (unsigned)shape->meta.tools);
	for (size_t i = 0; i < N_FLAGS; i++)
		buf_print(out, ",\"%s\":%s", flags[i].name,
			  *(const bool *)((const char *)shape + flags[i].offset) ? "true"
										 : "false");
	/* Made of our own ids' characters: nothing to escape. */
	buf_print(out, ",\"form\":%u,\"previous\":\"%s\"}", (unsigned)shape->meta.form,
		  shape->meta.previous);
}

enum svc_code gw_shape_read(struct span text, struct gw_shape *ret_shape, struct svc_err *err)
{
	struct gw_shape shape = {.endpoint = GW_CHAT};
	/* The region is longer than the text. */
	json_t *json = json_loadb(text.ptr, strnlen(text.ptr, text.len), 0, NULL);
	const json_t *endpoint = json_object_get(json, "endpoint"), *n = json_object_get(json, "n");
	bool good = json_is_integer(endpoint) && json_is_integer(n) && json_integer_value(n) > 0 &&
		    json_integer_value(n) <= UINT16_MAX &&
		    (json_integer_value(endpoint) == GW_CHAT ||
		     json_integer_value(endpoint) == GW_COMPLETIONS);
	const json_t *form = json_object_get(json, "form");
	const char *previous = json_string_value(json_object_get(json, "previous"));
	good = good && json_is_integer(form) && json_integer_value(form) >= 0 &&
	       json_integer_value(form) < GW_FORM_COUNT && previous &&
	       strlen(previous) < sizeof shape.meta.previous;
	const json_t *tools = json_object_get(json, "tools");
	good = good && json_is_integer(tools) && json_integer_value(tools) >= 0 &&
	       json_integer_value(tools) < VOCAB_TOOLS_COUNT;
	for (size_t i = 0; good && i < N_FLAGS; i++) {
		const json_t *flag = json_object_get(json, flags[i].name);
		good = json_is_boolean(flag);
		*(bool *)((char *)&shape + flags[i].offset) = json_is_true(flag);
	}
	if (good) {
		shape.endpoint = (enum gw_endpoint)json_integer_value(endpoint);
		shape.meta.chat = shape.endpoint == GW_CHAT;
		shape.meta.n = (uint32_t)json_integer_value(n);
		shape.meta.form = (enum gw_form)json_integer_value(form);
		snprintf(shape.meta.previous, sizeof shape.meta.previous, "%s", previous);
		shape.meta.tools = (enum vocab_tools)json_integer_value(tools);
		shape.meta.created_s = json_integer_value(json_object_get(json, "created"));
	}
	json_decref(json);
	if (!good)
		return svc_fail(err, SVC_CORRUPT, __func__, "the request's body is damaged: meta");
	*ret_shape = shape;
	return SVC_OK;
}
