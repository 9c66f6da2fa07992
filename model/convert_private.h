/* model/convert_private.h: the small files of a Q4NX folder that is being made; convert.c and
 * pack_import.c write them. */
#pragma once
#include "base/err.h"
#include "model/hf_config.h"

/* config.json, and generation_config.json if the model has ends. */
SVC_CHECKED enum svc_code convert_write_configs(const struct hf_config *config, const char *folder,
						struct svc_err *err);
/* tokenizer.json and what belongs to it, as far as the source folder has them. */
SVC_CHECKED enum svc_code convert_copy_tokenizer(const char *source, const char *folder,
						 struct svc_err *err);
