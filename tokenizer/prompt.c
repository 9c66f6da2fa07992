#include "tokenizer/prompt.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/roles.h"
#include "tokenizer/tool_prompt.h"

static enum svc_code pieces_of(struct prompt *prompt, struct svc_err *err)
{
	size_t n = prompt->rendered.piece_count;
	prompt->pieces = calloc(n ? n : 1, sizeof *prompt->pieces);
	if (!prompt->pieces)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	for (size_t i = 0; i < n; i++) {
		const struct tmpl_piece *piece = &prompt->rendered.pieces[i];
		prompt->pieces[i] = (struct tok_piece){
			{prompt->rendered.text + piece->offset, piece->length}, piece->trusted};
	}
	prompt->n_pieces = n;
	return SVC_OK;
}

/* The text of a special token, for templates that print bos_token. */
static struct span token_text(const struct tok *tok, int32_t id)
{
	return id < 0 ? (struct span){NULL, 0} : tok_token_bytes(tok, id);
}

static enum svc_code choose_template(const struct prompt_source *source, const json_t *chat,
				     struct tmpl **ret_own, const struct tmpl **ret_tmpl,
				     struct svc_err *err)
{
	const json_t *given = json_object_get(chat, "chat_template");
	*ret_own = NULL;
	*ret_tmpl = source->tmpl;
	if (json_is_string(given)) {
		struct span text = {json_string_value(given), json_string_length(given)};
		enum svc_code code = tmpl_compile(text, ret_own, err);
		*ret_tmpl = *ret_own;
		if (code != SVC_OK) {
			svc_err_prefix(err, "chat_template");
			return code == SVC_UNSUPPORTED ? (err->code = SVC_INVALID) : code;
		}
	}
	if (!*ret_tmpl)
		return svc_fail_param(
			err, SVC_INVALID, "messages",
			"this model has no chat template; use /v1/completions, or start with "
			"--chat-template FILE");
	return SVC_OK;
}

/* A template in the request may know other tools than the model's. */
static enum vocab_tools tools_of(const struct prompt_source *source, const json_t *chat)
{
	const json_t *given = json_object_get(chat, "chat_template");
	if (!json_is_string(given))
		return source->tools;
	return vocab_tools_of((struct span){json_string_value(given), json_string_length(given)});
}

/* Most templates want the arguments of a tool call as an object, some the string that the API
 * sends. */
static enum svc_code render(const struct prompt_source *source, const json_t *chat,
			    const struct tmpl *tmpl, struct tmpl_output *ret_output,
			    struct svc_err *err)
{
	struct tmpl_input input = {
		.messages = json_object_get(chat, "messages"),
		.tools = json_object_get(chat, "tools"),
		.documents = json_object_get(chat, "documents"),
		.kwargs = json_object_get(chat, "chat_template_kwargs"),
		.add_generation_prompt =
			json_is_true(json_object_get(chat, "add_generation_prompt")),
		.join_parts = !tmpl_takes_parts(tmpl),
		.parse_arguments = true,
		.bos_token = token_text(source->tok, tok_bos_id(source->tok)),
		.eos_token = token_text(source->tok, tok_eos_id(source->tok)),
		.pad_token = token_text(source->tok, tok_pad_id(source->tok)),
		.unk_token = token_text(source->tok, tok_unk_id(source->tok)),
		.now_s = source->now_s,
	};
	struct svc_err second;
	enum svc_code code = tmpl_render(tmpl, &input, ret_output, err);
	if (code == SVC_INVALID && tmpl_mentions(tmpl, "arguments")) {
		input.parse_arguments = false;
		if (tmpl_render(tmpl, &input, ret_output, &second) == SVC_OK)
			return SVC_OK;
	}
	/* Whatever the template can't do with this conversation is the request's error, not the
	 * server's. */
	if (code == SVC_UNSUPPORTED)
		code = err->code = SVC_INVALID;
	return code;
}

/* A template may leave out messages of a role that it doesn't know, and the answer would be one to
 * another conversation. So it is rendered without them: the same text is an error. */
static enum svc_code left_out_check(const struct prompt_source *source, const json_t *chat,
				    const struct tmpl *tmpl, const struct tmpl_output *output,
				    struct svc_err *err)
{
	json_t *rest = NULL;
	size_t first = SIZE_MAX;
	struct tmpl_output less = {0};
	struct svc_err own;
	enum svc_code code =
		roles_without_unknown(tmpl, json_object_get(chat, "messages"), &rest, &first, err);
	if (code != SVC_OK || first == SIZE_MAX) {
		json_decref(rest);
		return code;
	}
	json_t *other = json_copy((json_t *)(uintptr_t)chat);
	if (json_object_set_new(other, "messages", rest) != 0)
		code = svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for messages");
	/* One that can't do without them does show them. */
	else if (render(source, other, tmpl, &less, &own) == SVC_OK && less.len == output->len &&
		 memcmp(less.text, output->text, less.len) == 0)
		code = svc_fail_param(err, SVC_INVALID, "messages",
				      "messages[%zu].role: this model's chat template leaves out "
				      "messages of that role; use system, user, assistant or tool",
				      first);
	tmpl_output_free(&less);
	json_decref(other);
	return code;
}

enum svc_code prompt_from_chat(const struct prompt_source *source, struct span chat,
			       struct prompt *ret_prompt, struct svc_err *err)
{
	struct prompt prompt = {0};
	struct tmpl *own = NULL;
	const struct tmpl *tmpl = NULL;
	json_t *root = json_loadb(chat.ptr, chat.len, JSON_ALLOW_NUL, NULL);
	if (!json_is_object(root)) {
		json_decref(root);
		return svc_fail(err, SVC_CORRUPT, __func__,
				"the request's messages can't be read back");
	}
	enum svc_code code = choose_template(source, root, &own, &tmpl, err);
	if (code == SVC_OK)
		code = roles_rename(tmpl, json_object_get(root, "messages"), err);
	if (code == SVC_OK && tools_of(source, root) == VOCAB_TOOLS_NONE)
		code = tool_prompt_add(root, err);
	if (code == SVC_OK)
		code = render(source, root, tmpl, &prompt.rendered, err);
	if (code == SVC_OK)
		code = left_out_check(source, root, tmpl, &prompt.rendered, err);
	if (code == SVC_OK)
		code = pieces_of(&prompt, err);
	tmpl_free(own);
	json_decref(root);
	if (code != SVC_OK) {
		prompt_free(&prompt);
		return code;
	}
	*ret_prompt = prompt;
	return SVC_OK;
}

enum svc_code prompt_from_text(struct span text, struct prompt *ret_prompt, struct svc_err *err)
{
	struct tok_piece *piece = calloc(1, sizeof *piece);
	if (!piece)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	*piece = (struct tok_piece){text, true};
	*ret_prompt = (struct prompt){.pieces = piece, .n_pieces = 1};
	return SVC_OK;
}

void prompt_free(struct prompt *prompt)
{
	tmpl_output_free(&prompt->rendered);
	free(prompt->pieces);
	*prompt = (struct prompt){0};
}
