/* tokenizer/unicode/unicode.h: what the tokenizer has to know of Unicode, from tables pinned in the
 * repository (unicode_generate.py says which versions and why). Bytes that are not UTF-8 are
 * characters of their own, one byte each, without any property. unicode_init comes first; after it
 * everything is read-only and safe from all threads. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/span.h"

enum {
	UNICODE_UPPER = 1,	  /* \p{Lu} \p{Lt} */
	UNICODE_LOWER = 2,	  /* \p{Ll} */
	UNICODE_OTHER_LETTER = 4, /* \p{Lm} \p{Lo} */
	UNICODE_LETTER = UNICODE_UPPER | UNICODE_LOWER | UNICODE_OTHER_LETTER,
	UNICODE_MARK = 8,      /* \p{M} */
	UNICODE_NUMBER = 16,   /* \p{N} */
	UNICODE_NUMERIC = 32,  /* the Digits pre-tokenizer's idea of a digit */
	UNICODE_SPACE = 64,    /* \s, newlines included */
	UNICODE_NEWLINE = 128, /* \r \n */
	UNICODE_PUNCT = 256,   /* \p{P} */
	UNICODE_SYMBOL = 512,  /* \p{S} */
	UNICODE_WORD = 1024,   /* \w */
};

#define UNICODE_END	0x110000u
#define UNICODE_INVALID UINT32_MAX

struct unicode_char {
	uint32_t point; /* or UNICODE_INVALID */
	uint16_t flags; /* UNICODE_… */
	uint8_t len;	/* bytes; 0 at the end of the text */
};

extern uint8_t unicode_class_of[UNICODE_END];
extern const uint16_t unicode_class_flags[];

void unicode_init(void);

/* The character at text[at]; at <= len. */
struct unicode_char unicode_decode(const char *text, size_t len, size_t at);

static inline struct unicode_char unicode_at(const char *text, size_t len, size_t at)
{
	unsigned char byte = at < len ? (unsigned char)text[at] : 0x80;
	if (byte < 0x80)
		return (struct unicode_char){byte, unicode_class_flags[unicode_class_of[byte]], 1};
	return unicode_decode(text, len, at);
}

/* The end of the run of characters from at on that have one of the flags in mask (have none of
 * them). */
size_t unicode_run(const char *text, size_t len, size_t at, unsigned mask);
size_t unicode_run_without(const char *text, size_t len, size_t at, unsigned mask);

/* UTF-8 of a code point below UNICODE_END that is no surrogate: 1 to 4 bytes. */
size_t unicode_encode(uint32_t point, char out[4]);

/* How far text is in NFC already: everything before the result may be copied, and the result begins
 * a segment that composes with nothing before it. len if all of it is. */
size_t unicode_nfc_prefix(const char *text, size_t len, size_t at);
/* Appends the NFC of the segment that begins at `at` and returns where it ends (> at). Linear but
 * for the sorting of long runs of combining marks. Invalid bytes are copied. On lack of memory
 * out->failed is set. */
size_t unicode_nfc_segment(const char *text, size_t len, size_t at, struct buf *out);
