/* services/fault.h: places where a test can make this process die, freeze or be slow.
 * LOCKSTEP_FAULT="where:action@nth[,...]" with action kill, abort, stop, sleep (200 ms) or exit;
 * nth counts from 1, 0 is every time. Compiled only into test builds (LOCKSTEP_FAULTS); elsewhere
 * it is nothing. */
#pragma once

#ifdef LOCKSTEP_FAULTS
void fault_point(const char *where);
#else
#define fault_point(where) ((void)0)
#endif
