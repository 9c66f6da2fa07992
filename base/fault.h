/* base/fault.h: places where a test can make this process die, freeze, hang or err.
 *
 * LOCKSTEP_FAULT="where:action@nth[,...]", or %n for every n-th time; nth counts from 1.
 * fault_point() acts by itself: kill, abort, stop (SIGSTOP), sleep (200 ms), exit (status 70) and
 * hang (for ever, without a beat). fault_hit() tells the caller that its own kind of error is due
 * now. Compiled only into test builds (LOCKSTEP_FAULTS); elsewhere both are nothing. */
#pragma once

#include <stdbool.h>

#ifdef LOCKSTEP_FAULTS
void fault_point(const char *where);
bool fault_hit(const char *where, const char *action);
#else
#define fault_point(where)	 ((void)0)
#define fault_hit(where, action) (false)
#endif
