/* base/cores.h: how many processors this process may use. */
#pragma once
#include <stdint.h>

/* Those it may run on (sched_setaffinity, a container's cpuset), and no more than the time that its
 * control groups allow (a container's or a unit's CPU limit: cpu.max of cgroup v2,
 * cpu.cfs_quota_us of v1), rounded up: more threads than that would be stopped in the middle of a
 * step. >= 1. */
uint32_t cores_usable(void);

/* The same of the limits in the folders of a control group and those above it; UINT32_MAX: none.
 * root: where they are mounted; group: "/a/b", as /proc/self/cgroup tells. */
uint32_t cores_of_group(const char *root, const char *group);

/* The numbers of processors that this process may run on, up to `most`: each physical core's first
 * one, in order, then the others (a core's second hardware thread brings little to products that
 * fill its units). Returns how many. */
uint32_t cores_list(uint32_t most, uint32_t *ret_cores);
