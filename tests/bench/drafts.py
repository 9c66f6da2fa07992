"""What drafts bring and cost: the same requests with `"speculate": false` and without it, in turn, at one server. The answers
are the same to the byte, so the rates compare the same work."""

import argparse
import datetime
import http.client
import json
import os
import pathlib
import statistics
import subprocess
import time
import urllib.request

from servers import FILES, REPO, Lockstep

CODE = '''class Shape:
    """A figure in the plane, whose measures are in metres."""

    def __init__(self, name, sides):
        self.name = name
        self.sides = sides

    def outline(self):
        return sum(self.sides)

    def area(self):
        raise NotImplementedError(self.name)

    def describe(self):
        return f"{self.name}: outline {self.outline()}, area {self.area()}"


class Rectangle(Shape):
    def __init__(self, width, height):
        super().__init__("rectangle", [width, height, width, height])
        self.width = width
        self.height = height

    def area(self):
        return self.width * self.height


class Square(Rectangle):
    def __init__(self, side):
        super().__init__(side, side)
        self.name = "square"
'''
REPORT = """The pump house at Lower Weir was built in 1931. Its two pumps lift water from the mill stream into the town's reservoir. In the dry \
summer of 1976 the stream fell so low that the pumps ran for two hours a day only. The council then had a well sunk behind the house. The well is \
forty metres deep and has never run dry. Since 2008 a meter counts each cubic metre that leaves the reservoir. In an ordinary year the town uses \
three hundred thousand of them. The oldest of the pumps still runs every Sunday, so that its bearings do not rust."""
# What is asked, and at which temperature.
TEXTS = {
    "an edit of code": (f"Rename the method `area` to `surface` in this file and print the whole file again.\n\n```python\n{CODE}```", 0),
    "a summary with quotes": (f"Quote, word for word, every sentence of this report that speaks of water, the stream, the well or the pumps.\n\n{REPORT}", 0),
    "prose that doesn't repeat itself": ("Write a story about a clockmaker who finds a letter in an old clock.", 1),
}


class NoTemplate(Exception):
    """The model doesn't know chats."""


def rate(port, text, temperature, seed, speculate):
    """Tokens per second behind the first one, and the answer."""
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 256, "temperature": temperature, "seed": seed, "stream": True,
            "stream_options": {"include_usage": True}, **({} if speculate else {"speculate": False})}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        problem = response.read().decode()
        raise NoTemplate if "no chat template" in problem else SystemExit(problem)
    times, answer, tokens = [], "", 0
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if "choices" not in event:
            raise SystemExit(f"the answer broke off: {event}")
        tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
        delta = event["choices"][0]["delta"].get("content") if event["choices"] else None
        if delta:
            times.append(time.monotonic())
            answer += delta
    connection.close()
    return (tokens - 1) / (times[-1] - times[0]), answer


def measure(port, name, turns):
    """{"lockstep": rates with drafts, "without drafts": rates of the same answers}."""
    pairs = [pair(name, turn, lambda *request: rate(port, *request)) for turn in range(turns)]
    return {"lockstep": [with_them for with_them, _ in pairs], "without drafts": [without for _, without in pairs]}


def pair(name, turn, ask):
    """What ask(text, temperature, seed, speculate) told with drafts and without, one behind the other; who is first changes."""
    told = {speculate: ask(*TEXTS[name], turn, speculate) for speculate in sorted([True, False], reverse=turn % 2 == 1)}
    if told[True][-1] != told[False][-1]:
        raise SystemExit(f"{name}, seed {turn}: drafts changed the answer")
    return told[True][0], told[False][0]


# ---- by itself: wall clock, processor time, passes and acceptance of each answer

COUNTERS = {"passes": "lockstep_worker_steps_total", "drafted": "lockstep_drafted_tokens_total", "accepted": "lockstep_accepted_tokens_total"}


def processor_s(pid):
    """Of all threads. What else the machine does hardly counts in it, unlike in the wall clock."""
    times = [pathlib.Path(task, "schedstat").read_text().split()[0] for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]
    return sum(map(int, times)) / 1e9


def counters(server):
    with urllib.request.urlopen(server.url + "/metrics", timeout=60) as response:
        lines = response.read().decode().splitlines()
    told = {name: sum(float(line.split()[-1]) for line in lines if line.startswith(metric)) for name, metric in COUNTERS.items()}
    return told | {"processor_s": processor_s(server.pid_of["npu-worker"])}


def look(server, *request):
    """One answer's figures, and the answer."""
    before = counters(server)
    value, answer = rate(server.port, *request)
    after = counters(server)
    return {"tokens_per_s": value} | {name: after[name] - before[name] for name in before}, answer


def row(model, name, pairs):
    """Medians of the ratios of each pair, with their quartiles."""
    def ratios(figure):
        values = [with_them[figure] / without[figure] for with_them, without in pairs]
        low, middle, high = statistics.quantiles(values, n=4)
        return f"{middle:.3f} ({low:.3f} to {high:.3f})"
    made, right = (sum(with_them[figure] for with_them, _ in pairs) for figure in ("drafted", "accepted"))
    shown = f"{right / made:.2f} of {made / len(pairs):.0f}" if made else "none made"
    return f"| {model} | {name} | {len(pairs)} | {ratios('tokens_per_s')} | {ratios('processor_s')} | {ratios('passes')} | {shown} |"


def page(rows, options, loads):
    return f"""# What drafts bring and cost

`tests/bench/drafts.py` measured this on {datetime.date.today()}, at revision {options.revision}: 2 cores that had other work,
load average {min(loads):.0f} to {max(loads):.0f}; compute threads: {options.threads}. Each request is asked twice in a row at one server, with drafts and with
`"speculate": false`; who is first changes. The answers, of up to 256 tokens, are equal to the byte. A ratio is that of such a pair, with drafts over without:
their median, and the quartiles. *Processor time* is the npu-worker's for the whole answer, which other work on the machine moves far
less than the wall clock; *accepted* the share of the drafts that were drawn, and how many were made for an answer.

| model | answer | pairs | tokens/s | processor time | passes | accepted |
|---|---|---|---|---|---|---|
{chr(10).join(rows)}

Aimed at: 0.97 or more of the tokens/s where a text doesn't repeat itself. Where the quartiles of tokens/s lie further apart than that, they say
nothing about it; the processor time then does.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="smollm2,qwen2.5")
    parser.add_argument("--turns", type=int, default=12, help="pairs of each text")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--port", type=int, default=18960)
    parser.add_argument("--revision", default=subprocess.run(["git", "-C", REPO, "rev-parse", "--short", "HEAD"], capture_output=True,
                                                             text=True).stdout.strip())
    parser.add_argument("--write", action="store_true", help="docs/benchmarks-drafts.md")
    options, rows, loads = parser.parse_args(), [], []
    models = pathlib.Path(os.environ.get("LOCKSTEP_MODELS", pathlib.Path.home() / ".cache/lockstep/models"))
    for model in options.models.split(","):
        with Lockstep(options, models / FILES[model], 8) as server:
            pairs = {name: [] for name in TEXTS}
            for turn in range(options.turns):
                for name in TEXTS:
                    pairs[name].append(pair(name, turn, lambda *request: look(server, *request)))
                    loads.append(os.getloadavg()[0])
                    print(model, name, *(f"{key} {a:.2f} {b:.2f}," for key, (a, b) in
                                         {key: [figures[key] for figures in pairs[name][-1]] for key in pairs[name][-1][0]}.items()), flush=True)
        rows += [row(model, name, told) for name, told in pairs.items()]
    text = page(rows, options, loads)
    if options.write:
        (REPO / "docs/benchmarks-drafts.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
