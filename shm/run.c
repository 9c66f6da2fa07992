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

/* Offsets in the control segment; end is its size. */
struct tables {
	uint64_t slots, blocks, pages, rows, seals, rings, bells, end;
};

static uint32_t bell_lines(const struct ctl_config *config)
{
	return (config->n_table + BELL_LINE_SLOTS - 1) / BELL_LINE_SLOTS;
}

static struct tables place_tables(const struct ctl_config *config)
{
	struct tables at = {.slots = sizeof(struct ctl)};
	at.blocks = at.slots + (uint64_t)config->n_table * sizeof(struct slot_line);
	at.pages = at.blocks + round_line((uint64_t)config->n_blocks * sizeof(struct block_word));
	at.rows = at.pages + round_line((uint64_t)config->n_pages * sizeof(struct page_word));
	at.seals = at.rows +
		   round_line((uint64_t)config->n_slots * ROWS_PER_SLOT * sizeof(struct row_word));
	at.rings = at.seals + (uint64_t)config->n_pages * sizeof(struct page_seal);
	at.bells = at.rings + INC_COUNT * sizeof(struct trace_ring);
	at.end = at.bells + (uint64_t)INC_COUNT * bell_lines(config) * sizeof(struct bell_line);
	return at;
}

static bool sizes_are_sane(const struct ctl_config *config)
{
	return config->n_slots && config->n_slots <= 4096 && config->n_table &&
	       config->n_table <= 1u << BLOCK_SLOT_BITS &&
	       config->n_blocks <= 1u << SLOT_BODY_BITS && config->n_pages <= FAR_TOO_MANY &&
	       config->ctx && config->ctx <= FAR_TOO_MANY && config->n_vocab <= FAR_TOO_MANY &&
	       config->n_embd <= FAR_TOO_MANY;
}

static bool is_text(const char *field, size_t size)
{
	return memchr(field, 0, size) != NULL;
}

/* Points into the control segment, and the private copies of its sizes, checked. */
static enum svc_code bind_control(struct shm_run *run, struct svc_err *err)
{
	struct ctl *ctl = run->control.base;
	struct ctl_config config;
	struct tables at = {0};
	bool sane = run->control.bytes >= sizeof *ctl;
	if (sane) {
		config = ctl->config;
		at = place_tables(&config);
		sane = sizes_are_sane(&config) && at.end <= run->control.bytes &&
		       is_text(config.family, sizeof config.family) &&
		       is_text(config.model_name, sizeof config.model_name) &&
		       is_text(config.model_path, sizeof config.model_path) &&
		       is_text(config.fingerprint, sizeof config.fingerprint);
	}
	if (!sane)
		return svc_fail(err, SVC_CORRUPT, __func__,
				"%s/control is damaged: sizes are out of range; deploy/down first",
				run->dir);
	run->ctl = ctl;
	run->n_slots = config.n_slots;
	run->n_rows = ROWS_PER_SLOT * config.n_slots;
	run->n_table = config.n_table;
	run->n_blocks = config.n_blocks;
	run->n_pages = config.n_pages;
	run->n_vocab = config.n_vocab;
	run->n_embd = config.n_embd;
	run->ctx = config.ctx;
	run->page_bytes = config.page_bytes;
	run->slots = (void *)((char *)ctl + at.slots);
	run->blocks = (void *)((char *)ctl + at.blocks);
	run->page_words = (void *)((char *)ctl + at.pages);
	run->row_words = (void *)((char *)ctl + at.rows);
	run->page_seals = (void *)((char *)ctl + at.seals);
	run->trace_rings = (void *)((char *)ctl + at.rings);
	run->bells = (void *)((char *)ctl + at.bells);
	run->bell_lines = bell_lines(&config);
	return SVC_OK;
}

static enum svc_code copy_text(char *field, size_t size, const char *text, const char *option,
			       struct svc_err *err)
{
	if (strlen(text) >= size)
		return svc_fail_param(err, SVC_BAD_CONFIG, option,
				      "--%s is %zu bytes long; at most %zu fit", option,
				      strlen(text), size - 1);
	memcpy(field, text, strlen(text) + 1);
	return SVC_OK;
}

static enum svc_code make_config(const struct run_plan *plan, struct ctl_config *ret_config,
				 struct svc_err *err)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	struct ctl_config config = {.n_slots = plan->n_slots,
				    .n_table = plan->n_slots + plan->queue + plan->kept,
				    .n_blocks = plan->n_blocks,
				    .n_pages = plan->n_pages,
				    .ctx = plan->ctx,
				    .n_vocab = plan->n_vocab,
				    .n_embd = plan->n_embd,
				    .page_bytes = plan->page_bytes,
				    .model_hash = {plan->model_hash[0], plan->model_hash[1]},
				    .family_hash = plan->family_hash,
				    .created_us = (uint64_t)now.tv_sec * 1000000u +
						  (uint64_t)now.tv_nsec / 1000u,
				    .stall_ms = plan->stall_ms};
	enum svc_code code =
		copy_text(config.family, sizeof config.family, plan->family, "family", err);
	if (code == SVC_OK)
		code = copy_text(config.model_name, sizeof config.model_name, plan->model_name,
				 "model-name", err);
	if (code == SVC_OK)
		code = copy_text(config.model_path, sizeof config.model_path, plan->model_path,
				 "model", err);
	if (code != SVC_OK)
		return code;
	snprintf(config.fingerprint, sizeof config.fingerprint, "%s", plan->fingerprint);
	if (getrandom(config.secret, sizeof config.secret, 0) != (ssize_t)sizeof config.secret)
		return svc_fail_errno(err, __func__, "getrandom");
	if (!sizes_are_sane(&config))
		return svc_fail(err, SVC_BAD_CONFIG, __func__,
				"--slots, --queue, --kept, --ctx, --kv-tokens or --body-pool-mb is "
				"out of range: at most 4096 slots, %u sequences in all, %u "
				"positions, %u KV pages",
				1u << BLOCK_SLOT_BITS, FAR_TOO_MANY, FAR_TOO_MANY);
	*ret_config = config;
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

struct part {
	struct seg_place place;
	size_t bytes;
};

static enum svc_code create_part(const struct part *part, struct svc_err *err)
{
	struct segment seg;
	bool won = false;
	enum svc_code code = seg_create(&part->place, part->bytes, &seg, err);
	if (code != SVC_OK)
		return code;
	code = seg_publish(&part->place, &seg, &won, err);
	seg_unmap(&seg);
	return code;
}

static void remove_parts(const struct part *parts, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char path[512];
		snprintf(path, sizeof path, "%s/%s", parts[i].place.dir, parts[i].place.name);
		unlink(path);
	}
}

static enum svc_code create_control(struct shm_run *run, const struct ctl_config *config,
				    uint64_t run_id, struct svc_err *err)
{
	const struct seg_place place = {run->dir, "control", SEG_CONTROL, run_id};
	bool won = false;
	enum svc_code code =
		seg_create(&place, (size_t)place_tables(config).end, &run->control, err);
	if (code != SVC_OK)
		return code;
	struct ctl *ctl = run->control.base;
	ctl->config = *config;
	atomic_store(&ctl->counters.next_incarnation, 1);
	atomic_store(&ctl->counters.next_generation, 1);
	code = seg_publish(&place, &run->control, &won, err);
	if (code == SVC_OK && !won)
		code = svc_fail(err, SVC_CONFLICT, __func__,
				"another keeper is creating %s/control", run->dir);
	return code == SVC_OK ? bind_control(run, err) : code;
}

static enum svc_code build(struct shm_run *run, const struct run_plan *plan, struct svc_err *err)
{
	struct ctl_config config = {0};
	uint64_t run_id = 0;
	enum svc_code code = make_config(plan, &config, err);
	if (code != SVC_OK)
		return code;
	if (getrandom(&run_id, sizeof run_id, 0) != (ssize_t)sizeof run_id)
		return svc_fail_errno(err, __func__, "getrandom");
	const size_t logits = 2 * (size_t)plan->n_slots * ROWS_PER_SLOT;
	const struct part parts[] = {
		{{run->dir, "bodies", SEG_BODIES, run_id},
		 SHM_LINE + (size_t)plan->n_blocks * BODY_BLOCK_BYTES},
		{{run->bulk_dir, "pages", SEG_PAGES, run_id},
		 4096 + (size_t)plan->n_pages * plan->page_bytes},
		{{run->bulk_dir, "logits", SEG_LOGITS, run_id},
		 4096 + logits * logits_stride(plan->n_vocab)},
	};
	const size_t n = sizeof parts / sizeof *parts;
	code = make_dirs(run, err);
	/* What is there without a control segment is left from a keeper that died while it built.
	 */
	remove_parts(parts, n);
	for (size_t i = 0; i < n && code == SVC_OK; i++)
		code = create_part(&parts[i], err);
	if (code == SVC_OK)
		code = create_control(run, &config, run_id, err);
	if (code != SVC_OK && code != SVC_CONFLICT)
		remove_parts(parts, n);
	return code;
}

enum svc_code run_create(const char *dir, const char *bulk_dir, const struct run_plan *plan,
			 struct shm_run *ret_run, bool *ret_created, struct svc_err *err)
{
	enum svc_code code = run_attach(dir, bulk_dir, ROLE_KEEPER, ret_run, err);
	if (code == SVC_OK) {
		*ret_created = false;
		code = compare_plan(ret_run, plan, err);
		if (code != SVC_OK)
			run_detach(ret_run);
		return code;
	}
	if (code != SVC_NOT_FOUND)
		return code;
	struct shm_run run = {.lock_fd = -1};
	snprintf(run.dir, sizeof run.dir, "%s", dir);
	snprintf(run.bulk_dir, sizeof run.bulk_dir, "%s", bulk_dir);
	code = build(&run, plan, err);
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
	const struct seg_place bodies = {run->dir, "bodies", SEG_BODIES, run_id},
			       pages = {run->bulk_dir, "pages", SEG_PAGES, run_id},
			       logits = {run->bulk_dir, "logits", SEG_LOGITS, run_id};
	enum svc_code code = SVC_OK;
	if (role != ROLE_KEEPER)
		code = seg_attach(&bodies, true, &run->bodies, err);
	if (code == SVC_OK && role == ROLE_WORKER)
		code = seg_attach(&pages, true, &run->pages, err);
	if (code == SVC_OK && (role == ROLE_WORKER || role == ROLE_SAMPLER))
		code = seg_attach(&logits, role == ROLE_WORKER, &run->logits, err);
	return code;
}

enum svc_code run_attach(const char *dir, const char *bulk_dir, enum shm_role role,
			 struct shm_run *ret_run, struct svc_err *err)
{
	struct shm_run run = {.lock_fd = -1};
	snprintf(run.dir, sizeof run.dir, "%s", dir);
	snprintf(run.bulk_dir, sizeof run.bulk_dir, "%s", bulk_dir);
	const struct seg_place place = {dir, "control", SEG_CONTROL, 0};
	enum svc_code code = seg_attach(&place, true, &run.control, err);
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
	const struct seg_place place = {run->dir, "vocab", SEG_VOCAB, run->ctl->header.run_id};
	return seg_attach(&place, false, &run->vocab, err);
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
