/* verify/exact_attention.h: attention in double, for verify/exact.h. */
#pragma once
#include "verify/exact.h"

/* e->value: what the queries q ([heads][head_dim], rotated; with their norms, if the model has
 * such) at the record's position see of the keys and values that lie in the pages of both sides.
 * Where those of the two sides differ, e->same_inputs becomes false. false: no memory, or they are
 * not float32. */
bool vfy_exact_attention(struct vfy_exact *e, const struct vfy_record *record, const float *q);
