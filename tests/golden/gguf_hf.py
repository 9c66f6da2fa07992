"""A GGUF file's model as transformers runs it, in float32 on the file's dequantised weights.

An own loader rather than transformers' gguf_file=: it covers every architecture of the engine, refuses tensors it
doesn't place, and keeps Gemma's norm weights exact (files hold 1 + w; subtracting and adding 1 again would round).
"""
import functools

import gguf
import numpy as np
import torch
import transformers

LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm.weight": "self_attn.q_norm.weight", "attn_k_norm.weight": "self_attn.k_norm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
GEMMA3 = {
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "ffn_norm.weight": "pre_feedforward_layernorm.weight",
    "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
}
PHI3 = {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
TOP = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
       "output.weight": "lm_head.weight"}
MADE_INTO_CONFIG = {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}
MODELS = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma3": "Gemma3", "phi3": "Phi3"}


def hf_name(arch, name):
    if name in TOP:
        return TOP[name]
    _, layer, rest = name.split(".", 2)
    table = LAYER | {"gemma3": GEMMA3, "phi3": PHI3}.get(arch, {})
    if rest in table:
        return f"model.layers.{layer}.{table[rest]}"
    stem, kind = rest.rsplit(".", 1)
    return f"model.layers.{layer}.{table[stem]}.{kind}"


def undo_pairs(weights, heads):
    """llama files have each head's rows in the order 0, n/2, 1, n/2+1, ...: back to halves."""
    half = weights.shape[0] // heads // 2
    return weights.reshape(heads, half, 2, *weights.shape[1:]).swapaxes(1, 2).reshape(weights.shape)


def read_config(arch, meta, vocab, tied):
    heads = meta["attention.head_count"]
    config = dict(
        vocab_size=vocab, hidden_size=meta["embedding_length"], intermediate_size=meta["feed_forward_length"],
        num_hidden_layers=meta["block_count"], num_attention_heads=heads,
        num_key_value_heads=meta.get("attention.head_count_kv", heads),
        head_dim=meta.get("attention.key_length", meta["embedding_length"] // heads),
        max_position_embeddings=meta["context_length"], rms_norm_eps=meta["attention.layer_norm_rms_epsilon"],
        tie_word_embeddings=tied, attn_implementation="eager", pad_token_id=None, bos_token_id=None,
        eos_token_id=None)
    rope = {"rope_type": "default", "rope_theta": meta.get("rope.freq_base", 10000.0)}
    config["rope_parameters"] = rope
    if arch == "gemma3":
        local = {"rope_type": "default", "rope_theta": meta.get("rope.freq_base_swa", 10000.0)}
        config |= dict(sliding_window=meta["attention.sliding_window"], query_pre_attn_scalar=config["head_dim"],
                       rope_parameters={"full_attention": rope, "sliding_attention": local})
    return config


def exact_norm(self, x):
    x = x.float()
    return self._norm(x) * self.weight


def load(path, overrides=None, dtype=torch.float32):
    """overrides: configuration values that the file doesn't state in transformers' terms."""
    reader = gguf.GGUFReader(path)
    fields = {key: field.contents() for key, field in reader.fields.items()}
    arch = fields["general.architecture"]
    meta = {key[len(arch) + 1:]: value for key, value in fields.items() if key.startswith(arch + ".")}
    tensors = {t.name: t for t in reader.tensors}
    config = read_config(arch, meta, int(tensors["token_embd.weight"].shape[1]), "output.weight" not in tensors)
    config |= overrides or {}
    config_class = "Gemma3TextConfig" if arch == "gemma3" else MODELS[arch] + "Config"
    model_class = getattr(transformers, MODELS[arch] + "ForCausalLM")
    with torch.device("meta"):
        model = model_class(getattr(transformers, config_class)(**config))
    state = {}
    for name, tensor in tensors.items():
        if name in MADE_INTO_CONFIG:
            continue
        weights = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if arch == "llama" and ".attn_q." in name:
            weights = undo_pairs(weights, config["num_attention_heads"])
        if arch == "llama" and ".attn_k." in name:
            weights = undo_pairs(weights, config["num_key_value_heads"])
        state[hf_name(arch, name)] = torch.from_numpy(np.array(weights)).to(dtype)
    if "output.weight" not in tensors:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True, assign=True)
    fill_buffers(model)
    if arch == "gemma3":
        gemma3 = transformers.models.gemma3.modeling_gemma3
        gemma3.Gemma3RMSNorm.forward = exact_norm
        # Its attention can soft-cap, but its layers don't hand the configured cap on.
        gemma3.eager_attention_forward = functools.partial(
            getattr(gemma3.eager_attention_forward, "func", gemma3.eager_attention_forward),
            softcap=config.get("attn_logit_softcapping"))
    return model.eval(), fields


def fill_buffers(model):
    """Tables that are no part of the state came out empty on the meta device."""
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
    embed = model.model.embed_tokens
    if hasattr(embed, "scalar_embed_scale"):
        embed.embed_scale = torch.tensor(embed.scalar_embed_scale)
    empty = [name for name, buffer in model.named_buffers() if buffer.is_meta]
    if empty:
        raise SystemExit(f"not filled: {empty}")
