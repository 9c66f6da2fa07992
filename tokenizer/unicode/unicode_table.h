/* tokenizer/unicode/unicode_table.h: shape of the generated tables; only unicode.c and
 * unicode_nfc.c use it. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum unicode_class {
	UNICODE_CLASS_OTHER,
	UNICODE_CLASS_UPPER,
	UNICODE_CLASS_LOWER,
	UNICODE_CLASS_OTHER_LETTER,
	UNICODE_CLASS_MARK,
	UNICODE_CLASS_DECIMAL,
	UNICODE_CLASS_LETTER_NUMBER,
	UNICODE_CLASS_OTHER_NUMBER,
	UNICODE_CLASS_LATER_NUMBER, /* numeric in the newer Unicode version only */
	UNICODE_CLASS_SPACE,
	UNICODE_CLASS_NEWLINE,
	UNICODE_CLASS_CONNECTOR,
	UNICODE_CLASS_PUNCTUATION,
	UNICODE_CLASS_SYMBOL,
	UNICODE_CLASS_WORD_SYMBOL,
	UNICODE_CLASS_JOINER,
	UNICODE_CLASS_COUNT
};

extern const uint32_t unicode_class_runs[];
extern const size_t unicode_class_run_count;

struct unicode_marks {
	uint32_t first, last;
	uint8_t combining_class;
};
extern const struct unicode_marks unicode_marks[];
extern const size_t unicode_mark_count;

struct unicode_decomposition {
	uint32_t point, first, second; /* second 0: one character */
	uint8_t composes;
};
extern const struct unicode_decomposition unicode_decompositions[];
extern const size_t unicode_decomposition_count;
