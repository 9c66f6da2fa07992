#include "npu-worker/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/log.h"
#include "model/open.h"
#include "npu-worker/kernels/pool.h"

#define LOCK_POLL_US 20000u

/* Whose weights: the model that is served, or one that drafts for it. */
struct source {
	struct svc *svc;
	const char *path;
	bool drafts;
	/* Of the segment. The region doesn't depend on the family, but on how far its position
	 * tables reach. */
	char name[64];
	struct model_hash hash; /* of the model that is served */
};

static struct seg_place place_of(const struct source *source)
{
	const struct shm_run *run = &source->svc->run;
	return (struct seg_place){run->bulk_dir, source->name, SEG_WEIGHTS,
				  run->ctl->header.run_id};
}

static struct source source_of(struct svc *svc)
{
	const struct ctl_config *config = &svc->run.ctl->config;
	struct source source = {
		.svc = svc,
		.path = config->model_path,
		.hash = {.low = config->model_hash[1], .high = config->model_hash[0]},
	};
	snprintf(source.name, sizeof source.name, "weights-%016" PRIx64 "-%u",
		 config->model_hash[0], svc->run.ctx);
	return source;
}

/* A file is known by what it was when it was packed; a folder, by that alone. */
static struct source source_of_draft(struct svc *svc, const char *path, const struct stat *file)
{
	struct source source = {.svc = svc, .path = path, .drafts = true};
	const uint64_t what[] = {(uint64_t)file->st_dev, (uint64_t)file->st_ino,
				 (uint64_t)file->st_size, (uint64_t)file->st_mtim.tv_sec,
				 (uint64_t)file->st_mtim.tv_nsec};
	snprintf(source.name, sizeof source.name, "draft-%016" PRIx64 "-%u",
		 (uint64_t)XXH3_64bits(what, sizeof what), svc->run.ctx);
	return source;
}

static enum svc_code attach(const struct source *source, bool writable, struct segment *ret_seg,
			    struct svc_err *err)
{
	const struct seg_place place = place_of(source);
	return seg_attach(&place, writable, ret_seg, err);
}

struct progress {
	struct svc *svc;
	uint64_t told_us;
};

static void on_progress(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
	struct progress *progress = context;
	uint64_t now = svc_now_us();
	svc_beat(progress->svc);
	if (now - progress->told_us < 1000000)
		return;
	progress->told_us = now;
	log_info("packing weights: %" PRIu64 " of %" PRIu64 " MiB", done_bytes >> 20,
		 total_bytes >> 20);
}

static enum svc_code pack(const struct source *source, const struct gguf *gguf,
			  const struct plan *plan, uint32_t threads, struct svc_err *err)
{
	struct segment seg;
	struct pool *pool = NULL;
	bool won = false;
	struct progress progress = {source->svc, svc_now_us()};
	const struct seg_place place = place_of(source);
	enum svc_code code = seg_create(&place, WEIGHTS_OFFSET + plan->total_bytes, &seg, err);
	if (code != SVC_OK)
		return code;
	code = pool_open(threads, &pool, err);
	if (code == SVC_OK) {
		struct region_job job = {gguf,
					 plan,
					 region_model_hash(gguf),
					 (char *)seg.base + WEIGHTS_OFFSET,
					 on_progress,
					 &progress};
		code = region_pack(&job, pool, err);
	}
	pool_close(pool);
	if (code == SVC_OK)
		code = seg_publish(&place, &seg, &won, err);
	seg_unmap(&seg);
	return code;
}

static bool is_same_text(const struct gguf_array *a, const struct gguf_array *b)
{
	if (a->type != GGUF_STRING || b->type != GGUF_STRING || a->count != b->count)
		return false;
	for (uint64_t i = 0; i < a->count; i++)
		if (a->strings[i].len != b->strings[i].len ||
		    memcmp(a->strings[i].ptr, b->strings[i].ptr, a->strings[i].len) != 0)
			return false;
	return true;
}

/* What drafts is asked in token ids. */
static enum svc_code check_vocabulary(const struct source *source, const struct gguf *gguf,
				      struct svc_err *err)
{
	const char *served = source->svc->run.ctl->config.model_path;
	struct gguf *target = NULL;
	struct gguf_array ours, theirs;
	enum svc_code code = model_open_head(served, &target, NULL, err);
	if (code != SVC_OK)
		return code;
	bool has = gguf_array(target, "tokenizer.ggml.tokens", &ours);
	if (gguf_array(gguf, "tokenizer.ggml.tokens", &theirs) != has ||
	    (has && !is_same_text(&ours, &theirs)))
		code = svc_fail_param(err, SVC_BAD_CONFIG, "draft-model",
				      "--draft-model %s has another vocabulary than %s: its drafts "
				      "would be other tokens",
				      source->path, served);
	gguf_close(target);
	return code;
}

static enum svc_code build(const struct source *source, uint32_t threads, struct svc_err *err)
{
	struct gguf *gguf = NULL;
	struct plan *plan = NULL;
	uint64_t start = svc_now_us();
	struct progress progress = {source->svc, svc_now_us()};
	const struct draft_progress making = {on_progress, &progress};
	enum svc_code code = model_open(source->path, &making, &gguf, err);
	if (code == SVC_OK && source->drafts)
		code = check_vocabulary(source, gguf, err);
	if (code == SVC_OK)
		code = plan_open(gguf, source->svc->run.ctx, &plan, err);
	if (code == SVC_OK)
		code = pack(source, gguf, plan, threads, err);
	if (code == SVC_OK)
		log_info("packed the weights of %s: %" PRIu64 " MiB in %" PRIu64 " ms",
			 source->path, plan->total_bytes >> 20, (svc_now_us() - start) / 1000);
	plan_close(plan);
	gguf_close(gguf);
	return code;
}

/* The lock of the one that packs: the others wait for it instead of packing too. It goes with its
 * holder. */
static enum svc_code take_pack_lock(struct svc *svc, int *ret_fd, struct svc_err *err)
{
	char path[300];
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	snprintf(path, sizeof path, "%s/weights.lock", svc->run.bulk_dir);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return svc_fail_errno(err, __func__, "cannot open %s", path);
	while (fcntl(fd, F_OFD_SETLK, &lock) != 0) {
		if (errno != EAGAIN && errno != EACCES && errno != EINTR) {
			enum svc_code code = svc_fail_errno(err, __func__, "cannot lock %s", path);
			close(fd);
			return code;
		}
		svc_beat(svc);
		usleep(LOCK_POLL_US);
	}
	*ret_fd = fd;
	return SVC_OK;
}

static enum svc_code check(const struct source *source, const struct segment *seg,
			   struct svc_err *err)
{
	struct plan *plan = NULL;
	enum svc_code code =
		region_attach((const char *)seg->base + WEIGHTS_OFFSET, seg->bytes - WEIGHTS_OFFSET,
			      source->drafts ? NULL : &source->hash, true, &plan, err);
	plan_close(plan);
	return code;
}

/* A segment that fails its check is removed: the next one packs anew. */
static void discard(const struct source *source, struct segment *seg, const struct svc_err *why)
{
	char path[400];
	const struct seg_place place = place_of(source);
	snprintf(path, sizeof path, "%s/%s", place.dir, place.name);
	log_error(why->code, "%s is damaged and packed anew: %s", path, why->msg);
	seg_unmap(seg);
	unlink(path);
}

enum svc_code weights_lock(const struct segment *seg, struct svc_err *err)
{
	struct rlimit limit = {0};
	if (mlock(seg->base, seg->bytes) == 0)
		return SVC_OK;
	getrlimit(RLIMIT_MEMLOCK, &limit);
	return svc_fail_param(
		err, SVC_BAD_CONFIG, "lock-memory",
		"--lock-memory: the weights have %zu MiB, RLIMIT_MEMLOCK is %" PRIu64
		" KiB: raise it (ulimit -l, LimitMEMLOCK=, ulimits: memlock) or leave "
		"the option out",
		seg->bytes >> 20, (uint64_t)limit.rlim_cur >> 10);
}

static enum svc_code map(const struct source *source, uint32_t threads, bool writable,
			 struct segment *ret_seg, struct svc_err *err)
{
	struct segment seg = {0};
	int fd = -1;
	if (attach(source, writable, &seg, err) == SVC_OK && check(source, &seg, err) == SVC_OK) {
		*ret_seg = seg;
		return SVC_OK;
	}
	enum svc_code code = take_pack_lock(source->svc, &fd, err);
	if (code != SVC_OK)
		return code;
	/* Another may have packed while we waited. */
	if (!seg.base)
		code = attach(source, writable, &seg, err);
	if (code == SVC_OK && check(source, &seg, err) != SVC_OK)
		discard(source, &seg, err);
	if (!seg.base) {
		code = build(source, threads, err);
		if (code == SVC_OK)
			code = attach(source, writable, &seg, err);
	}
	close(fd);
	if (code == SVC_OK)
		*ret_seg = seg;
	return code;
}

enum svc_code weights_map(struct svc *svc, uint32_t threads, bool writable, struct segment *ret_seg,
			  struct svc_err *err)
{
	const struct source source = source_of(svc);
	return map(&source, threads, writable, ret_seg, err);
}

enum svc_code weights_map_draft(struct svc *svc, const char *path, uint32_t threads,
				struct segment *ret_seg, struct svc_err *err)
{
	struct stat file;
	if (stat(path, &file) != 0)
		return svc_fail_errno(err, __func__, "cannot open the draft model %s", path);
	const struct source source = source_of_draft(svc, path, &file);
	return map(&source, threads, false, ret_seg, err);
}
