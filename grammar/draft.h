/* grammar/draft.h: a grammar while it is read: an automaton with empty moves, built bottom up from
 * parts. The states of a part lie side by side, so a repetition copies them as they lie. */
#pragma once
#include "grammar/grammar.h"

enum draft_kind { DRAFT_EMPTY, DRAFT_BYTE, DRAFT_RULE };

struct draft_state {
	uint32_t to, to2; /* to2: a second empty move */
	uint32_t rule;	  /* DRAFT_RULE */
	uint8_t kind, low, high;
};

/* Its end has no way out yet. */
struct draft_part {
	uint32_t start, end;
};

struct draft_range {
	uint32_t low, high; /* code points */
};

struct draft_rule {
	struct span name; /* in the text */
	uint32_t start;	  /* GR_NONE: used but not there yet */
	uint32_t end;
	size_t used_at; /* where in the text it was used first */
};

struct draft {
	struct draft_state *states;
	uint32_t n_states, room_states;
	struct draft_rule *rules;
	uint32_t n_rules, room_rules;
	uint32_t *index; /* rule + 1 by the hash of its name; 0: empty */
	uint32_t index_bits;
	bool full; /* a limit or memory: nothing more is added */
	bool names_tokens;
};

/* All of these are harmless once `full` is set. */
struct draft_part draft_empty(struct draft *draft);
struct draft_part draft_bytes(struct draft *draft, struct span bytes);
struct draft_part draft_call(struct draft *draft, uint32_t rule);
/* One character of the ranges, as UTF-8; surrogates are none. Without a range: nothing fits. */
struct draft_part draft_class(struct draft *draft, const struct draft_range *ranges, size_t n);
struct draft_part draft_join(struct draft *draft, struct draft_part a, struct draft_part b);
struct draft_part draft_either(struct draft *draft, struct draft_part a, struct draft_part b);
/* part, whose states are all from `first` on, min to max times; max GR_NONE: without end. */
struct draft_part draft_repeat(struct draft *draft, uint32_t first, struct draft_part part,
			       uint32_t min, uint32_t max);
/* The rule of that name; adds it. */
uint32_t draft_rule(struct draft *draft, struct span name, size_t at);
void draft_clear(struct draft *draft);

/* gbnf.c: reads a text into an empty draft. The root is the rule `root`. */
enum svc_code draft_read(struct draft *draft, struct span text, uint32_t *ret_root,
			 struct svc_err *err) SVC_CHECKED;
/* compile.c: takes the empty moves out. */
enum svc_code draft_compile(const struct draft *draft, uint32_t root, struct gr_grammar *grammar,
			    struct svc_err *err) SVC_CHECKED;
/* analyse.c: refuses left recursion and empty languages, cuts off what leads nowhere, finds each
 * state's need. */
enum svc_code gr_analyse(struct gr_grammar *grammar, const struct draft *draft,
			 struct svc_err *err) SVC_CHECKED;

#define gr_wrong(err, ...) svc_fail_param(err, SVC_INVALID, "grammar", __VA_ARGS__)
#define gr_large(err, ...) svc_fail_param(err, SVC_INVALID, "grammar", __VA_ARGS__)
