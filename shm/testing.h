/* shm/testing.h: a run of its own for a test, small and in a folder of its own under /dev/shm. */
#pragma once
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shm/body.h"
#include "shm/incarnation.h"
#include "shm/run.h"
#include "shm/slot.h"

#define TEST_CTX     256u
#define TEST_VOCAB   100u
#define TEST_SLOTS   4u
#define TEST_TABLE   16u
#define TEST_BLOCKS  64u
#define TEST_PAGES   16u
#define TEST_PAGE_KB 4u

static const struct run_plan test_plan = {
	.n_slots = TEST_SLOTS,
	.queue = 8,
	.kept = 4,
	.n_blocks = TEST_BLOCKS,
	.n_pages = TEST_PAGES,
	.ctx = TEST_CTX,
	.n_vocab = TEST_VOCAB,
	.page_bytes = TEST_PAGE_KB * 1024,
	.stall_ms = 1000,
	.model_hash = {0x1234, 0x5678},
	.family_hash = 0x9abc,
	.family = "test-v1",
	.model_name = "test",
	.model_path = "/nowhere",
	.fingerprint = "ls_test",
};

/* What goes wrong here is no test's subject. */
static inline void test_must(bool fine, const char *what)
{
	if (fine)
		return;
	fprintf(stderr, "%s failed\n", what);
	abort();
}

static inline void test_dir_make(char *dir, size_t size)
{
	snprintf(dir, size, "/dev/shm/lockstep-test-XXXXXX");
	test_must(mkdtemp(dir) != NULL, "mkdtemp in /dev/shm");
}

static inline int test_remove(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

static inline void test_dir_remove(const char *dir)
{
	nftw(dir, test_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* A new run, everything mapped, nobody registered. */
static inline struct shm_run test_run_make(void)
{
	char dir[64], bulk[80];
	struct shm_run keeper, run;
	struct svc_err err = {0};
	bool created = false;
	test_dir_make(dir, sizeof dir);
	snprintf(bulk, sizeof bulk, "%s/bulk", dir);
	test_must(run_create(dir, bulk, &test_plan, &keeper, &created, &err) == SVC_OK && created,
		  err.msg);
	run_detach(&keeper);
	test_must(run_attach(dir, bulk, ROLE_WORKER, &run, &err) == SVC_OK, err.msg);
	return run;
}

static inline void test_run_remove(struct shm_run *run)
{
	test_dir_remove(run->dir);
	run_detach(run);
}

/* Another incarnation over the same mapping; test_end ends it. */
static inline struct shm_run test_join(const struct shm_run *run, enum shm_role role)
{
	struct shm_run mine = *run;
	struct svc_err err = {0};
	mine.lock_fd = -1;
	mine.me = 0;
	test_must(inc_register(&mine, role, 0, &err) == SVC_OK, err.msg);
	inc_set_state(&mine, INC_READY);
	return mine;
}

/* What a kill leaves: the lock is free, the entry names a number without a holder. */
static inline void test_end(struct shm_run *mine)
{
	close(mine->lock_fd);
	mine->lock_fd = -1;
}

/* Regions that all kinds of requests have, `out` bytes for the answer. */
static inline struct body_plan test_body_plan(uint32_t out)
{
	struct body_plan plan = {0};
	plan.bytes[REGION_TEXT] = 100;
	plan.bytes[REGION_IDS] = 4 * TEST_CTX;
	plan.bytes[REGION_PAGES] = 4 * TEST_CTX / PAGE_POSITIONS;
	plan.bytes[REGION_ENDS] = 4 * TEST_CTX;
	plan.bytes[REGION_OUT] = out;
	plan.bytes[REGION_LOGPROBS] = TEST_CTX * 8;
	return plan;
}

/* A request in `stage` with a body and nobody's, begun by the gateway. Returns its body. */
static inline struct body *test_request(struct shm_run *gateway, uint32_t slot,
					enum slot_stage stage)
{
	struct body_plan plan = test_body_plan(1000);
	struct slot_state mine;
	struct svc_err err = {0};
	uint32_t index = 0;
	test_must(slot_begin(gateway, slot, &mine), "slot_begin");
	atomic_store(&gateway->slots[slot].generation,
		     atomic_fetch_add(&gateway->ctl->counters.next_generation, 1));
	test_must(body_alloc(gateway, slot, &plan, &index, &err) == SVC_OK, err.msg);
	struct body *body = body_get(gateway, index, slot);
	test_must(body != NULL, "body_get");
	body->generation = atomic_load(&gateway->slots[slot].generation);
	body->kind = BODY_GENERATE;
	struct slot_state next = {.stage = stage, .body = index};
	test_must(slot_pass(gateway, slot, &mine, next) == SVC_OK, "slot_pass");
	return body;
}
