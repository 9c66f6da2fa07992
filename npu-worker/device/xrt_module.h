/* npu-worker/device/xrt_module.h: what liblockstep-xrt.so offers: XRT's C++-only parts behind C. It
 * is loaded at run time, so that one worker starts with and without XRT. No exception leaves it.
 * Every function returns 0 (or a state) or a negative errno, and then says why in `why`. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { XRT_MODULE_VERSION = 1, XRT_MODULE_WHY = 384 };

struct xrt_module_run {
	void *instructions; /* buffers */
	uint32_t n_words;
	void *args[3];
};

struct xrt_module {
	uint32_t version, bytes; /* of this struct */
	int (*open)(const char *program, const char *kernel, void **ret_device, char *why);
	void (*close)(void *device);
	/* memory NULL: the driver's. instructions: for a command stream. */
	int (*buffer)(void *device, int instructions, void *memory, size_t bytes, void **ret_buffer,
		      char *why);
	void *(*buffer_memory)(void *buffer);
	void (*buffer_free)(void *buffer);
	int (*sync)(void *buffer, int to_device, size_t offset, size_t bytes, char *why);
	/* One list of runs. */
	int (*submit)(void *device, const struct xrt_module_run *runs, uint32_t n, char *why);
	/* ERT command state of the list: 4 completed; below 4 or 7: not yet. */
	int (*state)(void *device, char *why);
};

/* The module's one symbol: "lockstep_xrt_module". */
typedef const struct xrt_module *xrt_module_get(void);

#ifdef __cplusplus
}
#endif
