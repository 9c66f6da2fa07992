"""Speculation: drafts, by the text itself or by a model, verified in the step ahead. No byte, no logit, no draw and no byte of a KV
page is another, whoever dies. The long form: 100 prompts of 256 tokens (LOCKSTEP_PROMPTS: as many, or a piece of them) for each that
drafts, with a death among every four."""

import json
import os
import pathlib
import random
import signal
import subprocess

import pytest

from api import join, until
from pipeline import BUILD, model_path, pipeline_with
from test_injected import start_again
from test_kill import BODIES, COMPLETIONS, Reader, read_through, sum_of

LONG = bool(os.environ.get("LOCKSTEP_LONG"))
TOKENS = 256 if LONG else 60
PROMPTS = os.environ.get("LOCKSTEP_PROMPTS", "100" if LONG else "4")
LIST = "1. red\n2. green\n3. blue\n4. red\n5. green\n6. blue\n7. red\n8. green\n9."
CODE = "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\ndef mul(a, b):\n    return"
# Where the text repeats itself, greedy and sampled; penalties make the draws depend on what was drawn.
REPETITIVE = [
    {"prompt": LIST, "temperature": 0, "max_tokens": TOKENS, "ignore_eos": True, "logprobs": 3},
    {"prompt": CODE, "temperature": 0.3, "seed": 11, "max_tokens": TOKENS, "ignore_eos": True, "logprobs": 2},
    {"prompt": LIST, "temperature": 0.7, "seed": 3, "top_p": 0.9, "frequency_penalty": 0.2, "max_tokens": TOKENS, "ignore_eos": True},
    {"prompt": "A rose is a rose is a rose is a", "temperature": 0, "max_tokens": TOKENS, "n": 2, "ignore_eos": True},
]
# A sampled one that soon says the same again and again.
REPEATS_ITSELF = {"prompt": "Write about the sea.", "temperature": 0.8, "seed": 4, "max_tokens": 200, "ignore_eos": True}


# All drafts that there are, whether they pay or not: what pays depends on how busy the machine is.
DRAFTING = ["--speculate", 8, "--draft-when", "always"]
DRAFTERS = {"text": [], "layers": ["--draft-layers", 20], "model": ["--draft-model"]}


def many(count):
    """Requests of all kinds; every third one is the beginning of a list, which goes on for ever."""
    draw = random.Random(9)
    for i in range(count):
        words = " ".join(draw.choice(["red", "blue", "green", "one", "two", "sea", "the"]) for _ in range(draw.randrange(4, 60)))
        yield {"prompt": LIST if i % 3 == 0 else words, "max_tokens": TOKENS, "ignore_eos": True, "seed": i, "logprobs": 1,
               "temperature": draw.choice([0, 0, 0.4, 1]), "min_p": draw.choice([0, 0.05])}


# "60-80": of 80 those behind the first 60.
FIRST, _, COUNT = PROMPTS.rpartition("-")
MANY = list(many(int(COUNT)))[int(FIRST or 0):]


@pytest.fixture(scope="module")
def drafters(tmp_path_factory):
    """Their options. The model that drafts is another one: the served one's weights rounded to 4 bits, so that it is wrong at times."""
    folder = tmp_path_factory.mktemp("drafter") / "q4nx"
    command = [BUILD / "bin/lockstep", "model", "convert", model_path(), folder, "--quantise", "q4"]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    return {**DRAFTERS, "model": [*DRAFTERS["model"], folder]}


@pytest.fixture(scope="module", params=DRAFTERS)
def speculating(request, drafters, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    words = [*DRAFTING, *drafters[request.param], "--disk-cache", folder / "pages"]
    with pipeline_with(options={"npu-worker": words, "sampler": ["--tape", folder / "tape"]}) as pipeline:
        pipeline.folder, pipeline.drafter = folder, request.param
        yield pipeline


def answers(pipeline, bodies):
    return [join(pipeline.events(COMPLETIONS, **body, return_token_ids=True)) for body in bodies]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Without running ahead: one step a token."""
    pages = tmp_path_factory.mktemp("plain") / "pages"
    with pipeline_with(options={"npu-worker": ["--run-ahead=false", "--disk-cache", pages]}) as pipeline:
        told = {name: answers(pipeline, bodies) for name, bodies in
                (("repeats", [REPEATS_ITSELF]), ("repetitive", REPETITIVE), ("mixed", BODIES), ("many", MANY))}
        pipeline.stop("npu-worker")
    return {**told, "pages": pages_of(pages)}


def pages_of(folder):
    """KV pages that a worker wrote to disk as it stopped: {key: bytes}."""
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def drafted(pipeline):
    return [sum_of(pipeline, f"lockstep_{what}_tokens_total") for what in ("drafted", "accepted")]


def test_no_byte_is_another(speculating, plain):
    """How many drafts there are is a matter of how busy the machine is: they stand behind a guess that is computed while a
    sampler draws."""
    steps = sum_of(speculating, "lockstep_worker_steps_total")
    assert answers(speculating, [REPEATS_ITSELF]) == plain["repeats"]
    took = sum_of(speculating, "lockstep_worker_steps_total") - steps
    made, right = drafted(speculating)
    print(f"{REPEATS_ITSELF['max_tokens']} tokens in {took} steps, {right} of {made} drafts right")
    assert right <= made
    assert right < made or speculating.drafter != "model"
    assert answers(speculating, REPETITIVE) == plain["repetitive"]
    assert answers(speculating, BODIES) == plain["mixed"]


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_steps_are_fewer(drafter, drafters, plain):
    """With a sampler that takes 200 ms for every second token: by then the step ahead is done, with its drafts. Each that is
    right saves a step."""
    with pipeline_with(options={"npu-worker": [*DRAFTING, *drafters[drafter]]}, faults={("sampler", 0): "sampler.commit:sleep%2"}) as pipeline:
        steps = sum_of(pipeline, "lockstep_worker_steps_total")
        assert answers(pipeline, REPETITIVE[:1]) == plain["repetitive"][:1]
        took = sum_of(pipeline, "lockstep_worker_steps_total") - steps
        made, right = drafted(pipeline)
        print(f"{drafter}: {TOKENS} tokens in {took} steps, {right} of {made} drafts right")
        assert 3 < right <= made and took <= TOKENS + 3 - right


def test_deaths_in_between_are_not_noticed(speculating, plain):
    """Four streams at once; in the middle a worker dies, then a sampler, ..."""
    before, counts = drafted(speculating), []  # a worker's go with it
    for first in range(0, len(MANY), 4):
        role = ("npu-worker", "sampler")[first // 4 % 2]

        def disturb():
            if role == "npu-worker":
                counts.append(drafted(speculating))
            speculating.kill(role)
            speculating.start(role)
        told = read_through(speculating, MANY[first:first + 4], 9, disturb)
        assert told == plain["many"][first:first + 4], f"prompts {first} to {first + 3}"
        speculating.wait_ready()
    made, right = (sum(column) for column in zip(*counts, drafted(speculating)))
    print(f"{len(MANY)} answers of {TOKENS} tokens, {-(-len(MANY) // 4)} deaths; {right - before[1]:.0f} of {made - before[0]:.0f} drafts right")


@pytest.mark.parametrize("role", ["npu-worker", "sampler"])
def test_two_deaths_are_not_noticed(speculating, plain, role):
    if speculating.drafter != "text" and not LONG:
        pytest.skip("the long form; a death among every four streams is above")

    def disturb():
        for _ in range(2):
            speculating.kill(role)
            speculating.start(role)
    assert read_through(speculating, REPETITIVE, 9, disturb) == plain["repetitive"]
    speculating.wait_ready()


def test_a_request_may_do_without(speculating, plain):
    before = drafted(speculating)
    bodies = [{**body, "speculate": False} for body in [REPEATS_ITSELF, *REPETITIVE]]
    assert answers(speculating, bodies) == plain["repeats"] + plain["repetitive"]
    assert drafted(speculating) == before
    assert answers(speculating, [{**REPEATS_ITSELF, "speculate": True}]) == plain["repeats"]
    assert drafted(speculating) != before


def test_every_draw_is_computed_again(speculating):
    """Logits, too: each row that a token was drawn from, by an engine that runs one position after the other."""
    answers(speculating, REPETITIVE)
    done = subprocess.run([BUILD / "bin/lockstep", "verify", "tape", speculating.folder / "tape", "--model", model_path(), "--json"],
                          capture_output=True, text=True, timeout=2400)
    told = json.loads(done.stdout)
    print({name: told[name] for name in ("answers", "draws", "draws_identical", "drawn_again", "drawn_again_otherwise")})
    assert done.returncode == 0 and told["identical"] and told["draws"] >= 5 * TOKENS


def test_every_page_is_the_same(speculating, plain):
    """The keys and values of all full pages: prompts' and answers', as the workers wrote them to disk."""
    answers(speculating, [REPEATS_ITSELF, *REPETITIVE, *BODIES])
    speculating.stop("npu-worker")
    pages = pages_of(speculating.folder / "pages")
    speculating.start("npu-worker")
    common = pages.keys() & plain["pages"].keys()
    print(f"{len(common)} pages of {len(pages)} and {len(plain['pages'])}")
    assert len(common) > 10 and all(pages[name] == plain["pages"][name] for name in common)


def test_by_itself_it_drafts_where_that_pays(plain):
    """Without an option: the same bytes; how many drafts there are is a matter of how busy the machine is."""
    with pipeline_with() as pipeline:
        assert answers(pipeline, [REPEATS_ITSELF]) == plain["repeats"]
        assert answers(pipeline, REPETITIVE) == plain["repetitive"]
        made, right = drafted(pipeline)
        print(f"{right} of {made} drafts right")


@pytest.mark.parametrize("words, says", [
    (["--speculate", 16], "15"), (["--speculate", 4, "--run-ahead=false"], "run-ahead"), (["--draft-layers", 30], "30 layers"),
    (["--draft-layers", 4, "--draft-model", model_path()], "one of them"), (["--draft-layers", 4, "--speculate", 0], "without --speculate"),
    (["--draft-model", "/nowhere"], "/nowhere"), (["--draft-model", model_path("gemma-3-270m-Q4_K_M.gguf")], "another vocabulary")],
    ids=lambda value: value if isinstance(value, str) else None)
def test_what_makes_no_sense_is_refused(words, says, shared):
    done = subprocess.run([BUILD / "bin/lockstep-npu-worker", "--run-dir", shared.dir, "--instance", "7", *map(str, words)],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode in (64, 66, 74, 78) and says in done.stderr, (done.returncode, done.stderr)


@pytest.mark.parametrize("fault", ["worker.step:kill@9", "worker.commit:kill@40", "worker.commit:kill@41", "worker.commit:kill@90"])
def test_a_death_between_drafts(plain, fault):
    with pipeline_with(options={"npu-worker": DRAFTING}, faults={("npu-worker", 0): fault}) as pipeline:
        reader = Reader(pipeline, REPEATS_ITSELF, 1)
        start_again(pipeline, "npu-worker", -signal.SIGKILL)
        reader.join(120)
        assert not reader.failure and [join(reader.events)] == plain["repeats"]


def test_a_freeze_between_drafts(plain):
    """Another worker goes on from what is committed; the frozen one wakes, finds itself fenced, and leaves."""
    with pipeline_with(options={"npu-worker": DRAFTING}, env={"LOCKSTEP_STALL_MS": "2000"},
                       faults={("npu-worker", 0): "worker.commit:stop@40"}) as pipeline:
        reader = Reader(pipeline, REPEATS_ITSELF, 1)
        until(lambda: is_stopped(pipeline.pid("npu-worker")), 60, "the freeze")
        # Before the keeper ends what nothing stands in for.
        pipeline.start("npu-worker", 1)
        reader.join(120)
        assert not reader.failure and [join(reader.events)] == plain["repeats"]
        pipeline.send(signal.SIGCONT, "npu-worker")
        assert pipeline.processes["npu-worker", 0].wait(20) == 75
        del pipeline.processes["npu-worker", 0]
        assert answers(pipeline, [REPEATS_ITSELF]) == plain["repeats"]


def is_stopped(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
