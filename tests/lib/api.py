"""A small HTTP client for a gateway, which hides nothing: status, headers, bytes, events as they came."""

import concurrent.futures
import http.client
import json
import socket
import time


def until(condition, seconds=60, what="the condition"):
    """Waits for condition() to be true and returns what it gave."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"{what} did not come within {seconds} s"
        time.sleep(0.005)
    return value


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def together(n, function, *columns):
    """function over the columns, n calls at a time, each in a thread of its own; in order."""
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        return list(pool.map(function, *columns))


def usage(prompt, answer, cached=0):
    """The usage member of an answer to one prompt."""
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer,
            "prompt_tokens_details": {"cached_tokens": cached}}


def exchange(port, method, path, body=None, headers=(), timeout=20):
    """One request on a connection of its own: status, fields and bytes of the reply."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    connection.request(method, path, None if body is None else json.dumps(body),
                       {"Content-Type": "application/json", **dict(headers)})
    response = connection.getresponse()
    data = response.read()
    connection.close()
    return response.status, response.headers, data


def user(text):
    """A conversation of one message."""
    return [{"role": "user", "content": text}]


class Answer:
    def __init__(self, response):
        self.status, self.headers, self.data = response.status, response.headers, response.read()

    @property
    def json(self):
        return json.loads(self.data)

    @property
    def error(self):
        """(status, code, param): what a client acts upon."""
        error = self.json["error"]
        assert error["message"] and error["type"] and "param" in error, error
        return self.status, error["code"], error["param"]


class Api:
    def __init__(self, port, host="127.0.0.1"):
        self.port, self.host = port, host

    @property
    def url(self):
        return f"http://{self.host}:{self.port}"

    def connect(self, timeout=300):
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=()):
        """body: bytes as they are, or anything else as JSON."""
        connection = self.connect()
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json", **dict(headers)})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path, status=200):
        answer = self.request("GET", path)
        assert answer.status == status, answer.data
        return answer

    def post(self, path, status=200, **body):
        """The reply's JSON."""
        answer = self.request("POST", path, body)
        assert answer.status == status, answer.data
        return answer.json

    def chat(self, content, **body):
        messages = user(content) if isinstance(content, str) else content
        return self.post("/v1/chat/completions", messages=messages, **body)

    def complete(self, prompt, **body):
        return self.post("/v1/completions", prompt=prompt, **body)

    def refused(self, path, body):
        """(status, code, param) of a request that must fail."""
        return self.request("POST", path, body).error

    def stream(self, path, **body):
        """A stream that is being read; see Stream."""
        return Stream(self, path, body)

    def events(self, path, **body):
        """All events of a stream, which must end properly."""
        with self.stream(path, **body) as stream:
            return list(stream)

    def open(self, path, receive_buffer=None, **body):
        """A socket on which the request has been sent, for clients that misbehave."""
        connection = socket.socket()
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(300)
        connection.connect((self.host, self.port))
        text = json.dumps(body).encode()
        connection.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                           % (path.encode(), len(text), text))
        return connection


class Stream:
    """Iterates over the JSON of a stream's events as they come. Strict: an event is its id line, if any, and one data
    line; the last is [DONE], after which the reply ends. An error event ends the iteration and is kept in `error`."""

    def __init__(self, api, path, body=None, headers=()):
        """body None: a GET, of a stream that was begun before."""
        self.connection = api.connect()
        data = None if body is None else json.dumps({"stream": True, **body})
        self.connection.request("POST" if data else "GET", path, data, {"Content-Type": "application/json", **dict(headers)})
        self.response = self.connection.getresponse()
        assert self.response.status == 200, self.response.read()
        assert self.response.headers["Content-Type"].startswith("text/event-stream")
        self.ids, self.comments, self.error, self.done = [], [], None, False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Also in the middle: the client is gone."""
        if self.connection.sock:
            self.connection.sock.close()
        self.response.close()
        self.connection.close()

    def _block(self):
        """The lines up to an empty one, but for comments; [] at the reply's end."""
        lines = []
        while True:
            line = self.response.readline()
            if line.startswith(b":"):
                self.comments.append(line[:-1].decode())
                continue
            if not line:
                assert not lines, "the stream ended within an event"
                return []
            if line == b"\n":
                return lines
            assert line.endswith(b"\n"), line
            lines.append(line[:-1].decode())

    def __iter__(self):
        while lines := self._block():
            assert not self.done and not self.error, lines
            if lines[0].startswith("id: "):
                self.ids.append(lines.pop(0)[4:])
            assert len(lines) == 1 and lines[0].startswith("data: "), lines
            if lines[0] == "data: [DONE]":
                self.done = True
                continue
            event = json.loads(lines[0][6:])
            if "error" in event:
                self.error = event["error"]
            else:
                yield event
        assert self.done or self.error, "the stream ended without [DONE]"


class Whole:
    """One choice, put together from its events; the same attributes can be made of a whole answer (whole_of)."""

    def __init__(self):
        self.text, self.ids, self.prompt_ids, self.finish, self.logprobs = "", [], None, None, []

    def __eq__(self, other):
        return vars(self) == vars(other)

    def __repr__(self):
        return repr(vars(self))

    def add(self, part):
        chat = "delta" in part or "message" in part
        assert self.finish is None, "an event after the finish"
        message = part.get("delta") or part.get("message") or {}
        self.text += (message.get("content") or "") if chat else part["text"]
        self.ids += part.get("token_ids") or []
        self.finish = part["finish_reason"]
        logprobs = part["logprobs"] or {}
        if chat:
            self.logprobs += logprobs.get("content") or []
        elif logprobs:
            self.logprobs += zip(*(logprobs[name] for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")))


def join(events):
    """{index: Whole} of a stream's events."""
    choices = {}
    for event in events:
        for part in event["choices"]:
            choices.setdefault(part["index"], Whole()).add(part)
    return choices


def whole_of(answer):
    """{index: Whole} of an answer in one piece."""
    return join([answer])


def bits(answer):
    """What must be the same whenever a request is asked again: ids, text, finish and log-probabilities; these come in the
    shortest form that reads back as the same float, so equal values are equal bits."""
    return repr({index: vars(whole) for index, whole in whole_of(answer).items()})
