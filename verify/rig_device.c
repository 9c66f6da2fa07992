/* A rig whose engine is an NPU's, as the worker's is: the same lock, buffers, streams and runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npu-worker/device/layers.h"
#include "verify/rig_private.h"

enum { PAGE = 4096 };

void *vfy_rig_memory(size_t *bytes)
{
	*bytes = (*bytes + PAGE - 1) / PAGE * PAGE;
	return aligned_alloc(PAGE, *bytes);
}

static bool wants_npu(const struct vfy_config *config)
{
	return config->device && strcmp(config->device, "xrt") == 0;
}

enum svc_code vfy_check_devices(const struct vfy_config *a, const struct vfy_config *b,
				struct svc_err *err)
{
	if (!wants_npu(a) || !wants_npu(b))
		return SVC_OK;
	return svc_fail_param(err, SVC_USAGE, "device",
			      "both sides are on the NPU, which one side can own: give the other "
			      "device=host, or capture one and replay it with the other");
}

bool vfy_rig_is_on_npu(const struct vfy_rig *rig)
{
	return rig->products;
}

bool vfy_rig_is_whole(const struct vfy_rig *rig)
{
	return rig->products && products_layers(rig->products);
}

const char *vfy_rig_where(const struct vfy_rig *rig)
{
	return rig->where;
}

static enum svc_code give_memory(void *context, size_t bytes, void **ret_memory,
				 struct svc_err *err)
{
	struct vfy_rig *rig = context;
	rig->activations = vfy_rig_memory(&bytes);
	if (!rig->activations)
		return svc_fail_errno(err, __func__, "no memory for activations");
	*ret_memory = rig->activations;
	return SVC_OK;
}

enum svc_code vfy_rig_open_device(struct vfy_rig *rig, struct svc_err *err)
{
	const struct vfy_config *c = &rig->config;
	const struct engine_info *info = engine_info(rig->engine);
	size_t logits_bytes = (size_t)c->chunk * info->config.n_vocab * sizeof(float);
	snprintf(rig->where, sizeof rig->where, "%s", info->isa);
	if (!wants_npu(c))
		return SVC_OK;
	rig->logits = vfy_rig_memory(&logits_bytes);
	if (!rig->logits)
		return svc_fail_errno(err, __func__, "no memory for logits");
	const struct products_options options = {.module = c->xrt_module ? c->xrt_module : "",
						 .kernels = c->kernels ? c->kernels : "",
						 .family = c->family,
						 .region = rig->region,
						 .region_bytes = rig->region_bytes,
						 .pages = rig->pages,
						 .pages_bytes = rig->pages_bytes,
						 .page_bytes = info->page_bytes,
						 .logits = rig->logits,
						 .logits_bytes = logits_bytes,
						 .limit_us = c->device_limit_us,
						 .memory = give_memory,
						 .context = rig};
	enum svc_code code = products_open(&options, rig->plan, &rig->products, err);
	if (code) {
		svc_err_prefix(err, "--device xrt");
		return code;
	}
	const struct engine_executor executor = products_executor(rig->products);
	engine_set_executor(rig->engine, &executor);
	if (vfy_rig_is_whole(rig))
		snprintf(rig->where, sizeof rig->where, "xrt layers");
	else
		snprintf(rig->where, sizeof rig->where, "%s and xrt products", info->isa);
	return SVC_OK;
}

void vfy_rig_close_device(struct vfy_rig *rig)
{
	rig->products = products_close(rig->products);
	free(rig->activations);
	free(rig->logits);
}
