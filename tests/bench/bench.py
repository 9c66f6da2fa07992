"""Lockstep and llama.cpp's server in turn, the same model file, threads, context room and client (`lockstep bench`), several
rounds in one run; medians and spreads, ratios, plots."""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
import urllib.request

REPO = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", REPO / "build/release")) / "bin"
MODELS = pathlib.Path(os.environ.get("LOCKSTEP_MODELS", pathlib.Path.home() / ".cache/lockstep/models"))
FILES = {
    "smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf",
    "qwen2.5": "Qwen2.5-Coder-0.5B-Instruct.gguf",
    "gemma3": "gemma-3-270m-Q4_K_M.gguf",
}
ROOM = 16384
# name: (streams, prompt tokens, answer tokens, which figure, unit, more is better, goal for smollm2, for the others)
SCENARIOS = {
    "one stream, generated": (1, 32, 128, "decode_per_s", "tokens/s", True, 2.3, 1.4),
    "prompt of 512": (1, 512, 2, "prompt_per_s", "tokens/s", True, 3.0, 1.3),
    "first token after a prompt of 530": (1, 530, 2, "prompt_s", "s", False, 0.35, None),
    "8 streams, generated": (8, 32, 64, "decode_per_s", "tokens/s", True, 4.0, 1.7),
    "32 streams, generated": (32, 16, 32, "decode_per_s", "tokens/s", True, 3.0, 1.7),
    "8 streams, prompts of 330, answers of 32": (8, 330, 32, "total_per_s", "tokens/s", True, 3.0, None),
    "one stream at 3,000 tokens of context": (1, 3000, 64, "decode_per_s", "tokens/s", True, None, None),
}


class Server:
    def __init__(self, name, port):
        self.name, self.port, self.url = name, port, f"http://127.0.0.1:{port}"
        self.processes = []

    def wait(self, path, seconds=180):
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            try:
                if urllib.request.urlopen(self.url + path, timeout=2).status == 200:
                    return time.monotonic() - began
            except OSError:
                time.sleep(0.01)
        raise SystemExit(f"{self.name} isn't ready after {seconds} s")

    def pss_mib(self):
        total = 0
        for process in self.processes:
            with open(f"/proc/{process.pid}/smaps_rollup") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        return total / 1024

    def stop(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self.processes):
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


class Peer(Server):
    def __init__(self, options, model, slots):
        super().__init__("llama.cpp", options.port + 1)
        words = [pathlib.Path(options.peer_bin) / "llama-server", "-m", model, "-t", options.threads, "-tb", options.threads,
                 "-c", ROOM, "-np", slots, "--port", self.port, "--no-webui", "--slot-prompt-similarity", "0"]
        began = time.monotonic()
        self.processes = [subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)]
        self.wait("/health")
        self.start_s = time.monotonic() - began


class Lockstep(Server):
    def __init__(self, options, model, slots):
        super().__init__("lockstep", options.port)
        self.dir = tempfile.mkdtemp(prefix="ls-bench-", dir="/dev/shm")
        own = {"keeper": ["--model", model, "--slots", slots, "--kv-tokens", ROOM], "npu-worker": ["--threads", options.threads],
               "gateway": ["--port", self.port, "--max-choices", 64]}
        began = time.monotonic()
        for role in ("keeper", "tokenizer", "npu-worker", "sampler", "gateway"):
            words = [BIN / f"lockstep-{role}", "--run-dir", self.dir, *own.get(role, [])]
            self.processes.append(subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        self.wait("/ready")
        self.start_s = time.monotonic() - began

    def stop(self):
        super().stop()
        shutil.rmtree(self.dir, ignore_errors=True)


def measure(server, scenario, runs):
    streams, prompt, tokens, figure = scenario[:4]
    done = subprocess.run([BIN / "lockstep", "bench", "--url", server.url, "--streams", str(streams), "--prompt-tokens", str(prompt),
                           "--tokens", str(tokens), "--runs", str(runs), "--json"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{server.name}: {done.stderr}")
    values = []
    for line in done.stdout.splitlines():
        run = json.loads(line)
        run["total_per_s"] = run["tokens"] / run["total_s"]
        values.append(run[figure])
    return values


def bench_model(options, name, results):
    model = MODELS / FILES[name]
    for slots, scenarios in ((8, [s for s in SCENARIOS if not s.startswith("32")]), (32, [s for s in SCENARIOS if s.startswith("32")])):
        for turn in range(options.rounds):
            # Who goes first changes, so that a drift of the machine hits both.
            for kind in (Peer, Lockstep) if turn % 2 == 0 else (Lockstep, Peer):
                server = kind(options, model, slots)
                try:
                    for scenario in scenarios:
                        values = measure(server, SCENARIOS[scenario], options.runs)
                        results.setdefault((name, scenario), {}).setdefault(server.name, []).extend(values)
                        print(f"{name:8} {server.name:10} {scenario:42} {statistics.median(values):9.2f}", flush=True)
                    if slots == 8:
                        results.setdefault((name, "memory (PSS)"), {}).setdefault(server.name, []).append(server.pss_mib())
                        results.setdefault((name, "start to ready"), {}).setdefault(server.name, []).append(server.start_s)
                finally:
                    server.stop()


def bench_overhead(options, name, results):
    """HTTP, the whole pipeline, against the engine alone, in turn."""
    model = MODELS / FILES[name]
    for _ in range(options.rounds):
        done = subprocess.run([BIN / "lockstep", "bench", "--in-process", "--model", model, "--threads", str(options.threads),
                               "--prompt-tokens", "32", "--tokens", "128", "--runs", str(options.runs), "--json"],
                              capture_output=True, text=True, check=True)
        alone = [json.loads(line)["decode_per_s"] for line in done.stdout.splitlines()]
        server = Lockstep(options, model, 8)
        try:
            through = measure(server, SCENARIOS["one stream, generated"], options.runs)
        finally:
            server.stop()
        cell = results.setdefault((name, "HTTP against in-process"), {})
        cell.setdefault("llama.cpp", []).extend(alone)
        cell.setdefault("lockstep", []).extend(through)


def spread(values):
    return f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def goal_of(name, scenario):
    if scenario == "HTTP against in-process":
        return "at least 0.93" if name == "smollm2" else "at least 0.97" if name == "qwen2.5" else ""
    if scenario == "memory (PSS)":
        return "at most 1"
    if scenario not in SCENARIOS:
        return ""
    goal = SCENARIOS[scenario][6 if name == "smollm2" else 7]
    return "" if goal is None else f"at {'least' if SCENARIOS[scenario][5] else 'most'} {goal:g}"


def unit_of(scenario):
    return {"memory (PSS)": "MiB", "start to ready": "s", "HTTP against in-process": "tokens/s"}.get(scenario) or SCENARIOS[scenario][4]


def table(results):
    lines = ["| model | what | unit | Lockstep: median (range) | llama.cpp: median (range) | ratio | aimed at |", "|---|---|---|---|---|---|---|"]
    for (name, scenario), cell in results.items():
        ratio = statistics.median(cell["lockstep"]) / statistics.median(cell["llama.cpp"])
        what = scenario + (" (second column: the engine alone)" if scenario.startswith("HTTP") else "")
        lines.append(f"| {name} | {what} | {unit_of(scenario)} | {spread(cell['lockstep'])} | {spread(cell['llama.cpp'])} "
                     f"| {ratio:.2f} | {goal_of(name, scenario)} |")
    return "\n".join(lines)


def plot(results, path):
    """A bar per scenario and model: the ratio on a log-free axis, the line at 1 is the peer."""
    rows = [(f"{name}: {scenario}", statistics.median(cell["lockstep"]) / statistics.median(cell["llama.cpp"]))
            for (name, scenario), cell in results.items() if scenario in SCENARIOS and SCENARIOS[scenario][5]]
    if not rows:
        return
    most, left, height = max(ratio for _, ratio in rows), 380, 22
    scale = 420 / most
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + 500}" height="{len(rows) * height + 50}" '
             'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>']
    for i, (label, ratio) in enumerate(rows):
        y = 10 + i * height
        parts.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{label}</text>'
                     f'<rect x="{left}" y="{y}" width="{ratio * scale:.1f}" height="{height - 6}" fill="#2b7a78"/>'
                     f'<text x="{left + ratio * scale + 5:.1f}" y="{y + 13}">{ratio:.2f}</text>')
    bottom = 10 + len(rows) * height
    parts.append(f'<line x1="{left + scale:.1f}" x2="{left + scale:.1f}" y1="5" y2="{bottom}" stroke="#c0392b"/>'
                 f'<text x="{left + scale:.1f}" y="{bottom + 16}" text-anchor="middle" fill="#c0392b">llama.cpp = 1</text></svg>')
    path.write_text("\n".join(parts))


def cpu_name():
    with open("/proc/cpuinfo") as file:
        names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.processor()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer-bin", required=True)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--port", type=int, default=18960)
    parser.add_argument("--models", default=",".join(FILES))
    parser.add_argument("--write", action="store_true", help="docs/benchmarks.md and its plot")
    options = parser.parse_args()
    results = {}
    for name in options.models.split(","):
        bench_model(options, name, results)
        bench_overhead(options, name, results)
    out = REPO / "out/bench"
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps([{"model": n, "what": s, **c} for (n, s), c in results.items()], indent=1))
    plot(results, out / "ratios.svg")
    text = f"""# Benchmarks

`tests/bench/run --peer --write` made this page on {datetime.date.today()}: {cpu_name()}, {options.threads} threads, load average before
it {os.getloadavg()[2]:.1f}. Both servers in turn, {options.rounds} rounds of {options.runs} runs; the same model file, threads, client and room for
{ROOM} tokens of context. Machines of this kind are shared, so only the ratios within one run say something. The figures are as they
came out.

{table(results)}

![ratios](benchmarks.svg)
"""
    print(text)
    if options.write:
        (REPO / "docs/benchmarks.md").write_text(text)
        plot(results, REPO / "docs/benchmarks.svg")


if __name__ == "__main__":
    main()
