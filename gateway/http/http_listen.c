#include "gateway/http/http_listen.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BACKLOG 512
#define TRIES	50
#define TRY_MS	20

struct place {
	struct sockaddr_storage address;
	socklen_t len;
	const char *host;
	uint16_t port;
};

static enum svc_code place_find(const char *host, uint16_t port, struct place *ret_place,
				struct svc_err *err)
{
	bool any = strcmp(host, "*") == 0;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_PASSIVE | AI_NUMERICSERV,
				 .ai_family = any ? AF_INET6 : AF_UNSPEC};
	struct addrinfo *found = NULL;
	char service[8];
	snprintf(service, sizeof service, "%u", port);
	int failed = getaddrinfo(any ? NULL : host, service, &hints, &found);
	if (failed)
		return svc_fail_param(err, SVC_BAD_CONFIG, "host",
				      "--host %.80s: %s; give an address of this machine, such as "
				      "127.0.0.1 or ::1, or * for all",
				      host, gai_strerror(failed));
	*ret_place = (struct place){.len = found->ai_addrlen, .host = host, .port = port};
	memcpy(&ret_place->address, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return SVC_OK;
}

/* Returns a bound and listening socket, or -1 with errno. */
static int try_listen(const struct place *place, bool share)
{
	int on = 1, off = 0;
	int fd = socket(place->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (place->address.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
	if ((share && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0) ||
	    bind(fd, (const struct sockaddr *)&place->address, place->len) != 0 ||
	    listen(fd, BACKLOG) != 0) {
		int cause = errno;
		close(fd);
		errno = cause;
		return -1;
	}
	return fd;
}

static enum svc_code listen_failed(const struct place *place, struct svc_err *err)
{
	if (errno == EADDRINUSE)
		return svc_fail_param(err, SVC_BAD_CONFIG, "port",
				      "port %u of %.80s is in use by another program: stop it "
				      "(ss -ltnp shows it) or choose another --port",
				      place->port, place->host);
	if (errno == EADDRNOTAVAIL)
		return svc_fail_param(err, SVC_BAD_CONFIG, "host",
				      "--host %.80s is no address of this machine", place->host);
	if (errno == EACCES)
		return svc_fail_param(err, SVC_BAD_CONFIG, "port",
				      "port %u needs more rights than this process has: choose one "
				      "above 1023",
				      place->port);
	return svc_fail_errno(err, __func__, "cannot listen on port %u of %.80s", place->port,
			      place->host);
}

/* A shared lock on a file named after the port says "one of this run's gateways listens here". */
static enum svc_code claim(const char *folder, uint16_t port, int *ret_fd, struct svc_err *err)
{
	char path[512];
	snprintf(path, sizeof path, "%s/port-%u.lock", folder, port);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
	if (fd < 0)
		return svc_fail_errno(err, __func__, "cannot open %s", path);
	if (fcntl(fd, F_OFD_SETLK, &lock) != 0) {
		enum svc_code code = svc_fail_errno(err, __func__, "cannot lock %s", path);
		close(fd);
		return code;
	}
	*ret_fd = fd;
	return SVC_OK;
}

void gw_http_listen_end(int fd)
{
	/* The filter sees a packet from its TCP header on: SYN is bit 1 of byte 13. */
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 13),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x02, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, 0),
		BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
	};
	const struct sock_fprog program = {sizeof code / sizeof *code, code};
	(void)setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

bool gw_http_port_is_shared(int claim_fd)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	return claim_fd >= 0 && fcntl(claim_fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* First without sharing: only a port that nobody listens on can be had so. If that fails and
 * another gateway of this run has claimed the port, it is shared. The claim comes before the try,
 * so that of two gateways that start together each sees the other. */
static int listen_shared(const struct place *place, int claim_fd)
{
	const struct timespec pause = {.tv_nsec = TRY_MS * 1000000L};
	for (int i = 0; i < TRIES; i++) {
		int probe = try_listen(place, false);
		if (probe >= 0)
			close(probe);
		else if (errno != EADDRINUSE || !gw_http_port_is_shared(claim_fd))
			return -1;
		int fd = try_listen(place, true);
		if (fd >= 0 || errno != EADDRINUSE)
			return fd;
		nanosleep(&pause, NULL); /* another one's try is in the way */
	}
	errno = EADDRINUSE;
	return -1;
}

static uint16_t port_of(int fd)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} address = {0};
	socklen_t len = sizeof address;
	if (getsockname(fd, &address.any, &len) != 0)
		return 0;
	return ntohs(address.any.sa_family == AF_INET6 ? address.v6.sin6_port
						       : address.v4.sin_port);
}

static bool is_loopback(const struct place *place)
{
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	memcpy(&v4, &place->address, sizeof v4);
	memcpy(&v6, &place->address, sizeof v6);
	if (place->address.ss_family == AF_INET)
		return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) ||
	       (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) && v6.sin6_addr.s6_addr[12] == 127);
}

enum svc_code gw_http_listen(const char *host, uint16_t port, const char *claim_folder,
			     struct gw_http_listener *ret_listener, struct svc_err *err)
{
	struct place place = {0};
	int claim_fd = -1;
	enum svc_code code = place_find(host, port, &place, err);
	if (code == SVC_OK && claim_folder && port)
		code = claim(claim_folder, port, &claim_fd, err);
	if (code != SVC_OK)
		return code;
	int fd = claim_fd >= 0 ? listen_shared(&place, claim_fd) : try_listen(&place, false);
	if (fd < 0) {
		code = listen_failed(&place, err);
		if (claim_fd >= 0)
			close(claim_fd);
		return code;
	}
	*ret_listener = (struct gw_http_listener){fd, claim_fd, port_of(fd), is_loopback(&place)};
	return SVC_OK;
}
