/* Whatever a file of models holds: it is read within limits, and every name leads to a run, or it
 * is refused by a message that names the line. */
#include <stdint.h>
#include <stdlib.h>

#include "gateway/models.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct gw_model_list list;
	struct svc_err err = {0};
	const struct span text = {(const char *)data, size};
	if (gw_models_read(text, "/d/models", &list, &err) != SVC_OK) {
		if (!strstr(err.msg, "line "))
			abort();
		return 0;
	}
	if (list.n == 0 || list.n > GW_MODELS_MAX || list.n_runs > GW_MODEL_RUNS_MAX ||
	    !gw_models_first(&list))
		abort();
	for (uint32_t i = 0; i < list.n; i++) {
		const struct gw_model_entry *entry = &list.entries[i];
		if (entry->run >= list.n_runs || list.runs[entry->run][0] != '/' ||
		    gw_models_find(&list, span_of(entry->name)) != entry)
			abort();
	}
	return 0;
}
