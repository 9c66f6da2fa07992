/* npu-worker/schedule.h: who is admitted, how many positions each takes in the next step. */
#pragma once
#include "npu-worker/worker_private.h"

/* When nothing runs and a request has come, waits a moment for those that come with it. */
void schedule_await_burst(struct worker *worker);
/* Claims waiting slots in order of arrival while rows and pages last. */
void schedule_admit(struct worker *worker);
/* Sets n_take of every sequence; returns their sum. */
uint32_t schedule_plan(struct worker *worker);
/* Pages for everyone in the plan; who can't have them sits the step out or waits anew. */
void schedule_reserve(struct worker *worker);
