"""One request at the gateway, many of them, and its end (echo_gateway.py)."""

import collections
import concurrent.futures
import contextlib
import http.client
import json
import random
import re
import signal
import time

import openai
import pytest

from api import until, usage
from echo_gateway import CTX, END, gateway, gateway_with, read_events, read_until, SANITIZED, slow  # noqa: F401

USER = [{"role": "user", "content": "hällo"}]
CHAT_PROMPT = '{"messages":[{"role":"user","content":"hällo"}],"add_generation_prompt":true}'


# ---- pages

def test_pages(gateway):
    assert "/v1/chat/completions" in gateway.get("/")
    status, fields, page = gateway.request("GET", "/", None, {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"})
    assert status == 200 and page.startswith(b"<!doctype html>") and b"@NONCE@" not in page and b"@STYLE@" not in page
    nonce = re.search(r"script-src 'nonce-(\w{32})'", fields["Content-Security-Policy"])[1]
    assert page.count(f'nonce="{nonce}"'.encode()) == 2
    assert nonce.encode() not in gateway.request("GET", "/ui")[2]
    assert b"Pipeline" in gateway.request("GET", "/ui/pipeline")[2]
    assert json.loads(gateway.get("/live"))["status"] == "ok"
    assert json.loads(gateway.get("/ready"))["status"] == "ok"
    assert json.loads(gateway.get("/health"))["status"] == "ok"
    models = json.loads(gateway.get("/v1/models"))
    assert [model["id"] for model in models["data"]] == ["echo"] and models["object"] == "list"
    assert json.loads(gateway.get("/v1/models/echo"))["max_model_len"] == CTX
    assert json.loads(gateway.get("/v1/models/other", 404))["error"]["code"] == "model_not_found"
    assert json.loads(gateway.get("/v2", 404))["error"]["code"] == "not_found"
    assert json.loads(gateway.get("/v1/completions", 405))["error"]["code"] == "method_not_allowed"


def test_status(slow):
    first = json.loads(slow.get("/status"))
    assert first["ready"] and {process["role"] for process in first["processes"]} >= {"gateway", "tokenizer"}
    assert [event["number"] for event in first["events"]] == list(range(1, first["next"]))
    assert {event["kind"] for event in first["events"]} >= {"ready"}
    connection = slow.open_stream("/v1/completions", prompt="x" * 40, stream=True)
    read_events(connection, 2)
    then = json.loads(slow.get(f"/status?after={first['next']}"))
    request, = then["requests"]
    assert request["prompt"] == 40 and request["tokens"] >= 1 and request["gateway"] == then["me"]
    assert all(event["number"] >= first["next"] for event in then["events"])
    connection.close()


def test_metrics_are_well_formed(gateway):
    gateway.post("/v1/completions", prompt="abc")
    seen = {}
    for line in gateway.get("/metrics").splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in seen and kind in ("counter", "gauge", "histogram")
            seen[name] = kind
        elif not line.startswith("#"):
            assert re.fullmatch(r'[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? [0-9.e+-]+', line), line
            assert re.sub(r"_(bucket|sum|count)$", "", line.split("{")[0].split(" ")[0]) in seen
    assert gateway.metric("lockstep_time_to_first_token_seconds_count") >= 1
    assert gateway.metric('lockstep_requests_total{endpoint="completions"}') >= 1


def test_request_ids(gateway):
    _, first, _ = gateway.request("GET", "/live")
    _, second, _ = gateway.request("GET", "/none")
    assert first["X-Request-Id"] != second["X-Request-Id"]
    _, given, _ = gateway.request("GET", "/live", headers={"X-Request-Id": "mine-1"})
    assert given["X-Request-Id"] == "mine-1"
    _, odd, _ = gateway.request("GET", "/live", headers={"X-Request-Id": "a b"})
    assert odd["X-Request-Id"].startswith("req-")


# ---- answers

def test_completion(gateway):
    answer = gateway.post("/v1/completions", prompt="hällo", return_token_ids=True, model="echo", user="u")
    choice, = answer["choices"]
    prompt = list("hällo".encode())
    assert choice["text"] == "hällo" and choice["finish_reason"] == "stop" and choice["logprobs"] is None
    assert choice["token_ids"] == prompt + [END] and choice["prompt_token_ids"] == prompt
    assert answer["usage"] == usage(6, 7)
    assert answer["object"] == "text_completion" and answer["system_fingerprint"] == "ls_test"
    assert abs(answer["created"] - time.time()) < 60


def test_prompts_of_all_kinds(gateway):
    answer = gateway.post("/v1/completions", prompt=["ab", [99, 100]], n=2, max_tokens=5)
    assert [(c["index"], c["text"]) for c in answer["choices"]] == [(0, "ab"), (1, "ab"), (2, "cd"), (3, "cd")]
    assert answer["usage"] == usage(4, 12)


def test_max_tokens(gateway):
    choice, = gateway.post("/v1/completions", prompt="abc", max_tokens=2)["choices"]
    assert choice["text"] == "ab" and choice["finish_reason"] == "length"


@pytest.mark.parametrize("max_tokens", [0, 1, 2])
def test_echo_scores_the_prompt(gateway, max_tokens):
    answer = gateway.post("/v1/completions", prompt=[97, 98, 99], echo=True, logprobs=1, max_tokens=max_tokens)
    choice, = answer["choices"]
    logprobs = choice["logprobs"]
    assert choice["text"] == "abc" + "abc"[:max_tokens]
    assert len(logprobs["tokens"]) == 3 + max_tokens
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    assert all(value == -0.1 for value in logprobs["token_logprobs"][1:])
    assert logprobs["top_logprobs"][1] == {"b": -0.1}
    assert logprobs["text_offset"] == list(range(3 + max_tokens))


def join(events, chat):
    """A stream's events, put together to what the whole answer has."""
    choices = {}
    for event in events:
        for part in event["choices"]:
            whole = choices.setdefault(part["index"], {"text": "", "logprobs": [], "ids": [], "finish": None})
            assert whole["finish"] is None, "an event after the finish"
            whole["text"] += part["delta"].get("content", "") if chat else part["text"]
            whole["ids"] += part.get("token_ids", [])
            whole["finish"] = part["finish_reason"]
            if part["logprobs"] and chat:
                whole["logprobs"] += part["logprobs"]["content"]
            elif part["logprobs"]:
                whole["logprobs"] += zip(*(part["logprobs"][name] for name in
                                           ("tokens", "token_logprobs", "top_logprobs", "text_offset")))
    return choices


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("more", [{}, {"n": 3}, {"logprobs": 2}, {"max_tokens": 3}, {"n": 2, "logprobs": 0},
                                  {"echo": True}, {"echo": True, "logprobs": 1}])
def test_a_stream_is_the_whole_answer_in_pieces(gateway, chat, more):
    more = dict(more, return_token_ids=True)
    if chat and "echo" in more:
        pytest.skip("chats have no echo")
    if chat and "logprobs" in more:
        more["top_logprobs"] = more["logprobs"]
        more["logprobs"] = True
    more.update({"messages": USER} if chat else {"prompt": "hällo 🦙"})
    path = "/v1/chat/completions" if chat else "/v1/completions"
    answer = gateway.post(path, **more)
    events, raw = gateway.stream(path, stream_options={"include_usage": True}, **more)
    assert events[-1] == "[DONE]" and events[-2]["choices"] == [] and events[-2]["usage"] == answer["usage"]
    assert all(event["usage"] is None for event in events[:-2])
    whole = join(events[:-2], chat)
    for choice in answer["choices"]:
        got = whole.pop(choice["index"])
        assert got["text"] == (choice["message"]["content"] if chat else choice["text"])
        assert got["finish"] == choice["finish_reason"] and got["ids"] == choice["token_ids"]
        if choice["logprobs"] and chat:
            assert got["logprobs"] == choice["logprobs"]["content"]
        elif choice["logprobs"]:
            assert got["logprobs"] == list(zip(*(choice["logprobs"][name] for name in
                                                 ("tokens", "token_logprobs", "top_logprobs", "text_offset"))))
    assert not whole


def test_one_event_per_token_with_its_place(gateway):
    events, raw = gateway.stream("/v1/chat/completions", messages=USER, max_tokens=4, n=2)
    ids = [line.split(": ")[1].split(".") for line in raw.splitlines() if line.startswith("id: ")]
    assert len({(run, request) for run, request, *_ in ids}) == 1
    places = [tuple(int(x, 16) for x in at.split("-")) for _, _, _, at, _ in ids]
    assert len(places) == 2 * (1 + 4 + 1) and places[-1] == (6, 6)
    before = (0, 0)
    for event, place in zip(events, places):
        index = event["choices"][0]["index"]
        assert sum(place) == sum(before) + 1 and place[index] == before[index] + 1
        before = place


def test_text_endpoints(gateway):
    assert gateway.post("/tokenize", prompt="aä") == {"count": 3, "max_model_len": CTX, "tokens": [97, 195, 164]}
    assert gateway.post("/tokenize", messages=USER)["count"] == len(CHAT_PROMPT.encode())
    assert gateway.post("/detokenize", tokens=[97, 195, 164]) == {"prompt": "aä"}
    assert gateway.post("/apply-template", messages=USER) == {"prompt": CHAT_PROMPT}
    assert gateway.post("/apply-template", 400, messages=[{"role": "user", "content": "!reject"}])


def test_large_texts_of_the_tokenizer(gateway):
    text = "x" * 200000
    assert json.loads(gateway.post("/apply-template", messages=[{"role": "user", "content": text}])["prompt"])


# ---- errors

@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("body, status, code, param", [
    ({"prompt": "x" * 513}, 400, "context_length_exceeded", None),
    ({"prompt": [1] * 512}, 400, "context_length_exceeded", "prompt"),
    ({"prompt": [1] * 500, "max_tokens": 13}, 400, "context_length_exceeded", "prompt"),
    ({"prompt": "!reject"}, 400, "invalid_value", None),
    ({"prompt": "x", "temperature": 3}, 400, "invalid_value", "temperature"),
    ({"prompt": "x", "n": 9}, 400, "invalid_value", "n"),
    ({"prompt": "x", "model": "gpt-4"}, 404, "model_not_found", "model"),
    ({"prompt": "x", "suffix": "y"}, 400, "unsupported", "suffix"),
    ({"prompt": "x", "logit_bias": {"258": 1}}, 400, "invalid_value", "logit_bias"),
])
def test_errors_come_before_any_event(gateway, stream, body, status, code, param):
    got, headers, data = gateway.request("POST", "/v1/completions", {**body, "stream": stream})
    error = json.loads(data)["error"]
    assert (got, error["code"], error["param"]) == (status, code, param)
    assert error["type"] == "invalid_request_error" and error["message"]
    assert headers["Content-Type"] == "application/json"


def test_raw_bodies_that_are_no_json(gateway):
    for body in (b"", b"{", b'{"prompt":"\xff"}', b'{"prompt":"\\ud83d"}', b"[" * 100000, b'{"prompt":"x","seed":1e999}'):
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port())
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 400
        json.loads(response.read())
        connection.close()


def test_a_failure_within_a_stream_is_its_last_event(slow):
    events, raw = slow.stream("/v1/completions", prompt="!fail me")
    assert [event["choices"][0]["text"] for event in events[:-1]] == list("!fail me")
    assert events[-1]["error"]["code"] == "numeric_error"
    assert "[DONE]" not in raw


def test_the_openai_client(gateway):
    client = openai.OpenAI(base_url=gateway.url + "/v1", api_key="none", max_retries=0)
    answer = client.chat.completions.create(model="echo", messages=USER, logprobs=True, top_logprobs=2, n=2, seed=1)
    assert answer.choices[1].message.content == CHAT_PROMPT
    assert answer.choices[0].logprobs.content[0].token == "{"
    parts = client.chat.completions.create(model="echo", messages=USER, stream=True, stop=["never"])
    assert "".join(part.choices[0].delta.content or "" for part in parts) == CHAT_PROMPT
    assert client.completions.create(model="echo", prompt="abc", logprobs=1).choices[0].logprobs.tokens[0] == "a"
    assert [model.id for model in client.models.list()] == ["echo"]
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model="echo", messages=USER, temperature=5)
    assert error.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(model="echo", prompt="x" * 600)
    assert error.value.code == "context_length_exceeded"


def test_an_error_event_raises_in_the_openai_client(slow):
    client = openai.OpenAI(base_url=slow.url + "/v1", api_key="none", max_retries=0)
    with pytest.raises(openai.APIError) as error:
        for _ in client.completions.create(model="echo", prompt="!fail me now", stream=True):
            pass
    assert "not numbers" in str(error.value)


def test_the_model_has_other_names():
    with gateway_with("--model-aliases", "gpt-4o,claude") as server:
        for name, status in (("echo", 200), ("gpt-4o", 200), ("claude", 200), ("gpt-4", 404), ("", 404)):
            got, _, data = server.request("POST", "/v1/completions", {"prompt": "a", "model": name})
            assert got == status and (status != 200 or json.loads(data)["model"] == "echo")
        assert json.loads(server.get("/v1/models/gpt-4o"))["id"] == "echo"
        assert server.request("POST", "/api/show", {"model": "claude:latest"})[0] == 200


def test_comments_between_events_are_nothing_to_the_openai_client():
    with gateway_with("--keep-alive-s", 0.05, step_us=150000) as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
        parts = client.completions.create(model="echo", prompt="abc", stream=True)
        assert "".join(part.choices[0].text for part in parts) == "abc"
        assert server.metric("lockstep_sse_keep_alives_total") >= 3


def test_options():
    with gateway_with("--strict", "--trust-request-chat-template") as server:
        error = server.post("/v1/completions", 400, prompt="x", tempurature=1)["error"]
        assert error["param"] == "tempurature"
        prompt = server.post("/apply-template", messages=USER, chat_template="{{ x }}", chat_template_kwargs={"x": 1})
        assert json.loads(prompt["prompt"])["chat_template_kwargs"] == {"x": 1}


# ---- many, slow and leaving clients

def test_many_at_once(gateway):
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        prompts = [f"prompt number {i}" for i in range(200)]
        answers = pool.map(lambda prompt: gateway.post("/v1/completions", prompt=prompt)["choices"][0]["text"], prompts)
        assert list(answers) == prompts


def test_waiting_streams_get_comment_lines(slow):
    with slow.open_stream("/v1/completions", prompt="!wait", stream=True) as connection:
        text = read_until(connection, b": waiting\n")
        assert b"text/event-stream" in text and b"\nid: " not in text
        read_until(connection, b": waiting\n")


@pytest.mark.parametrize("prompt, stream", [("!wait", False), ("!wait", True), ("!flood", False), ("!flood", True)])
def test_a_client_that_leaves_frees_its_slot(slow, prompt, stream):
    connection = slow.open_stream("/v1/completions", prompt=prompt, stream=stream)
    until(lambda: slow.busy() == 1)
    connection.close()
    until(lambda: slow.busy() == 0, 2)


def test_a_full_queue_is_429(slow):
    waiting = [slow.open_stream("/v1/completions", prompt="!wait") for _ in range(10)]
    until(lambda: slow.busy() == 10)
    status, headers, data = slow.request("POST", "/v1/completions", {"prompt": "x"})
    assert status == 429 and headers["Retry-After"] == "1"
    assert json.loads(data)["error"]["code"] == "queue_full"
    with pytest.raises(openai.RateLimitError):
        openai.OpenAI(base_url=slow.url + "/v1", api_key="x", max_retries=0).completions.create(model="echo", prompt="x")
    for connection in waiting:
        connection.close()
    until(lambda: slow.busy() == 0)
    assert slow.post("/v1/completions", prompt="x")["choices"][0]["text"] == "x"


def test_a_request_with_too_many_choices_takes_none(slow):
    before = slow.metric("lockstep_fenced_writes_total")
    assert slow.post("/v1/completions", 413, prompt="x", n=11)["error"]["code"] == "request_too_large"
    assert slow.busy() == 0 and slow.metric("lockstep_fenced_writes_total") == before


def test_a_client_that_does_not_read_is_dropped_and_its_slots_freed():
    with gateway_with("--output-bytes", 4096, "--write-timeout-s", 0.7) as server:
        connection = server.open_stream("/v1/completions", receive_buffer=2048, prompt="!flood " + "x" * 90, stream=True, logprobs=20,
                                        n=16, max_tokens=400)
        until(lambda: server.metric("lockstep_http_dropped_slow_total") == 1)
        until(lambda: server.busy() == 0)
        assert server.metric('lockstep_results_total{code="cancelled"}') == 1
        connection.close()


def test_a_client_that_reads_slowly_gets_everything():
    with gateway_with("--output-bytes", 4096) as server:
        body = {"prompt": "!flood " + "x" * 50, "logprobs": 5, "max_tokens": 300, "stream": True}
        with server.open_stream("/v1/completions", receive_buffer=2048, **body) as connection:
            connection.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            text = b""
            while piece := connection.recv(3000):
                text += piece
                time.sleep(0.002)
        assert text.count(b"data: ") == 302 and b"data: [DONE]\n\n\r\n0\r\n\r\nHTTP/1.1 200 OK" in text


FULL = {"model": "echo", "prompt": ["ab", [99, 100]], "temperature": 0.5, "top_p": 0.9, "top_k": 4, "n": 2, "max_tokens": 3,
        "stop": ["x", "y"], "seed": 7, "logit_bias": {"5": 1.5}, "logprobs": 2, "echo": True, "user": "u", "stream": False}


def spoil(rng, message):
    """Some bytes cut out, put in or changed."""
    message = bytearray(message)
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(message))
        message[at:at + rng.randrange(3)] = rng.choice(
            [b"", bytes([rng.randrange(256)]), b"\r\n", b"\n", b"{", b"[" * 80, b'"', b"\0", b"\\ud83d", b"1e999", b"-1"])
    return bytes(message)


def odd_request(rng):
    body = json.dumps(FULL).encode()
    kind = rng.randrange(4)
    if kind < 2:
        body = spoil(rng, body)
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    frame = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if rng.randrange(2) \
        else b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    return head + frame if kind < 2 else spoil(rng, head + frame)


def test_ten_thousand_odd_requests(gateway):
    rng = random.Random(20)
    before = None
    statuses = collections.Counter()
    for i in range(10000):
        with gateway.connect() as connection:
            connection.sendall(odd_request(rng))
            # An incomplete request has no answer; the end of our side tells the server so.
            connection.settimeout(0.02)
            with contextlib.suppress(TimeoutError, ConnectionError):
                statuses[connection.recv(4096)[9:12]] += 1
        if i % 500 == 0:
            assert gateway.request("GET", "/ready")[0] == 200
        if i == 1000:
            before = gateway.resident_bytes()
    assert statuses[b"400"] > 3000 and statuses[b"200"] > 100 and not any(status[:1] == b"5" and status not in
                                                                          (b"501", b"505") for status in statuses), statuses
    until(lambda: gateway.busy("done") == 0)
    assert SANITIZED or gateway.resident_bytes() - before < 4 << 20


# ---- life and death

def test_sigterm_ends_what_runs_and_refuses_what_comes():
    with gateway_with(step_us=20000) as server:
        running = server.open_stream("/v1/completions", prompt="abcdefghijklmnopqrstuvwxyz", stream=True)
        until(lambda: server.busy() == 1)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: server.request("GET", "/ready")[0] == 503)
        status, headers, data = server.request("POST", "/v1/completions", {"prompt": "x"})
        assert status == 503 and json.loads(data)["error"]["code"] == "draining" and headers["Retry-After"]
        text = b""
        while piece := running.recv(65536):
            text += piece
        assert b"data: [DONE]" in text
        assert server.process.wait(10) == 0


def test_not_ready_without_a_pipeline():
    with gateway_with("--no-worker-s", 1.5) as server:
        server.pipeline.send_signal(signal.SIGSTOP)
        until(lambda: server.request("GET", "/ready")[0] == 503, 3)
        assert server.request("GET", "/live")[0] == 200
        server.pipeline.send_signal(signal.SIGCONT)
        until(lambda: server.request("GET", "/ready")[0] == 200, 3)
        waiting = server.open_stream("/v1/completions", prompt="!wait")
        streaming = server.open_stream("/v1/completions", prompt="!wait", stream=True)
        until(lambda: server.busy() == 2)
        server.pipeline.kill()
        until(lambda: server.request("GET", "/ready")[0] == 503, 3)
        refused = read_until(waiting, b'"code":"no_worker"')
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert read_until(streaming, b'"code":"no_worker"').startswith(b"HTTP/1.1 200 ")
        assert server.post("/v1/completions", 503, prompt="x")["error"]["code"] == "no_worker"
        waiting.close()
        streaming.close()


def test_a_successor_frees_what_a_killed_gateway_left():
    with gateway_with("--keep-s", 0, step_us=2000) as server:
        clients = [server.open_stream("/v1/completions", prompt="!flood " + "x" * 30, stream=True) for _ in range(5)]
        clients += [server.open_stream("/v1/completions", prompt="abc") for _ in range(3)]
        until(lambda: server.busy() >= 5)
        server.kill()
        server.start()
        until(lambda: server.busy() == 0)
        assert server.post("/v1/completions", prompt="abc")["choices"][0]["text"] == "abc"
        for client in clients:
            client.close()
