/* cli/verify_side.h: the two sides of a comparison as options write them. */
#pragma once
#include <jansson.h>

#include "services/option.h"
#include "verify/diverge.h"

struct verify_sides {
	struct vfy_duel_options duel; /* its strings point into copies */
	int32_t *prompt;
	char *copies[3]; /* of --a, --b and --fault, cut up */
};
/* Both sides (--a, --b over the engine's options), the prompt, --tokens and, with_fault, --fault of
 * side A. Whether it fails or not, the caller calls verify_free_sides. */
SVC_CHECKED enum svc_code verify_read_sides(const struct opt_set *options, bool with_fault,
					    struct verify_sides *ret_sides, struct svc_err *err);
void verify_free_sides(struct verify_sides *sides);
/* "family=bat,rows=8" over what side holds. text is cut up; strings of side point into it. An error
 * names --option. */
SVC_CHECKED enum svc_code verify_read_side(const char *option, char *text, struct vfy_side *side,
					   struct svc_err *err);
/* "3" or "all" (0). */
SVC_CHECKED enum svc_code verify_read_depth(const char *text, uint32_t *ret_depth,
					    struct svc_err *err);

/* Indented, and takes root. */
void verify_print_json(json_t *root);
/* New reference. */
json_t *verify_divergence_json(const struct vfy_divergence *divergence);
/* The gates hold and nothing differs. */
bool verify_is_same(const struct vfy_divergence *divergence);
