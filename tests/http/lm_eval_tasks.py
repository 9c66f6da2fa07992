"""What test_lm_eval.py and the program that makes its reference share: the tasks, the tokenizer, how samples are compared."""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
TASKS = HERE / "lm-eval"
REFERENCE = HERE.parent / "golden/data/lm-eval.json"
NAMES = ["facts", "prose"]


def tokenizer_folder(folder):
    """The default model's tokenizer as transformers loads it, independent of ours."""
    sys.path.insert(0, str(HERE.parent / "golden/tokenizer"))
    import tokenizer_oracles
    tokenizer, _ = tokenizer_oracles.load("smollm2")
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|im_start|>", "eos_token": "<|im_end|>",
         "model_max_length": 8192}))
    return folder


def plain(value):
    """Log-likelihoods come as numbers or pairs of (number, greedy?), possibly as text."""
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, str):
        return value == "True" if value in ("True", "False") else float(value)
    return value


def summary(results, samples):
    """Scores, and each sample's log-likelihoods in the order of the data."""
    return {"scores": {name: {key: value for key, value in results[name].items() if key.endswith(",none") and "stderr" not in key}
                       for name in NAMES},
            "samples": {name: [plain(sample["filtered_resps"]) for sample in sorted(samples[name], key=lambda s: s["doc_id"])]
                        for name in NAMES}}
