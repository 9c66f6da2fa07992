/* tests/xrt/softnpu/context.h: the software NPU's hardware contexts. A context is a connection's; a
 * command runs in one, with the program whose image was given to it. As the kernel driver does it,
 * the device sleeps when it has had nothing to do for a while (autosuspend): contexts lose their
 * programs, and the next command first loads its own again, out of the buffer that held it then.
 * Every function wants the device's lock to be held. */
#pragma once
#include <stdint.h>

enum { CONTEXT_MAX = 16 };	   /* as on npu4 to npu6 */
#define CONTEXT_PROGRAM "SOFTNPU1" /* how this device's programs begin */

/* These answer requests: 0 or a negative errno. most: contexts of all users, at most CONTEXT_MAX.
 */
int context_new(int owner, uint32_t most, uint64_t *ret_handle);
/* image: handle of a buffer of the owner's. */
int context_configure(uint64_t handle, int owner, uint64_t image);
int context_free(uint64_t handle, int owner);
void context_free_all(int owner);
/* For a command to be taken: is the context the owner's, and there? */
int context_check(uint64_t handle, int owner);

/* Before a command runs in it. 0, or why it can't run: -ENODEV: the context was lost; -ENOEXEC: it
 * has no program, or not one of this device's. */
int context_begin(uint64_t handle, int owner, uint32_t idle_ms, uint32_t *ret_slept_ms);
/* After any command. */
void context_end(void);
/* All of them, as when the device is reset; they stay lost until they are freed. */
void context_lose_all(void);
