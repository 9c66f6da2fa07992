/* gateway/api/api_request.h: what a client asks for, out of the JSON of its request, checked. One
 * table (api_params.c) has every parameter with its type, range, default and endpoints; docs/api.md
 * is its text form. null means absent. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/span.h"
#include "shm/layout.h"
#include "shm/vocab.h"

/* The sampler has the same limits. */
#define GW_STOPS_MAX	  16u
#define GW_STOP_BYTES_MAX 256u
#define GW_STOP_IDS_MAX	  128u
#define GW_BIASES_MAX	  1024u
#define GW_MESSAGES_MAX	  4096u
#define GW_INPUTS_MAX	  128u /* texts of one request for embeddings */
/* All tool-call arguments of a conversation, which are JSON within JSON. */
#define GW_ARGUMENTS_BYTES_MAX (1u << 20)

enum gw_endpoint {
	GW_CHAT = 1u << 0,
	GW_COMPLETIONS = 1u << 1,
	GW_TOKENIZE = 1u << 2,
	GW_DETOKENIZE = 1u << 3,
	GW_TEMPLATE = 1u << 4, /* /apply-template */
	GW_EMBEDDINGS = 1u << 5,
};

/* The form that a request came in and its answer goes out in (dialect.h). */
enum gw_form {
	GW_FORM_OPENAI,
	GW_FORM_ANTHROPIC,
	GW_FORM_OLLAMA_CHAT,
	GW_FORM_OLLAMA_GENERATE,
	GW_FORM_RESPONSES,
	GW_FORM_OLLAMA_EMBED, /* no dialect: its answer has no events */
	GW_FORM_COUNT
};

/* What the npu-worker has to do with. */
#define GW_COMPUTED (GW_CHAT | GW_COMPLETIONS | GW_EMBEDDINGS)

#define GW_ID_BYTES 64u

/* What the running model and this gateway's options allow. */
struct gw_api_limits {
	const char *model_name; /* as served */
	/* Other names that requests may have for it, separated by commas, or "*"; NULL: none. */
	const char *model_aliases;
	/* Of several runs at one address; NULL: there is one. */
	const struct gw_model_list *models;
	uint32_t own_run; /* of the list; UINT32_MAX: it isn't there */
	bool any_model;	  /* the request is here by an id: its model's name doesn't matter */
	uint32_t n_vocab;
	uint32_t n_embd; /* dimensions of an embedding */
	uint32_t ctx;
	uint32_t max_choices;	/* n times prompts */
	enum vocab_tools tools; /* what the model's chat template shows */
	struct vocab_call_tokens call_tokens;
	bool thinks;
	bool strict; /* unknown parameters are refused */
	bool trust_request_template;
};

struct gw_prompt {
	struct span text;   /* if ids is NULL */
	const int32_t *ids; /* [n_ids] */
	size_t n_ids;
};

struct gw_bias {
	int32_t id;
	float value;
};

/* Everything lives until gw_request_free. Numbers are within the table's ranges. */
struct gw_request {
	/* Sampling. */
	double temperature, top_p, min_p, typical_p;
	double repetition_penalty, presence_penalty, frequency_penalty;
	int64_t top_k; /* <= 0: off */
	int64_t seed;  /* if has_seed */
	const struct gw_bias *biases;
	size_t n_biases;
	/* Length. */
	int64_t max_tokens; /* -1: the rest of the context; 0: only the prompt is scored */
	int64_t min_tokens;
	int64_t n;
	const struct span *stops;
	const int32_t *stop_ids;
	size_t n_stops, n_stop_ids;
	/* Input: prompts, or tokens (/detokenize), or the conversation for the tokenizer: JSON with
	 * messages, tools, add_generation_prompt, chat_template, chat_template_kwargs. */
	const struct gw_prompt *prompts;
	const int32_t *tokens;
	size_t n_prompts, n_tokens;
	struct span chat;
	struct span grammar; /* of the answer, in its text form (grammar/grammar.h); empty: none */
	enum vocab_tools tools; /* the form of calls */
	bool calls;		/* the answer may call tools */
	bool thinks;		/* it may begin with <think> */
	bool thoughts_apart;	/* asked for, in a form that else has them in the text */
	/* Embeddings. */
	int64_t dimensions; /* 1 to n_embd */
	enum body_pooling pooling;
	bool base64;
	int64_t top_logprobs;
	enum gw_endpoint endpoint;
	bool has_seed, ignore_eos;
	bool stream, include_usage;
	bool logprobs, echo, return_token_ids;
	bool skip_special; /* control tokens have no text */
	bool keep_stop;	   /* include_stop_str_in_output */
	bool add_special;  /* BOS and the like before a prompt's text */
	bool speculate;	   /* drafts may be made; they change no byte */
	/* Not read from the JSON: set by who translated it. */
	enum gw_form form;
	bool stored;		    /* the answer is kept for previous_response_id */
	bool instructed;	    /* the first message is this response's instructions */
	char previous[GW_ID_BYTES]; /* previous_response_id, or "" */
	char *settings;		    /* gw_responses_settings; freed with the request */
	/* Private. */
	struct arena arena;
	json_t *json;
	char *chat_text, *grammar_text;
};

/* Is it a name of the model that is served? */
bool gw_model_is(const struct gw_api_limits *limits, struct span name);
/* SVC_NOT_FOUND: the message says which models there are. */
enum svc_code gw_model_unknown(const struct gw_api_limits *limits, const char *param,
			       struct svc_err *err);

/* SVC_INVALID, SVC_TOO_LONG, SVC_UNSUPPORTED, SVC_NOT_FOUND (model): err.param names the parameter.
 * The body can be given up afterwards. */
enum svc_code gw_request_read(enum gw_endpoint endpoint, struct span body,
			      const struct gw_api_limits *limits, struct gw_request **ret_request,
			      struct svc_err *err) SVC_CHECKED;
/* The same for JSON that is read already. */
enum svc_code gw_request_take(enum gw_endpoint endpoint, json_t *json_take,
			      const struct gw_api_limits *limits, struct gw_request **ret_request,
			      struct svc_err *err) SVC_CHECKED;
/* NULL is fine. Returns NULL. */
struct gw_request *gw_request_free(struct gw_request *request);
