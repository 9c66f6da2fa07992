#include "services/service.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/turns.h"
#include "services/deadman.h"
#include "services/reload.h"
#include "services/why.h"

#define TICK_ACTIVE_MS 20
#define TICK_IDLE_MS   100
#define WAIT_FOR_RUN_S 60
#define WATCHDOG_US    1000000u

static const struct opt common_options[] = {
	{"run-dir", OPT_STRING, "", 0, 0, NULL,
	 "directory of the run; default /dev/shm/lockstep-UID"},
	{"bulk-dir", OPT_STRING, "", 0, 0, NULL,
	 "directory of KV pages, logits and weights; default RUN-DIR/bulk"},
	{"instance", OPT_INT, "-1", -1, 4095, NULL,
	 "number of this instance within its role; -1: the lowest that none alive has"},
	{"config", OPT_STRING, "", 0, 0, NULL, "file with \"name = value\" lines"},
	{"log-level", OPT_CHOICE, "info", 0, 0, "error|warn|info|debug",
	 "least severe lines to log"},
	{"stall-ms", OPT_INT, "1000", 100, 600000, NULL,
	 "no beat for this long: the process counts as frozen (ms)"},
	{"drain-s", OPT_INT, "30", 0, 3600, NULL, "after SIGTERM, finish within this many seconds"},
	{0},
};

struct svc_loop {
	struct event *tick, *bus_event, *bell_event, *on_term, *on_int, *on_hup, *keeper_event;
	int keeper_fd;
	uint64_t drain_deadline_us;
	bool watchdog; /* systemd wants to hear from us */
	uint64_t watchdog_us;
};

uint64_t svc_now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

void svc_leave(struct svc *svc, enum svc_code code)
{
	if (!svc->leaving)
		svc->leave_code = code;
	svc->leaving = true;
	if (svc->base)
		event_base_loopbreak(svc->base);
}

bool svc_beat(struct svc *svc)
{
	if (inc_beat(&svc->run))
		return true;
	if (!svc->leaving)
		log_warn("this process was frozen and has been replaced: it leaves");
	svc_leave(svc, SVC_STALE);
	return false;
}

void svc_hint(struct svc *svc, uint32_t entry, uint32_t slot)
{
	bell_ring(svc->bell, entry, slot);
}

void svc_hint_role(struct svc *svc, enum shm_role role, uint32_t slot)
{
	/* Spread over instances by slot, so that the same one is asked again. */
	uint32_t entry = inc_find(&svc->run, role, (slot * 7u) % INC_COUNT);
	if (entry == 0 || entry == svc->run.me)
		return;
	struct msg *hint = &svc->hints[entry];
	if (hint->n_slots == MSG_MAX_SLOTS)
		return;
	if (hint->n_slots && hint->slots[hint->n_slots - 1] == slot)
		return;
	hint->slots[hint->n_slots++] = slot;
}

void svc_hint_flush(struct svc *svc)
{
	bell_flush(svc->bell);
	for (uint32_t i = 1; i < INC_COUNT; i++) {
		struct msg *hint = &svc->hints[i];
		if (hint->n_slots == 0)
			continue;
		hint->kind = MSG_LOOK;
		bus_send(svc->bus, i, hint);
		hint->n_slots = 0;
	}
}

static void sweep(struct svc *svc)
{
	svc->active = 0;
	for (uint32_t slot = 0; slot < svc->run.n_table && !svc->leaving; slot++) {
		enum slot_stage stage = slot_load(&svc->run, slot).stage;
		svc->active += stage != STAGE_FREE && stage != STAGE_DONE;
		if (slot_stage_role(stage) == svc->spec->role && svc->spec->look)
			svc->spec->look(svc, slot);
	}
	svc_hint_flush(svc);
}

static void on_keeper_gone(evutil_socket_t fd, short what, void *arg)
{
	struct svc *svc = arg;
	char byte;
	(void)what;
	if (recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	event_free(svc->loop->keeper_event);
	svc->loop->keeper_event = NULL;
	close(svc->loop->keeper_fd);
	svc->loop->keeper_fd = -1;
}

/* The keeper sees a closed connection at once; if there is no keeper, nothing is lost but that. */
static void connect_keeper(struct svc *svc)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (svc->loop->keeper_fd >= 0 || svc->spec->role == ROLE_KEEPER)
		return;
	int len =
		snprintf(address.sun_path, sizeof address.sun_path, "%s/keeper.sock", svc->run.dir);
	if (len < 0 || (size_t)len >= sizeof address.sun_path)
		return;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	uint64_t hello[2] = {svc->run.me, svc->run.number};
	if (fd < 0)
		return;
	if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
	    send(fd, hello, sizeof hello, MSG_NOSIGNAL) != (ssize_t)sizeof hello) {
		close(fd);
		return;
	}
	svc->loop->keeper_fd = fd;
	svc->loop->keeper_event =
		event_new(svc->base, fd, EV_READ | EV_PERSIST, on_keeper_gone, svc);
	if (svc->loop->keeper_event)
		event_add(svc->loop->keeper_event, NULL);
}

static void drain(struct svc *svc)
{
	bool empty = !svc->spec->drain || svc->spec->drain(svc);
	bool late = svc_now_us() > svc->loop->drain_deadline_us;
	if (!empty && late)
		log_warn("drain: the deadline has passed, leaving what is not finished to others");
	if (empty || late)
		svc_leave(svc, SVC_OK);
}

static void tell_systemd(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (!path || (path[0] != '/' && path[0] != '@'))
		return;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	size_t len = strnlen(path, sizeof address.sun_path - 1);
	memcpy(address.sun_path, path, len);
	if (path[0] == '@')
		address.sun_path[0] = 0;
	sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&address,
	       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
	close(fd);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct svc *svc = arg;
	(void)fd;
	(void)what;
	if (!svc_beat(svc))
		return;
	if (svc->loop->watchdog && svc_now_us() - svc->loop->watchdog_us > WATCHDOG_US) {
		tell_systemd("WATCHDOG=1");
		svc->loop->watchdog_us = svc_now_us();
	}
	inc_watch_look(&svc->watch, &svc->run, svc_now_us());
	bus_refresh(svc->bus);
	connect_keeper(svc);
	sweep(svc);
	if (svc->spec->tick && !svc->leaving)
		svc->spec->tick(svc);
	if (svc->draining && !svc->leaving)
		drain(svc);
	svc_hint_flush(svc);
	int ms = svc->active || svc->draining ? TICK_ACTIVE_MS : TICK_IDLE_MS;
	struct timeval next = {0, ms * 1000};
	evtimer_add(svc->loop->tick, &next);
}

static void look(struct svc *svc, uint32_t slot)
{
	if (slot < svc->run.n_table && svc->spec->look)
		svc->spec->look(svc, slot);
	/* A pipeline that just woke up is swept every 20 ms from now on. */
	if (svc->active == 0) {
		struct timeval soon = {0, TICK_ACTIVE_MS * 1000};
		svc->active = 1;
		evtimer_add(svc->loop->tick, &soon);
	}
}

static void handle_message(struct svc *svc, const struct msg *msg)
{
	switch (msg->kind) {
	case MSG_LOOK:
		for (uint32_t i = 0; i < msg->n_slots && !svc->leaving; i++)
			look(svc, msg->slots[i]);
		break;
	case MSG_HELLO:
		bus_refresh(svc->bus);
		break;
	case MSG_DIED:
		sweep(svc);
		break;
	case MSG_LOG_LEVEL:
		if (msg->subject <= LOG_LEVEL_DEBUG)
			log_set_level((enum log_level)msg->subject);
		break;
	case MSG_KIND_COUNT:
		break;
	}
}

static void receive(struct svc *svc)
{
	struct msg msg;
	while (!svc->leaving && bus_receive(svc->bus, &msg))
		handle_message(svc, &msg);
	svc_hint_flush(svc);
}

static void answer(struct svc *svc)
{
	uint32_t slot;
	while (!svc->leaving && bell_answer(svc->bell, &slot))
		look(svc, slot);
	svc_hint_flush(svc);
}

static void on_bus(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	receive(arg);
}

/* What was rung is answered when the loop comes round. */
static void on_bell(evutil_socket_t fd, short what, void *arg)
{
	const struct svc *svc = arg;
	(void)fd;
	(void)what;
	bell_quiet(svc->bell);
}

static void on_signal(evutil_socket_t number, short what, void *arg)
{
	struct svc *svc = arg;
	(void)what;
	if (svc->draining) {
		if (number == SIGINT)
			svc_leave(svc, SVC_OK);
		return;
	}
	log_info("signal %d: finishing what runs, then leaving", (int)number);
	svc->draining = true;
	svc->loop->drain_deadline_us =
		svc_now_us() + (uint64_t)opt_int(svc->options, "drain-s") * 1000000u;
	inc_set_state(&svc->run, INC_DRAINING);
	event_active(svc->loop->tick, EV_TIMEOUT, 0);
}

static void on_hangup(evutil_socket_t number, short what, void *arg)
{
	(void)number;
	(void)what;
	svc_reload(arg);
}

static enum svc_code make_loop(struct svc *svc, struct svc_err *err)
{
	struct svc_loop *loop = svc->loop;
	loop->tick = evtimer_new(svc->base, on_tick, svc);
	loop->bus_event = event_new(svc->base, bus_fd(svc->bus), EV_READ | EV_PERSIST, on_bus, svc);
	loop->bell_event =
		event_new(svc->base, bell_fd(svc->bell), EV_READ | EV_PERSIST, on_bell, svc);
	loop->on_term = evsignal_new(svc->base, SIGTERM, on_signal, svc);
	loop->on_int = evsignal_new(svc->base, SIGINT, on_signal, svc);
	loop->on_hup = evsignal_new(svc->base, SIGHUP, on_hangup, svc);
	struct timeval now = {0, 0};
	if (!loop->tick || !loop->bus_event || !loop->bell_event || !loop->on_term ||
	    !loop->on_int || !loop->on_hup || event_add(loop->bus_event, NULL) ||
	    event_add(loop->bell_event, NULL) || evtimer_add(loop->tick, &now))
		return svc_fail(err, SVC_NO_MEMORY, __func__, "cannot set up the event loop");
	return SVC_OK;
}

/* s6 wants a newline on a descriptor, systemd a datagram. */
static void notify_ready(void)
{
	const char *fd_text = getenv("LOCKSTEP_READY_FD");
	long fd_number = fd_text ? strtol(fd_text, NULL, 10) : -1;
	int fd = fd_number > 2 && fd_number < 1024 ? (int)fd_number : -1;
	if (fd > 2 && write(fd, "\n", 1) == 1)
		close(fd);
	tell_systemd("READY=1");
}

static void run_loop(struct svc *svc)
{
	while (!svc->leaving) {
		bool more = svc->spec->work && svc->spec->work(svc);
		svc_hint_flush(svc);
		if (svc->leaving)
			break;
		answer(svc);
		if (svc->leaving)
			break;
		bool wait = !more && bell_sleep(svc->bell);
		event_base_loop(svc->base, wait ? EVLOOP_ONCE : EVLOOP_NONBLOCK);
		bell_wake(svc->bell);
	}
}

static void resolve_dirs(const struct svc *svc, char *dir, char *bulk, size_t size)
{
	const char *run_dir = opt_string(svc->options, "run-dir"),
		   *bulk_dir = opt_string(svc->options, "bulk-dir");
	if (*run_dir)
		snprintf(dir, size, "%s", run_dir);
	else
		snprintf(dir, size, "/dev/shm/lockstep-%u", (unsigned)geteuid());
	if (*bulk_dir)
		snprintf(bulk, size, "%s", bulk_dir);
	else
		snprintf(bulk, size, "%.200s/bulk", dir);
}

static enum svc_code wait_for_run(struct svc *svc, struct svc_err *err)
{
	char dir[256], bulk[256];
	resolve_dirs(svc, dir, bulk, sizeof dir);
	for (int i = 0;; i++) {
		enum svc_code code = run_attach(dir, bulk, svc->spec->role, &svc->run, err);
		if (code != SVC_NOT_FOUND)
			return code;
		if (i >= WAIT_FOR_RUN_S * 200)
			return svc_fail(err, SVC_NO_WORKER, __func__,
					"no keeper has created %s within %d s", dir,
					WAIT_FOR_RUN_S);
		if (i == 200)
			log_info("waiting for the keeper to create %s", dir);
		usleep(5000);
	}
}

/* Replicas of one container definition can't be told their numbers: they take what is free. */
static uint32_t choose_instance(const struct svc *svc)
{
	int64_t asked = opt_int(svc->options, "instance");
	uint32_t number = 0;
	for (uint32_t i = 1; asked < 0 && i < INC_COUNT; i++) {
		if (inc_role(&svc->run, i) != svc->spec->role || inc_is_dead(&svc->run, i) ||
		    svc->run.ctl->incs[i].instance != number)
			continue;
		number++;
		i = 0;
	}
	return asked < 0 ? number : (uint32_t)asked;
}

static enum svc_code join(struct svc *svc, struct svc_err *err)
{
	enum svc_code code;
	if (svc->spec->create) {
		resolve_dirs(svc, svc->run.dir, svc->run.bulk_dir, sizeof svc->run.dir);
		code = svc->spec->create(svc, err);
	} else {
		code = wait_for_run(svc, err);
	}
	uint32_t instance = code == SVC_OK ? choose_instance(svc) : 0;
	if (code == SVC_OK)
		code = inc_register(&svc->run, svc->spec->role, instance, err);
	if (code == SVC_OK)
		code = bus_open(&svc->run, &svc->bus, err);
	if (code == SVC_OK)
		code = bell_open(&svc->run, &svc->bell, err);
	if (code != SVC_OK)
		return code;
	log_open(inc_role_name(svc->spec->role), instance, svc->run.number, log_level());
	svc->base = event_base_new();
	svc->loop = calloc(1, sizeof *svc->loop);
	if (!svc->base || !svc->loop)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	svc->loop->keeper_fd = -1;
	svc->loop->watchdog = getenv("WATCHDOG_USEC") != NULL;
	return make_loop(svc, err);
}

/* From here on a signal means: finish what runs. */
static enum svc_code announce(struct svc *svc, struct svc_err *err)
{
	struct msg hello = {.kind = MSG_HELLO};
	if (event_add(svc->loop->on_term, NULL) || event_add(svc->loop->on_int, NULL) ||
	    event_add(svc->loop->on_hup, NULL))
		return svc_fail(err, SVC_NO_MEMORY, __func__, "cannot set up the event loop");
	bus_refresh(svc->bus);
	inc_set_state(&svc->run, INC_READY);
	svc_why_forget(&svc->run, svc->spec->role);
	bus_broadcast(svc->bus, &hello);
	notify_ready();
	log_info("ready");
	return SVC_OK;
}

static enum svc_code serve(struct svc *svc, struct svc_err *err)
{
	enum svc_code code = join(svc, err);
	if (code == SVC_OK && svc->spec->start)
		code = svc->spec->start(svc, err);
	/* Of a device only: other reasons are about files, which are nobody's business who may ask
	 * whether the run is ready. */
	if (code == SVC_NO_DEVICE && svc->run.ctl)
		svc_why_note(&svc->run, svc->spec->role, err->msg);
	if (code == SVC_OK)
		code = announce(svc, err);
	struct deadman *deadman = NULL;
	/* Before the others' limit: an end is cheaper than a fence. */
	if (code == SVC_OK)
		code = deadman_start(&svc->run, svc->stall_us / 4 * 3, &deadman, err);
	if (code != SVC_OK)
		return code;
	run_loop(svc);
	deadman_stop(deadman);
	if (svc->spec->stop)
		svc->spec->stop(svc);
	return svc->leave_code;
}

static void tear_down(struct svc *svc)
{
	if (svc->loop) {
		struct event *events[] = {svc->loop->tick,	  svc->loop->bus_event,
					  svc->loop->bell_event,  svc->loop->on_term,
					  svc->loop->on_int,	  svc->loop->on_hup,
					  svc->loop->keeper_event};
		for (size_t i = 0; i < sizeof events / sizeof *events; i++)
			if (events[i])
				event_free(events[i]);
		if (svc->loop->keeper_fd >= 0)
			close(svc->loop->keeper_fd);
	}
	svc->bell = bell_close(svc->bell);
	svc->bus = bus_close(svc->bus);
	if (svc->base)
		event_base_free(svc->base);
	free(svc->loop);
	/* Another may bury us once nothing names this entry; if nothing does already, do it here. A
	 * fenced process touches nothing any more. */
	if (svc->run.me && svc->leave_code == SVC_OK)
		inc_leave(&svc->run);
	if (svc->run.ctl)
		run_detach(&svc->run);
	svc->options = opt_free(svc->options);
}

/* Nothing is lost by leaving before readiness, whatever is being waited for or built. */
static void leave_at_once(int number)
{
	(void)number;
	_exit(0);
}

static void prepare_process(void)
{
	struct rlimit none = {0, 0};
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN); /* until there is something to read again */
	signal(SIGTERM, leave_at_once);
	signal(SIGINT, leave_at_once);
	/* While a core of a large mapping is written, the lock would still be held. */
	setrlimit(RLIMIT_CORE, &none);
	umask(077);
	turns_short();
}

static int report(const struct svc_err *err)
{
	log_err(err);
	return svc_code_info(err->code)->exit_status;
}

int svc_main(const struct svc_spec *spec, int argc, char **argv)
{
	struct svc *svc = calloc(1, sizeof *svc);
	struct svc_err err = {0};
	enum opt_action action = OPT_RUN;
	char program[64];
	snprintf(program, sizeof program, "lockstep-%s", inc_role_name(spec->role));
	const struct opt_source source = {
		program, spec->summary, {common_options, spec->options}, false};
	if (!svc)
		return 70;
	prepare_process();
	svc->spec = spec;
	svc->source = &source;
	svc->argc = argc;
	svc->argv = argv;
	log_open(inc_role_name(spec->role), 0, 0, LOG_LEVEL_INFO);
	enum svc_code code = opt_parse(&source, argc, argv, &svc->options, &action, &err);
	if (code != SVC_OK) {
		free(svc);
		return report(&err);
	}
	if (action == OPT_HELP)
		opt_print_help(&source, stdout);
	else if (action == OPT_PRINT_CONFIG)
		opt_print_config(svc->options, stdout);
	else if (action == OPT_VERSION)
		printf("%s %s\n", program, LOCKSTEP_VERSION);
	if (action != OPT_RUN) {
		opt_free(svc->options);
		free(svc);
		return 0;
	}
	enum log_level level = LOG_LEVEL_INFO;
	if (log_level_parse(opt_string(svc->options, "log-level"), &level))
		log_set_level(level);
	svc->stall_us = (uint64_t)opt_int(svc->options, "stall-ms") * 1000u;
	code = serve(svc, &err);
	int status = svc_code_info(code)->exit_status;
	if (code != SVC_OK && !svc->leaving)
		report(&err);
	svc->leave_code = code;
	log_info("leaving with exit status %d", status);
	tear_down(svc);
	free(svc);
	return status;
}
