#include "npu-worker/engine/lookup.h"

#include <string.h>

uint32_t lookup_draft(const int32_t *tokens, uint32_t n, uint32_t least_match, uint32_t most_match,
		      uint32_t most, int32_t *ret_draft)
{
	for (uint32_t m = most_match < n ? most_match : n - 1; m >= least_match && m > 0; m--) {
		for (uint32_t at = n - m; at-- > 0;) {
			if (memcmp(tokens + at, tokens + n - m, m * sizeof *tokens) != 0)
				continue;
			uint32_t left = n - at - m, count = left < most ? left : most;
			memcpy(ret_draft, tokens + at + m, count * sizeof *tokens);
			return count;
		}
	}
	return 0;
}
