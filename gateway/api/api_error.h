/* gateway/api/api_error.h: OpenAI's error object, {"error":{"message","type","param","code"}}. */
#pragma once
#include "base/buf.h"
#include "base/err.h"

struct gw_error {
	const char *message;
	const char *type;
	const char *param; /* NULL or "": null */
	const char *code;  /* NULL: null */
};

/* Appends the object, without a line end. */
void gw_error_print(struct buf *out, const struct gw_error *error);
/* How an error of ours looks to a client. Borrows from err. */
struct gw_error gw_error_of(const struct svc_err *err);
/* The HTTP status that goes with it. */
int gw_error_status(const struct svc_err *err);
