"""Small models with random weights for the architectures, tensor types and rope variants that no real model here has.

Written as GGUF with the gguf package, the same bytes on every machine: weights are random blocks of their type, drawn
from PCG64's raw stream. Each comes with what transformers must be told that the file says in other words.
"""
import hashlib
import math

import gguf
import numpy as np

T = gguf.GGMLQuantizationType
VOCAB = 300  # not a multiple of 16


class Draw:
    def __init__(self, seed):
        self.bits = np.random.PCG64(seed)

    def bytes(self, count):
        return self.bits.random_raw((count + 7) // 8).view(np.uint8)[:count].copy()

    def normal(self, count):
        """Sums of four uniform numbers: near enough, and exact in float32."""
        words = self.bits.random_raw(count).view(np.uint16).reshape(count, 4).astype(np.float64)
        return ((words.sum(1) - 131070.0) / 37837.0).astype(np.float32)

    def scales(self, count, size):
        """float16 numbers from size to twice that."""
        unit = self.bytes(count).astype(np.float64) / 256
        return (size * (1 + unit)).astype(np.float16)


def put16(blocks, offset, values):
    blocks[:, offset:offset + 2] = values.view(np.uint8).reshape(-1, 2)


def random_blocks(draw, kind, rows, cols):
    """Raw rows of a type, values with a deviation of about 1 / sqrt(cols) around zero."""
    size = 1.0 / math.sqrt(cols)
    if kind in (T.F32, T.F16, T.BF16):
        values = (draw.normal(rows * cols) * np.float32(size)).astype(np.float32)
        if kind == T.F16:
            values = values.astype(np.float16)
        if kind == T.BF16:
            values = (values.view(np.uint32) >> 16).astype(np.uint16)
        return values.reshape(rows, cols)
    elements, width = gguf.GGML_QUANT_SIZES[kind]
    count = rows * cols // elements
    blocks = draw.bytes(count * width).reshape(count, width)
    spread = {T.Q4_0: 4.6, T.Q4_1: 4.6, T.Q5_0: 9.2, T.Q5_1: 9.2, T.Q8_0: 74.0,
              T.Q4_K: 220.0, T.Q5_K: 440.0, T.Q6_K: 1300.0}[kind]
    d = draw.scales(count, size / spread / 1.5)
    if kind == T.Q6_K:
        put16(blocks, 208, d)
        return blocks.reshape(rows, -1)
    put16(blocks, 0, d)
    middle = {T.Q4_1: 7.5, T.Q5_1: 15.5}.get(kind)
    if middle:
        put16(blocks, 2, (-middle * d.astype(np.float32)).astype(np.float16))
    if kind in (T.Q4_K, T.Q5_K):
        put16(blocks, 2, ((7.5 if kind == T.Q4_K else 15.5) * d.astype(np.float32)).astype(np.float16))
    return blocks.reshape(rows, -1)


class Model:
    """Collects metadata and tensors, and a hash of the tensors' bytes."""

    def __init__(self, path, arch, seed, **meta):
        self.writer, self.arch, self.draw = gguf.GGUFWriter(path, arch), arch, Draw(seed)
        self.hash, self.meta, self.twins = hashlib.sha256(), meta, False
        for key, value in meta.items():
            self.put(key.replace("__", "."), value)

    def put(self, key, value):
        key = f"{self.arch}.{key}"
        add = {bool: self.writer.add_bool, int: self.writer.add_uint32, float: self.writer.add_float32,
               str: self.writer.add_string, list: self.writer.add_array}[type(value)]
        add(key, value)

    def tensor(self, name, kind, rows, cols):
        data = random_blocks(self.draw, kind, rows, cols)
        if self.twins and name == "token_embd.weight":
            data[1::2] = np.nextafter(data[::2], np.inf * (self.draw.normal(rows * cols // 2).reshape(-1, cols)))
        self.hash.update(data.tobytes())
        self.writer.add_tensor(name, data.view(np.uint8) if kind == T.BF16 else data, raw_dtype=kind)

    def vector(self, name, values):
        values = np.asarray(values, dtype=np.float32)
        self.hash.update(values.tobytes())
        self.writer.add_tensor(name, values)

    def norm(self, name, cols):
        self.vector(name, 1 + self.draw.normal(cols) / 8)

    def close(self):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()
        return self.hash.hexdigest()


def body(m, kinds, heads, kv_heads, head_dim, bias=(), head_norms=False, post_norms=False, fused=False, tied=True):
    """kinds: tensor types, taken in turn."""
    width, ffn, layers = m.meta["embedding_length"], m.meta["feed_forward_length"], m.meta["block_count"]
    q, kv, turn = heads * head_dim, kv_heads * head_dim, [0]

    def matrix(name, rows, cols):
        m.tensor(name, kinds[turn[0] % len(kinds)], rows, cols)
        turn[0] += 1

    matrix("token_embd.weight", VOCAB, width)
    m.norm("output_norm.weight", width)
    if not tied:
        matrix("output.weight", VOCAB, width)
    for i in range(layers):
        at = f"blk.{i}."
        m.norm(at + "attn_norm.weight", width)
        m.norm(at + "ffn_norm.weight", width)
        if post_norms:
            m.norm(at + "post_attention_norm.weight", width)
            m.norm(at + "post_ffw_norm.weight", width)
        if head_norms:
            m.norm(at + "attn_q_norm.weight", head_dim)
            m.norm(at + "attn_k_norm.weight", head_dim)
        if fused:
            matrix(at + "attn_qkv.weight", q + 2 * kv, width)
            matrix(at + "ffn_up.weight", 2 * ffn, width)
        else:
            matrix(at + "attn_q.weight", q, width)
            matrix(at + "attn_k.weight", kv, width)
            matrix(at + "attn_v.weight", kv, width)
            matrix(at + "ffn_gate.weight", ffn, width)
            matrix(at + "ffn_up.weight", ffn, width)
        matrix(at + "attn_output.weight", width, q)
        matrix(at + "ffn_down.weight", width, ffn)
        for name, rows in (("attn_q", q), ("attn_k", kv), ("attn_v", kv), ("attn_output", width)):
            if name in bias:
                m.vector(f"{at}{name}.bias", m.draw.normal(rows) / 4)


def shape(layers, width, ffn, ctx, heads, kv_heads, head_dim, eps=1e-6):
    return dict(block_count=layers, embedding_length=width, feed_forward_length=ffn, context_length=ctx,
                attention__head_count=heads, attention__head_count_kv=kv_heads, attention__key_length=head_dim,
                attention__value_length=head_dim, attention__layer_norm_rms_epsilon=eps)


def qwen3(path):
    m = Model(path, "qwen3", 1, **shape(3, 256, 512, 4096, 4, 2, 64), rope__freq_base=1000000.0)
    body(m, [T.Q4_K, T.Q5_K, T.Q6_K], 4, 2, 64, head_norms=True)
    return m, {}


def qwen2_yarn(path):
    m = Model(path, "qwen2", 2, **shape(2, 64, 96, 1024, 4, 1, 16), rope__freq_base=10000.0,
              rope__scaling__type="yarn", rope__scaling__factor=4.0, rope__scaling__original_context_length=256)
    body(m, [T.Q5_1, T.Q8_0, T.Q4_1], 4, 1, 16, bias=("attn_q", "attn_k", "attn_v"), tied=False)
    return m, {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                                   "original_max_position_embeddings": 256}}


def llama3(path, table=None):
    """Llama 3's scaling, which files state as divisors of the inverse frequencies; or these frequencies themselves."""
    rope = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 128}
    m = Model(path, "llama", 3, **shape(2, 128, 160, 1024, 4, 2, 32, 1e-5), rope__freq_base=500000.0,
              rope__dimension_count=32)
    divisors = []
    for j in range(0, 32, 2):
        wave = 2 * math.pi * rope["rope_theta"] ** (j / 32)
        smooth = (128 / wave - 1.0) / (4.0 - 1.0)
        divisors.append(1.0 if wave < 128 / 4 else 8.0 if wave > 128 else 1 / ((1 - smooth) / 8.0 + smooth))
    m.vector(*(("rope_freqs.weight", divisors) if table is None else ("rope_inv_freq.weight", table)))
    body(m, [T.Q4_0, T.Q5_0, T.Q8_0], 4, 2, 32, bias=("attn_q", "attn_k", "attn_v", "attn_output"), tied=False)
    return m, {"rope_parameters": rope, "attention_bias": True}


def llama_linear(path):
    m = Model(path, "llama", 4, **shape(2, 96, 128, 512, 3, 3, 32), rope__freq_base=10000.0,
              rope__scaling__type="linear", rope__scaling__factor=2.0)
    body(m, [T.F16, T.BF16, T.F32], 3, 3, 32)
    return m, {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}}


def llama_dynamic(path):
    """transformers grows its base with the sequence; the engine's is that of --ctx (here 400, the prompt's length)."""
    m = Model(path, "llama", 5, **shape(2, 64, 64, 200, 2, 1, 32), rope__freq_base=10000.0,
              rope__scaling__type="dynamic", rope__scaling__factor=2.0)
    body(m, [T.Q4_1], 2, 1, 32)
    return m, {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}}


def phi3_longrope(path):
    """Fused tensors, partial rotary, a window shorter than the prompt, and factors for short and long contexts."""
    m = Model(path, "phi3", 6, **shape(2, 96, 128, 512, 3, 3, 32, 1e-5), rope__freq_base=10000.0,
              rope__dimension_count=24, rope__scaling__original_context_length=128,
              rope__scaling__attn_factor=math.sqrt(1 + math.log(4.0) / math.log(128)),
              attention__sliding_window=70)
    short, long = [1 + 0.05 * j for j in range(12)], [1 + 0.9 * j for j in range(12)]
    m.vector("rope_factors_short.weight", short)
    m.vector("rope_factors_long.weight", long)
    body(m, [T.Q8_0, T.Q5_0, T.F16], 3, 3, 32, fused=True, tied=False)
    as_float = lambda values: [float(np.float32(v)) for v in values]
    return m, {"rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
                                   "short_factor": as_float(short), "long_factor": as_float(long),
                                   "original_max_position_embeddings": 128},
               "original_max_position_embeddings": 128, "partial_rotary_factor": 0.75, "sliding_window": 70}


def gemma3_scaled(path):
    """A window shorter than the prompt on every layer but the last of each three, soft-caps, linear scaling."""
    rope = {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0}
    m = Model(path, "gemma3", 7, **shape(4, 64, 96, 2048, 4, 2, 48), rope__freq_base=1000000.0,
              rope__scaling__type="linear", rope__scaling__factor=8.0, attention__sliding_window=90,
              attention__sliding_window_pattern=3, attn_logit_softcapping=20.0, final_logit_softcapping=8.0)
    body(m, [T.Q8_0, T.Q4_1, T.BF16], 4, 2, 48, head_norms=True, post_norms=True)
    layers = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
    return m, {"rope_parameters": {"full_attention": rope,
                                   "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
               "layer_types": layers, "attn_logit_softcapping": 20.0, "final_logit_softcapping": 8.0}


def twins(path):
    """A vocabulary in pairs, float32 embeddings of which differ in each number's last bit: the two best logits nearly tie."""
    m = Model(path, "qwen3", 8, **shape(2, 128, 192, 1024, 4, 2, 32), rope__freq_base=10000.0)
    m.twins = True
    body(m, [T.F32], 4, 2, 32, head_norms=True)
    return m, {}


ALL = {f.__name__: f for f in (qwen3, qwen2_yarn, llama3, llama_linear, llama_dynamic, phi3_longrope, gemma3_scaled)}
LENGTH, ROWS = 400, 24  # tokens of each one's prompt; the last positions that are compared


def make(name, path):
    """Writes the model; returns the SHA-256 of its tensors and what transformers must be told."""
    model, overrides = (twins if name == "twins" else ALL[name])(path)
    return model.close(), overrides


def tokens(name):
    draw = Draw(1000 + list(ALL).index(name))
    return [int(word % VOCAB) for word in draw.bits.random_raw(LENGTH)]
