"""`lockstep verify`: numbers compared as numpy compares them; captures, replays and what must make them differ."""
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

import golden

LONG_RUN = bool(os.environ.get("LOCKSTEP_LONG"))
# The threads of a busy machine wait for each other at every dispatch; their number changes no bit.
os.environ.setdefault("LOCKSTEP_THREADS", "1")
LOCKSTEP = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", golden.REPO / "build/release")) / "bin/lockstep"
TOKENS = 1000 if LONG_RUN else 40


def model_path(name="smollm2"):
    path = golden.models_dir() / golden.MODELS[name]
    if not path.exists():
        pytest.skip(f"{path} isn't here (deploy/fetch-model)")
    return path


def run(*words, status=0):
    command = [LOCKSTEP, "verify", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=7200 if LONG_RUN else 1200)
    assert status is None or done.returncode == status, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def verify(*words, status=0):
    return json.loads(run(*words, "--json", status=status).stdout)


# ---- float comparison, against numpy

def edge_bits(dtype):
    """Zeros, subnormals, normals, largest, infinities, quiet and signalling NaNs with payloads, of both signs."""
    if dtype == "f32":
        half = [0, 1, 2, 0x7fffff, 0x800000, 0x3f800000, 0x3f800001, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000,
                0x7fc00001, 0x7fffffff]
        return np.array(half + [x | 0x80000000 for x in half], dtype=np.uint32)
    quiet = {"f16": [0, 1, 0x3ff, 0x400, 0x3c00, 0x3c01, 0x7bff, 0x7c00, 0x7c01, 0x7e00, 0x7fff],
             "bf16": [0, 1, 0x7f, 0x80, 0x3f80, 0x3f81, 0x7f7f, 0x7f80, 0x7f81, 0x7fc0, 0x7fff]}[dtype]
    return np.array(quiet + [x | 0x8000 for x in quiet], dtype=np.uint16)


def widen(bits, dtype):
    if dtype == "f32":
        return bits.view(np.float32)
    if dtype == "f16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def in_order(values):
    """A sum in index order, as the definition has it (numpy's own sums pairwise)."""
    return float(np.cumsum(values, dtype=np.float64)[-1]) if len(values) else 0.0


def expected(a_bits, b_bits, dtype):
    """The definitions of docs/verification.md in numpy, written independently of the C code."""
    width = 32 if dtype == "f32" else 16
    sign, every = 1 << (width - 1), (1 << width) - 1
    keys = [np.where(x & sign, ~x.astype(np.int64) & every, x.astype(np.int64) | sign) for x in (a_bits, b_bits)]
    with np.errstate(invalid="ignore"):  # signalling NaNs
        a, b = (widen(x, dtype).astype(np.float64) for x in (a_bits, b_bits))
    same = a_bits == b_bits
    ulp_defined = same | ~(np.isnan(a) | np.isnan(b))
    ulps = np.abs(keys[0] - keys[1])[ulp_defined]
    finite = np.isfinite(a) & np.isfinite(b)
    abs_defined = same | finite | (a == b)
    with np.errstate(invalid="ignore", divide="ignore"):
        distance = np.where(same | (a == b), 0.0, np.abs(a - b))
        scale = np.maximum(np.abs(a), np.abs(b))
        rel = np.where(distance == 0, 0.0, distance / np.where(scale == 0, 1.0, scale))
    distance, rel = np.where(abs_defined, distance, -1), np.where(abs_defined, rel, -1)
    rank = lambda values, p: np.sort(values)[max(0, -(-len(values) * p // 100) - 1)] if len(values) else 0
    fa, fb = a[finite], b[finite]
    square, aa, bb = in_order((fa - fb) ** 2), in_order(fa * fa), in_order(fb * fb)
    return {
        "count": len(a), "mismatches": int((~same).sum()), "ulp_undefined": int((~ulp_defined).sum()),
        "abs_undefined": int((~abs_defined).sum()), "ulp": int(ulps.max(initial=0)), "abs": distance.max(initial=0),
        "abs_at": int(distance.argmax()) if distance.max(initial=0) > 0 else 0, "rel": rel.max(initial=0),
        "above": int((a > b).sum()), "below": int((a < b).sum()), "equal_value": int(((a == b) & ~same).sum()),
        "first": int((~same).argmax()) if (~same).any() else None,
        "rms_abs": np.sqrt(square / len(fa)) if len(fa) else None if len(a) else 0,
        "relative_l2": 0 if not len(a) else None if not len(fa) or (bb == 0 and square > 0) else np.sqrt(square) / np.sqrt(bb) if bb else 0,
        "cosine": in_order(fa * fb) / (np.sqrt(aa) * np.sqrt(bb)) if aa > 0 and bb > 0 else None,
        "ulp_percentiles": {str(p): int(rank(ulps, p)) for p in (50, 90, 99)},
        "abs_percentiles": {str(p): rank(distance[abs_defined], p) for p in (50, 90, 99)},
    }


def check_floats(a_bits, b_bits, dtype, folder):
    paths = folder / "a", folder / "b"
    for path, bits in zip(paths, (a_bits, b_bits)):
        bits.tofile(path)
    want = expected(a_bits, b_bits, dtype)
    got = verify("floats", *paths, "--dtype", dtype, status=int(want["mismatches"] > 0))
    for name in ("count", "mismatches", "ulp_undefined", "abs_undefined", "above", "below", "equal_value",
                 "ulp_percentiles", "abs_percentiles"):
        assert got[name] == want[name], name
    assert got["ulp"]["value"] == want["ulp"]
    assert (got["abs"]["value"], got["abs"]["index"]) == (want["abs"], want["abs_at"])
    assert got["rel"]["value"] == want["rel"]
    for name in ("rms_abs", "relative_l2", "cosine"):
        assert got[name] == (want[name] if want[name] is None else pytest.approx(want[name], rel=1e-14)), name
    if want["first"] is None:
        assert got["first"] is None
    else:
        at = want["first"]
        assert (got["first"]["index"], int(got["first"]["a"], 16), int(got["first"]["b"], 16)) == (
            at, a_bits[at], b_bits[at])


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_floats_edges(dtype, tmp_path):
    bits = edge_bits(dtype)
    a, b = (x.ravel() for x in np.meshgrid(bits, bits, indexing="ij"))
    check_floats(a, b, dtype, tmp_path)
    check_floats(a, a, dtype, tmp_path)
    check_floats(a[:0], a[:0], dtype, tmp_path)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_floats_random(dtype, tmp_path):
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")
    draw = np.random.default_rng(seed)
    kind = np.uint32 if dtype == "f32" else np.uint16
    for _ in range(40 if LONG_RUN else 8):
        count = int(draw.integers(1, 3000))
        a = draw.integers(0, np.iinfo(kind).max, count, dtype=kind, endpoint=True)
        if draw.integers(2):  # neighbours rather than strangers
            b = a + draw.integers(0, 3, count).astype(kind)
        else:
            b = draw.integers(0, np.iinfo(kind).max, count, dtype=kind, endpoint=True)
        check_floats(a, b, dtype, tmp_path)


def test_floats_refuses(tmp_path):
    (tmp_path / "a").write_bytes(b"\0" * 8)
    (tmp_path / "b").write_bytes(b"\0" * 12)
    (tmp_path / "c").write_bytes(b"\0" * 7)
    assert "dimension 0 is 2 and 3" in run("floats", tmp_path / "a", tmp_path / "b", status=64).stderr
    assert "multiple of 4" in run("floats", tmp_path / "a", tmp_path / "c", status=64).stderr
    run("floats", tmp_path / "a", tmp_path / "none", status=74)


# ---- capture and replay

@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    folder = tmp_path_factory.mktemp("capture") / "lean"
    told = run("capture", folder, "--model", model_path(), "--chat", "Tell a story about a lighthouse.", "--tokens",
               TOKENS, "--level", "lean").stdout
    assert "without recording: PASS" in told
    return folder


def isas():
    flags = open("/proc/cpuinfo").read()
    return [isa for isa, flag in [("avx2", " avx2 "), ("avx512", " avx512dq "), ("amx", " amx_int8 ")] if flag in flags] + ["scalar"]


VARIATIONS = [[], ["--chunk", 1, "--threads", 1], ["--chunk", 512, "--answer-chunk", 33], ["--neighbours", 7],
              ["--threads", 2, "--chunk", 13, "--neighbours", 3]]


@pytest.mark.parametrize("options", VARIATIONS, ids=lambda options: " ".join(map(str, options)) or "plain")
def test_replay(capture, options, capsys):
    told = run("replay", capture, "--model", model_path(), *options).stdout
    assert told.startswith(f"replay: {TOKENS}/{TOKENS} byte-identical, 0 ULP, 0 argmax flips\n")


@pytest.mark.parametrize("isa", isas())
def test_replay_on_every_isa(capture, isa, tmp_path):
    if isa == "scalar" and not LONG_RUN:  # it is slow: a short capture
        capture = tmp_path / "short"
        run("capture", capture, "--model", model_path(), "--ids", "1,504,3575", "--tokens", 3)
    verdict = verify("replay", capture, "--model", model_path(), "--isa", isa)
    assert verdict["identical"] and verdict["rows"] == verdict["rows_identical"] > 0
    assert verdict["states"] == verdict["states_identical"] > 0


def test_replay_in_another_family_differs(capture):
    verdict = verify("replay", capture, "--model", model_path(), "--family", "a8-v1", "--rel", "1e-9", status=1)
    assert verdict["rows_identical"] == 0 < verdict["rows"] == TOKENS
    assert verdict["max_ulp"] > 0
    assert verdict["first_difference"]["position"] == 0
    assert verdict["first_above_rel"]["diff"]["relative_l2"] > 1e-9


def test_sizes_of_levels(tmp_path, capsys):
    """hash is under 1 % of all; lean at most 1 % more than the numbers it holds."""
    sizes, manifests = {}, {}
    for level in ("hash", "lean", "state", "layers", "all"):
        told = verify("capture", tmp_path / level, "--model", model_path(), "--ids", "1,504,3575,282", "--tokens", 12,
                      "--level", level)
        assert told["probe"]["pass"]
        sizes[level] = told["manifest"]["records"]["stored_bytes"]
        assert sizes[level] == (tmp_path / level / "records.lz4").stat().st_size
        verdict = verify("replay", tmp_path / level, "--model", model_path())
        assert verdict["identical"] and verdict["records"] == told["manifest"]["records"]["count"]
    with capsys.disabled():
        print(f"\n  bytes of 15 positions, 12 of them with logits: {sizes}")
    assert sizes["hash"] < sizes["all"] / 100
    own = 12 * 49152 * 4 + 15 * 64 * 4
    assert own < sizes["lean"] <= own * 1.01


def test_ranges(tmp_path):
    run("capture", tmp_path / "part", "--model", model_path(), "--ids", "1,504,3575,282", "--tokens", 4, "--level",
        "all", "--layers", "2-3", "--positions", "1-2")
    verdict = verify("replay", tmp_path / "part", "--model", model_path())
    assert verdict["identical"]
    points = {point["checkpoint"]: point["compared"] for point in verdict["checkpoints"]}
    assert points["q_proj"] == 4 and points["kv_write"] == 2 * 2 * 6 and "embed" not in points
    shallow = verify("replay", tmp_path / "part", "--model", model_path(), "--layers", 3)
    assert {p["checkpoint"]: p["compared"] for p in shallow["checkpoints"]}["q_proj"] == 2


def test_scores(tmp_path):
    """Attention's, a record for each query head: the same however the tokens are cut, who shares the step and on which instructions."""
    told = verify("capture", tmp_path / "s", "--model", model_path(), "--ids", "1,504,3575,282", "--tokens", 70, "--level", "all",
                  "--scores", "--layers", "2-3")
    assert told["probe"]["pass"] and told["manifest"]["scores"] is True
    verdict = verify("replay", tmp_path / "s", "--model", model_path(), "--answer-chunk", 9, "--isa", "avx2", "--neighbours", 2)
    points = {point["checkpoint"]: point["compared"] for point in verdict["checkpoints"]}
    assert verdict["identical"] and points["scores"] == 73 * 2 * 9


def test_compare_names_the_first_difference(tmp_path):
    for name, options in (("a", []), ("b", []), ("c", ["--family", "f32-v1"])):
        run("capture", tmp_path / name, "--model", model_path(), "--ids", "1,504,3575", "--tokens", 0, "--level", "all",
            "--all-logits", *options)
    assert verify("compare", tmp_path / "a", tmp_path / "b")["identical"]
    verdict = verify("compare", tmp_path / "a", tmp_path / "c", "--rel", "1e-3", status=1)
    first = verdict["first_difference"]
    # The embedding and its norm are float32 in both; the first product isn't.
    assert (first["position"], first["layer"], first["checkpoint"]) == (0, 0, "q_proj")
    assert first["diff"]["relative_l2"] < 1e-3
    assert verdict["incomparable"] > 0  # KV in f16 and in f32


@pytest.mark.parametrize("words, says", [
    (["--level", "some"], "must be one of"), (["--layers", "5-2"], "ascending"), (["--layers", "x"], "range"),
    (["--layers", "99"], "from 0 to 29"), (["--chunk", "0"], "--chunk"), (["--wrong"], "unknown option"),
    (["--ids", "1,x"], "not a token id"), (["--ids", "99999999"], "failed"), (["--family", "bat-v1"], "isn't known"),
    (["--scores"], "--level all"), (["--prompt", "a", "--chat", "b"], "one of"), (["--ids", "1", "--tokens", "9", "--ctx", "4"], "--ctx"),
])
def test_capture_refuses(words, says, tmp_path):
    base = [] if "--prompt" in words or "--ids" in words else ["--ids", "1,2"]
    done = subprocess.run([LOCKSTEP, "verify", "capture", tmp_path / "x", "--model", model_path(), *base, *words],
                          capture_output=True, text=True)
    assert done.returncode >= 64 and says in done.stderr, (done.returncode, done.stderr)
    assert not (tmp_path / "x/manifest.json").exists()


def test_damage_and_strangers_are_refused(tmp_path):
    folder = tmp_path / "x"
    run("capture", folder, "--model", model_path(), "--ids", "1,2", "--tokens", 1, "--level", "hash")
    again = run("capture", folder, "--model", model_path(), "--ids", "1,2", status=64)
    assert "not overwritten" in again.stderr
    assert "of a model with 30 layers" in run("replay", folder, "--model", model_path("gemma"), status=64).stderr
    records = folder / "records.lz4"
    data = bytearray(records.read_bytes())
    data[len(data) // 2] ^= 1
    records.write_bytes(data)
    assert "damaged" in run("replay", folder, "--model", model_path(), status=70).stderr
    (folder / "manifest.json").unlink()
    assert "finished capture" in run("replay", folder, "--model", model_path(), status=74).stderr
