#include "shm/run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FAR_TOO_MANY (1u << 20)
/* A frozen npu-worker keeps its rows until it has ended; the sequences go on with others. */
#define ROWS_PER_SLOT 2u

static uint64_t round_line(uint64_t bytes)
{
	return (bytes + SHM_LINE - 1) & ~(uint64_t)(SHM_LINE - 1);
}

static size_t logits_stride(uint32_t n_vocab)
{
	return (size_t)round_line((uint64_t)n_vocab * sizeof(float));
}

static enum svc_code make_dir(const char *path, struct svc_err *err)
{
	if (mkdir(path, 0700) == 0 || errno == EEXIST)
		return SVC_OK;
	return svc_fail_errno(err, __func__, "cannot create the directory %s", path);
}

static enum svc_code make_dirs(struct shm_run *run, struct svc_err *err)
{
	const char *const subs[] = {"", "/inc", "/bus"};
	enum svc_code code = SVC_OK;
	for (size_t i = 0; i < 3 && code == SVC_OK; i++) {
		char path[300];
		snprintf(path, sizeof path, "%s%s", run->dir, subs[i]);
		code = make_dir(path, err);
	}
	if (code == SVC_OK)
		code = make_dir(run->bulk_dir, err);
	return code;
}

/* Points into the control segment, and the private copies of its sizes, checked. */
static enum svc_code bind_control(struct shm_run *run, struct svc_err *err)
{
	struct ctl *ctl = run->control.base;
	const struct ctl_config *config = &ctl->config;
	run->ctl = ctl;
	run->n_slots = config->n_slots;
	run->n_rows = ROWS_PER_SLOT * run->n_slots;
	run->n_table = config->n_table;
	run->n_blocks = config->n_blocks;
	run->n_pages = config->n_pages;
	run->n_vocab = config->n_vocab;
	run->ctx = config->ctx;
	run->page_bytes = config->page_bytes;
	bool sane = run->control.bytes >= sizeof *ctl && run->n_slots && run->n_slots <= 4096 &&
		    run->n_table && run->n_table <= 65535 &&
		    run->n_blocks <= 1u << SLOT_BODY_BITS && run->n_pages <= FAR_TOO_MANY &&
		    run->ctx && run->ctx <= FAR_TOO_MANY && run->n_vocab <= FAR_TOO_MANY;
	if (sane) {
		run->slots = seg_at(&run->control, ctl->slots_offset,
				    (uint64_t)run->n_table * sizeof *run->slots);
		run->blocks = seg_at(&run->control, ctl->blocks_offset,
				     (uint64_t)run->n_blocks * sizeof *run->blocks);
		run->page_words =
			seg_at(&run->control, ctl->pages_offset, (uint64_t)run->n_pages * 8);
		run->row_words = seg_at(&run->control, ctl->rows_offset, (uint64_t)run->n_rows * 8);
		run->page_seals = seg_at(&run->control, ctl->seals_offset,
					 (uint64_t)run->n_pages * sizeof *run->page_seals);
		sane = run->page_seals && run->slots && run->blocks && run->page_words &&
		       run->row_words;
	}
	if (!sane)
		return svc_fail(err, SVC_CORRUPT, __func__, "%s/control: sizes are out of range",
				run->dir);
	return SVC_OK;
}

static size_t control_bytes(const struct run_plan *plan, struct ctl *ret_offsets)
{
	uint64_t at = sizeof(struct ctl);
	uint32_t n_table = plan->n_slots + plan->queue + plan->kept;
	ret_offsets->slots_offset = at;
	at += (uint64_t)n_table * sizeof(struct slot_line);
	ret_offsets->blocks_offset = at;
	at += round_line((uint64_t)plan->n_blocks * sizeof(struct block_word));
	ret_offsets->pages_offset = at;
	at += round_line((uint64_t)plan->n_pages * 8);
	ret_offsets->rows_offset = at;
	at += round_line((uint64_t)plan->n_slots * ROWS_PER_SLOT * 8);
	ret_offsets->seals_offset = at;
	at += (uint64_t)plan->n_pages * sizeof(struct page_seal);
	ret_offsets->total_bytes = at;
	return (size_t)at;
}

static enum svc_code fill_config(struct ctl *ctl, const struct run_plan *plan, struct svc_err *err)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	struct ctl_config *config = &ctl->config;
	*config = (struct ctl_config){.n_slots = plan->n_slots,
				      .n_table = plan->n_slots + plan->queue + plan->kept,
				      .n_blocks = plan->n_blocks,
				      .n_pages = plan->n_pages,
				      .ctx = plan->ctx,
				      .n_vocab = plan->n_vocab,
				      .page_bytes = plan->page_bytes,
				      .model_hash = {plan->model_hash[0], plan->model_hash[1]},
				      .family_hash = plan->family_hash,
				      .created_us = (uint64_t)now.tv_sec * 1000000u +
						    (uint64_t)now.tv_nsec / 1000u,
				      .stall_ms = plan->stall_ms};
	snprintf(config->family, sizeof config->family, "%s", plan->family);
	snprintf(config->model_name, sizeof config->model_name, "%s", plan->model_name);
	snprintf(config->model_path, sizeof config->model_path, "%s", plan->model_path);
	snprintf(config->fingerprint, sizeof config->fingerprint, "%s", plan->fingerprint);
	atomic_store(&ctl->counters.next_incarnation, 1);
	atomic_store(&ctl->counters.next_generation, 1);
	if (getrandom(config->secret, sizeof config->secret, 0) != (ssize_t)sizeof config->secret)
		return svc_fail_errno(err, __func__, "getrandom");
	return SVC_OK;
}

static enum svc_code compare_plan(const struct shm_run *run, const struct run_plan *plan,
				  struct svc_err *err)
{
	const struct ctl_config *config = &run->ctl->config;
	const struct {
		const char *what;
		uint64_t found, wanted;
	} checks[] = {
		{"model hash", config->model_hash[0], plan->model_hash[0]},
		{"--ctx", config->ctx, plan->ctx},
		{"--slots", config->n_slots, plan->n_slots},
		{"KV pages", config->n_pages, plan->n_pages},
		{"family", config->family_hash, plan->family_hash},
		{"vocabulary", config->n_vocab, plan->n_vocab},
	};
	for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
		if (checks[i].found != checks[i].wanted)
			return svc_fail(err, SVC_CONFLICT, __func__,
					"%s holds a run with %s %#" PRIx64 ", asked for %#" PRIx64
					": deploy/down it first or use another --run-dir",
					run->dir, checks[i].what, checks[i].found,
					checks[i].wanted);
	return SVC_OK;
}

static enum svc_code create_bulk(struct shm_run *run, const struct run_plan *plan, uint64_t run_id,
				 struct svc_err *err)
{
	const struct {
		const char *dir, *name;
		enum seg_kind kind;
		size_t bytes;
	} parts[] = {
		{run->dir, "bodies", SEG_BODIES,
		 SHM_LINE + (size_t)plan->n_blocks * BODY_BLOCK_BYTES},
		{run->bulk_dir, "pages", SEG_PAGES,
		 4096 + (size_t)plan->n_pages * plan->page_bytes},
		{run->bulk_dir, "logits", SEG_LOGITS,
		 4096 + 2 * (size_t)plan->n_slots * ROWS_PER_SLOT * logits_stride(plan->n_vocab)},
	};
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		struct segment seg;
		char path[512];
		bool won = false;
		/* What is there without a control segment is left over from a keeper that died
		 * while it built. */
		snprintf(path, sizeof path, "%s/%s", parts[i].dir, parts[i].name);
		unlink(path);
		enum svc_code code = seg_create(parts[i].dir, parts[i].name, parts[i].kind,
						parts[i].bytes, run_id, &seg, err);
		if (code == SVC_OK) {
			code = seg_publish(parts[i].dir, parts[i].name, &seg, &won, err);
			seg_unmap(&seg);
		}
		if (code != SVC_OK)
			return code;
	}
	return SVC_OK;
}

enum svc_code run_create(const char *dir, const char *bulk_dir, const struct run_plan *plan,
			 struct shm_run *ret_run, bool *ret_created, struct svc_err *err)
{
	struct svc_err none;
	enum svc_code code = run_attach(dir, bulk_dir, ROLE_KEEPER, ret_run, &none);
	if (code == SVC_OK) {
		*ret_created = false;
		code = compare_plan(ret_run, plan, err);
		if (code != SVC_OK)
			run_detach(ret_run);
		return code;
	}
	if (code != SVC_NOT_FOUND) {
		if (err)
			*err = none;
		return code;
	}
	struct shm_run run = {.lock_fd = -1};
	struct ctl offsets = {0};
	uint64_t run_id = 0;
	bool won = false;
	snprintf(run.dir, sizeof run.dir, "%s", dir);
	snprintf(run.bulk_dir, sizeof run.bulk_dir, "%s", bulk_dir);
	if (getrandom(&run_id, sizeof run_id, 0) != (ssize_t)sizeof run_id)
		return svc_fail_errno(err, __func__, "getrandom");
	code = make_dirs(&run, err);
	if (code == SVC_OK)
		code = create_bulk(&run, plan, run_id, err);
	if (code == SVC_OK)
		code = seg_create(dir, "control", SEG_CONTROL, control_bytes(plan, &offsets),
				  run_id, &run.control, err);
	if (code != SVC_OK)
		return code;
	struct ctl *ctl = run.control.base;
	ctl->slots_offset = offsets.slots_offset;
	ctl->blocks_offset = offsets.blocks_offset;
	ctl->pages_offset = offsets.pages_offset;
	ctl->rows_offset = offsets.rows_offset;
	ctl->seals_offset = offsets.seals_offset;
	ctl->total_bytes = offsets.total_bytes;
	code = fill_config(ctl, plan, err);
	if (code == SVC_OK)
		code = seg_publish(dir, "control", &run.control, &won, err);
	if (code == SVC_OK && !won)
		code = svc_fail(err, SVC_CONFLICT, __func__,
				"another keeper is creating %s/control", dir);
	if (code == SVC_OK)
		code = bind_control(&run, err);
	if (code != SVC_OK) {
		run_detach(&run);
		return code;
	}
	*ret_created = true;
	*ret_run = run;
	return SVC_OK;
}

static enum svc_code map_for_role(struct shm_run *run, enum shm_role role, struct svc_err *err)
{
	uint64_t run_id = run->ctl->header.run_id;
	enum svc_code code = SVC_OK;
	if (role != ROLE_KEEPER)
		code = seg_attach(run->dir, "bodies", SEG_BODIES, true, run_id, &run->bodies, err);
	if (code == SVC_OK && role == ROLE_WORKER)
		code = seg_attach(run->bulk_dir, "pages", SEG_PAGES, true, run_id, &run->pages,
				  err);
	if (code == SVC_OK && (role == ROLE_WORKER || role == ROLE_SAMPLER))
		code = seg_attach(run->bulk_dir, "logits", SEG_LOGITS, role == ROLE_WORKER, run_id,
				  &run->logits, err);
	return code;
}

enum svc_code run_attach(const char *dir, const char *bulk_dir, enum shm_role role,
			 struct shm_run *ret_run, struct svc_err *err)
{
	struct shm_run run = {.lock_fd = -1};
	snprintf(run.dir, sizeof run.dir, "%s", dir);
	snprintf(run.bulk_dir, sizeof run.bulk_dir, "%s", bulk_dir);
	enum svc_code code = seg_attach(dir, "control", SEG_CONTROL, true, 0, &run.control, err);
	if (code == SVC_OK)
		code = bind_control(&run, err);
	if (code == SVC_OK)
		code = map_for_role(&run, role, err);
	if (code != SVC_OK) {
		run_detach(&run);
		return code;
	}
	*ret_run = run;
	return SVC_OK;
}

enum svc_code run_map_vocab(struct shm_run *run, struct svc_err *err)
{
	return seg_attach(run->dir, "vocab", SEG_VOCAB, false, run->ctl->header.run_id, &run->vocab,
			  err);
}

void run_detach(struct shm_run *run)
{
	seg_unmap(&run->control);
	seg_unmap(&run->bodies);
	seg_unmap(&run->pages);
	seg_unmap(&run->logits);
	seg_unmap(&run->vocab);
	run->ctl = NULL;
}

float *run_logits(const struct shm_run *run, uint32_t row, uint32_t which)
{
	size_t stride = logits_stride(run->n_vocab);
	if (row >= run->n_rows || which > 1)
		return NULL;
	return seg_at(&run->logits, 4096 + (2ull * row + which) * stride, stride);
}

void *run_page(const struct shm_run *run, uint32_t index)
{
	if (index >= run->n_pages)
		return NULL;
	return seg_at(&run->pages, 4096 + (uint64_t)index * run->page_bytes, run->page_bytes);
}
