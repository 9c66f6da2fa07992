"""Embeddings: the numbers are transformers'; the bits don't depend on what shares a step, how the text is cut, on instruction
set, cache or deaths; OpenAI's and Ollama's clients."""

import array
import base64
import concurrent.futures
import json
import math
import pathlib
import re

import ollama
import openai
import pytest

from api import until
from pipeline import pipeline_with

PATH = "/v1/embeddings"
GOLDEN = json.loads((pathlib.Path(__file__).resolve().parents[1] / "golden/data/embeddings.json").read_text())["texts"]
TEXTS = [entry["text"] for entry in GOLDEN]
LONG = "".join(f"Item {i} costs {i * 7 % 13} coins. " for i in range(30))


def bits(pipeline, texts, **body):
    """The vectors' bytes, in the order of the inputs."""
    data = pipeline.post(PATH, input=texts, encoding_format="base64", **body)["data"]
    assert [entry["index"] for entry in data] == list(range(len(data)))
    return [base64.b64decode(entry["embedding"]) for entry in data]


def floats(data):
    return list(array.array("f", data))


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_values_are_transformers(pipeline, pooling):
    for entry, data in zip(GOLDEN, bits(pipeline, TEXTS, pooling=pooling), strict=True):
        vector = floats(data)
        assert len(vector) == 576 and abs(math.fsum(x * x for x in vector) - 1) < 1e-6
        worst = max(abs(a - b) for a, b in zip(vector, entry[pooling], strict=True))
        assert worst < 2e-4, (entry["text"], worst)


def test_the_same_bits(pipeline):
    """Alone or together, as text or ids, twice, in both encodings."""
    together = bits(pipeline, TEXTS)
    assert together == [bits(pipeline, text)[0] for text in TEXTS] == bits(pipeline, [entry["ids"] for entry in GOLDEN])
    assert bits(pipeline, TEXTS[::-1]) == together[::-1] and len(set(together)) == len(TEXTS)
    answer = pipeline.post(PATH, input=TEXTS[:2])
    assert [array.array("f", entry["embedding"]).tobytes() for entry in answer["data"]] == together[:2]
    n = sum(len(entry["ids"]) for entry in GOLDEN[:2])
    assert answer["usage"] == {"prompt_tokens": n, "total_tokens": n} and answer["object"] == "list"


def test_dimensions(pipeline):
    """The first ones, at length 1 again."""
    whole, = map(floats, bits(pipeline, TEXTS[0]))
    few, = map(floats, bits(pipeline, TEXTS[0], dimensions=16))
    length = math.sqrt(math.fsum(x * x for x in whole[:16]))
    assert len(few) == 16 and max(abs(a - b / length) for a, b in zip(few, whole)) < 1e-6


@pytest.fixture(scope="module")
def expected(shared):
    return {pooling: bits(shared, [LONG, *TEXTS], pooling=pooling) for pooling in ("mean", "last")}


@pytest.mark.parametrize("options, which", [(["--prefill-rows", "7", "--prefix-cache=false"], slice(0, 6)), (["--prefill-rows", "64", "--isa", "avx2"], slice(0, 6)),
                                            (["--isa", "scalar"], slice(1, 3))], ids=["rows of 7", "avx2", "scalar"])
def test_however_it_is_computed(expected, options, which):
    """The scalar kernels get two short texts only."""
    texts = [LONG, *TEXTS][which]
    with pipeline_with(options={"npu-worker": options, "keeper": ["--ctx", 2048]}) as pipeline:
        for pooling in ("mean", "last", "last"):  # the second time from the prefix cache
            assert bits(pipeline, texts, pooling=pooling) == expected[pooling][which]


@pytest.mark.parametrize("role, pooling", [("npu-worker", "mean"), ("npu-worker", "last"), ("tokenizer", "mean")])
def test_a_process_dies(expected, role, pooling):
    """In the middle of the work, which small steps make long."""
    with pipeline_with(options={"npu-worker": ["--prefill-rows", "16"], "keeper": ["--ctx", 2048]}) as pipeline:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for _ in range(2):
                answer = pool.submit(bits, pipeline, [LONG, *TEXTS], pooling=pooling)
                until(lambda: pipeline.running() or answer.done(), 60, "work")
                pipeline.kill(role)
                pipeline.start(role)
                assert answer.result(120) == expected[pooling]
                pipeline.wait_ready()
        pipeline.wait_idle()
        # Text is encoded in no time, so a tokenizer may well have nothing when it dies.
        assert pipeline.status()["counters"]["takeovers"] > 0 or role == "tokenizer"


def test_openai_client(pipeline, expected):
    with openai.OpenAI(base_url=pipeline.url + "/v1", api_key="none", max_retries=0, timeout=120) as client:
        model = client.models.list().data[0].id
        plain = client.embeddings.create(model=model, input=TEXTS[:2])  # asks for base64 by itself
        named = client.embeddings.create(model=model, input=TEXTS[:2], encoding_format="float", dimensions=576)
        for answer in (plain, named):
            assert [array.array("f", entry.embedding).tobytes() for entry in answer.data] == expected["mean"][1:3]
        with pytest.raises(openai.BadRequestError):
            client.embeddings.create(model=model, input="")


def test_ollama_client(pipeline, expected):
    client = ollama.Client(host=pipeline.url, timeout=120)
    model = client.list().models[0].model
    answer = client.embed(model=model, input=TEXTS[:2])
    assert [array.array("f", vector).tobytes() for vector in answer.embeddings] == expected["mean"][1:3]
    assert answer.prompt_eval_count == sum(len(entry["ids"]) for entry in GOLDEN[:2]) and answer.model == model
    assert len(client.embed(model=model + ":latest", input="one", dimensions=5).embeddings[0]) == 5
    assert "embedding" in client.show(model).capabilities
    with pytest.raises(ollama.ResponseError, match="must be"):
        client.embed(model=model, input="")


@pytest.mark.parametrize("body, code, param", [
    ({}, "invalid_value", "input"), ({"input": ""}, "invalid_value", "input"), ({"input": []}, "invalid_value", "input"),
    ({"input": ["a", ""]}, "invalid_value", "input"), ({"input": [1, 99999999]}, "invalid_value", "input"),
    ({"input": [[1], [-1]]}, "invalid_value", "input"), ({"input": ["a"] * 129}, "invalid_value", "input"),
    ({"input": {"a": 1}}, "invalid_value", "input"), ({"input": [1] * 9000}, "context_length_exceeded", "input"),
    ({"input": "a " * 9000}, "context_length_exceeded", "input"), ({"input": "a", "dimensions": 577}, "invalid_value", "dimensions"),
    ({"input": "a", "dimensions": 0}, "invalid_value", "dimensions"), ({"input": "a", "encoding_format": "int8"}, "invalid_value", "encoding_format"),
    ({"input": "a", "pooling": "cls"}, "invalid_value", "pooling"), ({"input": "a", "truncate_prompt_tokens": 5}, "unsupported", "truncate_prompt_tokens"),
    ({"input": "a", "model": "other"}, "model_not_found", "model")])
def test_refused(pipeline, body, code, param):
    answer = pipeline.request("POST", PATH, body)
    assert answer.status in (400, 404) and answer.json["error"]["code"] == code and answer.json["error"]["param"] == param


def test_as_many_positions_as_the_context_has():
    with pipeline_with(options={"keeper": ["--ctx", 128, "--slots", 2]}) as pipeline:
        assert pipeline.post(PATH, input=[5] * 128)["usage"]["prompt_tokens"] == 128
        assert pipeline.refused(PATH, {"input": [5] * 129}) == (400, "context_length_exceeded", "input")


def test_what_can_never_fit_is_not_told_to_wait():
    """Neither in the queue nor in memory; and nothing that is kept is given up for it."""
    options = {"keeper": ["--ctx", 128, "--slots", 2, "--body-pool-mb", 2], "gateway": ["--queue", 40]}
    with pipeline_with(options=options) as pipeline:
        asked = ("POST", "/v1/completions", {"prompt": "kept", "max_tokens": 2}, {"Idempotency-Key": "kept"})
        kept = pipeline.request(*asked)
        assert pipeline.refused(PATH, {"input": ["a"] * 43})[:2] == (413, "request_too_large")
        assert pipeline.refused(PATH, {"input": ["a"] * 32})[:2] == (413, "request_too_large")
        assert pipeline.request(*asked).json == kept.json
        assert re.search(r"^lockstep_resumed_total 1$", pipeline.get("/metrics").data.decode(), re.M)
        assert len(pipeline.post(PATH, input=["a"] * 8)["data"]) == 8
