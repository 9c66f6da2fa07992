#!/usr/bin/env python3
"""Makes data/embeddings.json from transformers in float32 on SmolLM2's dequantised weights: of each text its ids, and the
mean and the last of the hidden states behind the final norm, at length 1.

Run by hand, with torch and transformers installed: python3 tests/golden/embeddings_reference.py
"""
import json

import torch

import gguf_hf
import golden
import reference

TEXTS = ["Hello world, this is a test.", "The cat sits on the mat.", "Der Hund schläft unter dem Tisch.",
         "def quicksort(values):\n    return sorted(values)\n", "x", "What is the capital of France? " * 40]


def unit(vector):
    return [float(f"{value:.9g}") for value in (vector / vector.norm()).tolist()]


def main():
    path = golden.models_dir() / golden.MODELS["smollm2"]
    model, _ = gguf_hf.load(path)
    tokenizer, rows = reference.tokenizer_of("smollm2"), []
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        with torch.no_grad():
            hidden = model.model(torch.tensor([ids])).last_hidden_state[0].double()
        rows.append({"text": text, "ids": ids, "mean": unit(hidden.mean(0)), "last": unit(hidden[-1])})
    target = golden.DATA / "embeddings.json"
    target.write_text(json.dumps({"model_sha256": golden.sha256_of(path), "torch": torch.__version__, "texts": rows}) + "\n")


if __name__ == "__main__":
    main()
