/* Whatever a file of keys holds: it is read within limits, or refused by a message that names the
 * line. */
#include <stdint.h>
#include <stdlib.h>

#include "gateway/keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct gw_keys keys;
	struct svc_err err = {0};
	const struct span text = {(const char *)data, size};
	if (gw_keys_read(text, "keys", &keys, &err) != SVC_OK) {
		if (!strstr(err.msg, "line "))
			abort();
		return 0;
	}
	if (keys.n == 0 || keys.n > GW_KEYS_MAX)
		abort();
	for (size_t i = 0; i < keys.n; i++)
		if (!keys.keys[i].name[0] || !keys.keys[i].burst)
			abort();
	return 0;
}
