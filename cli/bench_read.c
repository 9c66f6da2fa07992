/* How fast this machine reads what one token reads: the bound of decoding, measured beside it. */
#include "cli/bench.h"
#include "npu-worker/engine/plan.h"
#include "npu-worker/kernels/pool.h"

#define PIECE_BYTES (1u << 18)
#define TURNS	    5

typedef uint64_t line __attribute__((vector_size(64)));

struct reading {
	const line *lines;
	line sums[POOL_MAX_THREADS]; /* so that no compiler leaves the reading out */
};

/* A clone's resolver runs before a sanitizer is ready. */
#ifndef LOCKSTEP_SANITIZED
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
static void
read_pieces(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
	struct reading *reading = context;
	const line *at = reading->lines + (size_t)first * (PIECE_BYTES / sizeof(line));
	const line *end = reading->lines + (size_t)last * (PIECE_BYTES / sizeof(line));
	line a = {0}, b = {0}, c = {0}, d = {0};
	for (; at < end; at += 4) {
		a ^= at[0];
		b ^= at[1];
		c ^= at[2];
		d ^= at[3];
	}
	reading->sums[thread] ^= a ^ b ^ c ^ d;
}

uint64_t bench_token_bytes(const struct plan *plan)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < plan->n_parts; i++) {
		const struct plan_part *part = &plan->parts[i];
		/* Of an embedding that isn't the head too, a token reads one row. */
		if (part->is_matrix &&
		    !(part->role == PART_EMBED && plan_find(plan, PART_OUTPUT, 0)))
			bytes += part->size_bytes;
	}
	return bytes;
}

enum svc_code bench_read_rate(const void *base, size_t bytes, uint32_t threads, double *ret_rate,
			      struct svc_err *err)
{
	struct pool *pool = NULL;
	struct reading reading = {.lines = base};
	uint32_t pieces = (uint32_t)(bytes / PIECE_BYTES);
	double best_s = 1e300;
	enum svc_code code = pool_open(threads, &pool, err);
	if (code != SVC_OK)
		return code;
	for (int turn = 0; turn < TURNS; turn++) {
		double start = bench_now();
		pool_run(pool, read_pieces, &reading, pieces, 1);
		double took = bench_now() - start;
		best_s = took < best_s ? took : best_s;
	}
	pool_close(pool);
	*ret_rate = (double)pieces * PIECE_BYTES / best_s;
	return SVC_OK;
}
