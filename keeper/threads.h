/* keeper/threads.h: what the kernel says of another process's threads. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

/* Is one of its threads in this state? 'R': runs, or waits for a core; 'T': stopped by a signal, as
 * all of them are then (proc(5) has the others). false also if there is no such process. */
bool threads_any_is(pid_t pid, char state);
