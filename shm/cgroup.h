/* shm/cgroup.h: how much memory the control group of this process has left. */
#pragma once
#include <stdint.h>

/* Bytes until the nearest limit of version 2's memory controller, over this group and all above it:
 * limit - (used - page cache that can be dropped). UINT64_MAX where there is no limit.
 * mount: "/sys/fs/cgroup"; membership: "/proc/self/cgroup". */
uint64_t cgroup_room(const char *mount, const char *membership);
