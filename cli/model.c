/* lockstep model inspect FILE: what a model file holds. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "model/gguf.h"
#include "model/shape.h"

static const struct opt model_options[] = {
	{"tensors", OPT_BOOL, "false", 0, 0, NULL, "list every tensor"},
	{0},
};

static void print_scalar(const struct gguf *gguf, const char *key)
{
	uint64_t whole;
	double real;
	bool truth;
	struct span text;
	struct gguf_array array;
	if (gguf_string(gguf, key, &text))
		printf("%.*s%s", (int)(text.len > 60 ? 60 : text.len), text.ptr,
		       text.len > 60 ? "…" : "");
	else if (gguf_bool(gguf, key, &truth))
		printf("%s", truth ? "true" : "false");
	else if (gguf_u64(gguf, key, &whole))
		printf("%" PRIu64, whole);
	else if (gguf_f64(gguf, key, &real))
		printf("%g", real);
	else if (gguf_array(gguf, key, &array))
		printf("[%" PRIu64 " values]", array.count);
}

static void print_tensors(const struct gguf *gguf, bool all)
{
	uint64_t counts[64] = {0}, bytes[64] = {0};
	for (size_t i = 0; i < gguf_tensor_count(gguf); i++) {
		const struct gguf_tensor *tensor = gguf_tensor_at(gguf, i);
		if (tensor->type < 64) {
			counts[tensor->type]++;
			bytes[tensor->type] += tensor->size_bytes;
		}
		if (!all)
			continue;
		const char *type = gguf_tensor_type_name(tensor->type);
		printf("  %-40.*s %-6s [%" PRIu64, (int)tensor->name.len, tensor->name.ptr,
		       type ? type : "?", tensor->dims[0]);
		for (uint32_t d = 1; d < tensor->n_dims; d++)
			printf(", %" PRIu64, tensor->dims[d]);
		printf("]\n");
	}
	for (uint32_t type = 0; type < 64; type++)
		if (counts[type]) {
			const char *name = gguf_tensor_type_name(type);
			printf("  %-6s %6" PRIu64 " tensors %8.1f MiB\n", name ? name : "?",
			       counts[type], (double)bytes[type] / 1048576.0);
		}
}

static enum svc_code inspect(const char *path, bool tensors, struct svc_err *err)
{
	struct gguf *gguf = NULL;
	struct model_shape shape;
	struct svc_err no_shape;
	struct span key;
	enum gguf_type type;
	enum svc_code code = gguf_open(path, &gguf, err);
	if (code != SVC_OK)
		return code;
	if (model_shape_read(path, &shape, &no_shape) == SVC_OK)
		printf("%s: %s, %u layers, vocabulary %u, context %u, XXH3-128 %016" PRIx64
		       "%016" PRIx64 "\n",
		       path, shape.arch, shape.n_layer, shape.n_vocab, shape.ctx_train,
		       shape.hash[0], shape.hash[1]);
	else
		printf("%s: %s\n", path, no_shape.msg);
	printf("metadata:\n");
	for (size_t i = 0; gguf_key_at(gguf, i, &key, &type); i++) {
		char name[256];
		snprintf(name, sizeof name, "%.*s", (int)key.len, key.ptr);
		printf("  %-44s ", name);
		print_scalar(gguf, name);
		printf("\n");
	}
	printf("tensors:\n");
	print_tensors(gguf, tensors);
	gguf_close(gguf);
	return SVC_OK;
}

int cli_model(int argc, char **argv)
{
	const struct opt_source source = {
		"lockstep model inspect FILE", "what a model file holds", {model_options}, true};
	struct opt_set *options = NULL;
	struct svc_err err = {0};
	int status;
	if (!cli_options(&source, argc, argv, &options, &status))
		return status;
	const char *verb = opt_positional(options, 0), *path = opt_positional(options, 1);
	enum svc_code code;
	if (!verb || strcmp(verb, "inspect") != 0 || !path)
		code = svc_fail(&err, SVC_USAGE, __func__,
				"usage: lockstep model inspect FILE [--tensors]");
	else
		code = inspect(path, opt_bool(options, "tensors"), &err);
	opt_free(options);
	return code == SVC_OK ? 0 : cli_fail(&err);
}
