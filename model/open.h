/* model/open.h: any model that can be served, as GGUF. */
#pragma once
#include "base/err.h"
#include "model/draft.h"
#include "model/gguf.h"

/* A GGUF file is mapped. A folder (safetensors or Q4NX) is made into one in anonymous memory, all
 * of it: as many bytes as the file would have, gone with gguf_close. progress: NULL is fine. */
SVC_CHECKED enum svc_code model_open(const char *path, const struct draft_progress *progress,
				     struct gguf **ret_gguf, struct svc_err *err);
/* The same without weights: a folder's tensors have their shapes, and zeros. ret_hash: XXH3-128 of
 * the whole file's bytes (high, low), weights included; NULL: not wanted. */
SVC_CHECKED enum svc_code model_open_head(const char *path, struct gguf **ret_gguf,
					  uint64_t ret_hash[2], struct svc_err *err);
