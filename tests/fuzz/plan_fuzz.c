/* tests/fuzz/plan_fuzz.c: any GGUF file as a model: configuration, plan, packing, attaching. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "npu-worker/engine/region.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LARGEST = 16 << 20 };

/* What was planned must pack, and what was packed must attach. */
static void pack(const struct gguf *gguf, const struct plan *plan)
{
	struct region_job job = {.gguf = gguf, .plan = plan};
	struct plan *attached;
	if (plan->total_bytes > LARGEST)
		return;
	job.region = aligned_alloc(64, plan->total_bytes);
	if (!job.region)
		abort();
	if (region_pack(&job, NULL, NULL) == SVC_OK) {
		if (region_attach(job.region, plan->total_bytes, &job.model, true, &attached, NULL))
			abort();
		plan_close(attached);
	}
	free(job.region);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[64];
	struct gguf *gguf;
	struct plan *plan;
	int fd = memfd_create("model", MFD_CLOEXEC);
	if (fd < 0)
		abort();
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (write(fd, data, size) == (ssize_t)size && gguf_open(path, &gguf, NULL) == SVC_OK) {
		if (plan_open(gguf, 8, &plan, NULL) == SVC_OK) {
			pack(gguf, plan);
			plan_close(plan);
		}
		gguf_close(gguf);
	}
	close(fd);
	return 0;
}
