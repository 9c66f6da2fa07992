/* base/cores.h: how many processors this process may use. */
#pragma once
#include <stdint.h>

/* Those it may run on (sched_setaffinity, a container's cpuset), and no more than the time that its
 * control groups allow (cgroup v2, cpu.max: a container's or a unit's CPU limit), rounded up: more
 * threads than that would be stopped in the middle of a step. >= 1. */
uint32_t cores_usable(void);

/* The same of the limits in the folders of a control group and those above it; UINT32_MAX: none.
 * root: where cgroup v2 is mounted; group: "/a/b", as /proc/self/cgroup tells. */
uint32_t cores_of_group(const char *root, const char *group);
