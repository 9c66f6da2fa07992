/* services/why.h: why a role has no process: what its last one said when it could not start or had
 * to leave. That outlives the process and its entry in the table: a file in the run's directory,
 * one for each role, for `/ready` to tell. It is for people; nothing is decided by it. */
#pragma once
#include <stdbool.h>

#include "shm/run.h"

enum { SVC_WHY_TEXT = 504 };

/* Best effort, as everything here: never fails. A longer text is cut. Nothing is noted while
 * another process of the role is ready: it isn't missing then. */
void svc_why_note(const struct shm_run *run, enum shm_role role, const char *text);
/* A process of the role is ready. */
void svc_why_forget(const struct shm_run *run, enum shm_role role);
/* false if nothing was noted in this run; the text is then "". */
bool svc_why_read(const struct shm_run *run, enum shm_role role, char ret_text[SVC_WHY_TEXT]);
