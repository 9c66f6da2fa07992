#include "grammar/draft.h"

#include <stdlib.h>
#include <string.h>

static uint32_t state_add(struct draft *draft, struct draft_state state)
{
	if (draft->full || draft->n_states >= GR_STATES_MAX) {
		draft->full = true;
		return 0;
	}
	if (draft->n_states == draft->room_states) {
		uint32_t room = draft->room_states ? 2 * draft->room_states : 1024;
		struct draft_state *states = realloc(draft->states, room * sizeof *states);
		if (!states) {
			draft->full = true;
			return 0;
		}
		draft->states = states;
		draft->room_states = room;
	}
	draft->states[draft->n_states] = state;
	return draft->n_states++;
}

static uint32_t empty_add(struct draft *draft, uint32_t to, uint32_t to2)
{
	return state_add(draft, (struct draft_state){.to = to, .to2 = to2, .kind = DRAFT_EMPTY});
}

static void link_to(struct draft *draft, uint32_t from, uint32_t to)
{
	if (!draft->full)
		draft->states[from].to = to;
}

struct draft_part draft_empty(struct draft *draft)
{
	uint32_t state = empty_add(draft, GR_NONE, GR_NONE);
	return (struct draft_part){state, state};
}

static uint32_t byte_add(struct draft *draft, uint8_t low, uint8_t high, uint32_t to)
{
	return state_add(
		draft,
		(struct draft_state){
			.kind = DRAFT_BYTE, .low = low, .high = high, .to = to, .to2 = GR_NONE});
}

struct draft_part draft_bytes(struct draft *draft, struct span bytes)
{
	uint32_t next = empty_add(draft, GR_NONE, GR_NONE);
	struct draft_part part = {next, next};
	for (size_t i = bytes.len; i > 0; i--) {
		uint8_t byte = (uint8_t)bytes.ptr[i - 1];
		part.start = byte_add(draft, byte, byte, part.start);
	}
	return part;
}

struct draft_part draft_call(struct draft *draft, uint32_t rule)
{
	uint32_t end = empty_add(draft, GR_NONE, GR_NONE);
	uint32_t start = state_add(
		draft,
		(struct draft_state){.kind = DRAFT_RULE, .rule = rule, .to = end, .to2 = GR_NONE});
	return (struct draft_part){start, end};
}

struct draft_part draft_join(struct draft *draft, struct draft_part a, struct draft_part b)
{
	link_to(draft, a.end, b.start);
	return (struct draft_part){a.start, b.end};
}

struct draft_part draft_either(struct draft *draft, struct draft_part a, struct draft_part b)
{
	uint32_t end = empty_add(draft, GR_NONE, GR_NONE);
	link_to(draft, a.end, end);
	link_to(draft, b.end, end);
	return (struct draft_part){empty_add(draft, a.start, b.start), end};
}

/* ---- characters ---- */

/* The class that is being built. */
struct class_build {
	struct draft *draft;
	uint32_t first, start, end;
};

static size_t utf8_write(uint32_t c, uint8_t out[4])
{
	if (c < 0x80) {
		out[0] = (uint8_t)c;
		return 1;
	}
	size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	static const uint8_t heads[] = {0, 0, 0xC0, 0xE0, 0xF0};
	for (size_t i = n - 1; i > 0; i--, c >>= 6)
		out[i] = (uint8_t)(0x80 | (c & 0x3F));
	out[0] = (uint8_t)(heads[n] | c);
	return n;
}

/* The state of this class that has this one way, if there is one: characters share their last
 * bytes. */
static uint32_t byte_share(const struct class_build *build, uint8_t low, uint8_t high, uint32_t to)
{
	struct draft *draft = build->draft;
	for (uint32_t i = build->first; !draft->full && i < draft->n_states; i++) {
		const struct draft_state *state = &draft->states[i];
		if (state->kind == DRAFT_BYTE && state->low == low && state->high == high &&
		    state->to == to)
			return i;
	}
	return byte_add(draft, low, high, to);
}

/* Code points whose encodings differ only in a range at each byte. */
static void sequence_add(struct class_build *build, uint32_t low, uint32_t high)
{
	uint8_t from[4] = {0}, to[4] = {0};
	size_t n = utf8_write(low, from);
	(void)utf8_write(high, to);
	uint32_t next = build->end;
	for (size_t i = n; i > 1; i--)
		next = byte_share(build, from[i - 1], to[i - 1], next);
	next = byte_add(build->draft, from[0], to[0], next);
	build->start = build->start == GR_NONE ? next : empty_add(build->draft, next, build->start);
}

/* Cuts a range where the encodings' lengths or leading bits change. */
static void range_add(struct class_build *build, uint32_t low, uint32_t high)
{
	static const uint32_t lasts[] = {0x7F, 0x7FF, 0xD7FF, 0xDFFF, 0xFFFF};
	if (low > high || (low >= 0xD800 && high <= 0xDFFF))
		return;
	for (size_t i = 0; i < sizeof lasts / sizeof *lasts; i++)
		if (low <= lasts[i] && high > lasts[i]) {
			range_add(build, low, lasts[i]);
			range_add(build, lasts[i] + 1, high);
			return;
		}
	for (unsigned bits = 6; high >= 0x80 && bits <= 18; bits += 6) {
		uint32_t mask = (1u << bits) - 1;
		if ((low & ~mask) == (high & ~mask))
			continue;
		if (low & mask) {
			range_add(build, low, low | mask);
			range_add(build, (low | mask) + 1, high);
			return;
		}
		if ((high & mask) != mask) {
			range_add(build, low, (high & ~mask) - 1);
			range_add(build, high & ~mask, high);
			return;
		}
	}
	sequence_add(build, low, high);
}

struct draft_part draft_class(struct draft *draft, const struct draft_range *ranges, size_t n)
{
	struct class_build build = {draft, draft->n_states, GR_NONE, 0};
	build.end = empty_add(draft, GR_NONE, GR_NONE);
	for (size_t i = 0; i < n && !draft->full; i++)
		range_add(&build, ranges[i].low, ranges[i].high);
	if (build.start == GR_NONE) /* an end that nothing leads to */
		build.start = empty_add(draft, GR_NONE, GR_NONE);
	return (struct draft_part){build.start, build.end};
}

/* ---- repetition ---- */

static uint32_t shifted(uint32_t to, uint32_t by)
{
	return to == GR_NONE ? to : to + by;
}

/* Appends copies of the states from `first` on, which only lead to each other. */
static void copies_add(struct draft *draft, uint32_t first, uint32_t n_copies)
{
	uint32_t n = draft->n_states - first;
	if (n && n_copies > (GR_STATES_MAX - draft->n_states) / n)
		draft->full = true;
	for (uint32_t i = 0; i < n_copies && !draft->full; i++)
		for (uint32_t at = 0; at < n && !draft->full; at++) {
			struct draft_state state = draft->states[first + at];
			state.to = shifted(state.to, (i + 1) * n);
			state.to2 = shifted(state.to2, (i + 1) * n);
			(void)state_add(draft, state);
		}
}

struct draft_part draft_repeat(struct draft *draft, uint32_t first, struct draft_part part,
			       uint32_t min, uint32_t max)
{
	bool endless = max == GR_NONE;
	uint32_t n = endless ? (min ? min : 1) : max, size = draft->n_states - first;
	if (n == 0)
		return draft_empty(draft);
	copies_add(draft, first, n - 1);
	uint32_t end = empty_add(draft, GR_NONE, GR_NONE), start = GR_NONE, last = GR_NONE;
	for (uint32_t i = 0; i < n && !draft->full; i++) {
		struct draft_part copy = {part.start + i * size, part.end + i * size};
		/* What may be left out has a way around it, to the end of all. */
		uint32_t entry = i < min ? copy.start : empty_add(draft, copy.start, end);
		if (start == GR_NONE)
			start = entry;
		else
			link_to(draft, last, entry);
		last = copy.end;
		if (endless && i + 1 == n) {
			uint32_t again = empty_add(draft, copy.start, end);
			link_to(draft, last, again);
			last = GR_NONE;
		}
	}
	if (last != GR_NONE)
		link_to(draft, last, end);
	return (struct draft_part){start == GR_NONE ? end : start, end};
}

/* ---- rules ---- */

static uint32_t name_hash(struct span name)
{
	uint32_t hash = 2166136261u; /* FNV-1a */
	for (size_t i = 0; i < name.len; i++)
		hash = (hash ^ (uint8_t)name.ptr[i]) * 16777619u;
	return hash;
}

/* The place of a name in the index, or where it would go. The index is never more than half full.
 */
static uint32_t *index_find(const struct draft *draft, struct span name)
{
	uint32_t mask = (1u << draft->index_bits) - 1, at = name_hash(name) & mask;
	while (draft->index[at] && !span_equal(draft->rules[draft->index[at] - 1].name, name))
		at = (at + 1) & mask;
	return &draft->index[at];
}

static bool rules_grow(struct draft *draft)
{
	uint32_t room = draft->room_rules ? 4 * draft->room_rules : 64;
	struct draft_rule *rules = realloc(draft->rules, room * sizeof *rules);
	if (rules)
		draft->rules = rules;
	uint32_t *index = calloc(2 * (size_t)room, sizeof *index);
	if (!rules || !index) {
		free(index);
		return false;
	}
	free(draft->index);
	draft->index = index;
	draft->room_rules = room;
	draft->index_bits = (uint32_t)__builtin_ctz(2 * room);
	for (uint32_t i = 0; i < draft->n_rules; i++)
		*index_find(draft, rules[i].name) = i + 1;
	return true;
}

uint32_t draft_rule(struct draft *draft, struct span name, size_t at)
{
	if (draft->index) {
		uint32_t found = *index_find(draft, name);
		if (found)
			return found - 1;
	}
	if (draft->n_rules >= GR_RULES_MAX ||
	    (draft->n_rules == draft->room_rules && !rules_grow(draft)) || !draft->index) {
		draft->full = true;
		return 0;
	}
	draft->rules[draft->n_rules] =
		(struct draft_rule){.name = name, .start = GR_NONE, .used_at = at};
	*index_find(draft, name) = ++draft->n_rules;
	return draft->n_rules - 1;
}

void draft_clear(struct draft *draft)
{
	free(draft->states);
	free(draft->rules);
	free(draft->index);
	*draft = (struct draft){0};
}
