/* Added tokens: found as wholes, the leftmost first and of those the longest, before anything else
 * is done with a text. */
#include <string.h>

#include "tokenizer/tok_private.h"
#include "tokenizer/unicode/unicode.h"

bool tok_text_trusted(const struct tok_text *text, size_t from, size_t end)
{
	size_t low = 0, high = text->n_runs;
	while (low < high) { /* the first run that ends after from */
		size_t middle = (low + high) / 2;
		if (text->runs[middle].end <= from)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < text->n_runs; low++) {
		if (!text->runs[low].trusted)
			return false;
		if (text->runs[low].end >= end)
			return true;
	}
	return false;
}

enum svc_code tok_matcher_build(struct tok *tok, bool normalized, struct tok_matcher *matcher,
				struct svc_err *err)
{
	matcher->added = tok->added;
	for (size_t i = 0; i < tok->n_added; i++) {
		const struct tok_added *added = &tok->added[i];
		if (added->normalized != normalized)
			continue;
		if (!tok_trie_put(&matcher->trie, added->pattern, (int32_t)i))
			return svc_fail(err, SVC_NO_MEMORY, "tokenizer",
					"no memory for %zu added tokens", tok->n_added);
		matcher->starts[(unsigned char)added->pattern.ptr[0]] = true;
		matcher->any = true;
	}
	return SVC_OK;
}

/* The longest added token at `at` that may stand there, or NULL. */
static const struct tok_added *longest_at(const struct tok_matcher *matcher,
					  const struct tok_text *text, size_t at, size_t end)
{
	const struct tok_added *best = NULL;
	uint32_t node = 0;
	for (size_t i = at; i < end;) {
		node = tok_trie_step(&matcher->trie, node, (unsigned char)text->ptr[i++]);
		if (!node)
			break;
		int32_t value = matcher->trie.values[node];
		if (value < 0)
			continue;
		const struct tok_added *added = &matcher->added[value];
		if (!added->control || tok_text_trusted(text, at, i))
			best = added;
	}
	return best;
}

/* Where the character before `at` begins. */
static size_t step_back(const struct tok_text *text, size_t floor, size_t at)
{
	size_t start = at - 1;
	while (start > floor && at - start < 4 && ((unsigned char)text->ptr[start] & 0xC0) == 0x80)
		start--;
	return start + unicode_at(text->ptr, at, start).len == at ? start : at - 1;
}

static bool word_before(const struct tok_text *text, size_t floor, size_t at)
{
	return at > floor &&
	       (unicode_at(text->ptr, at, step_back(text, floor, at)).flags & UNICODE_WORD);
}

static bool word_after(const struct tok_text *text, size_t at, size_t end)
{
	return at < end && (unicode_at(text->ptr, end, at).flags & UNICODE_WORD);
}

static size_t spaces_before(const struct tok_text *text, size_t floor, size_t at)
{
	while (at > floor) {
		size_t start = step_back(text, floor, at);
		if (!(unicode_at(text->ptr, at, start).flags & UNICODE_SPACE))
			break;
		at = start;
	}
	return at;
}

/* On entry *range is the segment searched: begin..end. */
bool tok_matcher_next(const struct tok_matcher *matcher, const struct tok_text *text,
		      struct tok_match *range, size_t at)
{
	size_t floor = range->begin, end = range->end, from = at;
	while (matcher->any && at < end) {
		if (!matcher->starts[(unsigned char)text->ptr[at]]) {
			at++;
			continue;
		}
		const struct tok_added *added = longest_at(matcher, text, at, end);
		if (!added) {
			at++;
			continue;
		}
		size_t stop = at + added->pattern.len;
		if (added->single_word &&
		    (word_before(text, floor, at) || word_after(text, stop, end))) {
			at = stop;
			continue;
		}
		range->begin = added->lstrip ? spaces_before(text, from, at) : at;
		range->end =
			added->rstrip ? unicode_run(text->ptr, end, stop, UNICODE_SPACE) : stop;
		range->id = added->id;
		return true;
	}
	return false;
}
