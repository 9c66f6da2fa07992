#include "tokenizer/roles.h"

#include <stdint.h>
#include <string.h>

static const char *role_of(const json_t *message)
{
	const char *role = json_string_value(json_object_get(message, "role"));
	return role ? role : "";
}

enum svc_code roles_rename(const struct tmpl *tmpl, json_t *messages, struct svc_err *err)
{
	if (tmpl_mentions(tmpl, "developer"))
		return SVC_OK;
	for (size_t i = 0; i < json_array_size(messages); i++) {
		json_t *message = json_array_get(messages, i);
		if (strcmp(role_of(message), "developer") == 0 &&
		    json_object_set_new(message, "role", json_string("system")) != 0)
			return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a message");
	}
	return SVC_OK;
}

static bool is_known(const struct tmpl *tmpl, const char *role)
{
	static const char *const roles[] = {"system", "user", "assistant", "tool"};
	for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
		if (strcmp(role, roles[i]) == 0)
			return true;
	return tmpl_mentions(tmpl, role);
}

enum svc_code roles_without_unknown(const struct tmpl *tmpl, const json_t *messages,
				    json_t **ret_rest, size_t *ret_first, struct svc_err *err)
{
	json_t *rest = json_array();
	size_t first = SIZE_MAX;
	bool failed = !rest;
	for (size_t i = 0; !failed && i < json_array_size(messages); i++) {
		json_t *message = json_array_get(messages, i);
		if (is_known(tmpl, role_of(message)))
			failed = json_array_append(rest, message) != 0;
		else if (first == SIZE_MAX)
			first = i;
	}
	if (failed) {
		json_decref(rest);
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for messages");
	}
	*ret_rest = rest;
	*ret_first = first;
	return SVC_OK;
}
