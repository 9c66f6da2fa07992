/* tokenizer/template/tmpl_state.h: the state of one rendering (or compilation): its limits, its
 * memory, its first failure. Internal to tmpl_*.c. */
#pragma once
#include "base/arena.h"
#include "tokenizer/template/tmpl_value.h"

/* Nested expressions, blocks, calls and values. At this depth the C stack stays below 1 MB. */
#define TMPL_MOST_DEPTH 600u

struct tmpl_scope;

/* One rendering. */
struct tmpl_eval {
	const struct tmpl *tmpl;
	const struct tmpl_input *input;
	struct svc_err *err;
	enum svc_code code; /* of the first failure; the others are ignored */
	struct arena arena;
	struct tmpl_limits limits;
	uint64_t steps;
	unsigned depth;
	uint32_t line;
	struct tmpl_scope *scope;
	struct tmpl_value *context; /* per symbol: the input's variables and the functions */
	struct tmpl_builder *out;
	json_t *parsed;		/* array: JSON of our own that values borrow from */
	struct tmpl_value hole; /* the text that a filter block's chain starts from */
};

/* Keeps the first failure; the line is put before the message. */
void tmpl_failed(struct tmpl_eval *e, enum svc_code code, const char *format, ...) SVC_PRINTF(3, 4);
void tmpl_failed_undefined(struct tmpl_eval *e, struct tmpl_value value);
void tmpl_failed_type(struct tmpl_eval *e, const char *what, struct tmpl_value value);

/* return tmpl_fail(e, ...): false, as the compiler sees too. */
#define tmpl_fail(...)		      (tmpl_failed(__VA_ARGS__), false)
#define tmpl_fail_undefined(e, value) (tmpl_failed_undefined(e, value), false)
/* "what" can't be done with a value of this type. */
#define tmpl_fail_type(e, what, value) (tmpl_failed_type(e, what, value), false)

/* Counts work; false when the limit is passed. */
bool tmpl_charge(struct tmpl_eval *e, uint64_t steps);
/* Around everything that recurses. */
bool tmpl_enter(struct tmpl_eval *e);
void tmpl_leave(struct tmpl_eval *e);
/* Zeroed; NULL after a failure. */
void *tmpl_alloc(struct tmpl_eval *e, size_t count, size_t size);
