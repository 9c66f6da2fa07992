"""The gateway process before a pipeline without a model (gateway/gw_pipeline_test_main.c): a token is a byte, the answer
is the prompt and then the end token."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile

import pytest

from api import exchange, until

BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", "build/release")).resolve()
END = 256
# A sanitizer keeps freed memory for a while, so its build says nothing about growth.
SANITIZED = b"__asan_init" in (BUILD / "bin" / "lockstep-gateway").read_bytes()
CTX = 512


class Gateway:
    """A gateway and its pipeline in a run directory of their own (short: a socket's path lies in it)."""

    def __init__(self, *options, step_us=0):
        self.dir = tempfile.mkdtemp(prefix="ls", dir="/dev/shm")
        self.pipeline = subprocess.Popen(
            [BUILD / "test" / "gw_pipeline_test", self.dir, str(step_us)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.options = options
        try:
            assert self.pipeline.stdout.readline() == b"ready\n"
            self.start()
        except BaseException:
            self.end_pipeline()
            raise

    def start(self):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [BUILD / "bin" / "lockstep-gateway", "--run-dir", self.dir, "--port", "0", *map(str, self.options)],
            stderr=self.log)
        until(lambda: self.port())

    def port(self):
        assert self.process.poll() is None, self.read_log()
        found = re.search(r"listening on \S+ port (\d+)", self.read_log())
        return int(found[1]) if found else None

    def read_log(self):
        return os.pread(self.log.fileno(), 1 << 20, 0).decode()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port()}"

    def request(self, method, path, body=None, headers=()):
        return exchange(self.port(), method, path, body, headers)

    def post(self, path, status=200, **body):
        got, _, data = self.request("POST", path, body)
        assert got == status, data
        return json.loads(data)

    def get(self, path, status=200):
        got, _, data = self.request("GET", path)
        assert got == status, data
        return data.decode()

    def stream(self, path, **body):
        """The events' JSON, and the raw text. The reply must end properly."""
        status, headers, data = self.request("POST", path, {"stream": True, **body})
        assert status == 200 and headers["Content-Type"].startswith("text/event-stream"), data
        return events_of(data.decode()), data.decode()

    def connect(self, receive_buffer=None):
        connection = socket.socket()
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", self.port()))
        return connection

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def open_stream(self, path, headers=(), receive_buffer=None, **body):
        """A socket on which the request has been sent."""
        connection = self.connect(receive_buffer)
        text = json.dumps(body).encode()
        fields = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": len(text), **dict(headers)}
        head = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        connection.sendall("\r\n".join(head).encode() + text)
        return connection

    def metric(self, name):
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.get("/metrics"), re.M)
        return float(found[1]) if found else None

    def busy(self, *but):
        stages = {"fill", "tokenize", "compute", "sample", "reclaim", "done"}.difference(but)
        return sum(self.metric(f'lockstep_slots{{stage="{stage}"}}') for stage in stages)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(15) == 0, self.read_log()

    def close(self):
        try:
            if self.process.poll() is None:
                self.stop()
            assert "ERROR" not in self.read_log() and "Sanitizer" not in self.read_log(), self.read_log()
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.end_pipeline()

    def end_pipeline(self):
        self.pipeline.stdin.close()
        self.pipeline.kill()
        self.pipeline.wait()
        self.pipeline.stdout.close()
        shutil.rmtree(self.dir, ignore_errors=True)


def events_of(text):
    assert text.endswith("\n\n")
    events = []
    for block in text[:-2].split("\n\n"):
        lines = [line for line in block.split("\n") if not line.startswith(":")]
        data = [line[6:] for line in lines if line.startswith("data: ")]
        if data:
            events.append(data[0] if data[0] == "[DONE]" else json.loads(data[0]))
    return events


def read_until(connection, end):
    text = b""
    while end not in text:
        piece = connection.recv(65536)
        assert piece, text
        text += piece
    return text


@contextlib.contextmanager
def gateway_with(*options, **more):
    server = Gateway(*options, **more)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def gateway():
    with gateway_with("--max-choices", 8) as server:
        yield server
        until(lambda: server.busy("done") == 0)


@pytest.fixture(scope="module")
def slow():
    with gateway_with("--keep-alive-s", 0.1, "--queue", 2, step_us=20000) as server:
        yield server
        until(lambda: server.busy("done") == 0)


# ---- a stream's events, as they were sent

def blocks_of(text):
    """The events as sent, without the head, the chunks' frames and comment lines."""
    body = re.sub(rb"\r\n[0-9a-f]+\r\n|^.*?\r\n\r\n[0-9a-f]+\r\n", b"", text, count=0, flags=re.S)
    return events_in(body.decode())


def events_in(text):
    return [block for block in re.sub(r"^:.*\n", "", text, flags=re.M).split("\n\n") if block.startswith(("id: ", "data: "))]


def id_of(block):
    return block.split("\n")[0].removeprefix("id: ")


def read_events(connection, n):
    """The first n whole events of a stream."""
    text = b""
    while text.count(b"\n\n\r\n") < n:
        piece = connection.recv(1)
        assert piece
        text += piece
    return blocks_of(text)[:n]


def whole_stream(server, headers=(), method="POST", path="/v1/completions", **body):
    status, _, data = server.request(method, path, body or None, headers)
    assert status == 200, data
    return events_in(data.decode())


def contents(blocks):
    """What a client makes of them: without ids, which name the request."""
    events = []
    for block in blocks:
        data = block.split("data: ", 1)[1]
        events.append(data if data == "[DONE]" else {**json.loads(data), "id": 0, "created": 0})
    return events
