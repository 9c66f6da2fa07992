#!/usr/bin/env python3
"""Makes data/lm-eval.json: lm-eval's own scores of the tasks in tests/http/lm-eval, with the default model run by
transformers in float32 on the file's dequantised weights.

Run by hand, with torch, transformers, accelerate and lm-eval installed:  python3 tests/golden/lm_eval_reference.py
"""
import json
import os
import pathlib
import sys
import tempfile

import lm_eval
import torch
import transformers
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

import gguf_hf
import golden

sys.path.insert(0, str(golden.HERE.parent / "http"))
import lm_eval_tasks  # noqa: E402

path = golden.models_dir() / golden.MODELS["smollm2"]
with tempfile.TemporaryDirectory() as folder:
    tokenizer = transformers.AutoTokenizer.from_pretrained(lm_eval_tasks.tokenizer_folder(pathlib.Path(folder)))
os.chdir(lm_eval_tasks.TASKS)
model = HFLM(pretrained=gguf_hf.load(path)[0], tokenizer=tokenizer, device="cpu", dtype="float32", max_length=8192)
got = lm_eval.simple_evaluate(model=model, tasks=lm_eval_tasks.NAMES, bootstrap_iters=0, log_samples=True,
                              task_manager=TaskManager(include_path=str(lm_eval_tasks.TASKS), include_defaults=False))
made = {"provenance": {"model_sha256": golden.sha256_of(path), "torch": torch.__version__, "transformers": transformers.__version__,
                       "lm-eval": lm_eval.__version__, "arithmetic": "float32, eager attention, dequantised weights"},
        **lm_eval_tasks.summary(got["results"], got["samples"])}
lm_eval_tasks.REFERENCE.write_text("{" + ",\n".join(f'"{key}":{json.dumps(value)}' for key, value in made.items()) + "}\n")
print(json.dumps(made["scores"], indent=1))
