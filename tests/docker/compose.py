"""A Docker engine of its own, the images of deploy/ on a Debian of its own, and deploy/compose.yaml on them."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

from api import Api, free_port, until
from pipeline import model_path

REPO = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "lockstep/docker-base"
SUITE = "trixie"
BASE_IMAGE, IMAGE, NPU_IMAGE, PROJECT = f"lockstep-base:{SUITE}", "lockstep:test", "lockstep:test-npu", "lockstep-test"
ROLES = ("keeper", "tokenizer", "npu-worker", "sampler", "gateway")


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

    def build(self, dockerfile, tag, *more):
        """What git knows of this folder, as it is now, on a Debian of our own."""
        files = subprocess.Popen("git ls-files -z | tar --null --ignore-failed-read -T - -c", cwd=REPO, shell=True, stdout=subprocess.PIPE)
        with files.stdout:
            self.docker("build", "--network", "host", "--build-arg", f"BASE={BASE_IMAGE}", *more, "-f", dockerfile, "-t", tag, "-",
                        stdin=files.stdout, timeout=1500)
        assert files.wait() == 0
        return json.loads(self.docker("image", "inspect", tag))[0]

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


class Stack(Api):
    def __init__(self, engine, *more_files, **more_env):
        super().__init__(free_port())
        self.engine = engine
        self.files = [word for name in ("compose.yaml", *more_files) for word in ("-f", REPO / "deploy" / name)]
        self.env = {**engine.env, "LOCKSTEP_MODEL": str(model_path().resolve()), "LOCKSTEP_PORT": str(self.port), "LOCKSTEP_IMAGE": IMAGE,
                    "LOCKSTEP_CTX": "2048", "LOCKSTEP_THREADS": "1", "LOCKSTEP_BULK_SIZE": "2g", **more_env}

    def compose(self, *words, **more):
        return run("docker-compose", *self.files, *words, env=self.env, timeout=300, **more)

    @contextlib.contextmanager
    def running(self):
        """Up and ready with one of each; down at the end, with nothing left."""
        try:
            self.compose("up", "-d")
            until(self.listens, 60, "HAProxy")
            self.wait_ready({role: 1 for role in ROLES})
            yield self
        except BaseException:
            print(self.compose("logs", "--tail=15"))
            raise
        finally:
            self.compose("down", "-v", "--timeout", "5")
            assert not self.engine.docker("ps", "-aq").split() and not self.engine.docker("volume", "ls", "-q").split()

    def listens(self):
        """Whether anything answers there yet."""
        try:
            return self.request("GET", "/live").status
        except OSError:
            return None

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
