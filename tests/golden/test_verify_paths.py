"""`lockstep verify histogram` and `prefill`: in the serving family a batch is the sequence, in bat it isn't."""
import pytest

import tiny_models
from test_verify import LONG_RUN, model_path, run, verify

LIST = "List the numbers from one to twenty, then list them again:"
TOKENS = 200 if LONG_RUN else 32
PATHS = ("plain", "batched", "speculative", "replayed")


def test_serving_family_has_no_gaps():
    """Strict speculation, neighbours and a state that was lost: the same tokens, states and logits at every position."""
    told = verify("histogram", "--model", model_path(), "--prompt", LIST, "--tokens", TOKENS)
    plain = told["plain"]
    assert plain["positions"] == TOKENS and plain["identical_positions"] > TOKENS
    for path in PATHS:
        assert told[path]["nonzero"] == 0 and told[path]["worst"] == 0 and told[path]["same_tokens_as_plain"]
        assert told[path]["identical_positions"] == plain["identical_positions"]
    assert 0 < told["speculative"]["accepted"] <= told["speculative"]["drafted"]


def test_bat_computes_other_states():
    """Its tokens may be the same, its states and logits aren't: wherever the batch's size was another."""
    told = verify("histogram", "--model", model_path(), "--family", "bat", "--prompt", LIST, "--tokens", 12, status=1)
    assert told["plain"]["nonzero"] == 0
    different = [path for path in PATHS[1:] if told[path]["identical_positions"] != told["plain"]["identical_positions"]]
    assert {"batched", "speculative"} <= set(different)
    for path in PATHS:
        h = told[path]
        assert h["nonzero"] == h["up_to_0.1"] + h["up_to_0.5"] + h["up_to_2.0"] + h["above_2.0"]


def test_bat16_would_choose_otherwise(tmp_path):
    """Partial sums in bfloat16 wherever rows share a pass: gaps that ordinary decode sees, on every path but the plain."""
    model = tmp_path / "qwen3.gguf"
    tiny_models.make("qwen3", model)
    words = ["histogram", "--model", model, "--ids", "5,9,2,7", "--tokens", 100, "--family"]
    told = verify(*words, "bat16", status=1)
    assert told["plain"]["nonzero"] == 0 and told["plain"]["identical_positions"] == 103
    for path in PATHS[1:]:
        h = told[path]
        assert h["nonzero"] > 0 and 0 < h["worst"] <= 2 and not h["same_tokens_as_plain"]
        assert h["nonzero"] == h["up_to_0.1"] + h["up_to_0.5"] + h["up_to_2.0"] + h["above_2.0"]
    flat = verify(*words, "f32-v1")
    assert all(flat[path]["nonzero"] == 0 and flat[path]["same_tokens_as_plain"] for path in PATHS)


def test_batched_prefill_is_n_times_forward():
    told = verify("prefill", "--model", model_path(), "--prompt", LIST, "--chunk", 64)
    assert told["identical"] and told["rows"] == told["rows_identical"] == told["states_identical"] > 8


def test_batched_prefill_differs_in_bat():
    told = verify("prefill", "--model", model_path(), "--family", "bat", "--prompt", LIST, status=1)
    assert told["rows_identical"] == 0 < told["rows"]
    logits = next(point for point in told["checkpoints"] if point["checkpoint"] == "logits")
    assert 0 < logits["max_relative_l2"] < 1e-4 and logits["min_correlation"] > 0.999999


@pytest.mark.parametrize("words, says", [(["histogram", "--draft", "0"], "--draft"), (["prefill"], "one of"),
                                         (["histogram", "--ids", "1", "--tokens", "9", "--ctx", "4"], "--ctx")])
def test_refuses(words, says):
    extra = ["--ids", "1"] if "--draft" in words else []
    assert says in run(*words, "--model", model_path(), *extra, status=64).stderr
