#!/usr/bin/env python3
"""Makes the engine's golden files from transformers in float32 on the model files' dequantised weights.

Run by hand, with torch and transformers installed; needs the model files of deploy/models.tsv:

    python3 tests/golden/reference.py [tiny|rope|capture|short|long|attribution ...]

tiny: models of tiny_models.py.  rope: the position tables of each of them.  capture: what
transformers computes for three positions of two of them, layer by layer (hf_capture.py).  short: per real model 6 prompts, 24 greedy steps each, past end tokens; the logits
are those of one pass over prompt and answer.  long: 3,000 tokens that SmolLM2 made up, every fourth row of the last
thousand.  attribution: per real model its conversion to 4-bit Q4NX tiles, and beside it the file it was converted from,
on the tokens of short.  verify/reference.h has the form of the files.  Small forms go to tests/golden/data: of each row the
largest logits (exact float32), their ids, and the log-sum-exp of all; full rows to ~/.cache/lockstep/test-data, where
`tests/run --long` finds them.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

import gguf_hf
import golden
import hf_capture
import tiny_models

TOP = 256
CAPTURED = ["llama_linear", "gemma3_scaled"]  # pairs in another order; every checkpoint
CHAT = ["What is the capital of France?", "Write a Python function that returns the n-th Fibonacci number.",
        "List three uses of a paper clip, as JSON.", "Explain in two sentences why the sky is blue.",
        "Übersetze ins Englische: Der Hund schläft unter dem Tisch.", "1, 1, 2, 3, 5, 8, 13,"]
PLAIN = ["The capital of France is", "def quicksort(values):\n", "In 1905, Albert Einstein published",
         "The three states of matter are", "Der Hund schläft unter dem", "1, 1, 2, 3, 5, 8, 13,"]


def provenance(sha256):
    return json.dumps({"model_sha256": sha256, "torch": torch.__version__, "transformers": transformers.__version__,
                       "arithmetic": "float32, eager attention, dequantised weights"})


def log_sum_exp(logits):
    wide = logits.astype(np.float64)
    high = wide.max(1, keepdims=True)
    return high[:, 0] + np.log(np.exp(wide - high).sum(1))


def compact(logits, source=None):
    """The small form; with a source, the ids are those that are large in either."""
    ranked = logits if source is None else np.maximum(logits, source)
    ids = np.sort(np.argpartition(ranked, -TOP, axis=1)[:, -TOP:], axis=1)
    small = dict(id_deltas=np.diff(ids, axis=1, prepend=0).astype(np.uint32),
                 top=np.take_along_axis(logits, ids, 1), lse=log_sum_exp(logits))
    if source is not None:
        small |= dict(source_top=np.take_along_axis(source, ids, 1), source_lse=log_sum_exp(source))
    return small


def text_rows(ids, positions):
    """A given text, and the positions whose rows are held."""
    return dict(prompts=np.array(ids, dtype=np.int32), lengths=np.array([len(ids)], dtype=np.int32),
                tokens=np.zeros((1, 0), dtype=np.int32), positions=np.array(positions, dtype=np.int32))


def forward(model, ids, keep):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False, logits_to_keep=keep).logits[0].numpy()


def greedy(model, prompt, count):
    tokens, cache, feed = [], None, prompt
    with torch.no_grad():
        for _ in range(count):
            out = model(torch.tensor([feed]), past_key_values=cache, use_cache=True)
            cache, feed = out.past_key_values, [int(out.logits[0, -1].argmax())]
            tokens += feed
    return tokens


def prompts_of(name, tokenizer):
    if name == "gemma":
        return [tokenizer(text)["input_ids"] for text in PLAIN]
    as_chat = lambda text: tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=False,
                                                         add_generation_prompt=True)
    return [tokenizer(as_chat(text), add_special_tokens=False)["input_ids"] for text in CHAT]


def tokenizer_of(name):
    return transformers.AutoTokenizer.from_pretrained(golden.models_dir(), gguf_file=golden.MODELS[name])


def save(name, small, full):
    np.savez(golden.DATA / f"{name}.npz", **small)
    golden.FULL.mkdir(parents=True, exist_ok=True)
    np.savez(golden.FULL / f"{name}.npz", **full)
    print(name, (golden.DATA / f"{name}.npz").stat().st_size, "bytes")


def make_short(name, model, about):
    prompts, tokens, rows = prompts_of(name, tokenizer_of(name)), [], []
    for prompt in prompts:
        answer = greedy(model, prompt, golden.STEPS)
        logits = forward(model, prompt + answer[:-1], golden.STEPS)
        if logits.argmax(1).tolist() != answer:
            print(f"{name}: one pass and stepwise decoding disagree at {(logits.argmax(1) != answer).nonzero()}")
        tokens.append(answer)
        rows.append(logits)
    logits = np.concatenate(rows)
    shared = dict(provenance=about, prompts=np.array(sum(prompts, []), dtype=np.int32),
                  lengths=np.array([len(p) for p in prompts], dtype=np.int32), tokens=np.array(tokens, dtype=np.int32))
    save(f"{name}-short", shared | compact(logits), shared | {"logits": logits})


def make_text(model, tokenizer):
    """3,400 tokens of the default model's own, drawn at temperature 0.8 from its 50 likeliest."""
    torch.manual_seed(1)
    ids, cache = tokenizer("Once upon a time", add_special_tokens=False)["input_ids"], None
    feed = ids
    with torch.no_grad():
        while len(ids) < 3400:
            out = model(torch.tensor([feed]), past_key_values=cache, use_cache=True)
            best = out.logits[0, -1].topk(50)
            pick = torch.multinomial(torch.softmax(best.values / 0.8, 0), 1)
            cache, feed = out.past_key_values, [int(best.indices[pick])]
            ids = ids + feed
    return tokenizer.decode(ids)


def make_long(name, model, about):
    text = golden.FULL / "long.txt"
    if name == "smollm2":
        golden.FULL.mkdir(parents=True, exist_ok=True)
        text.write_text(make_text(model, tokenizer_of(name)))
    ids = tokenizer_of(name)(text.read_text())["input_ids"][:golden.LONG]
    logits, positions = forward(model, ids, 1000)[::4], list(range(len(ids) - 1000, len(ids), 4))
    shared = dict(provenance=about)
    save(f"{name}-long", shared | text_rows(ids, positions[::8]) | compact(logits[::8]),
         shared | text_rows(ids, positions) | {"logits": logits})


def make_tiny():
    for name in tiny_models.ALL:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.gguf")
            sha256, overrides = tiny_models.make(name, path)
            model, _ = gguf_hf.load(path, overrides)
            logits = forward(model, tiny_models.tokens(name), tiny_models.ROWS)
        ids = tiny_models.tokens(name)
        np.savez(golden.DATA / f"tiny-{name}.npz", provenance=provenance(sha256), logits=logits,
                 **text_rows(ids, range(len(ids) - tiny_models.ROWS, len(ids))))
        print(name)


def rope_tables(model, ctx, positions):
    """The arrays of verify/rope_check.h. All positions at once: dynamic and longrope take the context from the largest."""
    rotary, arrays = model.model.rotary_emb, {}
    types = {"": "full_attention", "_local": "sliding_attention"} if hasattr(rotary, "layer_types") else {"": None}
    for suffix, kind in types.items():
        words = (torch.zeros(1, 1, 1), torch.arange(ctx)[None]) + ((kind,) if kind else ())
        with torch.no_grad():
            cos, sin = (table[0, positions, :table.shape[-1] // 2].numpy() for table in rotary(*words))
        prefix = f"{kind}_" if kind else ""
        arrays |= {f"cos{suffix}": cos, f"sin{suffix}": sin,
                   f"inv_freq{suffix}": getattr(rotary, f"{prefix}inv_freq").float().numpy(),
                   f"scale{suffix}": np.float32(getattr(rotary, f"{prefix}attention_scaling"))}
    return arrays | {"positions": np.array(positions, np.int32), "ctx": np.int32(ctx)}


def make_rope():
    ctx = tiny_models.LENGTH
    positions = sorted({0, 1, 2, 3, 7, 63, 64, 127, 128, 255, 256, ctx - 2, ctx - 1} | set(range(11, ctx, 29)))
    for name in tiny_models.ALL:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.gguf")
            _, overrides = tiny_models.make(name, path)
            model, _ = gguf_hf.load(path, overrides)
        np.savez(golden.DATA / f"rope-{name}.npz", **rope_tables(model, ctx, positions))


def make_captures():
    for name in CAPTURED:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.gguf")
            _, overrides = tiny_models.make(name, path)
            print(name, hf_capture.write(golden.DATA / f"capture-{name}", path, tiny_models.tokens(name)[:3], overrides, scores=True))


def make_attribution(name, source):
    """The container's rows on the source's prompts and tokens. Its weights are read from the GGUF file that it becomes."""
    short = np.load(golden.DATA / f"{name}-short.npz")
    shared = {key: short[key] for key in ("prompts", "lengths", "tokens")}
    with tempfile.TemporaryDirectory() as folder:
        for words in ((golden.models_dir() / golden.MODELS[name], "q4nx", "--quantise", "q4"), ("q4nx", "back.gguf")):
            subprocess.run([golden.lockstep_path(), "model", "convert", *words], cwd=folder, check=True)
        container, _ = gguf_hf.load(os.path.join(folder, "back.gguf"))
        about = provenance(golden.sha256_of(os.path.join(folder, "back.gguf")))
    rows, start = {"container": [], "source": []}, 0
    for length, answer in zip(shared["lengths"], shared["tokens"]):
        ids = shared["prompts"][start:start + length].tolist() + answer[:-1].tolist()
        rows["container"].append(forward(container, ids, golden.STEPS))
        rows["source"].append(forward(source, ids, golden.STEPS))
        start += length
    logits, before = np.concatenate(rows["container"]), np.concatenate(rows["source"])
    shared["provenance"] = about
    save(f"{name}-q4nx", shared | compact(logits, before), shared | {"logits": logits, "source_logits": before})


def main():
    wanted = sys.argv[1:] or ["tiny", "rope", "capture", "short", "long", "attribution"]
    torch.set_num_threads(1)
    pathlib.Path(golden.DATA).mkdir(exist_ok=True)
    if "tiny" in wanted:
        make_tiny()
    if "rope" in wanted:
        make_rope()
    if "capture" in wanted:
        make_captures()
    for name, file in golden.MODELS.items():
        if not {"short", "long", "attribution"} & set(wanted):
            break
        path = golden.models_dir() / file
        model, _ = gguf_hf.load(path)
        about = provenance(golden.sha256_of(path))
        if "short" in wanted:
            make_short(name, model, about)
        if "long" in wanted:
            make_long(name, model, about)
        if "attribution" in wanted:
            make_attribution(name, model)


if __name__ == "__main__":
    main()
