#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "model/open.h"
#include "npu-worker/kernels/pool.h"
#include "npu-worker/worker_private.h"

#define LOCK_POLL_US 20000u

/* The region doesn't depend on the family, but on how far its position tables reach. */
static struct seg_place place_of(const struct shm_run *run, char *name, size_t size)
{
	snprintf(name, size, "weights-%016" PRIx64 "-%u", run->ctl->config.model_hash[0], run->ctx);
	return (struct seg_place){run->bulk_dir, name, SEG_WEIGHTS, run->ctl->header.run_id};
}

static struct model_hash model_hash(const struct shm_run *run)
{
	return (struct model_hash){.low = run->ctl->config.model_hash[1],
				   .high = run->ctl->config.model_hash[0]};
}

static enum svc_code attach(struct svc *svc, bool writable, struct segment *ret_seg,
			    struct svc_err *err)
{
	char name[64];
	const struct seg_place place = place_of(&svc->run, name, sizeof name);
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

static enum svc_code pack(struct svc *svc, const struct gguf *gguf, const struct plan *plan,
			  uint32_t threads, struct svc_err *err)
{
	char name[64];
	struct segment seg;
	struct pool *pool = NULL;
	bool won = false;
	struct progress progress = {svc, svc_now_us()};
	const struct seg_place place = place_of(&svc->run, name, sizeof name);
	enum svc_code code = seg_create(&place, WEIGHTS_OFFSET + plan->total_bytes, &seg, err);
	if (code != SVC_OK)
		return code;
	madvise(seg.base, seg.bytes, MADV_HUGEPAGE);
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

static enum svc_code build(struct svc *svc, uint32_t threads, struct svc_err *err)
{
	const char *path = svc->run.ctl->config.model_path;
	struct gguf *gguf = NULL;
	struct plan *plan = NULL;
	uint64_t start = svc_now_us();
	struct progress progress = {svc, svc_now_us()};
	const struct draft_progress making = {on_progress, &progress};
	enum svc_code code = model_open(path, &making, &gguf, err);
	if (code == SVC_OK)
		code = plan_open(gguf, svc->run.ctx, &plan, err);
	if (code == SVC_OK)
		code = pack(svc, gguf, plan, threads, err);
	if (code == SVC_OK)
		log_info("packed the weights of %s: %" PRIu64 " MiB in %" PRIu64 " ms", path,
			 plan->total_bytes >> 20, (svc_now_us() - start) / 1000);
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

static enum svc_code check(struct svc *svc, const struct segment *seg, struct svc_err *err)
{
	struct plan *plan = NULL;
	struct model_hash hash = model_hash(&svc->run);
	enum svc_code code = region_attach((const char *)seg->base + WEIGHTS_OFFSET,
					   seg->bytes - WEIGHTS_OFFSET, &hash, true, &plan, err);
	plan_close(plan);
	return code;
}

/* A segment that fails its check is removed: the next one packs anew. */
static void discard(struct svc *svc, struct segment *seg, const struct svc_err *why)
{
	char name[64], path[400];
	const struct seg_place place = place_of(&svc->run, name, sizeof name);
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

enum svc_code weights_map(struct svc *svc, uint32_t threads, bool writable, struct segment *ret_seg,
			  struct svc_err *err)
{
	struct segment seg = {0};
	int fd = -1;
	if (attach(svc, writable, &seg, err) == SVC_OK && check(svc, &seg, err) == SVC_OK) {
		*ret_seg = seg;
		return SVC_OK;
	}
	enum svc_code code = take_pack_lock(svc, &fd, err);
	if (code != SVC_OK)
		return code;
	/* Another may have packed while we waited. */
	if (!seg.base)
		code = attach(svc, writable, &seg, err);
	if (code == SVC_OK && check(svc, &seg, err) != SVC_OK)
		discard(svc, &seg, err);
	if (!seg.base) {
		code = build(svc, threads, err);
		if (code == SVC_OK)
			code = attach(svc, writable, &seg, err);
	}
	close(fd);
	if (code == SVC_OK)
		*ret_seg = seg;
	return code;
}
