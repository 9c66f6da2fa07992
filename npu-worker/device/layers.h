/* npu-worker/device/layers.h: whole layers on an NPU: one list of runs for all layers and the head,
 * once per pass. Keys and values are read and written in the pages that all workers share, logits
 * written where the samplers read them. */
#pragma once
#include "npu-worker/device/area.h"
#include "npu-worker/device/manifest.h"
#include "npu-worker/engine/engine.h"

struct layers;

struct layers_options {
	struct device *device;
	const struct manifest *manifest;
	const struct area *weights;
	void *pages; /* the segments that all workers share; page aligned, writable */
	size_t pages_bytes;
	void *logits;
	size_t logits_bytes;
	size_t page_bytes;
	uint64_t limit_us;
	area_memory *memory; /* called once */
	void (*beat)(void *context);
	void *context;
};

enum { LAYERS_WHY = 300 };

/* The kernels of this model's layers, [n_layers], and one for its head. false: why says what there
 * is none for; nothing, if the manifest has no layers at all. */
bool layers_fit(const struct manifest *manifest, const struct plan *plan,
		const struct manifest_layer **ret_kernels, char why[LAYERS_WHY]);

SVC_CHECKED enum svc_code layers_open(const struct layers_options *options, const struct plan *plan,
				      struct layers **ret_layers, struct svc_err *err);
/* NULL is fine. Returns NULL. Nothing may be running. */
struct layers *layers_close(struct layers *layers);

/* All layers and the head for the pass' rows. On failure nothing may be freed: leave by _exit. */
SVC_CHECKED enum svc_code layers_run(struct layers *layers, const struct engine_pass *pass,
				     struct svc_err *err);

/* Position tables that were filled in ahead are out of date. */
void layers_forget(struct layers *layers);

struct layers_counts {
	uint64_t passes;
	uint64_t derived;  /* sets of instruction streams made, not found in the cache */
	uint64_t prepared; /* passes whose positions had been filled in while the one before ran */
	bool in_place;	   /* pages, logits and activations are the shared ones */
};
struct layers_counts layers_counts(const struct layers *layers);
