/* tokenizer/tokenizer_service.h: the tokenizer process: takes slots in STAGE_TOKENIZE, writes
 * prompt ids (or, for the text endpoints, the answer) into the body, passes on. Publishes the
 * vocabulary segment. */
#pragma once
#include "services/service.h"

extern const struct svc_spec tokenizer_spec;
