"""The compose deployment on a real Docker engine of its own: built, scaled up and down, killed, stopped, while clients ask.
README.md tells what it needs and what it leaves behind (nothing but the base root's archive)."""

import json
import os
import signal
import subprocess
import time

import pytest

from api import until
from compose import IMAGE, ROLES, SUITE, Stack
from streams import COMPLETIONS, Load, Reply, ask, value, with_stops

SCALED = {"npu-worker": 3, "sampler": 2, "tokenizer": 2, "gateway": 2}
LARGEST_IMAGE_MB = 250


@pytest.fixture(scope="module")
def stack(engine, image):
    with Stack(engine).running() as stack:
        yield stack


@pytest.fixture(scope="module")
def truths(stack):
    """[(body, what it says)] while nothing happens."""
    return [(body, value(ask(stack, body).events)) for body in with_stops(stack)]


def test_the_image(engine, image, capsys):
    megabytes = image["Size"] / 1e6
    with capsys.disabled():
        print(f"\nimage: {megabytes:.0f} MB on {SUITE}")
    assert megabytes < LARGEST_IMAGE_MB
    assert image["Config"]["User"] == "10001:10001"
    assert "status" in engine.docker("run", "--rm", "--network", "none", "--read-only", IMAGE)
    for tool in ("gcc", "cmake", "curl"):
        done = subprocess.run(["docker", "run", "--rm", "--network", "none", IMAGE, tool], env=engine.env, capture_output=True)
        assert done.returncode == 127, f"{tool} is in the image"


def test_it_answers(stack):
    answer = stack.chat("What is the capital of France?", temperature=0)
    assert answer["choices"][0]["message"]["content"] == "The capital of France is Paris."
    until(lambda: all(c["State"]["Health"]["Status"] == "healthy" for role in ROLES for c in stack.containers(role)), 40, "health")


def test_what_containers_may(stack):
    for container in stack.containers():
        service, host = container["Config"]["Labels"]["com.docker.compose.service"], container["HostConfig"]
        assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"] and not host["Privileged"], service
        assert "no-new-privileges:true" in host["SecurityOpt"] and host["Memory"] > 0, service
        assert host["RestartPolicy"]["Name"] == "unless-stopped" and host["LogConfig"]["Config"]["max-size"], service
        assert bool(host["PortBindings"]) == (service == "haproxy"), service
        mounted = {mount["Destination"]: mount["RW"] for mount in container["Mounts"]}
        assert ("/run/lockstep-bulk" in mounted) == (service in ("keeper", "npu-worker", "sampler")), service
        assert not mounted.get("/model.gguf", False), f"{service} may write the model"


def test_scaled_and_killed_while_clients_ask(stack, truths):
    """Up, a worker and a sampler killed, down again; every answer is right and none is cut off."""
    with Load(stack, truths, 6) as load:
        stack.scale(SCALED)
        stack.wait_ready(SCALED)
        load.go_on(12)
        for role in ("npu-worker", "sampler", "tokenizer"):
            container = stack.kill(role)
            load.go_on(4)
            until(lambda: restarts(stack, container) == 1, 30, f"the {role}'s restart")
            stack.wait_ready(SCALED)
        load.go_on(12)
        busy = {line.split("{")[1].split(",")[0] for line in stack.get("/metrics").data.decode().splitlines()
                if line.startswith("lockstep_worker_steps_total{") and not line.endswith(" 0")}
        assert len(busy) >= 2, "one worker does it all"
        one = {role: 1 for role in SCALED}
        stack.scale(one)
        stack.wait_ready(one)
        load.go_on(6)
    until(lambda: stack.status()["slots"]["compute"] == 0, 20, "an idle pipeline")


def test_the_gateway_and_the_keeper_are_killed(stack, truths):
    """The socket is lost, the generation is not: the client comes back with its key and the last id, and has every byte once."""
    stack.scale({"gateway": 2})
    stack.wait_ready({"gateway": 2})
    for role in ("gateway", "keeper"):
        replies = [Reply(stack, "POST", COMPLETIONS, body, {"Idempotency-Key": f"{role}-{i}"}) for i, (body, _) in enumerate(truths)]
        assert all(reply.status == 200 and reply.read(4) for reply in replies)
        container = stack.kill(role)
        for i, (reply, (body, truth)) in enumerate(zip(replies, truths)):
            if not reply.read():
                assert role == "gateway"
                rest = until(lambda: come_back(stack, body, f"{role}-{i}", reply.events[-1][0]), 60, "another gateway")
                reply.events += rest
            reply.close()
            assert value(reply.events) == truth
        until(lambda: restarts(stack, container) == 1, 30, f"the {role}'s restart")
        stack.wait_ready({role: 1 for role in ROLES} | {"gateway": 2})


def test_a_frozen_gateway_gets_no_more_requests(stack, truths):
    """HAProxy's checks find out: what is asked goes to the other one. When it wakes it is back."""
    stack.scale({"gateway": 2})
    stack.wait_ready({"gateway": 2})
    body, truth = truths[0]
    pid = stack.containers("gateway")[0]["State"]["Pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        # Two checks of a second each, and half a second between them.
        time.sleep(4)
        for _ in range(8):
            began = time.monotonic()
            assert value(ask(stack, body).events) == truth
            assert time.monotonic() - began < 10
    finally:
        os.kill(pid, signal.SIGCONT)
    stack.wait_ready({"gateway": 2})


def come_back(stack, body, key, last):
    """The events after the last one that was read; None while no gateway answers."""
    try:
        reply = Reply(stack, "POST", COMPLETIONS, body, {"Idempotency-Key": key, "Last-Event-ID": last})
    except OSError:
        return None
    if reply.status == 503:
        return None
    assert reply.status == 200, reply.error
    whole = reply.read() and reply.ended
    reply.close()
    return reply.events if whole else None


def restarts(stack, container):
    return json.loads(stack.engine.docker("inspect", container))[0]["RestartCount"]


def test_stop_ends_everything_well(stack):
    stack.compose("stop")
    codes = {container["Name"]: container["State"]["ExitCode"] for container in stack.containers()}
    # HAProxy ends with 143 or 130 where it is asked by a signal; ours with 0.
    assert codes and all(code == 0 for name, code in codes.items() if "haproxy" not in name), codes


VOLUME_OPTIONS = ("-d", "local", "-o", "type=tmpfs", "-o", "device=tmpfs", "-o", "o=size=512m,mode=0700,uid=10001,gid=10001")


@pytest.fixture
def pipelines(engine, image):
    """Two projects on one network and with one volume of runs; the first has the published port."""
    engine.docker("network", "create", "lockstep-models")
    engine.docker("volume", "create", *VOLUME_OPTIONS, "lockstep-models")
    both = [Stack(engine, "compose.models.yaml", COMPOSE_PROJECT_NAME=f"{name}-1", LOCKSTEP_PIPELINE=f"{name}-1", LOCKSTEP_MODEL_NAME=name)
            for name in ("tiny", "other")]
    try:
        yield both
    except BaseException:
        print(*(stack.compose("logs", "--tail=15") for stack in both))
        raise
    finally:
        for stack in both:
            stack.compose("down", "-v", "--timeout", "5")
        engine.docker("network", "rm", "lockstep-models")
        engine.docker("volume", "rm", "lockstep-models")


def write_models(stack, text):
    """As docs/models-serving.md says it."""
    stack.compose("exec", "-T", "keeper", "sh", "-c", "cat >/run/lockstep/models.new && mv /run/lockstep/models.new /run/lockstep/models",
                  input=text)


def test_two_models_at_one_address(pipelines):
    tiny, other = pipelines
    tiny.compose("up", "-d", "keeper")
    write_models(tiny, "tiny tiny-1\nother other-1\ngpt-4o = other\n")
    tiny.compose("up", "-d")
    other.compose("up", "-d", "--scale", "haproxy=0")
    until(tiny.listens, 60, "HAProxy")
    until(lambda: tiny.request("GET", "/ready").status == 200, 120, "both models")
    # HAProxy goes round the gateways of both, so half of these are handed over.
    for name, served in (("tiny", "tiny"), ("other", "other"), ("gpt-4o", "other")) * 4:
        assert tiny.post(COMPLETIONS, model=name, prompt="One, two,", max_tokens=2)["model"] == served
    assert {model["id"] for model in tiny.get("/v1/models").json["data"]} == {"tiny", "other", "gpt-4o"}
    # One that stops doesn't take the other away, and a line in the file moves a name.
    other.compose("stop")
    assert tiny.post(COMPLETIONS, model="tiny", prompt="One, two,", max_tokens=2)["model"] == "tiny"
    write_models(tiny, "tiny tiny-1\ngpt-4o = tiny\n")
    assert tiny.post(COMPLETIONS, model="gpt-4o", prompt="One, two,", max_tokens=2)["model"] == "tiny"
