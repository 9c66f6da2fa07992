#include "context.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "buffer.h"

struct context {
	uint64_t handle; /* 0: none */
	bool lost;
	int owner;
	uint64_t image;	 /* handle of its buffer; 0: none */
	bool has_loaded; /* the image's program is in the device's columns */
	bool is_ours;	 /* and is one that it understands */
};

static struct context contexts[CONTEXT_MAX];
static uint64_t latest, idle_since_ms;

static uint64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static struct context *find(uint64_t handle, int owner)
{
	for (uint32_t i = 0; handle && i < CONTEXT_MAX; i++)
		if (contexts[i].handle == handle && contexts[i].owner == owner)
			return &contexts[i];
	return NULL;
}

int context_new(int owner, uint32_t most, uint64_t *ret_handle)
{
	uint32_t n = 0, unused = 0;
	for (uint32_t i = 0; i < CONTEXT_MAX; i++)
		if (contexts[i].handle)
			n++;
		else
			unused = i;
	if (n >= most)
		return -EBUSY;
	/* No handle comes back: what names one that is gone names nothing. */
	contexts[unused] = (struct context){.handle = ++latest, .owner = owner};
	*ret_handle = latest;
	return 0;
}

static int load(struct context *c)
{
	const struct buffer *image = buffer_of(c->image, c->owner);
	if (!image || !image->shadow || image->bytes < strlen(CONTEXT_PROGRAM))
		return -EINVAL;
	c->is_ours = memcmp(image->shadow, CONTEXT_PROGRAM, strlen(CONTEXT_PROGRAM)) == 0;
	c->has_loaded = true;
	return 0;
}

int context_configure(uint64_t handle, int owner, uint64_t image)
{
	struct context *c = find(handle, owner);
	if (!c || c->image)
		return -EINVAL;
	c->image = image;
	return load(c);
}

int context_free(uint64_t handle, int owner)
{
	struct context *c = find(handle, owner);
	if (!c)
		return -ENOENT;
	c->handle = 0;
	return 0;
}

void context_free_all(int owner)
{
	for (uint32_t i = 0; i < CONTEXT_MAX; i++)
		if (contexts[i].owner == owner)
			contexts[i].handle = 0;
}

int context_check(uint64_t handle, int owner)
{
	const struct context *c = find(handle, owner);
	return c && !c->lost ? 0 : -EINVAL;
}

int context_begin(uint64_t handle, int owner, uint32_t idle_ms, uint32_t *ret_slept_ms)
{
	struct context *c = find(handle, owner);
	uint64_t silence = idle_since_ms ? now_ms() - idle_since_ms : 0;
	*ret_slept_ms = 0;
	if (!c || c->lost)
		return -ENODEV;
	if (silence > idle_ms) {
		*ret_slept_ms = (uint32_t)silence;
		for (uint32_t i = 0; i < CONTEXT_MAX; i++)
			contexts[i].has_loaded = false;
	}
	idle_since_ms = 0;
	if (!c->has_loaded && load(c) != 0)
		return -ENOEXEC;
	return c->is_ours ? 0 : -ENOEXEC;
}

void context_end(void)
{
	idle_since_ms = now_ms();
}

void context_lose_all(void)
{
	for (uint32_t i = 0; i < CONTEXT_MAX; i++)
		contexts[i].lost = true;
}
