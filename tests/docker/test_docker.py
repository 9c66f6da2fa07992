"""The compose deployment on a real Docker engine of its own: built, scaled up and down, killed, stopped, while clients ask.
README.md tells what it needs and what it leaves behind (nothing but the base root's archive)."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import pytest

from api import Api, until
from pipeline import model_path
from streams import COMPLETIONS, Load, Reply, ask, value, with_stops

REPO = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "lockstep/docker-base"
SUITE = "trixie"
BASE_IMAGE, IMAGE, PROJECT = f"lockstep-base:{SUITE}", "lockstep:test", "lockstep-test"
ROLES = ("keeper", "tokenizer", "npu-worker", "sampler", "gateway")
SCALED = {"npu-worker": 3, "sampler": 2, "tokenizer": 2, "gateway": 2}
LARGEST_IMAGE_MB = 250


def run(*words, env=None, timeout=120, good=(0,), **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=timeout, env=env, **more)
    assert done.returncode in good, (words, done.stdout[-2000:], done.stderr[-3000:])
    return done.stdout


def base_root():
    """A Debian root as an archive, made once; in a temporary folder first, so that a broken one is never found."""
    archive = CACHE / f"{SUITE}.tar"
    if not archive.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir="/var/tmp") as work:
            run("debootstrap", "--variant=minbase", SUITE, f"{work}/root", timeout=900)
            run("tar", "-C", f"{work}/root", "-cf", f"{archive}.new", ".", timeout=300)
        os.rename(f"{archive}.new", archive)
    return archive


class Engine:
    """A dockerd with socket and data of its own; after close() nothing of it is there."""

    def __init__(self):
        # Not in memory, and not on an overlay: the data root's file system must be able to carry one.
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ls-docker-", dir="/var/tmp"))
        self.env = {**os.environ, "DOCKER_HOST": f"unix://{self.dir}/socket", "DOCKER_BUILDKIT": "0", "COMPOSE_PROJECT_NAME": PROJECT,
                    "DOCKER_CONFIG": str(self.dir / "config")}
        self.env.pop("DOCKER_CONTEXT", None)
        self.log_path = self.dir / "log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                ["dockerd", "--host", f"unix://{self.dir}/socket", "--data-root", self.dir / "data", "--exec-root", self.dir / "exec",
                 "--pidfile", self.dir / "pid", "--bridge", "none"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env)

    def start(self):
        """None, or why it can't."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if self.process.poll() is not None:
                return self.log_path.read_text(errors="replace")[-1500:]
            if subprocess.run(["docker", "info"], env=self.env, capture_output=True, timeout=60).returncode == 0:
                return None
            time.sleep(0.3)
        return "dockerd does not answer: " + self.log_path.read_text(errors="replace")[-1500:]

    def docker(self, *words, **more):
        return run("docker", *words, env=self.env, **more)

    def close(self):
        if self.process.poll() is None:
            for container in self.docker("ps", "-aq").split():
                self.docker("rm", "-f", "-v", container)
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        mounts = [line.split()[1] for line in pathlib.Path("/proc/mounts").read_text().splitlines() if f"{self.dir}/" in line]
        for mount in reversed(mounts):
            subprocess.run(["umount", "-l", mount], check=False)
        shutil.rmtree(self.dir)


@pytest.fixture(scope="module")
def engine():
    missing = [name for name in ("dockerd", "docker", "docker-compose", "debootstrap") if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        pytest.skip(f"NO DOCKER TESTS HERE: {'missing ' + ', '.join(missing) if missing else 'they need root'} (tests/docker/README.md)")
    engine = Engine()
    try:
        if why := engine.start():
            pytest.skip(f"NO DOCKER TESTS HERE: a Docker engine can't run: {why}")
        yield engine
    finally:
        engine.close()


@pytest.fixture(scope="module")
def image(engine):
    """What git knows of this folder, as it is now, on a Debian of our own."""
    with open(base_root(), "rb") as archive:
        engine.docker("import", "-", BASE_IMAGE, stdin=archive, timeout=300)
    files = subprocess.Popen("git ls-files -z | tar --null --ignore-failed-read -T - -c", cwd=REPO, shell=True, stdout=subprocess.PIPE)
    with files.stdout:
        engine.docker("build", "--network", "host", "--build-arg", f"BASE={BASE_IMAGE}", "-f", "deploy/Dockerfile", "-t", IMAGE, "-",
                      stdin=files.stdout, timeout=1500)
    assert files.wait() == 0
    return json.loads(engine.docker("image", "inspect", IMAGE))[0]


class Stack(Api):
    def __init__(self, engine, *more_files, **more_env):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            super().__init__(listener.getsockname()[1])
        self.engine = engine
        self.files = [word for name in ("compose.yaml", *more_files) for word in ("-f", REPO / "deploy" / name)]
        self.env = {**engine.env, "LOCKSTEP_MODEL": str(model_path().resolve()), "LOCKSTEP_PORT": str(self.port), "LOCKSTEP_IMAGE": IMAGE,
                    "LOCKSTEP_CTX": "2048", "LOCKSTEP_THREADS": "1", "LOCKSTEP_BULK_SIZE": "2g", **more_env}

    def compose(self, *words, **more):
        return run("docker-compose", *self.files, *words, env=self.env, timeout=300, **more)

    def scale(self, counts):
        self.compose("up", "-d", *(word for role, n in counts.items() for word in ("--scale", f"{role}={n}")))

    def containers(self, role=None):
        """What Docker knows of each container (of a role)."""
        ids = self.compose("ps", "-a", "-q", *([role] if role else [])).split()
        return json.loads(self.engine.docker("inspect", *ids)) if ids else []

    def status(self):
        """As a process of the pipeline sees it; 75: not ready yet."""
        keeper = self.containers("keeper")[0]["Id"]
        return json.loads(self.engine.docker("exec", keeper, "lockstep", "status", "--json", good=(0, 75)))

    def ready(self, role):
        return sum(process["role"] == role and process["state"] == "ready" for process in self.status()["processes"])

    def wait_ready(self, counts):
        until(lambda: all(self.ready(role) == n for role, n in counts.items()), 90, f"readiness of {counts}")
        until(lambda: self.request("GET", "/ready").status == 200, 30, "/ready")

    def kill(self, role):
        """From the host and not by Docker, which would take it for the user's wish and not start it again."""
        container = self.containers(role)[0]
        os.kill(container["State"]["Pid"], signal.SIGKILL)
        return container["Id"]


@pytest.fixture(scope="module")
def stack(engine, image):
    stack = Stack(engine)
    try:
        stack.compose("up", "-d")
        until(lambda: listens(stack), 60, "HAProxy")
        stack.wait_ready({role: 1 for role in ROLES})
        yield stack
    except BaseException:
        print(stack.compose("logs", "--tail=15"))
        raise
    finally:
        stack.compose("down", "-v", "--timeout", "5")
        assert not engine.docker("ps", "-aq").split() and not engine.docker("volume", "ls", "-q").split()


def listens(stack):
    try:
        return stack.request("GET", "/live").status
    except OSError:
        return None


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
    until(lambda: listens(tiny), 60, "HAProxy")
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
