"""lm-eval, as users run it: its tasks through /v1/completions (echo and logprobs) have the scores that the same tasks have
with transformers in float32 (golden/lm_eval_reference.py)."""

import json
import os
import subprocess

import pytest

import lm_eval_tasks
from clients import lm_eval_python


@pytest.fixture(scope="module")
def reference():
    return json.loads(lm_eval_tasks.REFERENCE.read_text())


def evaluate(pipeline, folder, batch_size=1, **options):
    """What lm-eval's own command line says of this pipeline."""
    model = pipeline.get("/v1/models").json["data"][0]["id"]
    arguments = {"model": model, "base_url": pipeline.url + "/v1/completions", "tokenizer": lm_eval_tasks.tokenizer_folder(folder),
                 "tokenizer_backend": "huggingface", "num_concurrent": 8, "max_retries": 1, "max_length": 8192, **options}
    done = subprocess.run(
        [lm_eval_python(), "-m", "lm_eval", "--model", "local-completions", "--tasks", ",".join(lm_eval_tasks.NAMES),
         "--model_args", ",".join(f"{key}={value}" for key, value in arguments.items()), "--include_path", lm_eval_tasks.TASKS,
         "--log_samples", "--output_path", folder / "out", "--batch_size", str(batch_size)],
        cwd=lm_eval_tasks.TASKS, capture_output=True, text=True, timeout=600,
        env={**os.environ, "HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"})
    assert done.returncode == 0, done.stderr[-3000:]
    return read_output(folder / "out")


def read_output(folder):
    results, = folder.rglob("results_*.json")
    samples = {name: [json.loads(line) for file in folder.rglob(f"samples_{name}_*.jsonl") for line in open(file)]
               for name in lm_eval_tasks.NAMES}
    return lm_eval_tasks.summary(json.loads(results.read_text())["results"], samples)


@pytest.mark.parametrize("options", [{}, {"tokenized_requests": False, "batch_size": 4, "num_concurrent": 1}],
                         ids=["ids", "texts"])
def test_scores_equal_the_reference(pipeline, reference, tmp_path, options):
    if options and not os.environ.get("LOCKSTEP_LONG"):
        pytest.skip("only with --long")
    got = evaluate(pipeline, tmp_path, **options)
    # Which answer is chosen is the same for each question, so the scores are equal, not only close.
    assert got["scores"]["facts"] == reference["scores"]["facts"]
    for mine, theirs in zip(got["samples"]["facts"], reference["samples"]["facts"], strict=True):
        assert [greedy for _, greedy in mine] == [greedy for _, greedy in theirs]
        assert [value for value, _ in mine] == pytest.approx([value for value, _ in theirs], abs=0.03)
    # 16-bit activations against float32.
    assert got["scores"]["prose"] == pytest.approx(reference["scores"]["prose"], rel=2e-3)
