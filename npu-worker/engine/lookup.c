#include "npu-worker/engine/lookup.h"

#include <string.h>

/* How many of the last tokens stand before `end`, too; at most `most`. */
static uint32_t match_before(const int32_t *tokens, uint32_t n, uint32_t end, uint32_t most)
{
	uint32_t m = 0;
	while (m < most && m < end && tokens[end - 1 - m] == tokens[n - 1 - m])
		m++;
	return m;
}

uint32_t lookup_draft(const int32_t *tokens, uint32_t n, uint32_t least_match, uint32_t most_match,
		      uint32_t most, int32_t *ret_draft)
{
	uint32_t longest = least_match - 1, from = n;
	for (uint32_t end = n - 1; end > 0 && longest < most_match; end--) {
		uint32_t m = match_before(tokens, n, end, most_match);
		if (m > longest) {
			longest = m;
			from = end;
		}
	}
	uint32_t left = n - from, count = left < most ? left : most;
	memcpy(ret_draft, tokens + from, count * sizeof *tokens);
	return count;
}
