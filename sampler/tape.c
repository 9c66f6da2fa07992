#include "sampler/tape.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/buf.h"
#include "base/log.h"

struct tape {
	int fd;
	struct buf line;
	bool failed;
	bool cut; /* the file ends within a line, whose writer died or had no room */
};

static bool ends_within_a_line(int fd)
{
	char last;
	off_t size = lseek(fd, 0, SEEK_END);
	return size > 0 && pread(fd, &last, 1, size - 1) == 1 && last != '\n';
}

enum svc_code tape_open(const char *path, struct tape **ret_tape, struct svc_err *err)
{
	struct tape *tape = calloc(1, sizeof *tape);
	if (!tape)
		return svc_fail_errno(err, __func__, "no memory for the tape");
	tape->fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (tape->fd < 0) {
		free(tape);
		return svc_fail_errno(err, __func__, "can't open the tape %s", path);
	}
	tape->cut = ends_within_a_line(tape->fd);
	*ret_tape = tape;
	return SVC_OK;
}

struct tape *tape_close(struct tape *tape)
{
	if (!tape)
		return NULL;
	close(tape->fd);
	buf_free(&tape->line);
	free(tape);
	return NULL;
}

/* Nine digits are a float32, exactly. */
static void put_sampling(struct buf *line, const struct body_params *sampling)
{
	if (!sampling) {
		buf_print(line, ",\"sampling\":null");
		return;
	}
	buf_print(line,
		  ",\"sampling\":{\"seed\":\"%016" PRIx64
		  "\",\"temperature\":%.9g,\"top_k\":%" PRIu32
		  ",\"top_p\":%.9g,\"min_p\":%.9g,\"typical_p\":%.9g",
		  sampling->seed, (double)sampling->temperature, sampling->top_k,
		  (double)sampling->top_p, (double)sampling->min_p, (double)sampling->typical_p);
	buf_print(line,
		  ",\"repetition_penalty\":%.9g,\"repetition_window\":%" PRIu32
		  ",\"presence_penalty\":%.9g,\"frequency_penalty\":%.9g}",
		  (double)sampling->repetition_penalty, sampling->repetition_window,
		  (double)sampling->presence_penalty, (double)sampling->frequency_penalty);
}

void tape_put(struct tape *tape, const struct tape_draw *draw)
{
	if (!tape)
		return;
	struct buf *line = &tape->line;
	XXH128_hash_t hash = XXH3_128bits(draw->logits, draw->n_vocab * sizeof *draw->logits);
	buf_clear(line);
	buf_print(line,
		  "%s{\"request\":%" PRIu64 ",\"choice\":%" PRIu32 ",\"index\":%" PRIu32
		  ",\"token\":%" PRId32 ",\"logits\":\"%016" PRIx64 "%016" PRIx64 "\"",
		  tape->cut ? "\n" : "", draw->generation, draw->choice, draw->index, draw->token,
		  hash.high64, hash.low64);
	if (draw->index == 0) {
		buf_print(line, ",\"prompt\":[");
		for (uint32_t i = 0; i < draw->n_prompt; i++)
			buf_print(line, "%s%" PRId32, i ? "," : "", draw->prompt[i]);
		buf_print(line, "]");
		put_sampling(line, draw->sampling);
	}
	buf_print(line, "}\n");
	bool whole = !line->failed && write(tape->fd, line->ptr, line->len) == (ssize_t)line->len;
	if (!whole && !tape->failed)
		log_line(LOG_LEVEL_ERROR, 0, SVC_IO, "a line of the tape can't be written: %s",
			 line->failed ? "no memory" : strerror(errno));
	tape->failed |= !whole;
	tape->cut = !whole && ends_within_a_line(tape->fd);
}
