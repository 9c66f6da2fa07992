"""Several models at once and a model changed while it serves, from outside, as a user does it: deploy/up, deploy/models, down.
Two real models; requests run all the while, and none of them may fail."""

import concurrent.futures
import contextlib
import json
import os
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from test_deploy import BUILD, DEPLOY, assert_refused, free_port, place, real_model, run  # noqa: F401

OTHER = "gemma-3-270m-Q4_K_M.gguf"


def other_model():
    path = real_model().parent / OTHER
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


class Server:
    def __init__(self, place, *words):  # noqa: F811
        self.place, self.port = place, free_port()
        done = run(DEPLOY / "up", *words, "--port", self.port, "--ctx", 512, "--slots", 4, "--kept", 16, "--stall-ms", 30000, env=place)
        assert done.returncode == 0, done.stdout + done.stderr

    def models(self, *words):
        return run(DEPLOY / "models", *words, env=self.place)

    def request(self, path, body=None, headers=()):
        """(status, JSON or text)"""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode() if body else None,
                                         {"Content-Type": "application/json", **dict(headers)})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def complete(self, model, prompt, headers=(), **more):
        body = {"prompt": prompt, "temperature": 0, "ignore_eos": True, **({"model": model} if model else {}), **more}
        status, text = self.request("/v1/completions", body, headers)
        assert status == 200, text
        return text

    def text(self, *args, **more):
        return json.loads(self.complete(*args, **more))["choices"][0]["text"]

    def fingerprint(self, *args, **more):
        return json.loads(self.complete(*args, **more))["system_fingerprint"]


@contextlib.contextmanager
def load(server, *models):
    """Clients that ask one request after the other, streams too, until the block ends; yields the list of (model, answer)."""
    ending, seen = [], []

    def client(model, stream):
        while not ending:
            seen.append((model, server.complete(model, "The sky", stream=stream, max_tokens=12)))

    with concurrent.futures.ThreadPoolExecutor() as pool:
        clients = [pool.submit(client, model, stream) for model in models for stream in (False, True)]
        try:
            yield seen
        finally:
            ending.append(True)
        for each in clients:
            each.result()


def test_two_models_one_swapped_under_load(place):  # noqa: F811
    server = Server(place, "--model", f"small={real_model()}", "--model", f"base={other_model()}")
    one, other = server.fingerprint("small", "x", max_tokens=1), server.fingerprint("base", "x", max_tokens=1)
    assert one != other and server.fingerprint(None, "x", max_tokens=1) == one
    assert server.models("alias", "gpt-4o", "small").returncode == 0
    status, text = server.request("/v1/completions", {"model": "none", "prompt": "x"})
    assert status == 404 and json.loads(text)["error"]["code"] == "model_not_found" and "small, base, gpt-4o" in text
    states = {"small": "ready", "base": "ready", "gpt-4o": "ready"}
    assert json.loads(server.request("/ready")[1])["models"] == states
    assert run(BUILD / "bin/lockstep", "status", env=place).stdout.count("ready: ") == 2

    want = {model: server.text(model, "The sky", max_tokens=40) for model in ("small", "base")}
    with load(server, "small", "base", "gpt-4o") as seen:
        # The device owner of one model is killed: both go on, and say the same.
        for folder, model in (("small-1", "small"), ("base-1", "base")):
            pid = int(run("s6-svstat", "-o", "pid", f"{place['LOCKSTEP_RUN_DIR']}/{folder}/s6/npu-worker-0").stdout)
            with concurrent.futures.ThreadPoolExecutor() as pool:
                answers = [pool.submit(server.text, each, "The sky", max_tokens=40) for each in ("small", "base")]
                time.sleep(0.2)
                os.kill(pid, signal.SIGKILL)
                assert [answer.result() for answer in answers] == [want["small"], want["base"]], model
        before = len(seen)
        kept = server.complete("small", "Once upon", {"Idempotency-Key": "k"}, max_tokens=30)
        done = server.models("swap", "small", other_model(), "--linger-s", 8)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "small is served by small-2 now" in done.stdout and "small-1 has ended" in done.stdout
        assert len(seen) > before
    assert server.fingerprint("small", "x", max_tokens=1) == server.fingerprint("gpt-4o", "x", max_tokens=1) == other
    assert kept and not Path(place["LOCKSTEP_RUN_DIR"], "small-1").exists()
    assert {name for name, _ in seen} == {"small", "base", "gpt-4o"}

    assert_refused(server.models("swap", "none", other_model()), 64, "no model none", "deploy/models list")
    done = server.models("swap", "small", "/no/such.gguf")
    assert done.returncode == 75 and "/no/such.gguf" in done.stderr and "nothing has changed" in done.stderr
    assert json.loads(server.request("/ready")[1])["models"] == states
    assert_refused(server.models("remove", "small"), 64, "other names")
    assert server.models("remove", "base", "--linger-s", 0).returncode == 0
    assert sorted(json.loads(server.request("/ready")[1])["models"]) == ["gpt-4o", "small"]
    done = run(DEPLOY / "down", env=place)
    assert done.returncode == 0 and not Path(place["LOCKSTEP_RUN_DIR"]).exists(), done.stdout + done.stderr
    assert not run("pgrep", "-f", place["LOCKSTEP_RUN_DIR"]).stdout.strip()


def test_ids_find_the_old_pipeline(place):  # noqa: F811
    """After a swap, as long as the old one lingers: its idempotency keys and streams; and a new request gets the new model."""
    server = Server(place, "--model", f"small={real_model()}")
    key = {"Idempotency-Key": "k"}
    kept = server.complete("small", "Once upon", key, max_tokens=30, stream=True)
    first = kept.split("id: ")[1].split("\n")[0]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        swap = pool.submit(server.models, "swap", "small", other_model(), "--linger-s", 12)
        while "small small-2" not in Path(place["LOCKSTEP_RUN_DIR"], "models").read_text():
            assert not swap.done(), swap.result()
            time.sleep(0.1)
        assert server.complete("small", "Once upon", key, max_tokens=30, stream=True) == kept
        status, rest = server.request(f"/v1/streams/{first}")
        assert status == 200 and kept.endswith(rest) and rest
        assert server.complete("small", "Once upon", max_tokens=30, stream=True) != kept
        assert swap.result().returncode == 0, swap.result()
    assert server.request(f"/v1/streams/{first}")[0] == 410


def test_a_configuration_file_is_read_again(place, tmp_path):  # noqa: F811
    file = tmp_path / "lockstep.conf"
    file.write_text("log-level = info\n")
    done = run(DEPLOY / "up", "--port", free_port(), "--config", file, env=place)
    assert done.returncode == 0, done.stdout + done.stderr
    file.write_text("log-level = debug\nqueue = 9\nkv-tokens = 4096\n")
    done = run(BUILD / "bin/lockstep", "reload", env=place)
    lines = done.stdout.splitlines()
    assert done.returncode == 78 and sum(line.endswith("applied log-level: info -> debug") for line in lines) == 5, done
    assert "gateway 0: applied queue: 256 -> 9" in lines
    assert any(line.startswith("keeper 0: refused kv-tokens: ") for line in lines), lines
    file.write_text("log-level = loud\n")
    done = run(BUILD / "bin/lockstep", "reload", env=place)
    assert done.returncode == 78 and done.stdout.count(": failed --log-level") == 5
