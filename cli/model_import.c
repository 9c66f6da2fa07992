/* lockstep model import PACK TARGET: a pack's tiles into a Q4NX folder. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/model_private.h"
#include "cli/progress.h"
#include "model/pack.h"

enum svc_code model_import(const struct opt_set *options, const char *source, const char *target,
			   struct svc_err *err)
{
	struct progress writing = progress_start("importing"),
			checking = progress_start("checking");
	const struct pack_options how = {{progress_show, &writing}, {progress_show, &checking}};
	struct pack_result result;
	(void)options;
	if (!*target)
		return svc_fail(err, SVC_USAGE, __func__,
				"import needs a target: a folder for Q4NX");
	enum svc_code code = pack_import(source, target, &how, &result, err);
	progress_end(&checking);
	if (code != SVC_OK)
		return code;
	const struct pack_counts *n = &result.counts;
	printf("%s: %" PRIu64 " tensors, %" PRIu64 " bytes", target, n->tensors, result.bytes);
	if (result.n_kept)
		printf(" (%" PRIu64 " tensors kept from an interrupted run)", result.n_kept);
	printf("\n  %" PRIu64 " tiles, %" PRIu64 " of attention in each layer; %" PRIu64
	       " MLP groups; %" PRIu64 " norm anchors\n"
	       "  each packed again and found equal to the pack's bytes\n",
	       n->tiles, n->attention_tiles, n->mlp_groups, n->norm_anchors);
	return SVC_OK;
}
