"""The gateway's HTTP layer alone (gateway/http/http_echo.c): framing, limits, slow and odd clients."""

import contextlib
import json
import os
import pathlib
import random
import socket
import struct
import subprocess
import time

import pytest

BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", "build/release")).resolve()
GET = b"GET /counts HTTP/1.1\r\nHost: a\r\n\r\n"


class Echo:
    def __init__(self, *options):
        self.process = subprocess.Popen(
            [BUILD / "test" / "http_echo", *map(str, options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(self.process.stderr.read().decode())
        self.port = int(line.split()[1])

    def connect(self, receive_buffer=None):
        connection = socket.socket()
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(10)
        connection.connect(("127.0.0.1", self.port))
        return connection

    def counts(self):
        return json.loads(self.exchange(GET)[0].body)

    def exchange(self, request, n=1):
        with self.connect() as connection:
            connection.sendall(request)
            reader = Reader(connection)
            return [reader.reply() for _ in range(n)]

    def drain(self):
        self.process.stdin.write(b"d")
        self.process.stdin.flush()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(10) == 0, self.process.stderr.read().decode()
        self.process.stderr.close()


class Reply:
    pass


class Reader:
    """Reads replies, strictly, and says if anything is left."""

    def __init__(self, connection):
        self.file = connection.makefile("rb")

    def line(self):
        line = self.file.readline()
        assert line.endswith(b"\r\n"), line
        return line[:-2].decode()

    def reply(self, head=False):
        reply = Reply()
        version, status, _ = self.line().split(" ", 2)
        assert version == "HTTP/1.1"
        reply.status = int(status)
        reply.fields = {}
        while line := self.line():
            name, value = line.split(": ", 1)
            assert name.lower() not in reply.fields
            reply.fields[name.lower()] = value
        reply.body = b""
        if head or reply.status in (100, 204):
            return reply
        if reply.fields.get("transfer-encoding") == "chunked":
            while size := int(self.line(), 16):
                reply.body += self.file.read(size)
                assert self.line() == ""
            assert self.line() == ""
        elif "content-length" in reply.fields:
            reply.body = self.file.read(int(reply.fields["content-length"]))
        else:
            reply.body = self.file.read()
        return reply

    def at_end(self):
        return self.file.read(1) == b""


@contextlib.contextmanager
def echo_with(*options):
    server = Echo(*options)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def echo():
    with echo_with() as server:
        yield server


def until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def post(body, path="/echo", *fields):
    return b"".join([f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n".encode(),
                     *[field + b"\r\n" for field in fields], b"\r\n", body])


# ---- what works

def test_pipelined_requests_are_answered_in_order(echo):
    bodies = [str(i).encode() * (i * 100) for i in range(20)]
    replies = echo.exchange(b"".join(map(post, bodies)), len(bodies))
    assert [reply.body for reply in replies] == bodies


def test_a_pipelined_request_waits_for_a_stream(echo):
    flood, after = echo.exchange(b"GET /flood?300000 HTTP/1.1\r\nHost: a\r\n\r\n" + post(b"x"), 2)
    assert flood.body == b"x" * 300000 and flood.fields["transfer-encoding"] == "chunked"
    assert after.body == b"x"


def test_chunked_bodies(echo):
    head = b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    replies = echo.exchange(head + b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nT: t\r\n\r\n" + head + b"0\r\n\r\n", 2)
    assert [reply.body for reply in replies] == [b"abc0123456789", b""]


def test_expect_continue(echo):
    with echo.connect() as connection:
        reader = Reader(connection)
        connection.sendall(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert reader.reply().status == 100
        connection.sendall(b"ok")
        assert reader.reply().body == b"ok"


def test_expect_continue_of_a_refused_request_gets_the_refusal(echo):
    with echo.connect() as connection:
        reader = Reader(connection)
        connection.sendall(b"POST /none HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert reader.reply().status == 404
        assert reader.at_end()


def test_head_has_the_length_and_no_body(echo):
    with echo.connect() as connection:
        connection.sendall(b"HEAD /counts HTTP/1.1\r\nHost: a\r\n\r\n" + post(b"next"))
        reader = Reader(connection)
        reply = reader.reply(head=True)
        assert reply.status == 200 and int(reply.fields["content-length"]) > 20
        assert reader.reply().body == b"next"


def test_http_1_0(echo):
    plain, = echo.exchange(b"GET /flood?5000 HTTP/1.0\r\n\r\n")
    assert plain.body == b"x" * 5000 and "transfer-encoding" not in plain.fields
    first, second = echo.exchange(b"GET /counts HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" * 2, 2)
    assert first.fields["connection"] == "keep-alive" and second.status == 200


def test_connection_close(echo):
    with echo.connect() as connection:
        connection.sendall(post(b"x", "/echo", b"Connection: close") + GET)
        reader = Reader(connection)
        assert reader.reply().fields["connection"] == "close"
        assert reader.at_end()


def test_options_and_methods(echo):
    options, = echo.exchange(b"OPTIONS /echo HTTP/1.1\r\nHost: a\r\n\r\n")
    assert options.status == 204 and options.fields["allow"] == "POST, GET, HEAD, OPTIONS"
    assert "access-control-allow-origin" not in options.fields
    wrong, = echo.exchange(b"DELETE /wait HTTP/1.1\r\nHost: a\r\n\r\n")
    assert wrong.status == 405 and wrong.fields["allow"] == "GET, HEAD, POST, OPTIONS"
    assert json.loads(wrong.body)["error"]["code"] == "method_not_allowed"
    unknown, = echo.exchange(b"GET /none HTTP/1.1\r\nHost: a\r\n\r\n")
    assert unknown.status == 404 and json.loads(unknown.body)["error"]["code"] == "not_found"
    assert echo.exchange(b"GET /below/x HTTP/1.1\r\nHost: a\r\n\r\n")[0].status == 200
    assert echo.exchange(b"GET /below/ HTTP/1.1\r\nHost: a\r\n\r\n")[0].status == 404


def test_cross_origin():
    with echo_with("--origins", "https://ui.example,http://b") as server:
        ask = b"OPTIONS /echo HTTP/1.1\r\nHost: a\r\nOrigin: %s\r\nAccess-Control-Request-Method: POST\r\n\r\n"
        listed, = server.exchange(ask % b"https://ui.example")
        assert listed.fields["access-control-allow-origin"] == "https://ui.example"
        assert "POST" in listed.fields["access-control-allow-methods"]
        other, = server.exchange(ask % b"https://evil.example")
        assert "access-control-allow-origin" not in other.fields
        # A form can be posted from anywhere without asking first.
        assert server.exchange(post(b"x", "/echo", b"Origin: https://evil.example"))[0].status == 403
        assert server.exchange(post(b"x", "/echo", b"Origin: http://a"))[0].status == 200
        allowed, = server.exchange(post(b"x", "/echo", b"Origin: http://b"))
        assert allowed.status == 200 and allowed.fields["access-control-allow-origin"] == "http://b"


# ---- what is refused

@pytest.mark.parametrize("request_bytes, status, code", [
    (b"GET / HTTP/1.1\r\n\r\n", 400, "bad_host"),
    (b"hello\r\n", 400, "bad_request_line"),
    (b"GET /\n", 400, "bad_line_end"),
    (b"\x16\x03\x01\x02\x00", 400, "tls_on_plain_port"),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "http_version_not_supported"),
    (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", 414, "uri_too_long"),
    (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 40000, 431, "header_too_large"),
    (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"A: b\r\n" * 101, 431, "header_too_large"),
    (b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n", 413, "request_too_large"),
    (b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "bad_framing"),
    (b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, "repeated_header"),
    (b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400, "bad_content_length"),
    (b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n", 400, "bad_content_length"),
    (b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5,5\r\n\r\n", 400, "bad_content_length"),
    (b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", 400, "bad_content_length"),
    (b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "transfer_coding_not_supported"),
    (b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 400, "bad_chunk"),
    (b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\n\r\n", 415, "content_encoding_not_supported"),
    (b"POST /echo HTTP/1.1\r\nHost: a\r\nExpect: fish\r\n\r\n", 417, "expectation_failed"),
])
def test_a_framing_fault_is_answered_and_closes(echo, request_bytes, status, code):
    with echo.connect() as connection:
        connection.sendall(request_bytes + GET)
        reader = Reader(connection)
        reply = reader.reply()
        assert (reply.status, json.loads(reply.body)["error"]["code"]) == (status, code)
        assert reply.fields["connection"] == "close"
        assert reader.at_end(), "what follows a fault must not be read as a request"


def test_a_large_body_is_refused_and_the_refusal_arrives():
    with echo_with("--body-bytes", 1000) as server, server.connect() as connection:
        connection.sendall(b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(200):
                connection.sendall(b"1000\r\n" + b"x" * 4096 + b"\r\n")
        assert Reader(connection).reply().status == 413


def test_bodies_of_all_connections_are_limited():
    with echo_with("--bodies-bytes", 100000) as server:
        held = [server.connect() for _ in range(4)]
        for connection in held:
            connection.sendall(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n" + b"x" * 40000)
        refused = 0
        for connection in held:
            connection.settimeout(0.5)
            with contextlib.suppress(TimeoutError):
                refused += Reader(connection).reply().status == 503
            connection.close()
        assert refused >= 2
        until(lambda: server.counts()["bodies_bytes"] < 1000)


def test_a_body_is_not_held_while_the_answer_takes_long():
    with echo_with("--bodies-bytes", 100000) as server:
        waiting = [server.connect() for _ in range(5)]
        for connection in waiting:
            connection.sendall(post(b"x" * 60000, "/wait"))
            until(lambda: server.counts()["bodies_bytes"] < 1000)
        until(lambda: server.counts()["exchanges"] == 6)
        for connection in waiting:
            connection.close()


# ---- slow clients, clients that leave

def test_a_slow_head_is_cut_off():
    with echo_with("--head-ms", 300) as server, server.connect() as connection:
        reader = Reader(connection)
        start = time.monotonic()
        with contextlib.suppress(ConnectionError):
            for byte in b"GET /counts HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 1000:
                connection.sendall(bytes([byte]))
                time.sleep(0.02)
                if time.monotonic() - start > 2:
                    break
        assert reader.reply().status == 408
        assert reader.at_end()


def test_a_slow_body_is_cut_off():
    with echo_with("--body-ms", 300) as server, server.connect() as connection:
        connection.sendall(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
        assert Reader(connection).reply().status == 408


def test_an_idle_connection_is_closed_without_a_word():
    with echo_with("--idle-ms", 200) as server, server.connect() as connection:
        reader = Reader(connection)
        connection.sendall(GET)
        assert reader.reply().status == 200
        assert reader.at_end()


def test_a_client_that_leaves_while_it_waits_is_noticed(echo):
    before = echo.counts()["gone"]
    connection = echo.connect()
    connection.sendall(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
    until(lambda: echo.counts()["exchanges"] == 2)
    connection.close()
    until(lambda: echo.counts()["gone"] == before + 1)
    assert echo.counts()["exchanges"] == 1


def test_a_client_that_leaves_behind_pipelined_bytes_is_noticed(echo):
    before = echo.counts()["gone"]
    connection = echo.connect()
    connection.sendall(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
    # More than the server reads ahead, so that it has stopped reading, and less than the kernel takes besides.
    connection.sendall(b"x" * 100000)
    until(lambda: echo.counts()["exchanges"] == 2)
    connection.close()
    until(lambda: echo.counts()["gone"] == before + 1)


def test_a_reset_is_noticed(echo):
    before = echo.counts()["gone"]
    connection = echo.connect()
    connection.sendall(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
    until(lambda: echo.counts()["exchanges"] == 2)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    until(lambda: echo.counts()["gone"] == before + 1)


# A sanitizer keeps freed memory for a while, so its build says nothing about growth.
SANITIZED = b"__asan_init" in (BUILD / "test" / "http_echo").read_bytes()


def resident_bytes(process):
    with open(f"/proc/{process.pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_client_that_does_not_read_is_paused_then_dropped():
    with echo_with("--write-ms", 700, "--output-bytes", 65536) as server, server.connect(4096) as connection:
        server.counts()
        before = resident_bytes(server.process)
        connection.sendall(b"GET /flood?500000000 HTTP/1.1\r\nHost: a\r\n\r\n")
        until(lambda: server.counts()["pauses"] > 0)
        assert SANITIZED or resident_bytes(server.process) - before < 4 << 20
        until(lambda: server.counts()["dropped_slow"] == 1)
        counts = server.counts()
        assert counts["gone"] == 1 and counts["exchanges"] == 1 and counts["connections"] == 1


def test_a_client_that_does_not_read_the_end_is_dropped():
    with echo_with("--write-ms", 500, "--output-bytes", 4000000) as server, server.connect(4096) as connection:
        connection.sendall(b"GET /flood?3000000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        until(lambda: server.counts()["dropped_slow"] == 1)
        assert server.counts()["gone"] == 0


def test_a_client_that_reads_slowly_but_steadily_is_served():
    with echo_with("--write-ms", 700, "--output-bytes", 65536) as server, server.connect(4096) as connection:
        connection.sendall(b"GET /flood?800000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        received = 0
        while piece := connection.recv(16384):
            received += len(piece)
            time.sleep(0.02)
        assert received > 800000
        assert server.counts()["dropped_slow"] == 0


def test_a_client_that_pipelines_and_does_not_read_costs_a_bounded_amount():
    with echo_with("--write-ms", 2000, "--output-bytes", 65536) as server, server.connect(4096) as connection:
        server.counts()
        before = resident_bytes(server.process)
        connection.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            for _ in range(20000):
                connection.sendall(b"GET /flood?20000 HTTP/1.1\r\nHost: a\r\n\r\n")
        assert SANITIZED or resident_bytes(server.process) - before < 4 << 20


# ---- many connections

def test_connection_limits():
    with echo_with("--max-connections", 6, "--max-per-address", 5) as server:
        held = [server.connect() for _ in range(5)]
        for connection in held:
            connection.sendall(GET)
            assert Reader(connection).reply().status == 200
        reply, = server.exchange(GET)
        assert reply.status == 503 and reply.fields["retry-after"] == "1"
        assert json.loads(reply.body)["error"]["code"] == "too_many_connections"
        held.pop().close()
        until(lambda: server.exchange(GET)[0].status == 200)
        for connection in held:
            connection.close()


def status_of(server):
    try:
        return server.exchange(GET)[0].status
    except ConnectionError:
        return None


def test_a_flood_of_connections_beyond_the_limit_ends():
    with echo_with("--max-connections", 10) as server:
        crowd = []
        for _ in range(150):
            crowd.append(server.connect())
            crowd[-1].settimeout(1)
        for connection in crowd:
            connection.close()
        until(lambda: status_of(server) == 200)


def test_drain_answers_what_runs_and_closes():
    with echo_with() as server:
        idle, busy = server.connect(), server.connect()
        idle.sendall(GET)
        Reader(idle).reply()
        busy.sendall(b"GET /flood?3000000 HTTP/1.1\r\nHost: a\r\n\r\n")
        until(lambda: server.counts()["exchanges"] == 2)
        server.drain()
        assert idle.recv(1) == b""
        reader = Reader(busy)
        assert len(reader.reply().body) == 3000000
        assert reader.at_end()
        with pytest.raises(ConnectionError):
            server.connect()
        idle.close()
        busy.close()


# ---- listening

def listen_error(*options):
    with pytest.raises(RuntimeError) as error:
        Echo(*options)
    message = str(error.value)
    assert message.count("\n") == 1
    return message


def test_a_port_in_use_is_one_clear_line(tmp_path):
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert "in use by another program" in listen_error("--port", port)
        # Even though the kernel would let two programs of one user share it.
        assert "in use by another program" in listen_error("--port", port, "--claims", tmp_path)


def test_gateways_of_one_run_share_a_port(tmp_path, unused_port):
    with echo_with("--port", unused_port, "--claims", tmp_path) as first, \
            echo_with("--port", unused_port, "--claims", tmp_path) as second:
        # The kernel gives each new connection to one of the two.
        assert {first.counts()["pid"] for _ in range(200)} == {first.process.pid, second.process.pid}
        assert "in use" in listen_error("--port", unused_port, "--claims", tmp_path / "..")


@pytest.fixture
def unused_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("host, family", [("::1", socket.AF_INET6), ("*", socket.AF_INET), ("*", socket.AF_INET6)])
def test_addresses(host, family):
    try:
        socket.socket(socket.AF_INET6).bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    with echo_with("--host", host) as server, socket.socket(family) as connection:
        connection.connect(("::1" if family == socket.AF_INET6 else "127.0.0.1", server.port))
        connection.sendall(GET)
        assert Reader(connection).reply().status == 200


def test_addresses_that_are_none():
    assert "--host" in listen_error("--host", "not an address")
    assert "no address of this machine" in listen_error("--host", "192.0.2.1")


# ---- noise

def test_ten_thousand_malformed_requests_change_nothing(echo):
    rng = random.Random(7)
    seeds = [post(b'{"messages":[{"role":"user","content":"x"}]}', "/parse"),
             b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", GET]
    before = None
    for i in range(2000 if not os.environ.get("LOCKSTEP_LONG") else 10000):
        message = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(message))
            message[at:at + rng.randrange(3)] = rng.choice([b"", bytes([rng.randrange(256)]), b"\r\n", b"{", b"\0"])
        with echo.connect() as connection:
            connection.sendall(message)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
        if i == 200:
            before = resident_bytes(echo.process)
    assert echo.counts()["connections"] == 1
    assert SANITIZED or resident_bytes(echo.process) - before < 2 << 20
