/* tests/fuzz/segment_fuzz.c: a run whose control segment and first body a peer has overwritten. It
 * is refused at attach, or everything that reads it stays inside.
 *
 * The input is a list of 8-byte records: where (2 bits: before attach in control, after attach in
 * control, in the body, in the body's header) and a 4-byte value to store there. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shm/block.h"
#include "shm/fence.h"
#include "shm/page.h"
#include "shm/prefix.h"
#include "shm/testing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum where { CONTROL_BEFORE, CONTROL_AFTER, BODY, BODY_HEADER };

struct record {
	uint32_t place; /* 2 bits where, 30 bits offset / 4 */
	uint32_t value;
};

static struct shm_run good; /* stays attached: what is written through it is the peer's doing */
static uint8_t *pristine;
static uint32_t body_index;
static struct body pristine_body;
static unsigned sum; /* so that the reads are not optimised away */

static void clean_up(void)
{
	test_run_remove(&good);
}

static void set_up(void)
{
	good = test_run_make();
	atexit(clean_up);
	struct shm_run gateway = test_join(&good, ROLE_GATEWAY);
	struct body *body = test_request(&gateway, 0, STAGE_COMPUTE);
	uint32_t cursor = 0;
	struct shm_run worker = test_join(&good, ROLE_WORKER);
	page_take(&worker, &cursor);
	body_index = slot_load(&good, 0).body;
	pristine_body = *body;
	pristine = malloc(good.control.bytes);
	test_must(pristine != NULL, "malloc");
	memcpy(pristine, good.control.base, good.control.bytes);
}

static char *body_bytes(void)
{
	return (char *)good.bodies.base + SHM_LINE + (size_t)body_index * BODY_BLOCK_BYTES;
}

static void overwrite(const uint8_t *data, size_t size, bool before)
{
	for (size_t at = 0; at + sizeof(struct record) <= size; at += sizeof(struct record)) {
		struct record record;
		memcpy(&record, data + at, sizeof record);
		enum where where = (enum where)(record.place >> 30);
		size_t offset = 4 * (size_t)(record.place & 0x3fffffff);
		char *base = good.control.base;
		size_t room = good.control.bytes;
		if (where == BODY || where == BODY_HEADER) {
			base = body_bytes();
			room = where == BODY ? BODY_BLOCK_BYTES : sizeof(struct body);
		}
		if (before == (where == CONTROL_BEFORE))
			memcpy(base + offset % room, &record.value, sizeof record.value);
	}
}

static void read_all(const void *bytes, size_t n)
{
	for (size_t i = 0; bytes && i < n; i += 61)
		sum += ((const uint8_t *)bytes)[i];
}

static void walk_bodies(struct shm_run *run)
{
	struct svc_err err;
	for (uint32_t slot = 0; slot < run->n_table && slot < 64; slot++) {
		struct slot_state state = slot_load(run, slot);
		const struct body *body = body_get(run, state.body, slot);
		sum += (unsigned)strlen(slot_stage_name(state.stage));
		sum += (unsigned)slot_stage_role(state.stage) + slot_is_cancelled(run, slot);
		for (int i = 0; body && i < REGION_COUNT; i++) {
			size_t bytes = 0;
			const void *region = body_region(run, body, (enum body_region)i, 0, &bytes);
			read_all(region, bytes);
		}
		if (!body)
			continue;
		sum += body_n_ids(run, body) + body_failure(body, &err);
		uint32_t copy = 0;
		if (body_copy(run, slot, body, &copy, &err) == SVC_OK)
			block_give_back(run, copy, slot);
	}
}

static void walk_tables(struct shm_run *run)
{
	struct inc_watch watch = {0};
	uint32_t cursor = 0;
	for (uint32_t entry = 0; entry < INC_COUNT; entry++) {
		sum += (unsigned)inc_role(run, entry) + (unsigned)inc_state_of(run, entry);
		sum += inc_is_ready(run, entry);
		sum += (unsigned)strlen(inc_role_name(inc_role(run, entry)));
		sum += inc_is_dead(run, entry) + page_is_holder(run, entry);
	}
	inc_watch_look(&watch, run, 1000000);
	inc_watch_look(&watch, run, 1100000);
	sum += inc_find(run, ROLE_WORKER, 70);
	sum += block_sweep(run) + block_count_free(run) + body_count_used(run);
	sum += page_count_free(run) + page_take(run, &cursor) + row_is_available(run);
	for (uint32_t page = 0; page < run->n_pages && page < 64; page++) {
		sum += page_adopt(run, page_handle(run, page)) + prefix_is_sealed(run, page);
		const void *bytes = run_page(run, page);
		sum += bytes ? *(const uint8_t *)bytes : 0;
	}
	struct slot_state mine = slot_load(run, 0);
	sum += row_take(run, 0, mine, 3);
	sum += prefix_find(run, (struct prefix_key){1, 2});
	read_all(run_logits(run, run->n_rows - 1, 1), run->n_vocab * sizeof(float));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct shm_run run;
	struct svc_err err = {0};
	if (!pristine)
		set_up();
	overwrite(data, size, true);
	enum svc_code code = run_attach(good.dir, good.bulk_dir, ROLE_WORKER, &run, &err);
	if (code != SVC_OK && (code != err.code || !*err.msg))
		abort();
	if (code == SVC_OK) {
		run.number = 1000000;
		run.me = 1;
		overwrite(data, size, false);
		walk_bodies(&run);
		walk_tables(&run);
		run_detach(&run);
	}
	memcpy(good.control.base, pristine, good.control.bytes);
	memcpy(body_bytes(), &pristine_body, sizeof pristine_body);
	return 0;
}
