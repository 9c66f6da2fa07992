/* Whatever a client says of its trace: it is read whole, or not at all. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/trace_context.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct gw_trace_context nothing;
	struct gw_trace_context context;
	memset(&context, 0, sizeof context);
	/* Of the input's own size, so that a byte beyond it is one too far. */
	char *copy = malloc(size ? size : 1);
	if (!copy)
		return 0;
	memcpy(copy, data, size);
	bool good = gw_traceparent_read((struct span){copy, size}, &context);
	if (good && (size < 55 || memcmp(context.trace, nothing.trace, sizeof context.trace) == 0 ||
		     memcmp(context.parent, nothing.parent, sizeof context.parent) == 0))
		abort();
	if (!good && memcmp(&context, &nothing, sizeof context) != 0)
		abort();
	free(copy);
	return 0;
}
