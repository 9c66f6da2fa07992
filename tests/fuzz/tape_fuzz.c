/* tests/fuzz/tape_fuzz.c: a tape as a stranger wrote it: it is refused, or all of it can be read.
 */
#include <stdint.h>
#include <stdlib.h>

#include "verify/tape.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vfy_tape tape = {0};
	struct svc_err err;
	uint64_t seen = 0;
	if (vfy_tape_parse((const char *)data, size, &tape, &err) != SVC_OK)
		return 0;
	for (uint32_t i = 0; i < tape.n; i++) {
		seen += tape.answers[i].n;
		for (uint32_t k = 0; k < tape.answers[i].n; k++)
			if (tape.answers[i].draws[k].token < 0)
				abort();
		if (tape.answers[i].prompt && tape.answers[i].prompt[0] < 0)
			abort();
	}
	if (seen + tape.again + tape.behind_gaps + tape.cut != tape.lines)
		abort();
	vfy_tape_free(&tape);
	return 0;
}
