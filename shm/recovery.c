#include "shm/recovery.h"

#include "shm/run.h"

static const uint64_t bounds[] = RECOVERY_BOUNDS_US;
#define N_BOUNDS (sizeof bounds / sizeof *bounds)
_Static_assert(N_BOUNDS + 1 == RECOVERY_BUCKETS, "a bucket for what is longer");

void recovery_note(struct shm_run *run, uint64_t us)
{
	struct ctl_counters *counters = &run->ctl->counters;
	size_t i = 0;
	while (i < N_BOUNDS && us > bounds[i])
		i++;
	atomic_fetch_add_explicit(&counters->recovery_us, us, memory_order_relaxed);
	atomic_fetch_add_explicit(&counters->recoveries[i], 1, memory_order_relaxed);
}

uint64_t recovery_quantile_us(const struct shm_run *run, double share)
{
	uint64_t counts[RECOVERY_BUCKETS], total = 0, below = 0;
	for (size_t i = 0; i < RECOVERY_BUCKETS; i++)
		total += counts[i] = atomic_load_explicit(&run->ctl->counters.recoveries[i],
							  memory_order_relaxed);
	for (size_t i = 0; i < N_BOUNDS && total; i++) {
		below += counts[i];
		if ((double)below >= share * (double)total)
			return bounds[i];
	}
	return total ? UINT64_MAX : 0;
}
