#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "services/option.h"

static const struct opt common[] = {
	{"config", OPT_STRING, "", 0, 0, NULL, "file"},
	{"log-level", OPT_CHOICE, "info", 0, 0, "error|warn|info|debug", "least severe"},
	{0},
};
static const struct opt own[] = {
	{"slots", OPT_INT, "8", 1, 256, NULL, "sequences"},
	{"ratio", OPT_REAL, "0.5", 0, 1, NULL, "share"},
	{"strict", OPT_BOOL, "false", 0, 0, NULL, "refuse"},
	{"name", OPT_STRING, "", 0, 0, NULL, "text"},
	{0},
};
static const struct opt_source source = {"program", "does something", {common, own}, false};
static const struct opt_source tool = {"tool", "does something", {common, own}, true};

#define MAX_WORDS 12
static char file[64];

/* Words after the program's name, NULL at the end. */
static enum svc_code parse(const struct opt_source *from, const char *const *words,
			   struct opt_set **ret_set, enum opt_action *ret_action,
			   struct svc_err *err)
{
	/* A set points at the words: they stay, as a program's do. */
	static char room[MAX_WORDS][256];
	char *argv[MAX_WORDS + 1] = {room[0]};
	int argc = 1;
	strcpy(room[0], "program");
	for (; words[argc - 1]; argc++) {
		snprintf(room[argc], sizeof room[argc], "%s", words[argc - 1]);
		argv[argc] = room[argc];
	}
	argv[argc] = NULL;
	return opt_parse(from, argc, argv, ret_set, ret_action, err);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static struct opt_set *parse_well(const char *const *words)
{
	struct opt_set *set = NULL;
	enum opt_action action;
	struct svc_err err;
	assert_int_equal(parse(&source, words, &set, &action, &err), SVC_OK);
	assert_int_equal(action, OPT_RUN);
	return set;
}

static struct svc_err parse_badly(const char *const *words, enum svc_code wanted)
{
	struct opt_set *set = NULL;
	enum opt_action action;
	struct svc_err err = {0};
	assert_int_equal(parse(&source, words, &set, &action, &err), wanted);
	assert_null(set);
	return err;
}

static int clean(void **state)
{
	(void)state;
	unsetenv("LOCKSTEP_SLOTS");
	unsetenv("LOCKSTEP_LOG_LEVEL");
	unsetenv("LOCKSTEP_CONFIG");
	if (*file)
		unlink(file);
	*file = 0;
	return 0;
}

static void write_file(const char *text)
{
	strcpy(file, "/tmp/option-test-XXXXXX");
	int fd = mkstemp(file);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void the_strongest_source_wins(void **state)
{
	(void)state;
	struct opt_set *set = parse_well(WORDS(NULL));
	assert_int_equal(opt_int(set, "slots"), 8);
	assert_false(opt_is_set(set, "slots"));
	opt_free(set);
	write_file("slots = 9\nlog-level = warn\nratio = 0.25\nunknown-here = 1\n");
	set = parse_well(WORDS("--config", file));
	assert_int_equal(opt_int(set, "slots"), 9);
	assert_true(opt_is_set(set, "slots"));
	assert_true(opt_real(set, "ratio") == 0.25);
	opt_free(set);
	setenv("LOCKSTEP_SLOTS", "10", 1);
	setenv("LOCKSTEP_LOG_LEVEL", "error", 1);
	set = parse_well(WORDS("--config", file, "--log-level=debug"));
	assert_int_equal(opt_int(set, "slots"), 10);
	assert_string_equal(opt_string(set, "log-level"), "debug");
	opt_free(set);
	set = parse_well(WORDS("--slots", "11", "--config", file));
	assert_int_equal(opt_int(set, "slots"), 11);
	assert_string_equal(opt_string(set, "log-level"), "error");
	opt_free(set);
}

static void flags_have_both_forms(void **state)
{
	(void)state;
	struct opt_set *set = parse_well(WORDS("--slots=3", "--ratio", "1", "--strict", "--name="));
	assert_int_equal(opt_int(set, "slots"), 3);
	assert_true(opt_real(set, "ratio") == 1);
	assert_true(opt_bool(set, "strict"));
	assert_string_equal(opt_string(set, "name"), "");
	opt_free(set);
	set = parse_well(WORDS("--strict=yes", "--no-strict"));
	assert_false(opt_bool(set, "strict"));
	opt_free(set);
}

/* The message has the name, the value, where it came from and what would do. */
static void a_bad_value_is_named(void **state)
{
	(void)state;
	const struct {
		const char *word, *name, *says;
	} rows[] = {
		{"--slots=0", "slots", "from 1 to 256"},
		{"--slots=257", "slots", "from 1 to 256"},
		{"--slots=2.5", "slots", "a whole number"},
		{"--slots=", "slots", "\"\""},
		{"--slots=8x", "slots", "\"8x\""},
		{"--slots=nan", "slots", "\"nan\""},
		{"--ratio=inf", "ratio", "a number from 0 to 1"},
		{"--ratio=-0.1", "ratio", "from 0 to 1"},
		{"--strict=maybe", "strict", "true or false"},
		{"--log-level=loud", "log-level", "error|warn|info|debug"},
		{"--log-level=err", "log-level", "\"err\""},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct svc_err err = parse_badly(WORDS(rows[i].word), SVC_USAGE);
		assert_string_equal(err.param, rows[i].name);
		assert_non_null(strstr(err.msg, rows[i].says));
		assert_non_null(strstr(err.msg, "flag"));
	}
	setenv("LOCKSTEP_SLOTS", "many", 1);
	struct svc_err err = parse_badly(WORDS(NULL), SVC_BAD_CONFIG);
	assert_non_null(strstr(err.msg, "environment"));
	unsetenv("LOCKSTEP_SLOTS");
	write_file("slots = few\n");
	err = parse_badly(WORDS("--config", file), SVC_BAD_CONFIG);
	assert_non_null(strstr(err.msg, "from file"));
}

static void what_is_no_option_is_refused(void **state)
{
	(void)state;
	assert_non_null(strstr(parse_badly(WORDS("--slotz=3"), SVC_USAGE).msg, "--slotz"));
	assert_non_null(strstr(parse_badly(WORDS("--no-slots"), SVC_USAGE).msg, "--no-slots"));
	assert_non_null(strstr(parse_badly(WORDS("word"), SVC_USAGE).msg, "\"word\""));
	assert_non_null(strstr(parse_badly(WORDS("--slots"), SVC_USAGE).msg, "needs a value"));
	char name[200];
	memset(name, 'x', sizeof name);
	memcpy(name, "--", 2);
	name[sizeof name - 1] = 0;
	parse_badly(WORDS(name), SVC_USAGE);
}

static void a_damaged_file_is_refused_by_line(void **state)
{
	(void)state;
	write_file("slots = 9\nno value here\n");
	assert_non_null(strstr(parse_badly(WORDS("--config", file), SVC_BAD_CONFIG).msg, "line 2"));
	unlink(file);
	/* Half of a long line must not be taken for a value, nor its rest for another line. */
	char many[191] = "", text[600];
	memset(many, 'x', sizeof many - 1);
	snprintf(text, sizeof text, "slots = 9\nname = %sslots = 77\n", many);
	write_file(text);
	struct svc_err err = parse_badly(WORDS("--config", file), SVC_BAD_CONFIG);
	assert_non_null(strstr(err.msg, "line 2 is too long"));
	unlink(file);
	err = parse_badly(WORDS("--config", "/nowhere/lockstep.conf"), SVC_BAD_CONFIG);
	assert_non_null(strstr(err.msg, "/nowhere/lockstep.conf"));
	parse_badly(WORDS("--config", "/tmp"), SVC_BAD_CONFIG);
	write_file("config = /tmp/other\nslots = x\n");
	err = parse_badly(WORDS("--config", file), SVC_BAD_CONFIG);
	assert_string_equal(err.param, "config");
	unlink(file);
	write_file("");
	opt_free(parse_well(WORDS("--config", file)));
}

static void words_are_kept_for_tools(void **state)
{
	(void)state;
	struct opt_set *set;
	enum opt_action action;
	struct svc_err err;
	write_file("slots = 9\n");
	assert_int_equal(
		parse(&tool, WORDS("chat", "--config", file, "--", "--slots"), &set, &action, &err),
		SVC_OK);
	/* Once, although the flags are read twice. */
	assert_int_equal(opt_positional_count(set), 2);
	assert_string_equal(opt_positional(set, 0), "chat");
	assert_string_equal(opt_positional(set, 1), "--slots");
	assert_null(opt_positional(set, 2));
	opt_free(set);
}

static void actions_are_told(void **state)
{
	(void)state;
	const struct {
		const char *word;
		enum opt_action action;
	} rows[] = {{"--help", OPT_HELP},
		    {"-h", OPT_HELP},
		    {"--version", OPT_VERSION},
		    {"--check", OPT_CHECK},
		    {"--print-config", OPT_PRINT_CONFIG}};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct opt_set *set;
		enum opt_action action;
		struct svc_err err;
		assert_int_equal(parse(&source, WORDS(rows[i].word), &set, &action, &err), SVC_OK);
		assert_int_equal(action, rows[i].action);
		opt_free(set);
	}
	char *text = NULL;
	size_t size = 0;
	struct opt_set *set = parse_well(WORDS("--slots=12"));
	FILE *out = open_memstream(&text, &size);
	opt_print_config(set, out);
	opt_print_help(&source, out);
	fclose(out);
	assert_non_null(strstr(text, "slots = 12  # flag"));
	assert_non_null(strstr(text, "ratio = 0.5  # default"));
	assert_non_null(strstr(text, "--log-level error|warn|info|debug"));
	assert_non_null(strstr(text, "in the file given by --config.\n"));
	free(text);
	opt_free(set);
	assert_null(opt_free(NULL));
}

#define CLEAN(test) cmocka_unit_test_teardown(test, clean)

static bool not_slots(void *context, const char *name)
{
	(void)context;
	return strcmp(name, "slots") != 0;
}

static void count(void *context, const struct opt_change *change)
{
	int *n = context;
	n[change->taken]++;
	assert_string_not_equal(change->before, change->after);
}

static void test_exchange_there_and_back(void **state)
{
	(void)state;
	int n[2] = {0, 0};
	struct opt_set *set = parse_well(WORDS("--slots", "4", "--name", "a"));
	struct opt_set *other = parse_well(WORDS("--slots", "5", "--name", "b", "--strict"));
	const struct opt_exchange exchange = {not_slots, count, n};
	opt_exchange(set, other, &exchange);
	assert_int_equal(opt_int(set, "slots"), 4);
	assert_string_equal(opt_string(set, "name"), "b");
	assert_true(opt_bool(set, "strict"));
	assert_string_equal(opt_string(other, "name"), "a");
	assert_true(n[0] == 1 && n[1] == 2);
	opt_exchange(set, other, &exchange);
	assert_string_equal(opt_string(set, "name"), "a");
	assert_false(opt_bool(set, "strict"));
	assert_true(n[0] == 2 && n[1] == 4);
	opt_free(set);
	opt_free(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exchange_there_and_back),
		CLEAN(the_strongest_source_wins),
		CLEAN(flags_have_both_forms),
		CLEAN(a_bad_value_is_named),
		CLEAN(what_is_no_option_is_refused),
		CLEAN(a_damaged_file_is_refused_by_line),
		CLEAN(words_are_kept_for_tools),
		CLEAN(actions_are_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
