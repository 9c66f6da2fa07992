#include "cli/verify_side.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/verify.h"
#include "npu-worker/engine/hooks.h"

void verify_print_json(json_t *root)
{
	json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
	putchar('\n');
	json_decref(root);
}

enum svc_code verify_read_depth(const char *text, uint32_t *ret_depth, struct svc_err *err)
{
	uint32_t first = 0, last = 0;
	enum svc_code code = verify_read_range("layers", text, &first, &last, err);
	if (!code && ((first != last && last != UINT32_MAX) || last == 0))
		code = svc_fail_param(err, SVC_USAGE, "layers",
				      "--layers is a depth here: 1, 2, 3, ... or all");
	*ret_depth = last == UINT32_MAX ? 0 : last;
	return code;
}

/* ---- NAME=VALUE,NAME=VALUE */

struct setting {
	const char *name;
	const char **text; /* or */
	uint32_t *number;
	uint32_t least, most;
};

static const struct setting *find_setting(const struct setting *settings, const char *name,
					  size_t len)
{
	for (; settings->name; settings++)
		if (strlen(settings->name) == len && memcmp(settings->name, name, len) == 0)
			return settings;
	return NULL;
}

static enum svc_code set_one(const struct setting *setting, const char *option, const char *value,
			     struct svc_err *err)
{
	uint32_t number, unused;
	if (setting->text) {
		*setting->text = value;
		return SVC_OK;
	}
	if (strchr(value, '-') || strcmp(value, "all") == 0 ||
	    verify_read_range(option, value, &number, &unused, err) || number < setting->least ||
	    number > setting->most)
		return svc_fail_param(err, SVC_USAGE, option,
				      "--%s: %s is \"%.20s\"; a whole number from %" PRIu32
				      " to %" PRIu32 " is needed",
				      option, setting->name, value, setting->least, setting->most);
	*setting->number = number;
	return SVC_OK;
}

/* text is cut up; values point into it. */
static enum svc_code read_settings(const char *option, char *text, const struct setting *settings,
				   struct svc_err *err)
{
	char *rest = text;
	for (char *word; (word = strsep(&rest, ",")) && *text;) {
		char *equals = strchr(word, '=');
		const struct setting *setting =
			equals ? find_setting(settings, word, (size_t)(equals - word)) : NULL;
		if (!setting) {
			svc_fail_param(err, SVC_USAGE, option,
				       "--%s: \"%.40s\" is no setting; there are", option, word);
			for (const struct setting *s = settings; s->name && err; s++)
				strncat(strncat(err->msg, " ",
						sizeof err->msg - 1 - strlen(err->msg)),
					s->name, sizeof err->msg - 1 - strlen(err->msg));
			return SVC_USAGE;
		}
		enum svc_code code = set_one(setting, option, equals + 1, err);
		if (code)
			return code;
	}
	return SVC_OK;
}

enum svc_code verify_read_side(const char *option, char *text, struct vfy_side *side,
			       struct svc_err *err)
{
	struct vfy_config *c = &side->config;
	const struct setting settings[] = {
		{"family", &c->family, NULL, 0, 0},
		{"isa", &c->isa, NULL, 0, 0},
		{"model", &c->model, NULL, 0, 0},
		{"device", &c->device, NULL, 0, 0},
		{"kernels", &c->kernels, NULL, 0, 0},
		{"threads", NULL, &c->threads, 1, 256},
		{"neighbours", NULL, &c->neighbours, 0, 63},
		{"rows", NULL, &side->rows, 1, 512},
		{0},
	};
	side->rows = 1;
	enum svc_code code = read_settings(option, text, settings, err);
	if (!code && strcmp(c->device, "host") != 0 && strcmp(c->device, "xrt") != 0 &&
	    strcmp(c->device, "auto") != 0)
		code = svc_fail_param(err, SVC_USAGE, option,
				      "--%s: device is \"%.20s\"; host or xrt is needed", option,
				      c->device);
	if (!code && *text)
		vfy_side_family(side, c->family);
	if (c->chunk < side->rows)
		c->chunk = side->rows;
	return code;
}

static enum svc_code find_checkpoint(const char *name, uint32_t *ret, struct svc_err *err)
{
	for (uint32_t i = 0; i < ENGINE_LOGITS; i++) {
		if (strcmp(name, vfy_checkpoint_name(i)) == 0 && i != ENGINE_KV_WRITE &&
		    i != ENGINE_SCORES) {
			*ret = i;
			return SVC_OK;
		}
	}
	return svc_fail_param(err, SVC_USAGE, "fault",
			      "--fault: checkpoint \"%.30s\" takes none; embed, attn_norm, q_proj, "
			      "... final_norm do",
			      name);
}

static enum svc_code read_kind(const char *name, struct vfy_fault *fault, struct svc_err *err)
{
	for (int kind = VFY_FAULT_OPERATOR; kind < VFY_FAULT_KIND_COUNT; kind++) {
		if (strcmp(name, vfy_fault_name((enum vfy_fault_kind)kind)) == 0) {
			fault->kind = (enum vfy_fault_kind)kind;
			return SVC_OK;
		}
	}
	return svc_fail_param(err, SVC_USAGE, "fault",
			      "--fault: \"%.20s\" is no kind; there are operator, order, rope, "
			      "weight, kv, unsteady and probe",
			      name);
}

/* "operator:layer=2,checkpoint=gate,position=5,element=3" */
static enum svc_code read_fault(char *text, struct vfy_fault *fault, struct svc_err *err)
{
	const char *checkpoint = "q_proj";
	const struct setting settings[] = {
		{"layer", NULL, &fault->layer, 0, UINT32_MAX},
		{"position", NULL, &fault->position, 0, UINT32_MAX},
		{"element", NULL, &fault->element, 0, UINT32_MAX},
		{"part", NULL, &fault->part, 0, UINT32_MAX},
		{"tile", NULL, &fault->tile, 0, UINT32_MAX},
		{"checkpoint", &checkpoint, NULL, 0, 0},
		{0},
	};
	if (!*text)
		return SVC_OK;
	char *rest = text;
	enum svc_code code = read_kind(strsep(&rest, ":"), fault, err);
	if (!code && rest)
		code = read_settings("fault", rest, settings, err);
	return code ? code : find_checkpoint(checkpoint, &fault->checkpoint, err);
}

enum svc_code verify_read_sides(const struct opt_set *options, bool with_fault,
				struct verify_sides *sides, struct svc_err *err)
{
	const char *const texts[3] = {opt_string(options, "a"), opt_string(options, "b"),
				      with_fault ? opt_string(options, "fault") : ""};
	struct vfy_duel_options *duel = &sides->duel;
	struct vfy_config config;
	duel->n_forced = (uint32_t)opt_int(options, "tokens");
	enum svc_code code = verify_read_config(options, &config, err);
	code = code ? code
		    : verify_read_prompt(options, config.model, &sides->prompt, &duel->n_prompt,
					 err);
	if (code)
		return code;
	duel->prompt = sides->prompt;
	if (config.ctx == 0)
		config.ctx = duel->n_prompt + duel->n_forced + 1;
	duel->a.config = duel->b.config = config;
	for (int i = 0; i < 3; i++) {
		sides->copies[i] = strdup(texts[i]);
		if (!sides->copies[i])
			return svc_fail_errno(err, __func__, "no memory for options");
	}
	code = verify_read_side("a", sides->copies[0], &duel->a, err);
	code = code ? code : verify_read_side("b", sides->copies[1], &duel->b, err);
	return code ? code : read_fault(sides->copies[2], &duel->a.fault, err);
}

void verify_free_sides(struct verify_sides *sides)
{
	for (int i = 0; i < 3; i++)
		free(sides->copies[i]);
	free(sides->prompt);
}
