#!/usr/bin/env python3
"""Records what transformers computes, in float32 on a GGUF file's dequantised weights, as one of Lockstep's captures.

    python3 tests/golden/hf_capture.py MODEL.gguf FOLDER --ids 1,504,3575 [--layers 0-2] [--scores]

Needs torch, transformers, gguf and xxhash. `lockstep verify diverge --reference FOLDER` then says where an engine leaves
it. All checkpoints of level `all` are recorded that the architecture has; queries and keys of llama files, whose rows are
stored in another order, are put into the file's order. docs/verification.md has the format.
"""
import argparse
import json
import pathlib
import struct
import sys

import numpy as np
import torch
import transformers
import xxhash

import gguf_hf

NAMES = ["embed", "attn_norm", "q_proj", "k_proj", "v_proj", "q_norm", "k_norm", "q_rope", "k_rope", "kv_write", "scores",
         "heads", "o_proj", "post_attn_norm", "after_attn", "ffn_norm", "gate", "up", "act", "down", "post_ffn_norm", "after_ffn",
         "final_norm", "logits"]
CHECKPOINTS = {name: number for number, name in enumerate(NAMES)} | {"rope_table": 64, "state_hash": 65, "logits_hash": 66,
                                                                     "top": 67}


class Recorder:
    """Keeps (layer, checkpoint) -> [positions, rows, cols] of one pass."""

    def __init__(self, model, arch):
        self.model, self.arch, self.values, self.layer = model, arch, {}, 0
        c = model.config
        self.heads, self.kv_heads = c.num_attention_heads, c.num_key_value_heads
        self.dim = getattr(c, "head_dim", None) or c.hidden_size // self.heads
        self.watch_layers()
        self.watch_rope()
        self.watch_softmax()

    def put(self, name, value, heads=1, layer=None):
        value = value.detach().float().reshape(value.shape[-2], heads, -1)
        self.values[self.layer if layer is None else layer, name] = value.numpy().copy()

    def take(self, module, name, heads=1, layer=None):
        module.register_forward_hook(lambda _module, _inputs, output: self.put(
            name, output[0] if isinstance(output, tuple) else output, heads, layer))

    def take_input(self, module, name, heads=1):
        module.register_forward_pre_hook(lambda _module, inputs: self.put(name, inputs[0], heads))

    def take_parts(self, module, names, widths, heads):
        """A fused product's."""
        def hook(_module, _inputs, output):
            for name, part, count in zip(names, output.split(widths, -1), heads):
                self.put(name, part, count)
        module.register_forward_hook(hook)

    def by_head(self, module, name, heads):
        """A norm over each head, whose tensor has the heads behind or before the positions."""
        def hook(_module, _inputs, output):
            self.put(name, (output.transpose(1, 2) if self.arch == "gemma3" else output).reshape(1, -1, heads * self.dim), heads)
        module.register_forward_hook(hook)

    def watch_layers(self):
        inner, n = self.model.model, len(self.model.model.layers)
        self.take(inner.embed_tokens, "embed", layer=0)
        for index, layer in enumerate(inner.layers):
            layer.register_forward_pre_hook(lambda *_unused, index=index: setattr(self, "layer", index))
            self.watch_attention(layer.self_attn)
            self.watch_ffn(layer)
            self.take(layer.input_layernorm, "attn_norm")
            self.take(layer, "after_ffn")
        self.take(inner.norm, "final_norm", layer=n)

    def watch_attention(self, attention):
        if hasattr(attention, "qkv_proj"):
            widths = [self.heads * self.dim] + 2 * [self.kv_heads * self.dim]
            self.take_parts(attention.qkv_proj, ("q_proj", "k_proj", "v_proj"), widths,
                            (self.heads, self.kv_heads, self.kv_heads))
        else:
            self.take(attention.q_proj, "q_proj", self.heads)
            self.take(attention.k_proj, "k_proj", self.kv_heads)
            self.take(attention.v_proj, "v_proj", self.kv_heads)
        if hasattr(attention, "q_norm"):
            self.by_head(attention.q_norm, "q_norm", self.heads)
            self.by_head(attention.k_norm, "k_norm", self.kv_heads)
        self.take_input(attention.o_proj, "heads", self.heads)
        self.take(attention.o_proj, "o_proj")

    def watch_ffn(self, layer):
        gemma = self.arch == "gemma3"
        before = layer.pre_feedforward_layernorm if gemma else layer.post_attention_layernorm
        self.take_input(before, "after_attn")
        self.take(before, "ffn_norm")
        if gemma:
            self.take(layer.post_attention_layernorm, "post_attn_norm")
            self.take(layer.post_feedforward_layernorm, "post_ffn_norm")
        if hasattr(layer.mlp, "gate_up_proj"):
            self.take_parts(layer.mlp.gate_up_proj, ("gate", "up"), 2 * [layer.mlp.down_proj.in_features], (1, 1))
        else:
            self.take(layer.mlp.gate_proj, "gate")
            self.take(layer.mlp.up_proj, "up")
        self.take_input(layer.mlp.down_proj, "act")
        self.take(layer.mlp.down_proj, "down")

    def watch_rope(self):
        module = sys.modules[type(self.model).__module__]
        plain = module.apply_rotary_pos_emb

        def watched(q, k, cos, sin, *rest, **named):
            turned = plain(q, k, cos, sin, *rest, **named)
            for name, value in zip(("q_rope", "k_rope"), turned):
                heads = value.shape[1]
                self.put(name, value.transpose(1, 2).reshape(1, -1, heads * self.dim), heads)
            half = cos.shape[-1] // 2
            self.values[self.layer, "rope_table"] = torch.stack((cos[0, :, :half], sin[0, :, :half]), 1).numpy().copy()
            return turned
        module.apply_rotary_pos_emb = watched

    def watch_softmax(self):
        """Eager attention's scores are what goes into it, with a huge negative number where a key isn't visible."""
        plain = torch.nn.functional.softmax

        def watched(scores, *rest, **named):
            visible = scores[0] > torch.finfo(scores.dtype).min / 2
            for head in range(scores.shape[1]):
                self.values[self.layer, "scores", head] = [row[seen][None].numpy().copy() for row, seen in zip(scores[0, head], visible[head])]
            return plain(scores, *rest, **named)
        torch.nn.functional.softmax = watched


def in_pairs(value):
    """Halves of a head to the pairs of a llama file: what gguf_hf.undo_pairs takes apart."""
    positions, heads, dim = value.shape
    return value.reshape(positions, heads, 2, dim // 2).swapaxes(2, 3).reshape(positions, heads, dim)


def add_kv(values, layers):
    """kv_write: what lies in the page, a vector for each part."""
    for layer in range(layers):
        keys, entries = values[layer, "k_rope"], values[layer, "v_proj"]
        for head in range(keys.shape[1]):
            values[layer, "kv_write", 2 * head] = keys[:, head:head + 1]
            values[layer, "kv_write", 2 * head + 1] = entries[:, head:head + 1]


def drop_repeated_tables(values, layers):
    """Of equal tables the first layer's, as Lockstep has it."""
    seen = []
    for layer in range(layers):
        table = values[layer, "rope_table"]
        if any(np.array_equal(table, other) for other in seen):
            del values[layer, "rope_table"]
        seen.append(table)


def run(path, ids, overrides=None):
    """{(layer, checkpoint[, part]): [positions, rows, cols]}, the number of layers and of tokens."""
    model, fields = gguf_hf.load(path, overrides)
    arch = fields["general.architecture"]
    recorder = Recorder(model, arch)
    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits
    layers, values = model.config.num_hidden_layers, recorder.values
    values[layers, "logits"] = logits.float().reshape(len(ids), 1, -1).numpy()
    if arch == "llama":
        for key in [key for key in values if key[1] in ("q_proj", "k_proj", "q_rope", "k_rope")]:
            values[key] = in_pairs(values[key])
    add_kv(values, layers)
    drop_repeated_tables(values, layers)
    return values, layers, logits.shape[-1]


# ---- writing

def order(key):
    layer, name, *_part = key
    outside = name in ("final_norm", "logits")
    return 1 << 32 if outside else layer, CHECKPOINTS[name], key[2] if len(key) > 2 else 0


def record(position, key, value):
    data = np.ascontiguousarray(value, dtype="<f4").tobytes()
    head = struct.pack("<10IQ", position, key[0], CHECKPOINTS[key[1]], key[2] if len(key) > 2 else 0, 0, 0, 0,
                       value.shape[0], value.shape[1], len(data), xxhash.xxh3_64_intdigest(data))
    return (head + data).ljust((len(head) + len(data) + 7) // 8 * 8, b"\0")


def frame(content):
    """An LZ4 frame of stored blocks (numbers hardly shrink), with block and content checksums and content size."""
    sum32 = lambda data: struct.pack("<I", xxhash.xxh32_intdigest(data))
    about = b"\x7c\x70" + struct.pack("<Q", len(content))
    out = b"\x04\x22\x4d\x18" + about + bytes([xxhash.xxh32_intdigest(about) >> 8 & 0xff])
    for at in range(0, len(content), 4 << 20):
        block = content[at:at + (4 << 20)]
        out += struct.pack("<I", len(block) | 1 << 31) + block + sum32(block)
    return out + struct.pack("<I", 0) + sum32(content)


def write(folder, path, ids, overrides=None, layer_range=(0, None), scores=False):
    """overrides: as gguf_hf.load has them. layer_range: first and last layer that are recorded. scores: attention's, too."""
    values, layers, vocab = run(path, ids, overrides)
    first, last = layer_range[0], layers - 1 if layer_range[1] is None else layer_range[1]
    keys = sorted((key for key in values if key[1] in ("final_norm", "logits") or first <= key[0] <= last and (scores or key[1] != "scores")),
                  key=order)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    raw = stored = 0
    with open(folder / "records.lz4", "wb") as file:
        for position in range(len(ids)):
            content = b"".join(record(position, key, values[key][position]) for key in keys)
            raw += len(content)
            stored += file.write(frame(content))
    manifest = {"format": "lockstep-capture", "version": 2,
                "model": {"xxh3_128": "", "file": pathlib.Path(path).name, "layers": layers, "vocabulary": vocab},
                "family": "transformers-f32", "isa": "torch", "build": f"transformers {transformers.__version__}",
                "level": "all", "layers": [first, last], "positions": [0, 2**32 - 1],
                "request": {"chunk": min(len(ids), 512), "neighbours": 0, "all_logits": True}, "prompt": ids, "tokens": [],
                "records": {"frames": len(ids), "count": len(ids) * len(keys), "raw_bytes": raw, "stored_bytes": stored},
                "scores": scores, "checkpoints": CHECKPOINTS}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest["records"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("folder")
    parser.add_argument("--ids", required=True, help="token ids, separated by commas")
    parser.add_argument("--scores", action="store_true", help="attention's scores, too")
    parser.add_argument("--layers", help="record only these: 0-2")
    words = parser.parse_args()
    torch.set_num_threads(1)
    layers = tuple(int(word) for word in words.layers.split("-")) if words.layers else (0, None)
    told = write(words.folder, words.model, [int(word) for word in words.ids.split(",")], layer_range=layers, scores=words.scores)
    print(f"{words.folder}: {told['count']} records of {told['frames']} positions, {told['raw_bytes']} bytes")


if __name__ == "__main__":
    main()
