#include "keeper/keeper.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "keeper/keeper_plan.h"
#include "keeper/threads.h"

#define MAX_LINKS 128
/* After a connection broke, the lock is free as soon as the kernel has torn the mappings down. */
#define PROBE_MS 2
#define PROBES	 1000

/* A frozen process that was replaced, or that runs, is ended after this many stall limits. */
#define PATIENCE 10u
/* The least silence after which any is. */
#define STOPPED_US(svc) ((svc)->stall_us / 10 * 9)

struct link {
	struct svc *svc;
	struct event *event;
	int fd; /* -1: free */
	uint64_t entry, number;
	pid_t pid;  /* by the kernel's word; 0: in another pid namespace */
	bool ended; /* SIGKILL was sent */
	int probes; /* > 0: the connection broke, its lock is watched */
};

struct keeper {
	int lock_fd, listen_fd;
	struct event *accept_event;
	struct link links[MAX_LINKS];
	uint64_t announced[INC_COUNT]; /* number of the last death told, per entry */
};

static enum svc_code take_keeper_lock(struct keeper *keeper, const char *dir, struct svc_err *err)
{
	char path[300];
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	if (mkdir(dir, 0700) != 0 && errno != EEXIST)
		return svc_fail_errno(err, __func__, "cannot create the run directory %s", dir);
	snprintf(path, sizeof path, "%s/keeper.lock", dir);
	keeper->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (keeper->lock_fd < 0)
		return svc_fail_errno(err, __func__, "cannot open %s", path);
	if (fcntl(keeper->lock_fd, F_OFD_SETLK, &lock) != 0)
		return svc_fail(err, SVC_CONFLICT, __func__,
				"another keeper is running in %s (deploy/down stops it)", dir);
	return SVC_OK;
}

static enum svc_code create(struct svc *svc, struct svc_err *err)
{
	struct run_plan plan;
	bool created = false;
	char dir[256], bulk[256];
	struct keeper *keeper = calloc(1, sizeof *keeper);
	if (!keeper)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	svc->role_state = keeper;
	keeper->listen_fd = -1;
	for (int i = 0; i < MAX_LINKS; i++)
		keeper->links[i] = (struct link){.svc = svc, .fd = -1};
	snprintf(dir, sizeof dir, "%s", svc->run.dir);
	snprintf(bulk, sizeof bulk, "%s", svc->run.bulk_dir);
	enum svc_code code = take_keeper_lock(keeper, dir, err);
	if (code == SVC_OK)
		code = keeper_plan_make(svc->options, &plan, err);
	if (code == SVC_OK)
		code = run_create(dir, bulk, &plan, &svc->run, &created, err);
	if (code != SVC_OK)
		return code;
	log_info("%s run in %s: %s, family %s, ctx %u, %u slots, %u KV pages of %" PRIu64 " KiB",
		 created ? "new" : "attached to the", dir, plan.model_name, plan.family, plan.ctx,
		 plan.n_slots, plan.n_pages, plan.page_bytes >> 10);
	inc_sweep_files(&svc->run);
	return SVC_OK;
}

static void tell_death(struct svc *svc, uint32_t entry, uint64_t number)
{
	struct keeper *keeper = svc->role_state;
	if (keeper->announced[entry] == number)
		return;
	keeper->announced[entry] = number;
	atomic_fetch_add(&svc->run.ctl->counters.deaths, 1);
	log_warn("%s %u (incarnation %" PRIu64 ", pid %d) died",
		 inc_role_name(inc_role(&svc->run, entry)), svc->run.ctl->incs[entry].instance,
		 number, svc->run.ctl->incs[entry].pid);
	struct msg died = {.kind = MSG_DIED, .subject = number};
	bus_broadcast(svc->bus, &died);
}

static void drop_link(struct link *link)
{
	if (link->event)
		event_free(link->event);
	if (link->fd >= 0)
		close(link->fd);
	*link = (struct link){.svc = link->svc, .fd = -1};
}

/* Watches the lock of a process whose connection broke, until it is free, gone or clearly still
 * held. */
static void on_probe(evutil_socket_t fd, short what, void *arg)
{
	struct link *link = arg;
	struct svc *svc = link->svc;
	(void)fd;
	(void)what;
	bool same = link->entry < INC_COUNT &&
		    atomic_load(&svc->run.ctl->incs[link->entry].number) == link->number;
	if (same && inc_is_dead(&svc->run, (uint32_t)link->entry)) {
		tell_death(svc, (uint32_t)link->entry, link->number);
	} else if (same && ++link->probes < PROBES) {
		struct timeval soon = {0, PROBE_MS * 1000};
		evtimer_add(link->event, &soon);
		return;
	}
	drop_link(link);
}

static void on_link(evutil_socket_t fd, short what, void *arg)
{
	struct link *link = arg;
	uint64_t hello[2];
	(void)what;
	ssize_t n = recv(fd, hello, sizeof hello, MSG_DONTWAIT);
	if (n == (ssize_t)sizeof hello && hello[0] < INC_COUNT) {
		struct ucred peer = {0};
		socklen_t size = sizeof peer;
		link->entry = hello[0];
		link->number = hello[1];
		if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0)
			link->pid = peer.pid;
		return;
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	event_free(link->event);
	close(link->fd);
	link->event = evtimer_new(link->svc->base, on_probe, link);
	if (!link->event || link->number == 0) {
		link->fd = -1;
		drop_link(link);
		return;
	}
	link->probes = 1;
	link->fd = -2; /* taken, without a descriptor */
	on_probe(-1, 0, link);
}

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
	struct svc *svc = arg;
	struct keeper *keeper = svc->role_state;
	(void)what;
	int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (peer < 0)
		return;
	for (int i = 0; i < MAX_LINKS; i++) {
		struct link *link = &keeper->links[i];
		if (link->fd != -1)
			continue;
		link->fd = peer;
		link->event = event_new(svc->base, peer, EV_READ | EV_PERSIST, on_link, link);
		if (link->event)
			event_add(link->event, NULL);
		else
			drop_link(link);
		return;
	}
	close(peer);
}

static enum svc_code start(struct svc *svc, struct svc_err *err)
{
	struct keeper *keeper = svc->role_state;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int len =
		snprintf(address.sun_path, sizeof address.sun_path, "%s/keeper.sock", svc->run.dir);
	if (len < 0 || (size_t)len >= sizeof address.sun_path)
		return svc_fail_param(err, SVC_BAD_CONFIG, "run-dir",
				      "--run-dir %s is too long for a socket path (max %zu)",
				      svc->run.dir, sizeof address.sun_path - 13);
	/* keeper.lock is ours: a socket file that is still there is our predecessor's. */
	unlink(address.sun_path);
	keeper->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (keeper->listen_fd < 0 ||
	    bind(keeper->listen_fd, (struct sockaddr *)&address, sizeof address) != 0 ||
	    listen(keeper->listen_fd, 64) != 0)
		return svc_fail_errno(err, __func__, "cannot listen on %s", address.sun_path);
	keeper->accept_event =
		event_new(svc->base, keeper->listen_fd, EV_READ | EV_PERSIST, on_accept, svc);
	if (!keeper->accept_event || event_add(keeper->accept_event, NULL) != 0)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "cannot watch the keeper's socket");
	return SVC_OK;
}

static bool has_deputy(const struct shm_run *run, uint32_t entry)
{
	enum shm_role role = inc_role(run, entry);
	for (uint32_t i = 1; i < INC_COUNT; i++)
		if (i != entry && inc_role(run, i) == role && inc_is_ready(run, i) &&
		    !inc_is_dead(run, i))
			return true;
	return false;
}

/* Silence after which a frozen process is ended, in microseconds. One that was replaced gets long
 * to wake up and leave by itself, before what it may still write is taken from it for good, and so
 * does one that runs: it may only wait for a core. With one that is stopped by a signal nothing
 * else can be the matter: its successor has to start within the rest of the limit, or nearly. */
static uint64_t patience_us(const struct svc *svc, uint32_t entry, pid_t pid)
{
	if (has_deputy(&svc->run, entry) || threads_any_is(pid, 'R'))
		return PATIENCE * svc->stall_us;
	return threads_any_is(pid, 'T') ? STOPPED_US(svc) : svc->stall_us;
}

/* So that its supervisor starts it again. The pid is the kernel's and its connection is open: it
 * can't be another process by now. */
static void end_frozen(struct svc *svc, struct link *link)
{
	if (link->fd < 0 || link->pid <= 1 || link->ended || link->number == 0 ||
	    link->entry == svc->run.me ||
	    atomic_load(&svc->run.ctl->incs[link->entry].number) != link->number)
		return;
	uint32_t entry = (uint32_t)link->entry;
	uint64_t silence = inc_watch_silence_us(&svc->watch, entry, svc_now_us());
	if (silence <= STOPPED_US(svc) || silence <= patience_us(svc, entry, link->pid))
		return;
	log_warn("%s %u (pid %d) has been frozen for %" PRIu64 " ms: it is ended",
		 inc_role_name(inc_role(&svc->run, entry)), svc->run.ctl->incs[entry].instance,
		 (int)link->pid, silence / 1000);
	link->ended = true;
	kill(link->pid, SIGKILL);
}

/* What no connection told: deaths while there was no keeper, and entries that nobody needs any
 * more. */
static void tick(struct svc *svc)
{
	struct keeper *keeper = svc->role_state;
	bool ends_frozen = opt_bool(svc->options, "end-frozen");
	uint64_t linked[INC_COUNT] = {0}; /* numbers of those whose connection is open: they live */
	for (int i = 0; i < MAX_LINKS; i++) {
		struct link *link = &keeper->links[i];
		if (ends_frozen)
			end_frozen(svc, link);
		if (link->fd >= 0 && link->entry < INC_COUNT)
			linked[link->entry] = link->number;
	}
	for (uint32_t i = 1; i < INC_COUNT; i++) {
		uint64_t number = atomic_load(&svc->run.ctl->incs[i].number);
		if (number == 0 || number == linked[i] || i == svc->run.me ||
		    !inc_is_dead(&svc->run, i))
			continue;
		tell_death(svc, i, number);
		inc_bury(&svc->run, i);
	}
}

static void stop(struct svc *svc)
{
	struct keeper *keeper = svc->role_state;
	char path[300];
	for (int i = 0; i < MAX_LINKS; i++)
		if (keeper->links[i].fd != -1)
			drop_link(&keeper->links[i]);
	if (keeper->accept_event)
		event_free(keeper->accept_event);
	if (keeper->listen_fd >= 0)
		close(keeper->listen_fd);
	snprintf(path, sizeof path, "%s/keeper.sock", svc->run.dir);
	unlink(path);
	free(keeper);
	svc->role_state = NULL;
}

const struct svc_spec keeper_spec = {
	.role = ROLE_KEEPER,
	.summary = "creates the segments of a run, sees who lives",
	.options = keeper_options,
	.create = create,
	.start = start,
	.tick = tick,
	.stop = stop,
};
