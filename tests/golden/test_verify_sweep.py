"""`lockstep verify sweep` on bat against seq: every source is found, and each family is needed but the control."""
import pytest

import golden
import tiny_models
from test_verify import LONG_RUN, model_path, run, verify

IDS = "1,504,3575,282,4649,314,7042,30"


def test_sweep():
    told = verify("sweep", "--model", model_path(), "--ids", IDS, "--tokens", 3, "--a", "family=bat,rows=3", "--b",
                  "family=seq")
    assert told["result"] == "IDENTICAL_AFTER_SUBSTITUTION" and told["first_divergence"] is None
    sources = {(source["family"], source["site"]): source for source in told["sources"]}
    assert told["sources_tested"] == len(sources) == 18
    # The embeddings' squares may add up to the same bits either way; the control must.
    assert {key for key, source in sources.items() if source["arithmetic_non_equivalence"] == "UNKNOWN"} - {
        ("norm", "attn_norm")} == {("residual", "after_attn"), ("residual", "after_ffn")}
    for (family, site), source in sources.items():
        nearer = source["adjudication"]
        assert (nearer == "UNKNOWN") == (family == "residual")  # where nothing differs, nothing is nearer
        if nearer != "UNKNOWN":
            assert nearer["differ"] == nearer["a_nearer"] + nearer["b_nearer"] + nearer["ties"]
            assert (nearer["differ"] > 0) == (source["arithmetic_non_equivalence"] == "PROVEN_BY_TEST")
    # Cutting a chain of 576 terms into parts and adding those rounds less often; a tree of squares less than a chain.
    products = sources["matmul", "down"]["adjudication"]
    assert products["rms_error_a"] < products["rms_error_b"]
    norms = sources["norm", "ffn_norm"]["adjudication"]
    assert norms["rms_error_a"] > norms["rms_error_b"]
    assert 0 < sources["attention", "heads"]["adjudication"]["rms_error_b"] < 1e-7
    # Two families share the heads: one alone leaves something.
    heads = [step for step in told["substitutions"] if step["site"] == "heads"]
    assert [step["outcome"] for step in heads] == ["partial", "fully canonicalised"]
    assert [step["complete_explanation"] for step in heads] == ["UNKNOWN", "PROVEN_BY_TEST"]
    assert heads[0]["after"]["relative_l2"] < heads[0]["before"]["relative_l2"]
    assert len(told["partial_causal_families"]) == 1 and told["partial_causal_families"][0] in ("attention", "exp")
    assert set(told["minimal_set"]) == {"matmul", "norm", "attention", "exp", "rope"}
    assert all(value > 0 for value in told["seconds_per_token"].values())


@pytest.mark.skipif(not LONG_RUN, reason="the long form")
@pytest.mark.parametrize("name", list(golden.MODELS))
def test_sweep_of_real_models(name):
    told = verify("sweep", "--model", model_path(name), "--ids", "5,9,2,7,5,9,2,7", "--tokens", 4)
    assert told["result"] == "IDENTICAL_AFTER_SUBSTITUTION" and told["first_divergence"] is None
    assert {"matmul", "norm"} <= set(told["minimal_set"]) and "residual" not in told["minimal_set"]
    assert all(source["adjudication"] != "UNKNOWN" for source in told["sources"] if source["family"] != "residual")


@pytest.mark.parametrize("name", ["gemma3_scaled", "qwen3", "phi3_longrope", "qwen2_yarn"])
def test_the_exact_values_are_the_models(name, tmp_path):
    """Windows, caps of scores and logits, shared heads, norms of queries, biases, several matrices in one: both paths are as near to
    the value in double as float32 can be. A key too many, a scale or a row elsewhere would be far."""
    tiny_models.make(name, tmp_path / "model.gguf")
    ids = ",".join(map(str, tiny_models.tokens(name)[:150]))
    told = verify("sweep", "--model", tmp_path / "model.gguf", "--ids", ids, "--tokens", 3, "--a", "family=bat,rows=3", "--b", "family=seq")
    judged = [source for source in told["sources"] if source["family"] != "residual"]
    for source in judged:
        nearer = source["adjudication"]
        assert nearer["differ"] == nearer["a_nearer"] + nearer["b_nearer"] + nearer["ties"], source
        assert 0 < max(nearer["rms_error_a"], nearer["rms_error_b"]) < 1e-5, source
    assert {"q_proj", "up", "heads", "logits"} <= {source["site"] for source in judged}
    assert all(source["adjudication"]["differ"] > 20 for source in judged if source["site"] == "heads")
    print(name, max(max(source["adjudication"][f"rms_error_{side}"] for side in "ab") for source in judged))


def test_sweep_wants_its_sides():
    done = run("sweep", "--model", model_path(), "--ids", IDS, "--tokens", 1, "--a", "family=a16-v1", status=64)
    assert "family=bat" in done.stderr
