/* tokenizer/roles.h: roles of messages that a chat template doesn't know. Internal to prompt.c. */
#pragma once
#include <jansson.h>

#include "tokenizer/template/tmpl.h"

/* OpenAI's newer clients say "developer" for what most models were trained on as "system". Where
 * the template doesn't know that word the messages get the role that it does know. Changes
 * messages. */
SVC_CHECKED enum svc_code roles_rename(const struct tmpl *tmpl, json_t *messages,
				       struct svc_err *err);
/* messages without those of a role that neither every template nor this one knows: a new reference.
 * *ret_first is the first one's place; SIZE_MAX: there is none. */
SVC_CHECKED enum svc_code roles_without_unknown(const struct tmpl *tmpl, const json_t *messages,
						json_t **ret_rest, size_t *ret_first,
						struct svc_err *err);
