/* lockstep verify: the table of the instruments, and what their options have in common. */
#include "cli/verify.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cores.h"
#include "base/log.h"
#include "tokenizer/prompt.h"

static const struct cli_command verbs[] = {
	{"floats", "two files of raw numbers, element by element", verify_floats},
	{"capture", "runs a prompt and records what was computed", verify_capture},
	{"replay", "runs a capture's tokens again and compares every record", verify_replay},
	{"compare", "two captures of the same tokens", verify_compare},
	{"diverge", "where two configurations differ first, from one state", verify_diverge},
	{"ladder", "the same with growing context and depth", verify_ladder},
	{"sweep", "which arithmetic makes two configurations differ", verify_sweep},
	{"histogram", "how far ordinary decode would have chosen otherwise", verify_histogram},
	{"prefill", "a prompt in batches against one by one", verify_prefill},
	{"same-prefix", "logits against a reference's, on its own tokens", verify_same_prefix},
	{"greedy", "own greedy tokens against a reference's", verify_greedy},
	{"attribution", "what the engine changes, and what the container did", verify_attribution},
	{"tape", "a server's draws, computed again", verify_tape},
	{"rope", "position tables against a reference's", verify_rope},
	{"tensors", "a container's matrices against a checkpoint's", verify_tensors},
};

const struct opt verify_engine_options[] = {
	{"model", OPT_STRING, "", 0, 0, NULL, "GGUF file"},
	{"family", OPT_STRING, "a16-v1", 0, 0, NULL, "arithmetic family"},
	{"isa", OPT_STRING, "auto", 0, 0, NULL, "instruction set"},
	{"threads", OPT_INT, "0", 0, 256, NULL, "compute threads; 0: one per core"},
	{"ctx", OPT_INT, "0", 0, 1 << 22, NULL, "positions; 0: as many as the tokens need"},
	{"chunk", OPT_INT, "64", 1, 512, NULL, "prompt positions per step"},
	{"neighbours", OPT_INT, "0", 0, 63, NULL, "other sequences that share every step"},
	VERIFY_DEVICE_OPTIONS,
	{0},
};

const struct opt verify_prompt_options[] = {
	{"prompt", OPT_STRING, "", 0, 0, NULL, "text, with what the tokenizer puts around it"},
	{"chat", OPT_STRING, "", 0, 0, NULL, "a user's message, through the chat template"},
	{"ids", OPT_STRING, "", 0, 0, NULL, "token ids, separated by commas"},
	{0},
};

static int verify_usage(FILE *out)
{
	fprintf(out, "usage: lockstep verify VERB [options]\n\n");
	for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
		fprintf(out, "  %-12s %s\n", verbs[i].name, verbs[i].summary);
	fprintf(out, "\nlockstep verify VERB --help tells the options of one. Exit status: 0 the "
		     "same, 1 different, 64 and above: it could not be run.\n");
	return out == stdout ? 0 : 64;
}

int cli_verify(int argc, char **argv)
{
	if (argc < 2)
		return verify_usage(stderr);
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
		return verify_usage(stdout);
	/* What a device's opening has to tell is for a service's log. */
	log_set_level(LOG_LEVEL_WARN);
	for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
		if (strcmp(argv[1], verbs[i].name) == 0)
			return verbs[i].run(argc - 1, argv + 1);
	fprintf(stderr, "lockstep verify: unknown verb \"%.64s\"\n\n", argv[1]);
	return verify_usage(stderr);
}

enum svc_code verify_read_config(const struct opt_set *options, struct vfy_config *ret_config,
				 struct svc_err *err)
{
	int64_t threads = opt_int(options, "threads");
	if (!*opt_string(options, "model"))
		return svc_fail_param(err, SVC_USAGE, "model", "--model FILE is needed");
	*ret_config = (struct vfy_config){
		.model = opt_string(options, "model"),
		.family = opt_string(options, "family"),
		.isa = opt_string(options, "isa"),
		.threads = threads ? (uint32_t)threads : cores_usable(),
		.ctx = (uint32_t)opt_int(options, "ctx"),
		.chunk = (uint32_t)opt_int(options, "chunk"),
		.neighbours = (uint32_t)opt_int(options, "neighbours"),
		.device = opt_string(options, "device"),
		.kernels = opt_string(options, "kernels"),
		.xrt_module = opt_string(options, "xrt-module"),
		.device_limit_us = (uint64_t)opt_int(options, "device-limit-ms") * 1000,
	};
	return SVC_OK;
}

/* ---- prompts */

static enum svc_code read_ids(const char *text, int32_t **ret_ids, uint32_t *ret_count,
			      struct svc_err *err)
{
	int32_t *ids = calloc(strlen(text) / 2 + 1, sizeof *ids);
	uint32_t n = 0;
	if (!ids)
		return svc_fail_errno(err, __func__, "no memory for the ids");
	for (const char *at = text; *at;) {
		char *end;
		errno = 0;
		long id = strtol(at, &end, 10);
		if (end == at || errno || id < 0 || id > INT32_MAX || (*end && *end != ',')) {
			free(ids);
			return svc_fail_param(err, SVC_USAGE, "ids",
					      "--ids: \"%.20s\" is not a token id; whole numbers "
					      "separated by commas are needed",
					      at);
		}
		ids[n++] = (int32_t)id;
		at = *end ? end + 1 : end;
	}
	*ret_ids = ids;
	*ret_count = n;
	return SVC_OK;
}

static enum svc_code render_chat(const struct tok *tok, const char *message,
				 struct prompt *ret_prompt, struct svc_err *err)
{
	struct span source;
	struct tmpl *tmpl = NULL;
	struct buf chat = {0};
	if (!tok_chat_template(tok, NULL, &source))
		return svc_fail_param(err, SVC_UNSUPPORTED, "chat",
				      "--chat: this model has no chat template; use --prompt");
	enum svc_code code = tmpl_compile(source, &tmpl, err);
	if (!code) {
		const struct prompt_source prompt_source = {.tok = tok, .tmpl = tmpl};
		buf_print(&chat, "{\"messages\":[{\"role\":\"user\",\"content\":");
		buf_json_string(&chat, span_of(message));
		buf_print(&chat, "}],\"add_generation_prompt\":true}");
		code = chat.failed
			       ? svc_fail_errno(err, __func__, "no memory for the message")
			       : prompt_from_chat(&prompt_source, (struct span){chat.ptr, chat.len},
						  ret_prompt, err);
	}
	buf_free(&chat);
	tmpl_free(tmpl);
	return code;
}

static enum svc_code tokenize(const struct tok *tok, const char *text, bool chat,
			      struct tok_ids *ret_ids, struct svc_err *err)
{
	struct prompt prompt = {0};
	struct tok_encode_options options = {chat ? TOK_ADD_MISSING : TOK_ADD_ALWAYS, 0};
	enum svc_code code = chat ? render_chat(tok, text, &prompt, err)
				  : prompt_from_text(span_of(text), &prompt, err);
	if (!code)
		code = tok_encode(tok, prompt.pieces, prompt.n_pieces, &options, ret_ids, err);
	prompt_free(&prompt);
	return code;
}

enum svc_code verify_read_prompt(const struct opt_set *options, const char *model,
				 int32_t **ret_ids, uint32_t *ret_count, struct svc_err *err)
{
	const char *text = opt_string(options, "prompt"), *chat = opt_string(options, "chat");
	const char *list = opt_string(options, "ids");
	if (!!*text + !!*chat + !!*list != 1)
		return svc_fail_param(err, SVC_USAGE, "prompt",
				      "one of --prompt, --chat and --ids is needed");
	if (*list)
		return read_ids(list, ret_ids, ret_count, err);
	struct tok *tok = NULL;
	struct tok_ids ids = {0};
	enum svc_code code = tok_open(&(struct tok_options){model, NULL}, &tok, err);
	if (!code)
		code = tokenize(tok, *chat ? chat : text, *chat, &ids, err);
	tok_free(tok);
	if (!code && ids.len == 0)
		code = svc_fail_param(err, SVC_USAGE, "prompt", "the prompt has no tokens");
	if (code) {
		tok_ids_free(&ids);
		return code;
	}
	*ret_ids = ids.ptr;
	*ret_count = (uint32_t)ids.len;
	return SVC_OK;
}

/* A whole number at *at, which moves behind it. */
static bool take_number(const char **at, uint32_t *ret)
{
	char *end;
	errno = 0;
	unsigned long value = strtoul(*at, &end, 10);
	if (**at < '0' || **at > '9' || errno || value > UINT32_MAX)
		return false;
	*at = end;
	*ret = (uint32_t)value;
	return true;
}

enum svc_code verify_read_range(const char *name, const char *text, uint32_t *ret_first,
				uint32_t *ret_last, struct svc_err *err)
{
	uint32_t first = 0, last = UINT32_MAX;
	const char *at = text;
	bool good = strcmp(text, "all") == 0;
	if (!good && take_number(&at, &first)) {
		last = first;
		good = *at == '-' ? (at++, take_number(&at, &last)) && !*at : !*at;
	}
	if (!good)
		return svc_fail_param(err, SVC_USAGE, name,
				      "--%s is \"%.40s\"; a number, a range like 0-3, or all is "
				      "needed",
				      name, text);
	*ret_first = first;
	*ret_last = last;
	return SVC_OK;
}
