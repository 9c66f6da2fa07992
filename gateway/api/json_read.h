/* gateway/api/json_read.h: a client's JSON, with limits. jansson does the parsing; in front of it a
 * scan caps depth and the number of values, because nesting costs stack and a value costs 50 times
 * its two bytes in memory. Strict: one value, UTF-8, no NaN, no number beyond a double or int64, no
 * lone surrogate, no member twice in one object (which of both would count?). U+0000 in a string is
 * fine.
 *
 * No error text repeats bytes of the input: only places (line and column) and names from the
 * caller's own list. */
#pragma once
#include <jansson.h>

#include "base/err.h"
#include "base/span.h"

#define GW_JSON_DEPTH  64u
#define GW_JSON_VALUES 262144u

/* Says whether key is a name worth repeating: returns the static name, or NULL. */
typedef const char *(*gw_json_known)(struct span key);

/* known finds the name of the outermost member that an error lies in (svc_err.param); NULL is fine.
 * The caller owns *ret_json. SVC_INVALID for everything that is the text's fault. */
enum svc_code gw_json_read(struct span text, gw_json_known known, json_t **ret_json,
			   struct svc_err *err) SVC_CHECKED;
