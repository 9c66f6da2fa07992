"""Random load and random faults for a while; then every answer must have been right or have ended with a named error, and
segments, files, processes and memory must be back at the base line. Prints the figures; exit status 0 if all holds.

The pipeline is the one that deploy/up starts: s6 restarts what dies."""

import argparse
import bisect
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid

from load import Lost, Refused, ask, cancel_early, catalogue, seeded, send_bad

REPO = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", REPO / "build/release"))
ROLES = ["npu-worker", "sampler", "tokenizer", "gateway", "keeper"]
WEIGHTS = [5, 3, 2, 2, 1]
# What a request may end with under faults, beside its right answer.
NAMED = {"no_worker", "draining", "queue_full", "worker_crashed", "timeout", "stream_lost"}


class Pipeline:
    def __init__(self, options):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ls-chaos-", dir="/dev/shm"))
        self.port, self.instances = options.port, options.instances
        self.env = {**os.environ, "LOCKSTEP_RUN_DIR": str(self.dir)}
        counts = [f"--{name}s={options.instances}" for name in ("worker", "sampler", "tokenizer", "gateway")]
        subprocess.run([REPO / "deploy/up", f"--port={self.port}", *counts, "--threads=1"], env=self.env, check=True,
                       stdout=subprocess.DEVNULL)

    def status(self):
        done = subprocess.run([BUILD / "bin/lockstep", "status", "--json", "--run-dir", self.dir], capture_output=True)
        return json.loads(done.stdout) if done.stdout else None

    def pids(self, role):
        status = self.status() or {"processes": []}
        return [p["pid"] for p in status["processes"] if p["role"] == role and p["state"] not in ("dead", "fenced")]

    def down(self):
        subprocess.run([REPO / "deploy/down"], env=self.env, stdout=subprocess.DEVNULL)
        subprocess.run(["rm", "-rf", self.dir])


class Tally:
    def __init__(self):
        self.lock = threading.Lock()
        self.count = {}
        self.waits = []  # (from, to): between two events of a stream (s)
        self.faults = []  # (when, what)
        self.problems = []

    def add(self, what, n=1):
        with self.lock:
            self.count[what] = self.count.get(what, 0) + n

    def problem(self, text):
        with self.lock:
            self.problems.append(text)
        self.add("problems")


def undisturbed(port, bodies):
    return {name: ask(port, body)[0].value() for name, body in bodies.items()}


def one_request(port, name, body, truth, rng, tally):
    key = f"chaos-{uuid.UUID(int=rng.getrandbits(128))}" if rng.random() < 0.7 else None
    tally.add("requests")
    try:
        answer, reconnects = ask(port, body, key)
    except Lost as lost:
        # Without a key its gateway's death is the end; with one, it must not be.
        return tally.problem(f"{name}: lost for good: {lost}") if key else tally.add("cut off (no key)")
    except Refused as refused:
        if refused.code in NAMED:
            return tally.add(f"refused: {refused.code}")
        return tally.problem(f"{name}: refused with {refused}")
    tally.add("reconnects", reconnects)
    if answer.error:
        if answer.error in NAMED:
            return tally.add(f"ended: {answer.error}")
        return tally.problem(f"{name}: ended with {answer.error}")
    if answer.value() != truth:
        return tally.problem(f"{name}: wrong bytes: {answer.value()[:300]} instead of {truth[:300]}")
    with tally.lock:
        tally.waits += answer.waits
    tally.add("right")


def client(number, options, port, bodies, truths, stop, tally):
    turn = 0
    while not stop.is_set():
        rng = seeded(options.seed, "client", number, turn)
        turn += 1
        kind = rng.random()
        if kind < 0.1:
            cancel_early(port, rng.choice(list(bodies.values())), rng)
            tally.add("cancelled by the client")
        elif kind < 0.2:
            status = send_bad(port, rng)
            tally.add("bad requests")
            if status is not None and not 400 <= status < 500 and status != 503:
                tally.problem(f"a bad request got {status}")
        else:
            name = rng.choice(list(bodies))
            one_request(port, name, bodies[name], truths[name], rng, tally)


def age_s(pid):
    """How long the process has been running; a large number if it is gone."""
    try:
        ticks = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
    except OSError:
        return 1e9
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def disturb(pipeline, rng, tally):
    role = rng.choices(ROLES, WEIGHTS)[0]
    pids = pipeline.pids(role)
    if not pids:
        return
    pid, kind = rng.choice(pids), rng.random()
    # Its successor may not have come up yet: such a fault hits a pipeline that is down already.
    young = any(age_s(each) < 1 for each in pids) or len(pids) < (1 if role == "keeper" else pipeline.instances)
    what = "kill -9" if kind < 0.6 else "SIGTERM" if kind < 0.75 else "SIGSTOP" if kind < 0.95 else "kill -9 every"
    tally.faults.append((time.monotonic(), f"{what} {role}{', within 1 s of a start' if young else ''}"))
    try:
        if kind < 0.6:
            os.kill(pid, signal.SIGKILL)
            tally.add(f"kill -9 {role}")
        elif kind < 0.75:
            os.kill(pid, signal.SIGTERM)
            tally.add(f"SIGTERM {role}")
        elif kind < 0.95:
            os.kill(pid, signal.SIGSTOP)
            tally.add(f"SIGSTOP {role}")
            time.sleep(rng.choice([0.1, 0.5, 1.5, 2.5]))
            os.kill(pid, signal.SIGCONT)
        else:
            for each in pids:
                os.kill(each, signal.SIGKILL)
            tally.add(f"kill -9 every {role}")
    except ProcessLookupError:
        pass


def settled(pipeline, seconds=90):
    """All processes back, no request left behind, no block or page held by the dead."""
    end = time.monotonic() + seconds
    status = None
    while time.monotonic() < end:
        status = pipeline.status()
        if status and status["ready"]:
            slots = status["slots"]
            if slots["free"] + slots["done"] == slots["total"] and all(p["state"] == "ready" for p in status["processes"]):
                return None
        time.sleep(0.5)
    return f"not back at the base line after {seconds} s: {json.dumps(status)}"


def footprint(pipeline):
    """(files of the run, bytes of them, bytes of memory that are the processes' own)"""
    files = [path for path in pipeline.dir.rglob("*") if path.is_file()]
    own = 0
    for role in ROLES:
        for pid in pipeline.pids(role):
            rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
            own += sum(int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Anonymous:"))
    return len(files), sum(path.stat().st_blocks * 512 for path in files), own


def grown(before, after):
    """What is left behind, if anything."""
    for what, old, new, slack in zip(("files", "bytes of segments", "bytes of memory"), before, after, (8, 1 << 20, 64 << 20)):
        if new > old * 1.05 + slack:
            return f"{what}: {old} before, {new} after"
    return None


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, round(p * (len(values) - 1)))] if values else 0


def waits_of_faults(tally, usual):
    """{fault: [longest wait of a stream over the usual one (s), of each time]}; of faults that met a stream."""
    waits, found = sorted(tally.waits), {}
    for when, what in tally.faults:
        # Nobody waits longer than a client's deadline.
        near = waits[bisect.bisect(waits, (when - 120,)):bisect.bisect(waits, (when + 0.05,))]
        met = [end - start for start, end in near if when < end]
        if met:
            found.setdefault(what, []).append(max(0, max(met) - usual))
    return found


def report(options, tally, usual, seconds):
    print(f"chaos: seed {options.seed}, {seconds:.0f} s, {options.clients} clients, {options.instances} instances per role")
    for what in sorted(tally.count):
        print(f"  {what:32} {tally.count[what]}")
    print(f"  longest wait of a stream that was running, over the usual {usual * 1e3:.0f} ms, by fault (ms):")
    for what, waits in sorted(waits_of_faults(tally, usual).items()):
        p50, p99, most = (percentile(waits, p) * 1e3 for p in (.5, .99, 1))
        print(f"    {what:44} n={len(waits):4}  p50 {p50:5.0f}  p99 {p99:5.0f}  max {most:5.0f}")
    for problem in tally.problems[:20]:
        print(f"PROBLEM {problem}")


def progress(tally, seconds):
    print(f"   {seconds / 60:.0f} min: {len(tally.faults)} faults, {tally.count.get('right', 0)} answers right, {len(tally.problems)} problems", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", default=str(int(time.time())))
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--port", type=int, default=18977)
    parser.add_argument("--pause", type=float, default=1.0, help="mean seconds between two faults")
    options = parser.parse_args()
    pipeline, tally, bodies = Pipeline(options), Tally(), catalogue()
    try:
        truths = undisturbed(pipeline.port, bodies)
        calm = Tally()
        for name, body in bodies.items():
            one_request(pipeline.port, name, body, truths[name], seeded(options.seed, name), calm)
        usual = percentile([end - start for start, end in calm.waits], .5)
        before = footprint(pipeline)
        stop, began = threading.Event(), time.monotonic()
        threads = [threading.Thread(target=client, args=(i, options, pipeline.port, bodies, truths, stop, tally), daemon=True)
                   for i in range(options.clients)]
        for thread in threads:
            thread.start()
        rng, told = seeded(options.seed, "faults"), 0
        while (seconds := time.monotonic() - began) < options.minutes * 60:
            time.sleep(rng.expovariate(1 / options.pause))
            disturb(pipeline, rng, tally)
            if seconds // 60 > told:
                told = seconds // 60
                progress(tally, seconds)
        stop.set()
        for thread in threads:
            thread.join(120)
            if thread.is_alive():
                tally.problem("a client never got its answer")
        left = settled(pipeline)
        if left:
            tally.problem(left)
        elif undisturbed(pipeline.port, bodies) != truths:
            tally.problem("answers differ after the faults")
        elif more := grown(before, footprint(pipeline)):
            tally.problem(f"left behind: {more}")
        report(options, tally, usual, time.monotonic() - began)
    finally:
        pipeline.down()
    return 1 if tally.problems or not tally.count.get("right") else 0


if __name__ == "__main__":
    sys.exit(main())
