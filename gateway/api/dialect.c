#include "gateway/api/dialect.h"

#include <stdio.h>

#include "gateway/api/api_error.h"

const struct gw_dialect *gw_dialect_of(enum gw_form form)
{
	switch (form) {
	case GW_FORM_ANTHROPIC:
		return &gw_dialect_anthropic;
	case GW_FORM_OLLAMA_CHAT:
		return &gw_dialect_ollama_chat;
	case GW_FORM_OLLAMA_GENERATE:
		return &gw_dialect_ollama_generate;
	case GW_FORM_RESPONSES:
		return &gw_dialect_responses;
	case GW_FORM_OPENAI:
	case GW_FORM_OLLAMA_EMBED:
	case GW_FORM_COUNT:
		break;
	}
	return &gw_dialect_openai;
}

/* ---- OpenAI's own: render.c's JSON in frames ---- */

static void frame(const struct gw_render *render, struct buf *json)
{
	render->out->failed |= json->failed;
	gw_event_print(render->out, render->id, (struct span){json->ptr, json->len});
	buf_free(json);
}

/* For the JSON alone. */
static struct gw_render inner_of(const struct gw_render *render, struct buf *json)
{
	struct gw_render inner = *render;
	inner.out = json;
	return inner;
}

static void openai_opening(const struct gw_render *render, uint32_t choice,
			   const struct gw_view *view)
{
	struct buf json = {0};
	const struct gw_render inner = inner_of(render, &json);
	gw_render_opening(&inner, choice, view);
	frame(render, &json);
}

static void openai_token(const struct gw_render *render, uint32_t choice,
			 const struct gw_view *view, uint32_t k, size_t width)
{
	struct buf json = {0};
	const struct gw_render inner = inner_of(render, &json);
	gw_render_token(&inner, choice, view, k, width);
	frame(render, &json);
}

static void openai_finish(const struct gw_render *render, uint32_t choice,
			  const struct gw_view *view)
{
	struct buf json = {0};
	const struct gw_render inner = inner_of(render, &json);
	gw_render_finish(&inner, choice, view);
	frame(render, &json);
}

static void openai_end(const struct gw_render *render, const struct gw_usage *usage)
{
	struct buf json = {0};
	const struct gw_render inner = inner_of(render, &json);
	if (render->meta->include_usage) {
		gw_render_usage(&inner, usage);
		frame(render, &json);
	}
	buf_span(render->out, span_of("data: [DONE]\n\n"));
}

static void openai_error(struct buf *out, const struct svc_err *err)
{
	struct gw_error error = gw_error_of(err);
	buf_span(out, span_of("data: "));
	gw_error_print(out, &error);
	buf_span(out, span_of("\n\n"));
}

const struct gw_dialect gw_dialect_openai = {
	.id_prefix = "", /* of the endpoint */
	.stream_type = "text/event-stream; charset=utf-8",
	.waiting = ": waiting\n",
	.has_opening = gw_render_has_opening,
	.opening = openai_opening,
	.token = openai_token,
	.finish = openai_finish,
	.end = openai_end,
	.error = openai_error,
	.answer = gw_render_answer,
};

/* ---- errors ---- */

static bool is_below(struct span path, const char *prefix)
{
	size_t len = strlen(prefix);
	return path.len >= len && memcmp(path.ptr, prefix, len) == 0;
}

void gw_error_print_for(struct span path, struct buf *out, const struct svc_err *err)
{
	struct gw_error error = gw_error_of(err);
	if (is_below(path, "/v1/messages"))
		gw_error_print_anthropic(out, err);
	else if (is_below(path, "/api/"))
		gw_error_print_ollama(out, err);
	else
		gw_error_print(out, &error);
}

/* ---- translation ---- */

static const struct gw_member *member_find(const struct gw_member *members, size_t n,
					   const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(members[i].name, name) == 0)
			return &members[i];
	return NULL;
}

static bool asks_for_nothing(const json_t *value)
{
	return json_is_null(value) || json_is_false(value) ||
	       (json_is_string(value) && json_string_length(value) == 0) ||
	       (json_is_array(value) && json_array_size(value) == 0);
}

/* A name of the client's own is repeated only if it looks like one. */
static enum svc_code unknown(const struct gw_translation *translation, const char *name)
{
	static const char plain[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
	if (!translation->strict)
		return SVC_OK;
	if (strlen(name) > 63 || strspn(name, plain) != strlen(name))
		name = "";
	return svc_fail_param(translation->err, SVC_INVALID, name,
			      "unknown parameter: %s (this server runs with --strict)", name);
}

enum svc_code gw_members_copy(const struct gw_translation *translation)
{
	const char *name;
	const json_t *value;
	void *at = json_object_iter((json_t *)(uintptr_t)translation->from);
	for (; at; at = json_object_iter_next((json_t *)(uintptr_t)translation->from, at)) {
		name = json_object_iter_key(at);
		value = json_object_iter_value(at);
		const struct gw_member *member =
			member_find(translation->members, translation->n_members, name);
		enum svc_code code = SVC_OK;
		if (!member)
			code = unknown(translation, name);
		else if (member->remedy && !asks_for_nothing(value))
			code = svc_fail_param(translation->err, SVC_UNSUPPORTED, name,
					      "%s is not supported here: %s", name, member->remedy);
		else if (member->as && !json_is_null(value) &&
			 json_object_set(translation->to, member->as, json_object_iter_value(at)) !=
				 0)
			code = svc_fail(translation->err, SVC_NO_MEMORY, __func__, "out of memory");
		if (code != SVC_OK)
			return code;
	}
	return SVC_OK;
}

enum svc_code gw_translation_end(const struct gw_translation *translation, enum svc_code code,
				 json_t *messages, json_t **ret_chat)
{
	json_t *chat = translation->to;
	if (code == SVC_OK && json_object_set(chat, "messages", messages) != 0)
		code = svc_fail(translation->err, SVC_NO_MEMORY, __func__, "out of memory");
	json_decref(messages);
	if (code == SVC_OK)
		*ret_chat = chat;
	else
		json_decref(chat);
	return code;
}

void gw_members_blame(const struct gw_member *members, size_t n, struct svc_err *err)
{
	for (size_t i = 0; i < n; i++) {
		if (!members[i].as || strcmp(members[i].as, err->param) != 0)
			continue;
		if (strcmp(members[i].name, members[i].as) != 0)
			svc_err_prefix(err, "%s", members[i].name);
		snprintf(err->param, sizeof err->param, "%s", members[i].name);
		return;
	}
}

void gw_form_blame(enum gw_form form, struct svc_err *err)
{
	const struct gw_dialect *dialect = gw_dialect_of(form);
	gw_members_blame(dialect->members, dialect->n_members, err);
}

static bool is_one_of(const json_t *type, const char *const *types)
{
	for (; json_is_string(type) && *types; types++)
		if (strcmp(json_string_value(type), *types) == 0)
			return true;
	return false;
}

static json_t *part_read(const json_t *part, const char *const *types, const char *place,
			 struct svc_err *err)
{
	json_t *text = json_object_get(part, "text");
	if (!is_one_of(json_object_get(part, "type"), types)) {
		(void)svc_fail_param(err, SVC_UNSUPPORTED, place,
				     "%s: only parts of type %s are supported", place, types[0]);
		return NULL;
	}
	if (!json_is_string(text)) {
		(void)svc_fail_param(err, SVC_INVALID, place,
				     "%s: a part needs a string member: text", place);
		return NULL;
	}
	return json_pack("{s:s, s:O}", "type", "text", "text", text);
}

json_t *gw_content_read(const json_t *content, const char *const *types, const char *place,
			struct svc_err *err)
{
	if (json_is_string(content))
		return json_incref((json_t *)(uintptr_t)content);
	if (!json_is_array(content)) {
		(void)svc_fail_param(err, SVC_INVALID, place,
				     "%s must be a string or an array of parts", place);
		return NULL;
	}
	json_t *parts = json_array();
	(void)svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	for (size_t i = 0; parts && i < json_array_size(content); i++) {
		json_t *part = part_read(json_array_get(content, i), types, place, err);
		if (part && json_array_append_new(parts, part) == 0)
			continue;
		json_decref(parts);
		parts = NULL;
	}
	return parts;
}

enum svc_code gw_message_add(json_t *messages, const char *role, json_t *content_take,
			     struct svc_err *err)
{
	if (!content_take)
		return err->code ? err->code
				 : svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	json_t *message = json_pack("{s:s, s:o}", "role", role, "content", content_take);
	if (message && json_array_append_new(messages, message) == 0)
		return SVC_OK;
	return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
}
