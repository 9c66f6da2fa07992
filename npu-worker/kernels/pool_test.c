/* Every item exactly once, results visible, the state of the floating-point unit, sleeping and
 * waking, and which kernels may be chosen. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <xmmintrin.h>

#include <cmocka.h>

#include "base/cores.h"
#include "npu-worker/kernels/forms.h"
#include "npu-worker/kernels/pool.h"

enum { MOST = 5000 };

struct counts {
	uint32_t seen[MOST];
	_Atomic uint32_t calls, wrong_state;
	uint32_t threads, grain;
};

static void count_items(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
	struct counts *counts = context;
	for (uint32_t i = first; i < last; i++)
		counts->seen[i]++;
	if (_mm_getcsr() != 0x1f80 || thread >= counts->threads)
		counts->wrong_state++;
	counts->calls++;
}

static void every_item_once(void **state)
{
	(void)state;
	for (uint32_t threads = 1; threads <= 5; threads += 2) {
		struct pool *pool;
		assert_int_equal(pool_open(threads, &pool, NULL), SVC_OK);
		assert_int_equal(pool_threads(pool), threads);
		for (uint32_t round = 0; round < 400; round++) {
			static struct counts counts;
			memset(&counts, 0, sizeof counts);
			counts.threads = threads;
			uint32_t count = round % 20 == 7 ? 0 : round * 12 % MOST;
			pool_run(pool, count_items, &counts, count, 1 + round % 9);
			for (uint32_t i = 0; i < MOST; i++)
				assert_int_equal(counts.seen[i], i < count);
			assert_int_equal(counts.wrong_state, 0);
			if (round % 100 == 0) { /* long enough for the threads to fall asleep */
				struct timespec pause = {0, 3000000};
				nanosleep(&pause, NULL);
			}
		}
		assert_null(pool_close(pool));
	}
	assert_null(pool_close(NULL));
}

/* Items that wait for one another: more than one thread must really come, also out of its sleep. */
static void meet(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
	_Atomic uint32_t *here = context;
	(void)first;
	(void)last;
	(void)thread;
	atomic_fetch_add(here, 1);
	while (atomic_load(here) < 3)
		_mm_pause();
}

static void threads_come(void **state)
{
	(void)state;
	struct pool *pool;
	assert_int_equal(pool_open(3, &pool, NULL), SVC_OK);
	for (int round = 0; round < 20; round++) {
		_Atomic uint32_t here = 0;
		pool_run(pool, meet, &here, 3, 1);
		assert_int_equal(here, 3);
		struct timespec pause = {0, round % 2 ? 2000000 : 0};
		nanosleep(&pause, NULL);
	}
	pool_close(pool);
}

/* An idle pool takes no processor time. */
static void idle_sleeps(void **state)
{
	(void)state;
	struct pool *pool;
	struct timespec pause = {0, 30000000}, before, after;
	assert_int_equal(pool_open(4, &pool, NULL), SVC_OK);
	nanosleep(&pause, NULL);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	nanosleep(&pause, NULL);
	nanosleep(&pause, NULL);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	int64_t used_ns =
		(after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec;
	assert_true(used_ns < 20000000);
	pool_close(pool);
}

struct places {
	const uint32_t *cores;
	_Atomic uint32_t missing, wrong;
};

/* Every thread has to come: none goes on before the others are here. */
static void look_where(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
	struct places *places = context;
	cpu_set_t set;
	if (sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) != 1 ||
	    !CPU_ISSET(places->cores[thread], &set))
		places->wrong++;
	places->missing -= last - first;
	while (places->missing)
		sched_yield();
}

static void threads_stay_where_they_are_put(void **state)
{
	(void)state;
	cpu_set_t before;
	uint32_t cores[3], n = cores_list(3, cores);
	struct places places = {.cores = cores, .missing = 3};
	struct svc_err err;
	struct pool *pool;
	assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
	assert_int_equal(n, CPU_COUNT(&before) < 3 ? CPU_COUNT(&before) : 3);
	for (uint32_t i = n; i < 3; i++)
		cores[i] = cores[0];
	assert_int_equal(pool_open(3, &pool, NULL), SVC_OK);
	assert_int_equal(pool_pin(pool, cores, &err), SVC_OK);
	pool_run(pool, look_where, &places, 3, 1);
	assert_int_equal(places.wrong, 0);
	cores[2] = CPU_SETSIZE - 1; /* one that no machine here has */
	assert_int_equal(pool_pin(pool, cores, &err), SVC_IO);
	assert_non_null(strstr(err.msg, "processor 1023"));
	pool_close(pool);
	assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static void refusals(void **state)
{
	(void)state;
	struct svc_err err;
	struct pool *pool = NULL;
	assert_int_equal(pool_open(0, &pool, &err), SVC_BAD_CONFIG);
	assert_int_equal(pool_open(POOL_MAX_THREADS + 1, &pool, &err), SVC_BAD_CONFIG);
	assert_null(pool);
	assert_string_equal(err.param, "threads");

	const struct kernels *kernels = NULL;
	assert_int_equal(kernels_select("sse9", &kernels, &err), SVC_BAD_CONFIG);
	assert_null(kernels);
	assert_non_null(strstr(err.msg, "sse9"));
	assert_non_null(strstr(err.msg, "scalar"));
	assert_int_equal(kernels_select("scalar", &kernels, &err), SVC_OK);
	assert_ptr_equal(kernels, &kernels_scalar);
	assert_int_equal(kernels_select("auto", &kernels, &err), SVC_OK);
	bool runs;
	for (size_t i = 0; kernels_form(i, &runs); i++) {
		if (runs) {
			assert_ptr_equal(kernels, kernels_form(i, &runs));
			break;
		}
	}
}

static void matrix_checks(void **state)
{
	(void)state;
	struct svc_err err;
	assert_int_equal(kernels_check_matrix("blk.0.x", GGUF_TENSOR_Q4_1, 100, 64, &err), SVC_OK);
	assert_int_equal(kernels_check_matrix("blk.0.x", GGUF_TENSOR_Q4_1, 100, 48, &err),
			 SVC_BAD_MODEL);
	assert_non_null(strstr(err.msg, "blk.0.x"));
	assert_int_equal(kernels_check_matrix("blk.0.x", GGUF_TENSOR_Q6_K, 100, 128, &err),
			 SVC_BAD_MODEL);
	assert_int_equal(kernels_check_matrix("blk.0.x", GGUF_TENSOR_F32, 100, 7, &err), SVC_OK);
	assert_int_equal(kernels_check_matrix("blk.0.x", GGUF_TENSOR_F32, 0, 7, &err),
			 SVC_BAD_MODEL);
	assert_int_equal(kernels_check_matrix("blk.0.x", GGUF_TENSOR_F32, UINT64_C(1) << 31,
					      UINT64_C(1) << 31, &err),
			 SVC_BAD_MODEL);
	assert_int_equal(
		kernels_check_matrix("blk.0.x", GGUF_TENSOR_F32, UINT64_C(1) << 63, 32, &err),
		SVC_BAD_MODEL);
	assert_int_equal(kernels_check_matrix("blk.0.x", 10, 256, 256, &err), SVC_UNSUPPORTED);
	assert_int_equal(kernels_check_matrix("blk.0.x", 4000000000u, 256, 256, &err),
			 SVC_UNSUPPORTED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_item_once),
		cmocka_unit_test(threads_come),
		cmocka_unit_test(idle_sleeps),
		cmocka_unit_test(threads_stay_where_they_are_put),
		cmocka_unit_test(refusals),
		cmocka_unit_test(matrix_checks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
