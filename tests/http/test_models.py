"""The other real models through the whole pipeline: another architecture, tokenizer and template each."""

import pathlib

import numpy
import pytest

from api import user, whole_of
from pipeline import model_path, pipeline_with

DATA = pathlib.Path(__file__).resolve().parents[1] / "golden/data"
MODELS = {"qwen2.5": "Qwen2.5-Coder-0.5B-Instruct.gguf", "gemma": "gemma-3-270m-Q4_K_M.gguf"}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    """(name, pipeline)"""
    with pipeline_with(model=model_path(MODELS[request.param]), options={"keeper": ["--ctx", 1024, "--slots", 2]}) as pipeline:
        yield request.param, pipeline


def test_greedy_answers_are_the_references(model):
    """Of transformers in float32: the same tokens, unless the reference's first and second choice are close."""
    name, pipeline = model
    file, start, compared = numpy.load(DATA / f"{name}-short.npz"), 0, 0
    rows = numpy.sort(file["top"], axis=1).reshape(len(file["lengths"]), -1, file["top"].shape[1])
    for length, answer, row in zip(file["lengths"], file["tokens"], rows):
        prompt = file["prompts"][start:start + length].tolist()
        start += length
        got = whole_of(pipeline.complete(prompt, temperature=0, max_tokens=len(answer), ignore_eos=True, return_token_ids=True))[0].ids
        close = numpy.flatnonzero(row[:, -1] - row[:, -2] < 0.02)
        sure = int(close[0]) if len(close) else len(answer)
        assert got[:sure] == answer.tolist()[:sure]
        compared += sure
    assert compared > 50


def test_beginnings(model):
    """Exactly the tokens that belong before a text: one BOS for Gemma, none for Qwen, with a template or without."""
    name, pipeline = model
    bos = {"gemma": [2], "qwen2.5": []}[name]
    ids = pipeline.post("/tokenize", prompt="Hello")["tokens"]
    assert ids[:-1] == bos and pipeline.post("/tokenize", prompt="Hello", add_special_tokens=False)["tokens"] == ids[len(bos):]
    answer = pipeline.complete("Hello", max_tokens=1, return_token_ids=True)
    assert answer["choices"][0]["prompt_token_ids"] == ids and answer["usage"]["prompt_tokens"] == len(ids)
    if name == "qwen2.5":
        ids = pipeline.post("/tokenize", messages=user("Hello"))["tokens"]
        assert pipeline.chat("Hello", max_tokens=1, return_token_ids=True)["prompt_token_ids"] == ids and ids[0] == 151644


def test_texts(model):
    _, pipeline = model
    for text in ("Hello, world!", "  \n\t x", "Café 123 😊 歪 👩‍👩‍👧", "def f(x):\n    return x", "<s> <bos> <|im_end|>"):
        ids = pipeline.post("/tokenize", prompt=text, add_special_tokens=False)["tokens"]
        assert pipeline.post("/detokenize", tokens=ids)["prompt"] == text


def test_chats(model):
    """With a template that knows tools, and without any: a base model says so."""
    name, pipeline = model
    if name == "gemma":
        answer = pipeline.request("POST", "/v1/chat/completions", {"messages": user("Hello")})
        assert answer.error == (400, "invalid_value", "messages") and "no chat template" in answer.json["error"]["message"]
        return
    whole, = whole_of(pipeline.chat("What is the capital of France? One word.", temperature=0, max_tokens=20, return_token_ids=True)).values()
    assert "Paris" in whole.text and whole.finish == "stop" and whole.ids[-1] == 151645
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
    prompt = pipeline.post("/apply-template", messages=user("Weather in Paris?"), tools=tools)["prompt"]
    assert "<tools>" in prompt and '"get_weather"' in prompt
