/* The npu-worker of slot_property_test: a page holds the KV of 64 positions, a row the sum of all.
 */
#include "shm/property/stage.h"

struct sequence {
	uint32_t slot, n_kv, n_pages, row;
	struct slot_state mine;
	struct body *body;
	uint32_t pages[TEST_CTX / PAGE_POSITIONS];
};

static uint32_t *table_of(const struct actor *actor, struct body *body)
{
	return body_region(&actor->run, body, REGION_PAGES, 4 * TEST_CTX / PAGE_POSITIONS, NULL);
}

static void drop_pages(struct actor *actor, struct sequence *sequence)
{
	atomic_store(&sequence->body->n_kv, 0);
	point(actor);
	atomic_store(&sequence->body->n_pages, 0);
	point(actor);
	while (sequence->n_pages)
		page_drop(&actor->run, sequence->pages[--sequence->n_pages]);
	sequence->n_kv = 0;
}

static void adopt_pages(struct actor *actor, struct sequence *sequence)
{
	const uint32_t *table = table_of(actor, sequence->body);
	uint32_t listed = atomic_load(&sequence->body->n_pages);
	sequence->n_kv = atomic_load(&sequence->body->n_kv);
	for (uint32_t i = 0; i < listed; i++) {
		point(actor);
		if (!page_adopt(&actor->run, table[i]))
			break;
		sequence->pages[sequence->n_pages++] = page_of_handle(table[i]);
	}
	if (sequence->n_pages < listed || sequence->n_pages * PAGE_POSITIONS < sequence->n_kv)
		drop_pages(actor, sequence);
}

static uint32_t peek_handles(uint32_t slot, uint32_t *handles)
{
	for (;;) {
		struct slot_state state = slot_load(&run, slot);
		uint32_t n = 0;
		if (slot_stage_role(state.stage) == ROLE_WORKER || state.stage == STAGE_SAMPLE) {
			const char *at = (const char *)run.bodies.base + SHM_LINE +
					 (size_t)state.body * BODY_BLOCK_BYTES;
			const struct body *body = (const struct body *)at;
			PEEK_BEGIN();
			n = atomic_load(&body->n_pages);
			uint32_t offset = body->regions[REGION_PAGES].offset;
			for (uint32_t i = 0; i < n && i < TEST_CTX / PAGE_POSITIONS; i++)
				handles[i] =
					*(const uint32_t *)(at + offset % BODY_BLOCK_BYTES + 4 * i);
			PEEK_END();
		}
		if (slot_load(&run, slot).turn == state.turn)
			return n < TEST_CTX / PAGE_POSITIONS ? n : TEST_CTX / PAGE_POSITIONS;
	}
}

static void collect_pages(struct actor *actor)
{
	bool keep[TEST_PAGES] = {false};
	uint32_t handles[TEST_CTX / PAGE_POSITIONS];
	for (uint32_t slot = 0; slot < TEST_TABLE; slot++)
		for (uint32_t n = peek_handles(slot, handles); n > 0; n--)
			keep[page_of_handle(handles[n - 1]) % TEST_PAGES] = true;
	for (uint32_t page = 0; page < TEST_PAGES; page++)
		if (!keep[page])
			page_drop(&actor->run, page);
	row_collect(&actor->run);
}

static void adopt_from_dead(struct actor *actor)
{
	uint32_t handles[TEST_CTX / PAGE_POSITIONS];
	for (uint32_t entry = INC_WORKER_FIRST; entry < INC_WORKER_END; entry++) {
		uint64_t number = atomic_load(&run.ctl->incs[entry].number);
		bool gone = entry != actor->run.me && page_is_holder(&actor->run, entry) &&
			    inc_is_dead(&actor->run, entry);
		for (uint32_t slot = 0; gone && slot < TEST_TABLE; slot++) {
			struct slot_state state = slot_load(&actor->run, slot);
			gone = slot_stage_role(state.stage) != ROLE_WORKER || state.owner != entry;
		}
		if (!gone)
			continue;
		for (uint32_t slot = 0; slot < TEST_TABLE; slot++)
			for (uint32_t n = peek_handles(slot, handles); n > 0; n--)
				page_adopt(&actor->run, handles[n - 1]);
		point(actor);
		page_drop_all(&actor->run, entry, number);
	}
}

static bool reserve(struct actor *actor, struct sequence *sequence, uint32_t positions)
{
	uint32_t *table = table_of(actor, sequence->body);
	while (sequence->n_pages * PAGE_POSITIONS < positions) {
		uint32_t page = page_take(&actor->run, &actor->cursor);
		if (page == PAGE_NONE)
			return false;
		table[sequence->n_pages] = page_handle(&actor->run, page);
		sequence->pages[sequence->n_pages++] = page;
		point(actor);
		atomic_store(&sequence->body->n_pages, sequence->n_pages);
	}
	return true;
}

static uint64_t *kv_at(struct actor *actor, const struct sequence *sequence, uint32_t position)
{
	uint64_t *page = run_page(&actor->run, sequence->pages[position / PAGE_POSITIONS]);
	return page + position % PAGE_POSITIONS;
}

static void write_step(struct actor *actor, struct sequence *sequence, uint32_t until)
{
	const int32_t *ids = body_region(&actor->run, sequence->body, REGION_IDS, 4 * until, NULL);
	for (uint32_t i = sequence->n_kv; i < until; i++) {
		uint32_t page = sequence->pages[i / PAGE_POSITIONS];
		enter(actor, &page_writer[page], "two write one KV page");
		*kv_at(actor, sequence, i) = kv_of(ids[i], i);
		if (i % 8 == 0)
			point(actor);
		check(page_is_mine(&actor->run, page), "a page was freed under its writer");
		leave(actor);
	}
	uint64_t sum = 0;
	for (uint32_t i = 0; i < until; i++)
		sum += *kv_at(actor, sequence, i);
	float *row = run_logits(&actor->run, sequence->row, until & 1);
	enter(actor, &row_writer[sequence->row], "two write one row");
	point(actor);
	memcpy(row, &sum, sizeof sum);
	leave(actor);
}

static void wait_again(struct actor *actor, struct sequence *sequence)
{
	drop_pages(actor, sequence);
	atomic_store(&sequence->body->row, 0);
	if (sequence->row != PAGE_NONE)
		row_drop(&actor->run, sequence->row, sequence->slot);
	pass(actor, sequence->slot, &sequence->mine,
	     (struct slot_state){.stage = STAGE_COMPUTE, .body = sequence->mine.body});
}

static void compute(struct actor *actor, uint32_t slot)
{
	struct sequence sequence = {.slot = slot};
	if (!own(actor, slot, STAGE_COMPUTE, &sequence.mine))
		return;
	struct body *body = sequence.body = open_body(actor, slot, sequence.mine);
	if (end_cancelled(actor, slot, &sequence.mine, body))
		return;
	uint32_t known = body_n_ids(&actor->run, body);
	adopt_pages(actor, &sequence);
	atomic_store(&body->worker, actor->run.me);
	if (sequence.n_kv == known)
		sequence.n_kv--;
	point(actor);
	sequence.row = row_take(&actor->run, slot, sequence.mine, atomic_load(&body->row) - 1);
	if (sequence.row == PAGE_NONE) {
		wait_again(actor, &sequence);
		return;
	}
	atomic_store(&body->row, sequence.row + 1);
	while (sequence.n_kv < known) {
		uint32_t until = sequence.n_kv + 1 + (uint32_t)draw(actor, 50);
		until = until < known ? until : known;
		if (!reserve(actor, &sequence, until)) {
			collect_pages(actor);
			wait_again(actor, &sequence);
			return;
		}
		write_step(actor, &sequence, until);
		still_there(actor, slot, sequence.mine);
		sequence.n_kv = until;
		atomic_store(&body->n_kv, until);
		if (!inc_beat(&actor->run))
			die(actor);
		point(actor);
	}
	pass(actor, slot, &sequence.mine,
	     (struct slot_state){.stage = STAGE_SAMPLE,
				 .owner = atomic_load(&body->sampler),
				 .body = sequence.mine.body});
}

static void reclaim(struct actor *actor, uint32_t slot)
{
	struct slot_state mine;
	if (!own(actor, slot, STAGE_RECLAIM, &mine))
		return;
	struct body *body = open_body(actor, slot, mine);
	uint32_t n = atomic_load(&body->n_pages), row = atomic_load(&body->row);
	const uint32_t *table = table_of(actor, body);
	atomic_store(&body->n_pages, 0);
	point(actor);
	for (uint32_t i = 0; i < n; i++)
		if (page_handle(&actor->run, page_of_handle(table[i])) == table[i])
			page_drop(&actor->run, page_of_handle(table[i]));
	row_drop(&actor->run, row - 1, slot);
	pass(actor, slot, &mine, (struct slot_state){.stage = STAGE_DONE, .body = mine.body});
}

void work(struct actor *actor, uint32_t slot)
{
	reclaim(actor, slot);
	compute(actor, slot);
	if (slot == 0) {
		adopt_from_dead(actor);
		if (draw(actor, 8) == 0)
			collect_pages(actor);
	}
}
