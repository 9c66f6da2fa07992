"""Constrained answers: every form that clients know, checked by jsonschema and re; whoever asks, streams or comes back gets
the same bytes. OpenAI's client is the oracle of its own forms."""

import functools
import json
import re
import subprocess

import jsonschema
import openai
import pydantic
import pytest

from api import Stream, user
from pipeline import BUILD, model_path, pipeline_with

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
DEEP = functools.reduce(lambda schema, _: {"type": "array", "items": schema}, range(70), {"type": "null"})
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
                   "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 3},
                   "friend": {"anyOf": [{"$ref": "#/$defs/friend"}, {"type": "null"}]}},
    "required": ["name", "age", "tags", "friend"], "additionalProperties": False,
    "$defs": {"friend": {"type": "object", "properties": {"name": {"type": "string", "pattern": "^[A-Z][a-z]{1,8}$"}},
                         "required": ["name"], "additionalProperties": False}}}
ASK = "Describe a person named Ann as JSON."


def as_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema, "strict": True}}


def texts_of(answer, chat):
    return [(choice["message"]["content"] if chat else choice["text"], choice["finish_reason"]) for choice in answer["choices"]]


def ask(pipeline, chat=True, **body):
    answer = pipeline.chat(ASK, **body) if chat else pipeline.complete("Ann, 30 years old, as JSON: ", **body)
    return texts_of(answer, chat)


@pytest.mark.parametrize("chat", [True, False], ids=["chat", "completions"])
@pytest.mark.parametrize("form", ["response_format", "guided_json", "structured_outputs", "json_schema", "text"])
def test_every_name_of_a_schema(pipeline, chat, form):
    """All of them mean the same, and give the same bytes."""
    body = {"response_format": {"response_format": as_format(PERSON)}, "guided_json": {"guided_json": PERSON},
            "structured_outputs": {"structured_outputs": {"json": PERSON, "regex": None}}, "json_schema": {"json_schema": PERSON},
            "text": {"guided_json": json.dumps(PERSON)}}[form]
    got = ask(pipeline, chat, temperature=0, max_tokens=150, **body)
    assert got == ask(pipeline, chat, temperature=0, max_tokens=150, response_format=as_format(PERSON))
    (text, finish), = got
    assert finish == "stop"
    jsonschema.validate(json.loads(text), PERSON)


def test_sampled_answers_are_valid(pipeline):
    complete = 0
    for seed in range(4):
        for text, finish in ask(pipeline, temperature=1.3, seed=seed, n=3, max_tokens=120, response_format=as_format(PERSON)):
            if finish == "stop":
                jsonschema.validate(json.loads(text), PERSON)
                complete += 1
    assert complete >= 9


def test_json_object(pipeline):
    for seed in range(3):
        (text, finish), = ask(pipeline, temperature=0.7, seed=seed, max_tokens=200, response_format={"type": "json_object"})
        assert text.startswith("{") and (finish == "length" or isinstance(json.loads(text), dict))
    (text, finish), = ask(pipeline, temperature=0, max_tokens=50, structured_outputs={"json_object": True},
                          logit_bias={}, stop=["}"], include_stop_str_in_output=True)
    assert finish == "length" or text.endswith("}")


@pytest.mark.parametrize("body, pattern", [
    ({"guided_regex": r"[A-Z][a-z]+ is (good|bad)\."}, r"[A-Z][a-z]+ is (good|bad)\."),
    ({"structured_outputs": {"regex": r"\d{4}-\d{2}"}}, r"\d{4}-\d{2}"),
    ({"guided_choice": ["yes", "no", "yes, but later"]}, "yes|no|yes, but later"),
    ({"structured_outputs": {"choice": ["歪", "🦙🦙"]}}, "歪|🦙🦙"),
    ({"grammar": 'root ::= "a"+ b{3}\nb ::= [b-d]'}, "a+[b-d]{3}"),
    ({"guided_grammar": 'root ::= "(" root ")" | "x"'}, r"\(*x\)*")])
@pytest.mark.parametrize("temperature", [0, 1.5])
def test_other_forms(pipeline, body, pattern, temperature):
    for seed in range(2):
        (text, finish), = ask(pipeline, temperature=temperature, seed=seed, max_tokens=60, **body)
        assert finish == "length" or re.fullmatch(pattern, text), text
        assert not (body.keys() & {"guided_choice"}) or finish == "stop"


def test_the_end_is_the_grammars(pipeline):
    """A text that nothing can follow ends the answer, whatever the client says of ends; before, end tokens don't come."""
    for extra in ({}, {"ignore_eos": True}, {"min_tokens": 40}, {"logit_bias": {"2": 100, "0": 100}}, {"stop_token_ids": [28]}):
        (text, finish), = ask(pipeline, temperature=0, max_tokens=60, guided_choice=["Hello, you", "Bye"], **extra)
        assert text in ("Hello, you", "Bye") and finish == "stop", extra


def test_log_probabilities_are_the_models(pipeline):
    """A mask changes what is drawn, not what the model said of it."""
    answer = pipeline.chat(ASK, temperature=0, guided_choice=["zebra"], logprobs=True, top_logprobs=3)
    entries = answer["choices"][0]["logprobs"]["content"]
    assert "".join(entry["token"] for entry in entries) == "zebra"
    assert entries[0]["logprob"] < entries[0]["top_logprobs"][0]["logprob"]


@pytest.mark.parametrize("body, param, words", [
    ({"response_format": as_format({"properties": {"a": {"not": {}}}})}, "response_format", "/properties/a/not"),
    ({"response_format": {"type": "json_schema"}}, "response_format", "schema"),
    ({"response_format": {"type": "xml"}}, "response_format", "json_object"),
    ({"response_format": as_format(False)}, "response_format", "no text"), ({"guided_json": DEEP}, "guided_json", "nested deeper than 64"),
    ({"guided_json": json.dumps(DEEP)}, "guided_json", "nested deeper than 64"),
    ({"guided_json": "{"}, "guided_json", "the text of a schema: JSON refused"), ({"guided_json": 5}, "guided_json", "schema"),
    ({"guided_json": {"type": "string", "pattern": "(?=x)"}}, "guided_json", "/pattern"),
    ({"guided_regex": "(a"}, "guided_regex", "byte 3"), ({"guided_choice": []}, "guided_choice", "array"),
    ({"guided_choice": ["a", 5]}, "guided_choice", "strings"), ({"grammar": "root ::= x"}, "grammar", "line 1"),
    ({"grammar": "root ::= root"}, "grammar", "left recursion"),
    ({"structured_outputs": {"structural_tag": {}}}, "structured_outputs", "members"),
    ({"guided_regex": "a", "grammar": 'root ::= "a"'}, "grammar", "one of them"),
    ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs", "one of them"),
    ({"guided_json": {"type": "string", "maxLength": 60000}}, "guided_json", "states")])
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_wrong_is_said_at_once(pipeline, body, param, words, stream):
    answer = pipeline.request("POST", CHAT, {"messages": user("x"), "stream": stream, **body})
    assert answer.status == 400 and answer.json["error"]["param"] == param and words in answer.json["error"]["message"]


def test_openai_client(pipeline):
    class Person(pydantic.BaseModel):
        name: str
        age: int
        colour: str | None

    with openai.OpenAI(base_url=pipeline.url + "/v1", api_key="none", max_retries=0, timeout=120) as client:
        model, = client.models.list()
        answer = client.chat.completions.parse(model=model.id, messages=user(ASK), temperature=0, max_tokens=200,
                                               response_format=Person)
        assert isinstance(answer.choices[0].message.parsed, Person)
        with client.chat.completions.stream(model=model.id, messages=user(ASK), temperature=0, max_tokens=200,
                                            response_format=Person) as stream:
            assert stream.get_final_completion().choices[0].message.parsed == answer.choices[0].message.parsed


def test_a_stream_that_comes_back():
    with pipeline_with() as pipeline:
        come_back(pipeline)


def come_back(pipeline):
    body = {"messages": user(ASK), "temperature": 1, "seed": 4, "max_tokens": 120, "response_format": as_format(PERSON)}
    key = {"Idempotency-Key": "structured-1"}
    with Stream(pipeline, CHAT, body, key) as stream:
        whole = list(stream)
        ids = list(stream.ids)
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in whole)
    jsonschema.validate(json.loads(text), PERSON)
    with Stream(pipeline, CHAT, body, {**key, "Last-Event-ID": ids[9]}) as again:
        assert list(again) == whole[10:]


@pytest.mark.parametrize("name", ["Qwen2.5-Coder-0.5B-Instruct.gguf", "gemma-3-270m-Q4_K_M.gguf"])
def test_other_vocabularies(name):
    """Byte-level BPE of 151,936 tokens, SentencePiece of 262,144."""
    with pipeline_with(model=model_path(name), options={"keeper": ["--ctx", 1024, "--slots", 4]}) as pipeline:
        complete = 0
        for seed in range(3):
            answers = ask(pipeline, False, temperature=min(seed, 1), seed=seed, n=2, max_tokens=120, guided_json=PERSON)
            for text, finish in answers:
                if finish == "stop":
                    jsonschema.validate(json.loads(text), PERSON)
                    complete += 1
        assert complete >= 3
        assert ask(pipeline, False, temperature=0, guided_choice=["歪歪", "\x01\n"])[0][1] == "stop"


def test_what_masks_cost(tmp_path):
    """The command that measures it draws whole answers of the schema."""
    schema = tmp_path / "kind.json"
    schema.write_text(json.dumps({"type": "object", "properties": {"kind": {"enum": ["alpha", "beta"]}}, "required": ["kind"]}))

    def bench(*words):
        return subprocess.run([BUILD / "bin/lockstep", "bench", "--in-process", "--grammar", schema, "--runs", "3", "--prompt-tokens", "8",
                               "--tokens", "24", *words], capture_output=True, text=True)
    done = bench("--model", model_path())
    assert done.returncode == 0, done.stderr
    rows = dict(re.findall(r"^(first|later) answers? +(\d+)", done.stdout, re.MULTILINE))
    assert 5 <= int(rows["first"]) <= 23 and int(rows["later"]) > int(rows["first"]), done.stdout
    schema.write_text("{")
    assert "is no JSON" in bench("--model", model_path()).stderr
    assert "--model FILE" in bench().stderr
