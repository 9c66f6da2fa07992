#include "cli/line_text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void line_text_free(struct line_text *text)
{
	free(text->bytes);
	*text = (struct line_text){0};
}

static bool room_make(struct line_text *text, size_t room)
{
	if (room <= text->room)
		return true;
	char *larger = realloc(text->bytes, 2 * room);
	if (!larger)
		return false;
	text->bytes = larger;
	text->room = 2 * room;
	return true;
}

void line_text_set(struct line_text *text, const char *bytes)
{
	size_t len = strlen(bytes);
	text->len = room_make(text, len + 1) ? len : 0;
	if (text->len)
		memcpy(text->bytes, bytes, text->len);
	text->cursor = text->len;
}

char *line_text_copy(const struct line_text *text)
{
	char *copy = malloc(text->len + 1);
	if (!copy)
		return NULL;
	if (text->len)
		memcpy(copy, text->bytes, text->len);
	copy[text->len] = 0;
	return copy;
}

void line_text_insert(struct line_text *text, char byte)
{
	if (!room_make(text, text->len + 1))
		return;
	memmove(text->bytes + text->cursor + 1, text->bytes + text->cursor,
		text->len - text->cursor);
	text->bytes[text->cursor++] = byte;
	text->len++;
}

/* ---- characters ---- */

/* Bytes of a character that begins so; 1 for what is none. */
static size_t length_by(char first)
{
	unsigned char byte = (unsigned char)first;
	return byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
}

static bool is_inside(char byte)
{
	return ((unsigned char)byte & 0xC0) == 0x80;
}

static size_t before(const struct line_text *text, size_t at)
{
	if (at)
		at--;
	while (at && is_inside(text->bytes[at]))
		at--;
	return at;
}

static size_t behind(const struct line_text *text, size_t at)
{
	if (at < text->len)
		at++;
	while (at < text->len && is_inside(text->bytes[at]))
		at++;
	return at;
}

bool line_text_is_whole(const struct line_text *text)
{
	size_t last = before(text, text->cursor);
	return text->cursor == 0 || text->cursor - last >= length_by(text->bytes[last]) ||
	       is_inside(text->bytes[last]);
}

/* ---- moves and cuts ---- */

void line_text_move(struct line_text *text, int direction)
{
	text->cursor = direction < 0 ? before(text, text->cursor) : behind(text, text->cursor);
}

void line_text_home(struct line_text *text)
{
	text->cursor = 0;
}

void line_text_end(struct line_text *text)
{
	text->cursor = text->len;
}

static void cut(struct line_text *text, size_t from, size_t to)
{
	if (from >= to)
		return;
	memmove(text->bytes + from, text->bytes + to, text->len - to);
	text->len -= to - from;
	text->cursor = from;
}

void line_text_erase(struct line_text *text)
{
	cut(text, before(text, text->cursor), text->cursor);
}

void line_text_delete(struct line_text *text)
{
	cut(text, text->cursor, behind(text, text->cursor));
}

void line_text_cut_right(struct line_text *text)
{
	cut(text, text->cursor, text->len);
}

void line_text_cut_left(struct line_text *text)
{
	cut(text, 0, text->cursor);
}

void line_text_cut_word(struct line_text *text)
{
	size_t from = text->cursor;
	while (from && text->bytes[from - 1] == ' ')
		from--;
	while (from && text->bytes[from - 1] != ' ')
		from--;
	cut(text, from, text->cursor);
}

/* ---- what is shown ---- */

struct range {
	uint32_t first, last;
};

static bool is_in(uint32_t c, const struct range *ranges, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (c >= ranges[i].first && c <= ranges[i].last)
			return true;
	return false;
}

#define IS_IN(c, ranges) is_in((c), (ranges), sizeof(ranges) / sizeof *(ranges))

/* Cells that a character takes, about as terminals have it. */
static size_t cells_of(uint32_t c)
{
	static const struct range none[] = {{0x300, 0x36F}, {0x200B, 0x200F}, {0xFE00, 0xFE0F}};
	static const struct range two[] = {
		{0x1100, 0x115F},   {0x2E80, 0x303E},	{0x3041, 0x4DBF},   {0x4E00, 0xA4CF},
		{0xAC00, 0xD7A3},   {0xF900, 0xFAFF},	{0xFE30, 0xFE6F},   {0xFF01, 0xFF60},
		{0xFFE0, 0xFFE6},   {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF},
		{0x20000, 0x3FFFD},
	};
	return IS_IN(c, none) ? 0 : IS_IN(c, two) ? 2 : 1;
}

static uint32_t code_point(const char *bytes, size_t n)
{
	static const uint8_t masks[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
	uint32_t c = (unsigned char)bytes[0] & masks[n < 4 ? n : 4];
	for (size_t i = 1; i < n; i++)
		c = c << 6 | ((unsigned char)bytes[i] & 0x3F);
	return c;
}

static size_t cells_between(const struct line_text *text, size_t from, size_t to)
{
	size_t cells = 0;
	for (size_t at = from, next; at < to; at = next) {
		next = behind(text, at);
		cells += cells_of(code_point(text->bytes + at, next - at));
	}
	return cells;
}

/* Line breaks and other control characters have signs. */
static void character_put(const struct line_text *text, size_t at, size_t next, struct buf *out)
{
	unsigned char byte = (unsigned char)text->bytes[at];
	if (byte == '\n')
		buf_print(out, "\xE2\x86\xB5");
	else if (byte < 0x20 || byte == 0x7F || is_inside(text->bytes[at]))
		buf_print(out, "?");
	else
		buf_append(out, text->bytes + at, next - at);
}

void line_text_show(const struct line_text *text, const char *prompt, size_t width, struct buf *out)
{
	size_t prompt_cells = strlen(prompt), from = 0, cells = 0, at, next;
	size_t room = width > prompt_cells + 1 ? width - prompt_cells - 1 : 1;
	while (cells_between(text, from, text->cursor) > room)
		from = behind(text, from);
	buf_print(out, "\r%s", prompt);
	for (at = from; at < text->len; at = next) {
		next = behind(text, at);
		cells += cells_of(code_point(text->bytes + at, next - at));
		if (cells > room)
			break;
		character_put(text, at, next, out);
	}
	buf_print(out, "\x1B[K\r");
	size_t column = prompt_cells + cells_between(text, from, text->cursor);
	if (column)
		buf_print(out, "\x1B[%zuC", column);
}
