/* Speed of the kernels, alone on the machine's cores: GB/s of packed weights for one token, Gop/s
 * (a multiply and an add are two) for a batch, and the pool's time per dispatch. kernels_bench
 * [--isa NAME] [--threads N] [--mb N] [--type NAME] */
#include <getopt.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <xmmintrin.h>

#include "npu-worker/kernels/attention.h"
#include "npu-worker/kernels/pool.h"
#include "npu-worker/kernels/testing.h"

struct bench {
	const struct kernels *kernels;
	struct pool *pool;
	struct kernels_matrix w;
	struct kernels_acts acts;
	float *y;
};

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void work(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
	const struct bench *b = context;
	(void)thread;
	b->kernels->matmul(&b->w, &b->acts, b->y, b->w.rows, first, last);
}

/* Best of some runs, in seconds. */
static double time_product(struct bench *b, double budget)
{
	double best = 1e9, begin = now();
	uint32_t blocks = kernels_block_count(b->w.rows),
		 grain = blocks / (8 * pool_threads(b->pool)) + 1;
	for (int i = 0; i < 3 || now() - begin < budget; i++) {
		double start = now();
		pool_run(b->pool, work, b, blocks, grain);
		double seconds = now() - start;
		best = seconds < best ? seconds : best;
	}
	return best;
}

static void bench_family(struct bench *b, enum kernels_family family, uint32_t most_tokens)
{
	uint64_t random = 1;
	float *x = test_memory((size_t)most_tokens * b->w.cols * sizeof *x);
	void *memory = test_memory(kernels_acts_bytes(family, most_tokens, b->w.cols));
	for (size_t i = 0; i < (size_t)most_tokens * b->w.cols; i++)
		x[i] = test_normal(&random);
	uint32_t all_rows = b->w.rows;
	printf("%-5s %-7s", gguf_tensor_type_name(b->w.type), kernels_family_name(family));
	for (uint32_t tokens = 1; tokens <= most_tokens; tokens *= 2) {
		kernels_acts_init(&b->acts, family, tokens, b->w.cols, memory);
		b->acts.x = x;
		b->kernels->quantise(&b->acts, 0, tokens);
		/* one token: all of it, from memory; a batch: a matrix of usual size, again and
		 * again */
		b->w.rows = tokens == 1 || all_rows < 3072 ? all_rows : 3072;
		double seconds = time_product(b, 0.15);
		double gops = 2e-9 * b->w.rows * b->w.cols * tokens / seconds;
		if (tokens == 1)
			printf("  %5.1f GB/s",
			       (double)kernels_packed_bytes(b->w.type, b->w.rows, b->w.cols) /
				       seconds * 1e-9);
		else
			printf("  %4.0f", gops);
	}
	printf(" Gop/s\n");
	b->w.rows = all_rows;
	free(x);
	free(memory);
}

/* A matrix of about `bytes` packed bytes, in huge pages where the system gives them. */
static void bench_type(struct bench *b, uint32_t type, size_t bytes, uint32_t most_tokens)
{
	uint32_t cols = 1536, block = (uint32_t)kernels_packed_bytes(type, 16, cols);
	uint32_t rows = 16 * (uint32_t)(bytes / block);
	uint64_t random = 1;
	uint8_t *tensor = test_tensor(type, 256, cols, false, &random);
	size_t size = kernels_packed_bytes(type, rows, cols), align = (size_t)2 << 20;
	void *packed = aligned_alloc(align, (size + align - 1) / align * align);
	if (!packed)
		abort();
	madvise(packed, size, MADV_HUGEPAGE);
	for (uint32_t at = 0; at < rows / 16; at += 16)
		kernels_pack(&(struct kernels_matrix){type, 256, cols, NULL}, tensor,
			     (uint8_t *)packed + (size_t)at * block, 0,
			     rows / 16 - at < 16 ? rows / 16 - at : 16);
	b->w = (struct kernels_matrix){type, rows, cols, packed};
	b->y = test_memory((size_t)rows * most_tokens * sizeof(float));
	bench_family(b, KERNELS_A16, most_tokens);
	bench_family(b, KERNELS_A8, most_tokens);
	bench_family(b, KERNELS_F32, most_tokens);
	free(b->y);
	free(packed);
	free(tensor);
}

/* One KV head with `heads` query heads, on one thread: a decode step (GB/s of keys and values) and
 * a chunk of 64. */
static void bench_attention(const struct kernels *kernels, uint32_t head_dim, uint32_t heads)
{
	enum { POSITION = 3000, TOKENS = 64, PAGES = (POSITION + TOKENS + 63) / 64 };
	uint64_t random = 1;
	size_t k_bytes = kernels_k_tile_bytes(KERNELS_KV_F16, head_dim);
	size_t bytes = k_bytes + kernels_v_tile_bytes(KERNELS_KV_F16, head_dim);
	uint8_t *pages[PAGES];
	for (uint32_t i = 0; i < PAGES; i++) {
		pages[i] = test_memory(bytes);
		for (size_t j = 0; j < bytes / 2; j++)
			((uint16_t *)(void *)pages[i])[j] = f16_from_f32(test_normal(&random));
	}
	size_t stride = (size_t)heads * head_dim;
	float *q = test_memory(TOKENS * stride * sizeof *q),
	      *out = test_memory(TOKENS * stride * sizeof *out);
	for (size_t i = 0; i < TOKENS * stride; i++)
		q[i] = test_normal(&random);
	struct kernels_attention job = {.kv = KERNELS_KV_F16,
					.head_dim = head_dim,
					.pages = (const uint8_t *const *)pages,
					.v_offset = k_bytes,
					.position = POSITION,
					.heads = heads,
					.scale = 0.125f,
					.q = q,
					.q_stride = stride,
					.out = out,
					.out_stride = stride};
	printf("attention at %d, head_dim %u, %u heads:", POSITION, head_dim, heads);
	for (job.tokens = 1; job.tokens <= TOKENS; job.tokens *= 8) {
		double best = 1e9, begin = now();
		while (now() - begin < 0.1) {
			double start = now();
			kernels->attention(&job);
			double seconds = now() - start;
			best = seconds < best ? seconds : best;
		}
		printf("  %u tokens %.0f us, %.1f GB/s, %.0f Gop/s", job.tokens, best * 1e6,
		       (double)(bytes * PAGES) / best * 1e-9,
		       4e-9 * POSITION * (double)(stride * job.tokens) / best);
	}
	printf("\n");
	for (uint32_t i = 0; i < PAGES; i++)
		free(pages[i]);
	free(q);
	free(out);
}

static void bench_loops(const struct kernels *kernels)
{
	enum { N = 1536, ROUNDS = 2000 };
	static float x[N], y[N], w[N];
	uint64_t random = 1;
	for (uint32_t i = 0; i < N; i++)
		x[i] = w[i] = test_normal(&random);
	const char *const NAMES[] = {"rms_norm", "silu_mul",	     "gelu_mul",
				     "rope",	 "rope interleaved", "quantise a16"};
	static _Alignas(64) uint8_t memory[N * 8];
	struct kernels_acts acts;
	kernels_acts_init(&acts, KERNELS_A16, 1, N, memory);
	acts.x = x;
	for (int which = 0; which < 6; which++) {
		double start = now();
		for (int i = 0; i < ROUNDS; i++) {
			if (which == 0)
				kernels->rms_norm(x, w, 1e-5f, N, y);
			else if (which == 1)
				kernels->silu_mul(x, w, N, y);
			else if (which == 2)
				kernels->gelu_mul(x, w, N, y);
			else if (which == 5)
				kernels->quantise(&acts, 0, 1);
			else
				kernels->rope(y, x, w, N / 2, which == 4);
		}
		printf("%s of %d: %.2f us  ", NAMES[which], N, (now() - start) / ROUNDS * 1e6);
	}
	printf("\n");
}

static void meet(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
	_Atomic uint32_t *missing = context;
	(void)thread;
	atomic_fetch_sub(missing, last - first);
	while (atomic_load(missing))
		_mm_pause();
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* From the call to its return, when every thread has to come for it. */
static void bench_pool(struct pool *pool)
{
	enum { ROUNDS = 5001 };
	static double seconds[ROUNDS];
	for (int i = 0; i < ROUNDS; i++) {
		_Atomic uint32_t missing = pool_threads(pool);
		double start = now();
		pool_run(pool, meet, &missing, pool_threads(pool), 1);
		seconds[i] = now() - start;
	}
	qsort(seconds, ROUNDS, sizeof *seconds, by_size);
	printf("pool of %u: %.2f us per dispatch (median)\n", pool_threads(pool),
	       seconds[ROUNDS / 2] * 1e6);
}

int main(int argc, char **argv)
{
	static const struct option OPTIONS[] = {
		{"isa", required_argument, NULL, 'i'},	  {"threads", required_argument, NULL, 't'},
		{"mb", required_argument, NULL, 'm'},	  {"type", required_argument, NULL, 'y'},
		{"tokens", required_argument, NULL, 'n'}, {NULL, 0, NULL, 0},
	};
	const char *isa = "auto", *only = NULL;
	uint32_t threads = 2, mb = 96, tokens = 64;
	for (int o; (o = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;) {
		if (o == 'i')
			isa = optarg;
		else if (o == 't')
			threads = (uint32_t)strtoul(optarg, NULL, 10);
		else if (o == 'm')
			mb = (uint32_t)strtoul(optarg, NULL, 10);
		else if (o == 'y')
			only = optarg;
		else if (o == 'n')
			tokens = (uint32_t)strtoul(optarg, NULL, 10);
		else
			return 64;
	}
	struct svc_err err;
	struct bench b;
	if (kernels_select(isa, &b.kernels, &err) || pool_open(threads, &b.pool, &err)) {
		fprintf(stderr, "%s\n", err.msg);
		return svc_code_info(err.code)->exit_status;
	}
	printf("%s, %u threads, %u MB of weights; tokens: 1 2 4 .. %u\n", b.kernels->name, threads,
	       mb, tokens);
	bench_pool(b.pool);
	bench_loops(b.kernels);
	bench_attention(b.kernels, 64, 3);
	bench_attention(b.kernels, 64, 7);
	bench_attention(b.kernels, 256, 4);
	bench_attention(b.kernels, 96, 1);
	for (uint32_t i = 0; i < TEST_TYPE_COUNT; i++) {
		if (!only || strcmp(only, gguf_tensor_type_name(TEST_TYPES[i])) == 0)
			bench_type(&b, TEST_TYPES[i], (size_t)mb << 20, tokens);
	}
	pool_close(b.pool);
	return 0;
}
