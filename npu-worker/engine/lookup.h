/* npu-worker/engine/lookup.h: drafts by prompt look-up: what followed the last tokens where they
 * stood before. */
#pragma once
#include <stdint.h>

/* What followed tokens[n - m .. n) where it stood last before, for the longest m from `most_match`
 * down to `least_match` (>= 1) that did stand: up to `most` tokens to ret_draft. Returns how many.
 * n >= 1; linear in it. */
uint32_t lookup_draft(const int32_t *tokens, uint32_t n, uint32_t least_match, uint32_t most_match,
		      uint32_t most, int32_t *ret_draft);
