"""The configuration is read again while the gateway serves (SIGHUP, lockstep reload), before a pipeline without a model."""

import os
import signal
import subprocess

import pytest

from api import until
from test_models_serving import BUILD, Group, Run

KEY, OTHER = "sk-aaaaaaaaaaaaaaaaaaaa", "sk-bbbbbbbbbbbbbbbbbbbb"


class Reloaded(Group):
    """One run whose gateway has a configuration file."""

    def __init__(self):
        super().__init__()
        self.file = self.dir / "lockstep.conf"
        self.file.write_text("strict = false\n")
        self.options = ("--config", self.file, "--keep-s", "60")
        self.write("echo run\n")
        self.run = Run(self, "run", "echo")

    def reload(self, text, status=0):
        self.file.write_text(text)
        done = subprocess.run([BUILD / "bin/lockstep", "reload", "gateway", "--run-dir", self.run.dir], capture_output=True, text=True, timeout=60)
        assert done.returncode == status, done
        return sorted(line.removeprefix("gateway 0: ") for line in done.stdout.splitlines())


@pytest.fixture
def served():
    group = Reloaded()
    try:
        yield group
    finally:
        group.remove()


def test_what_may_change_is_applied(served):
    assert served.ask(prompt="x", unknown=1)["model"] == "echo"
    assert served.reload("strict = true\nlog-level = debug\nmodel-aliases = one,two\ncors-origins = https://a.example\n") == [
        "applied cors-origins: (empty) -> https://a.example", "applied log-level: info -> debug",
        "applied model-aliases: (empty) -> one,two", "applied strict: false -> true"]
    assert served.ask(400, prompt="x", unknown=1)["error"]["param"] == "unknown"
    assert served.ask(prompt="x", model="two")["model"] == "echo"
    _, headers, _ = served.request("GET", "/v1/models", headers={"Origin": "https://a.example"})
    assert headers["Access-Control-Allow-Origin"] == "https://a.example"
    assert '"level":"debug"' in served.log(served.run)
    # Back to the defaults.
    assert len(served.reload("")) == 4 and served.reload("") == ["nothing has changed"]
    assert served.ask(prompt="x", unknown=1)["model"] == "echo"


def test_what_may_not_is_refused_by_name(served):
    lines = served.reload("host = 0.0.0.0\nstall-ms = 5000\nstrict = true\n", 78)
    assert "refused host: 127.0.0.1 -> 0.0.0.0" in lines and "refused stall-ms: 1000 -> 5000" in lines
    assert "--host stays \\\"127.0.0.1\\\"" in served.log(served.run)
    assert served.ask(400, prompt="x", unknown=1)


def test_flags_are_stronger_than_the_file(served):
    assert served.reload("keep-s = 5\n") == ["nothing has changed"]


def test_a_bad_file_leaves_the_old_in_force(served):
    served.reload("strict = true\n")
    for text, said in (("strict = perhaps\nqueue = 3\n", "strict"), ("queue = 99999\n", "queue"), ("what\n", "line 1"),
                       (f"strict = false\napi-keys = {served.dir}/nothing\n", "cannot open")):
        line, = served.reload(text, 78)
        assert line.startswith("failed ") and said in line
        assert served.ask(400, prompt="x", unknown=1)["error"]["param"] == "unknown"
        assert served.ask(prompt="x")["model"] == "echo"


def test_keys_come_change_and_go(served):
    keys, more = served.dir / "keys", served.dir / "more"
    keys.write_text(f"alice {KEY}\n")
    more.write_text(f"bob {OTHER}\n")
    os.chmod(keys, 0o600), os.chmod(more, 0o600)
    served.reload(f"api-keys = {keys}\n")
    assert served.ask(401, prompt="x") and served.ask(prompt="x", headers={"Authorization": f"Bearer {KEY}"})
    served.reload(f"api-keys = {more}\n")
    assert served.ask(401, prompt="x", headers={"Authorization": f"Bearer {KEY}"})
    assert served.ask(prompt="x", headers={"Authorization": f"Bearer {OTHER}"})
    # A bad one: the good one stays.
    more.write_text("bob\n")
    served.reload(f"api-keys = {keys}\nqueue = 0.5\n", 78)
    assert served.ask(prompt="x", headers={"Authorization": f"Bearer {OTHER}"})
    served.reload("")
    assert served.ask(prompt="x")["model"] == "echo"


def test_streams_go_on(served):
    """A reload in the middle of answers."""
    before = served.request("POST", "/v1/completions", {"prompt": "y" * 100, "max_tokens": 200, "seed": 1})[2]
    for _ in range(3):
        os.kill(served.run.gateways[0].pid, signal.SIGHUP)
    until(lambda: served.log(served.run).count("reading the configuration again") >= 1, 10, "a reload")
    after = served.request("POST", "/v1/completions", {"prompt": "y" * 100, "max_tokens": 200, "seed": 1})[2]
    assert before.split(b'"text"')[1].split(b"}")[0] == after.split(b'"text"')[1].split(b"}")[0]
