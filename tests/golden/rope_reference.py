#!/usr/bin/env python3
"""Prints npu-worker/engine/rope_golden.h: transformers' inverse frequencies for every rope variant.

Run by hand, with torch and transformers installed:
    python3 tests/golden/rope_reference.py > npu-worker/engine/rope_golden.h
"""
import struct

import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

DIM = 64
# name, engine type, parameters, context, divisors
CASES = [
    ("linear", dict(rope_theta=10000.0, factor=2.5), 4096),
    ("llama3", dict(rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                    original_max_position_embeddings=8192), 131072),
    ("llama3", dict(rope_theta=500000.0, factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
                    original_max_position_embeddings=8192), 131072),
    ("dynamic", dict(rope_theta=10000.0, factor=4.0), 4096),
    ("dynamic", dict(rope_theta=10000.0, factor=4.0), 12000),
    ("yarn", dict(rope_theta=1000000.0, factor=4.0, original_max_position_embeddings=32768), 131072),
    ("yarn", dict(rope_theta=10000.0, factor=40.0, original_max_position_embeddings=4096, beta_fast=24.0,
                  beta_slow=2.0, attention_factor=1.25), 131072),
    ("longrope", dict(rope_theta=10000.0, original_max_position_embeddings=4096), 4096),
    ("longrope", dict(rope_theta=10000.0, original_max_position_embeddings=4096), 131072),
]
TRAINED = {"dynamic": 4096, "longrope": 131072}


def bits(values):
    return ", ".join("0x%08x" % struct.unpack("<I", struct.pack("<f", float(v)))[0] for v in values)


def default_inv_freq(theta):
    return 1.0 / (theta ** (torch.arange(0, DIM, 2, dtype=torch.int64).float() / DIM))


def compute(kind, parameters, ctx):
    parameters = dict(parameters, rope_type=kind)
    if kind == "longrope":
        parameters["short_factor"] = [1 + 0.03125 * j for j in range(DIM // 2)]
        parameters["long_factor"] = [1 + 1.75 * j for j in range(DIM // 2)]
    config = transformers.LlamaConfig(hidden_size=DIM, num_attention_heads=1, head_dim=DIM, rope_parameters=parameters,
                                      max_position_embeddings=TRAINED.get(kind, ctx))
    if "original_max_position_embeddings" in parameters:
        config.original_max_position_embeddings = parameters["original_max_position_embeddings"]
    inv_freq, factor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), seq_len=ctx)
    return inv_freq, factor


def main():
    print("/* Made by tests/golden/rope_reference.py with transformers %s; not to be edited. */" % transformers.__version__)
    print("#pragma once\n#include \"npu-worker/engine/rope.h\"\n")
    print("enum { GOLDEN_PAIRS = %d };\n" % (DIM // 2))
    print("static const struct rope_golden {\n\tstruct rope_config config;\n\tuint32_t ctx;\n\tfloat factor;"
          "\n\tuint32_t inv_freq[GOLDEN_PAIRS]; /* bits of float32 */\n} rope_golden[] = {")
    cases = [("default", dict(rope_theta=theta), 4096) for theta in (10000.0, 100000.0, 1000000.0)] + CASES
    for kind, parameters, ctx in cases:
        if kind == "default":
            inv_freq, factor = default_inv_freq(parameters["rope_theta"]), 1.0
        else:
            inv_freq, factor = compute(kind, parameters, ctx)
        p = parameters
        config = [".type = ROPE_" + kind.upper(), f".dims = {DIM}", f".theta = {p['rope_theta']}"]
        for key, field in (("factor", "factor"), ("low_freq_factor", "low_freq_factor"),
                           ("high_freq_factor", "high_freq_factor"), ("beta_fast", "beta_fast"),
                           ("beta_slow", "beta_slow"), ("attention_factor", "attention_factor")):
            if key in p:
                config.append(f".{field} = {float(p[key])}")
        if kind == "yarn" and "beta_fast" not in p:
            config += [".beta_fast = 32.0", ".beta_slow = 1.0"]
        original = p.get("original_max_position_embeddings", TRAINED.get(kind))
        if original:
            config.append(f".original_ctx = {float(original)}")
        if kind == "longrope":
            config.append(f".trained_ctx = {float(TRAINED[kind])}")
        print("\t{ { %s },\n\t  %d, %sf,\n\t  { %s } }," % (", ".join(config), ctx, repr(float(factor)), bits(inv_freq)))
    print("};")


if __name__ == "__main__":
    main()
