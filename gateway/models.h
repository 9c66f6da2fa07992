/* gateway/models.h: the file that says which models are served by which run: --models-file FILE.
 *
 *   NAME  RUN-DIRECTORY [unlisted]     requests with this model go to that run
 *   NAME  = OTHER                      another name for a model of this file
 *   *     = OTHER                      whatever name the file doesn't have
 *
 * A directory that isn't absolute lies beside the file. An unlisted model answers to its name and
 * is shown nowhere: one that is about to be served, or is no more. '#' begins a comment line. */
#pragma once
#include <stdint.h>

#include "base/buf.h"

#define GW_MODELS_MAX	    64u
#define GW_MODEL_RUNS_MAX   16u
#define GW_MODEL_NAME_BYTES 64u
#define GW_MODEL_FILE_MAX   65536u
#define GW_MODEL_DIR_BYTES  200u /* sockets below it need room in their addresses */

struct gw_model_entry {
	char name[GW_MODEL_NAME_BYTES];
	uint32_t run; /* index into runs */
	bool alias, unlisted;
};

struct gw_model_list {
	struct gw_model_entry entries[GW_MODELS_MAX];
	uint32_t n;
	char runs[GW_MODEL_RUNS_MAX][GW_MODEL_DIR_BYTES];
	uint32_t n_runs;
};

/* SVC_BAD_CONFIG names path and line. */
enum svc_code gw_models_read(struct span text, const char *path, struct gw_model_list *ret_list,
			     struct svc_err *err) SVC_CHECKED;
enum svc_code gw_models_load(const char *path, struct gw_model_list *ret_list,
			     struct svc_err *err) SVC_CHECKED;
/* By its name, else by the entry "*"; or NULL. */
const struct gw_model_entry *gw_models_find(const struct gw_model_list *list, struct span name);
/* The first listed model of the file: of requests that name none. */
const struct gw_model_entry *gw_models_first(const struct gw_model_list *list);
/* The listed names, as "a, b, c". */
void gw_models_names_print(const struct gw_model_list *list, struct buf *out);
