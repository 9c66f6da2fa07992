/* npu-worker/device/backoff.h: failures of the NPU that outlive the worker that met them. A device
 * that fails again and again is left alone for a while: the driver itself turns its power off and
 * on at most once a minute, and every failure costs the requests that run a new start. */
#pragma once
#include <stdint.h>

#include "base/err.h"

enum { BACKOFF_FAILURES = 3 }; /* within BACKOFF_WINDOW_US */
#define BACKOFF_WINDOW_US 60000000u

/* Notes one, at now_us (CLOCK_MONOTONIC), in dir/npu-failures. Best effort: never fails. Only the
 * owner of the device writes. */
void backoff_note(const char *dir, uint64_t now_us);
/* Until when the device is to be left alone: pause_us behind the last failure if as many as
 * BACKOFF_FAILURES came within the window before it; 0: it isn't. */
uint64_t backoff_until(const char *dir, uint64_t now_us, uint64_t pause_us);
