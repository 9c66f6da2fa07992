/* services/option.h: one typed option table per process. A value comes from, in this order: the
 * flag --name, the environment LOCKSTEP_NAME, the file lockstep.conf (name = value), the default.
 * --help, --check and --print-config read the same table. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

enum opt_kind { OPT_STRING, OPT_INT, OPT_REAL, OPT_BOOL, OPT_CHOICE };

struct opt {
	const char *name; /* "kv-tokens" */
	enum opt_kind kind;
	const char *fallback; /* default, as text */
	double min, max;      /* OPT_INT, OPT_REAL */
	const char *choices;  /* OPT_CHOICE: "auto|host|xrt" */
	const char *help;     /* unit and meaning, one line */
};

struct opt_set; /* tables and values; lives until opt_free */

enum opt_action { OPT_RUN, OPT_HELP, OPT_CHECK, OPT_PRINT_CONFIG, OPT_VERSION };

struct opt_source {
	const char *program;
	const char *summary;	     /* for --help */
	const struct opt *tables[3]; /* each ends with a NULL name; NULL: none */
	bool positionals; /* words that aren't options are kept (command line tools); else refused
			   */
};

/* Parses the command line. SVC_USAGE names the flag, SVC_BAD_CONFIG the file or variable, value,
 * range and remedy. */
SVC_CHECKED enum svc_code opt_parse(const struct opt_source *source, int argc, char **argv,
				    struct opt_set **ret_set, enum opt_action *ret_action,
				    struct svc_err *err);
struct opt_set *opt_free(struct opt_set *set);

/* Values. An unknown name is our own bug: the process aborts. */
const char *opt_string(const struct opt_set *set, const char *name); /* "" if empty */
int64_t opt_int(const struct opt_set *set, const char *name);
double opt_real(const struct opt_set *set, const char *name);
bool opt_bool(const struct opt_set *set, const char *name);
/* True if it came from anywhere but the default. */
bool opt_is_set(const struct opt_set *set, const char *name);
size_t opt_positional_count(const struct opt_set *set);
const char *opt_positional(const struct opt_set *set, size_t index);

/* An option whose text differs between two sets. */
struct opt_change {
	const char *name, *before, *after;
	bool taken;
};

struct opt_exchange {
	bool (*may)(void *context, const char *name);
	void (*told)(void *context, const struct opt_change *change); /* NULL is fine */
	void *context;
};

/* Of two sets of the same tables: what differs and may is exchanged, so that doing it again puts
 * everything back; told hears of each difference. Texts of set stay valid as long as both sets. */
void opt_exchange(struct opt_set *set, struct opt_set *other, const struct opt_exchange *exchange);

void opt_print_help(const struct opt_source *source, FILE *out);
/* name = value  # source */
void opt_print_config(const struct opt_set *set, FILE *out);
