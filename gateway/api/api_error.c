#include "gateway/api/api_error.h"

#include <string.h>

static void string_or_null(struct buf *out, const char *text)
{
	if (text && *text)
		buf_json_string(out, span_of(text));
	else
		buf_append(out, "null", 4);
}

void gw_error_print(struct buf *out, const struct gw_error *error)
{
	buf_print(out, "{\"error\":{\"message\":");
	buf_json_string(out, span_of(error->message));
	buf_print(out, ",\"type\":");
	buf_json_string(out, span_of(error->type));
	buf_print(out, ",\"param\":");
	string_or_null(out, error->param);
	buf_print(out, ",\"code\":");
	string_or_null(out, error->code);
	buf_print(out, "}}");
}

struct gw_error gw_error_of(const struct svc_err *err)
{
	const struct svc_code_info *info = svc_code_info(err->code);
	struct gw_error error = {err->msg, info->type, err->param, info->name};
	/* The one code that OpenAI's clients tell apart by the thing that wasn't found. */
	if (err->code == SVC_NOT_FOUND && strcmp(err->param, "model") == 0)
		error.code = "model_not_found";
	return error;
}

int gw_error_status(const struct svc_err *err)
{
	return svc_code_info(err->code)->http_status;
}
