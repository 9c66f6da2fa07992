/* How long the system's scheduler lets a thread run before another one's turn. */
#ifndef LOCKSTEP_BASE_TURNS_H
#define LOCKSTEP_BASE_TURNS_H

/* For this thread and those that it starts from now on.
 *
 * Short: what wakes for a moment (a hint, a token, a socket) gets a core at once even where all of
 * them compute. Long: what computes is interrupted by nothing but these. Shares of the processor
 * stay as they are.
 *
 * Best effort: Linux before 6.12 ignores it, and errors are ignored here. Source: sched(7),
 * sched_setattr(2), sched_runtime of SCHED_OTHER. */
void turns_short(void);
void turns_long(void);

#endif
