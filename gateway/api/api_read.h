/* gateway/api/api_read.h: what the files that read a request's JSON share. Internal to api_*.c. */
#pragma once
#include "gateway/api/api_request.h"
#include "gateway/tools.h"

/* What the answer must be; the parameters that say so differ only in their form. */
enum gw_bound {
	GW_BOUND_NONE,
	GW_BOUND_OBJECT,
	GW_BOUND_SCHEMA,
	GW_BOUND_REGEX,
	GW_BOUND_CHOICE,
	GW_BOUND_GRAMMAR
};

struct gw_constraint {
	enum gw_bound bound;
	const char *param;   /* that says it */
	const json_t *value; /* borrowed from the request's JSON */
	json_t *own;	     /* or made from text */
};

/* One request while it is read. */
struct gw_reading {
	const struct gw_api_limits *limits;
	struct gw_request *request;
	struct svc_err *err;
	/* Borrowed from the request's JSON; NULL if absent. */
	json_t *messages, *tools, *template_text, *template_kwargs;
	bool add_generation_prompt;
	int64_t max_completion_tokens, best_of; /* 0: absent */
	int64_t top_logprobs_given;		/* -1: absent */
	bool has_stream_options;
	size_t argument_bytes;
	struct gw_constraint constraint;
	enum gw_tool_choice tool_choice;
	const char *tool_name; /* GW_TOOL_NAMED */
	bool parallel_calls;
};

/* Reads one parameter that is neither a number nor a boolean. */
typedef enum svc_code (*gw_param_reader)(struct gw_reading *reading, const char *name,
					 json_t *value);

/* api_fields.c */
enum svc_code gw_read_model(struct gw_reading *reading, const char *name, json_t *value);
enum svc_code gw_read_prompt(struct gw_reading *reading, const char *name, json_t *value);
enum svc_code gw_read_encoding(struct gw_reading *reading, const char *name, json_t *value);
enum svc_code gw_read_pooling(struct gw_reading *reading, const char *name, json_t *value);
enum svc_code gw_read_tokens(struct gw_reading *reading, const char *name, json_t *value);
enum svc_code gw_read_stop(struct gw_reading *reading, const char *name, json_t *value);
enum svc_code gw_read_stop_ids(struct gw_reading *reading, const char *name, json_t *value);
enum svc_code gw_read_bias(struct gw_reading *reading, const char *name, json_t *value);
enum svc_code gw_read_seed(struct gw_reading *reading, const char *name, json_t *value);
enum svc_code gw_read_stream_options(struct gw_reading *reading, const char *name, json_t *value);
enum svc_code gw_read_user(struct gw_reading *reading, const char *name, json_t *value);
/* int32 ids below the vocabulary's size; at most limit of them (0: none). */
enum svc_code gw_read_ids(struct gw_reading *reading, const char *name, const json_t *array,
			  size_t limit, const int32_t **ret_ids);

/* api_chat.c */
enum svc_code gw_read_messages(struct gw_reading *reading, const char *name, json_t *value);
enum svc_code gw_read_template(struct gw_reading *reading, const char *name, json_t *value);
enum svc_code gw_read_template_kwargs(struct gw_reading *reading, const char *name, json_t *value);
/* The conversation, normalised, as the JSON text that the tokenizer gets. */
enum svc_code gw_chat_build(struct gw_reading *reading);

/* api_tools.c */
enum svc_code gw_read_tools(struct gw_reading *reading, const char *name, json_t *value);
enum svc_code gw_read_tool_choice(struct gw_reading *reading, const char *name, json_t *value);
/* What tools and tool_choice say together; drops the tools that aren't to be called. */
enum svc_code gw_tools_check(struct gw_reading *reading);
/* Adds the grammar of calls; content: the rule of that name is there. */
enum svc_code gw_tools_build(struct gw_reading *reading, struct gr_writer *writer, bool content);

/* api_constraint.c */
enum svc_code gw_read_response_format(struct gw_reading *reading, const char *name, json_t *value);
enum svc_code gw_read_guided_json(struct gw_reading *reading, const char *name, json_t *value);
enum svc_code gw_read_guided_regex(struct gw_reading *reading, const char *name, json_t *value);
enum svc_code gw_read_guided_choice(struct gw_reading *reading, const char *name, json_t *value);
enum svc_code gw_read_guided_grammar(struct gw_reading *reading, const char *name, json_t *value);
enum svc_code gw_read_structured(struct gw_reading *reading, const char *name, json_t *value);
/* Writes the grammar that the constraint asks for and compiles it once, for what is wrong with it.
 */
enum svc_code gw_constraint_build(struct gw_reading *reading);

/* api_check.c: what concerns several parameters. */
enum svc_code gw_request_check(struct gw_reading *reading);

/* api_params.c: the static name if any endpoint has this parameter. */
const char *gw_param_known(struct span key);

/* A number without fraction, also when written with one (1.0), that a double holds exactly. */
bool gw_json_integer(const json_t *value, int64_t *ret_integer);
struct span gw_json_span(const json_t *string);

#define gw_wrong(reading, param, ...) \
	svc_fail_param((reading)->err, SVC_INVALID, param, __VA_ARGS__)
enum svc_code gw_no_memory(struct gw_reading *reading);
