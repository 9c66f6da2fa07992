/* A request is handed to a gateway of another run: the client's socket goes there as a descriptor
 * (SCM_RIGHTS) in a datagram, what was read from it in a second one, of a file in memory. The
 * datagram is sent whole or not at all, so one of both has the client, always. */
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "gateway/gw_models.h"
#include "gateway/http/http_carry.h"
#include "shm/incarnation.h"

#define HAND_MAGIC  0x444e4148u /* "HAND" */
#define WAITING_MAX (256u << 20)
#define AHEAD_BYTES (1u << 20) /* beyond a request's head and body */
#define N_FDS	    2

struct hand_message {
	uint32_t magic, hops;
	struct in6_addr address;
};

/* Room for two descriptors, aligned as the kernel writes it. */
union hand_control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(N_FDS * sizeof(int))];
};

static bool address_of(const char *dir, uint32_t entry, struct sockaddr_un *ret_address)
{
	*ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
	int len = snprintf(ret_address->sun_path, sizeof ret_address->sun_path, "%s/hand-%u.sock",
			   dir, entry);
	return len > 0 && (size_t)len < sizeof ret_address->sun_path;
}

/* ---- giving ---- */

/* The text in a file without a name; -1: no memory, or no descriptor. */
static int file_of(const struct buf *text)
{
	int fd = text->failed ? -1 : memfd_create("lockstep-request", MFD_CLOEXEC);
	size_t done = 0;
	while (fd >= 0 && done < text->len) {
		ssize_t n = write(fd, text->ptr + done, text->len - done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			close(fd);
			return -1;
		}
		done += (size_t)n;
	}
	return fd;
}

static bool message_send(const struct gateway *gateway, const struct sockaddr_un *to,
			 const struct gw_http_carried *carried, int file)
{
	struct hand_message message = {HAND_MAGIC, carried->hops, carried->address};
	const int fds[N_FDS] = {carried->fd, file};
	union hand_control control = {0};
	struct sockaddr_un address = *to;
	struct iovec bytes = {&message, sizeof message};
	struct msghdr head = {.msg_name = &address,
			      .msg_namelen = sizeof address,
			      .msg_iov = &bytes,
			      .msg_iovlen = 1,
			      .msg_control = control.bytes,
			      .msg_controllen = sizeof control.bytes};
	struct cmsghdr *part = CMSG_FIRSTHDR(&head);
	part->cmsg_level = SOL_SOCKET;
	part->cmsg_type = SCM_RIGHTS;
	part->cmsg_len = CMSG_LEN(sizeof fds);
	memcpy(CMSG_DATA(part), fds, sizeof fds);
	return sendmsg(gateway->models->socket, &head, MSG_DONTWAIT | MSG_NOSIGNAL) ==
	       (ssize_t)sizeof message;
}

/* Two rounds: one that has just beaten, else any that isn't known to be dead. */
static bool gateway_is_fit(const struct shm_run *run, uint32_t entry, bool beaten)
{
	uint64_t beat_us = atomic_load(&run->ctl->incs[entry].beat_us), now = svc_now_us();
	bool late = now > beat_us && now - beat_us > (uint64_t)run->ctl->config.stall_ms * 1000u;
	return inc_role(run, entry) == ROLE_GATEWAY && inc_is_ready(run, entry) &&
	       !(beaten && late) && !inc_is_dead(run, entry);
}

static bool send_to_any(struct gateway *gateway, const struct shm_run *run, const char *dir,
			const struct gw_http_carried *carried, int file)
{
	struct gw_models *models = gateway->models;
	for (uint32_t i = 0; i < 2 * (INC_COUNT - 1); i++) {
		uint32_t entry = 1 + (models->next + i) % (INC_COUNT - 1);
		struct sockaddr_un to;
		if (!gateway_is_fit(run, entry, i < INC_COUNT - 1) || !address_of(dir, entry, &to))
			continue;
		if (message_send(gateway, &to, carried, file)) {
			models->next = entry;
			return true;
		}
	}
	return false;
}

bool gw_hand_try(struct gateway *gateway, struct gw_http_exchange *exchange,
		 const struct buf *request, uint32_t index)
{
	struct gw_models *models = gateway->models;
	const struct shm_run *run = gw_peer_run(models, index);
	struct gw_http_carried carried;
	struct buf text = {0};
	bool sent = false;
	if (!run)
		return false;
	if (request->len)
		buf_append(&text, request->ptr, request->len);
	if (gw_http_exchange_carry(exchange, &carried, &text)) {
		int file = file_of(&text);
		sent = file >= 0 &&
		       send_to_any(gateway, run, models->list.runs[index], &carried, file);
		if (file >= 0)
			close(file);
	}
	buf_free(&text);
	models->handed += sent;
	return sent;
}

/* ---- waiting for a gateway ---- */

static void waiting_free(struct gw_models *models, struct gw_waiting *waiting)
{
	LIST_REMOVE(waiting, link);
	models->waiting_bytes -= waiting->text.len;
	buf_free(&waiting->text);
	free(waiting);
}

static enum svc_code wait_begin(struct gateway *gateway, struct gw_http_exchange *exchange,
				struct buf *text_take, uint32_t run, struct svc_err *err)
{
	struct gw_models *models = gateway->models;
	if (models->waiting_bytes + text_take->len > WAITING_MAX)
		return svc_fail(err, SVC_BUSY, __func__,
				"too many requests wait for the gateways of that model; retry");
	struct gw_waiting *waiting = text_take->failed ? NULL : calloc(1, sizeof *waiting);
	if (!waiting)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	waiting->exchange = exchange;
	waiting->text = *text_take;
	waiting->until_us = svc_now_us() + gateway->no_worker_us;
	memcpy(waiting->dir, models->list.runs[run], sizeof waiting->dir);
	models->waiting_bytes += waiting->text.len;
	LIST_INSERT_HEAD(&models->waiting, waiting, link);
	*text_take = (struct buf){0};
	return SVC_OK;
}

void gw_hand_over(struct gateway *gateway, struct gw_http_exchange *exchange, uint32_t run)
{
	struct buf text = {0};
	struct svc_err err;
	gw_http_request_print(&text, gw_http_exchange_request(exchange));
	if (gw_hand_try(gateway, exchange, &text, run))
		gw_http_exchange_leave(exchange);
	else if (wait_begin(gateway, exchange, &text, run, &err) != SVC_OK)
		gw_reply_error(exchange, &err);
	buf_free(&text);
}

/* The list's run in that directory; UINT32_MAX: it is listed no more. */
static uint32_t run_in(const struct gw_model_list *list, const char *dir)
{
	for (uint32_t i = 0; i < list->n_runs; i++)
		if (strcmp(list->runs[i], dir) == 0)
			return i;
	return UINT32_MAX;
}

void gw_hand_look(struct gateway *gateway)
{
	struct gw_models *models = gateway->models;
	struct gw_waiting *next, *waiting = LIST_FIRST(&models->waiting);
	for (; waiting; waiting = next) {
		struct gw_http_exchange *exchange = waiting->exchange;
		uint32_t run = run_in(&models->list, waiting->dir);
		next = LIST_NEXT(waiting, link);
		if (run != UINT32_MAX && gw_hand_try(gateway, exchange, &waiting->text, run)) {
			waiting_free(models, waiting);
			gw_http_exchange_leave(exchange);
		} else if (run == UINT32_MAX || svc_now_us() > waiting->until_us) {
			struct svc_err err;
			(void)svc_fail(&err, SVC_NO_WORKER, __func__,
				       "no gateway of that model's run is there (%s)",
				       waiting->dir);
			waiting_free(models, waiting);
			gw_reply_error(exchange, &err);
		}
	}
}

bool gw_models_gone(struct gateway *gateway, const struct gw_http_exchange *exchange)
{
	struct gw_waiting *waiting;
	if (!gateway->models)
		return false;
	LIST_FOREACH(waiting, &gateway->models->waiting, link)
	{
		if (waiting->exchange != exchange)
			continue;
		waiting_free(gateway->models, waiting);
		return true;
	}
	return false;
}

/* ---- taking ---- */

/* What the file has, or a buffer that says failed. */
static struct buf file_read(int file, size_t limit)
{
	struct buf text = {.limit = limit};
	char piece[16384];
	off_t at = 0;
	ssize_t n;
	while ((n = pread(file, piece, sizeof piece, at)) > 0 && !text.failed) {
		buf_append(&text, piece, (size_t)n);
		at += n;
	}
	text.failed |= n < 0;
	return text;
}

static void take(struct gateway *gateway, const struct hand_message *message, int client, int file)
{
	const struct opt_set *set = gateway->svc->options;
	const struct gw_http_carried carried = {client, message->address, message->hops};
	/* A request over this gateway's limits is refused by its parser, not here. */
	size_t limit = (size_t)opt_int(set, "max-body-bytes") +
		       (size_t)opt_int(set, "max-header-bytes") + AHEAD_BYTES;
	struct buf text = file_read(file, 2 * limit);
	close(file);
	if (text.failed) {
		log_warn("a request that was handed over could not be read");
		close(client);
	} else if (gw_http_server_adopt(gateway->server, &carried,
					(struct span){text.ptr, text.len})) {
		gateway->models->taken++;
	}
	buf_free(&text);
}

static void on_hand(evutil_socket_t fd, short what, void *arg)
{
	(void)what;
	for (;;) {
		struct hand_message message = {0};
		union hand_control control = {0};
		struct iovec bytes = {&message, sizeof message};
		struct msghdr head = {.msg_iov = &bytes,
				      .msg_iovlen = 1,
				      .msg_control = control.bytes,
				      .msg_controllen = sizeof control.bytes};
		int fds[N_FDS] = {-1, -1};
		ssize_t n = recvmsg(fd, &head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (n < 0)
			return;
		const struct cmsghdr *part = CMSG_FIRSTHDR(&head);
		if (part && part->cmsg_type == SCM_RIGHTS &&
		    part->cmsg_len >= CMSG_LEN(sizeof(int)))
			memcpy(fds, CMSG_DATA(part),
			       part->cmsg_len >= CMSG_LEN(sizeof fds) ? sizeof fds : sizeof(int));
		if (n == (ssize_t)sizeof message && message.magic == HAND_MAGIC && fds[1] >= 0) {
			take(arg, &message, fds[0], fds[1]);
			continue;
		}
		for (int i = 0; i < N_FDS; i++)
			if (fds[i] >= 0)
				close(fds[i]);
	}
}

/* The name is the entry's: who had it before has ended. */
enum svc_code gw_hand_open(struct gateway *gateway, struct svc_err *err)
{
	struct svc *svc = gateway->svc;
	struct gw_models *models = gateway->models;
	struct sockaddr_un address;
	if (!address_of(svc->run.dir, svc->run.me, &address))
		return svc_fail_param(err, SVC_BAD_CONFIG, "run-dir",
				      "--run-dir %.100s is too long for a socket's address",
				      svc->run.dir);
	models->socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	unlink(address.sun_path);
	if (models->socket < 0 ||
	    bind(models->socket, (struct sockaddr *)&address, sizeof address) != 0)
		return svc_fail_errno(err, __func__, "cannot make %s", address.sun_path);
	models->event =
		event_new(svc->base, models->socket, EV_READ | EV_PERSIST, on_hand, gateway);
	if (!models->event || event_add(models->event, NULL) != 0)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	return SVC_OK;
}

void gw_hand_close(struct gateway *gateway)
{
	struct gw_models *models = gateway->models;
	struct gw_waiting *next, *waiting = LIST_FIRST(&models->waiting);
	for (; waiting; waiting = next) {
		next = LIST_NEXT(waiting, link);
		waiting_free(models, waiting);
	}
	if (models->event)
		event_free(models->event);
	if (models->socket >= 0)
		close(models->socket);
}
