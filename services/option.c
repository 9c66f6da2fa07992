#include "services/option.h"

#include <assert.h>
#include <errno.h>
#include <ini.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_OPTIONS	96
#define MAX_POSITIONALS 64

struct value {
	const struct opt *opt;
	char *text;
	const char *source; /* "default", "file", "environment", "flag" */
	double number;
};

struct opt_set {
	struct value values[MAX_OPTIONS];
	size_t n_values;
	const char *positionals[MAX_POSITIONALS];
	size_t n_positionals;
};

static struct value *find(const struct opt_set *set, const char *name)
{
	for (size_t i = 0; i < set->n_values; i++)
		if (strcmp(set->values[i].opt->name, name) == 0)
			/* The set is const for readers; its own parser needs to write. */
			return (struct value *)(uintptr_t)&set->values[i];
	return NULL;
}

static bool is_choice(const char *choices, const char *text)
{
	size_t len = strlen(text);
	for (const char *at = choices; *at;) {
		size_t n = strcspn(at, "|");
		if (n == len && memcmp(at, text, n) == 0)
			return true;
		at += n + (at[n] == '|');
	}
	return false;
}

static bool parse_bool(const char *text, double *ret)
{
	if (strcasecmp(text, "true") == 0 || strcasecmp(text, "on") == 0 ||
	    strcasecmp(text, "yes") == 0 || strcmp(text, "1") == 0)
		return *ret = 1, true;
	if (strcasecmp(text, "false") == 0 || strcasecmp(text, "off") == 0 ||
	    strcasecmp(text, "no") == 0 || strcmp(text, "0") == 0)
		return *ret = 0, true;
	return false;
}

/* strtod follows the locale, but no process calls setlocale. */
static bool parse_number(const struct opt *opt, const char *text, double *ret)
{
	char *end;
	errno = 0;
	double number = strtod(text, &end);
	if (end == text || *end || errno || !isfinite(number))
		return false;
	if (opt->kind == OPT_INT && number != floor(number))
		return false;
	*ret = number;
	return number >= opt->min && number <= opt->max;
}

static enum svc_code assign(struct value *value, const char *text, const char *source,
			    struct svc_err *err)
{
	const struct opt *opt = value->opt;
	enum svc_code code = strcmp(source, "flag") == 0 ? SVC_USAGE : SVC_BAD_CONFIG;
	double number = 0;
	if ((opt->kind == OPT_INT || opt->kind == OPT_REAL) && !parse_number(opt, text, &number))
		return svc_fail_param(
			err, code, opt->name,
			"--%s (from %s) is \"%.64s\"; it must be %s from %.15g to %.15g", opt->name,
			source, text, opt->kind == OPT_INT ? "a whole number" : "a number",
			opt->min, opt->max);
	if (opt->kind == OPT_BOOL && !parse_bool(text, &number))
		return svc_fail_param(err, code, opt->name,
				      "--%s (from %s) is \"%.64s\"; it must be true or false",
				      opt->name, source, text);
	if (opt->kind == OPT_CHOICE && !is_choice(opt->choices, text))
		return svc_fail_param(err, code, opt->name,
				      "--%s (from %s) is \"%.64s\"; it must be one of %s",
				      opt->name, source, text, opt->choices);
	char *copy = strdup(text);
	if (!copy)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	free(value->text);
	value->text = copy;
	value->number = number;
	value->source = source;
	return SVC_OK;
}

static enum svc_code load_defaults(const struct opt_source *source, struct opt_set *set,
				   struct svc_err *err)
{
	for (size_t t = 0; t < 3 && source->tables[t]; t++)
		for (const struct opt *opt = source->tables[t]; opt->name; opt++) {
			assert(set->n_values < MAX_OPTIONS);
			struct value *value = &set->values[set->n_values++];
			value->opt = opt;
			enum svc_code code = assign(value, opt->fallback, "default", err);
			if (code != SVC_OK)
				return code;
		}
	return SVC_OK;
}

/* Not toupper: names are ours, and follow no locale. */
static char upper(char c)
{
	return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

static const char *environment_of(const struct opt *opt)
{
	char name[96] = "LOCKSTEP_";
	size_t at = strlen(name);
	for (const char *c = opt->name; *c && at + 1 < sizeof name; c++)
		name[at++] = *c == '-' ? '_' : upper(*c);
	name[at] = 0;
	return getenv(name);
}

static enum svc_code load_environment(struct opt_set *set, struct svc_err *err)
{
	for (size_t i = 0; i < set->n_values; i++) {
		const char *text = environment_of(set->values[i].opt);
		enum svc_code code =
			text ? assign(&set->values[i], text, "environment", err) : SVC_OK;
		if (code != SVC_OK)
			return code;
	}
	return SVC_OK;
}

struct file_context {
	struct opt_set *set;
	struct svc_err *err;
	enum svc_code code;
	FILE *file;
	int line;
	bool too_long;
};

static int on_file_line(void *user, const char *section, const char *name, const char *text)
{
	struct file_context *context = user;
	(void)section;
	struct value *value = find(context->set, name);
	/* inih goes on after an error; the first one counts. */
	if (context->code != SVC_OK)
		return 0;
	if (strcmp(name, "config") == 0)
		context->code = svc_fail_param(context->err, SVC_BAD_CONFIG, "config",
					       "a configuration file can't name another: remove "
					       "the line \"config = %.64s\"",
					       text);
	else if (value)
		context->code = assign(value, text, "file", context->err);
	/* One file serves all processes: a name that this one doesn't know is another's. */
	return context->code == SVC_OK;
}

/* inih takes a line that doesn't fit its buffer for two: the file ends there instead. */
static char *read_line(char *buffer, int size, void *stream)
{
	struct file_context *context = stream;
	if (context->too_long || !fgets(buffer, size, context->file))
		return NULL;
	context->line++;
	size_t len = strlen(buffer);
	context->too_long = len + 1 == (size_t)size && buffer[len - 1] != '\n';
	return context->too_long ? NULL : buffer;
}

static enum svc_code load_file(struct opt_set *set, const char *path, struct svc_err *err)
{
	struct file_context context = {.set = set, .err = err, .file = fopen(path, "re")};
	if (!context.file)
		return svc_fail(err, SVC_BAD_CONFIG, __func__, "cannot read %s: %s", path,
				strerror(errno));
	int line = ini_parse_stream(read_line, &context, on_file_line, &context);
	bool failed = ferror(context.file) != 0;
	fclose(context.file);
	if (context.code != SVC_OK)
		return context.code;
	if (failed)
		return svc_fail(err, SVC_BAD_CONFIG, __func__, "cannot read %s", path);
	if (context.too_long)
		return svc_fail(err, SVC_BAD_CONFIG, __func__,
				"%s: line %d is too long (at most 198 bytes)", path, context.line);
	if (line != 0)
		return svc_fail(err, SVC_BAD_CONFIG, __func__,
				"%s: line %d is not \"name = value\"", path, line);
	return SVC_OK;
}

static enum svc_code parse_flag(struct opt_set *set, int argc, char **argv, int *index,
				struct svc_err *err)
{
	const char *word = argv[*index] + 2;
	const char *equals = strchr(word, '=');
	char name[96];
	snprintf(name, sizeof name, "%.*s", (int)(equals ? equals - word : (long)strlen(word)),
		 word);
	struct value *value = find(set, name);
	bool negated = !value && strncmp(name, "no-", 3) == 0;
	if (negated)
		value = find(set, name + 3);
	if (!value || (negated && value->opt->kind != OPT_BOOL))
		return svc_fail_param(err, SVC_USAGE, name,
				      "unknown option --%s; --help lists them", name);
	if (value->opt->kind == OPT_BOOL && !equals)
		return assign(value, negated ? "false" : "true", "flag", err);
	if (equals)
		return assign(value, equals + 1, "flag", err);
	if (*index + 1 >= argc)
		return svc_fail_param(err, SVC_USAGE, name, "--%s needs a value: %s", name,
				      value->opt->help);
	return assign(value, argv[++*index], "flag", err);
}

static enum svc_code load_flags(const struct opt_source *source, struct opt_set *set, int argc,
				char **argv, enum opt_action *ret_action, struct svc_err *err)
{
	bool options_over = false;
	*ret_action = OPT_RUN;
	for (int i = 1; i < argc; i++) {
		enum svc_code code = SVC_OK;
		if (!options_over && strcmp(argv[i], "--") == 0)
			options_over = true;
		else if (!options_over &&
			 (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0))
			*ret_action = OPT_HELP;
		else if (!options_over && strcmp(argv[i], "--version") == 0)
			*ret_action = OPT_VERSION;
		else if (!options_over && strcmp(argv[i], "--check") == 0)
			*ret_action = OPT_CHECK;
		else if (!options_over && strcmp(argv[i], "--print-config") == 0)
			*ret_action = OPT_PRINT_CONFIG;
		else if (!options_over && strncmp(argv[i], "--", 2) == 0)
			code = parse_flag(set, argc, argv, &i, err);
		else if (source->positionals && set->n_positionals < MAX_POSITIONALS)
			set->positionals[set->n_positionals++] = argv[i];
		else
			code = svc_fail(err, SVC_USAGE, __func__,
					"unexpected word \"%.64s\"; --help lists the options",
					argv[i]);
		if (code != SVC_OK)
			return code;
	}
	return SVC_OK;
}

enum svc_code opt_parse(const struct opt_source *source, int argc, char **argv,
			struct opt_set **ret_set, enum opt_action *ret_action, struct svc_err *err)
{
	struct opt_set *set = calloc(1, sizeof *set);
	if (!set)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	enum svc_code code = load_defaults(source, set, err);
	if (code == SVC_OK)
		code = load_environment(set, err);
	if (code == SVC_OK)
		code = load_flags(source, set, argc, argv, ret_action, err);
	/* The file's name may itself be a flag or a variable, yet it ranks below both: read it last
	 * of all and put the stronger ones over it again. */
	const char *path = code == SVC_OK && find(set, "config") ? opt_string(set, "config") : "";
	if (code == SVC_OK && *path) {
		code = load_file(set, path, err);
		if (code == SVC_OK)
			code = load_environment(set, err);
		set->n_positionals = 0;
		if (code == SVC_OK)
			code = load_flags(source, set, argc, argv, ret_action, err);
	}
	if (code != SVC_OK) {
		opt_free(set);
		return code;
	}
	*ret_set = set;
	return SVC_OK;
}

struct opt_set *opt_free(struct opt_set *set)
{
	if (set)
		for (size_t i = 0; i < set->n_values; i++)
			free(set->values[i].text);
	free(set);
	return NULL;
}

static const struct value *get(const struct opt_set *set, const char *name)
{
	const struct value *value = find(set, name);
	if (!value) {
		fprintf(stderr, "option --%s is in no table\n", name);
		abort();
	}
	return value;
}

const char *opt_string(const struct opt_set *set, const char *name)
{
	return get(set, name)->text;
}

int64_t opt_int(const struct opt_set *set, const char *name)
{
	return (int64_t)get(set, name)->number;
}

double opt_real(const struct opt_set *set, const char *name)
{
	return get(set, name)->number;
}

bool opt_bool(const struct opt_set *set, const char *name)
{
	return get(set, name)->number != 0;
}

bool opt_is_set(const struct opt_set *set, const char *name)
{
	return strcmp(get(set, name)->source, "default") != 0;
}

size_t opt_positional_count(const struct opt_set *set)
{
	return set->n_positionals;
}

const char *opt_positional(const struct opt_set *set, size_t index)
{
	return index < set->n_positionals ? set->positionals[index] : NULL;
}

void opt_exchange(struct opt_set *set, struct opt_set *other, const struct opt_exchange *exchange)
{
	assert(set->n_values == other->n_values);
	for (size_t i = 0; i < set->n_values; i++) {
		struct value *mine = &set->values[i], *theirs = &other->values[i], held;
		struct opt_change change = {
			.name = mine->opt->name, .before = mine->text, .after = theirs->text};
		if (strcmp(mine->text, theirs->text) == 0)
			continue;
		change.taken = exchange->may(exchange->context, change.name);
		if (exchange->told)
			exchange->told(exchange->context, &change);
		if (!change.taken)
			continue;
		held = *mine;
		*mine = *theirs;
		*theirs = held;
	}
}

static bool has_option(const struct opt_source *source, const char *name)
{
	for (size_t t = 0; t < 3 && source->tables[t]; t++)
		for (const struct opt *opt = source->tables[t]; opt->name; opt++)
			if (strcmp(opt->name, name) == 0)
				return true;
	return false;
}

void opt_print_help(const struct opt_source *source, FILE *out)
{
	fprintf(out, "%s: %s\n\n", source->program, source->summary);
	for (size_t t = 0; t < 3 && source->tables[t]; t++)
		for (const struct opt *opt = source->tables[t]; opt->name; opt++) {
			char left[64];
			const char *const kinds[] = {" TEXT", " N", " X", "", " "};
			snprintf(left, sizeof left, "--%s%s%s", opt->name, kinds[opt->kind],
				 opt->kind == OPT_CHOICE ? opt->choices : "");
			fprintf(out, "  %-33s  %s%s%s%s\n", left, opt->help,
				*opt->fallback ? " [" : "", opt->fallback,
				*opt->fallback ? "]" : "");
		}
	fprintf(out, "  %-33s  %s\n", "--check", "check the options and exit");
	fprintf(out, "  %-33s  %s\n", "--print-config",
		"print every option, its value and where it came from");
	fprintf(out, "  %-33s  %s\n", "--version, --help", "print the version, or this, and exit");
	fprintf(out,
		"\nEach option is also the variable LOCKSTEP_NAME (upper case, - becomes _)%s.\n",
		has_option(source, "config")
			? " and a line \"name = value\" in the file given by --config"
			: "");
}

void opt_print_config(const struct opt_set *set, FILE *out)
{
	for (size_t i = 0; i < set->n_values; i++)
		fprintf(out, "%s = %s  # %s\n", set->values[i].opt->name, set->values[i].text,
			set->values[i].source);
}
