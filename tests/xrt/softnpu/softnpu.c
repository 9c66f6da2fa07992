/* tests/xrt/softnpu/softnpu.c: the software NPU, a process of its own, so that it outlives whoever
 * uses it and can still write after a user was killed. Its memory is buffer.h, its hardware
 * contexts are context.h; this file has its users and their commands.
 *
 *   softnpu SOCKET FAULTS
 *
 * Before each command the file FAULTS is read: one word, and perhaps a number. reset, abort, error:
 * the command ends in that state. hang: it never ends. again: it is not taken. late MS: its output
 * appears only after so long, whoever has died meanwhile. lost: all contexts are. contexts N: no
 * more than N. firmware: it doesn't understand programs. idle MS: the device sleeps after so long
 * without a command, not after five seconds; oversleep MS: and can't be woken. gone: every request
 * fails. wrong-weights N, wrong-output N: a run's first or third argument is N bytes off.
 * wrong-word N: so is, in its stream, the place of a product's matrix or of a layer's first. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "buffer.h"
#include "context.h"
#include "layer.h"
#include "product.h"
#include "wire.h"

enum { STATE_COMPLETED = 4, STATE_ERROR, STATE_ABORT, STATE_TIMEOUT = 8 };
enum { OPCODE_START = 0, OPCODE_START_NPU = 20, OPCODE_CHAIN = 19, RUN_STREAM = 3 };
enum { MAX_USERS = 1024, QUEUE = 64, IDLE_MS = 5000 };

struct command {
	uint64_t handle, context;
	int owner;
};

/* Of a command: what is added to its addresses. */
static struct {
	unsigned weights, output, word;
} wrong;

static uint64_t latest_of[MAX_USERS]; /* by descriptor: sequence number of its last command */
static struct command queue[QUEUE];
static uint64_t submitted, done;
static const char *faults_path;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;

static bool fault_is(const char *name, unsigned *ret_number)
{
	char word[32] = "";
	unsigned number = 0;
	FILE *file = fopen(faults_path, "re");
	if (file && fscanf(file, "%31s %u", word, &number) < 1)
		word[0] = 0;
	if (file)
		fclose(file);
	if (ret_number)
		*ret_number = number;
	return strcmp(word, name) == 0;
}

/* ---- commands; without the lock */

/* What is found stays: a command's buffers are there until it has ended, see leave(). */
static struct buffer *look_up(struct buffer *(*find)(uint64_t what, int owner), uint64_t what,
			      int owner)
{
	pthread_mutex_lock(&lock);
	struct buffer *b = find(what, owner);
	pthread_mutex_unlock(&lock);
	return b;
}

/* Where an address points to, with `bytes` behind it; NULL: nowhere. */
static uint8_t *place(uint64_t address, uint64_t bytes, int owner)
{
	const struct buffer *b = look_up(buffer_at, address, owner);
	return b && bytes <= b->bytes - (address - b->address) ? b->shadow + (address - b->address)
							       : NULL;
}

static unsigned number_of(const char *fault)
{
	unsigned number;
	return fault_is(fault, &number) ? number : 0;
}

static void read_wrong(void)
{
	wrong.weights = number_of("wrong-weights");
	wrong.output = number_of("wrong-output");
	wrong.word = number_of("wrong-word");
}

/* As they would come from a stream that was derived wrongly, or from a wrong argument. */
static void spoil_addresses(uint32_t *words, uint64_t address[3])
{
	address[0] += wrong.weights;
	address[2] += wrong.output;
	if (words[1] == OPERATION_LAYER)
		words[offsetof(struct layer_words, parts[Q]) / 4] += wrong.word;
	else if (words[1] == OPERATION_PRODUCT)
		words[offsetof(struct product_words, weights_low) / 4] += wrong.word;
}

static bool run_product(const uint8_t *words, const uint64_t address[3], int owner)
{
	struct product_words w;
	memcpy(&w, words, sizeof w);
	uint64_t groups = w.cols / 32, weights = product_weight_bytes(&w);
	uint64_t offset = (uint64_t)w.weights_high << 32 | w.weights_low;
	if (!weights || w.cols % 32 || !w.tokens || w.tokens > 4096 || w.stride < w.rows)
		return false;
	const uint8_t *in = place(address[0], offset + weights, owner);
	const uint8_t *acts = place(address[1], w.sums + w.tokens * groups * 4, owner);
	uint8_t *out = place(address[2], w.output + (uint64_t)w.tokens * w.stride * 4, owner);
	if (!in || !acts || !out)
		return false;
	product_run(&w, in, acts, out);
	return true;
}

/* A whole layer, or the head. */
static bool run_whole(uint32_t operation, const uint8_t *words, const uint64_t address[3],
		      int owner)
{
	struct layer_words layer;
	struct head_words head;
	struct layer_memory m;
	uint8_t *at[3];
	uint64_t bytes[3];
	for (int i = 0; i < 3; i++) {
		const struct buffer *b = look_up(buffer_at, address[i], owner);
		if (!b)
			return false;
		at[i] = b->shadow + (address[i] - b->address);
		bytes[i] = b->bytes - (address[i] - b->address);
	}
	m = (struct layer_memory){at[0], at[1], at[2], bytes[0], bytes[1], bytes[2]};
	memcpy(&layer, words, operation == OPERATION_LAYER ? sizeof layer : 0);
	memcpy(&head, words, operation == OPERATION_HEAD ? sizeof head : 0);
	return operation == OPERATION_LAYER ? layer_run(&layer, &m) : head_run(&head, &m);
}

static bool run_stream(const uint32_t *arguments, int owner)
{
	static const uint32_t lengths[] = {0, PRODUCT_WORDS, LAYER_WORDS, HEAD_WORDS};
	uint64_t opcode, stream, address[3];
	uint32_t words[LAYER_WORDS], n = arguments[4];
	memcpy(&opcode, arguments, 8);
	memcpy(&stream, arguments + 2, 8);
	memcpy(address, arguments + 5, sizeof address);
	const uint8_t *from = place(stream, (uint64_t)n * 4, owner);
	if (opcode != RUN_STREAM || n < 2 || n > LAYER_WORDS || !from)
		return false;
	memcpy(words, from, (size_t)n * 4);
	uint32_t operation = words[1];
	if (words[0] != PRODUCT_MAGIC || operation < 1 || operation > 3 || n != lengths[operation])
		return false;
	spoil_addresses(words, address);
	return operation == OPERATION_PRODUCT
		       ? run_product((uint8_t *)words, address, owner)
		       : run_whole(operation, (uint8_t *)words, address, owner);
}

/* { state:4, ..., extra masks at 10, count at 12, opcode at 23 }, mask, arguments */
static bool run_packet(uint32_t *packet, int owner)
{
	uint32_t opcode = packet[0] >> 23 & 31, extra = packet[0] >> 10 & 3;
	if (opcode != OPCODE_START && opcode != OPCODE_START_NPU)
		return false;
	const uint32_t *arguments = packet + 2 + extra;
	bool good = run_stream(arguments, owner);
	if (!good)
		fprintf(stderr, "softnpu: refused: opcode %u, a stream of %u words at %#x%08x\n",
			arguments[0], arguments[4], arguments[3], arguments[2]);
	packet[0] = (packet[0] & ~15u) | (good ? STATE_COMPLETED : STATE_ERROR);
	return good;
}

/* { count, submitted, failed at, three reserved, handles } behind the header */
static bool run_chain(uint32_t *packet, int owner)
{
	uint32_t *chain = packet + 1;
	for (uint32_t i = 0; i < chain[0]; i++) {
		uint64_t handle;
		memcpy(&handle, chain + 6 + 2 * i, sizeof handle);
		const struct buffer *b = look_up(buffer_of, handle, owner);
		if (b && run_packet((uint32_t *)(void *)b->memory, owner))
			continue;
		chain[2] = i;
		return false;
	}
	return true;
}

/* Wakes the device if it sleeps. The state in which the command ends already; 0: it may run. */
static uint32_t begin(const struct command *c)
{
	uint32_t slept_ms = 0, idle_ms = IDLE_MS;
	bool oversleeps = fault_is("oversleep", &idle_ms);
	if (!oversleeps && !fault_is("idle", &idle_ms))
		idle_ms = IDLE_MS;
	pthread_mutex_lock(&lock);
	if (fault_is("lost", NULL))
		context_lose_all();
	int status = context_begin(c->context, c->owner, idle_ms, &slept_ms);
	pthread_mutex_unlock(&lock);
	if (slept_ms)
		fprintf(stderr, "softnpu: %u ms without a command: slept\n", slept_ms);
	if (slept_ms && oversleeps)
		return STATE_TIMEOUT;
	return status == 0 ? 0 : status == -ENODEV ? STATE_ABORT : STATE_ERROR;
}

static uint32_t run_command(const struct command *c, struct buffer *b)
{
	uint32_t *packet = (uint32_t *)(void *)b->memory, state;
	unsigned ms = 0;
	if (fault_is("reset", NULL)) {
		usleep(200000); /* the driver looks every two seconds; a test needn't wait as long
				 */
		return STATE_TIMEOUT;
	}
	if (fault_is("abort", NULL))
		return STATE_ABORT;
	if (fault_is("error", NULL))
		return STATE_ERROR;
	if (fault_is("late", &ms))
		usleep(ms * 1000);
	if ((state = begin(c)))
		return state;
	read_wrong();
	bool chain = (packet[0] >> 23 & 31) == OPCODE_CHAIN;
	return (chain ? run_chain : run_packet)(packet, c->owner) ? STATE_COMPLETED : STATE_ERROR;
}

static void *execute(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&lock);
	for (;;) {
		while (done == submitted)
			pthread_cond_wait(&work, &lock);
		struct command c = queue[(done + 1) % QUEUE];
		pthread_mutex_unlock(&lock);
		while (fault_is("hang", NULL))
			usleep(10000);
		struct buffer *b = look_up(buffer_of, c.handle, c.owner);
		uint32_t state = b ? run_command(&c, b) : STATE_ERROR;
		pthread_mutex_lock(&lock);
		if (b)
			*(uint32_t *)(void *)b->memory =
				(*(uint32_t *)(void *)b->memory & ~15u) | state;
		context_end();
		done++;
	}
	return NULL;
}

static int submit(uint64_t handle, uint64_t context, int owner, uint64_t *ret_sequence)
{
	if (fault_is("again", NULL))
		return -EAGAIN;
	if (!buffer_of(handle, owner) || context_check(context, owner) != 0 ||
	    submitted - done >= QUEUE - 1)
		return -EINVAL;
	queue[(submitted + 1) % QUEUE] = (struct command){handle, context, owner};
	*ret_sequence = latest_of[owner] = ++submitted;
	pthread_cond_signal(&work);
	return 0;
}

/* ---- users */

static int new_context(int owner, uint64_t *ret_handle)
{
	unsigned most = CONTEXT_MAX;
	if (!fault_is("contexts", &most))
		most = CONTEXT_MAX;
	return context_new(owner, most, ret_handle);
}

static int serve(struct wire_message *m, int fd, int owner, int *ret_fd)
{
	struct buffer *b = buffer_of(m->a, owner);
	const struct wire_message request = *m;
	if (fault_is("gone", NULL))
		return -ENODEV;
	switch ((enum wire_op)request.op) {
	case WIRE_BO_NEW:
		return buffer_new(&request, owner, m, ret_fd);
	case WIRE_BO_WRAP:
		return buffer_wrap(&request, fd, owner, m);
	case WIRE_BO_MAPPED:
		return buffer_mapped(b, &request, m);
	case WIRE_BO_FREE:
		if (!b)
			return -ENOENT;
		buffer_drop(b);
		return 0;
	case WIRE_SYNC:
		return buffer_sync(b, &request);
	case WIRE_CONTEXT_NEW:
		return new_context(owner, &m->a);
	case WIRE_CONTEXT_CONFIGURE:
		return fault_is("firmware", NULL) ? -EINVAL
						  : context_configure(request.a, owner, request.b);
	case WIRE_CONTEXT_FREE:
		return context_free(request.a, owner);
	case WIRE_EXECUTE:
		return submit(request.a, request.b, owner, &m->a);
	case WIRE_LOOK:
		return 0;
	case WIRE_DONE:
		m->a = done >= request.a;
		return 0;
	}
	return -EINVAL;
}

static bool receive(int user, struct wire_message *m, int *ret_fd)
{
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec io = {m, sizeof *m};
	struct msghdr header = {.msg_iov = &io,
				.msg_iovlen = 1,
				.msg_control = control,
				.msg_controllen = sizeof control};
	if (recvmsg(user, &header, MSG_CMSG_CLOEXEC) != sizeof *m)
		return false;
	const struct cmsghdr *c = CMSG_FIRSTHDR(&header);
	*ret_fd = -1;
	if (c && c->cmsg_type == SCM_RIGHTS)
		memcpy(ret_fd, CMSG_DATA(c), sizeof *ret_fd);
	return true;
}

static bool reply(int user, struct wire_message *m, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec io = {m, sizeof *m};
	struct msghdr header = {.msg_iov = &io, .msg_iovlen = 1};
	if (fd >= 0) {
		header.msg_control = control;
		header.msg_controllen = sizeof control;
		struct cmsghdr *c = CMSG_FIRSTHDR(&header);
		*c = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
		memcpy(CMSG_DATA(c), &fd, sizeof fd);
	}
	return sendmsg(user, &header, MSG_NOSIGNAL) == sizeof *m;
}

/* A user that is gone: what it started is finished first. */
static void leave(int user)
{
	pthread_mutex_lock(&lock);
	while (done < latest_of[user]) {
		pthread_mutex_unlock(&lock);
		usleep(1000);
		pthread_mutex_lock(&lock);
	}
	buffer_drop_all(user);
	context_free_all(user);
	latest_of[user] = 0;
	pthread_mutex_unlock(&lock);
	close(user);
}

static void *attend(void *argument)
{
	int user = (int)(intptr_t)argument, fd = -1;
	struct wire_message m;
	bool goes_on = true;
	while (goes_on && receive(user, &m, &fd)) {
		int memory = -1;
		pthread_mutex_lock(&lock);
		m.status = serve(&m, fd, user, &memory);
		pthread_mutex_unlock(&lock);
		goes_on = reply(user, &m, memory);
		if (memory >= 0)
			close(memory);
		if (fd >= 0)
			close(fd);
	}
	leave(user);
	return NULL;
}

int main(int argc, char **argv)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	pthread_t thread;
	if (argc != 3 || strlen(argv[1]) >= sizeof address.sun_path)
		return fprintf(stderr, "usage: softnpu SOCKET FAULTS\n"), 64;
	faults_path = argv[2];
	snprintf(address.sun_path, sizeof address.sun_path, "%s", argv[1]);
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	unlink(argv[1]);
	if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
	    listen(listener, 16) != 0 || pthread_create(&thread, NULL, execute, NULL) != 0)
		return perror("softnpu"), 71;
	for (;;) {
		int user = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (user < 0)
			continue;
		if (user < MAX_USERS &&
		    pthread_create(&thread, NULL, attend, (void *)(intptr_t)user) == 0)
			pthread_detach(thread);
		else
			close(user);
	}
}
