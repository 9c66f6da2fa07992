/* verify/sweep.h: what makes two configurations differ, by substitution: side A's other primitives
 * ("bat") are replaced by side B's ("seq") site by site, always at the first difference, until the
 * records are identical or nothing moves; then families are given back one by one, to find a set
 * from which none can be left out. All of it holds for these tokens and in this order. */
#pragma once
#include "npu-worker/engine/hooks.h"
#include "verify/diverge.h"
#include "verify/exact.h"

/* A primitive at a checkpoint, alone, on the same inputs. */
struct vfy_source {
	enum variant_primitive primitive;
	enum engine_checkpoint checkpoint;
	bool differs;		/* arithmetic_non_equivalence: PROVEN_BY_TEST if so, else UNKNOWN */
	struct vfy_point point; /* of its records, over the forced positions */
	/* Adjudication in double; .decided false: UNKNOWN. Freed already. */
	struct vfy_exact exact;
};

enum vfy_outcome {
	VFY_MOVED,   /* the first difference is behind the site now: fully canonicalised */
	VFY_SHRUNK,  /* it is where it was, and smaller: a partial contribution */
	VFY_NO_MOVE, /* neither */
};
struct vfy_substitution {
	enum variant_primitive primitive;
	enum engine_checkpoint checkpoint;
	enum vfy_outcome outcome;
	struct vfy_place before, after; /* the first difference; after.found false: none is left */
	/* Of the record at `before`: what is left there. */
	struct vfy_diff left;
};

enum { VFY_MAX_SOURCES = 64 };
struct vfy_sweep {
	bool valid; /* all gates of all runs held */
	struct vfy_source sources[VFY_MAX_SOURCES];
	uint32_t n_sources;
	struct vfy_substitution substitutions[VFY_MAX_SOURCES];
	uint32_t n_substitutions, fully_canonicalised;
	uint32_t partial_families; /* bits of enum variant_primitive */
	bool identical;		   /* a sufficient set was found */
	struct vfy_place last;	   /* else the first difference that remains */
	uint32_t minimal_families; /* bits; only if identical */
	/* Seconds per forced token: A as it is; A, then all tokens again as B does; A with the
	 * minimal set substituted (0 unless identical). */
	double cost_none, cost_full, cost_selective;
};
/* The duel's side A must be "bat" and B "seq" (SVC_USAGE). */
SVC_CHECKED enum svc_code vfy_sweep_run(struct vfy_duel *duel, struct vfy_sweep *ret_sweep,
					struct svc_err *err);
