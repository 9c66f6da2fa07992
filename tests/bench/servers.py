"""The two servers that are compared, started alike: the same model file, threads, sequences and room for context."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request

REPO = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", REPO / "build/release")) / "bin"
FILES = {
    "smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf",
    "qwen2.5": "Qwen2.5-Coder-0.5B-Instruct.gguf",
    "gemma3": "gemma-3-270m-Q4_K_M.gguf",
}
ROOM = 16384  # tokens of context of all sequences together
READY_SECONDS = 180


class Server:
    def __init__(self, name, port):
        self.name, self.port, self.url = name, port, f"http://127.0.0.1:{port}"
        self.processes = []

    def wait(self, path):
        began = time.monotonic()
        while time.monotonic() - began < READY_SECONDS:
            if any(process.poll() is not None for process in self.processes):
                self.stop()
                raise SystemExit(f"a process of {self.name} has ended; is port {self.port} free?")
            try:
                if urllib.request.urlopen(self.url + path, timeout=2).status == 200:
                    return
            except OSError:
                time.sleep(0.01)
        self.stop()
        raise SystemExit(f"{self.name} isn't ready after {READY_SECONDS} s")

    def pss_mib(self):
        """What its processes hold, shared pages by their share."""
        total = 0
        for process in self.processes:
            with open(f"/proc/{process.pid}/smaps_rollup") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        return total / 1024

    def stop(self):
        self.end()

    def end(self):
        """It ends, and leaves what it keeps between its starts."""
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self.processes):
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes = []

    def start_again(self):
        self.end()
        self.start()
        return self.start_s

    def spawn(self, *words):
        self.processes.append(subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Peer(Server):
    """llama.cpp's server; any sequence may use the whole room, as in Lockstep."""

    def __init__(self, options, model, slots):
        super().__init__("llama.cpp", options.port + 1)
        self.arguments = options, model, slots
        self.start()

    def start(self):
        options, model, slots = self.arguments
        began = time.monotonic()
        self.spawn(pathlib.Path(options.peer_bin) / "llama-server", "-m", model, "-t", options.threads, "-tb", options.threads, "-c", ROOM,
                   "--kv-unified", "-np", slots, "--port", self.port, "--slot-prompt-similarity", "0")
        self.wait("/health")
        self.start_s = time.monotonic() - began


class Lockstep(Server):
    def __init__(self, options, model, slots):
        super().__init__("lockstep", options.port)
        self.dir = tempfile.mkdtemp(prefix="ls-bench-", dir="/dev/shm")
        self.arguments = options, model, slots
        self.start()

    def start(self):
        options, model, slots = self.arguments
        own = {"keeper": ["--model", model, "--slots", slots, "--kv-tokens", ROOM], "npu-worker": ["--threads", options.threads],
               "gateway": ["--port", self.port, "--max-choices", 64]}
        began = time.monotonic()
        roles = ("keeper", "npu-worker", "tokenizer", "sampler", "gateway")
        for role in roles:
            self.spawn(BIN / f"lockstep-{role}", "--run-dir", self.dir, *own.get(role, []))
        self.pid_of = {role: process.pid for role, process in zip(roles, self.processes)}
        self.wait("/ready")
        self.start_s = time.monotonic() - began

    def trace(self, seconds):
        """{hop: {"median_us", ...}} of the tokens of the next `seconds`."""
        done = subprocess.run([BIN / "lockstep", "trace", "--run-dir", self.dir, "--seconds", str(seconds), "--json"],
                              capture_output=True, text=True, check=True)
        return {hop["name"]: hop for hop in json.loads(done.stdout)["hops"]}

    def stop(self):
        super().stop()
        shutil.rmtree(self.dir, ignore_errors=True)
