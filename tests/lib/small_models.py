"""Small models with random weights and the default model's tokenizer, so that whole pipelines can serve them: what layers of
other families than the default's have in them."""

import pathlib
import sys

import gguf

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
import tiny_models  # noqa: E402

from pipeline import model_path  # noqa: E402

T = gguf.GGMLQuantizationType
KINDS = [T.Q8_0, T.Q4_1, T.Q5_0, T.Q4_0]
MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
FUSED = {"attn_q": "attn_qkv", "attn_k": "attn_qkv", "attn_v": "attn_qkv", "ffn_gate": "ffn_up"}
BIASES = ("attn_q", "attn_k", "attn_v")


def _qwen2(path):
    m = tiny_models.Model(path, "qwen2", 21, **tiny_models.shape(3, 128, 192, 1024, 4, 2, 32), rope__freq_base=10000.0)
    return m, dict(heads=4, kv_heads=2, head_dim=32, bias=BIASES, tied=False)


def _qwen3(path):
    m = tiny_models.Model(path, "qwen3", 22, **tiny_models.shape(3, 96, 160, 1024, 4, 1, 64), rope__freq_base=1000000.0)
    return m, dict(heads=4, kv_heads=1, head_dim=64, head_norms=True)


def _llama_biased(path):
    m = tiny_models.Model(path, "llama", 23, **tiny_models.shape(2, 128, 128, 1024, 4, 4, 32), rope__freq_base=10000.0)
    return m, dict(heads=4, kv_heads=4, head_dim=32, bias=(*BIASES, "attn_output"), tied=False)


def _phi3(path):
    """Projections in one tensor, a part of each head turned, a window in every layer."""
    m = tiny_models.Model(path, "phi3", 25, **tiny_models.shape(3, 96, 160, 1024, 4, 2, 32), rope__freq_base=10000.0,
                          rope__dimension_count=16, attention__sliding_window=70)
    return m, dict(heads=4, kv_heads=2, head_dim=32, fused=True, tied=False, kinds=KINDS[:3])


def _phi3_uneven(path):
    """Its values begin in the middle of a block of 16 rows."""
    m = tiny_models.Model(path, "phi3", 26, **tiny_models.shape(2, 96, 160, 1024, 4, 1, 24), rope__freq_base=10000.0,
                          rope__dimension_count=24)
    return m, dict(heads=4, kv_heads=1, head_dim=24, fused=True, tied=False, kinds=KINDS[:3])


def _gemma3(path, window=70, **more):
    """Three of four layers see 70 keys and have position tables of their own."""
    m = tiny_models.Model(path, "gemma3", 24, **tiny_models.shape(5, 128, 192, 1024, 4, 2, 48), rope__freq_base=1000000.0,
                          attention__sliding_window=window, attention__sliding_window_pattern=4, **more)
    return m, dict(heads=4, kv_heads=2, head_dim=48, head_norms=True, post_norms=True)


def _gemma3_capped(path):
    return _gemma3(path, attn_logit_softcapping=20.0, final_logit_softcapping=8.0)


ALL = {"qwen2": _qwen2, "qwen3": _qwen3, "llama_biased": _llama_biased, "phi3": _phi3, "gemma3": _gemma3,
       "gemma3_capped": _gemma3_capped}

OTHERS = {"phi3_uneven": _phi3_uneven, "gemma3_512": lambda path: _gemma3(path, window=512),
          "gemma3_all": lambda path: _gemma3(path, window=1024)}


def make(name, path):
    model, parts = {**ALL, **OTHERS}[name](path)
    fields = [f for f in gguf.GGUFReader(model_path()).fields.values() if f.name.startswith("tokenizer.")]
    vocab, tiny_models.VOCAB = tiny_models.VOCAB, len(next(f for f in fields if f.name == "tokenizer.ggml.tokens").data)
    try:
        tiny_models.body(model, parts.pop("kinds", KINDS), **parts)
    finally:
        tiny_models.VOCAB = vocab
    for field in fields:
        model.writer.add_key_value(field.name, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)
    model.close()
    return path


def layers_of(path):
    """What kernels for whole layers of a GGUF file would be made for: (shapes, head), as tests/lib/npu.py wants them."""
    reader = gguf.GGUFReader(path)
    tensors = {t.name: t for t in reader.tensors}
    arch = reader.get_field("general.architecture").contents()
    key = lambda name, other=0: (field.contents() if (field := reader.get_field(f"{arch}.{name}")) else other)
    heads, window = key("attention.head_count"), key("attention.sliding_window")
    pattern = key("attention.sliding_window_pattern", 6 if arch.startswith("gemma") else 1 << 30)
    shapes = []
    for i in range(key("block_count")):
        has = lambda name: f"blk.{i}.{name}" in tensors
        features = {"qkv_bias": has("attn_q.bias"), "o_bias": has("attn_output.bias"), "head_norms": has("attn_q_norm.weight"),
                    "post_norms": has("post_attention_norm.weight"), "gelu": arch.startswith("gemma"),
                    "softcap": bool(key("attn_logit_softcapping"))}
        shape = {"embd": key("embedding_length"), "ffn": key("feed_forward_length"), "heads": heads,
                 "kv_heads": key("attention.head_count_kv"),
                 "head_dim": key("attention.key_length") or key("embedding_length") // heads, "interleaved": arch == "llama",
                 "types": [(tensors.get(f"blk.{i}.{name}.weight") or tensors[f"blk.{i}.{FUSED[name]}.weight"]).tensor_type.name
                           for name in MATRICES],
                 "with": [name for name, there in features.items() if there]}
        if window and (i + 1) % pattern:
            shape["window"] = window
        if shape not in shapes:
            shapes.append(shape)
    head = tensors.get("output.weight") or tensors["token_embd.weight"]
    return shapes, (head.tensor_type.name, int(head.shape[1]), int(head.shape[0]))


def products_of(path):
    """The (type, rows, cols) of its products, likewise."""
    reader = gguf.GGUFReader(path)
    names = [t.name for t in reader.tensors]
    return sorted({(t.tensor_type.name, int(t.shape[1]), int(t.shape[0])) for t in reader.tensors
                   if len(t.shape) == 2 and (t.name != "token_embd.weight" or "output.weight" not in names)})
