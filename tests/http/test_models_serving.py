"""Several models at one address (--models-file): each has a pipeline without a model and gateways of its own, all on one port.
The kernel gives a connection to any of the gateways, so every test asks often enough that both ways are gone: served where it
came, and handed over."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import openai
import pytest

from api import exchange, until

BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", "build/release")).resolve()
OFTEN = 12


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Run:
    """A pipeline and its gateways."""

    def __init__(self, group, folder, name, step_us=0, gateways=1):
        self.group, self.dir, self.gateways = group, group.dir / folder, {}
        self.pipeline = subprocess.Popen([BUILD / "test/gw_pipeline_test", self.dir, str(step_us), name, f"ls_{folder}"],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        group.runs.append(self)
        assert self.pipeline.stdout.readline() == b"ready\n"
        for instance in range(gateways):
            self.start(instance)

    def start(self, instance):
        log = open(self.group.dir / f"{self.dir.name}-{instance}.log", "ab")
        with log:
            self.gateways[instance] = subprocess.Popen(
                [BUILD / "bin/lockstep-gateway", "--run-dir", self.dir, "--instance", str(instance), "--port", str(self.group.port),
                 "--models-file", self.group.models, *self.group.options], stderr=log)
        until(lambda: self.is_ready(instance), 20, "a gateway")

    def is_ready(self, instance):
        assert self.gateways[instance].poll() is None, self.group.log(self, instance)
        done = subprocess.run([BUILD / "bin/lockstep", "health", "gateway", "--instance", str(instance), "--run-dir", self.dir,
                               "--stall-ms", "30000"], capture_output=True)
        return done.returncode == 0

    def kill(self, instance=0):
        process = self.gateways.pop(instance)
        process.kill()
        process.wait()

    def stop(self):
        """From the outside in, as deploy/down does it."""
        for process in self.gateways.values():
            process.send_signal(signal.SIGTERM)
        for process in self.gateways.values():
            assert process.wait(40) == 0
        self.gateways.clear()
        self.end_pipeline()

    def end_pipeline(self):
        self.pipeline.stdin.close()
        self.pipeline.wait(10)
        shutil.rmtree(self.dir, ignore_errors=True)


class Group:
    def __init__(self, *options):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ls", dir="/dev/shm"))
        self.models, self.port, self.options, self.runs = self.dir / "models", free_port(), options, []

    def write(self, text):
        new = self.dir / "models.new"
        new.write_text(text)
        new.rename(self.models)

    def log(self, run, instance=0):
        return (self.dir / f"{run.dir.name}-{instance}.log").read_text()

    def request(self, method, path, body=None, headers=()):
        return exchange(self.port, method, path, body, headers)

    def ask(self, status=200, headers=(), **body):
        got, _, data = self.request("POST", "/v1/completions", {"max_tokens": 64, **body}, headers)
        assert got == status, data
        return json.loads(data)

    def get(self, path, status=200):
        got, _, data = self.request("GET", path)
        assert got == status, (got, data)
        return json.loads(data)

    def remove(self):
        for run in self.runs:
            for process in run.gateways.values():
                process.kill()
                process.wait()
            run.pipeline.kill()
            run.pipeline.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


@contextlib.contextmanager
def group_of(*options, step_us=0, gateways=1):
    group = Group(*options)
    group.write("tiny  tiny-1\ncoder  coder-1\ngpt-4o = coder\n")
    try:
        Run(group, "tiny-1", "tiny", step_us, gateways)
        Run(group, "coder-1", "coder", step_us, gateways)
        yield group
    finally:
        group.remove()


@pytest.fixture(scope="module")
def group():
    with group_of() as group:
        yield group


def test_routing_by_model(group):
    for _ in range(OFTEN):
        for name, served in (("tiny", "tiny"), ("coder", "coder"), ("gpt-4o", "coder")):
            answer = group.ask(model=name, prompt="hello")
            assert answer["model"] == served and answer["choices"][0]["text"] == "hello"
        # No name: the first of the file.
        assert group.ask(prompt="x")["model"] == "tiny"


def test_unknown_model_is_404_everywhere(group):
    for _ in range(OFTEN):
        answer = group.ask(404, model="nobody", prompt="x")["error"]
        assert answer["code"] == "model_not_found" and answer["param"] == "model"
        assert "tiny, coder, gpt-4o" in answer["message"]
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{group.port}/v1", api_key="none", max_retries=0)
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="nobody", messages=[{"role": "user", "content": "x"}])


def test_pages_list_all(group):
    for _ in range(OFTEN):
        assert [model["id"] for model in group.get("/v1/models")["data"]] == ["tiny", "coder", "gpt-4o"]
        assert group.get("/v1/models/gpt-4o")["max_model_len"] == 512
        assert group.get("/v1/models/nobody", 404)["error"]["code"] == "model_not_found"
        assert [model["name"] for model in group.get("/api/tags")["models"]] == ["tiny", "coder", "gpt-4o"]
        assert [model["name"] for model in group.get("/api/ps")["models"]] == ["tiny", "coder", "gpt-4o"]
        assert group.get("/ready") == {"status": "ok", "models": {"tiny": "ready", "coder": "ready", "gpt-4o": "ready"}}
        assert group.get("/ready?model=coder") == {"status": "ok"}
        # A check for a model that isn't there must not be green; other words of a query mean nothing.
        for path in ("/ready", "/status", "/metrics", "/v1/requests"):
            assert group.get(f"{path}?model=nobody", 404)["error"]["code"] == "model_not_found"
        assert group.get("/ready?from=balancer") == group.get("/ready")
        for name in ("tiny", "coder"):
            assert group.get(f"/status?model={name}")["model"] == name
        assert group.get("/status")["model"] == "tiny" and group.get("/status")["models"]["coder"] == "ready"
        show = json.loads(group.request("POST", "/api/show", {"model": "coder:latest"})[2])
        assert show["model_info"]["general.name"] == "coder"


def test_one_connection_for_all_models(group):
    """Kept alive, it goes from process to process; pipelined requests go along."""
    connection = http.client.HTTPConnection("127.0.0.1", group.port, timeout=20)
    for i in range(OFTEN):
        name = ("tiny", "coder")[i % 2]
        connection.request("POST", "/v1/completions", json.dumps({"model": name, "prompt": f"{i}!"}))
        answer = json.loads(connection.getresponse().read())
        assert answer["model"] == name and answer["choices"][0]["text"] == f"{i}!"
    connection.close()
    body = [json.dumps({"model": name, "prompt": name}) for name in ("tiny", "coder", "coder", "tiny")]
    with socket.create_connection(("127.0.0.1", group.port), 20) as raw:
        raw.sendall("".join(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{'Connection: close' if i == 3 else 'X: y'}\r\n"
                            f"Content-Length: {len(text)}\r\n\r\n{text}" for i, text in enumerate(body)).encode())
        got = b"".join(iter(lambda: raw.recv(65536), b"")).decode()
    assert [part.split('"')[0] for part in got.split('"model":"')[1:]] == ["tiny", "coder", "coder", "tiny"]


def test_large_and_chunked_bodies(group):
    """What is handed over is put together again: any framing, any path that had to be encoded."""
    for name in ("tiny", "coder"):
        text = json.dumps({"model": name, "prompt": "x" * 400, "user": "y" * 500}) + " " * 2_000_000
        connection = http.client.HTTPConnection("127.0.0.1", group.port, timeout=20)
        for _ in range(OFTEN // 2):
            pieces = [text[at:at + 300_000].encode() for at in range(0, len(text), 300_000)]
            connection.request("POST", "/v1/%63ompletions?a=b", iter(pieces), {"Transfer-Encoding": "chunked"}, encode_chunked=True)
            answer = json.loads(connection.getresponse().read())
            assert answer["model"] == name and answer["choices"][0]["text"].startswith("xxx")
        connection.close()


def test_streams_come_back_from_any_gateway(group):
    for _ in range(OFTEN):
        key = f"key-{time.monotonic_ns()}"
        status, _, data = group.request("POST", "/v1/completions", {"model": "coder", "prompt": "abc", "stream": True},
                                        {"Idempotency-Key": key})
        events = data.decode().split("\n\n")
        first = events[0].split("id: ")[1].split("\n")[0]
        assert status == 200 and '"model":"coder"' in events[0]
        status, _, rest = group.request("GET", f"/v1/streams/{first}")
        assert status == 200 and rest.decode() == "\n\n".join(events[1:])
        again = group.request("POST", "/v1/completions", {"model": "coder", "prompt": "abc", "stream": True},
                              {"Idempotency-Key": key})
        assert again[2] == data


def test_kept_responses_are_found(group):
    for _ in range(OFTEN):
        made = json.loads(group.request("POST", "/v1/responses", {"model": "coder", "input": "hi"})[2])
        if made.get("error"):
            pytest.skip(str(made["error"]))
        assert json.loads(group.request("GET", f"/v1/responses/{made['id']}")[2])["id"] == made["id"]
        assert group.request("DELETE", f"/v1/responses/{made['id']}")[0] == 200


def test_a_dead_gateway_of_one_model():
    """The other model goes on; who asks for the dead one waits for its successor; the pages say it."""
    with group_of("--no-worker-s", "30") as group, concurrent.futures.ThreadPoolExecutor() as pool:
        _, coder = group.runs
        coder.kill()
        until(lambda: group.get("/ready", 503)["models"] == {"tiny": "ready", "coder": "no gateway", "gpt-4o": "no gateway"}, 10, "")
        for _ in range(OFTEN):
            assert group.ask(model="tiny", prompt="x")["model"] == "tiny"
        waits = [pool.submit(group.ask, model="gpt-4o", prompt=str(i)) for i in range(OFTEN)]
        time.sleep(0.5)
        assert not any(wait.done() for wait in waits)
        coder.start(0)
        assert [wait.result()["choices"][0]["text"] for wait in waits] == [str(i) for i in range(OFTEN)]
        assert group.get("/ready")["status"] == "ok"


def test_nobody_comes():
    with group_of("--no-worker-s", "0.5") as group:
        group.runs[1].kill()
        error = group.ask(503, model="coder", prompt="x")["error"]
        assert error["code"] == "no_worker" and "no gateway" in error["message"]


def test_a_kill_in_a_stream_of_each_model():
    """Two streams, one gateway of each model killed in the middle: each goes on at the other gateway of its run, whatever
    gateway the client finds."""
    with group_of(step_us=20000, gateways=2) as group:
        whole = {name: group.request("POST", "/v1/completions", {"model": name, "prompt": "0123456789", "stream": True, "seed": 1})[2]
                 for name in ("tiny", "coder")}
        for name, run in zip(("tiny", "coder"), group.runs):
            text = lambda data: [json.loads(line[6:])["choices"][0]["text"] for line in data.decode().split("\n")  # noqa: E731
                                 if line.startswith("data: {")]
            connection = http.client.HTTPConnection("127.0.0.1", group.port, timeout=20)
            connection.request("POST", "/v1/completions", json.dumps({"model": name, "prompt": "0123456789", "stream": True, "seed": 1}),
                               {"Idempotency-Key": f"kill-{name}"})
            response = connection.getresponse()
            head = b"".join(response.readline() for _ in range(9))
            serving = next(i for i, process in run.gateways.items() if holds(process.pid, connection.sock))
            run.kill(serving)
            with contextlib.suppress(http.client.HTTPException, OSError):
                response.read()
            last = [line[4:] for line in head.decode().split("\n") if line.startswith("id: ")][-1]
            kept = head[:head.rindex(b"\n\n") + 2] if b"\n\n" in head else b""
            status, _, rest = group.request("GET", f"/v1/streams/{last}")
            assert status == 200, rest
            assert "".join(text(kept) + text(rest)) == "".join(text(whole[name])) == "0123456789"
            run.start(serving)


def holds(pid, sock):
    """Does the process have the server's end of this connection?"""
    port = sock.getsockname()[1]
    inodes = {line.split()[9] for line in open("/proc/net/tcp").read().split("\n")[1:]
              if line and int(line.split()[2].split(":")[1], 16) == port}
    links = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return any(f"socket:[{inode}]" in links for inode in inodes)


def test_swap_under_load_loses_nothing():
    """Another pipeline for a name: what runs ends where it began, what comes goes to the new one, ids and keys find their own,
    and the old one leaves. Not one request fails."""
    with group_of(step_us=2000) as group, concurrent.futures.ThreadPoolExecutor(8) as pool:
        old, ending, seen = group.runs[1], [], []

        def load(worker):
            i = 0
            while not ending:
                i += 1
                body = {"model": ("coder", "gpt-4o", "tiny")[i % 3], "prompt": f"{worker}-{i}", "stream": i % 2 == 0}
                status, _, data = group.request("POST", "/v1/completions", body)
                assert status == 200, data
                seen.append((body["model"], data.decode()))

        def kept_alive(worker):
            """One connection for all, which no end of a gateway may close."""
            connection, i = http.client.HTTPConnection("127.0.0.1", group.port, timeout=20), 0
            connection.connect()
            first = connection.sock
            while not ending:
                i += 1
                connection.request("POST", "/v1/completions", json.dumps({"model": ("coder", "tiny")[i % 2], "prompt": f"{worker}-{i}"}))
                response = connection.getresponse()
                data = response.read()
                assert response.status == 200, data
                if connection.sock is not first:  # an answer said "Connection: close": that was while its gateway was ending
                    connection.connect()
                    first = connection.sock
                seen.append((("coder", "tiny")[i % 2], data.decode()))
            connection.close()

        loads = [pool.submit(load, worker) for worker in range(3)] + [pool.submit(kept_alive, worker) for worker in "ab"]
        long = pool.submit(group.ask, model="coder", prompt="L" * 200, max_tokens=200, headers={"Idempotency-Key": "long"})
        until(lambda: len(seen) > 20, 60, "some answers")
        Run(group, "coder-2", "coder", 2000)
        group.write("tiny tiny-1\ncoder coder-2\ncoder-1 coder-1 unlisted\ngpt-4o = coder\n")
        switched = len(seen) + len(loads)  # those on the way
        assert group.ask(model="coder", prompt="new")["system_fingerprint"] == "ls_coder-2"
        first = long.result()
        assert first["system_fingerprint"] == "ls_coder-1"
        again = group.ask(model="coder", prompt="L" * 200, max_tokens=200, headers={"Idempotency-Key": "long"})
        assert again == first
        assert [model["id"] for model in group.get("/v1/models")["data"]] == ["tiny", "coder", "gpt-4o"]
        until(lambda: len(seen) > switched + 20, 60, "more answers")
        old.stop()
        group.write("tiny tiny-1\ncoder coder-2\ngpt-4o = coder\n")
        left = len(seen)
        until(lambda: len(seen) > left + 20, 60, "more answers")
        ending.append(True)
        for worker in loads:
            worker.result()
        for name, data in seen[switched:]:
            assert "ls_coder-1" not in data
        assert any("ls_coder-1" in data for _, data in seen[:switched])
        assert any("ls_coder-2" in data for name, data in seen if name == "gpt-4o")


def test_a_bad_file_changes_nothing(group):
    good = group.models.read_text()
    group.write("tiny tiny-1\ncoder = nowhere\n")
    for _ in range(OFTEN):
        assert group.ask(model="coder", prompt="x")["model"] == "coder"
    until(lambda: all("line 2: coder = nowhere" in group.log(run) for run in group.runs), 10, "warnings")
    group.write(good)
    assert group.ask(model="gpt-4o", prompt="x")["model"] == "coder"


def test_a_bad_file_at_start_is_refused(tmp_path):
    with group_of() as group:
        group.write("tiny\n")
        done = subprocess.run([BUILD / "bin/lockstep-gateway", "--run-dir", group.runs[0].dir, "--port", "0", "--models-file", group.models],
                              capture_output=True, text=True, timeout=20)
        assert done.returncode == 78 and "line 1: behind tiny stands its run directory" in done.stderr
