#include "npu-worker/device/products.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "npu-worker/device/layers.h"

enum { MAX_MATRICES = 3, ALIGNMENT = 64, PAGE = 4096 };

struct products {
	struct products_options options;
	struct manifest *manifest;
	struct device *device;
	struct area weights, acts, output;
	struct layers *layers; /* NULL: products */
	char no_layers[LAYERS_WHY];
	struct device_buffer *streams[MAX_MATRICES];
	size_t acts_bytes, output_bytes;
};

static size_t aligned(size_t bytes)
{
	return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The activations' buffer: codes, steps, steps times sums, each of max_tokens rows. */
static size_t steps_offset(uint32_t tokens, uint32_t cols)
{
	return aligned((size_t)tokens * cols * sizeof(int16_t));
}

static size_t sums_offset(uint32_t tokens, uint32_t cols)
{
	return steps_offset(tokens, cols) +
	       aligned((size_t)tokens * (cols / KERNELS_GROUP) * sizeof(float));
}

static size_t acts_bytes(uint32_t tokens, uint32_t cols)
{
	return sums_offset(tokens, cols) +
	       aligned((size_t)tokens * (cols / KERNELS_GROUP) * sizeof(float));
}

/* Every product has a kernel; the sizes of the buffers that they need. The embedding is looked up
 * on the host; it is a product only where it is the head. */
static enum svc_code check_plan(const struct products *products, const struct plan *plan,
				size_t *ret_acts, size_t *ret_output, struct svc_err *err)
{
	char there[300];
	uint32_t tokens = products->manifest->max_tokens;
	bool own_head = plan_find(plan, PART_OUTPUT, 0) != NULL;
	*ret_acts = *ret_output = ALIGNMENT;
	if (strcmp(products->options.family, "a16-v1") != 0)
		return svc_fail(err, SVC_NO_DEVICE, __func__,
				"%s has no layers for this model (%s); single products are for "
				"the family a16-v1, the run serves %s",
				products->options.kernels, products->no_layers,
				products->options.family);
	for (uint32_t i = 0; i < plan->n_parts; i++) {
		const struct plan_part *part = &plan->parts[i];
		const struct kernels_matrix matrix = {part->type, part->rows, part->cols, NULL};
		if (!part->is_matrix || (part->role == PART_EMBED && own_head))
			continue;
		manifest_list(products->manifest, there, sizeof there);
		if (!manifest_find(products->manifest, &matrix))
			return svc_fail(err, SVC_NO_DEVICE, __func__,
					"%s has no kernel for %s %ux%u of this model; it has "
					"%s%s%s",
					products->options.kernels,
					gguf_tensor_type_name(part->type), part->rows, part->cols,
					there, *products->no_layers ? "; layers: " : "",
					products->no_layers);
		size_t acts = acts_bytes(tokens, part->cols);
		size_t output = (size_t)tokens * part->rows * sizeof(float) * MAX_MATRICES;
		*ret_acts = acts > *ret_acts ? acts : *ret_acts;
		*ret_output = output > *ret_output ? output : *ret_output;
	}
	return SVC_OK;
}

static enum svc_code make_buffers(struct products *products, struct svc_err *err)
{
	const struct products_options *o = &products->options;
	struct device *d = products->device;
	size_t acts = (products->acts_bytes + PAGE - 1) / PAGE * PAGE;
	void *memory = NULL;
	enum svc_code code = o->memory(o->context, acts + products->output_bytes, &memory, err);
	if (code == SVC_OK)
		code = area_open(d, memory, acts, "activations", &products->acts, err);
	if (code == SVC_OK)
		code = area_open(d, (char *)memory + acts, products->output_bytes, "outputs",
				 &products->output, err);
	for (uint32_t i = 0; i < MAX_MATRICES && code == SVC_OK; i++)
		code = device_buffer_new(d, DEVICE_INSTRUCTIONS,
					 MANIFEST_MAX_WORDS * sizeof(uint32_t),
					 &products->streams[i], err);
	return code;
}

static enum svc_code make_layers(struct products *products, const struct plan *plan,
				 struct svc_err *err)
{
	const struct products_options *o = &products->options;
	const struct layers_options options = {
		.device = products->device,
		.manifest = products->manifest,
		.weights = &products->weights,
		.pages = o->pages,
		.pages_bytes = o->pages_bytes,
		.logits = o->logits,
		.logits_bytes = o->logits_bytes,
		.page_bytes = o->page_bytes,
		.limit_us = o->limit_us,
		.memory = o->memory,
		.beat = o->beat,
		.context = o->context,
	};
	return layers_open(&options, plan, &products->layers, err);
}

/* Is there a kernel for everything? */
static enum svc_code check_kernels(struct products *products, const struct plan *plan,
				   bool *ret_layers, struct svc_err *err)
{
	const struct products_options *o = &products->options;
	enum svc_code code = *o->kernels
				     ? manifest_open(o->kernels, &products->manifest, err)
				     : svc_fail(err, SVC_NO_DEVICE, __func__,
						"no NPU kernels: --kernels names no folder with a "
						"manifest.json");
	if (code == SVC_OK && strcmp(products->manifest->family, o->family) != 0)
		code = svc_fail(err, SVC_NO_DEVICE, __func__, "%s computes %s, the run serves %s",
				o->kernels, products->manifest->family, o->family);
	if (code != SVC_OK)
		return code;
	const struct manifest_layer *kernels[MODEL_MAX_LAYERS];
	*ret_layers = layers_fit(products->manifest, plan, kernels, products->no_layers);
	return *ret_layers ? SVC_OK
			   : check_plan(products, plan, &products->acts_bytes,
					&products->output_bytes, err);
}

static enum svc_code open_device(struct products *products, const struct plan *plan, bool layers,
				 struct svc_err *err)
{
	const struct products_options *o = &products->options;
	const struct device_options device = {
		.module = o->module,
		.program = products->manifest->program,
		.kernel = products->manifest->kernel,
		.memory_bytes = o->region_bytes + (layers ? o->pages_bytes + o->logits_bytes : 0)};
	enum svc_code code = device_open(&device, &products->device, err);
	if (code == SVC_OK)
		code = area_open(products->device, o->region, o->region_bytes, "weights",
				 &products->weights, err);
	if (code == SVC_OK)
		code = area_send(&products->weights, 0, o->region_bytes, err);
	if (code == SVC_OK)
		code = layers ? make_layers(products, plan, err) : make_buffers(products, err);
	return code;
}

enum svc_code products_open(const struct products_options *options, const struct plan *plan,
			    struct products **ret_products, struct svc_err *err)
{
	const struct device_options device = {.module = options->module,
					      .memory_bytes = options->region_bytes};
	bool layers = false;
	enum svc_code code = device_probe(&device, err);
	if (code != SVC_OK)
		return code;
	struct products *products = calloc(1, sizeof *products);
	if (!products)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	products->options = *options;
	code = check_kernels(products, plan, &layers, err);
	if (code == SVC_OK)
		code = open_device(products, plan, layers, err);
	if (code == SVC_OK)
		*ret_products = products;
	else
		products_close(products);
	return code;
}

struct products *products_close(struct products *products)
{
	if (!products)
		return NULL;
	for (uint32_t i = 0; i < MAX_MATRICES; i++)
		device_buffer_free(products->streams[i]);
	area_close(&products->output);
	area_close(&products->acts);
	layers_close(products->layers);
	area_close(&products->weights);
	device_close(products->device);
	manifest_close(products->manifest);
	free(products);
	return NULL;
}

bool products_in_place(const struct products *products)
{
	return products->weights.in_place &&
	       (products->layers ? layers_counts(products->layers).in_place
				 : products->acts.in_place && products->output.in_place);
}

/* Rows [first, first + count) of the activations into the device's memory. */
static enum svc_code send_acts(struct products *products, const struct kernels_acts *acts,
			       uint32_t first, uint32_t count, struct svc_err *err)
{
	uint32_t tokens = products->manifest->max_tokens, cols = acts->cols;
	size_t groups = cols / KERNELS_GROUP;
	char *to = products->acts.base;
	memcpy(to, acts->q16 + (size_t)first * cols, (size_t)count * cols * sizeof *acts->q16);
	memcpy(to + steps_offset(tokens, cols), acts->dx + first * groups,
	       count * groups * sizeof *acts->dx);
	memcpy(to + sums_offset(tokens, cols), acts->sx + first * groups,
	       count * groups * sizeof *acts->sx);
	return area_send(&products->acts, 0, acts_bytes(tokens, cols), err);
}

/* The list of runs for `count` tokens; ret_bytes: of output, matrix after matrix. */
static enum svc_code make_runs(struct products *products, const struct engine_product *p,
			       uint32_t count, struct device_run *runs, size_t *ret_bytes,
			       struct svc_err *err)
{
	size_t output = 0;
	enum svc_code code = SVC_OK;
	for (uint32_t m = 0; m < p->n_matrices && code == SVC_OK; m++) {
		const struct kernels_matrix *matrix = &p->matrices[m];
		const struct manifest_product *kernel = manifest_find(products->manifest, matrix);
		uint32_t *words = device_buffer_memory(products->streams[m]);
		uint64_t weights = (uint64_t)((const char *)matrix->data -
					      (const char *)products->options.region);
		if (!kernel)
			return svc_fail(err, SVC_INTERNAL, __func__, "no kernel for a product");
		manifest_product_words(kernel, count, weights, (uint32_t)output, words);
		runs[m] = (struct device_run){
			products->streams[m],
			kernel->stream.n_words,
			{products->weights.buffer, products->acts.buffer, products->output.buffer}};
		code = device_sync(products->streams[m], DEVICE_TO, 0,
				   kernel->stream.n_words * sizeof *words, err);
		output += (size_t)products->manifest->max_tokens * matrix->rows * sizeof(float);
	}
	*ret_bytes = output;
	return code;
}

static void fetch_output(struct products *products, const struct engine_product *p, uint32_t first,
			 uint32_t count)
{
	const char *from = products->output.base;
	float *to = p->y;
	for (uint32_t m = 0; m < p->n_matrices; m++) {
		size_t width = p->matrices[m].rows * sizeof(float);
		for (uint32_t row = 0; row < count; row++)
			memcpy(to + (first + row) * p->y_stride, from + row * width, width);
		from += products->manifest->max_tokens * width;
		to += p->matrices[m].rows;
	}
}

static enum svc_code dispatch(struct products *products, const struct engine_product *p,
			      uint32_t first, uint32_t count, struct svc_err *err)
{
	const struct products_options *o = &products->options;
	struct device_run runs[MAX_MATRICES];
	size_t bytes = 0;
	enum svc_code code = send_acts(products, p->acts, first, count, err);
	if (code == SVC_OK)
		code = make_runs(products, p, count, runs, &bytes, err);
	if (code == SVC_OK)
		code = device_submit(products->device, runs, p->n_matrices, err);
	if (code == SVC_OK)
		code = device_wait(products->device, o->limit_us, o->beat, o->context, err);
	if (code == SVC_OK)
		code = area_fetch(&products->output, 0, bytes, err);
	if (code == SVC_OK)
		fetch_output(products, p, first, count);
	return code;
}

/* What a hung device may still write can't be freed, nor used again. */
static void leave(const struct products *products, const struct svc_err *err)
{
	if (products->options.failed)
		products->options.failed(products->options.context, err);
	log_error(err->code, "the NPU failed, this process leaves: %s", err->msg);
	_exit(svc_code_info(SVC_DEVICE)->exit_status);
}

static void multiply(void *context, const struct engine_product *product)
{
	struct products *products = context;
	uint32_t most = products->manifest->max_tokens, rows = product->acts->rows;
	struct svc_err err;
	for (uint32_t first = 0; first < rows; first += most) {
		uint32_t count = rows - first < most ? rows - first : most;
		if (dispatch(products, product, first, count, &err) != SVC_OK)
			leave(products, &err);
	}
}

static void run_layers(void *context, const struct engine_pass *pass)
{
	struct products *products = context;
	struct svc_err err;
	if (layers_run(products->layers, pass, &err) != SVC_OK)
		leave(products, &err);
}

struct engine_executor products_executor(struct products *products)
{
	return products->layers ? (struct engine_executor){products, NULL, run_layers}
				: (struct engine_executor){products, multiply, NULL};
}

void products_check(const struct products *products)
{
	struct svc_err err;
	if (device_health(products->device, &err) != SVC_OK)
		leave(products, &err);
}

enum svc_code products_refresh(struct products *products, struct svc_err *err)
{
	if (products->layers)
		layers_forget(products->layers);
	return area_send(&products->weights, 0, products->options.region_bytes, err);
}

const char *products_no_layers(const struct products *products)
{
	return products->no_layers;
}

const struct layers *products_layers(const struct products *products)
{
	return products->layers;
}
