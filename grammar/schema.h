/* grammar/schema.h: a JSON schema as a grammar's text. The language is a part of the schema's:
 * every text is valid, but not every valid text is in it (members come in the schema's order, an
 * object without additionalProperties has only the members that it names, ...:
 * docs/structured-output.md). A keyword that isn't obeyed is refused, never ignored. */
#pragma once
#include <jansson.h>

#include "grammar/write.h"

/* Adds the rule `name` for a schema, and those that it needs; gr_put_json_rules must be written
 * once beside it. SVC_INVALID names place (a JSON pointer from the schema's root) and keyword;
 * err.param stays empty. */
enum svc_code gr_put_schema(struct gr_writer *writer, const char *name, const json_t *schema,
			    struct svc_err *err) SVC_CHECKED;
