"""The table, the plots and the page, from {(model, scenario): {server: [values]}}."""

import collections
import datetime
import os
import pathlib
import platform
import statistics
import subprocess

from servers import FILES, ROOM

# Two hues that stay apart for those who see few colours, and in print.
COLOURS = {"lockstep": "#2b7a78", "llama.cpp": "#c0762b"}


def spread(values):
    extent = f" ({min(values):.4g} to {max(values):.4g})" if len(values) > 1 else ""
    return f"{statistics.median(values):.4g}{extent}"


def ratio_of(cell):
    """None without a second column."""
    if len(cell) < 2:
        return None
    over, under = (statistics.median(cell[name]) for name in ("lockstep", next(n for n in cell if n != "lockstep")))
    return over / under if under else None


def goal_of(scenario, model):
    goal = scenario.goals.get(model, scenario.goals.get("*"))
    what = f" {scenario.unit}" if scenario.absolute else ""
    return "" if goal is None else f"at {'most' if scenario.less_is_better else 'least'} {goal:g}{what}"


def verdict(scenario, model, value):
    goal = scenario.goals.get(model, scenario.goals.get("*"))
    if goal is None or value is None:
        return ""
    return "yes" if (value <= goal if scenario.less_is_better else value >= goal) else "no"


def table(results, scenarios):
    lines = ["| model | what | unit | Lockstep: median (range) | beside it: median (range) | ratio | aimed at | there |",
             "|---|---|---|---|---|---|---|---|"]
    for (model, name), cell in results.items():
        scenario, ratio = scenarios[name], ratio_of(cell)
        other = next((n for n in cell if n != "lockstep"), None)
        judged = ratio if other and not scenario.absolute else statistics.median(cell["lockstep"])
        lines.append(f"| {model} | {name} | {scenario.unit} | {spread(cell['lockstep'])} | "
                     f"{f'{other}: {spread(cell[other])}' if other else ''} | {'' if ratio is None else f'{ratio:.3g}'} | "
                     f"{goal_of(scenario, model)} | {verdict(scenario, model, judged)} |")
    return "\n".join(lines)


def bars(results, scenarios, path):
    """A bar for each model and scenario: how many times the peer's figure; for times and memory, how many times less."""
    rows = []
    for (model, name), cell in results.items():
        ratio = ratio_of(cell)
        # What has a goal of its own is not a race, and may dwarf the others.
        if ratio and "llama.cpp" in cell and not scenarios[name].absolute:
            rows.append((f"{model}: {name}", 1 / ratio if scenarios[name].less_is_better else ratio))
    if not rows:
        return
    left, height = 420, 20
    scale = 420 / max(ratio for _, ratio in rows)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + 500}" height="{len(rows) * height + 50}" '
             'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>']
    for i, (label, ratio) in enumerate(rows):
        y = 10 + i * height
        parts.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{label}</text>'
                     f'<rect x="{left}" y="{y}" width="{ratio * scale:.1f}" height="{height - 5}" fill="{COLOURS["lockstep"]}"/>'
                     f'<text x="{left + ratio * scale + 5:.1f}" y="{y + 12}">{ratio:.2f}</text>')
    bottom = 10 + len(rows) * height
    parts.append(f'<line x1="{left + scale:.1f}" x2="{left + scale:.1f}" y1="5" y2="{bottom}" stroke="#c0392b"/>'
                 f'<text x="{left + scale:.1f}" y="{bottom + 16}" text-anchor="middle" fill="#c0392b">llama.cpp = 1; longer is better</text></svg>')
    path.write_text("\n".join(parts) + "\n")


def curve(results, names, path, title):
    """Figure over prompt length: a panel for each model, a line for each server. names: {length: scenario}."""
    lengths = collections.Counter(model for model, name in results if name in names.values())
    models = [model for model, count in lengths.items() if count > 1]  # a point alone is no curve
    if not models:
        return
    width, height, gap = 280, 220, 60
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{len(models) * (width + gap) + 20}" height="{height + 90}" '
             'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>'
             f'<text x="10" y="18" font-size="13">{title}</text>']
    for panel, model in enumerate(models):
        cells = {length: results[model, name] for length, name in names.items() if (model, name) in results}
        left, top = gap + panel * (width + gap), 40
        most = max(statistics.median(values) for cell in cells.values() for values in cell.values())
        longest = max(cells)
        place = lambda length, value: (left + width * length / longest, top + height * (1 - value / most))
        parts.append(f'<path d="M{left},{top} v{height} h{width}" fill="none" stroke="#888"/><text x="{left}" y="{top - 6}">{model}</text>'
                     f'<text x="{left - 4}" y="{top + 8}" text-anchor="end">{most:.3g}</text>'
                     f'<text x="{left - 4}" y="{top + height}" text-anchor="end">0</text>')
        for length in cells:
            parts.append(f'<text x="{place(length, 0)[0]:.0f}" y="{top + height + 14}" text-anchor="middle">{length}</text>')
        for server, colour in COLOURS.items():
            points = [place(length, statistics.median(cell[server])) for length, cell in cells.items() if server in cell]
            parts.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" fill="none" stroke="{colour}" stroke-width="2"/>')
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    for i, (server, colour) in enumerate(COLOURS.items()):
        parts.append(f'<rect x="{gap + i * 110}" y="{height + 66}" width="12" height="12" fill="{colour}"/>'
                     f'<text x="{gap + 18 + i * 110}" y="{height + 76}">{server}</text>')
    path.write_text("\n".join(parts) + "</svg>\n")


def cpu_name():
    with open("/proc/cpuinfo") as file:
        lines = [line.split(":") for line in file if ":" in line]
    facts = {key.strip(): value.strip() for key, value in lines}
    cores = sum(key.strip() == "processor" for key, _ in lines)
    sets = [name for name in ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "amx_int8") if name in facts.get("flags", "").split()]
    return (f"{facts.get('model name', platform.processor())} (family {facts.get('cpu family')}, model {facts.get('model')}; {' '.join(sets)}), "
            f"{cores} cores")


def revision():
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=pathlib.Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


# Why, as far as it is known, by what a scenario's name has in it.
REASONS = {
    "8 streams, generated": "a step of 8 rows computes more than it reads, and activations have 16 bits here and 8 there: an instruction multiplies half "
                            "as many of them ([arithmetic](arithmetic.md)). Nearly all of the cores' time is in the step.",
    "prompt of 512": "as with 8 streams: 16 bits against 8.",
    "against the engine alone": "all cores compute; sampler, gateway and client take their time from them.",
    "start to ready": "packing takes a good part of it, the rest is memory that nothing has used since the machine started: a virtual machine's host "
                      "gives it out page by page. On memory that was used before, the same start takes half the time.",
    "start again": "most of it is the tokenizer's: 262,144 tokens without a list of merges.",
    "prose": "near the aim, and single answers lie further apart than that.",
}


def reason_of(name):
    return next((reason for key, reason in REASONS.items() if key in name), "not known.")


def shortfalls(results, scenarios):
    lines = []
    for (model, name), cell in results.items():
        scenario, ratio = scenarios[name], ratio_of(cell)
        judged = statistics.median(cell["lockstep"]) if ratio is None or scenario.absolute else ratio
        if verdict(scenario, model, judged) == "no":
            lines.append(f"- {model}, {name}: {judged:.3g}, {goal_of(scenario, model)}: {reason_of(name)}")
    return "\n".join(lines) or "Nowhere in this run."


def peer_version(options):
    """tests/bench/run names the folder after it."""
    return pathlib.Path(options.peer_bin).parent.name.removeprefix("peer-")


def page(results, scenarios, options, rounds, load):
    return f"""# Benchmarks

`tests/bench/run --peer --write` made this page on {datetime.date.today()}, at revision {revision()}: {cpu_name()}, {options.threads} threads, load average
of the 15 minutes before it {load:.1f}. Both servers, one after the other, through HTTP, {rounds} round{'s' * (rounds > 1)} of {options.runs} runs
(rows with 2,000 tokens and more: one); the same model file, threads, client and room for {ROOM} tokens of context. The peer is the llama.cpp
of llama-cpp-python {peer_version(options)}, its server with `--kv-unified --slot-prompt-similarity 0`; Lockstep computes in a16-v1.
The models: {", ".join(f"{name} is {file}" for name, file in FILES.items())}. A model's rows are of one run; another model's may be of the next, on the same machine, with fewer scenarios (`--resume`,
`--prompts`). Machines of this kind are shared, so only the ratios within one run say something. The figures are as they
came out, also where they fall short ("there": no).

{table(results, scenarios)}

## Where it falls short

{shortfalls(results, scenarios)}

## What the rows are

- *ratio*: Lockstep's figure over the one beside it; below 1 is better for times and memory.
- *one stream*, *streams*: greedy, with what is on by default, drafts among it (the peer has none on). Prompts are random tokens, other ones in each run, so that
  no cache knows them. Long greedy answers of a small model repeat themselves, which drafts use; how often varies from prompt to prompt. Prompt and answer are
  32 and 128 tokens for one stream, 32 and 64 for 8, 16 and 32 for 32. *Generated* counts from the first token of any stream to the last of all.
- *without drafts*: what the kernels and the pipeline give by themselves.
- *the engine alone*: `lockstep bench --in-process`, with the same prompt and answer lengths. Drafts on neither side.
- *memory (PSS)*: of all processes together, after the scenarios, shared pages counted once. Lockstep's run directory also reserves room in
  `/dev/shm` that nothing has touched.
- *start to ready*: from nothing, the weights packed anew. *Start again*: after an end, with the packed weights still in the run directory; the
  peer reads its file both times.
- *with drafts against without*: the same requests (code and summary greedy, prose at temperature 1), every other one with `"speculate": false`; the answers are equal.
- *between tokens*: p99 over 4 streams, while a prompt of 8,000 tokens is computed, against the seconds before it; a ratio for each server.
- *of the memory's speed*: what one step's weights take when all threads only read them, over what a step takes (the engine alone).

On a faster machine, with AVX-512 VNNI: [benchmarks-avx512.md](benchmarks-avx512.md). What drafts bring, and cost where a text doesn't repeat itself: [benchmarks-drafts.md](benchmarks-drafts.md).

![how many times the peer](benchmarks.svg)
![first token](benchmarks-first-token.svg)
![decoding at length](benchmarks-context.svg)
"""
