/* grammar/write.h: writes grammars in their text form. */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/span.h"
#include "grammar/chars.h"

#define GR_CHOICES_MAX 16384u

/* A grammar while it is written: rules that are complete. */
struct gr_writer {
	struct buf out;
	uint32_t n_names; /* names given so far */
};

/* A quoted literal. */
void gr_put_literal(struct buf *out, struct span bytes);
/* A class of the set's characters; the set must be tidy. */
void gr_put_class(struct buf *out, const struct char_set *set);
/* An item that reads one of the texts, which are UTF-8; adds rules that share their beginnings, so
 * that a long list costs no more than a short one while it is read. Sorts the texts. */
void gr_put_choices(struct gr_writer *writer, struct buf *out, struct span *texts, size_t n);

/* The rules that what the functions below put refers to: json-ws, json-escape, json-string, ... */
void gr_put_json_rules(struct buf *out);

enum gr_regex_kind {
	GR_REGEX_WHOLE, /* the text as a whole, as itself */
	GR_REGEX_JSON,	/* anywhere in a string, which is written within JSON's quotes */
};
/* An item of what a regular expression (the common part of ECMA-262's and Python's) matches.
 * SVC_INVALID: malformed, or something that isn't supported, by name and byte; err.param stays
 * empty. */
enum svc_code gr_put_regex(struct buf *out, struct span regex, enum gr_regex_kind kind,
			   struct svc_err *err) SVC_CHECKED;

/* Bounds of a number, as decimal numbers of at most 15 digits before the point and 17 behind it. */
struct gr_bound {
	bool given, exclusive;
	double value;
};
/* Items that read an integer or any decimal number within the bounds. SVC_INVALID: a bound that is
 * too large or too fine. */
enum svc_code gr_put_integer(struct buf *out, struct gr_bound low, struct gr_bound high,
			     struct svc_err *err) SVC_CHECKED;
enum svc_code gr_put_number(struct buf *out, struct gr_bound low, struct gr_bound high,
			    struct svc_err *err) SVC_CHECKED;
