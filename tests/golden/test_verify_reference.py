"""Lockstep against what transformers computed: layer by layer (captures that hf_capture.py made), and position tables."""
import shutil

import numpy as np
import pytest

import golden
import tiny_models
from test_verify import LONG_RUN, model_path, run, verify

POINTS = {"llama_linear": 21, "gemma3_scaled": 25}  # checkpoints of its architecture, tables included


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name in tiny_models.ALL:
        tiny_models.make(name, folder / f"{name}.gguf")
    return folder


def diverge(name, models, *words, capture=None, status=1):
    return verify("diverge", "--reference", capture or golden.DATA / f"capture-{name}", "--model", models / f"{name}.gguf",
                  *words, status=status)


@pytest.mark.parametrize("name", list(POINTS))
def test_every_layer_is_near_to_transformers(name, models):
    told = diverge(name, models, "--family", "f32-v1", "--rel", "1e-4")
    assert told["CONTROL B0_vs_B1"]["pass"] and told["PROBE B0_vs_B2"]["pass"] and told["result"] == "DIFFERENT"
    verdict = told["verdict"]
    assert verdict["only_a"] == verdict["only_b"] == verdict["incomparable"] == 0
    assert verdict["first_above_rel"] is None and verdict["argmax_flips"] == 0
    points = {point["checkpoint"]: point for point in verdict["checkpoints"]}
    assert len(points) == POINTS[name] and points["embed"]["different"] == 0
    # The first position's scores are one number each, which may be near zero.
    assert points.pop("scores")["max_abs"] < 1e-5
    assert all(point["max_relative_l2"] < 1e-5 for point in points.values())


def test_8_bit_activations_leave_it_at_the_first_product(models):
    told = diverge("gemma3_scaled", models, "--family", "a8-v1", "--rel", "1e-3")
    first = told["verdict"]["first_above_rel"]
    assert (first["position"], first["layer"], first["checkpoint"]) == (0, 0, "q_proj")


def test_a_wrong_reference_is_found_where_it_is_wrong(models, tmp_path):
    """Another token at position 2: everything before is as near as ever."""
    shutil.copytree(golden.DATA / "capture-llama_linear", tmp_path / "c")
    manifest = tmp_path / "c/manifest.json"
    ids = tiny_models.tokens("llama_linear")[:3]
    text = manifest.read_text()
    assert text.count(f" {ids[2]}\n") == 1
    manifest.write_text(text.replace(f" {ids[2]}\n", f" {ids[2] + 1}\n"))
    first = diverge("llama_linear", models, "--family", "f32-v1", "--rel", "1e-5", capture=tmp_path / "c")["verdict"]["first_above_rel"]
    assert (first["position"], first["layer"], first["checkpoint"]) == (2, 0, "embed")


def test_refuses(models):
    other = run("diverge", "--reference", golden.DATA / "capture-llama_linear", "--model", models / "qwen3.gguf", status=64)
    assert "of a model with 2 layers" in other.stderr
    assert "diverge" in run("ladder", "--reference", "x", "--model", models / "qwen3.gguf", status=64).stderr


@pytest.mark.skipif(not LONG_RUN, reason="needs torch and transformers, and minutes")
@pytest.mark.parametrize("name", list(golden.MODELS))
def test_real_models_layer_by_layer(name, tmp_path):
    hf_capture = pytest.importorskip("hf_capture")
    ids = np.load(golden.DATA / f"{name}-short.npz")["prompts"][:6].tolist()
    hf_capture.write(tmp_path / "c", model_path(name), ids)
    told = verify("diverge", "--reference", tmp_path / "c", "--model", model_path(name), "--family", "f32-v1", "--rel", "1e-4", status=1)
    assert told["verdict"]["first_above_rel"] is None and told["verdict"]["only_a"] == told["verdict"]["only_b"] == 0


# ---- position tables

# Where the file's divisors, or an attention factor, are rounded otherwise, an element near zero may be many units apart.
ROPE_LIMITS = {"llama3": ["--max-abs", "2e-5"], "phi3_longrope": ["--max-ulp", "2"]}


@pytest.mark.parametrize("name", list(tiny_models.ALL))
def test_position_tables(name, models):
    words = ["rope", golden.DATA / f"rope-{name}.npz", "--model", models / f"{name}.gguf"]
    told = verify(*words, *ROPE_LIMITS.get(name, []))
    for kind in ("rope", "rope_local") if name == "gemma3_scaled" else ("rope",):
        table = told[kind]
        assert table["identical"] > 0.9 * table["elements"] > 300 and table["identical"] + table["one_ulp"] >= 0.96 * table["elements"]
        # From its inverse frequencies ours is the correctly rounded value, everywhere; transformers' often isn't.
        assert name == "llama3" or table["ours_as_defined"] == table["elements"]
        assert table["reference_as_defined"] < table["elements"]


def test_a_literal_table_overrides_the_formula(tmp_path):
    """With transformers' own inverse frequencies in the file, Llama 3's scaling is the definition's value everywhere, which no formula
    and no divisors reach."""
    model, _ = tiny_models.llama3(tmp_path / "m.gguf", np.load(golden.DATA / "rope-llama3.npz")["inv_freq"])
    model.close()
    table = verify("rope", golden.DATA / "rope-llama3.npz", "--model", tmp_path / "m.gguf", "--max-ulp", "1")["rope"]
    assert table["ours_as_defined"] == table["elements"] > 300 and table["reference_as_defined"] < table["elements"]


def bfloat16(values):
    """To nearest even, as float32 again."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


def in_bf16(name, rounded=bfloat16):
    """What transformers' inverse frequencies give, computed here: the angle in float32, cosine and sine to float32, times the factor,
    to bf16."""
    arrays = dict(np.load(golden.DATA / f"rope-{name}.npz"))
    for suffix in ("", "_local") if "inv_freq_local" in arrays else ("",):
        angles = (arrays["positions"].astype(np.float32)[:, None] * arrays[f"inv_freq{suffix}"][None]).astype(np.float64)
        for kind, function in (("cos", np.cos), ("sin", np.sin)):
            arrays[kind + suffix] = rounded(function(angles).astype(np.float32) * arrays[f"scale{suffix}"])
    return arrays


@pytest.mark.parametrize("name", [name for name in tiny_models.ALL if name != "llama3"])
def test_position_tables_in_bf16(name, models, tmp_path):
    np.savez(tmp_path / "r.npz", **in_bf16(name))
    told = verify("rope", tmp_path / "r.npz", "--model", models / f"{name}.gguf", "--table", "bf16", "--max-ulp", "0")
    for kind in ("rope", "rope_local") if name == "gemma3_scaled" else ("rope",):
        table = told[kind]
        assert table["identical"] == table["ours_as_defined"] == table["reference_as_defined"] == table["elements"] > 300


def test_another_rounding_to_bf16_is_seen(models, tmp_path):
    """Cut off instead of rounded, about half of the elements are one unit off; a table in float32 is none in bf16."""
    words = ["rope", tmp_path / "r.npz", "--model", models / "qwen3.gguf", "--table", "bf16"]
    np.savez(tmp_path / "r.npz", **in_bf16("qwen3", lambda values: (values.view(np.uint32) & 0xffff0000).view(np.float32)))
    table = verify(*words, "--max-ulp", "0", status=1)["rope"]
    assert table["max_ulp"] == 1 and table["identical"] + table["one_ulp"] == table["elements"]
    assert 0.3 * table["elements"] < table["one_ulp"] < 0.7 * table["elements"] and table["ours_as_defined"] == table["elements"]
    arrays = in_bf16("qwen3")
    arrays["sin"][3, 5:6] = bfloat16(arrays["sin"][3, 5:6] * np.float32(1.05))
    np.savez(tmp_path / "r.npz", **arrays)
    table = verify(*words, status=1)["rope"]
    assert table["identical"] == table["elements"] - 1
    assert (table["max_position"], table["max_element"]) == (arrays["positions"][3], table["pairs"] + 5)
    np.savez(tmp_path / "r.npz", **np.load(golden.DATA / "rope-qwen3.npz"))
    assert "which is no bf16" in run(*words, status=70).stderr


def test_another_base_is_seen(models, tmp_path):
    arrays = dict(np.load(golden.DATA / "rope-qwen3.npz"))
    cosines = arrays["cos"].copy()
    cosines[3, 5] = np.nextafter(np.nextafter(cosines[3, 5], np.float32(-2)), np.float32(-2))
    np.savez(tmp_path / "r.npz", **{**arrays, "cos": cosines})
    told = verify("rope", tmp_path / "r.npz", "--model", models / "qwen3.gguf", status=1)["rope"]
    assert told["max_ulp"] >= 2 and (told["max_position"], told["max_element"]) == (arrays["positions"][3], 5)
    cosines[3, 5] = np.nan
    np.savez(tmp_path / "r.npz", **{**arrays, "cos": cosines})
    assert verify("rope", tmp_path / "r.npz", "--model", models / "qwen3.gguf", status=1)["rope"]["undefined"] == 1
    del arrays["sin"]
    np.savez(tmp_path / "r.npz", **arrays)
    assert "array sin must be" in run("rope", tmp_path / "r.npz", "--model", models / "qwen3.gguf", status=70).stderr
