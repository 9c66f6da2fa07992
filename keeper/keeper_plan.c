#include "keeper/keeper_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "model/shape.h"

#define CTX_DEFAULT	  8192u
#define KV_TOKENS_DEFAULT 16384u

const struct opt keeper_options[] = {
	{"model", OPT_STRING, "", 0, 0, NULL, "GGUF file, or folder of safetensors or Q4NX"},
	{"model-name", OPT_STRING, "", 0, 0, NULL,
	 "name under which it is served; default: the model's own"},
	{"family", OPT_CHOICE, "a16-v1", 0, 0, "a16-v1|a16-kv8-v1|a8-v1|b16-v1|f32-v1",
	 "arithmetic family (docs/arithmetic.md)"},
	{"ctx", OPT_INT, "0", 0, 1048576, NULL,
	 "positions of one sequence; 0: the model's, at most 8192"},
	{"slots", OPT_INT, "8", 1, 256, NULL, "sequences that run at once"},
	{"kv-tokens", OPT_INT, "0", 0, 67108864, NULL,
	 "KV positions of all sequences together; 0: ctx or 16384"},
	{"queue", OPT_INT, "256", 1, 4096, NULL, "sequences that may wait"},
	{"kept", OPT_INT, "256", 1, 4096, NULL, "finished answers that may be kept"},
	{"end-frozen", OPT_BOOL, "true", 0, 0, NULL,
	 "end a frozen process (SIGKILL) that nothing stands in for"},
	{"body-pool-mb", OPT_INT, "64", 1, 1023, NULL, "memory for requests and answers (MiB)"},
	{0},
};

static enum svc_code choose_ctx(const struct opt_set *options, const struct model_shape *shape,
				uint32_t *ret_ctx, struct svc_err *err)
{
	uint32_t ctx = (uint32_t)opt_int(options, "ctx");
	if (ctx == 0)
		ctx = shape->ctx_train < CTX_DEFAULT ? shape->ctx_train : CTX_DEFAULT;
	if (ctx > shape->ctx_train)
		return svc_fail_param(err, SVC_BAD_CONFIG, "ctx",
				      "--ctx %u is more than the %u positions that %s was trained "
				      "for; use at most %u",
				      ctx, shape->ctx_train, shape->name, shape->ctx_train);
	if (ctx < PAGE_POSITIONS)
		return svc_fail_param(err, SVC_BAD_CONFIG, "ctx",
				      "--ctx %u is less than one KV page of %u positions", ctx,
				      PAGE_POSITIONS);
	*ret_ctx = ctx;
	return SVC_OK;
}

static enum svc_code choose_pages(const struct opt_set *options, struct run_plan *plan,
				  struct svc_err *err)
{
	uint32_t tokens = (uint32_t)opt_int(options, "kv-tokens");
	uint32_t per_sequence = (plan->ctx + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
	if (tokens == 0)
		tokens = plan->ctx > KV_TOKENS_DEFAULT ? plan->ctx : KV_TOKENS_DEFAULT;
	plan->n_pages = (tokens + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
	/* One sequence must always be able to run to its end alone; a frozen worker may keep a page
	 * of it. */
	if (plan->n_pages < per_sequence)
		return svc_fail_param(err, SVC_BAD_CONFIG, "kv-tokens",
				      "--kv-tokens %u is less than --ctx %u: one sequence must "
				      "fit; use at least %u",
				      tokens, plan->ctx, per_sequence * PAGE_POSITIONS);
	plan->n_pages += 1;
	return SVC_OK;
}

/* As the engine lays its pages out; it refuses a run whose pages are smaller. */
static uint64_t page_bytes_of(const char *family, const struct model_shape *shape)
{
	if (strcmp(family, "f32-v1") == 0)
		return model_page_bytes(shape, 4, 0);
	if (strcmp(family, "a16-kv8-v1") == 0)
		return model_page_bytes(shape, 1, 4);
	return model_page_bytes(shape, 2, 0);
}

enum svc_code keeper_plan_make(const struct opt_set *options, struct run_plan *ret_plan,
			       struct svc_err *err)
{
	static struct model_shape shape;
	static char fingerprint[64];
	const char *family = opt_string(options, "family"),
		   *name = opt_string(options, "model-name");
	if (!*opt_string(options, "model"))
		return svc_fail_param(
			err, SVC_BAD_CONFIG, "model",
			"--model is missing: the path of a GGUF file or a model folder");
	enum svc_code code = model_shape_read(opt_string(options, "model"), &shape, err);
	if (code != SVC_OK)
		return code;
	struct run_plan plan = {
		.n_slots = (uint32_t)opt_int(options, "slots"),
		.queue = (uint32_t)opt_int(options, "queue"),
		.kept = (uint32_t)opt_int(options, "kept"),
		.n_blocks =
			(uint32_t)opt_int(options, "body-pool-mb") * (1048576u / BODY_BLOCK_BYTES),
		.n_vocab = shape.n_vocab,
		.n_embd = shape.n_embd,
		.page_bytes = page_bytes_of(family, &shape),
		.stall_ms = (uint32_t)opt_int(options, "stall-ms"),
		.model_hash = {shape.hash[0], shape.hash[1]},
		.family_hash = XXH3_64bits(family, strlen(family)),
		.family = family,
		.model_name = *name ? name : shape.name,
		.model_path = opt_string(options, "model"),
	};
	snprintf(fingerprint, sizeof fingerprint, "ls_%012" PRIx64 "_%s", shape.hash[0] >> 16,
		 family);
	plan.fingerprint = fingerprint;
	code = choose_ctx(options, &shape, &plan.ctx, err);
	if (code == SVC_OK)
		code = choose_pages(options, &plan, err);
	if (code == SVC_OK)
		*ret_plan = plan;
	return code;
}
