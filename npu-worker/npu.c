/* Where the worker computes: on an NPU that can, or on the host. */
#include <string.h>

#include "base/log.h"
#include "npu-worker/device/products.h"
#include "npu-worker/worker_private.h"

static void on_beat(void *context)
{
	svc_beat(context);
}

enum svc_code npu_look(const struct svc *svc, bool *ret_wanted, struct svc_err *err)
{
	const struct device_options none = {.module = ""};
	const char *device = opt_string(svc->options, "device");
	*ret_wanted = false;
	if (strcmp(device, "host") == 0)
		return SVC_OK;
	enum svc_code code = device_probe(&none, err);
	*ret_wanted = code == SVC_OK;
	if (code == SVC_OK || strcmp(device, "auto") == 0)
		return SVC_OK;
	svc_err_prefix(err, "--device xrt");
	return code;
}

static enum svc_code open_products(struct worker *worker, struct products **ret_products,
				   struct svc_err *err)
{
	struct svc *svc = worker->svc;
	struct plan *plan = NULL;
	const struct products_options options = {
		.module = opt_string(svc->options, "xrt-module"),
		.kernels = opt_string(svc->options, "kernels"),
		.family = svc->run.ctl->config.family,
		.region = (char *)worker->weights.base + WEIGHTS_OFFSET,
		.region_bytes = worker->weights.bytes - WEIGHTS_OFFSET,
		.limit_us = (uint64_t)opt_int(svc->options, "device-limit-ms") * 1000,
		.beat = on_beat,
		.context = svc,
	};
	enum svc_code code =
		region_attach(options.region, options.region_bytes, NULL, false, &plan, err);
	if (code == SVC_OK)
		code = products_open(&options, plan, ret_products, err);
	plan_close(plan);
	return code;
}

enum svc_code npu_open(struct worker *worker, struct svc_err *err)
{
	const char *device = opt_string(worker->svc->options, "device");
	struct products *products = NULL;
	if (strcmp(device, "host") == 0)
		return SVC_OK;
	enum svc_code code = open_products(worker, &products, err);
	if (code == SVC_OK) {
		const struct engine_executor executor = products_executor(products);
		engine_set_executor(worker->engine, &executor);
		worker->products = products;
		log_info("NPU: products on the device, weights %s",
			 products_shares_weights(products) ? "in place" : "copied");
		return SVC_OK;
	}
	if (strcmp(device, "xrt") == 0) {
		svc_err_prefix(err, "--device xrt");
		return code;
	}
	log_info("computing on the host: %s", err->msg);
	return SVC_OK;
}

void npu_close(struct worker *worker)
{
	products_close(worker->products);
	worker->products = NULL;
}
