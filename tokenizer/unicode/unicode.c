#include "tokenizer/unicode/unicode.h"

#include <pthread.h>
#include <string.h>

#include "tokenizer/unicode/unicode_nfc.h"
#include "tokenizer/unicode/unicode_table.h"

uint8_t unicode_class_of[UNICODE_END];

const uint16_t unicode_class_flags[UNICODE_CLASS_COUNT] = {
	[UNICODE_CLASS_OTHER] = 0,
	[UNICODE_CLASS_UPPER] = UNICODE_UPPER | UNICODE_WORD,
	[UNICODE_CLASS_LOWER] = UNICODE_LOWER | UNICODE_WORD,
	[UNICODE_CLASS_OTHER_LETTER] = UNICODE_OTHER_LETTER | UNICODE_WORD,
	[UNICODE_CLASS_MARK] = UNICODE_MARK | UNICODE_WORD,
	[UNICODE_CLASS_DECIMAL] = UNICODE_NUMBER | UNICODE_NUMERIC | UNICODE_WORD,
	[UNICODE_CLASS_LETTER_NUMBER] = UNICODE_NUMBER | UNICODE_NUMERIC | UNICODE_WORD,
	[UNICODE_CLASS_OTHER_NUMBER] = UNICODE_NUMBER | UNICODE_NUMERIC,
	[UNICODE_CLASS_LATER_NUMBER] = UNICODE_NUMERIC,
	[UNICODE_CLASS_SPACE] = UNICODE_SPACE,
	[UNICODE_CLASS_NEWLINE] = UNICODE_SPACE | UNICODE_NEWLINE,
	[UNICODE_CLASS_CONNECTOR] = UNICODE_PUNCT | UNICODE_WORD,
	[UNICODE_CLASS_PUNCTUATION] = UNICODE_PUNCT,
	[UNICODE_CLASS_SYMBOL] = UNICODE_SYMBOL,
	[UNICODE_CLASS_WORD_SYMBOL] = UNICODE_SYMBOL | UNICODE_WORD,
	[UNICODE_CLASS_JOINER] = UNICODE_WORD,
};

static void fill_tables(void)
{
	for (size_t i = 0; i < unicode_class_run_count; i++) {
		uint32_t first = unicode_class_runs[i] >> 8;
		uint32_t end = i + 1 < unicode_class_run_count ? unicode_class_runs[i + 1] >> 8
							       : UNICODE_END;
		memset(unicode_class_of + first, (int)(unicode_class_runs[i] & 0xFF), end - first);
	}
	unicode_nfc_init();
}

void unicode_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, fill_tables);
}

struct unicode_char unicode_decode(const char *text, size_t len, size_t at)
{
	if (at >= len)
		return (struct unicode_char){UNICODE_INVALID, 0, 0};
	const unsigned char *s = (const unsigned char *)text + at;
	uint32_t point;
	size_t n = utf8_length(text + at, len - at);
	if (n == 0)
		return (struct unicode_char){UNICODE_INVALID, 0, 1};
	if (n == 1)
		point = s[0];
	else if (n == 2)
		point = (s[0] & 0x1Fu) << 6 | (s[1] & 0x3Fu);
	else if (n == 3)
		point = (s[0] & 0x0Fu) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu);
	else
		point = (s[0] & 0x07u) << 18 | (s[1] & 0x3Fu) << 12 | (s[2] & 0x3Fu) << 6 |
			(s[3] & 0x3Fu);
	return (struct unicode_char){point, unicode_class_flags[unicode_class_of[point]],
				     (uint8_t)n};
}

size_t unicode_run(const char *text, size_t len, size_t at, unsigned mask)
{
	while (at < len) {
		struct unicode_char c = unicode_at(text, len, at);
		if (!(c.flags & mask))
			break;
		at += c.len;
	}
	return at;
}

size_t unicode_run_without(const char *text, size_t len, size_t at, unsigned mask)
{
	while (at < len) {
		struct unicode_char c = unicode_at(text, len, at);
		if (c.flags & mask)
			break;
		at += c.len;
	}
	return at;
}

size_t unicode_encode(uint32_t point, char out[4])
{
	if (point < 0x80) {
		out[0] = (char)point;
		return 1;
	}
	size_t n = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
	for (size_t i = n - 1; i > 0; i--, point >>= 6)
		out[i] = (char)(0x80 | (point & 0x3F));
	out[0] = (char)((0xF00u >> n & 0xFF) | point);
	return n;
}
