"""The same bits, however a request is computed: alone or in company, in pieces of any size, with any number of threads, on
any instruction set, by any instance, with or without cached pages. Compared are the answer (ids, text, log-probabilities
as floats) and the hash of every row of logits, which the worker logs at debug level."""

import contextlib
import json
import os
import pathlib
import random
import re
import subprocess
import threading

import pytest

from api import bits, until, user
from pipeline import BUILD, pipeline_with

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
DEBUG = ["--log-level", "debug"]
ALONE = [*DEBUG, "--prefix-cache=false", "--run-ahead=false", "--threads", "2"]
WORDS = "the sea is deep and old ships sleep under it while small fish tell each other stories about the sun ".split()


def text(seed, n):
    return " ".join(random.Random(seed).choices(WORDS, k=n))


REQUESTS = {
    "tiny": (COMPLETIONS, {"prompt": "The capital of", "temperature": 0, "max_tokens": 2, "logprobs": 20, "echo": True}),
    "greedy chat": (CHAT, {"messages": user("What is the capital of France?"), "temperature": 0, "logprobs": True, "top_logprobs": 20}),
    "sampled": (COMPLETIONS, {"prompt": text(1, 45), "temperature": 0.9, "top_p": 0.95, "seed": 7, "max_tokens": 8, "logprobs": 20,
                              "repetition_penalty": 1.2, "frequency_penalty": 0.3, "ignore_eos": True}),
    "scored": (COMPLETIONS, {"prompt": text(2, 12), "echo": True, "logprobs": 5, "max_tokens": 1, "temperature": 0}),
    "long": (COMPLETIONS, {"prompt": text(3, 560), "temperature": 0, "max_tokens": 12, "logprobs": 20, "min_tokens": 12}),
}
SHORT = [name for name in REQUESTS if name != "long"]
SCORED = ("tiny", "scored")


def hashes(pipeline, request):
    """{position: hash}; what was computed twice must be the same."""
    found = {}
    for instance in range(pipeline.instances["npu-worker"]):
        for at, row in re.findall(rf'"req":"{request:016x}","msg":"logits at (\d+): ([0-9a-f]{{16}})"', pipeline.log("npu-worker", instance)):
            assert found.setdefault(int(at), row) == row
    return found


def look(pipeline, name):
    """(answer, hashes) of a request."""
    path, body = REQUESTS[name]
    answer = pipeline.post(path, **body, return_token_ids=True)
    rows = hashes(pipeline, int(answer["id"].rsplit("-", 1)[1], 16))
    usage = answer["usage"]
    assert len(rows) == (usage["total_tokens"] - 1 if name in SCORED else usage["completion_tokens"]), rows
    return bits(answer), rows


@pytest.fixture(scope="module")
def plain():
    """Two threads, default pieces, no cache."""
    with pipeline_with(options={"npu-worker": ALONE}) as pipeline:
        yield pipeline


@pytest.fixture(scope="module")
def base(plain):
    """Each request alone."""
    found = {}
    for name in REQUESTS:
        found[name] = look(plain, name)
        assert look(plain, name) == found[name]
    assert len({row for _, rows in found.values() for row in rows.values()}) == sum(len(rows) for _, rows in found.values())
    return found


@contextlib.contextmanager
def worker_with(plain, *options):
    plain.options["npu-worker"] = [*ALONE, *options]
    plain.restart("npu-worker")
    try:
        yield plain
    finally:
        plain.options["npu-worker"] = ALONE


def test_the_engine_alone_gives_the_same_rows(plain, base):
    """No pipeline at all: the engine's tool, fed with prompt and answer."""
    jobs = []
    for name in REQUESTS:
        path, body = REQUESTS[name]
        answer = plain.post(path, **body, return_token_ids=True)
        prompt = answer.get("prompt_token_ids") or answer["choices"][0]["prompt_token_ids"]
        jobs.append({"tokens": prompt + answer["choices"][0]["token_ids"][:-1], "logits_at": sorted(base[name][1])})
    done = subprocess.run([BUILD / "test/lockstep-engine-tool", "--model", plain.model, "--ctx", "8192", "--threads", "1"],
                          input="".join(json.dumps(job) + "\n" for job in jobs), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for name, line in zip(REQUESTS, done.stdout.splitlines()):
        assert json.loads(line)["xxh3"] == [base[name][1][at] for at in sorted(base[name][1])], name


@pytest.mark.parametrize("rows", [1, 7, 64, 512])
def test_pieces_of_a_prompt(plain, base, rows):
    with worker_with(plain, "--prefill-rows", rows):
        before = plain.metric('lockstep_worker_steps_total{instance="0",epoch="%d"}' % epoch(plain))
        assert look(plain, "long") == base["long"]
        steps = plain.metric('lockstep_worker_steps_total{instance="0",epoch="%d"}' % epoch(plain)) - before
        assert steps >= 560 / rows, "the prompt was not cut"


def epoch(pipeline):
    """Of the worker that runs now; the one before it may still be listed."""
    return max(process["epoch"] for process in pipeline.status()["processes"] if process["role"] == "npu-worker")


@pytest.mark.parametrize("threads", [1, 4])
def test_threads(plain, base, threads):
    with worker_with(plain, "--threads", threads):
        for name in REQUESTS:
            assert look(plain, name) == base[name], name


def instruction_sets():
    """All that this CPU runs."""
    flags = set(pathlib.Path("/proc/cpuinfo").read_text().split())
    return ["scalar"] + [isa for isa, flag in (("avx2", "avx2"), ("avx512", "avx512vl"), ("amx", "amx_int8")) if flag in flags]


@pytest.mark.parametrize("isa", ["scalar", "avx2", "avx512", "amx"])
def test_instruction_sets(plain, base, isa):
    if isa not in instruction_sets():
        pytest.skip(f"this CPU has no {isa}")
    with worker_with(plain, "--isa", isa):
        plain.restart("sampler", "--isa", isa)
        assert f", {isa}" in plain.log("npu-worker").rsplit("engine: ", 1)[1]
        for name in ["tiny"] if isa == "scalar" else REQUESTS:
            assert look(plain, name) == base[name], name
    plain.restart("sampler")


def test_instruction_set_by_environment(plain, base):
    plain.env["LOCKSTEP_ISA"] = "avx2" if "avx2" in instruction_sets() else "scalar"
    try:
        with worker_with(plain):
            assert f", {plain.env['LOCKSTEP_ISA']}" in plain.log("npu-worker").rsplit("engine: ", 1)[1]
            assert look(plain, "greedy chat") == base["greedy chat"]
    finally:
        del plain.env["LOCKSTEP_ISA"]


def visit(pipeline, draw):
    """One request of someone else: short, long, streamed, broken off."""
    body = {"prompt": text(draw.randrange(1000), draw.randrange(1, 90)), "max_tokens": draw.randrange(1, 14), "seed": 1,
            "temperature": draw.choice([0, 1]), "n": draw.choice([1, 1, 1, 2])}
    if draw.random() < 0.3:
        # Begins like one of those that are compared.
        body["prompt"] = REQUESTS[draw.choice(["sampled", "long"])][1]["prompt"][:draw.randrange(40, 400)]
    if draw.random() < 0.3:
        with pipeline.stream(COMPLETIONS, **body) as stream:
            for _, _ in zip(range(draw.randrange(6)), stream):
                pass
    else:
        pipeline.post(COMPLETIONS, **body)


@contextlib.contextmanager
def company(pipeline, n):
    """n clients that ask without a pause, each what its own seed says."""
    leave, failures = threading.Event(), []

    def client(seed):
        draw = random.Random(seed)
        while not leave.is_set():
            try:
                visit(pipeline, draw)
            except Exception as failure:
                failures.append(failure)
                return
    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(n)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        leave.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


@pytest.mark.parametrize("family", ["a16-v1", "a16-kv8-v1", "f32-v1"])
def test_company(base, family):
    """Among 15 others that come and go, prompts and answers mixed in one step, with shared pages."""
    with pipeline_with(options={"keeper": ["--slots", 16, "--family", family], "npu-worker": DEBUG}) as pipeline:
        names = list(REQUESTS) if family == "a16-v1" else ["tiny", "sampled"]
        alone = base if family == "a16-v1" else {name: look(pipeline, name) for name in names}
        with company(pipeline, 15):
            until(lambda: pipeline.running() >= 12, what="company")
            for name in names:
                assert look(pipeline, name) == alone[name], name
        assert most_in_a_step(pipeline) >= 4
        pipeline.wait_idle()


def most_in_a_step(pipeline):
    """Rows of logits that were logged in the same millisecond belong to one step."""
    times = re.findall(r'"ts":"([^"]*)".*"logits at', pipeline.log("npu-worker"))
    return max(map(times.count, set(times)))


def test_cached_pages(base):
    """A second request finds the first one's pages: less is computed, the same comes out. Also behind a longer prompt."""
    with pipeline_with(options={"npu-worker": DEBUG}) as pipeline:
        prefilled = f'lockstep_prefill_tokens_total{{instance="0",epoch="{epoch(pipeline)}"}}'
        counts = [pipeline.metric(prefilled)]
        for _ in range(3):
            assert look(pipeline, "long") == base["long"]
            counts.append(pipeline.metric(prefilled))
        first, *others = [after - before for before, after in zip(counts, counts[1:])]
        assert first > 500 and all(other < 100 for other in others), (first, others)
        longer = {**REQUESTS["long"][1], "prompt": REQUESTS["long"][1]["prompt"] + " and then", "return_token_ids": True}
        cached = bits(pipeline.complete(**longer))
        pipeline.options["npu-worker"] = ALONE
        pipeline.restart("npu-worker")
        assert bits(pipeline.complete(**longer)) == cached


# What a draw depends on beside its logits: numbers alone, or also what was drawn before, the request's lists, its grammar.
BY_NUMBERS = [{"temperature": 1}, {"temperature": 1.5, "seed": 2, "n": 3}, {"temperature": 1.3, "top_k": 40}, {"temperature": 1.2, "top_p": 0.9},
              {"temperature": 1.6, "min_p": 0.02}, {"temperature": 1.2, "typical_p": 0.8}, {"temperature": 0},
              {"temperature": 0.9, "top_k": 200, "top_p": 0.95, "min_p": 0.01, "typical_p": 0.95, "seed": 2**62 + 5, "n": 2}]
BY_MORE = [{"temperature": 1.4, "repetition_penalty": 1.4, "n": 2}, {"temperature": 1, "presence_penalty": 1.5, "frequency_penalty": -0.8},
           {"temperature": 0, "frequency_penalty": 1.5}, {"temperature": 1.1, "logit_bias": {"198": 12, "28": -100, "30": 5}, "top_p": 0.9},
           {"temperature": 1, "response_format": {"type": "json_object"}}, {"temperature": 1.5, "min_tokens": 20, "ignore_eos": False}]


def drawn(pipeline, kinds):
    """The answers to a request of each kind; guesses are drafts nowhere, so that each is one from the logits."""
    return [bits(pipeline.complete(**{"prompt": text(11, 20), "seed": 5, "max_tokens": 24, "logprobs": 1, "ignore_eos": True,
                                      "speculate": False, "return_token_ids": True, **kind})) for kind in kinds]


def test_ahead_is_tried_first(plain):
    """By itself, a worker finds out whether running ahead pays: its first turn does."""
    with worker_with(plain, "--run-ahead=true"):
        plain.complete(prompt=text(11, 20), max_tokens=24, temperature=0, ignore_eos=True, speculate=False)
        assert plain.metric(f'lockstep_ahead_tokens_total{{instance="0",epoch="{epoch(plain)}"}}') > 0


def test_guesses_are_draws(plain):
    """Where draws depend on numbers alone, the worker can make the very draws beforehand: it guesses no token wrong. Where they
    depend on more, or where the likeliest token is its guess, it does, and that changes nothing."""
    alone = [drawn(plain, kinds) for kinds in (BY_NUMBERS, BY_MORE)]
    with worker_with(plain, "--run-ahead=true", "--ahead-when=always", "--guess=draw"):
        ahead, wrong = (f'lockstep_{what}_tokens_total{{instance="0",epoch="{epoch(plain)}"}}' for what in ("ahead", "misguessed"))
        assert drawn(plain, BY_NUMBERS) == alone[0]
        assert plain.metric(wrong) == 0 < plain.metric(ahead)
        assert drawn(plain, BY_MORE) == alone[1]
        assert plain.metric(wrong) > 0
        with company(plain, 4):
            assert drawn(plain, BY_NUMBERS[1::3] + BY_MORE[::3]) == alone[0][1::3] + alone[1][::3]
    with worker_with(plain, "--run-ahead=true", "--ahead-when=always", "--guess=likeliest"):
        assert drawn(plain, BY_NUMBERS[:3]) == alone[0][:3]


def test_running_ahead(plain, base):
    """The next step is computed for the token that is going to be drawn, or likely so, while the sampler draws."""
    with worker_with(plain, "--run-ahead=true", "--ahead-when=always"):
        ahead = f'lockstep_ahead_tokens_total{{instance="0",epoch="{epoch(plain)}"}}'
        before = plain.metric(ahead)
        for name in REQUESTS:
            assert look(plain, name) == base[name], name
        assert plain.metric(ahead) > before
        # Draws that are guessed wrong most of the time, and some that end where it had run ahead.
        body = {"prompt": text(9, 20), "temperature": 1.5, "seed": 3, "max_tokens": 40, "stop": ["e "], "logprobs": 2, "n": 3}
        wild = bits(plain.complete(**body))
        with company(plain, 4):
            for name in [*SHORT] * 2:
                assert look(plain, name) == base[name], name
            assert bits(plain.complete(**body)) == wild
    assert bits(plain.complete(**body)) == wild


def test_instances(base):
    """Two of each: whoever gets it, gives the same."""
    options = {"npu-worker": [*DEBUG, "--prefix-cache=false"], "keeper": ["--slots", 16]}
    with pipeline_with(options=options, instances={"npu-worker": 2, "sampler": 2, "tokenizer": 2}) as pipeline:
        with company(pipeline, 4):
            for name in [*SHORT] * 3:
                assert look(pipeline, name) == base[name], name
        for instance in (0, 1):
            assert "logits at" in pipeline.log("npu-worker", instance), "an instance did nothing"


@pytest.mark.skipif(not os.environ.get("LOCKSTEP_LONG"), reason="only with --long")
def test_much_company(base):
    with pipeline_with(options={"keeper": ["--slots", 16], "npu-worker": DEBUG}) as pipeline, company(pipeline, 15):
        for name in [*REQUESTS] * 20:
            assert look(pipeline, name) == base[name], name
