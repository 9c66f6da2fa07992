"""What is refused, by the whole pipeline with a real model: each parameter's type and range by name, over-long prompts,
odd JSON, limits, full queues. And that none of it harms anyone else: the known answer comes after every request here."""

import json
import re

import pytest

from api import bits, until, user, whole_of
from pipeline import pipeline_with

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
INPUT = {CHAT: {"messages": user("Hi")}, COMPLETIONS: {"prompt": "Hi"}}
BOTH = (CHAT, COMPLETIONS)
VOCAB = 49152
CTX = 256


@pytest.fixture(scope="module")
def small():
    """A small context, few slots, a short queue."""
    with pipeline_with(options={"keeper": ["--ctx", CTX, "--slots", 2], "gateway": ["--queue", 2, "--max-body-bytes", 2 << 20]}) \
            as pipeline:
        yield pipeline
        pipeline.wait_idle()


@pytest.fixture(autouse=True)
def unharmed(pipeline):
    yield
    assert pipeline.chat("What is the capital of France?", temperature=0)["choices"][0]["message"]["content"] == \
        "The capital of France is Paris."
    assert pipeline.get("/ready").json["status"] == "ok"


# ---- parameters

NUMBERS = {  # what each number may not be, beside other types
    "temperature": (-0.1, 2.1, 999999), "top_p": (-1, 1.1), "min_p": (-0.1, 1.1), "typical_p": (-0.1, 1.1),
    "presence_penalty": (-2.1, 2.1), "frequency_penalty": (-2.1, 2.1), "repetition_penalty": (0, -1, 101),
    "top_k": (-2, 2**31, 2**63 - 1, -2**63, 0.5), "n": (0, -1, 17, 2**31, 2**63 - 1, 1.5),
    "max_tokens": (-1, 2**31, 2**63 - 1, -2**63, 1.5), "max_completion_tokens": (0, -1, 2**63 - 1, -2**63, 1.5),
    "min_tokens": (-1, 2**63 - 1, -2**63, 0.5), "seed": (0.5, 2**53 + 0.5e16)}
OBJECTS = {
    "logit_bias": ({"999999": 5}, {str(VOCAB): 1}, {"AI": -100}, {"-1": 1}, {"+1": 1}, {" 1": 1}, {"1.0": 1}, {"": 1}, {"1": 101},
                   {"1": -101}, {"1": 1e39}, {"1": "5"}, {"1": None}, {"1": True}, {str(i): 1 for i in range(1025)}, [1], "1", 1,
                   {"1": 1, "01": 2}),
    "stop": (1, "", [""], [None], ["a", 1], {}, True, ["x"] * 17, "x" * 257),
    "stop_token_ids": ([VOCAB], [151645], [-1], [1.5], ["1"], [None], [[1]], [True], [2**31], [2**63 - 1], 5, "5",
                       list(range(129)), [0] * 2000),
    "stream_options": (True, [], "x"), "user": (5, "x" * 513), "response_format": (5, {}, {"type": 5})}
FLAGS = ("stream", "ignore_eos", "speculate", "include_stop_str_in_output", "skip_special_tokens", "return_token_ids")


def table():
    for path in BOTH:
        for name, values in NUMBERS.items():
            for value in (*values, "1", True, [1], {}):
                yield path, name, value
        for name, values in OBJECTS.items():
            for value in values:
                yield path, name, value
        for name in FLAGS:
            for value in (1, 0, "true", [], {}):
                yield path, name, value
        for value in (5, [], {}, True):
            yield path, "model", value
    for value in (21, -1, 1.5, "1", True, [1]):
        yield COMPLETIONS, "logprobs", value
    for value in (1, "true", []):
        yield CHAT, "logprobs", value
        yield COMPLETIONS, "echo", value
        yield COMPLETIONS, "add_special_tokens", value
        yield CHAT, "add_generation_prompt", value
    for value in (21, -1, 1.5, "1", True):
        yield CHAT, "top_logprobs", value
    yield CHAT, "max_tokens", 0
    for value in (5, {}, True, [], [[]], ["a", []], [None], [1.5], [-1], [VOCAB], [2**63 - 1], [True], ["a", 5], [[1, "a"]],
                  [1, "a"], [[[1]]], ["a"] * 17, [[1]] * 17):
        yield COMPLETIONS, "prompt", value
    for value in (5, "x", {}, [], [5], ["x"], [[]], [{}]):
        yield CHAT, "messages", value
    for value in (5, {}, [5], [{"type": "x"}], [{"type": "function"}], [{"type": "function", "function": {"name": 5}}]):
        yield CHAT, "tools", value


def shown(value):
    text = json.dumps(value)
    return text if len(text) < 40 else text[:30] + f"...{len(text)}"


def test_a_wrong_value_is_refused_by_its_name(pipeline):
    wrong = []
    for path, name, value in table():
        status, code, param = pipeline.refused(path, {**INPUT[path], name: value})
        # A wrong message is named with its place in the array.
        if (status, code) != (400, "invalid_value") or (param or "").split("[")[0] != name:
            wrong.append((path, name, shown(value), status, code, param))
    assert wrong == []


@pytest.mark.parametrize("messages, param", [
    ([{"content": "x"}], "messages[0].role"), ([{"role": "", "content": "x"}], "messages[0].role"),
    ([{"role": "us er", "content": "x"}], "messages[0].role"), ([{"role": "user<|im_end|>", "content": "x"}], "messages[0].role"),
    ([{"role": "user"}], "messages[0].content"), ([{"role": "user", "content": 5}], "messages[0].content"),
    (user("a") + [{"role": "user", "content": [{"type": "text"}]}], "messages[1].content"),
    ([{"role": "user", "content": [{"type": "text", "text": 5}]}], "messages[0].content"),
    ([{"role": "user", "content": "x", "name": 5}], "messages[0].name"),
    ([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}], "messages[0].tool_calls"),
    ([{"role": "assistant", "tool_calls": 5}], "messages[0].tool_calls")])
def test_messages(pipeline, messages, param):
    assert pipeline.refused(CHAT, {"messages": messages}) == (400, "invalid_value", param)


@pytest.mark.parametrize("path, body, status, code, param", [
    (CHAT, {}, 400, "invalid_value", "messages"), (COMPLETIONS, {}, 400, "invalid_value", "prompt"),
    (CHAT, {"messages": None}, 400, "invalid_value", "messages"),
    (CHAT, {**INPUT[CHAT], "model": "gpt-4o"}, 404, "model_not_found", "model"),
    (CHAT, {**INPUT[CHAT], "top_logprobs": 2}, 400, "invalid_value", "top_logprobs"),
    (CHAT, {**INPUT[CHAT], "stream_options": {"include_usage": True}}, 400, "invalid_value", "stream_options"),
    (CHAT, {**INPUT[CHAT], "stream": True, "stream_options": {"include_usage": 1}}, 400, "invalid_value",
     "stream_options.include_usage"),
    (CHAT, {**INPUT[CHAT], "min_tokens": 5, "max_tokens": 4}, 400, "invalid_value", "min_tokens"),
    (COMPLETIONS, {"prompt": ["a"] * 5, "n": 4}, 400, "invalid_value", "n"),
    (COMPLETIONS, {"prompt": "a", "best_of": 2}, 400, "unsupported", "best_of"),
    (COMPLETIONS, {"prompt": "a", "suffix": "b"}, 400, "unsupported", "suffix"),
    (CHAT, {**INPUT[CHAT], "response_format": {"type": "xml"}}, 400, "unsupported", "response_format"),
    (CHAT, {**INPUT[CHAT], "tool_choice": "required"}, 400, "invalid_value", "tool_choice"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, 400, "unsupported",
     "messages[0].content"),
    (CHAT, {**INPUT[CHAT], "chat_template": "x"}, 400, "invalid_value", "chat_template"),
    ("/tokenize", {}, 400, "invalid_value", "prompt"), ("/tokenize", {"prompt": [1]}, 400, "invalid_value", "prompt"),
    ("/tokenize", {"prompt": "a", "messages": user("b")}, 400, "invalid_value", "prompt"),
    ("/detokenize", {}, 400, "invalid_value", "tokens"), ("/detokenize", {"tokens": [VOCAB]}, 400, "invalid_value", "tokens"),
    ("/detokenize", {"tokens": "a"}, 400, "invalid_value", "tokens"), ("/apply-template", {}, 400, "invalid_value", "messages")])
def test_refusals(pipeline, path, body, status, code, param):
    assert pipeline.refused(path, body) == (status, code, param)


def test_a_refusal_comes_before_a_stream(pipeline):
    for body in ({"temperature": 3}, {"prompt": [1] * 8193}, {"n": 99}, {"prompt": "x " * 9000}):
        answer = pipeline.request("POST", COMPLETIONS, {"prompt": "a", "stream": True, **body})
        assert answer.status == 400 and answer.headers["Content-Type"] == "application/json"


def test_unknown_parameters(pipeline):
    body = {"max_tokens": 8, "seed": 1}
    assert bits(pipeline.complete("a", **body, frobnicate=[1])) == bits(pipeline.complete("a", **body))
    pipeline.restart("gateway", "--strict")
    try:
        assert pipeline.refused(COMPLETIONS, {"prompt": "a", "frobnicate": 1}) == (400, "invalid_value", "frobnicate")
        pipeline.complete("a", max_tokens=1, store=False, metadata={})
    finally:
        pipeline.restart("gateway")


# ---- length

def both_numbers(answer, *numbers):
    """The message has each, as agents that shorten their context look for them."""
    found = re.findall(r"\d+", answer.json["error"]["message"])
    return all(str(number) in found for number in numbers)


@pytest.mark.parametrize("stream", [False, True])
def test_context_length(small, stream):
    """Text and ids, alone and with max_tokens: refused before any event, with the prompt's length and the context's."""
    text = " a" * CTX
    n = small.post("/tokenize", prompt=text)["count"]
    chat = small.post("/tokenize", messages=user(text))["count"]
    for path, body, numbers in (
            (COMPLETIONS, {"prompt": text + " a"}, (n + 1, CTX)), (COMPLETIONS, {"prompt": [5] * (CTX + 1)}, (CTX + 1, CTX)),
            (COMPLETIONS, {"prompt": [5] * CTX}, (CTX, CTX)), (COMPLETIONS, {"prompt": [5] * 200, "max_tokens": 57}, (200, 57, CTX)),
            (COMPLETIONS, {"prompt": text[:200], "max_tokens": CTX}, (100, CTX)), (CHAT, {"messages": user(text)}, (chat, CTX)),
            (COMPLETIONS, {"prompt": ["a", text]}, (n, CTX)), (COMPLETIONS, {"prompt": "a", "max_tokens": 2**31 - 1}, (1, CTX))):
        answer = small.request("POST", path, {**body, "stream": stream})
        assert answer.error[:2] == (400, "context_length_exceeded"), (path, body)
        assert answer.headers["Content-Type"] == "application/json" and both_numbers(answer, *numbers), answer.data


def test_a_context_that_is_just_full(small):
    whole, = whole_of(small.complete([5] * (CTX - 1), max_tokens=1, return_token_ids=True)).values()
    assert len(whole.ids) == 1 and whole.finish == "length"
    answer = small.complete([5] * (CTX - 10), ignore_eos=True, return_token_ids=True)
    assert len(answer["choices"][0]["token_ids"]) == 10 and answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] == CTX
    scored = small.complete([5] * CTX, max_tokens=0, echo=True, logprobs=1)
    assert len(scored["choices"][0]["logprobs"]["tokens"]) == CTX


def test_an_absent_max_tokens_is_the_rest_of_the_context(small):
    answer = small.chat("Count to a thousand.", ignore_eos=True, temperature=0)
    assert answer["usage"]["total_tokens"] == CTX and answer["choices"][0]["finish_reason"] == "length"


# ---- JSON

DEEP = 10000


@pytest.mark.parametrize("body", [
    b"", b" ", b"{", b"[]", b"5", b'"x"', b"null", b"{}x", b"\xef\xbb\xbf{}", b'{"prompt":"a",}', b"{'prompt':'a'}", b'{"prompt":"a"}{}',
    b'{"prompt":"\xc3\x28"}', b'{"prompt":"\xff"}', b'{"prompt":"\xed\xa0\x80"}', b'{"prompt":"\xc0\xaf"}',
    b'{"prompt":"\xc4\xe3\xba\xc3"}', b'{"prompt":"emoji \\ud83d"}', b'{"prompt":"x \\ude00 y"}', b'{"prompt":"\\ud83d\\ud83d"}',
    b'{"prompt":"a","temperature":1e400}', b'{"prompt":"a","temperature":NaN}', b'{"prompt":"a","top_p":Infinity}',
    b'{"prompt":"a","seed":99999999999999999999}', b'{"prompt":"a","prompt":"b"}', b'{"prompt":"a\nb"}', b'{"prompt":"\\x41"}',
    b'{"prompt":' + b"[" * DEEP + b"]" * DEEP + b"}", b'{"x":' + b"[" * DEEP, b'{"a":' * DEEP, b'{"prompt":"a","x":[' + b"1," * 300000 + b"1]}",
    b'{"messages":[{"role":"user","content":"a"}],"tools":' + b"[" * 3000 + b"]" * 3000 + b"}"])
def test_what_is_no_request(pipeline, body):
    for path in BOTH:
        answer = pipeline.request("POST", path, body)
        status, code, _ = answer.error
        assert (status, code) == (400, "invalid_value")
        # The message repeats no bytes of the input, so that it is a message in any case.
        assert answer.json["error"]["message"].isascii()


def test_large_bodies(small):
    """The limit is exact, whether the length is said before or not."""
    limit, frame = 2 << 20, len(b'{"prompt":""}')
    assert small.request("POST", COMPLETIONS, b'{"prompt":"' + b"a" * (limit - frame) + b'"}').status == 400
    assert small.request("POST", COMPLETIONS, b'{"prompt":"' + b"a" * (limit - frame + 1) + b'"}').error[:2] == (413, "request_too_large")
    connection = small.connect()
    body = [b'{"prompt":"', *[b"a" * 65536] * 40, b'"}']
    try:
        connection.request("POST", COMPLETIONS, iter(body), {"Content-Type": "application/json"}, encode_chunked=True)
    except ConnectionError:
        pass  # refused before all of it was sent
    assert connection.getresponse().status == 413
    connection.close()


@pytest.mark.parametrize("character", ["a", "\n", " ", "ä", "<|im_end|>", "🦙", "\u0301"])
def test_long_texts_are_refused_quickly_and_by_length(pipeline, character):
    """50 KB and 5 MB of one character: too many tokens, few enough, or more than the pool of requests holds. Never a crash
    or a stall."""
    for size in (50_000, 5_000_000):
        text = character * (size // len(character.encode()))
        tokens = pipeline.request("POST", "/tokenize", {"messages": user(text)})
        count = tokens.json["count"] if tokens.status == 200 else 10**6
        assert tokens.status == 200 or tokens.error[:2] == (413, "request_too_large") and size > 10**6
        answer = pipeline.request("POST", CHAT, {"messages": user(text), "max_tokens": 1})
        assert answer.status == (200 if count < 8192 else 400)
        assert answer.status == 200 or answer.error[1] == "context_length_exceeded"


# ---- HTTP

@pytest.mark.parametrize("headers, status", [({"X": "a" * 40000}, 431), ({f"X-{i}": "a" for i in range(120)}, 431),
                                             ({"Content-Encoding": "gzip"}, 415), ({"Expect": "x"}, 417), ({"Host": "a b"}, 400)])
def test_headers(pipeline, headers, status):
    assert pipeline.request("POST", COMPLETIONS, {"prompt": "a"}, headers).status == status


def test_paths_and_methods(pipeline):
    assert pipeline.request("GET", "/v1/nothing").error[:2] == (404, "not_found")
    answer = pipeline.request("GET", CHAT)
    assert answer.error[:2] == (405, "method_not_allowed") and "POST" in answer.headers["Allow"]
    assert pipeline.request("OPTIONS", CHAT).status == 204


# ---- queue

def test_a_full_queue_is_429(small):
    """Two run, two wait, the fifth is told to come back; when one has left there is room."""
    body = {"messages": user("Count to a thousand."), "ignore_eos": True, "stream": True}
    held = [small.stream(CHAT, **body) for _ in range(2)]
    waiting = [small.open(CHAT, **body) for _ in range(2)]
    until(lambda: small.busy() >= 4)
    answer = small.request("POST", CHAT, {"messages": user("x")})
    assert answer.error[:2] == (429, "queue_full") and int(answer.headers["Retry-After"]) >= 1
    for stream in held + waiting:
        stream.close()
    small.wait_idle()
    small.chat("x", max_tokens=1)
