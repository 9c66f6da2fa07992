"""Speculation: drafts from the text itself, verified in the step ahead. No byte, no logit and no draw is another, whoever dies."""

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


def many(count):
    """Requests of all kinds; every third one is the beginning of a list, which goes on for ever."""
    draw = random.Random(9)
    for i in range(count):
        words = " ".join(draw.choice(["red", "blue", "green", "one", "two", "sea", "the"]) for _ in range(draw.randrange(4, 60)))
        yield {"prompt": LIST if i % 3 == 0 else words, "max_tokens": TOKENS, "ignore_eos": True, "seed": i, "logprobs": 1,
               "temperature": draw.choice([0, 0, 0.4, 1]), "min_p": draw.choice([0, 0.05])}


@pytest.fixture(scope="module")
def tape(tmp_path_factory):
    return tmp_path_factory.mktemp("tape") / "tape"


@pytest.fixture(scope="module")
def speculating(tape):
    with pipeline_with(options={"npu-worker": ["--speculate", 8], "sampler": ["--tape", tape]}) as pipeline:
        yield pipeline


def answers(pipeline, bodies):
    return [join(pipeline.events(COMPLETIONS, **body, return_token_ids=True)) for body in bodies]


@pytest.fixture(scope="module")
def plain():
    """Without running ahead: one step a token."""
    with pipeline_with(options={"npu-worker": ["--run-ahead=false"]}) as pipeline:
        yield {name: answers(pipeline, bodies) for name, bodies in
               (("repeats", [REPEATS_ITSELF]), ("repetitive", REPETITIVE), ("mixed", BODIES), ("many", list(many(100 if LONG else 6))))}


def test_no_byte_is_another_and_steps_are_fewer(speculating, plain):
    steps = sum_of(speculating, "lockstep_worker_steps_total")
    assert answers(speculating, [REPEATS_ITSELF]) == plain["repeats"]
    took = sum_of(speculating, "lockstep_worker_steps_total") - steps
    print(f"{REPEATS_ITSELF['max_tokens']} tokens in {took} steps")
    assert took < 0.8 * REPEATS_ITSELF["max_tokens"]
    assert answers(speculating, REPETITIVE) == plain["repetitive"]
    assert answers(speculating, BODIES) == plain["mixed"]
    assert answers(speculating, many(100 if LONG else 6)) == plain["many"]


@pytest.mark.parametrize("role", ["npu-worker", "sampler"])
def test_a_death_is_not_noticed(speculating, plain, role):
    def disturb():
        for _ in range(2):
            speculating.kill(role)
            speculating.start(role)
    assert read_through(speculating, REPETITIVE, 9, disturb) == plain["repetitive"]
    speculating.wait_ready()


def test_every_draw_is_computed_again(speculating, plain, tape):
    """KV and logits, too: each row that a token was drawn from, by an engine that runs one position after the other."""
    answers(speculating, REPETITIVE)
    done = subprocess.run([BUILD / "bin/lockstep", "verify", "tape", tape, "--model", model_path(), "--json"],
                          capture_output=True, text=True, timeout=900)
    told = json.loads(done.stdout)
    assert done.returncode == 0 and told["identical"] and told["draws"] >= 5 * TOKENS


def test_it_needs_steps_ahead():
    done = subprocess.run([BUILD / "bin/lockstep-npu-worker", "--speculate", "16"], capture_output=True, text=True)
    assert done.returncode in (64, 78) and "15" in done.stderr


@pytest.mark.parametrize("fault", ["worker.step:kill@9", "worker.commit:kill@40", "worker.commit:kill@41", "worker.commit:kill@90"])
def test_a_death_between_drafts(plain, fault):
    with pipeline_with(options={"npu-worker": ["--speculate", 8]}, faults={("npu-worker", 0): fault}) as pipeline:
        reader = Reader(pipeline, REPEATS_ITSELF, 1)
        start_again(pipeline, "npu-worker", -signal.SIGKILL)
        reader.join(120)
        assert not reader.failure and [join(reader.events)] == plain["repeats"]


def test_a_freeze_between_drafts(plain):
    """Another worker goes on from what is committed; the frozen one wakes, finds itself fenced, and leaves."""
    with pipeline_with(options={"npu-worker": ["--speculate", 8]}, env={"LOCKSTEP_STALL_MS": "2000"},
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
