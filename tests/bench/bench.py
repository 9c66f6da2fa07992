"""Lockstep and llama.cpp's server in turn, the same model file, threads, context room and client (`lockstep bench`), several
rounds in one run; medians and spreads, ratios, plots. Nothing here passes or fails."""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import threading

import drafts
import page
import stalls
from servers import BIN, FILES, REPO, Lockstep, Peer

OUT = REPO / "out/bench"
MODELS = pathlib.Path(os.environ.get("LOCKSTEP_MODELS", pathlib.Path.home() / ".cache/lockstep/models"))


@dataclasses.dataclass
class Scenario:
    """What is measured, its unit and what it should reach; goals by model, "*" for the others."""
    unit: str
    goals: dict = dataclasses.field(default_factory=dict)
    less_is_better: bool = False
    load: tuple = ()  # streams, prompt tokens, answer tokens
    figure: str = ""  # of `lockstep bench --json`
    slots: int = 8
    absolute: bool = False  # the goal is for the figure, not for its ratio to the peer's
    more: tuple = ()  # options of `lockstep bench`


def rate(load, goals, figure="decode_per_s", slots=8):
    return Scenario("tokens/s", goals, False, load, figure, slots)


def first(prompt, goals=None):
    return Scenario("s", goals or {}, True, (1, prompt, 2), "prompt_s")


ONE_STREAM = "one stream, generated"
PLAIN = "one stream without drafts, generated"
NO_DRAFTS = ("--speculate=false",)
SAMPLED = "one stream, sampled, against the engine alone"
GREEDY = "one stream, greedy, against the engine alone"
STALLS = "between tokens, p99: times the undisturbed"
FIRST = {530: "first token, prompt of 530", 2000: "first token, prompt of 2,000", 8000: "first token, prompt of 8,000"}
DRAFTS = {name: f"{name}, with drafts against without" for name in drafts.TEXTS}
CONTEXT = {32: ONE_STREAM, 2000: "one stream at 2,000 tokens of context", 8000: "one stream at 8,000 tokens of context"}
SCENARIOS = {
    ONE_STREAM: rate((1, 32, 128), {"smollm2": 2.3, "*": 1.4}),
    PLAIN: dataclasses.replace(rate((1, 32, 128), {"smollm2": 2.3, "*": 1.4}), more=NO_DRAFTS),
    "prompt of 512": rate((1, 512, 2), {"smollm2": 3, "*": 1.3}, "prompt_per_s"),
    FIRST[530]: first(530, {"smollm2": 0.35}),
    "8 streams, generated": rate((8, 32, 64), {"smollm2": 4, "*": 1.7}),
    "8 streams, prompts of 330, answers of 32": rate((8, 330, 32), {"smollm2": 3}, "total_per_s"),
    FIRST[2000]: first(2000),
    CONTEXT[2000]: rate((1, 2000, 64), {}),
    FIRST[8000]: first(8000),
    CONTEXT[8000]: rate((1, 8000, 64), {}),
    "32 streams, generated": rate((32, 16, 32), {"smollm2": 3}, slots=32),
    "memory (PSS)": Scenario("MiB", {"*": 1}, True),
    "start to ready": Scenario("s", {"*": 1}, True, absolute=True),
    "start again": Scenario("s", {"*": 1}, True, absolute=True),
    STALLS: Scenario("times", {"*": 3}, True, absolute=True),
    GREEDY: Scenario("tokens/s", {"smollm2": 0.93, "qwen2.5": 0.97}),
    SAMPLED: Scenario("tokens/s", {"smollm2": 0.93, "qwen2.5": 0.97}),
    **{what: Scenario("tokens/s", {"*": 0.97} if "prose" in what else {}) for what in DRAFTS.values()},
    "of the memory's speed (the engine alone)": Scenario("share", {"*": 0.75}),
    "sampling's share of a step (temperature, top_p)": Scenario("share", {"gemma3": 0.03}, True),
}


class Results:
    """{(model, scenario): {server: [values]}} in the scenarios' order."""

    def __init__(self):
        self.cells = {}

    def add(self, model, scenario, server, values):
        self.cells.setdefault((model, scenario), {}).setdefault(server, []).extend(values)
        print(f"{model:8} {server:10} {scenario:48} {statistics.median(values):9.3f}", flush=True)

    def resume(self, rows):
        for row in rows:
            self.cells[row.pop("model"), row.pop("what")] = row

    def ordered(self):
        order = list(SCENARIOS)
        return dict(sorted(self.cells.items(), key=lambda item: (list(FILES).index(item[0][0]), order.index(item[0][1]))))


def bench(*words):
    """The runs of one `lockstep bench`, as it prints them."""
    done = subprocess.run([BIN / "lockstep", "bench", "--json", *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    return [{**run, "total_per_s": run["tokens"] / run["total_s"]} for run in runs]


def measure(server, load, figure, runs, *more):
    streams, prompt, tokens = load
    return [run[figure] for run in bench("--url", server.url, "--streams", streams, "--prompt-tokens", prompt, "--tokens", tokens,
                                         "--runs", runs, *more)]


def bench_scenarios(options, model, results, kind, slots):
    with kind(options, MODELS / FILES[model], slots) as server:
        if slots == 8:
            results.add(model, "start to ready", server.name, [server.start_s])
        for name, scenario in SCENARIOS.items():
            if scenario.load and scenario.slots == slots and scenario.load[1] <= options.prompts and options.wants(name):
                # Long prompts take long and vary little.
                runs = options.runs if scenario.load[1] < 2000 else 1
                results.add(model, name, server.name, measure(server, scenario.load, scenario.figure, runs, *scenario.more))
        if slots == 8:
            results.add(model, "memory (PSS)", server.name, [server.pss_mib()])
            if options.wants(STALLS) and options.prompts >= 8000:
                quiet, loaded, _ = stalls.measure(server.port, 8000)
                results.add(model, STALLS, server.name, [loaded / quiet])
            results.add(model, "start again", server.name, [server.start_again()])


def bench_overhead(options, model, results):
    """HTTP, the whole pipeline, against the engine alone, in turn; drafts nowhere."""
    load = SCENARIOS[ONE_STREAM].load
    alone = bench("--in-process", "--model", MODELS / FILES[model], "--threads", options.threads, "--prompt-tokens", load[1],
                  "--tokens", load[2], "--runs", options.runs)
    results.add(model, "of the memory's speed (the engine alone)", "lockstep", [run["read_share"] for run in alone])
    with Lockstep(options, MODELS / FILES[model], 8) as server:
        for name, more in ((GREEDY, ()), (SAMPLED, ("--temperature", "0.8"))):
            results.add(model, name, "lockstep", measure(server, load, "decode_per_s", options.runs, *NO_DRAFTS, *more))
            results.add(model, name, "alone", [run["decode_per_s"] for run in alone])
        try:
            for name, what in DRAFTS.items():
                if options.wants(what):
                    for kind, values in drafts.measure(server.port, name, 2 * options.runs).items():
                        results.add(model, what, kind, values)
        except drafts.NoTemplate:
            print(f"{model} has no chat template: nothing is said of its drafts", flush=True)
        loader = threading.Thread(target=lambda: measure(server, (1, 32, 256), "decode_per_s", 1, "--temperature", "0.8"))
        loader.start()
        hops = server.trace(1.5)
        loader.join()
        results.add(model, "sampling's share of a step (temperature, top_p)", "lockstep", [hops["draw"]["median_us"] / hops["step"]["median_us"]])


def bench_round(options, model, turn, results):
    for slots in (8, 32):
        # Who goes first changes, so that a drift of the machine hits both.
        for kind in (Peer, Lockstep) if turn % 2 == 0 else (Lockstep, Peer):
            if any(s.load and s.slots == slots and options.wants(n) for n, s in SCENARIOS.items()):
                bench_scenarios(options, model, results, kind, slots)
    bench_overhead(options, model, results)


def publish(options, results, rounds, load):
    """What there is so far: a run takes long, and what it has shown stays if it is ended early."""
    ordered = results.ordered()
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "results.json").write_text(json.dumps([{"model": m, "what": s, **c} for (m, s), c in ordered.items()], indent=1))
    text = page.page(ordered, SCENARIOS, options, rounds, load)
    for folder in [OUT] + [REPO / "docs"] * options.write:
        (folder / "benchmarks.md").write_text(text)
        page.bars(ordered, SCENARIOS, folder / "benchmarks.svg")
        page.curve(ordered, FIRST, folder / "benchmarks-first-token.svg", "seconds to the first token, over the prompt's tokens")
        page.curve(ordered, CONTEXT, folder / "benchmarks-context.svg", "tokens per second of one stream, over its context")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer-bin", required=True)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--port", type=int, default=18960)
    parser.add_argument("--models", default=",".join(FILES))
    parser.add_argument("--only", default="", help="scenarios whose name has this in it")
    parser.add_argument("--prompts", type=int, default=8000, help="no scenario with longer prompts")
    parser.add_argument("--resume", action="store_true", help="add to what the last run left in out/bench")
    parser.add_argument("--write", action="store_true", help="docs/benchmarks.md and its plots")
    options = parser.parse_args()
    options.wants = lambda name: options.only in name
    load, results = os.getloadavg()[2], Results()
    if options.resume:
        results.resume(json.loads((OUT / "results.json").read_text()))
    for turn in range(options.rounds):
        for model in options.models.split(","):
            bench_round(options, model, turn, results)
            publish(options, results, turn + 1, load)
    print(page.table(results.ordered(), SCENARIOS))


if __name__ == "__main__":
    main()
