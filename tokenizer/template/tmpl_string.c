#include "tokenizer/template/tmpl_string.h"

#include "tokenizer/template/tmpl_state.h"

size_t tmpl_count_chars(struct span bytes)
{
	size_t count = 0;
	for (size_t i = 0; i < bytes.len; i++)
		count += ((unsigned char)bytes.ptr[i] & 0xC0) != 0x80;
	return count;
}

size_t tmpl_decode(const char *ptr, uint32_t *ret_code)
{
	const unsigned char *s = (const unsigned char *)ptr;
	if (s[0] < 0x80)
		return *ret_code = s[0], 1;
	if (s[0] < 0xE0)
		return *ret_code = (s[0] & 0x1Fu) << 6 | (s[1] & 0x3Fu), 2;
	if (s[0] < 0xF0)
		return *ret_code = (s[0] & 0x0Fu) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu), 3;
	*ret_code =
		(s[0] & 0x07u) << 18 | (s[1] & 0x3Fu) << 12 | (s[2] & 0x3Fu) << 6 | (s[3] & 0x3Fu);
	return 4;
}

size_t tmpl_encode(uint32_t code, char *ret_bytes)
{
	if (code < 0x80)
		return ret_bytes[0] = (char)code, 1;
	size_t len = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
	for (size_t i = len - 1; i > 0; i--, code >>= 6)
		ret_bytes[i] = (char)(0x80 | (code & 0x3F));
	static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
	ret_bytes[0] = (char)(lead[len] | code);
	return len;
}

size_t tmpl_offset(const struct tmpl_str *s, size_t index)
{
	if (s->chars == s->len)
		return index;
	size_t at = 0;
	for (; at < s->len; at++)
		if (((unsigned char)s->ptr[at] & 0xC0) != 0x80 && index-- == 0)
			break;
	return at;
}

/* The run that holds offset. */
static uint32_t run_at(const struct tmpl_str *s, size_t offset)
{
	uint32_t low = 0, high = s->run_count - 1;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (s->runs[middle].end > offset)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

bool tmpl_trusted_at(const struct tmpl_str *s, size_t offset)
{
	return s->runs ? s->runs[run_at(s, offset)].trusted : s->trusted;
}

bool tmpl_trusted(const struct tmpl_str *s)
{
	return !s->runs && (s->trusted || s->len == 0);
}

const struct tmpl_str *tmpl_str_new(struct tmpl_eval *e, struct span bytes, bool trusted)
{
	struct tmpl_str *s = tmpl_alloc(e, 1, sizeof *s);
	if (!s || !tmpl_charge(e, bytes.len / 64))
		return NULL;
	*s = (struct tmpl_str){.ptr = bytes.len ? bytes.ptr : "",
			       .len = bytes.len,
			       .chars = tmpl_count_chars(bytes),
			       .trusted = trusted};
	return s;
}

const struct tmpl_str *tmpl_str_static(struct tmpl_eval *e, const char *text)
{
	return tmpl_str_new(e, span_of(text), true);
}

const struct tmpl_str *tmpl_str_slice(struct tmpl_eval *e, const struct tmpl_str *s, size_t from,
				      size_t to)
{
	struct span bytes = {s->ptr + from, to > from ? to - from : 0};
	if (bytes.len == s->len)
		return s;
	const struct tmpl_run *runs = NULL;
	bool trusted = s->trusted;
	uint32_t count = 0;
	if (s->runs && bytes.len) {
		uint32_t first = run_at(s, from), last = run_at(s, to - 1);
		trusted = s->runs[first].trusted;
		count = last - first + 1;
		if (count > 1) {
			struct tmpl_run *copy = tmpl_alloc(e, count, sizeof *copy);
			if (!copy)
				return NULL;
			for (uint32_t i = 0; i < count; i++) {
				copy[i] = s->runs[first + i];
				copy[i].end = copy[i].end < to ? copy[i].end - from : bytes.len;
			}
			runs = copy;
		}
	}
	struct tmpl_str *slice = tmpl_alloc(e, 1, sizeof *slice);
	if (!slice || !tmpl_charge(e, bytes.len / 64 + count / 8))
		return NULL;
	*slice =
		(struct tmpl_str){.ptr = bytes.ptr,
				  .len = bytes.len,
				  .chars = s->chars == s->len ? bytes.len : tmpl_count_chars(bytes),
				  .runs = runs,
				  .run_count = runs ? count : 0,
				  .trusted = trusted,
				  .markup = s->markup};
	return slice;
}

const struct tmpl_str *tmpl_str_join2(struct tmpl_eval *e, const struct tmpl_str *a,
				      const struct tmpl_str *b)
{
	struct tmpl_builder builder;
	tmpl_build(&builder, e, a->len + b->len);
	tmpl_add(&builder, a);
	tmpl_add(&builder, b);
	return tmpl_built(&builder);
}

const struct tmpl_str *tmpl_str_mark(struct tmpl_eval *e, const struct tmpl_str *s, bool markup)
{
	if (s->markup == markup)
		return s;
	struct tmpl_str *copy = tmpl_alloc(e, 1, sizeof *copy);
	if (!copy)
		return NULL;
	*copy = *s;
	copy->markup = markup;
	return copy;
}

static bool reserve(struct tmpl_builder *b, size_t more)
{
	if (b->failed || b->e->code != SVC_OK)
		return b->failed = true, false;
	size_t limit = b->e->limits.output_bytes;
	if (more > limit || b->len > limit - more) {
		b->failed = true;
		return tmpl_fail(b->e, SVC_TOO_LARGE,
				 "a text of more than %zu bytes, the limit of one rendering",
				 limit);
	}
	if (!tmpl_charge(b->e, more / 64))
		return b->failed = true, false;
	if (b->room - b->len >= more)
		return true;
	size_t room = b->room < 32 ? 64 : b->room * 2;
	if (room < b->len + more)
		room = b->len + more;
	char *ptr = tmpl_alloc(b->e, room, 1);
	if (!ptr)
		return b->failed = true, false;
	if (b->len)
		memcpy(ptr, b->ptr, b->len);
	b->ptr = ptr;
	b->room = room;
	return true;
}

/* Says that the bytes up to b->len are trusted or not, after some were appended. */
static void extend_run(struct tmpl_builder *b, bool trusted)
{
	if (b->run_count && b->runs[b->run_count - 1].trusted == trusted) {
		b->runs[b->run_count - 1].end = b->len;
		return;
	}
	if (b->run_count == b->run_room) {
		struct tmpl_run *runs = tmpl_alloc(b->e, b->run_room * 2, sizeof *runs);
		if (!runs) {
			b->failed = true;
			return;
		}
		memcpy(runs, b->runs, b->run_count * sizeof *runs);
		b->runs = runs;
		b->run_room *= 2;
	}
	b->runs[b->run_count++] = (struct tmpl_run){b->len, trusted};
}

void tmpl_build(struct tmpl_builder *b, struct tmpl_eval *e, size_t expected)
{
	b->e = e;
	b->ptr = NULL;
	b->len = b->room = 0;
	b->runs = b->first_runs;
	b->run_count = 0;
	b->run_room = TMPL_FIRST_RUNS;
	b->failed = false;
	/* A hint only: what is too much fails when it is really appended. */
	if (expected > 0 && expected <= e->limits.output_bytes) {
		b->ptr = tmpl_alloc(e, expected, 1);
		b->room = b->ptr ? expected : 0;
	}
}

void tmpl_add_bytes(struct tmpl_builder *b, const char *ptr, size_t len, bool trusted)
{
	if (len == 0 || !reserve(b, len))
		return;
	memcpy(b->ptr + b->len, ptr, len);
	b->len += len;
	extend_run(b, trusted);
}

void tmpl_add_text(struct tmpl_builder *b, const char *text, bool trusted)
{
	tmpl_add_bytes(b, text, strlen(text), trusted);
}

void tmpl_add_repeat(struct tmpl_builder *b, char byte, size_t count, bool trusted)
{
	if (count == 0 || !reserve(b, count))
		return;
	memset(b->ptr + b->len, byte, count);
	b->len += count;
	extend_run(b, trusted);
}

void tmpl_add_slice(struct tmpl_builder *b, const struct tmpl_str *s, size_t from, size_t to)
{
	if (from >= to)
		return;
	if (!s->runs) {
		tmpl_add_bytes(b, s->ptr + from, to - from, s->trusted);
		return;
	}
	for (uint32_t i = run_at(s, from); from < to && !b->failed; i++) {
		size_t end = s->runs[i].end < to ? s->runs[i].end : to;
		if (!tmpl_charge(b->e, 1))
			b->failed = true;
		tmpl_add_bytes(b, s->ptr + from, end - from, s->runs[i].trusted);
		from = end;
	}
}

void tmpl_add(struct tmpl_builder *b, const struct tmpl_str *s)
{
	tmpl_add_slice(b, s, 0, s->len);
}

const struct tmpl_str *tmpl_built(struct tmpl_builder *b)
{
	if (b->failed || b->e->code != SVC_OK)
		return NULL;
	struct tmpl_str *s = tmpl_alloc(b->e, 1, sizeof *s);
	if (!s)
		return NULL;
	struct span bytes = {b->len ? b->ptr : "", b->len};
	*s = (struct tmpl_str){.ptr = bytes.ptr,
			       .len = bytes.len,
			       .chars = tmpl_count_chars(bytes),
			       .trusted = b->run_count == 0 || b->runs[0].trusted};
	if (b->run_count <= 1)
		return s;
	if (b->runs == b->first_runs) {
		struct tmpl_run *runs = tmpl_alloc(b->e, b->run_count, sizeof *runs);
		if (!runs)
			return NULL;
		memcpy(runs, b->first_runs, b->run_count * sizeof *runs);
		b->runs = runs;
	}
	s->runs = b->runs;
	s->run_count = b->run_count;
	return s;
}
