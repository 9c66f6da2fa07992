/* tokenizer/prompt.h: from what a request says to pieces of text: the chat template's rendering, or
 * the text itself. */
#pragma once
#include <jansson.h>

#include "shm/vocab.h"
#include "tokenizer/template/tmpl.h"
#include "tokenizer/tokenizer.h"

struct prompt_source {
	const struct tok *tok;
	const struct tmpl *tmpl; /* the model's, or --chat-template's; NULL: there is none */
	enum vocab_tools tools;	 /* that it knows */
	int64_t now_s;
};

struct prompt {
	struct tmpl_output rendered; /* of a conversation */
	struct tok_piece *pieces;    /* into rendered, or the text itself */
	size_t n_pieces;
};

/* chat: JSON object {messages, tools, documents, add_generation_prompt, chat_template,
 * chat_template_kwargs}. A template in the request replaces the model's. SVC_INVALID carries the
 * template's own message (raise_exception). */
SVC_CHECKED enum svc_code prompt_from_chat(const struct prompt_source *source, struct span chat,
					   struct prompt *ret_prompt, struct svc_err *err);
/* Plain text: one piece in which control tokens are recognised, as the completions endpoint's users
 * expect. */
SVC_CHECKED enum svc_code prompt_from_text(struct span text, struct prompt *ret_prompt,
					   struct svc_err *err);
void prompt_free(struct prompt *prompt);
