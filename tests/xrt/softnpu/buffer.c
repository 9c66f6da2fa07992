#include "buffer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_BUFFERS = 4096, PAGE = 4096 };

#define NO_ADDRESS UINT64_MAX
#define HEAP_BASE  UINT64_C(0x4000000)

static struct buffer buffers[MAX_BUFFERS];

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

static int add(struct buffer b, struct wire_message *m, int *ret_fd)
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

int buffer_new(const struct wire_message *request, int owner, struct wire_message *answer,
	       int *ret_fd)
{
	return add((struct buffer){.type = (uint32_t)request->a,
				   .owner = owner,
				   .bytes = (request->b + PAGE - 1) / PAGE * PAGE,
				   .address = NO_ADDRESS},
		   answer, ret_fd);
}

int buffer_wrap(const struct wire_message *request, int fd, int owner, struct wire_message *answer)
{
	struct buffer b = {
		.type = BO_SHARE, .owner = owner, .bytes = request->b, .address = request->c};
	b.memory = mmap(NULL, b.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)request->a);
	if (request->a % PAGE || b.memory == MAP_FAILED)
		return -EINVAL;
	b.mapped = true;
	return add(b, answer, NULL);
}

int buffer_mapped(struct buffer *b, const struct wire_message *request, struct wire_message *answer)
{
	if (!b)
		return -ENOENT;
	answer->b = b->type == BO_SHARE || b->type == BO_COMMAND ? NO_ADDRESS : b->address;
	if (request->b && answer->b == NO_ADDRESS)
		b->address = request->b;
	return 0;
}

void buffer_drop(struct buffer *b)
{
	if (b->mapped)
		munmap(b->memory, b->bytes);
	free(b->shadow);
	memset(b, 0, sizeof *b);
}

void buffer_drop_all(int owner)
{
	for (uint32_t i = 1; i < MAX_BUFFERS; i++)
		if (buffers[i].used && buffers[i].owner == owner)
			buffer_drop(&buffers[i]);
}

struct buffer *buffer_of(uint64_t handle, int owner)
{
	bool known = handle > 0 && handle < MAX_BUFFERS && buffers[handle].used &&
		     buffers[handle].owner == owner;
	return known ? &buffers[handle] : NULL;
}

struct buffer *buffer_at(uint64_t address, int owner)
{
	for (uint32_t i = 1; i < MAX_BUFFERS; i++) {
		struct buffer *b = &buffers[i];
		if (b->used && b->owner == owner && b->shadow && b->address != NO_ADDRESS &&
		    address >= b->address && address - b->address < b->bytes)
			return b;
	}
	return NULL;
}

int buffer_sync(struct buffer *b, const struct wire_message *request)
{
	if (!b)
		return -ENOENT;
	if (request->b > b->bytes)
		return -EINVAL;
	uint64_t bytes = request->c < b->bytes - request->b ? request->c : b->bytes - request->b;
	if (!b->shadow)
		return 0;
	if (request->d == 0)
		memcpy(b->shadow + request->b, b->memory + request->b, bytes);
	else
		memcpy(b->memory + request->b, b->shadow + request->b, bytes);
	return 0;
}
