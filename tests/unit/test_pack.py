"""Importing packs: every tile where it belongs, against numpy; the orders a pack may have; counts; what is refused; and a
whole Llama-3.2-1B's shape."""

import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

import numpy as np
import pytest

from model_files import ENGINE, LOCKSTEP, model
from test_formats import read

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from make_pack import NAMES, NORMS, SHAPES, embedding_rows, layout_of, sizes, strips, vector, write_pack  # noqa: E402

SMALL = SHAPES["small"]


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    return write_pack(tmp_path_factory.mktemp("pack") / "pack", SMALL, layout_of(SMALL))


@pytest.fixture(scope="module")
def folder(pack):
    said = model("import", pack, pack.parent / "folder")
    assert "21 tensors" in said and "468 tiles, 80 of attention in each layer; 4 MLP groups; 5 norm anchors" in said
    return pack.parent / "folder"


def test_every_tile_is_in_its_place(folder):
    written, shapes = read(folder / "model.q4nx"), sizes(SMALL)
    for letter, name in NAMES.items():
        for layer in range(1 if letter == "head" else SMALL["num_hidden_layers"]):
            full = "lm_head.weight" if letter == "head" else f"model.layers.{layer}.{name}.weight"
            tiles = np.concatenate(list(strips(1, letter, layer, shapes[letter])))
            dtype, shape, data = written.pop(full)
            assert dtype == "I8" and shape == list(tiles.shape) and data == tiles.tobytes(), full
    for layer in range(SMALL["num_hidden_layers"]):
        for name in NORMS:
            assert written.pop(f"model.layers.{layer}.{name}")[2] == vector(1, name, layer, 512).tobytes()
    assert written.pop("model.norm.weight")[2] == vector(1, "model.norm.weight", 0, 512).tobytes()
    assert written.pop("model.embed_tokens.weight")[2] == np.concatenate(list(embedding_rows(1, SMALL))).tobytes()
    assert not written


@pytest.mark.parametrize("attention, mlp, chunk", [("qkv", ("up", "gate"), None), ("vkq", ("gate", "up"), 32), ("kvq", ("up", "gate"), 20),
                                                   ("qvk", ("gate", "up"), 1000)])
def test_orders_are_only_orders(tmp_path, folder, attention, mlp, chunk):
    """The same model, packed otherwise, gives the same file."""
    other = write_pack(tmp_path / "pack", SMALL, layout_of(SMALL, attention, mlp, chunk))
    assert (other / "layer.0.bin").read_bytes() != (folder.parent / "pack/layer.0.bin").read_bytes()
    model("import", other, tmp_path / "folder")
    assert (tmp_path / "folder/model.q4nx").read_bytes() == (folder / "model.q4nx").read_bytes()


def test_geometries(tmp_path):
    """Heads wider than the model (o_proj's K), an odd number of strips, head norms, an epsilon of its own; and it computes."""
    config = {**SMALL, "model_type": "qwen3", "head_dim": 128, "intermediate_size": 1280, "vocab_size": 352, "rms_norm_eps": 3e-6}
    layout = layout_of(config, "qkv", vectors=[*NORMS, "self_attn.q_norm.weight", "self_attn.k_norm.weight"])
    assert layout["o_proj_k"] == 1024
    said = model("import", write_pack(tmp_path / "pack", config, layout), tmp_path / "folder")
    assert "9 norm anchors" in said
    assert json.loads((tmp_path / "folder/config.json").read_text())["rms_norm_eps"] == 3e-6
    model("convert", tmp_path / "folder", tmp_path / "m.gguf")
    assert "qwen3.attention.layer_norm_rms_epsilon       3e-06" in model("inspect", tmp_path / "m.gguf")
    job = json.dumps({"tokens": [3, 1, 4], "logits": "all", "generate": 4})
    done = subprocess.run([ENGINE, "--model", tmp_path / "folder", "--ctx", "64"], input=job, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and len(json.loads(done.stdout)["tokens"]) == 4, done.stderr


def changed(pack, folder, config=None, layout=None):
    shutil.copytree(pack, folder)
    for name, fields in (("config.json", config), ("pack.json", layout)):
        path = folder / name
        old = json.loads(path.read_text())
        path.write_text(json.dumps({k: v for k, v in {**old, **(fields or {})}.items() if v is not None}))
    return folder


@pytest.mark.parametrize("config, layout, said", [
    ({}, {"tensors": 22}, "states 22 tensors; config.json's sizes make 21"),
    ({}, {"tiles": 467}, "states 467 tiles; config.json's sizes make 468"),
    ({}, {"attention_tiles": 81}, "states 81 attention_tiles"),
    ({}, {"mlp_groups": 5}, "states 5 mlp_groups"),
    ({}, {"norm_anchors": 4}, "states 4 norm_anchors"),
    ({}, {"o_proj_k": 256}, "o_proj_k is 256; config.json's heads make 512"),
    ({}, {"format": "amd"}, "layouts that aren't public"),
    ({}, {"tile_bytes": 2560}, "tile_bytes is not 5120"),
    ({}, {"attention": ["q", "k", "k"]}, "attention is not an order"),
    ({}, {"mlp": ["up", "up"]}, "mlp is not an order"),
    ({}, {"chunk_tiles": 0}, "chunk_tiles is not a whole number"),
    ({}, {"rotation": 1}, "field rotation is not known"),
    ({}, {"vectors": ["input_layernorm.weight", "self_attn.sinks"]}, "has no vector self_attn.sinks"),
    ({"embedding_multiplier": 12}, {}, "embedding_multiplier is supported only at the value 1"),
    ({"residual_multiplier": 0.22}, {}, "residual_multiplier is supported only at"),
    ({"logits_scaling": 8}, {}, "logits_scaling is supported only at"),
    ({"rope_scaling": {"rope_type": "spiral", "factor": 2}}, {}, "spiral"),
    ({"router_aux": 1}, {}, "router_aux"),
    ({"hidden_size": 544}, {}, "a pack's tiles cover multiples of 32 rows and 256 columns"),
    ({"num_hidden_layers": 3}, {}, "config.json's sizes make"),
])
def test_what_is_refused(tmp_path, pack, config, layout, said):
    text = model("import", changed(pack, tmp_path / "p", config, layout), tmp_path / "out", status=78)
    assert said in text and not (tmp_path / "out").exists()


@pytest.mark.parametrize("name, size", [("layer.1.bin", -5120), ("head.bin", 2), ("embedding.bin", -1)])
def test_a_wrong_size_is_named(tmp_path, pack, name, size):
    shutil.copytree(pack, tmp_path / "p")
    os.truncate(tmp_path / "p" / name, (pack / name).stat().st_size + size)
    text = model("import", tmp_path / "p", tmp_path / "out", status=78)
    assert f"{name} has " in text and "config.json's sizes make" in text and not (tmp_path / "out").exists()
    (tmp_path / "p" / name).unlink()
    assert f"cannot open {name}" in model("import", tmp_path / "p", tmp_path / "out", status=74)


def test_interrupted_imports_go_on(tmp_path, pack, folder):
    whole = (folder / "model.q4nx").read_bytes()
    for part in (0.2, 0.5, 0.9):
        limit = int(len(whole) * part)
        died = subprocess.run([LOCKSTEP, "model", "import", pack, tmp_path / "out"], capture_output=True,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        assert died.returncode == -signal.SIGXFSZ and not (tmp_path / "out").exists()
    assert " tensors kept from an interrupted run" in model("import", pack, tmp_path / "out")
    assert (tmp_path / "out/model.q4nx").read_bytes() == whole
    assert "there already" in model("import", pack, tmp_path / "out", status=78)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


def test_progress_is_shown(tmp_path, pack):
    said = model("import", pack, tmp_path / "out")
    assert "importing [##############################] 100%" in said and "checking [##############################] 100%" in said


@pytest.mark.skipif(shutil.disk_usage(tempfile.gettempdir()).free < 4 << 30, reason="needs 3 GB for files")
def test_llama_3_2_1b(tmp_path):
    """The counts that the format's page derives; neither making nor importing needs the model in memory."""
    config = SHAPES["llama-3.2-1b"]
    write_pack(tmp_path / "pack", config, layout_of(config))
    said = model("import", tmp_path / "pack", tmp_path / "out")
    assert "147 tensors" in said and "150848 tiles, 1280 of attention in each layer; 256 MLP groups; 33 norm anchors" in said
    assert "ends: 128001 128008 128009" in model("inspect", tmp_path / "out")
    shutil.rmtree(tmp_path)
