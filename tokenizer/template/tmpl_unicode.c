#include "tokenizer/template/tmpl_unicode.h"

struct code_range {
	uint32_t first, last, stride;
};

struct case_range {
	uint32_t first, last, stride;
	int32_t delta;
};

struct case_special {
	uint32_t code, to[TMPL_CASE_CODES];
};

#include "tokenizer/template/tmpl_unicode_table.inc"

#define LENGTH(array) (sizeof(array) / sizeof *(array))

static bool in_ranges(const struct code_range *ranges, size_t count, uint32_t code)
{
	size_t low = 0, high = count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (ranges[middle].last < code)
			low = middle + 1;
		else
			high = middle;
	}
	return low < count && ranges[low].first <= code &&
	       (code - ranges[low].first) % ranges[low].stride == 0;
}

bool tmpl_is_space(uint32_t code)
{
	if (code < 0x80)
		return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20);
	return code == 0x85 || code == 0xA0 || code == 0x1680 ||
	       (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
	       code == 0x202F || code == 0x205F || code == 0x3000;
}

bool tmpl_is_line_end(uint32_t code)
{
	return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
	       code == 0x2028 || code == 0x2029;
}

bool tmpl_is_printable(uint32_t code)
{
	return !in_ranges(unprintable_ranges, LENGTH(unprintable_ranges), code);
}

bool tmpl_is_cased(uint32_t code)
{
	return in_ranges(cased_ranges, LENGTH(cased_ranges), code);
}

bool tmpl_is_lowercase(uint32_t code)
{
	return in_ranges(lowercase_ranges, LENGTH(lowercase_ranges), code);
}

bool tmpl_is_uppercase(uint32_t code)
{
	uint32_t upper[TMPL_CASE_CODES];
	return tmpl_is_cased(code) && !tmpl_is_lowercase(code) &&
	       tmpl_map_case(code, CASE_UPPER, upper) == 1 && upper[0] == code;
}

bool tmpl_is_case_ignorable(uint32_t code)
{
	return in_ranges(ignorable_ranges, LENGTH(ignorable_ranges), code);
}

static const struct {
	const struct case_range *ranges;
	const struct case_special *specials;
	size_t range_count, special_count;
} case_maps[] = {
	[CASE_UPPER] = {upper_ranges, upper_specials, LENGTH(upper_ranges), LENGTH(upper_specials)},
	[CASE_LOWER] = {lower_ranges, lower_specials, LENGTH(lower_ranges), LENGTH(lower_specials)},
	[CASE_TITLE] = {title_ranges, title_specials, LENGTH(title_ranges), LENGTH(title_specials)},
};

size_t tmpl_map_case(uint32_t code, enum tmpl_case which, uint32_t ret_codes[TMPL_CASE_CODES])
{
	ret_codes[0] = code;
	if (code < 0x80) {
		bool letter = (code | 0x20) >= 'a' && (code | 0x20) <= 'z';
		if (letter)
			ret_codes[0] = which == CASE_LOWER ? code | 0x20 : code & ~0x20u;
		return 1;
	}
	/* Ranges of different steps may lie within one another: a walk, not a search. */
	const struct case_range *range = case_maps[which].ranges;
	for (size_t i = 0; i < case_maps[which].range_count && range[i].first <= code; i++)
		if (code <= range[i].last && (code - range[i].first) % range[i].stride == 0) {
			ret_codes[0] = (uint32_t)((int32_t)code + range[i].delta);
			return 1;
		}
	const struct case_special *special = case_maps[which].specials;
	for (size_t i = 0; i < case_maps[which].special_count && special[i].code <= code; i++)
		if (special[i].code == code) {
			size_t count = 0;
			for (; count < TMPL_CASE_CODES && special[i].to[count]; count++)
				ret_codes[count] = special[i].to[count];
			return count;
		}
	return 1;
}
