"""`lockstep verify same-prefix, greedy, attribution, tensors`: their figures against numpy's, on references that are made
of the engine's own logits; and what they must refuse."""
import json
import os
import subprocess

import gguf
import numpy as np
import pytest

import golden
import tiny_models
from test_verify import model_path, run, verify

STEPS, PROMPTS = 6, ([5, 9, 2, 7], [1, 2, 3], [200, 100, 50, 25, 12, 6, 3])
ALL_PASS = ["--mean-kl", "1e9", "--correlation", "-1", "--gap", "1e9"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "qwen3.gguf"
    tiny_models.make("qwen3", path)
    return path


@pytest.fixture(scope="module")
def own(model, tmp_path_factory):
    """What a reference holds, from the engine itself: prompts, greedy tokens, logits."""
    raw, rows, tokens = tmp_path_factory.mktemp("own") / "logits", [], []
    for prompt in PROMPTS:
        [result] = golden.run_engine(model, [{"tokens": prompt, "generate": STEPS}], ctx=64)
        golden.run_engine(model, [{"tokens": prompt + result["tokens"][:-1], "logits": "all"}], ctx=64, raw=raw)
        rows.append(np.fromfile(raw, dtype=np.float32).reshape(-1, tiny_models.VOCAB)[-STEPS:])
        tokens.append(result["tokens"])
    about = json.dumps({"model_sha256": golden.sha256_of(model)})
    return dict(prompts=np.array(sum(PROMPTS, []), np.int32), lengths=np.array([len(p) for p in PROMPTS], np.int32),
                tokens=np.array(tokens, np.int32), provenance=about), np.concatenate(rows)


def small_form(logits, width, names=("top", "lse"), ids=None):
    ids = np.sort(np.argsort(-logits, axis=1)[:, :width], axis=1) if ids is None else ids
    wide = logits.astype(np.float64)
    return ids, {"id_deltas": np.diff(ids, axis=1, prepend=0).astype(np.uint32),
                 names[0]: np.take_along_axis(logits, ids, 1), names[1]: np.log(np.exp(wide).sum(1))}


def figures(reference, other, ids=None):
    """The definitions in numpy: mean, median and largest KL, least correlation, argmax differences and their largest gap."""
    log_p, log_q = (x - np.log(np.exp(x).sum(1, keepdims=True)) for x in (reference.astype(np.float64), other.astype(np.float64)))
    if ids is not None:  # the rest is one token
        taken = [np.take_along_axis(x, ids, 1) for x in (log_p, log_q)]
        rest = [np.log(1 - np.exp(x).sum(1, keepdims=True)) for x in taken]
        log_p, log_q = (np.concatenate(pair, 1) for pair in zip(taken, rest))
        held = [np.take_along_axis(x, ids, 1) for x in (reference, other)]
    else:
        held = reference, other
    kl = (np.exp(log_p) * (log_p - log_q)).sum(1)
    correlation = [np.corrcoef(a.astype(np.float64), b.astype(np.float64))[0, 1] for a, b in zip(*held)]
    flips = reference.argmax(1) != other.argmax(1)
    top = np.sort(reference, axis=1)[:, -2:].astype(np.float64)
    return dict(mean=kl.mean(), median=np.sort(kl)[(len(kl) - 1) // 2], max=kl.max(), correlation=min(correlation),
                flips=int(flips.sum()), gap=(top[:, 1] - top[:, 0])[flips].max(initial=0))


def check_figures(told, want):
    assert told["kl"] == {**told["kl"], **{k: pytest.approx(want[k], rel=1e-6, abs=1e-12) for k in ("mean", "median", "max")}}
    assert told["correlation"]["min"] == pytest.approx(want["correlation"], abs=1e-9)
    assert told["argmax_differences"] == want["flips"] and told["largest_gap"] == pytest.approx(want["gap"], abs=1e-9)


@pytest.mark.parametrize("width", [None, 12])
def test_figures_equal_numpys(width, own, model, tmp_path):
    shared, logits = own
    draw = np.random.default_rng(3)
    reference = (logits + draw.normal(0, 0.3, logits.shape)).astype(np.float32)
    source = (reference + draw.normal(0, 0.5, logits.shape)).astype(np.float32)
    ids, rows = (None, dict(logits=reference, source_logits=source)) if width is None else small_form(reference, width)
    if width is not None:
        rows |= small_form(source, width, ("source_top", "source_lse"), ids)[1]
    np.savez(tmp_path / "r.npz", **shared, **rows)
    told = verify("attribution", tmp_path / "r.npz", "--model", model, *ALL_PASS)
    check_figures(told["engine"], figures(reference, logits, ids))
    check_figures(told["both"], figures(source, logits, ids))
    container = figures(source, reference, ids)
    assert told["container"]["kl"]["mean"] == pytest.approx(container["mean"], rel=1e-6)
    assert told["engine"]["rows"] == len(logits) and container["flips"] > 0 < told["engine"]["argmax_differences"]


def test_own_logits_pass_and_each_limit_fails(own, model, tmp_path):
    shared, logits = own
    np.savez(tmp_path / "same.npz", **shared, logits=logits)
    told = verify("same-prefix", tmp_path / "same.npz", "--model", model, "--mean-kl", "0", "--max-kl", "0", "--correlation",
                  "0.999999999", "--chunk", "3")
    assert told["pass"] and told["engine"]["kl"]["max"] == 0
    swapped = logits.copy()
    best = logits.argmax(1)
    swapped[2, best[2]] -= 3  # another argmax in one row
    np.savez(tmp_path / "swapped.npz", **shared, logits=swapped)
    for limit, passes in ((ALL_PASS, True), (ALL_PASS[:4], False), (ALL_PASS[2:], False), (ALL_PASS + ["--max-kl", "1e-3"], False),
                          (ALL_PASS + ["--correlation", "0.9999999"], False)):
        told = verify("same-prefix", tmp_path / "swapped.npz", "--model", model, *limit, status=0 if passes else 1)
        assert told["pass"] == passes and told["engine"]["argmax_differences"] == 1


def test_undefined_elements_are_left_out_and_counted(own, model, tmp_path):
    """A NaN and an infinity in the reference: the other elements are compared as ever, and the gate doesn't pass."""
    shared, logits = own
    holed = logits.copy()
    low = logits.argsort(1)
    holed[3, low[3, 0]], holed[5, low[5, 1]] = np.nan, -np.inf
    np.savez(tmp_path / "r.npz", **shared, logits=holed)
    told = verify("same-prefix", tmp_path / "r.npz", "--model", model, *ALL_PASS, status=1)
    assert not told["pass"] and told["engine"]["undefined"] == 2 and told["engine"]["argmax_differences"] == 0
    assert told["engine"]["kl"]["max"] < 1e-2


def test_greedy_stops_where_it_splits(own, model, tmp_path):
    shared, logits = own
    np.savez(tmp_path / "same.npz", **shared, logits=logits)
    told = verify("greedy", tmp_path / "same.npz", "--model", model, "--mean-kl", "0")
    assert told["pass"] and told["splits"] == [] and told["engine"]["rows"] == len(PROMPTS) * STEPS
    tokens = shared["tokens"].copy()
    tokens[1, 2] = (tokens[1, 2] + 1) % tiny_models.VOCAB  # what the other side chose
    changed = logits.copy()
    changed[STEPS + 2, tokens[1, 2]] = changed[STEPS + 2].max() + 1
    np.savez(tmp_path / "split.npz", **{**shared, "tokens": tokens}, logits=changed)
    told = verify("greedy", tmp_path / "split.npz", "--model", model, *ALL_PASS[:4], status=1)
    [split] = told["splits"]
    assert (split["prompt"], split["step"], split["reference"]) == (1, 2, tokens[1, 2])
    assert split["ours"] == shared["tokens"][1, 2] and split["gap"] == pytest.approx(1, abs=1e-5)
    assert told["not_compared"] == STEPS - 3 and told["engine"]["rows"] == len(PROMPTS) * STEPS - (STEPS - 3)


@pytest.mark.parametrize("change, says", [
    (dict(lengths=np.array([4, 3], np.int32)), "tokens must be"), (dict(logits=None), "or there must be logits"),
    (dict(tokens=np.zeros((3, 4), np.int32)), "as many, together, as rows"), (dict(logits=np.zeros((18, 9), np.float32)), "9 logits"),
    (dict(provenance=json.dumps({"model_sha256": "0" * 64})), "--any-model"), (dict(prompts=np.arange(14)), "type '<i8'"),
], ids=["lengths", "none", "steps", "vocabulary", "model", "type"])
def test_references_are_refused(change, says, own, model, tmp_path):
    shared, logits = own
    arrays = {key: value for key, value in {**shared, "logits": logits, **change}.items() if value is not None}
    np.savez(tmp_path / "r.npz", **arrays)
    done = subprocess.run([golden.lockstep_path(), "verify", "same-prefix", tmp_path / "r.npz", "--model", model],
                          capture_output=True, text=True)
    assert done.returncode >= 64 and says in done.stderr, done.stderr


def test_compressed_damaged_and_incomplete_references_are_refused(own, model, tmp_path):
    shared, logits = own
    path = tmp_path / "r.npz"
    np.savez_compressed(path, **shared, logits=logits)
    assert "numpy.savez" in run("same-prefix", path, "--model", model, status=78).stderr
    np.savez(path, **shared, logits=logits)
    assert "source_logits" in run("attribution", path, "--model", model, status=64).stderr
    data = bytearray(path.read_bytes())
    data[-2000] ^= 1
    path.write_bytes(data)
    assert "damaged" in run("same-prefix", path, "--model", model, status=70).stderr


@pytest.mark.parametrize("name", list(golden.MODELS))
def test_greedy_gate_of_real_models(name):
    told = verify("greedy", golden.DATA / f"{name}-short.npz", "--model", model_path(name), "--gap", "0.02", "--mean-kl", "2e-6")
    assert told["pass"] and told["engine"]["rows"] + told["not_compared"] == 144 and told["engine"]["rows"] > 100


# What 4-bit tiles make of each: the least and the most of the container's mean KL, and the least correlation of a matrix.
CONTAINERS = {"smollm2": (0.02, 0.05, 0.99), "qwen2.5": (0.03, 0.1, 0.98), "gemma": (0.1, 0.3, 0.99)}


@pytest.mark.parametrize("name", list(golden.MODELS))
def test_attribution_of_a_conversion(name, tmp_path, capsys):
    """4-bit Q4NX tiles of a model: the engine is true to them, and what differs from the file they come from is theirs."""
    least, most, correlation = CONTAINERS[name]
    command = [golden.lockstep_path(), "model", "convert", model_path(name), tmp_path / "q4nx", "--quantise", "q4"]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    words = ["attribution", golden.DATA / f"{name}-q4nx.npz", "--model", tmp_path / "q4nx", "--mean-kl", "2e-6"]
    told = verify(*words, "--container-kl", most)
    with capsys.disabled():
        print(f"\n  {name}, KL: engine {told['engine']['kl']['mean']:.2e}, container {told['container']['kl']['mean']:.2e}")
    assert told["container"]["kl"]["mean"] > 1000 * told["engine"]["kl"]["mean"]
    assert told["engine"]["rows"] == told["container"]["rows"] == 144 and told["engine"]["argmax_differences"] == 0
    assert not verify(*words, "--container-kl", least, status=1)["pass"]
    told = verify("tensors", tmp_path / "q4nx", model_path(name), "--correlation", correlation)
    assert told["pass"] and told["checked"] > 120
    assert all(abs(t["corr.T"]) < 0.05 and 0.97 < t["row_min"] for t in told["tensors"])


# ---- tensors

def write_matrices(path, **matrices):
    writer = gguf.GGUFWriter(path, "llama")
    for name, values in matrices.items():
        writer.add_tensor(name, values.astype(np.float32))
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        write()
    return path


def corr(a, b):
    return np.corrcoef(a.astype(np.float64).ravel(), b.astype(np.float64).ravel())[0, 1]


def test_tensor_check_sees_folds(tmp_path):
    """A scale per input channel is seen through; one per output row on top of it is not, and its rows tell."""
    draw = np.random.default_rng(5)
    w = draw.normal(0, 1, (48, 96)).astype(np.float32)
    scales = draw.uniform(0.05, 3, 96).astype(np.float32)
    noise = (w + draw.normal(0, 0.05, w.shape)).astype(np.float32)
    broken = noise.copy()
    broken[7] = draw.normal(0, 1, 96)
    checkpoint = write_matrices(tmp_path / "b", same=w, folded=w, broken=w, turned=w[:, :48])
    container = write_matrices(tmp_path / "a", same=noise, folded=noise * scales, broken=broken, turned=w[:, :48].T.copy())
    told = verify("tensors", container, checkpoint, status=1)
    same, folded, broken_row, turned = told["tensors"]
    assert [t["pass"] for t in told["tensors"]] == [True, True, False, False] and told["failed"] == 2
    assert same["corr"] == pytest.approx(corr(noise, w), abs=1e-12) and folded["corr"] == pytest.approx(corr(noise * scales, w), abs=1e-9)
    fit = ((noise * scales) * w).sum(0) / ((noise * scales) ** 2).sum(0)
    assert folded["corrF"] == pytest.approx(corr(noise * scales * fit, w), abs=1e-6) and folded["corr"] < 0.9 < 0.99 < folded["corrF"]
    assert broken_row["rows_below"] == 1 and broken_row["row_worst"] == 7
    rows = sorted(corr(a, b) for a, b in zip(noise, w))
    assert same["row_min"] == pytest.approx(rows[0], abs=1e-9) and same["row_median"] == pytest.approx(rows[23], abs=1e-9)
    assert turned["corr.T"] == pytest.approx(1) and abs(same["corr.T"] - corr(noise[:48, :48], w[:48, :48].T)) < 1e-9
    assert verify("tensors", container, checkpoint, "--tensor", "folded")["checked"] == 1
    assert "no matrix" in run("tensors", container, checkpoint, "--tensor", "none", status=64).stderr
