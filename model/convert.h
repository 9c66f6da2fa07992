/* model/convert.h: a model from one container into another, on disk. Both directions can be
 * interrupted and go on where they were; nothing half-written has the final name. */
#pragma once
#include "base/err.h"
#include "model/draft.h"
#include "model/q4nx_form.h"
#include "model/q4nx_write.h"

struct convert_options {
	struct q4nx_hints hints; /* about the source, a Q4NX folder */
	enum q4nx_policy policy; /* for a target that is one */
	struct draft_progress progress;
	/* Called for a target folder that is being made of a GGUF file, before it has its name: may
	 * write tokenizer.json for other programs. NULL: nothing is called. */
	enum svc_code (*write_tokenizer)(const char *source, const char *folder,
					 struct svc_err *err);
};

struct convert_result {
	uint64_t bytes; /* of the file of weights */
	size_t n_tensors;
	size_t n_kept; /* of an earlier, interrupted run */
};

/* A GGUF file out of a folder. */
SVC_CHECKED enum svc_code convert_to_gguf(const char *folder, const char *target,
					  const struct convert_options *options,
					  struct convert_result *ret_result, struct svc_err *err);

/* A Q4NX folder out of a GGUF file or a folder: model.q4nx, config.json, generation_config.json,
 * and metadata.gguf (every key of the source, no tensor) with what write_tokenizer adds, or the
 * source folder's tokenizer files. It is built as target.partial and renamed. */
SVC_CHECKED enum svc_code convert_to_q4nx(const char *source, const char *target,
					  const struct convert_options *options,
					  struct convert_result *ret_result, struct svc_err *err);
