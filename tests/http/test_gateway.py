"""The gateway process before a pipeline without a model (gateway/gw_pipeline_test_main.c): a token is a byte, the answer
is the prompt and then the end token."""

import collections
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import openai
import pytest

from api import until, usage

BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", "build/release")).resolve()
END = 256
# A sanitizer keeps freed memory for a while, so its build says nothing about growth.
SANITIZED = b"__asan_init" in (BUILD / "bin" / "lockstep-gateway").read_bytes()
CTX = 512


class Gateway:
    """A gateway and its pipeline in a run directory of their own (short: a socket's path lies in it)."""

    def __init__(self, *options, step_us=0):
        self.dir = tempfile.mkdtemp(prefix="ls", dir="/dev/shm")
        self.pipeline = subprocess.Popen(
            [BUILD / "test" / "gw_pipeline_test", self.dir, str(step_us)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.options = options
        try:
            assert self.pipeline.stdout.readline() == b"ready\n"
            self.start()
        except BaseException:
            self.end_pipeline()
            raise

    def start(self):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [BUILD / "bin" / "lockstep-gateway", "--run-dir", self.dir, "--port", "0", *map(str, self.options)],
            stderr=self.log)
        until(lambda: self.port())

    def port(self):
        assert self.process.poll() is None, self.read_log()
        found = re.search(r"listening on \S+ port (\d+)", self.read_log())
        return int(found[1]) if found else None

    def read_log(self):
        return os.pread(self.log.fileno(), 1 << 20, 0).decode()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port()}"

    def request(self, method, path, body=None, headers=()):
        connection = http.client.HTTPConnection("127.0.0.1", self.port(), timeout=20)
        connection.request(method, path, None if body is None else json.dumps(body),
                           {"Content-Type": "application/json", **dict(headers)})
        response = connection.getresponse()
        data = response.read()
        connection.close()
        return response.status, response.headers, data

    def post(self, path, status=200, **body):
        got, _, data = self.request("POST", path, body)
        assert got == status, data
        return json.loads(data)

    def get(self, path, status=200):
        got, _, data = self.request("GET", path)
        assert got == status, data
        return data.decode()

    def stream(self, path, **body):
        """The events' JSON, and the raw text. The reply must end properly."""
        status, headers, data = self.request("POST", path, {"stream": True, **body})
        assert status == 200 and headers["Content-Type"].startswith("text/event-stream"), data
        return events_of(data.decode()), data.decode()

    def connect(self, receive_buffer=None):
        connection = socket.socket()
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", self.port()))
        return connection

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def open_stream(self, path, headers=(), receive_buffer=None, **body):
        """A socket on which the request has been sent."""
        connection = self.connect(receive_buffer)
        text = json.dumps(body).encode()
        fields = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": len(text), **dict(headers)}
        head = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        connection.sendall("\r\n".join(head).encode() + text)
        return connection

    def metric(self, name):
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.get("/metrics"), re.M)
        return float(found[1]) if found else None

    def busy(self, *but):
        stages = {"fill", "tokenize", "compute", "sample", "reclaim", "done"}.difference(but)
        return sum(self.metric(f'lockstep_slots{{stage="{stage}"}}') for stage in stages)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(15) == 0, self.read_log()

    def close(self):
        try:
            if self.process.poll() is None:
                self.stop()
            assert "ERROR" not in self.read_log() and "Sanitizer" not in self.read_log(), self.read_log()
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.end_pipeline()

    def end_pipeline(self):
        self.pipeline.stdin.close()
        self.pipeline.kill()
        self.pipeline.wait()
        self.pipeline.stdout.close()
        shutil.rmtree(self.dir, ignore_errors=True)


def events_of(text):
    assert text.endswith("\n\n")
    events = []
    for block in text[:-2].split("\n\n"):
        lines = [line for line in block.split("\n") if not line.startswith(":")]
        data = [line[6:] for line in lines if line.startswith("data: ")]
        if data:
            events.append(data[0] if data[0] == "[DONE]" else json.loads(data[0]))
    return events


def read_until(connection, end):
    text = b""
    while end not in text:
        piece = connection.recv(65536)
        assert piece, text
        text += piece
    return text


@contextlib.contextmanager
def gateway_with(*options, **more):
    server = Gateway(*options, **more)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def gateway():
    with gateway_with("--max-choices", 8) as server:
        yield server
        until(lambda: server.busy("done") == 0)


@pytest.fixture(scope="module")
def slow():
    with gateway_with("--keep-alive-s", 0.1, "--queue", 2, step_us=20000) as server:
        yield server
        until(lambda: server.busy("done") == 0)


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


# ---- clients that come back

def blocks_of(text):
    """The events as sent, without the head, the chunks' frames and comment lines."""
    body = re.sub(rb"\r\n[0-9a-f]+\r\n|^.*?\r\n\r\n[0-9a-f]+\r\n", b"", text, count=0, flags=re.S)
    return events_in(body.decode())


def events_in(text):
    return [block for block in re.sub(r"^:.*\n", "", text, flags=re.M).split("\n\n") if block.startswith(("id: ", "data: "))]


def id_of(block):
    return block.split("\n")[0].removeprefix("id: ")


def read_events(connection, n):
    """The first n whole events of a stream."""
    text = b""
    while text.count(b"\n\n\r\n") < n:
        piece = connection.recv(1)
        assert piece
        text += piece
    return blocks_of(text)[:n]


def whole_stream(server, headers=(), method="POST", path="/v1/completions", **body):
    status, _, data = server.request(method, path, body or None, headers)
    assert status == 200, data
    return events_in(data.decode())


def contents(blocks):
    """What a client makes of them: without ids, which name the request."""
    events = []
    for block in blocks:
        data = block.split("data: ", 1)[1]
        events.append(data if data == "[DONE]" else {**json.loads(data), "id": 0, "created": 0})
    return events


STREAMS = [{"prompt": "hällo 🦙 again"}, {"prompt": "hällo and again", "echo": True, "logprobs": 2},
           {"prompt": ["abcdefgh", "12345678"], "n": 2, "logprobs": 0, "return_token_ids": True},
           {"prompt": "abcdefghijklmnop", "stream_options": {"include_usage": True}}]


def by_choice(blocks):
    """Events of several choices may interleave differently."""
    rows = {}
    for event in contents(blocks):
        key = "end" if event == "[DONE]" or not event["choices"] else event["choices"][0]["index"]
        rows.setdefault(key, []).append(event)
    return rows


@pytest.mark.parametrize("body", STREAMS)
@pytest.mark.parametrize("cut", [1, 3, 6])
def test_a_killed_gateways_stream_goes_on_at_its_successor(body, cut):
    body = {**body, "stream": True}
    with gateway_with(step_us=50000) as server:  # slow enough not to be over when the gateway is killed
        undisturbed = whole_stream(server, **body)
        connection = server.open_stream("/v1/completions", **body)
        first = read_events(connection, cut)
        server.kill()
        connection.close()
        server.start()
        until(lambda: server.request("GET", "/ready")[0] == 200)
        rest = whole_stream(server, method="GET", path="/v1/streams/" + id_of(first[-1]))
        assert by_choice(first + rest) == by_choice(undisturbed)
        # The same place again gives the same bytes.
        again = whole_stream(server, method="GET", path="/v1/streams/" + id_of(first[-1]))
        assert by_choice(again) == by_choice(rest)


def test_an_idempotency_key_brings_the_same_answer(gateway):
    body = {"prompt": "hällo", "logprobs": 1}
    key = {"Idempotency-Key": "k1"}
    _, _, first = gateway.request("POST", "/v1/completions", body, key)
    _, _, second = gateway.request("POST", "/v1/completions", body, key)
    assert first == second and b"h\xc3\xa4llo" in first
    _, _, other = gateway.request("POST", "/v1/completions", body, {"Idempotency-Key": "k2"})
    assert json.loads(other)["id"] != json.loads(first)["id"]
    status, _, data = gateway.request("POST", "/v1/completions", {**body, "n": 2}, key)
    assert status == 422 and json.loads(data)["error"]["code"] == "idempotency_key_reused"
    status, _, data = gateway.request("POST", "/v1/completions", body, {"Idempotency-Key": "a b"})
    assert status == 400 and json.loads(data)["error"]["param"] == "Idempotency-Key"


def test_a_keyed_stream_is_gone_on_with_after_a_cut():
    body = {"prompt": "abcdefghijklmnop", "stream": True}
    key = {"Idempotency-Key": "mine"}
    with gateway_with(step_us=10000) as server:
        connection = server.open_stream("/v1/completions", {"Idempotency-Key": "mine"}, **body)
        first = read_events(connection, 3)
        connection.close()
        rest = whole_stream(server, {**key, "Last-Event-ID": id_of(first[-1])}, **body)
        assert contents(first + rest) == contents(whole_stream(server, **body))
        # Without a place it starts from the beginning, with the same bytes.
        assert whole_stream(server, key, **body) == first + rest
        # A place needs the same body.
        status, _, data = server.request("POST", "/v1/completions", {**body, "n": 2}, {"Last-Event-ID": id_of(first[-1])})
        assert status == 422


def test_a_running_stream_can_be_taken_over():
    body = {"prompt": "abcdefghijklmnop", "stream": True}
    with gateway_with(step_us=10000) as server:
        before = server.open_stream("/v1/completions", {"Idempotency-Key": "mine"}, **body)
        text = read_until(before, b"\n\n\r\n")
        after = whole_stream(server, {"Idempotency-Key": "mine"}, **body)
        assert after[-1] == "data: [DONE]" and len(after) == 16 + 1 + 1 + 1
        while piece := before.recv(65536):
            text += piece
            if b"0\r\n\r\n" in text:
                break
        assert b'"code":"stale"' in text and b"[DONE]" not in text
        before.close()


def test_a_keyed_request_without_client_is_cancelled_in_time():
    with gateway_with("--detach-s", 0.3) as server:
        server.open_stream("/v1/completions", {"Idempotency-Key": "x"}, prompt="!wait", stream=True).close()
        until(lambda: server.metric('lockstep_results_total{code="cancelled"}') == 1)
        assert server.busy() == 1
        until(lambda: server.busy() == 0, 3)
        answer = server.open_stream("/v1/completions", {"Idempotency-Key": "y"}, prompt="abc")
        answer.close()
        time.sleep(0.6)
        _, _, data = server.request("POST", "/v1/completions", {"prompt": "abc"}, {"Idempotency-Key": "y"})
        assert json.loads(data)["choices"][0]["text"] == "abc" and server.metric("lockstep_resumed_total") == 1


def test_a_keyed_stream_that_is_kept_no_more_is_made_again():
    body = {"prompt": "abcdefghijklmnopqrst", "stream": True}
    with gateway_with("--detach-s", 0.1, step_us=30000) as server:
        undisturbed = whole_stream(server, **body)
        connection = server.open_stream("/v1/completions", {"Idempotency-Key": "k"}, **body)
        first = read_events(connection, 3)
        connection.close()
        until(lambda: server.metric('lockstep_results_total{code="cancelled"}') == 1 and server.busy() == 0)
        place = id_of(first[-1])
        assert server.request("GET", f"/v1/streams/{place}")[0] == 410
        rest = whole_stream(server, {"Idempotency-Key": "k", "Last-Event-ID": place}, **body)
        assert contents(first + rest) == contents(undisturbed)


def test_a_stream_without_key_ends_with_its_client(slow):
    connection = slow.open_stream("/v1/completions", prompt="!flood x", stream=True)
    first = read_events(connection, 2)
    connection.close()
    until(lambda: slow.busy() == 0)
    status, _, data = slow.request("GET", "/v1/streams/" + id_of(first[-1]))
    assert status == 410 and json.loads(data)["error"]["code"] == "stream_lost"


def test_event_ids_cannot_be_made_up(slow):
    connection = slow.open_stream("/v1/completions", {"Idempotency-Key": "q"}, prompt="!flood x", stream=True,
                                  max_tokens=40)
    place = id_of(read_events(connection, 2)[-1])
    connection.close()
    run, request, made, at, tag = place.split(".")
    for bad in (f"{run}.{request}.{made}.1.{tag}", f"{run}.{request}0.{made}.{at}.{tag}", f"{run}.{request}.1.{at}.{tag}",
                f"{run}.{request}.{made}.{at}.{'0' * 16}", "x", f"{place}0"):
        assert slow.request("GET", "/v1/streams/" + bad)[0] == 404
    other = "%016x" % (int(run, 16) ^ 1)
    status, _, data = slow.request("GET", f"/v1/streams/{other}.{request}.{made}.{at}.{tag}")
    assert status == 410 and json.loads(data)["error"]["code"] == "stream_lost"
    # To its end, or it would run on for --detach-s.
    whole_stream(slow, method="GET", path="/v1/streams/" + place)


def test_kept_answers_give_way_to_new_requests():
    with gateway_with() as server:
        for i in range(150):  # the table has 64 slots
            status, _, _ = server.request("POST", "/v1/completions", {"prompt": "abc"}, {"Idempotency-Key": f"k{i}"})
            assert status == 200
        _, _, data = server.request("POST", "/v1/completions", {"prompt": "abc"}, {"Idempotency-Key": "k149"})
        assert server.metric("lockstep_resumed_total") == 1


def test_two_gateways_of_one_run():
    body = {"prompt": "abcdefghijklmnopqrst", "stream": True}
    with gateway_with(step_us=5000) as server:
        undisturbed = whole_stream(server, **body)
        connection = server.open_stream("/v1/completions", {"Idempotency-Key": "z"}, **body)
        first = read_events(connection, 3)
        killed = server.process
        server.start()  # beside the other
        killed.kill()
        killed.wait()
        connection.close()
        until(lambda: server.request("GET", "/ready")[0] == 200)
        rest = whole_stream(server, {"Idempotency-Key": "z", "Last-Event-ID": id_of(first[-1])}, **body)
        assert contents(first + rest) == contents(undisturbed)
        assert whole_stream(server, {"Idempotency-Key": "z"}, **body) == first + rest
