#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "gateway/http/http_listen.h"

enum { CLIENTS = 64 };

static int connect_to(uint16_t port)
{
	const struct sockaddr_in address = {.sin_family = AF_INET,
					    .sin_port = htons(port),
					    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	if (connect(fd, (const struct sockaddr *)&address, sizeof address) != 0)
		assert_int_equal(errno, EINPROGRESS);
	return fd;
}

static int is_connected(int fd, int wait_ms)
{
	struct pollfd socket = {.fd = fd, .events = POLLOUT};
	int error = 0;
	socklen_t len = sizeof error;
	if (poll(&socket, 1, wait_ms) == 0)
		return 0;
	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len), 0);
	assert_int_equal(error, 0);
	return 1;
}

static int count_accepted(int listener)
{
	int n = 0, fd;
	for (; (fd = accept(listener, NULL, NULL)) >= 0; n++)
		close(fd);
	assert_int_equal(errno, EAGAIN);
	return n;
}

/* Two gateways on a port, and one leaves while clients come: nobody is reset, and who was turned
 * away has reached the other one a second later. */
static void test_end(void **state)
{
	char folder[] = "/tmp/listen-test-XXXXXX";
	struct gw_http_listener leaving, staying;
	struct svc_err err;
	int clients[CLIENTS], connected = 0;
	(void)state;
	assert_non_null(mkdtemp(folder));
	assert_int_equal(gw_http_listen("127.0.0.1", 0, NULL, &leaving, &err), SVC_OK);
	close(leaving.fd); /* a port that is free */
	assert_int_equal(gw_http_listen("127.0.0.1", leaving.port, folder, &leaving, &err), SVC_OK);
	assert_int_equal(gw_http_listen("127.0.0.1", leaving.port, folder, &staying, &err), SVC_OK);
	int before = connect_to(leaving.port);
	assert_true(is_connected(before, 1000));
	int early = count_accepted(leaving.fd) + count_accepted(staying.fd);
	assert_int_equal(early, 1);

	gw_http_listen_end(leaving.fd);
	for (int i = 0; i < CLIENTS; i++)
		clients[i] = connect_to(leaving.port);
	for (int i = 0; i < CLIENTS; i++)
		connected += is_connected(clients[i], 0);
	assert_in_range(connected, 1, CLIENTS - 1);
	assert_int_equal(count_accepted(leaving.fd), 0);
	close(leaving.fd);
	for (int i = 0; i < CLIENTS; i++)
		assert_true(is_connected(clients[i], 10000));
	assert_int_equal(count_accepted(staying.fd), CLIENTS);

	for (int i = 0; i < CLIENTS; i++)
		close(clients[i]);
	close(before);
	close(staying.fd);
	close(staying.claim_fd);
	close(leaving.claim_fd);
	char path[64];
	snprintf(path, sizeof path, "%s/port-%u.lock", folder, leaving.port);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_end)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
