/* keeper/threads.h: what the kernel says of another process's threads. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

/* Does one of its threads run, or wait for a core? A stopped or blocked process has none. false
 * also if there is no such process. */
bool threads_any_runs(pid_t pid);
