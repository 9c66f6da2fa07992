/* cli/model_private.h: the verbs of `lockstep model`. */
#pragma once
#include "base/err.h"
#include "services/option.h"

/* Each gets its words behind the verb: source, target ("" if there is none). */
SVC_CHECKED enum svc_code model_inspect(const struct opt_set *options, const char *source,
					const char *target, struct svc_err *err);
SVC_CHECKED enum svc_code model_convert(const struct opt_set *options, const char *source,
					const char *target, struct svc_err *err);
SVC_CHECKED enum svc_code model_verify(const struct opt_set *options, const char *source,
				       const char *target, struct svc_err *err);
/* source: the folder, "" for the usual one. */
SVC_CHECKED enum svc_code model_list(const struct opt_set *options, const char *source,
				     const char *target, struct svc_err *err);
/* source: a name of deploy/models.tsv, "" for the list. Replaces the process. */
SVC_CHECKED enum svc_code model_pull(const struct opt_set *options, const char *source,
				     const char *target, struct svc_err *err);
SVC_CHECKED enum svc_code model_import(const struct opt_set *options, const char *source,
				       const char *target, struct svc_err *err);
