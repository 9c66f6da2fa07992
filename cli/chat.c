/* lockstep generate and lockstep chat: the gateway's own API, streamed to the terminal. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "cli/line.h"

static const struct opt talk_options[] = {
	{"url", OPT_STRING, "", 0, 0, NULL,
	 "address of the gateway; default http://127.0.0.1:PORT"},
	{"port", OPT_INT, "8080", 1, 65535, NULL, "port of the gateway on this machine"},
	{"model", OPT_STRING, "", 0, 0, NULL,
	 "a name at the server, of several; empty: its first; no variable"},
	{"api-key", OPT_STRING, "", 0, 0, NULL, "sent as a bearer token"},
	{"system", OPT_STRING, "", 0, 0, NULL, "system prompt"},
	{"raw", OPT_BOOL, "false", 0, 0, NULL, "generate: no chat template, the text as it is"},
	{"max-tokens", OPT_INT, "0", 0, 1048576, NULL,
	 "at most this many; 0: the rest of the context"},
	{"temperature", OPT_REAL, "-1", -1, 100, NULL, "-1: the server's default"},
	{"seed", OPT_INT, "-1", -1, 9007199254740991.0, NULL, "-1: random"},
	{"history", OPT_STRING, "", 0, 0, NULL,
	 "chat: file of the lines of earlier chats; none: they are not kept; default: "
	 "lockstep/chat in $XDG_STATE_HOME or ~/.local/state"},
	{0},
};

struct talk {
	struct opt_set *options;
	char url[300];
	json_t *messages;
	struct buf answer;	/* of this turn */
	uint64_t n_tokens;	/* of this turn */
	double first_s, last_s; /* CLOCK_MONOTONIC */
	bool failed;
};

/* Ctrl-C in the middle of an answer of chat: the answer ends there, the chat goes on. */
static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
	(void)number;
	interrupted = 1;
}

static double now_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool on_event(void *context, const json_t *event)
{
	struct talk *talk = context;
	const char *text = NULL, *message = NULL;
	json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
	json_t *error = json_object_get(event, "error");
	if (error) {
		message = json_string_value(json_object_get(error, "message"));
		fprintf(stderr, "\nlockstep: %s\n",
			message ? message : "the server reported an error");
		talk->failed = true;
		return true;
	}
	text = json_string_value(json_object_get(json_object_get(choice, "delta"), "content"));
	if (!text)
		text = json_string_value(json_object_get(choice, "text"));
	json_t *usage = json_object_get(event, "usage");
	if (json_is_object(usage)) /* not every token brings text of its own */
		talk->n_tokens =
			(uint64_t)json_integer_value(json_object_get(usage, "completion_tokens"));
	if (text && *text) {
		if (talk->n_tokens++ == 0)
			talk->first_s = now_s();
		talk->last_s = now_s();
		fputs(text, stdout);
		fflush(stdout);
		buf_append(&talk->answer, text, strlen(text));
	}
	return true;
}

static enum svc_code add_message(struct talk *talk, const char *role, const char *content,
				 struct svc_err *err)
{
	json_t *message = json_pack("{s:s,s:s}", "role", role, "content", content);
	if (json_array_append_new(talk->messages, message) != 0)
		return svc_fail(err, SVC_INVALID, __func__, "the text is not valid UTF-8");
	return SVC_OK;
}

static json_t *make_request(const struct talk *talk, const char *raw_prompt)
{
	json_t *request = raw_prompt
				  ? json_pack("{s:s,s:b}", "prompt", raw_prompt, "stream", 1)
				  : json_pack("{s:O,s:b}", "messages", talk->messages, "stream", 1);
	int64_t max_tokens = opt_int(talk->options, "max-tokens"),
		seed = opt_int(talk->options, "seed");
	double temperature = opt_real(talk->options, "temperature");
	if (*opt_string(talk->options, "model"))
		json_object_set_new(request, "model",
				    json_string(opt_string(talk->options, "model")));
	if (max_tokens > 0)
		json_object_set_new(request, "max_tokens", json_integer(max_tokens));
	if (seed >= 0)
		json_object_set_new(request, "seed", json_integer(seed));
	if (temperature >= 0)
		json_object_set_new(request, "temperature", json_real(temperature));
	json_object_set_new(request, "stream_options", json_pack("{s:b}", "include_usage", 1));
	return request;
}

static enum svc_code ask(struct talk *talk, const char *raw_prompt, struct svc_err *err)
{
	json_t *request = make_request(talk, raw_prompt);
	char *body = request ? json_dumps(request, JSON_COMPACT) : NULL;
	json_decref(request);
	if (!body)
		return svc_fail(err, SVC_INVALID, __func__, "the text is not valid UTF-8");
	struct client_call call = {
		.url = talk->url,
		.path = raw_prompt ? "/v1/completions" : "/v1/chat/completions",
		.api_key = opt_string(talk->options, "api-key"),
		.body = body,
		.on_event = on_event,
		.stop = &interrupted,
		.context = talk,
	};
	talk->n_tokens = 0;
	talk->failed = false;
	buf_clear(&talk->answer);
	enum svc_code code = client_call(&call, err);
	buf_free(&call.answer);
	free(body);
	if (code == SVC_OK && talk->failed)
		code = svc_fail(err, SVC_INTERNAL, __func__, "the answer ended with an error");
	return code;
}

static void close_talk(struct talk *talk)
{
	json_decref(talk->messages);
	buf_free(&talk->answer);
	opt_free(talk->options);
}

static bool open_talk(struct talk *talk, const char *program, int argc, char **argv,
		      int *ret_status)
{
	const struct opt_source source = {program, "asks the server", {talk_options}, true};
	*talk = (struct talk){0};
	/* There the variable is the npu-worker's file; here the option is a name at a server. */
	(void)unsetenv("LOCKSTEP_MODEL");
	if (!cli_options(&source, argc, argv, &talk->options, ret_status))
		return false;
	const char *url = opt_string(talk->options, "url");
	if (*url)
		snprintf(talk->url, sizeof talk->url, "%s", url);
	else
		snprintf(talk->url, sizeof talk->url, "http://127.0.0.1:%" PRId64,
			 opt_int(talk->options, "port"));
	talk->messages = json_array();
	const char *system = opt_string(talk->options, "system");
	struct svc_err err;
	if (!*system || add_message(talk, "system", system, &err) == SVC_OK)
		return true;
	*ret_status = cli_fail(&err);
	close_talk(talk);
	return false;
}

/* The words of the command line, or standard input. */
static void read_prompt(const struct talk *talk, struct buf *prompt)
{
	char block[4096];
	for (size_t i = 0; i < opt_positional_count(talk->options); i++)
		buf_print(prompt, "%s%s", i ? " " : "", opt_positional(talk->options, i));
	for (size_t n; opt_positional_count(talk->options) == 0 &&
		       (n = fread(block, 1, sizeof block, stdin)) > 0;)
		buf_append(prompt, block, n);
}

int cli_generate(int argc, char **argv)
{
	struct talk talk;
	struct svc_err err = {0};
	struct buf prompt = {0};
	int status;
	if (!open_talk(&talk, "lockstep generate", argc, argv, &status))
		return status;
	read_prompt(&talk, &prompt);
	enum svc_code code;
	if (prompt.len == 0) {
		code = svc_fail(&err, SVC_USAGE, __func__,
				"no prompt: lockstep generate \"...\", or text on standard input");
	} else if (opt_bool(talk.options, "raw")) {
		code = ask(&talk, prompt.ptr, &err);
	} else {
		code = add_message(&talk, "user", prompt.ptr, &err);
		code = code ? code : ask(&talk, NULL, &err);
	}
	if (code == SVC_OK)
		putchar('\n');
	buf_free(&prompt);
	close_talk(&talk);
	return code == SVC_OK ? 0 : cli_fail(&err);
}

/* ---- chat ---- */

/* What a line is to be done with. */
enum chat_step { CHAT_ASK, CHAT_NEXT, CHAT_LEAVE };

/* The last turn of the user is asked again, its answer forgotten. */
static enum chat_step chat_retry(struct talk *talk)
{
	size_t n = json_array_size(talk->messages);
	const char *role =
		json_string_value(json_object_get(json_array_get(talk->messages, n - 1), "role"));
	if (n < 2 || !role || strcmp(role, "assistant") != 0) {
		printf("(there is no answer yet)\n");
		return CHAT_NEXT;
	}
	json_array_remove(talk->messages, n - 1);
	return CHAT_ASK;
}

/* A line that begins with / is a command. */
static enum chat_step chat_command(struct talk *talk, const char *line)
{
	struct svc_err err;
	if (strcmp(line, "/quit") == 0 || strcmp(line, "/exit") == 0)
		return CHAT_LEAVE;
	if (strcmp(line, "/retry") == 0)
		return chat_retry(talk);
	if (strcmp(line, "/clear") == 0) {
		json_array_clear(talk->messages);
		printf("(the conversation is empty)\n");
	} else if (strncmp(line, "/system ", 8) == 0) {
		json_array_clear(talk->messages);
		if (add_message(talk, "system", line + 8, &err) == SVC_OK)
			printf("(a new conversation with this system prompt)\n");
		else
			cli_fail(&err);
	} else {
		printf("/system TEXT   a new conversation with a system prompt\n"
		       "/clear         forget the conversation\n"
		       "/retry         another answer to the last line\n"
		       "/quit          leave (also Ctrl-D)\n"
		       "Ctrl-C         end the answer that is coming, or drop the line\n"
		       "A line that ends with \\ goes on in the next one; what is pasted may have "
		       "several lines.\nUp and down: earlier lines. Ctrl-A, -E, -K, -U, -W edit as "
		       "in "
		       "a shell.\n");
	}
	return CHAT_NEXT;
}

/* One turn of the user, several lines if they end with a backslash. false at the end of input. */
static bool read_turn(struct line_editor *editor, struct buf *turn)
{
	struct buf line = {0};
	bool more = true, any = false;
	enum line_outcome outcome;
	buf_clear(turn);
	while (more && (outcome = line_read(editor, any ? ". " : "> ", &line)) != LINE_END) {
		any = true;
		if (outcome == LINE_ABANDONED) {
			buf_clear(turn);
			break;
		}
		more = line.len > 0 && line.ptr[line.len - 1] == '\\';
		if (line.len)
			buf_append(turn, line.ptr, line.len - more);
		if (more)
			buf_append(turn, "\n", 1);
	}
	if (turn->len)
		line_remember(editor, turn->ptr);
	buf_free(&line);
	return any;
}

static void print_speed(const struct talk *talk)
{
	double seconds = talk->last_s - talk->first_s;
	if (talk->n_tokens > 2 && seconds > 0 && isatty(STDOUT_FILENO))
		printf("\n(%" PRIu64 " tokens, %.1f per second)", talk->n_tokens,
		       (double)(talk->n_tokens - 1) / seconds);
	printf("\n");
}

/* Where lines of earlier chats are: --history, or the user's folder of such things. NULL: nowhere.
 */
static const char *history_path(const struct talk *talk, char *room, size_t size)
{
	const char *given = opt_string(talk->options, "history");
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	if (strcmp(given, "none") == 0)
		return NULL;
	if (*given)
		return given;
	if (state && *state)
		snprintf(room, size, "%s/lockstep/chat", state);
	else if (home && *home)
		snprintf(room, size, "%s/.local/state/lockstep/chat", home);
	else
		return NULL;
	return room;
}

/* The conversation's last message is the user's. Returns the exit status of the turn. */
static int chat_answer(struct talk *talk)
{
	struct svc_err err = {0};
	interrupted = 0;
	enum svc_code code = ask(talk, NULL, &err);
	if (code != SVC_OK || (interrupted && talk->answer.len == 0))
		json_array_remove(talk->messages, json_array_size(talk->messages) - 1);
	if (code != SVC_OK)
		return cli_fail(&err);
	if (interrupted)
		printf("\n(stopped)");
	print_speed(talk);
	if (interrupted && talk->answer.len == 0)
		return 0;
	const char *answer = talk->answer.ptr ? talk->answer.ptr : "";
	return add_message(talk, "assistant", answer, &err) == SVC_OK ? 0 : cli_fail(&err);
}

static int chat_run(struct talk *talk, struct line_editor *editor)
{
	struct buf turn = {0};
	struct svc_err err;
	enum chat_step step = CHAT_NEXT;
	int status = 0;
	while (step != CHAT_LEAVE && read_turn(editor, &turn)) {
		step = turn.len == 0 ? CHAT_NEXT : CHAT_ASK;
		if (turn.len && turn.ptr[0] == '/')
			step = chat_command(talk, turn.ptr);
		else if (turn.len && add_message(talk, "user", turn.ptr, &err) != SVC_OK)
			step = cli_fail(&err) ? CHAT_NEXT : step;
		if (step == CHAT_ASK && chat_answer(talk) != 0)
			status = 1;
	}
	buf_free(&turn);
	return status;
}

int cli_chat(int argc, char **argv)
{
	struct talk talk;
	char path[512];
	int status;
	if (!open_talk(&talk, "lockstep chat", argc, argv, &status))
		return status;
	struct line_editor *editor = line_open(history_path(&talk, path, sizeof path));
	if (!editor) {
		close_talk(&talk);
		fprintf(stderr, "lockstep: out of memory\n");
		return 1;
	}
	if (isatty(STDIN_FILENO)) {
		sigaction(SIGINT, &(struct sigaction){.sa_handler = on_interrupt}, NULL);
		printf("lockstep chat: /help tells the commands, Ctrl-D leaves\n");
	}
	status = chat_run(&talk, editor);
	line_close(editor);
	close_talk(&talk);
	return isatty(STDIN_FILENO) ? 0 : status;
}
