"""The host engine against transformers in float32, and against itself: same bits however the work is cut."""
import json
import os
import random
import subprocess

import numpy as np
import pytest

import golden
import tiny_models

LONG_RUN = bool(os.environ.get("LOCKSTEP_LONG"))
FAMILIES = ["f32-v1", "a16-v1", "a16-kv8-v1", "a8-v1", "b16-v1"]
FRANCE = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2,
          198, 1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]
PARIS = [504, 3575, 282, 4649, 314, 7042, 30, 2]


def model_path(name):
    path = golden.models_dir() / golden.MODELS[name]
    if not path.exists():
        pytest.skip(f"{path} isn't here (deploy/fetch-model)")
    return path


def isas():
    """What this CPU runs; scalar and auto at least."""
    flags = open("/proc/cpuinfo").read()
    wanted = [("scalar", "fpu"), ("avx2", " avx2 "), ("avx512", " avx512dq "), ("amx", " amx_int8 ")]
    return [isa for isa, flag in wanted if flag in flags]


def reference_path(name):
    """Full rows where they are (tests/run --long, after reference.py), else the committed form."""
    full = golden.FULL / f"{name}.npz"
    return full if LONG_RUN and full.exists() and "lengths" in np.load(full) else golden.DATA / f"{name}.npz"


# ---- fidelity

GATES = {"f32-v1": (1e-9, 1e-8, 1e-4, 0.99999), "a16-v1": (2e-6, 2e-5, 0.02, 0.9999),
         "a16-kv8-v1": (1e-2, 0.3, 1.5, 0.9), "a8-v1": (1e-2, 0.3, 1.5, 0.9),
         "b16-v1": (1e-3, 0.03, 1.0, 0.99)}


def check_gate(path, model, limits, capsys, *options):
    """`lockstep verify same-prefix`: limits are those of mean KL, largest KL, the gap of another argmax, correlation."""
    words = [word for pair in zip(("--mean-kl", "--max-kl", "--gap", "--correlation"), limits) for word in pair]
    done = subprocess.run([golden.lockstep_path(), "verify", "same-prefix", path, "--model", model, "--threads", "2",
                           *map(str, words), *options], capture_output=True, text=True, timeout=1200)
    with capsys.disabled():
        print(f"\n  {path.stem} {' '.join(options)}: {done.stdout.splitlines()[0] if done.stdout else done.stderr}")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", list(golden.MODELS))
def test_same_prefix_gate(name, family, capsys):
    check_gate(reference_path(f"{name}-short"), model_path(name), GATES[family], capsys, "--family", family)


@pytest.mark.parametrize("name", list(golden.MODELS))
def test_long_context_gate(name, capsys):
    check_gate(reference_path(f"{name}-long"), model_path(name), (1e-5, 1e-4, 0.02, 0.9999), capsys, "--family", "a16-v1",
               "--chunk", "512")


@pytest.mark.parametrize("family", ["f32-v1", "a16-v1", "a16-kv8-v1", "b16-v1"])
def test_default_model_answers(family):
    job = {"tokens": FRANCE, "generate": 8}
    [result] = golden.run_engine(model_path("smollm2"), [job], family=family, ctx=256, threads=2)
    assert result["tokens"] == PARIS


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Path of each tiny model, made once, and checked to be what its reference was made of."""
    folder, paths = tmp_path_factory.mktemp("tiny"), {}
    for name in tiny_models.ALL:
        paths[name] = folder / f"{name}.gguf"
        sha256, _ = tiny_models.make(name, paths[name])
        file = np.load(golden.DATA / f"tiny-{name}.npz")
        assert json.loads(str(file["provenance"]))["model_sha256"] == sha256, "tiny_models.py changed: reference.py tiny"
    return paths


@pytest.mark.parametrize("name", list(tiny_models.ALL))
def test_tiny_gate(name, tiny, capsys):
    """Their provenance has the hash of the tensors, which the fixture looked at, and not the file's."""
    for family in ("f32-v1", "a16-v1"):
        check_gate(golden.DATA / f"tiny-{name}.npz", tiny[name], GATES[family], capsys, "--family", family, "--any-model")


# ---- the same bits

def hashes(results):
    """Of a job's rows; in a list of results, of each."""
    return [result["xxh3"] for result in results] if isinstance(results, list) else results["xxh3"]


@pytest.mark.parametrize("name, family", [(name, family) for name in tiny_models.ALL for family in FAMILIES
                                          # Beside these two only what is different: heads of 8 bits, activations of 8 bits.
                                          if family in ("f32-v1", "a16-v1") or name == "gemma3_scaled"])
def test_tiny_bits(name, family, tiny):
    """Chunks, threads, instruction sets, company: the hash of every position's logits stays."""
    tokens, ctx = tiny_models.tokens(name)[:200], tiny_models.LENGTH
    job = {"tokens": tokens, "logits": "all", "generate": 20}
    [base] = golden.run_engine(tiny[name], [job | {"chunk": 512}], family=family, isa="auto", ctx=ctx)
    assert base["status"] == "ok" and len(base["xxh3"]) == 220 and len(set(base["xxh3"])) > 200
    for isa in isas():
        for threads in (1, 2, 4):
            jobs = [job | {"chunk": chunk} for chunk in ((1, 7, 64) if threads == 2 else (200,))]
            for result in golden.run_engine(tiny[name], jobs, family=family, isa=isa, threads=threads, ctx=ctx):
                assert result["xxh3"] == base["xxh3"], (isa, threads)
    others = [{"tokens": tokens[i:i + 5 + 11 * i], "generate": 3 * i, "chunk": 3 + i, "start": 2 * i, "logits": "all"}
              for i in range(1, 16)]
    [crowd] = golden.run_engine(tiny[name], [others + [job | {"chunk": 17, "start": 5}]], family=family, threads=2, ctx=ctx)
    assert crowd[-1]["xxh3"] == base["xxh3"] and crowd[-1]["tokens"] == base["tokens"]
    alone = golden.run_engine(tiny[name], [other | {"start": 0} for other in others], family=family, ctx=ctx)
    assert hashes(alone) == hashes(crowd[:-1])


@pytest.mark.parametrize("name", ["smollm2", "gemma"] + (["qwen2.5"] if LONG_RUN else []))
def test_real_bits(name):
    model, draw = model_path(name), random.Random(7)
    file = np.load(golden.DATA / f"{name}-long.npz")
    tokens = file["prompts"][:150].tolist()
    job = {"tokens": tokens, "logits": "all", "generate": 8}
    [base] = golden.run_engine(model, [job], ctx=512, threads=2)
    for threads, chunks in ((2, (1, 7, 64)), (1, (64,)), (4, (150,))):
        results = golden.run_engine(model, [job | {"chunk": chunk} for chunk in chunks], ctx=512, threads=threads)
        assert all(result["xxh3"] == base["xxh3"] for result in results), threads
    others = []
    for _ in range(15):
        at, length = draw.randrange(2000), draw.randrange(1, 60)
        others.append({"tokens": file["prompts"][at:at + length].tolist(), "generate": draw.randrange(1, 12),
                       "chunk": draw.choice([1, 7, 64]), "start": draw.randrange(8), "logits": "none"})
    [crowd] = golden.run_engine(model, [others + [job | {"chunk": 31, "start": 3}]], ctx=512, threads=2)
    assert crowd[-1]["xxh3"] == base["xxh3"]
    short = job | {"tokens": tokens[:24], "generate": 4}
    results = [golden.run_engine(model, [short], ctx=512, threads=2, isa=isa)[0] for isa in isas()]
    assert all(result["xxh3"][:24] == base["xxh3"][:24] for result in results)
    assert all(result == results[0]["xxh3"] for result in hashes(results))


def test_long_context_bits():
    """Past window, page and item borders: decode and chunked prefill agree at 1,100 tokens."""
    file = np.load(golden.DATA / "gemma-long.npz")
    job = {"tokens": file["prompts"][:1100].tolist(), "logits_at": list(range(1000, 1100, 9))}
    model = model_path("gemma")
    results = [golden.run_engine(model, [job | {"chunk": chunk}], ctx=2048, threads=2)[0] for chunk in (512, 100)]
    assert len(results[0]["xxh3"]) == 12 and results[0]["xxh3"] == results[1]["xxh3"]


# ---- the packed region

def test_region_is_attached_again(tiny, tmp_path):
    region, job = tmp_path / "region", {"tokens": [1, 2, 3], "logits": "all"}
    fresh = golden.run_engine(tiny["qwen3"], [job], ctx=64, region=region)
    bytes_before = region.read_bytes()
    again = golden.run_engine(tiny["qwen3"], [job], ctx=64, region=region, check=True)
    assert hashes(fresh) == hashes(again) and region.read_bytes() == bytes_before


@pytest.mark.parametrize("damage", [("magic", 0, "no magic"), ("version", 8, "layout version"), ("ctx", 64, "header hash"),
                                    ("content", -100, "content differs")], ids=lambda damage: damage[0])
def test_damaged_region_is_refused(damage, tiny, tmp_path):
    region, job = tmp_path / "region", {"tokens": [1, 2, 3]}
    golden.run_engine(tiny["qwen3"], [job], ctx=64, region=region)
    content = bytearray(region.read_bytes())
    content[damage[1]] ^= 1
    region.write_bytes(content)
    with pytest.raises(AssertionError, match=damage[2]):
        golden.run_engine(tiny["qwen3"], [job], ctx=64, region=region, check=True)


def test_region_of_another_model_is_refused(tiny, tmp_path):
    region = tmp_path / "region"
    golden.run_engine(tiny["qwen3"], [{"tokens": [1]}], ctx=64, region=region)
    other = tmp_path / "other.gguf"
    other.write_bytes(tiny["qwen3"].read_bytes().replace(b"general.architecture", b"general.architecture", 1) + b"\0" * 32)
    with pytest.raises(AssertionError, match="packed from model"):
        golden.run_engine(other, [{"tokens": [1]}], ctx=64, region=region)
