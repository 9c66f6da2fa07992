/* tests/xrt/softnpu/softnpu.c: the software NPU, a process of its own, so that it outlives whoever
 * uses it and can still write after a user was killed. Buffers are memory files; a command reads
 * and writes only the device's copy of them (shadow), which a sync brings over: a missing sync
 * gives wrong results, as on hardware without coherent caches.
 *
 *   softnpu SOCKET FAULTS
 *
 * Before each command the file FAULTS is read: one word, and perhaps a number. reset, abort, error:
 * the command ends in that state. hang: it never ends. again: it is not taken. late MS: its output
 * appears only after so long, whoever has died meanwhile. contexts N: no more than N. gone: every
 * request fails. */
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

#include "layer.h"
#include "product.h"
#include "wire.h"

enum { BO_SHARE = 1, BO_HEAP, BO_DEV, BO_COMMAND };
enum { STATE_COMPLETED = 4, STATE_ERROR, STATE_ABORT, STATE_TIMEOUT = 8 };
enum { OPCODE_START = 0, OPCODE_START_NPU = 20, OPCODE_CHAIN = 19, RUN_STREAM = 3 };
enum { MAX_BUFFERS = 4096, MAX_USERS = 1024, QUEUE = 64, PAGE = 4096 };

#define NO_ADDRESS UINT64_MAX
#define HEAP_BASE  UINT64_C(0x4000000)

struct buffer {
	bool used;
	uint32_t type;
	int owner; /* connection */
	uint64_t bytes, address;
	uint8_t *memory, *shadow; /* of a buffer in the heap: into the heap's */
	bool mapped;		  /* memory is a mapping of its own */
};

struct command {
	uint32_t handle;
	int owner;
};

/* What is a connection's own, beside its buffers. */
struct user {
	unsigned contexts;
	uint64_t latest; /* sequence number of its last command */
};

static struct buffer buffers[MAX_BUFFERS];
static struct user users[MAX_USERS]; /* by descriptor */
static struct command queue[QUEUE];
static uint64_t submitted, done;
static unsigned contexts; /* of all users */
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

/* ---- buffers; the lock is held */

static struct buffer *find_heap(int owner)
{
	for (uint32_t i = 1; i < MAX_BUFFERS; i++)
		if (buffers[i].used && buffers[i].type == BO_HEAP && buffers[i].owner == owner)
			return &buffers[i];
	return NULL;
}

static uint32_t free_slot(void)
{
	for (uint32_t i = 1; i < MAX_BUFFERS; i++)
		if (!buffers[i].used)
			return i;
	return 0;
}

/* What lies in the owner's heap within these bytes; NULL: nothing. */
static const struct buffer *find_in_heap(int owner, uint64_t at, uint64_t bytes)
{
	for (uint32_t i = 1; i < MAX_BUFFERS; i++) {
		const struct buffer *b = &buffers[i];
		if (b->used && b->type == BO_DEV && b->owner == owner && b->address < at + bytes &&
		    at < b->address + b->bytes)
			return b;
	}
	return NULL;
}

/* The first gap of the owner's own heap that is wide enough. */
static int take_from_heap(struct buffer *b)
{
	const struct buffer *heap = find_heap(b->owner), *in_the_way;
	uint64_t at = HEAP_BASE;
	while ((in_the_way = find_in_heap(b->owner, at, b->bytes)))
		at = in_the_way->address + in_the_way->bytes;
	if (!heap || at + b->bytes > HEAP_BASE + heap->bytes)
		return -EAGAIN;
	b->address = at;
	b->memory = heap->memory + (at - HEAP_BASE);
	return 0;
}

static int new_memory(struct buffer *b, int *ret_fd)
{
	int fd = memfd_create("softnpu", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)b->bytes) != 0)
		return -ENOMEM;
	b->memory = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	b->mapped = b->memory != MAP_FAILED;
	if (b->type == BO_HEAP)
		b->address = HEAP_BASE;
	*ret_fd = fd;
	return b->mapped ? 0 : -ENOMEM;
}

static int add_buffer(struct buffer b, struct wire_message *m, int *ret_fd)
{
	uint32_t slot = free_slot();
	int status = slot ? 0 : -ENOMEM;
	if (status == 0 && !b.memory)
		status = b.type == BO_DEV ? take_from_heap(&b) : new_memory(&b, ret_fd);
	if (status != 0)
		return status;
	if (b.type == BO_SHARE || b.type == BO_DEV)
		b.shadow = calloc(1, b.bytes);
	b.used = true;
	buffers[slot] = b;
	m->a = slot;
	m->b = b.address;
	return 0;
}

static void drop(struct buffer *b)
{
	if (b->mapped)
		munmap(b->memory, b->bytes);
	free(b->shadow);
	memset(b, 0, sizeof *b);
}

static struct buffer *buffer_of(uint64_t handle, int owner)
{
	bool known = handle > 0 && handle < MAX_BUFFERS && buffers[handle].used &&
		     buffers[handle].owner == owner;
	return known ? &buffers[handle] : NULL;
}

/* Of one connection: a user's addresses mean nothing in another's. */
static struct buffer *buffer_at(uint64_t address, int owner)
{
	for (uint32_t i = 1; i < MAX_BUFFERS; i++) {
		struct buffer *b = &buffers[i];
		if (b->used && b->owner == owner && b->shadow && b->address != NO_ADDRESS &&
		    address >= b->address && address - b->address < b->bytes)
			return b;
	}
	return NULL;
}

static int sync_buffer(struct buffer *b, const struct wire_message *m)
{
	if (m->b > b->bytes)
		return -EINVAL;
	uint64_t bytes = m->c < b->bytes - m->b ? m->c : b->bytes - m->b;
	if (!b->shadow)
		return 0;
	if (m->d == 0)
		memcpy(b->shadow + m->b, b->memory + m->b, bytes);
	else
		memcpy(b->memory + m->b, b->shadow + m->b, bytes);
	return 0;
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
	const struct buffer *b[3];
	for (int i = 0; i < 3; i++) {
		b[i] = look_up(buffer_at, address[i], owner);
		if (!b[i] || b[i]->address != address[i])
			return false;
	}
	m = (struct layer_memory){b[0]->shadow, b[1]->shadow, b[2]->shadow,
				  b[0]->bytes,	b[1]->bytes,  b[2]->bytes};
	memcpy(&layer, words, operation == OPERATION_LAYER ? sizeof layer : 0);
	memcpy(&head, words, operation == OPERATION_HEAD ? sizeof head : 0);
	return operation == OPERATION_LAYER ? layer_run(&layer, &m) : head_run(&head, &m);
}

static bool run_stream(const uint32_t *arguments, int owner)
{
	static const uint32_t lengths[] = {0, PRODUCT_WORDS, LAYER_WORDS, HEAD_WORDS};
	uint64_t opcode, stream, address[3];
	uint32_t start[2], n = arguments[4];
	memcpy(&opcode, arguments, 8);
	memcpy(&stream, arguments + 2, 8);
	memcpy(address, arguments + 5, sizeof address);
	const uint8_t *words = place(stream, (uint64_t)n * 4, owner);
	if (opcode != RUN_STREAM || n < 2 || !words)
		return false;
	memcpy(start, words, sizeof start);
	if (start[0] != PRODUCT_MAGIC || start[1] < 1 || start[1] > 3 || n != lengths[start[1]])
		return false;
	return start[1] == 1 ? run_product(words, address, owner)
			     : run_whole(start[1], words, address, owner);
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

static uint32_t run_command(struct buffer *b, int owner)
{
	uint32_t *packet = (uint32_t *)(void *)b->memory;
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
	bool chain = (packet[0] >> 23 & 31) == OPCODE_CHAIN;
	return (chain ? run_chain : run_packet)(packet, owner) ? STATE_COMPLETED : STATE_ERROR;
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
		uint32_t state = b ? run_command(b, c.owner) : STATE_ERROR;
		pthread_mutex_lock(&lock);
		if (b)
			*(uint32_t *)(void *)b->memory =
				(*(uint32_t *)(void *)b->memory & ~15u) | state;
		done++;
	}
	return NULL;
}

static int submit(uint64_t handle, int owner, uint64_t *ret_sequence)
{
	if (fault_is("again", NULL))
		return -EAGAIN;
	if (!buffer_of(handle, owner) || submitted - done >= QUEUE - 1)
		return -EINVAL;
	queue[(submitted + 1) % QUEUE] = (struct command){(uint32_t)handle, owner};
	*ret_sequence = users[owner].latest = ++submitted;
	pthread_cond_signal(&work);
	return 0;
}

/* ---- users */

static int wrap(const struct wire_message *m, int fd, int owner, struct wire_message *answer)
{
	uint64_t slack = m->a % PAGE;
	struct buffer b = {.type = BO_SHARE, .owner = owner, .bytes = m->b, .address = m->c};
	b.memory = mmap(NULL, m->b, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)m->a);
	if (slack || b.memory == MAP_FAILED)
		return -EINVAL;
	b.mapped = true;
	return add_buffer(b, answer, NULL);
}

static int new_context(int owner)
{
	unsigned most = 0;
	if (fault_is("contexts", &most) && contexts >= most)
		return -EBUSY;
	contexts++;
	users[owner].contexts++;
	return 0;
}

static void free_contexts(int owner, unsigned n)
{
	contexts -= n;
	users[owner].contexts -= n;
}

static int serve(struct wire_message *m, int fd, int owner, int *ret_fd)
{
	struct buffer *b = buffer_of(m->a, owner);
	const struct wire_message request = *m;
	if (fault_is("gone", NULL))
		return -ENODEV;
	switch ((enum wire_op)request.op) {
	case WIRE_BO_NEW:
		return add_buffer((struct buffer){.type = (uint32_t)request.a,
						  .owner = owner,
						  .bytes = (request.b + PAGE - 1) / PAGE * PAGE,
						  .address = NO_ADDRESS},
				  m, ret_fd);
	case WIRE_BO_WRAP:
		return wrap(&request, fd, owner, m);
	case WIRE_BO_MAPPED:
		if (!b)
			return -ENOENT;
		m->b = b->type == BO_SHARE || b->type == BO_COMMAND ? NO_ADDRESS : b->address;
		if (request.b && m->b == NO_ADDRESS)
			b->address = request.b;
		return 0;
	case WIRE_BO_FREE:
		if (!b)
			return -ENOENT;
		drop(b);
		return 0;
	case WIRE_SYNC:
		return b ? sync_buffer(b, &request) : -ENOENT;
	case WIRE_CONTEXT_NEW:
		m->a = 1;
		return new_context(owner);
	case WIRE_CONTEXT_FREE:
		if (!users[owner].contexts)
			return -ENOENT;
		free_contexts(owner, 1);
		return 0;
	case WIRE_EXECUTE:
		return submit(request.a, owner, &m->a);
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
	while (done < users[user].latest) {
		pthread_mutex_unlock(&lock);
		usleep(1000);
		pthread_mutex_lock(&lock);
	}
	for (uint32_t i = 1; i < MAX_BUFFERS; i++)
		if (buffers[i].used && buffers[i].owner == user)
			drop(&buffers[i]);
	free_contexts(user, users[user].contexts);
	users[user] = (struct user){0};
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
