/* shm/recovery.h: how long requests lay with processes that were dead or frozen. */
#pragma once
#include <stdint.h>

struct shm_run;

/* Upper bounds of the histogram's buckets but for the last one, which has none; microseconds. */
#define RECOVERY_BOUNDS_US                                                                       \
	{                                                                                        \
		1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 500000, 1000000, 2500000, \
			5000000, 10000000, 60000000                                              \
	}

/* A slot was taken over us microseconds after its owner's last beat. */
void recovery_note(struct shm_run *run, uint64_t us);

/* The bucket's bound that the given share of all take-overs did not pass; 0 without any,
 * UINT64_MAX if it lies beyond the last bound. */
uint64_t recovery_quantile_us(const struct shm_run *run, double share);
