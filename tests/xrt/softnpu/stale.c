/* A module of another version, as half an upgrade leaves one behind: it must be refused before
 * anything of it is called. */
#include "npu-worker/device/xrt_module.h"

static const struct xrt_module module = {.version = XRT_MODULE_VERSION + 1, .bytes = sizeof module};

const struct xrt_module *lockstep_xrt_module(void);
const struct xrt_module *lockstep_xrt_module(void)
{
	return &module;
}
