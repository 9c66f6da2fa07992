"""What the server's samplers saw, while worker and sampler are killed in the middle of answers that share their batches: an
engine in another process, alone, computes every row of logits again, bit for bit."""

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
    told = json.loads(lines[5])
    told["logits"] = "0" * 32
    (tmp_path / "u").write_text("".join(lines[:5]) + json.dumps(told) + "\n" + "".join(lines[6:]))
    assert verify(tmp_path / "u", status=1)["first_difference"] == {k: told[k] for k in ("request", "choice", "index")}
