"""What tests of model containers share: the command, tiny models, and Q4NX tiles in numpy, written from the format's
description alone."""

import os
import pathlib
import subprocess
import sys

import gguf
import numpy as np

BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", "build/release")).resolve()
LOCKSTEP, ENGINE = BUILD / "bin/lockstep", BUILD / "test/lockstep-engine-tool"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))

T = gguf.GGMLQuantizationType


def model(*words, status=0):
    """`lockstep model WORDS`; returns what it said."""
    done = subprocess.run([LOCKSTEP, "model", *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def bf16(values):
    """float32 to the bits of bfloat16, to nearest even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def widen(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def half(blocks, at):
    return blocks[:, :, at:at + 2].copy().view(np.float16)[:, :, 0].astype(np.float32)


def planes(raw, kind):
    """Rows of a GGUF tensor, [rows, bytes]: d and m as float32 [rows, groups], codes as stored [rows, cols]."""
    rows, size = raw.shape[0], gguf.GGML_QUANT_SIZES[kind][1]
    blocks = raw.reshape(rows, -1, size)
    d, m = half(blocks, 0), half(blocks, 2) if kind == T.Q4_1 else np.zeros(blocks.shape[:2], np.float32)
    codes = blocks[:, :, size - (32 if kind == T.Q8_0 else 16):]
    if kind != T.Q8_0:
        codes = np.concatenate([codes & 15, codes >> 4], axis=2)
    return d, m, codes.reshape(rows, -1)


def pad_columns(array, multiple):
    return np.pad(array, ((0, 0), (0, -array.shape[1] % multiple)))


def tiles(d, m, q, eight_bits=False):
    """bf16 bits [N, K/32] twice and codes [N, K] as tiles [n, bytes]."""
    d, m, q = pad_columns(d, 8), pad_columns(m, 8), pad_columns(q, 256)
    n, k = q.shape[0] // 32, q.shape[1] // 256

    def scales(plane):  # (n r)(k g) -> n k g r
        return np.ascontiguousarray(plane.reshape(n, 32, k, 8).transpose(0, 2, 3, 1)).view(np.uint8).reshape(n * k, 512)

    codes = q.astype(np.uint8).reshape(n, 2, 16, k, 256).transpose(0, 3, 1, 4, 2)  # n k half column row
    if eight_bits:
        return np.concatenate([scales(d), codes.reshape(n * k, 8192)], axis=1)
    pairs = codes.reshape(n, k, 2, 256, 8, 2)
    packed = (pairs[..., 0] & 15 | pairs[..., 1] << 4).reshape(n * k, 4096)
    return np.concatenate([scales(d), scales(m), packed], axis=1)


def half_split(array, heads):
    """Rows of a llama file's query or key in the order of checkpoints."""
    rows = array.reshape(heads, array.shape[0] // heads // 2, 2, *array.shape[1:])
    return rows.swapaxes(1, 2).reshape(array.shape)
