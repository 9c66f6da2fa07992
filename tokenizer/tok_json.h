/* tokenizer/tok_json.h: the parts of reading a tokenizer.json and the files beside it. */
#pragma once
#include <jansson.h>

#include "tokenizer/tok_load.h"

/* A JSON object from a file of at most limit bytes. A file that isn't needed and doesn't exist:
 * *ret_json is NULL; and in one that does, all numbers are reals, because configurations have some
 * that fit no integer. */
SVC_CHECKED enum svc_code tok_json_file(const char *path, size_t limit, bool needed,
					json_t **ret_json, struct svc_err *err);

static inline struct span tok_json_span(const json_t *string)
{
	return (struct span){json_string_value(string), json_string_length(string)};
}

/* The string under key, "" if there is none; for types and names in messages. */
const char *tok_json_word(const json_t *object, const char *key);

/* normalizer, pre_tokenizer, decoder: before the vocabulary is read, because they say how it is
 * spelled. */
SVC_CHECKED enum svc_code tok_json_pipeline(struct tok *tok, const json_t *root,
					    struct svc_err *err);
/* post_processor: afterwards, because it names tokens. */
SVC_CHECKED enum svc_code tok_json_post(struct tok *tok, const json_t *root, struct svc_err *err);
/* The files in the folder. */
SVC_CHECKED enum svc_code tok_json_config(struct tok *tok, const char *folder, struct svc_err *err);
