/* Where the worker computes: on an NPU that can, or on the host. */
#include "npu-worker/npu.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "npu-worker/device/backoff.h"
#include "npu-worker/device/layers.h"
#include "npu-worker/device/products.h"
#include "services/why.h"

#define CHECK_US 1000000u

static void on_beat(void *context)
{
	svc_beat(context);
}

/* For who comes next, and for who asks why there is no worker. */
static void on_failed(void *context, const struct svc_err *err)
{
	const struct svc *svc = context;
	char text[SVC_WHY_TEXT];
	backoff_note(svc->run.bulk_dir, svc_now_us());
	snprintf(text, sizeof text, "the NPU failed: %.480s", err->msg);
	svc_why_note(&svc->run, ROLE_WORKER, text);
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

/* A device that failed again and again is left alone for a while: SVC_NO_DEVICE where the host may
 * compute instead, otherwise waited for. */
static enum svc_code let_rest(struct svc *svc, struct svc_err *err)
{
	struct inc_entry *me = &svc->run.ctl->incs[svc->run.me];
	uint64_t pause_us = (uint64_t)opt_int(svc->options, "device-pause-ms") * 1000;
	uint64_t until = backoff_until(svc->run.bulk_dir, svc_now_us(), pause_us);
	if (!until)
		return SVC_OK;
	if (strcmp(opt_string(svc->options, "device"), "auto") == 0)
		return svc_fail(err, SVC_NO_DEVICE, __func__,
				"the NPU failed %d times within a minute and is left alone",
				BACKOFF_FAILURES);
	log_warn("the NPU failed %d times within a minute: it is left alone for %" PRIu64 " ms",
		 BACKOFF_FAILURES, (until - svc_now_us()) / 1000);
	atomic_store(&me->npu_pause_us, until);
	while (svc_now_us() < until && svc_beat(svc))
		usleep(20000);
	atomic_store(&me->npu_pause_us, 0);
	return SVC_OK;
}

/* ---- the segment of activations */

/* Named after the incarnation, so that no successor ever meets it: a dead one's device may still
 * write to its own. The name goes with the incarnation's other files. */
static struct seg_place activations_place(const struct shm_run *run, char *name, size_t size)
{
	snprintf(name, size, INC_ACTIVATIONS, run->number);
	return (struct seg_place){run->bulk_dir, name, SEG_ACTIVATIONS, run->ctl->header.run_id};
}

static enum svc_code make_activations(void *context, size_t bytes, void **ret_memory,
				      struct svc_err *err)
{
	struct svc *svc = context;
	struct worker *worker = svc->role_state;
	struct segment made;
	char name[32];
	bool won = false;
	const struct seg_place place = activations_place(&svc->run, name, sizeof name);
	enum svc_code code = seg_create(&place, WEIGHTS_OFFSET + bytes, &made, err);
	if (code != SVC_OK)
		return code;
	code = seg_publish(&place, &made, &won, err);
	if (code == SVC_OK && !won)
		code = svc_fail(err, SVC_INTERNAL, __func__, "%s/%s is there already", place.dir,
				name);
	/* A mapping from before it had a name would show none. */
	seg_unmap(&made);
	if (code == SVC_OK)
		code = seg_attach(&place, true, &worker->activations, err);
	if (code == SVC_OK)
		*ret_memory = (char *)worker->activations.base + WEIGHTS_OFFSET;
	return code;
}

static void drop_activations(struct worker *worker)
{
	char name[32], path[320];
	const struct seg_place place = activations_place(&worker->svc->run, name, sizeof name);
	snprintf(path, sizeof path, "%s/%s", place.dir, place.name);
	unlink(path);
	seg_unmap(&worker->activations);
}

/* ---- opening and closing */

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
		.pages = svc->run.pages.base,
		.pages_bytes = svc->run.pages.bytes,
		.page_bytes = svc->run.page_bytes,
		.logits = svc->run.logits.base,
		.logits_bytes = svc->run.logits.bytes,
		.limit_us = (uint64_t)opt_int(svc->options, "device-limit-ms") * 1000,
		.memory = make_activations,
		.beat = on_beat,
		.failed = on_failed,
		.context = svc,
	};
	enum svc_code code =
		region_attach(options.region, options.region_bytes, NULL, false, &plan, err);
	if (code == SVC_OK)
		code = products_open(&options, plan, ret_products, err);
	plan_close(plan);
	return code;
}

static void log_opened(const struct products *products)
{
	const struct layers *layers = products_layers(products);
	log_info("NPU: %s on the device; weights%s activations%s: %s",
		 layers ? "layers" : "products", layers ? "," : " and",
		 layers ? ", KV pages and logits" : "",
		 products_in_place(products) ? "in place" : "copied");
	if (*products_no_layers(products))
		log_info("NPU: no whole layers: %s", products_no_layers(products));
}

enum svc_code npu_open(struct worker *worker, struct svc_err *err)
{
	const char *device = opt_string(worker->svc->options, "device");
	struct products *products = NULL;
	if (strcmp(device, "host") == 0)
		return SVC_OK;
	enum svc_code code = let_rest(worker->svc, err);
	if (code == SVC_OK)
		code = open_products(worker, &products, err);
	if (code == SVC_OK) {
		const struct engine_executor executor = products_executor(products);
		engine_set_executor(worker->engine, &executor);
		worker->products = products;
		log_opened(products);
		return SVC_OK;
	}
	drop_activations(worker);
	if (strcmp(device, "xrt") == 0) {
		svc_err_prefix(err, "--device xrt");
		return code;
	}
	log_info("computing on the host: %s", err->msg);
	return SVC_OK;
}

void npu_check(struct worker *worker)
{
	uint64_t now = svc_now_us();
	if (!worker->products || now - worker->npu_checked_us < CHECK_US)
		return;
	worker->npu_checked_us = now;
	products_check(worker->products);
}

void npu_close(struct worker *worker)
{
	const struct layers *layers = worker->products ? products_layers(worker->products) : NULL;
	if (layers) {
		const struct layers_counts n = layers_counts(layers);
		log_info("NPU: %" PRIu64 " passes, one list of runs each; %" PRIu64
			 " of them with positions prepared while the one before ran; %" PRIu64
			 " sets of instruction streams derived",
			 n.passes, n.prepared, n.derived);
	}
	products_close(worker->products);
	worker->products = NULL;
	drop_activations(worker);
}
