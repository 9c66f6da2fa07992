"""A pipeline of its own for a test: run directory, free port, options per process; killed, frozen and restarted at will.
No supervisor: what dies stays dead until the test starts it again. Nothing is left behind, whatever happens."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from api import Api, until

BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", "build/release")).resolve()
# The same programs with fault points (base/fault.h).
FAULTS_BUILD = pathlib.Path(os.environ.get("LOCKSTEP_FAULTS_BUILD", "build/faults")).resolve()
MODELS = pathlib.Path(os.environ.get("LOCKSTEP_MODELS", pathlib.Path.home() / ".cache/lockstep/models"))
SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
# In the order in which they are stopped.
ROLES = ("gateway", "tokenizer", "sampler", "npu-worker", "keeper")
START_SECONDS = 120

living = []  # pipelines, for the report of a failed test


def model_path(name=SMOLLM2):
    path = MODELS / name
    if not path.exists():
        pytest.skip(f"{path} isn't here (deploy/fetch-model)")
    return path


class Pipeline(Api):
    """options: {role: [words]}; instances: {role: how many}; env: added to every process's; port: several gateways need one of
    their own choice; faults: {(role, instance): LOCKSTEP_FAULT of its first start}, in a build that has fault points; run_dir:
    instead of an own one; machine: with `address` and `prefix`, the words that run a command there;
    programs: {role: [words]} instead of the build's own."""

    def __init__(self, model=None, options=None, instances=None, env=None, port=None, faults=None, run_dir=None, machine=None,
                 programs=None):
        super().__init__(port, machine.address if machine else "127.0.0.1")
        self.prefix = machine.prefix if machine else []
        self.faults = dict(faults or {})
        self.build = FAULTS_BUILD if faults else BUILD
        # A machine that runs tests is busy: a process that waits for a core is not to count as frozen.
        self.model, self.env = model or model_path(), {**os.environ, "LOCKSTEP_STALL_MS": "30000", **(env or {})}
        self.options = {role: list((options or {}).get(role, [])) for role in ROLES}
        self.instances = {role: (instances or {}).get(role, 1) for role in ROLES}
        self.programs = {role: (programs or {}).get(role, [self.build / "bin" / f"lockstep-{role}"]) for role in ROLES}
        # Short: the paths of sockets lie in it.
        self.dir = pathlib.Path(run_dir or tempfile.mkdtemp(prefix="ls-clients-", dir="/dev/shm"))
        self.logs = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-logs-"))
        self.processes, self.ended = {}, []
        living.append(self)
        try:
            for role in reversed(ROLES):
                for instance in range(self.instances[role]):
                    self.start(role, instance)
            self.wait_ready()
        except BaseException:
            self.remove()
            raise

    # ---- processes

    def start(self, role, instance=0, *options):
        """Call it from the main thread: a process dies with the thread that started it (no strays after a crash)."""
        assert (role, instance) not in self.processes, f"{role} {instance} runs already"
        words = [*self.programs[role], "--run-dir", self.dir, "--instance", instance, *self.options[role], *options]
        if role == "keeper":
            words += ["--model", self.model]
        if role == "gateway":
            words += ["--port", self.port or 0]
        env = {**self.env, "LOCKSTEP_FAULT": self.faults.pop((role, instance), "")}
        log = open(self.log_path(role, instance), "ab")
        with log:
            self.processes[role, instance] = subprocess.Popen(
                [*self.prefix, "setpriv", "--pdeathsig", "KILL", *map(str, words)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=env)
        if role == "gateway" and not self.port:
            self.port = int(until(lambda: self._listens(instance), START_SECONDS, "the gateway's port"))

    def _listens(self, instance):
        self.check_alive("gateway", instance)
        found = re.search(r"listening on \S+ port (\d+)", self.log("gateway", instance))
        return found and found[1]

    def pid(self, role, instance=0):
        return self.processes[role, instance].pid

    def check_alive(self, role, instance=0):
        status = self.processes[role, instance].poll()
        assert status is None, f"{role} {instance} ended with {status}:\n{self.log(role, instance)}"

    def kill(self, role, instance=0):
        process = self.processes.pop((role, instance))
        process.kill()
        process.wait()

    def send(self, signal_number, role, instance=0):
        self.processes[role, instance].send_signal(signal_number)

    def stop(self, role, instance=0):
        """As a supervisor does it; must end well."""
        process = self.processes.pop((role, instance))
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 0, self.log(role, instance)

    def restart(self, role, *options, instance=0):
        self.stop(role, instance)
        self.start(role, instance, *options)
        self.wait_ready()

    # ---- what is going on

    def log_path(self, role, instance=0):
        return self.logs / f"{role}-{instance}"

    def log(self, role, instance=0):
        path = self.log_path(role, instance)
        return path.read_text(errors="replace") if path.exists() else ""

    def status(self):
        """None while there is no run yet."""
        done = subprocess.run([BUILD / "bin/lockstep", "status", "--json", "--run-dir", self.dir], capture_output=True,
                              timeout=20)
        return json.loads(done.stdout) if done.stdout else None

    def is_ready(self):
        for role, instance in list(self.processes):
            self.check_alive(role, instance)
        status = self.status()
        ready = {process["pid"] for process in status["processes"] if process["state"] == "ready"} if status else set()
        return {process.pid for process in self.processes.values()} <= ready

    def wait_ready(self):
        """Every process that was started says so, and /ready does."""
        until(self.is_ready, START_SECONDS, "readiness")
        if any(role == "gateway" for role, _ in self.processes):
            until(lambda: self.request("GET", "/ready").status == 200, START_SECONDS, "/ready")

    def slots(self):
        return self.status()["slots"]

    def busy(self):
        """Slots that hold a request, finished ones included."""
        slots = self.slots()
        return slots["total"] - slots["free"]

    def running(self):
        """Sequences that are with worker and samplers."""
        slots = self.slots()
        return slots["compute"] + slots["sample"] + slots["reclaim"] - slots["waiting"]

    def idle(self):
        status = self.status()
        return status["slots"]["free"] == status["slots"]["total"]

    def wait_idle(self, seconds=60):
        until(self.idle, seconds, "an empty slot table")

    def metric(self, name):
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.get("/metrics").data.decode(), re.M)
        return float(found[1]) if found else None

    def resident_bytes(self, role, instance=0):
        """Anonymous memory: what is mapped from files (segments, weights, the program) can't leak."""
        with open(f"/proc/{self.pid(role, instance)}/smaps_rollup") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("Anonymous:")) * 1024

    # ---- the end

    def close(self):
        """Everything must end well, and must have been well: no error in a log."""
        try:
            for role, instance in sorted(self.processes, key=lambda key: ROLES.index(key[0])):
                self.check_alive(role, instance)
                self.stop(role, instance)
            for path in self.logs.iterdir():
                assert '"level":"error"' not in path.read_text() and "Sanitizer" not in path.read_text(), path.read_text()
        finally:
            self.remove()

    def remove(self):
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.processes.clear()
        if self in living:
            living.remove(self)
        shutil.rmtree(self.dir, ignore_errors=True)
        shutil.rmtree(self.logs, ignore_errors=True)

    def last_words(self, lines=15):
        """For the report of a test that failed."""
        return "\n".join(f"---- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
                         for path in sorted(self.logs.iterdir()))


@contextlib.contextmanager
def pipeline_with(*args, **more):
    pipeline = Pipeline(*args, **more)
    try:
        yield pipeline
        pipeline.close()
    finally:
        pipeline.remove()


def settle(pipeline, seconds=0.1):
    """Lets a step or two pass."""
    time.sleep(seconds)
    return pipeline.status()
