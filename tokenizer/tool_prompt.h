/* tokenizer/tool_prompt.h: tools for templates that know none: they are told of in the system
 * message, and calls and results become text. The form is that of Hermes and Qwen, which gateways
 * look for in the answers of such models. */
#pragma once
#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

/* Changes chat.messages and drops chat.tools; does nothing where there are neither tools nor calls
 * nor results. */
SVC_CHECKED enum svc_code tool_prompt_add(json_t *chat, struct svc_err *err);
