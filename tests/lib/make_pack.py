#!/usr/bin/env python3
"""Makes a pack of random weights for `lockstep model import`, streamed: no more than two strips of a matrix are in memory.

    make_pack.py FOLDER [--shape llama-3.2-1b|small] [--attention kqv] [--mlp up,gate] [--seed N]

The weights depend on the seed, the tensor and the layer alone: packs that differ only in their orders hold the same model. The
device's order is written here from the published formula (docs/formats.md), in other words than the importer's."""

import argparse
import json
import pathlib
import zlib

import numpy as np

LLAMA = {"model_type": "llama", "hidden_act": "silu", "rope_theta": 500000.0, "tie_word_embeddings": True, "rms_norm_eps": 1e-5,
         "bos_token_id": 1}
SHAPES = {
    "small": {**LLAMA, "hidden_size": 512, "intermediate_size": 768, "num_hidden_layers": 2, "num_attention_heads": 8,
              "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 320, "max_position_embeddings": 256, "eos_token_id": [7, 8, 9]},
    "llama-3.2-1b": {**LLAMA, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
                     "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "max_position_embeddings": 131072,
                     "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009],
                     "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                      "original_max_position_embeddings": 8192}},
}
NORMS = ["input_layernorm.weight", "post_attention_layernorm.weight"]
NAMES = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
         "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj", "head": "lm_head"}


def sizes(config):
    """{letter: (rows, columns)}"""
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    q, kv = (config[k] * config["head_dim"] for k in ("num_attention_heads", "num_key_value_heads"))
    return {"q": (q, hidden), "k": (kv, hidden), "v": (kv, hidden), "o": (hidden, q), "gate": (ffn, hidden), "up": (ffn, hidden),
            "down": (hidden, ffn), "head": (config["vocab_size"], hidden)}


def rng(seed, name, layer, part=0):
    return np.random.default_rng((seed, zlib.crc32(name.encode()), layer, part))


def strips(seed, letter, layer, shape):
    """The matrix' tiles [n, 5120] in row-major order, two strips of 32 rows at a time (one, at an odd end)."""
    rows, width = shape[0] // 32, shape[1] // 256
    for pair in range(0, rows, 2):
        n, draw = min(2, rows - pair) * width, rng(seed, letter, layer, pair)
        d = draw.integers(0x3a00, 0x3c00, (n, 256), np.uint16)  # bf16 from 0.0005 to 0.0078
        m = (d + (3 << 7)) | 0x8000  # -8 d: the weights lie around zero
        codes = np.frombuffer(draw.bytes(n * 4096), np.uint8).reshape(n, 4096)
        yield np.concatenate([d.view(np.uint8), m.view(np.uint8), codes], axis=1)


def vector(seed, name, layer, length):
    return rng(seed, name, layer).integers(0x3f00, 0x4000, length, np.uint16)  # bf16 from 0.5 to 2


def device_order(tiles, columns):
    """out[o] = in[G (o // G) + ((o % G) // 2) % S + S (o % 2)] with G = K / 128 and S = (G + 1) / 2."""
    g = columns // 128
    s, o = (g + 1) // 2, np.arange(len(tiles))
    return tiles if len(tiles) < g else tiles[g * (o // g) + ((o % g) // 2) % s + s * (o % 2)]


def in_order(seed, letter, layer, shape):
    for tiles in strips(seed, letter, layer, shape):
        yield from device_order(tiles, shape[1])


def write_layer(file, seed, layer, config, layout):
    shapes = sizes(config)
    for letter in [*layout["attention"], "o"]:
        for tile in in_order(seed, letter, layer, shapes[letter]):
            file.write(tile.tobytes())
    first, second = (in_order(seed, letter, layer, shapes[letter]) for letter in layout["mlp"])
    left = shapes["up"][0] // 32 * (shapes["up"][1] // 256)
    while left:
        n = min(left, layout["chunk_tiles"])
        for source in (first, second):
            for _ in range(n):
                file.write(next(source).tobytes())
        left -= n
    for tile in in_order(seed, "down", layer, shapes["down"]):
        file.write(tile.tobytes())
    for name in layout["vectors"]:
        length = config["head_dim"] if "_norm.weight" in name and "self_attn" in name else config["hidden_size"]
        file.write(vector(seed, name, layer, length).tobytes())


def embedding_rows(seed, config):
    """bf16 [rows, hidden], 1024 rows at a time."""
    for first in range(0, config["vocab_size"], 1024):
        n, draw = min(1024, config["vocab_size"] - first), rng(seed, "embedding", first)
        sign = draw.integers(0, 2, (n, config["hidden_size"]), np.uint16) << 15
        yield draw.integers(0x3c00, 0x3d00, (n, config["hidden_size"]), np.uint16) | sign


def layout_of(config, attention="kqv", mlp=("up", "gate"), chunk=None, vectors=NORMS):
    tiles = {letter: rows // 32 * (columns // 256) for letter, (rows, columns) in sizes(config).items()}
    layers, chunk = config["num_hidden_layers"], chunk or config["hidden_size"] // 16
    norms = sum("norm" in name for name in vectors)
    return {"format": "lockstep-pack", "version": 1, "tile_bytes": 5120, "attention": list(attention), "mlp": list(mlp),
            "chunk_tiles": chunk, "o_proj_k": sizes(config)["o"][1], "vectors": list(vectors),
            "tensors": layers * (7 + len(vectors)) + 3, "attention_tiles": sum(tiles[x] for x in "qkvo"),
            "tiles": layers * (sum(tiles.values()) - tiles["head"]) + tiles["head"],
            "mlp_groups": layers * -(-tiles["up"] // chunk), "norm_anchors": layers * norms + 1}


def write_pack(folder, config, layout, seed=1):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "pack.json").write_text(json.dumps(layout, indent=1))
    for layer in range(config["num_hidden_layers"]):
        with open(folder / f"layer.{layer}.bin", "wb") as file:
            write_layer(file, seed, layer, config, layout)
    with open(folder / "head.bin", "wb") as file:
        for tile in in_order(seed, "head", 0, sizes(config)["head"]):
            file.write(tile.tobytes())
        file.write(vector(seed, "model.norm.weight", 0, config["hidden_size"]).tobytes())
    with open(folder / "embedding.bin", "wb") as file:
        for rows in embedding_rows(seed, config):
            file.write(rows.tobytes())
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--attention", default="kqv")
    parser.add_argument("--mlp", default="up,gate")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    config = SHAPES[given.shape]
    write_pack(given.folder, config, layout_of(config, given.attention, given.mlp.split(",")), given.seed)


if __name__ == "__main__":
    main()
