#include "cli/line.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "cli/line_text.h"

struct line_editor {
	char *path; /* of the history, or NULL */
	char *history[LINE_HISTORY_MAX];
	size_t n_history;
	bool terminal;
	struct termios before; /* the terminal as it was found */
	struct line_text text;
	size_t at; /* place in the history; n_history: the line that is being typed */
	char *typed;
	bool pasting;
};

/* ---- history ---- */

static void history_add(struct line_editor *editor, char *text_take)
{
	if (text_take && editor->n_history == LINE_HISTORY_MAX) {
		free(editor->history[0]);
		memmove(editor->history, editor->history + 1,
			--editor->n_history * sizeof *editor->history);
	}
	if (text_take)
		editor->history[editor->n_history++] = text_take;
}

/* A JSON string in each line. */
static void history_load(struct line_editor *editor)
{
	char *line = NULL;
	size_t room = 0;
	FILE *file = editor->path ? fopen(editor->path, "re") : NULL;
	while (file && getline(&line, &room, file) > 0) {
		json_t *entry = json_loads(line, JSON_DECODE_ANY, NULL);
		if (json_is_string(entry))
			history_add(editor, strdup(json_string_value(entry)));
		json_decref(entry);
	}
	free(line);
	if (file)
		fclose(file);
}

static void folders_make(char *path)
{
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		(void)mkdir(path, 0700);
		*slash = '/';
	}
}

/* What can't be written is forgotten: nobody's work depends on it. */
static void history_save(struct line_editor *editor)
{
	struct buf out = {0};
	for (size_t i = 0; i < editor->n_history; i++) {
		buf_json_string(&out, span_of(editor->history[i]));
		buf_append(&out, "\n", 1);
	}
	folders_make(editor->path);
	int fd = out.failed ? -1
			    : open(editor->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd >= 0 && out.len && write(fd, out.ptr, out.len) < 0)
		(void)unlink(editor->path);
	if (fd >= 0)
		close(fd);
	buf_free(&out);
}

void line_remember(struct line_editor *editor, const char *text)
{
	size_t n = editor->n_history;
	if (*text && !(n && strcmp(editor->history[n - 1], text) == 0))
		history_add(editor, strdup(text));
}

/* step: -1 or 1. The line that is being typed is the newest. */
static void history_show(struct line_editor *editor, int step)
{
	if ((step < 0 && editor->at == 0) || (step > 0 && editor->at == editor->n_history))
		return;
	if (editor->at == editor->n_history) {
		free(editor->typed);
		editor->typed = line_text_copy(&editor->text);
	}
	editor->at = step < 0 ? editor->at - 1 : editor->at + 1;
	const char *text =
		editor->at < editor->n_history ? editor->history[editor->at] : editor->typed;
	line_text_set(&editor->text, text ? text : "");
}

/* ---- the terminal ---- */

static size_t terminal_width(void)
{
	struct winsize size;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 10)
		return 80;
	return size.ws_col;
}

static void say(const char *bytes, size_t n)
{
	while (n) {
		ssize_t done = write(STDOUT_FILENO, bytes, n);
		if (done < 0 && errno != EINTR)
			return;
		bytes += done > 0 ? done : 0;
		n -= done > 0 ? (size_t)done : 0;
	}
}

static void show(const struct line_editor *editor, const char *prompt)
{
	struct buf out = {0};
	line_text_show(&editor->text, prompt, terminal_width(), &out);
	if (!out.failed)
		say(out.ptr, out.len);
	buf_free(&out);
}

static int byte_read(void)
{
	unsigned char byte;
	ssize_t got;
	do {
		got = read(STDIN_FILENO, &byte, 1);
	} while (got < 0 && errno == EINTR);
	return got == 1 ? byte : -1;
}

/* What keys send behind ESC: a number and a last byte, as in "[3~" or "OH". -1: something else. */
static int escape_read(int *ret_number)
{
	int byte = byte_read();
	*ret_number = 0;
	if (byte != '[' && byte != 'O')
		return -1;
	while ((byte = byte_read()) >= 0 && byte < 0x40)
		if (byte >= '0' && byte <= '9' && *ret_number < 1000)
			*ret_number = 10 * *ret_number + byte - '0';
	return byte;
}

/* "[1~" and the like: home and end have two numbers each, a paste has one at both ends. */
static void number_take(struct line_editor *editor, int number)
{
	switch (number) {
	case 1:
	case 7:
		line_text_home(&editor->text);
		break;
	case 4:
	case 8:
		line_text_end(&editor->text);
		break;
	case 3:
		line_text_delete(&editor->text);
		break;
	case 200:
	case 201:
		editor->pasting = number == 200;
		break;
	default:
		break;
	}
}

static void escape_take(struct line_editor *editor)
{
	int number, last = escape_read(&number);
	switch (last) {
	case 'A':
	case 'B':
		history_show(editor, last == 'A' ? -1 : 1);
		break;
	case 'C':
	case 'D':
		line_text_move(&editor->text, last == 'C' ? 1 : -1);
		break;
	case 'H':
		line_text_home(&editor->text);
		break;
	case 'F':
		line_text_end(&editor->text);
		break;
	case '~':
		number_take(editor, number);
		break;
	default:
		break;
	}
}

/* GOES_ON, or how the line ended. */
enum { GOES_ON = -1 };

#define CONTROL(letter) ((letter)&0x1F)

static int key_take(struct line_editor *editor, int byte)
{
	struct line_text *text = &editor->text;
	switch (byte) {
	case -1:
		return LINE_END;
	case '\r':
	case '\n':
		if (!editor->pasting)
			return LINE_TYPED;
		line_text_insert(text, '\n');
		break;
	case CONTROL('C'):
		return LINE_ABANDONED;
	case CONTROL('D'):
		if (text->len == 0)
			return LINE_END;
		line_text_delete(text);
		break;
	case 0x1B:
		escape_take(editor);
		break;
	case 0x7F:
	case CONTROL('H'):
		line_text_erase(text);
		break;
	case CONTROL('A'):
		line_text_home(text);
		break;
	case CONTROL('E'):
		line_text_end(text);
		break;
	case CONTROL('K'):
		line_text_cut_right(text);
		break;
	case CONTROL('U'):
		line_text_cut_left(text);
		break;
	case CONTROL('W'):
		line_text_cut_word(text);
		break;
	case CONTROL('P'):
	case CONTROL('N'):
		history_show(editor, byte == CONTROL('P') ? -1 : 1);
		break;
	default:
		if (byte >= 0x20 || byte == '\t')
			line_text_insert(text, (char)byte);
	}
	return GOES_ON;
}

static int edit(struct line_editor *editor, const char *prompt)
{
	int outcome = GOES_ON;
	line_text_set(&editor->text, "");
	editor->at = editor->n_history;
	editor->pasting = false;
	while (outcome == GOES_ON) {
		/* Half a character, or the middle of what is pasted, isn't shown. */
		if (line_text_is_whole(&editor->text) && !editor->pasting)
			show(editor, prompt);
		outcome = key_take(editor, byte_read());
	}
	show(editor, prompt);
	return outcome;
}

/* Keys come one by one and aren't echoed. Between lines that is so too, or a Ctrl-D typed before
 * the prompt would come as a NUL, and keys would show in the answer; there Ctrl-C is a signal. */
static bool terminal_set(const struct line_editor *editor, bool signals)
{
	struct termios keys = editor->before;
	keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN | (signals ? 0 : ISIG));
	keys.c_iflag &= ~(tcflag_t)(IXON | ICRNL);
	keys.c_cc[VMIN] = 1;
	keys.c_cc[VTIME] = 0;
	return tcsetattr(STDIN_FILENO, TCSADRAIN, &keys) == 0;
}

static enum line_outcome terminal_read(struct line_editor *editor, const char *prompt,
				       struct buf *ret_line)
{
	static const char paste_on[] = "\x1B[?2004h", paste_off[] = "\x1B[?2004l\n";
	fflush(stdout);
	if (!terminal_set(editor, false))
		return LINE_END;
	say(paste_on, sizeof paste_on - 1);
	int outcome = edit(editor, prompt);
	say(paste_off, sizeof paste_off - 1);
	(void)terminal_set(editor, true);
	if (outcome == LINE_TYPED && editor->text.len)
		buf_append(ret_line, editor->text.bytes, editor->text.len);
	return (enum line_outcome)outcome;
}

/* ---- the whole ---- */

static enum line_outcome plain_read(const char *prompt, struct buf *ret_line)
{
	char *line = NULL;
	size_t room = 0;
	if (isatty(STDIN_FILENO)) {
		fputs(prompt, stdout);
		fflush(stdout);
	}
	ssize_t len = getline(&line, &room, stdin);
	if (len > 0)
		buf_append(ret_line, line, (size_t)len - (line[len - 1] == '\n'));
	free(line);
	return len > 0 ? LINE_TYPED : LINE_END;
}

enum line_outcome line_read(struct line_editor *editor, const char *prompt, struct buf *ret_line)
{
	buf_clear(ret_line);
	return editor->terminal ? terminal_read(editor, prompt, ret_line)
				: plain_read(prompt, ret_line);
}

struct line_editor *line_open(const char *history)
{
	const char *term = getenv("TERM");
	struct line_editor *editor = calloc(1, sizeof *editor);
	if (!editor)
		return NULL;
	editor->terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term &&
			   strcmp(term, "dumb") != 0 &&
			   tcgetattr(STDIN_FILENO, &editor->before) == 0 &&
			   terminal_set(editor, true);
	editor->path = history && editor->terminal ? strdup(history) : NULL;
	history_load(editor);
	return editor;
}

struct line_editor *line_close(struct line_editor *editor)
{
	if (!editor)
		return NULL;
	if (editor->terminal)
		(void)tcsetattr(STDIN_FILENO, TCSADRAIN, &editor->before);
	if (editor->path)
		history_save(editor);
	for (size_t i = 0; i < editor->n_history; i++)
		free(editor->history[i]);
	free(editor->path);
	free(editor->typed);
	line_text_free(&editor->text);
	free(editor);
	return NULL;
}
