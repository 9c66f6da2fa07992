"""What the server's samplers saw, while worker and sampler are killed in the middle of answers that share their batches: an
engine in another process, alone, computes every row of logits again, bit for bit, and draws every token from it again."""

import json
import os
import subprocess

import pytest

from pipeline import BUILD, model_path, pipeline_with
from test_kill import read_through

TOKENS = 1000 if os.environ.get("LOCKSTEP_LONG") else 60
BODIES = [
    {"prompt": "Once upon a time", "temperature": 0, "max_tokens": TOKENS, "ignore_eos": True},
    {"prompt": "The sea is " * 40, "temperature": 0.9, "seed": 5, "max_tokens": TOKENS, "ignore_eos": True},
    {"prompt": "One, two, three,", "temperature": 1, "seed": 6, "max_tokens": 30, "n": 2, "ignore_eos": True},
]


def verify(tape, *words, status=0):
    done = subprocess.run([BUILD / "bin/lockstep", "verify", "tape", tape, "--model", model_path(), "--json", *words],
                          capture_output=True, text=True, timeout=900)
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def tape(tmp_path_factory):
    """Of answers in whose middle the worker and the sampler were killed."""
    path = tmp_path_factory.mktemp("tape") / "tape"
    with pipeline_with(options={"sampler": ["--tape", path]}) as pipeline:
        def disturb():
            for role in ("npu-worker", "sampler", "npu-worker"):
                pipeline.kill(role)
                pipeline.start(role)
        read_through(pipeline, BODIES, 7, disturb)
        assert pipeline.status()["counters"]["deaths"] >= 2
    return path


def test_every_draw_is_computed_again(tape):
    told = verify(tape)
    assert told["identical"] and told["incomplete"] == 0 and told["drawn_again_otherwise"] == 0
    assert told["answers"] == 4 and told["draws"] == told["draws_identical"] == 2 * TOKENS + 2 * 30
    assert verify(tape, "--isa", "avx2", "--chunk", "7")["identical"] if "avx2" in open("/proc/cpuinfo").read() else True


def test_every_token_is_drawn_again(tape):
    """From logits of the verifier's own, by what the tape says of the request."""
    told = verify(tape)
    assert told["redrawn"] == told["redrawn_same"] == told["draws"] and told["first_other_token"] is None


@pytest.fixture(scope="module")
def short(tape):
    """One answer of 30 sampled tokens, a line each."""
    lines = [json.loads(line) for line in tape.read_text().splitlines()]
    request = next(line["request"] for line in lines if line["choice"] == 1)
    return list({line["index"]: line for line in lines if (line["request"], line["choice"]) == (request, 1)}.values())


def written(lines, path):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def place(line):
    return {name: line[name] for name in ("request", "choice", "index")}


def test_a_token_drawn_again_otherwise_is_seen(short, tmp_path):
    """A sampler died and the next one drew another token, or from other logits: which of the two was committed doesn't matter."""
    again = {**short[8], "token": short[8]["token"] ^ 1}
    for extra, otherwise in ((short[8], 0), (again, 1), ({**short[8], "logits": "0" * 32}, 1)):
        told = verify(written([*short, extra], tmp_path / "t"), status=otherwise)
        assert (told["identical"], told["drawn_again"], told["drawn_again_otherwise"]) == (not otherwise, 1, otherwise)
    # The other one first, and what follows was drawn behind the true one.
    told = verify(written([*short[:8], again, *short[8:]], tmp_path / "t"), status=1)
    assert told["drawn_again_otherwise"] == 1 and told["first_other_token"] == place(again)
    assert told["first_difference"] == {**place(again), "index": again["index"] + 1}


def test_another_token_is_seen_even_if_it_is_the_last(short, tmp_path):
    """No logits follow the last token of an answer; but those before it give another one."""
    last = {**short[29], "token": short[29]["token"] ^ 1}
    told = verify(written([*short[:29], last], tmp_path / "t"), status=1)
    assert not told["identical"] and told["draws_identical"] == told["draws"] == told["redrawn"] == 30
    assert told["first_other_token"] == place(last) and told["redrawn_same"] == 29 and told["first_difference"] is None


@pytest.mark.parametrize("name, value", [("seed", "0" * 16), ("temperature", 0.5), ("min_p", 0.9)])
def test_another_sampling_is_seen(short, tmp_path, name, value):
    first = {**short[0], "sampling": {**short[0]["sampling"], name: value}}
    told = verify(written([first, *short[1:]], tmp_path / "t"), status=1)
    assert told["draws_identical"] == told["draws"] == told["redrawn"] and told["redrawn_same"] < 27


def test_what_numbers_dont_tell_is_not_drawn_again(tmp_path):
    """Grammars, biases, least lengths: their logits are compared all the same."""
    path = tmp_path / "t"
    bodies = [{"guided_regex": "[a-z]+"}, {"logit_bias": {"28": 5}}, {"min_tokens": 2}, {"top_p": 0.1 + 0.2, "frequency_penalty": -1e-3}]
    with pipeline_with(options={"sampler": ["--tape", path]}) as pipeline:
        for body in bodies:
            pipeline.complete("The sea", max_tokens=4, temperature=1.1, seed=2**63 - 1, ignore_eos=True, **body)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    told = verify(path)
    sampled = [line for line in lines if line.get("sampling")]
    assert told["identical"] and told["answers"] == 4 and told["draws"] == len(lines) and told["redrawn"] == 4
    assert [line["sampling"]["seed"] for line in sampled] == ["7" + "f" * 15]


def test_another_family_is_seen(tape):
    told = verify(tape, "--family", "a8-v1", status=1)
    assert not told["identical"] and told["draws_identical"] == 0 and told["first_difference"]["index"] == 0


def test_half_a_line_is_left_out(tmp_path):
    """A sampler that died while it wrote: the next one begins a line of its own."""
    path = tmp_path / "t"
    path.write_text('{"request":99,"choice":0,"index":0,"tok')
    with pipeline_with(options={"sampler": ["--tape", path]}) as pipeline:
        pipeline.complete("The capital", max_tokens=3, temperature=0)
    lines = path.read_text().splitlines()
    assert len(lines) == 4 and all(json.loads(line) for line in lines[1:])
    told = verify(path)
    assert told["identical"] and told["answers"] == 1 and told["draws"] == 3 and told["incomplete"] == 0


def test_damage_is_named(tape, tmp_path):
    lines = tape.read_text().splitlines(keepends=True)
    (tmp_path / "t").write_text("".join(lines[:5]) + lines[5].replace('"token":', '"token":-') + "".join(lines[6:]))
    done = subprocess.run([BUILD / "bin/lockstep", "verify", "tape", tmp_path / "t", "--model", model_path()],
                          capture_output=True, text=True)
    assert done.returncode == 70 and "line 6" in done.stderr
    first = json.loads(lines[0])
    first["sampling"]["temperature"] = None
    (tmp_path / "t").write_text(json.dumps(first) + "\n" + "".join(lines[1:]))
    done = subprocess.run([BUILD / "bin/lockstep", "verify", "tape", tmp_path / "t", "--model", model_path()],
                          capture_output=True, text=True)
    assert done.returncode == 70 and "line 1: sampling" in done.stderr
    told = json.loads(lines[5])
    told["logits"] = "0" * 32
    (tmp_path / "u").write_text("".join(lines[:5]) + json.dumps(told) + "\n" + "".join(lines[6:]))
    assert verify(tmp_path / "u", status=1)["first_difference"] == place(told)
