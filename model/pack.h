/* model/pack.h: a pack: a model's tiles in the order in which a device reads them, a file for each
 * layer (docs/formats.md has the layout, which is this project's own). Importing one gives a Q4NX
 * folder, and shows that nothing was lost or misplaced on the way. */
#pragma once
#include <stdint.h>

#include "base/err.h"
#include "model/draft.h"

/* What tells a whole import from a partial one. */
struct pack_counts {
	uint64_t tensors, tiles;
	uint64_t attention_tiles; /* of each layer */
	uint64_t mlp_groups;	  /* of all layers */
	uint64_t norm_anchors;	  /* norms found behind the tiles, where the layout has them */
};

struct pack_options {
	struct draft_progress writing, checking;
};

struct pack_result {
	struct pack_counts counts; /* as found when what was written was checked */
	uint64_t bytes;		   /* of model.q4nx */
	uint64_t n_kept;	   /* tensors of an earlier, interrupted run */
};

/* Writes the folder target (as target.partial until it is whole; an interrupted import goes on
 * where it was). Then every tile and group that was written is unpacked, packed again, put into the
 * pack's order and compared with the pack's bytes. SVC_BAD_MODEL: a file's size or a count isn't
 * what config.json's sizes make; SVC_UNSUPPORTED: a field of config.json or pack.json that isn't
 * known, or a geometry that tiles of 32 x 256 don't cover; SVC_CORRUPT: the comparison failed, with
 * the tensor and tile. */
SVC_CHECKED enum svc_code pack_import(const char *source, const char *target,
				      const struct pack_options *options,
				      struct pack_result *ret_result, struct svc_err *err);
