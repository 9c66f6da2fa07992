/* tests/fuzz/msg_fuzz.c: any bytes as a control message; what is understood says the same again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct msg first, second;
	uint8_t bytes[MSG_MAX_BYTES];
	if (!msg_decode(data, size, &first))
		return 0;
	if (first.kind >= MSG_KIND_COUNT || first.n_slots > MSG_MAX_SLOTS)
		abort();
	size_t len = msg_encode(&first, bytes);
	if (len == 0 && first.n_slots == 0 && first.kind == 0 && first.sender == 0 &&
	    first.sequence == 0 && first.subject == 0)
		return 0;
	if (len == 0 || !msg_decode(bytes, len, &second))
		abort();
	if (first.kind != second.kind || first.sender != second.sender ||
	    first.sequence != second.sequence || first.subject != second.subject ||
	    first.n_slots != second.n_slots ||
	    memcmp(first.slots, second.slots, first.n_slots * sizeof *first.slots) != 0)
		abort();
	return 0;
}
