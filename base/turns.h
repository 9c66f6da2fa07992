/* How long the system's scheduler lets a thread run before another one's turn. */
#pragma once

/* Short ones, for this thread and those that it starts from now on: where every core computes, what
 * wakes for a moment (a hint, a token, a socket) still runs at once, and so does a computing thread
 * that wakes beside other programs. Shares of the processor stay as they are.
 *
 * Best effort: Linux before 6.12 ignores it, and errors are ignored here. Source: sched(7),
 * sched_setattr(2), sched_runtime of SCHED_OTHER. */
void turns_short(void);
