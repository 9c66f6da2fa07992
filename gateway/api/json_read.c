#include "gateway/api/json_read.h"

#include <stdint.h>
#include <stdio.h>

/* Where a scan is. It counts brackets and strings; whether they make sense is the parser's
 * business. */
struct scan {
	size_t at;
	size_t depth, values;
	struct span key;    /* last string at depth 1 that a colon followed: the outermost member */
	struct span string; /* last string at depth 1 */
};

static void skip_string(struct span text, struct scan *scan)
{
	size_t start = ++scan->at;
	while (scan->at < text.len && text.ptr[scan->at] != '"')
		scan->at += text.ptr[scan->at] == '\\' ? 2 : 1;
	size_t end = scan->at < text.len ? scan->at : text.len;
	if (scan->depth == 1)
		scan->string = (struct span){text.ptr + start, end - start};
}

/* Goes to byte `end` or to the first excess of a limit. */
static void scan_to(struct span text, size_t end, struct scan *scan)
{
	for (; scan->at < end; scan->at++) {
		switch (text.ptr[scan->at]) {
		case '"':
			skip_string(text, scan);
			break;
		case '{':
		case '[':
			scan->depth++;
			scan->values++;
			break;
		case '}':
		case ']':
			scan->depth -= scan->depth > 0;
			if (scan->depth == 0)
				scan->key = (struct span){NULL, 0};
			break;
		case ':':
			if (scan->depth == 1)
				scan->key = scan->string;
			break;
		case ',':
			scan->values++;
			break;
		default:
			break;
		}
		if (scan->depth > GW_JSON_DEPTH || scan->values > GW_JSON_VALUES)
			return;
	}
}

/* By hand, because jansson's own count of columns is of code points and lacks the place of some
 * errors. */
static void place_print(char *out, size_t room, struct span text, size_t at)
{
	size_t line = 1, column = 1;
	for (size_t i = 0; i < at && i < text.len; i++) {
		column++;
		if (text.ptr[i] == '\n') {
			line++;
			column = 1;
		}
	}
	snprintf(out, room, "line %zu, byte %zu", line, column);
}

static const char *what_failed(const json_error_t *error)
{
	static const struct {
		enum json_error_code code;
		const char *what;
	} table[] = {
		{json_error_out_of_memory, "out of memory"},
		{json_error_invalid_utf8, "the text is not valid UTF-8"},
		{json_error_premature_end_of_input, "the text ends too early"},
		{json_error_end_of_input_expected, "there is more text after the value"},
		{json_error_duplicate_key, "an object has the same member twice"},
		{json_error_numeric_overflow, "a number is out of range"},
		{json_error_null_byte_in_key, "a member's name has a NUL character"},
	};
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (json_error_code(error) == table[i].code)
			return table[i].what;
	return "syntax error (or half of a UTF-16 surrogate pair, which is no character)";
}

static enum svc_code fail_at(struct span text, size_t at, gw_json_known known, const char *what,
			     struct svc_err *err)
{
	struct scan scan = {0};
	char place[64];
	scan_to(text, at < text.len ? at : text.len, &scan);
	place_print(place, sizeof place, text, at);
	const char *param = known && scan.key.ptr ? known(scan.key) : NULL;
	return svc_fail_param(err, SVC_INVALID, param ? param : "", "JSON refused: %s, at %s", what,
			      place);
}

enum svc_code gw_json_read(struct span text, gw_json_known known, json_t **ret_json,
			   struct svc_err *err)
{
	struct scan scan = {0};
	json_error_t error;
	scan_to(text, text.len, &scan);
	if (scan.depth > GW_JSON_DEPTH)
		return fail_at(text, scan.at, known, "nested deeper than 64 levels", err);
	if (scan.values > GW_JSON_VALUES)
		return fail_at(text, scan.at, known, "more than 262144 values", err);
	json_t *json =
		json_loadb(text.len ? text.ptr : "", text.len,
			   JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
	if (!json)
		return fail_at(text, error.position > 0 ? (size_t)error.position : 0, known,
			       what_failed(&error), err);
	*ret_json = json;
	return SVC_OK;
}
