/* cli/line.h: lines typed at a terminal, with editing keys and history. Elsewhere (a pipe, a file,
 * TERM=dumb) plain lines. One thread. From open to close the terminal gives keys one by one and
 * echoes none; Ctrl-C is a key while a line is read and a signal in between. */
#pragma once
#include <stdbool.h>

#include "base/buf.h"

#define LINE_HISTORY_MAX 500u

struct line_editor;

/* history: file of the lines of earlier runs, made when it is missing; NULL: kept for this run
 * only. NULL: out of memory. */
struct line_editor *line_open(const char *history);
/* Writes the history (0600); NULL is fine. Returns NULL. */
struct line_editor *line_close(struct line_editor *editor);
/* LINE_END: the input is at its end. LINE_ABANDONED: Ctrl-C; the line is empty. */
enum line_outcome { LINE_TYPED, LINE_ABANDONED, LINE_END };
/* Replaces *ret_line by the next line, without its end; what is pasted may hold line breaks. */
enum line_outcome line_read(struct line_editor *editor, const char *prompt, struct buf *ret_line);
/* Adds a text to the history, unless it is empty or the last one again. */
void line_remember(struct line_editor *editor, const char *text);
