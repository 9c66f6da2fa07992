"""`lockstep verify histogram` and `prefill`: in the serving family a batch is the sequence, in bat it isn't."""
import json
import re
import xml.etree.ElementTree

import pytest

import golden
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
        check_severity(told[path])


def check_severity(h):
    assert h["nonzero"] == h["up_to_0.1"] + h["up_to_0.5"] + h["up_to_2.0"] + h["above_2.0"] and (h["nonzero"] > 0) == (h["worst"] > 0)


def test_bat_chooses_otherwise_where_tokens_nearly_tie(tmp_path):
    """With a vocabulary in pairs the last bits decide: bat's depend on company, those of the serving family don't."""
    tiny_models.make("twins", tmp_path / "twins.gguf")
    words = ["histogram", "--model", tmp_path / "twins.gguf", "--ids", "5,9,2,7", "--tokens", 60, "--family"]
    told = verify(*words, "bat", status=1)
    # What plain decoding commits, plain decoding chooses: a control. Another family's would not.
    assert told["plain"]["nonzero"] == 0
    for path in PATHS[1:]:
        check_severity(told[path])
        assert told[path]["nonzero"] > 0 and told[path]["worst"] < 1e-4 and not told[path]["same_tokens_as_plain"]
    told = verify(*words, "bat", "--ordinary", "family=seq", status=1)
    for path in PATHS:
        check_severity(told[path])
        assert told[path]["nonzero"] > 0 and told[path]["worst"] < 1e-4
    for extra in ([], ["--ordinary", "family=a16-v1,isa=scalar,threads=2"]):
        told = verify(*words, "a16-v1", *extra)
        assert all(told[path]["nonzero"] == 0 and told[path]["same_tokens_as_plain"] for path in PATHS)


def test_other_ordinary_decodes_are_checked(tmp_path):
    for name in ("twins", "qwen3"):
        tiny_models.make(name, tmp_path / f"{name}.gguf")
    words = ["histogram", "--model", tmp_path / "qwen3.gguf", "--ids", "5,9,2,7", "--tokens", 40]
    assert verify(*words, "--family", "bat", "--ordinary", f"model={tmp_path / 'twins.gguf'}", status=1)["plain"]["worst"] > 0.1
    for ordinary, says in ((f"model={model_path()}", "300 logits"), ("family", "no setting"), ("threads=0", "from 1 to 256")):
        assert says in run(*words, "--ordinary", ordinary, status=None).stderr


def test_bat16_would_choose_otherwise(tmp_path):
    """Partial sums in bfloat16 wherever rows share a pass: gaps that ordinary decode sees, on every path but the plain."""
    model = tmp_path / "qwen3.gguf"
    tiny_models.make("qwen3", model)
    words = ["histogram", "--model", model, "--ids", "5,9,2,7", "--tokens", 100, "--family"]
    told = verify(*words, "bat16", status=1)
    assert told["plain"]["nonzero"] == 0 and told["plain"]["identical_positions"] == 103
    for path in PATHS[1:]:
        h = told[path]
        check_severity(h)
        assert h["nonzero"] > 0 and 0 < h["worst"] <= 2 and not h["same_tokens_as_plain"]
    flat = verify(*words, "f32-v1")
    assert all(flat[path]["nonzero"] == 0 and flat[path]["same_tokens_as_plain"] for path in PATHS)


SAMPLING = [["--temperature", "0.8", "--seed", "7"],
            ["--temperature", "1.3", "--top-k", 40, "--top-p", "0.95", "--min-p", "0.01", "--repetition-penalty", "1.1", "--seed", 2**53 - 1],
            ["--temperature", "0.2", "--seed", "3"]]


@pytest.mark.parametrize("sampling", SAMPLING, ids=lambda words: " ".join(map(str, words[:4])))
def test_sampled_tokens_are_the_same_on_every_path(sampling, tmp_path):
    """A draw is a function of seed and position: drafts are verified by it, and a lost state changes none."""
    model = tmp_path / "qwen3.gguf"
    tiny_models.make("qwen3", model)
    words = ["histogram", "--model", model, "--ids", "5,9,2,7,5,9,2,7,5,9", "--tokens", 100, *sampling]
    told = verify(*words)
    for path in PATHS:
        assert told[path]["nonzero"] == 0 and told[path]["same_tokens_as_plain"]
        assert told[path]["identical_positions"] == told["plain"]["identical_positions"] == 109
    assert told["speculative"]["accepted"] > 0
    greedy = verify(*words[:-len(sampling)])
    assert greedy["speculative"]["accepted"] != told["speculative"]["accepted"]  # other tokens


IDS = ["--ids", "5,9,2,7,5,9"]
FORCED = [*IDS, "--tokens", 8]
# Verb, model, options, how many plots.
PAGES = [("histogram", "qwen3", [*FORCED, "--family", "bat16"], 1), ("diverge", "llama3", FORCED, 1), ("sweep", "llama3", FORCED, 2),
         ("ladder", "llama3", FORCED, 1), ("prefill", "qwen3", [*IDS, "--family", "bat16"], 2),
         ("same-prefix", "qwen3", [golden.DATA / "tiny-qwen3.npz", "--any-model"], 2)]


def plots(page):
    """Of a page that needs no other file: each plot's tree."""
    text = page.read_text()
    assert "<table>" in text and text.endswith("</body></html>\n") and not re.search(r"https?://|<script|<link|src=", text)
    return [xml.etree.ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text, re.S)]


@pytest.mark.parametrize("verb, model, words, count", PAGES, ids=[page[0] for page in PAGES])
def test_pages_need_no_other_file(verb, model, words, count, tmp_path):
    path, page = tmp_path / f"{model}.gguf", tmp_path / "page.html"
    tiny_models.make(model, path)
    done = run(verb, *words, "--model", path, "--html", page, "--json", status=None)
    assert done.returncode in (0, 1), done.stderr
    drawn, told = plots(page), json.loads(done.stdout)
    assert len(drawn) == count and all(len(plot.findall("text")) > 2 for plot in drawn)
    titles = [title.text for title in drawn[0].iter("title")]
    if verb == "diverge":
        assert "embed, layer 0: identical, 0" in titles and any(title.startswith("logits, layer 2: ") for title in titles)
    if verb == "sweep":
        assert len(drawn[1].findall("rect")) == 1 + 3  # legend and costs
    if verb == "ladder":
        assert [title.split(":")[0] for title in titles] == [
            f"{n} token{'s' * (n > 1)}, layers {depth}" for n in (1, 2, 4, 8) for depth in (1, 2, 3, "all")]
        assert not any("identical" in title for title in titles)
    if verb == "prefill":  # two points for each of six positions, the largest of which is told
        points = [float(title.rsplit(": ", 1)[1]) for title in titles if title.startswith("largest")]
        logits = next(point for point in told["checkpoints"] if point["checkpoint"] == "logits")
        assert len(titles) == 2 * len(points) == 12 and max(points) == pytest.approx(logits["max_abs"], rel=1e-3)
    if verb == "same-prefix":
        rows = [float(title.rsplit(": ", 1)[1]) for title in titles]
        assert len(rows) == told["engine"]["rows"] and max(rows) == pytest.approx(told["engine"]["kl"]["max"], rel=1e-3)
    assert "can't write" in run(verb, *words, "--model", path, "--html", tmp_path / "no/x", status=74).stderr


@pytest.mark.parametrize("model", list(golden.MODELS) if LONG_RUN else ["smollm2"])
def test_batched_prefill_is_n_times_forward(model):
    told = verify("prefill", "--model", model_path(model), "--prompt", LIST * (40 if LONG_RUN else 1), "--chunk", 64)
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
