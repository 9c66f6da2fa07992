/* cli/line_text.h: the text of a line while it is edited, and what a terminal shows of it. UTF-8;
 * the cursor stands between characters. Pure: no input, no output. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct line_text {
	char *bytes; /* not terminated */
	size_t len, room, cursor;
};

void line_text_free(struct line_text *text);
/* Replaces all of it; the cursor is at the end. */
void line_text_set(struct line_text *text, const char *bytes);
/* A terminated copy, NULL: out of memory. */
char *line_text_copy(const struct line_text *text);
/* Before the cursor; a character of several bytes comes byte by byte. */
void line_text_insert(struct line_text *text, char byte);
/* No character is half there. */
bool line_text_is_whole(const struct line_text *text);
/* By a character: direction -1 or 1. */
void line_text_move(struct line_text *text, int direction);
void line_text_home(struct line_text *text);
void line_text_end(struct line_text *text);
/* The character before, and at the cursor. */
void line_text_erase(struct line_text *text);
void line_text_delete(struct line_text *text);
/* From the cursor to the end; from the beginning to it; the word before it. */
void line_text_cut_right(struct line_text *text);
void line_text_cut_left(struct line_text *text);
void line_text_cut_word(struct line_text *text);

/* Appends what draws prompt and text in the terminal's line, `width` cells wide, and puts the
 * terminal's cursor where the text's is; a text that is too long is shown around it. */
void line_text_show(const struct line_text *text, const char *prompt, size_t width,
		    struct buf *out);
