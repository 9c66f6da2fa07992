"""`lockstep verify diverge` and `ladder`: what was seeded is found at its place, and nothing where nothing was."""
import subprocess

import pytest

import golden
from test_verify import LOCKSTEP, LONG_RUN, model_path, run, verify

IDS = "1,504,3575,282,4649,314,7042,30"  # 8 of them: the forced positions begin at 8


def diverge(*words, status, model="smollm2", verb="diverge", tokens=6):
    return verify(verb, "--model", model_path(model), "--ids", IDS, "--tokens", tokens, *words, status=status)


def check_gates(told):
    for name in ("CONTROL A0_vs_A1", "PROBE A0_vs_A2", "CONTROL B0_vs_B1", "PROBE B0_vs_B2"):
        assert told[name]["pass"] and told[name]["positions"] > 0


SERVING = ["--a", "family=a16-v1,rows=3,threads=2,neighbours=2", "--b", "family=a16-v1,rows=1,isa=avx2"]


def test_serving_family_does_not_diverge():
    told = diverge(*SERVING, status=0)
    check_gates(told)
    assert told["result"] == "IDENTICAL" and told["verdict"]["records"] > 3000
    assert told["verdict"]["rows_identical"] == 6


@pytest.mark.parametrize("fault, place, elements", [
    ("operator:layer=2,checkpoint=gate,position=10,element=3", (10, 2, "gate"), 1),
    ("operator:layer=29,checkpoint=after_ffn,position=13", (13, 29, "after_ffn"), 1),
    ("operator:layer=0,checkpoint=embed,position=8,element=575", (8, 0, "embed"), 1),
    ("rope:layer=0,position=9,element=40", (9, 0, "q_rope"), None),
    ("weight:layer=3,checkpoint=up,tile=5,element=17", (8, 3, "up"), 1),
    ("kv:layer=4,part=3,position=5,element=7", (8, 4, "heads"), None),
])
def test_seeded_fault_is_found_at_its_place(fault, place, elements):
    told = diverge(*SERVING, "--fault", fault, status=1)
    check_gates(told)
    first = told["verdict"]["first_difference"]
    assert (first["position"], first["layer"], first["checkpoint"]) == place
    if elements:
        assert first["diff"]["mismatches"] == elements
    if fault.startswith("weight"):
        assert first["diff"]["first"]["index"] // 16 == 5
    rest = told["kv_at_rest"]
    assert rest == ({"position": 5, "layer": 4, "part": 3, "element": 7} if fault.startswith("kv") else None)


def test_a_key_at_rest_is_seen_in_the_scores():
    """Three query heads share the key of KV head 1; without the scores, the first difference is that of the heads."""
    fault = "kv:layer=4,part=2,position=5,element=7"
    assert diverge(*SERVING, "--scores", status=0, tokens=2)["result"] == "IDENTICAL"
    told = diverge(*SERVING, "--scores", "--fault", fault, status=1, tokens=2)
    first = told["verdict"]["first_difference"]
    assert [first[name] for name in ("position", "layer", "checkpoint", "part")] == [8, 4, "scores", 3]
    assert first["diff"]["mismatches"] == 1 and first["diff"]["first"]["index"] == 5
    first = diverge(*SERVING, "--fault", fault, status=1, tokens=2)["verdict"]["first_difference"]
    assert (first["position"], first["layer"], first["checkpoint"]) == (8, 4, "heads")


def test_one_other_accumulation_order_is_found():
    told = diverge("--a", "family=seq,rows=3", "--b", "family=seq", "--fault", "order:layer=5,checkpoint=down", status=1)
    first = told["verdict"]["first_difference"]
    assert (first["position"], first["layer"], first["checkpoint"]) == (8, 5, "down")
    assert first["diff"]["relative_l2"] < 1e-5


@pytest.mark.parametrize("model", ["smollm2", "gemma", "qwen2.5"])
def test_bat_and_seq_differ(model):
    told = diverge("--a", "family=bat,rows=4", "--b", "family=seq", status=1, model=model, tokens=4)
    check_gates(told)
    first = told["verdict"]["first_difference"]
    assert (first["layer"], first["checkpoint"]) in [(0, "attn_norm"), (0, "q_proj")]
    points = {point["checkpoint"]: point for point in told["verdict"]["checkpoints"]}
    assert points["logits"]["different"] == 4 and points["logits"]["max_relative_l2"] < 1e-3
    assert points["embed"]["different"] == 0


def test_bat_depends_on_its_company_and_seq_does_not():
    told = diverge("--a", "family=bat,rows=6", "--b", "family=seq,rows=6", status=1)
    assert told["result"] == "DIFFERENT"
    assert diverge("--a", "family=seq,rows=6", "--b", "family=seq,rows=1", status=0)["result"] == "IDENTICAL"


def test_gguf_and_q4nx(tmp_path):
    """A folder computes what the file does that it stands for; from the file it was made of it parts at the first weight."""
    for source, target in ((model_path(), "q4nx"), (tmp_path / "q4nx", "back.gguf")):
        subprocess.run([LOCKSTEP, "model", "convert", source, tmp_path / target], check=True, capture_output=True, timeout=600)
    sides = [f"model={tmp_path / 'q4nx'},rows=2", "--b", f"model={tmp_path / 'back.gguf'}"]
    assert diverge("--a", *sides, status=0, tokens=2)["result"] == "IDENTICAL"
    told = diverge("--a", sides[0], status=1, tokens=2)
    check_gates(told)
    first = told["verdict"]["first_difference"]
    assert (first["position"], first["layer"], first["checkpoint"]) == (8, 0, "embed")
    assert 1e-4 < first["diff"]["relative_l2"] < 1e-2


@pytest.mark.parametrize("kind, gate", [("unsteady", "CONTROL A0_vs_A1"), ("probe", "PROBE A0_vs_A2")])
def test_a_side_that_differs_from_itself_is_not_reported_on(kind, gate, tmp_path):
    """An operator whose result isn't always the same; a probe that changes what it looks at. Nothing is said but which gate failed.
    (In float32: rounding to 16 bits may swallow a last bit.)"""
    fault, sides = f"{kind}:layer=2,checkpoint=after_ffn,position=10,element=3", ["--a", "family=seq,rows=3", "--b", "family=seq"]
    told = diverge(*sides, "--fault", fault, "--html", tmp_path / "page.html", status=1)
    gates = {name: told[name]["pass"] for name in told if name.startswith(("CONTROL", "PROBE"))}
    assert gates == {**dict.fromkeys(gates, True), gate: False} and len(gates) == 4
    assert 0 < told[gate]["identical"] < told[gate]["positions"]
    assert told["result"] == "FAIL" and told["verdict"] is None and told["kv_at_rest"] is None
    text = run("diverge", "--model", model_path(), "--ids", IDS, "--tokens", 3, *sides, "--fault", fault, status=1).stdout
    assert text.endswith("RESULT FAIL: a side differs from itself; no divergence is reported\n") and "first difference" not in text
    rungs = diverge(*sides, "--fault", fault, verb="ladder", status=1, tokens=4)
    assert {rung["divergence"]["result"] for rung in rungs if rung["tokens"] < 4} == {"IDENTICAL"}
    assert {rung["divergence"]["result"] for rung in rungs if rung["tokens"] == 4} == {"FAIL"}


# What is seeded where, and the first rung that shows it. Position 8 is the first forced one, layer 2 the third layer.
LADDERS = [("operator:layer=2,checkpoint=gate,position=10,element=3", (4, 3), (10, 2, "gate")),
           ("rope:layer=0,position=9,element=40", (2, 1), (9, 0, "q_rope")),
           ("weight:layer=1,checkpoint=up,tile=5,element=17", (1, 2), (8, 1, "up")),
           ("kv:layer=2,part=3,position=5,element=7", (1, 3), (8, 2, "heads")),
           ("order:layer=1,checkpoint=down", (1, 2), (8, 1, "down"))]


@pytest.mark.parametrize("fault, rung, place", LADDERS, ids=[fault.split(":")[0] for fault, _, _ in LADDERS])
def test_ladder(fault, rung, place):
    """The rung says from which context and depth on, the first difference there at which operator."""
    sides = ["--a", "family=seq,rows=3", "--b", "family=seq"] if fault.startswith("order") else SERVING
    rungs = diverge(*sides, "--fault", fault, verb="ladder", status=1, tokens=4)
    assert [(rung["tokens"], rung["depth"]) for rung in rungs] == [(n, d) for n in (1, 2, 4) for d in (1, 2, 3, 0)]
    different = {(rung["tokens"], rung["depth"]) for rung in rungs if rung["divergence"]["verdict"]["first_difference"]}
    assert different == {(n, d) for n in (1, 2, 4) for d in (1, 2, 3, 0) if n >= rung[0] and (d == 0 or d >= rung[1])}
    for told in rungs:
        first = told["divergence"]["verdict"]["first_difference"]
        assert not first or (first["position"], first["layer"], first["checkpoint"]) == place


@pytest.mark.skipif(not LONG_RUN, reason="the long form")
@pytest.mark.parametrize("model", list(golden.MODELS))
def test_ladder_of_the_serving_family(model):
    """Every context up to 48 tokens and every depth, with neighbours, threads and another instruction set: the same bits."""
    rungs = diverge(*SERVING, verb="ladder", status=0, model=model, tokens=48)
    assert len(rungs) == 4 * 7 and all(rung["divergence"]["result"] == "IDENTICAL" for rung in rungs)


@pytest.mark.parametrize("words, says", [
    (["--a", "fam=x"], "no setting"), (["--a", "family=x"], "isn't known"), (["--a", "rows=0"], "from 1 to 512"),
    (["--fault", "gremlin"], "no kind"), (["--fault", "kv:layer=99"], "limit is 29"),
    (["--fault", "operator:checkpoint=logits"], "takes none"), (["--fault", "operator:checkpoint=scores"], "takes none"), (["--layers", "0"], "depth"),
    (["--fault", "weight:checkpoint=heads"], "no matrix"),
    (["--a", "family=a16-v1", "--fault", "order:checkpoint=down"], "f32-v1"),
])
def test_refuses(words, says):
    done = run("diverge", "--model", model_path(), "--ids", IDS, "--tokens", 2, *words, status=78 if "family=x" in words else 64)
    assert says in done.stderr
