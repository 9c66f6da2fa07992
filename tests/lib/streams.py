"""Clients that read streams and may come back for the rest of one; load that knows the right answers."""

import http.client
import json
import threading
import time

from api import join, until

COMPLETIONS = "/v1/completions"
BASE = {"stream": True, "max_tokens": 24, "ignore_eos": True, "return_token_ids": True}
PLAIN = {
    "greedy": {"prompt": "Once upon a time", "temperature": 0},
    "seeded": {"prompt": "The sea is " * 40, "temperature": 0.9, "top_p": 0.95, "seed": 5},
    "penalties": {"prompt": "One, two, three,", "temperature": 1, "seed": 6, "frequency_penalty": 0.5, "presence_penalty": 0.3,
                  "repetition_penalty": 1.1},
    "logprobs": {"prompt": "The capital of France", "temperature": 0, "logprobs": 3},
    "choices": {"prompt": "Ten animals:", "temperature": 1, "seed": 9, "n": 3},
}


def with_stops(api):
    """These and two with stop strings: one is half matched and then is not, one ends the answer."""
    text = value(ask(api, {**BASE, **PLAIN["greedy"]}).events)[0].text
    stops = ({**PLAIN["greedy"], "stop": stop} for stop in (text[20:40] + "~~", text[40:50]))
    return [{**BASE, **body} for body in (*PLAIN.values(), *stops)]


class Reply:
    """A stream as its client has it: (id, data) of every event, when it came, and whether it ended properly."""

    def __init__(self, api, method, path, body=None, headers=()):
        self.events, self.times, self.ended = [], [], False
        self.connection = api.connect(60)
        self.connection.request(method, path, json.dumps(body) if body else None,
                                {"Content-Type": "application/json", **dict(headers)})
        self.response = self.connection.getresponse()
        self.status = self.response.status
        if self.status != 200:
            self.error = json.loads(self.response.read())["error"]

    def read(self, number=1 << 30):
        """Up to that many events more, or to the end; False if the connection broke."""
        name = None
        try:
            while number and (line := self.response.readline()):
                if line.startswith(b"id: "):
                    name = line[4:].strip().decode()
                elif line == b"data: [DONE]\n":
                    self.ended = True
                elif line.startswith(b"data: "):
                    self.events.append((name, line[6:].strip().decode()))
                    self.times.append(time.monotonic())
                    number -= 1
        except (OSError, http.client.HTTPException):
            return False
        return number == 0 or self.ended

    def close(self):
        if self.connection.sock:
            self.connection.sock.close()
        self.response.close()
        self.connection.close()

    def waits(self, since=0.0):
        return [after - before for before, after in zip(self.times, self.times[1:]) if after > since]


def value(events):
    """What the client has in the end: text, ids, log-probabilities and finish of each choice."""
    events = [json.loads(data) for _, data in events]
    assert not any("error" in event for event in events), events[-1]
    return join(events)


def ask(api, body, headers=()):
    """All of an answer."""
    reply = Reply(api, "POST", COMPLETIONS, body, headers)
    assert reply.status == 200, reply.error
    assert reply.read() and reply.ended, reply.events[-1:]
    reply.close()
    return reply


class Load:
    """Clients that ask one thing after the other all the time; every answer must be right."""

    def __init__(self, api, truths, clients=6, starts=True):
        """starts: wait at the beginning until there are answers."""
        self.api, self.truths, self.leave, self.starts = api, truths, threading.Event(), starts
        self.failures, self.replies = [], []
        self.threads = [threading.Thread(target=self.client, args=(i,), daemon=True) for i in range(clients)]

    def client(self, turn):
        while not self.leave.is_set():
            body, right = self.truths[turn % len(self.truths)]
            turn += 1
            try:
                reply = ask(self.api, body)
                self.replies.append(reply)
                assert value(reply.events) == right
            except Exception as failure:
                self.failures.append(f"{time.strftime('%H:%M:%S')} {failure!r}"[:2000])

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        if self.starts:
            until(lambda: len(self.replies) >= 2 or self.failures, 60, "load")
        return self

    def __exit__(self, *_):
        self.leave.set()
        for thread in self.threads:
            thread.join(120)
            assert not thread.is_alive(), "a client hangs"
        assert not self.failures, (len(self.failures), self.failures[:3], self.failures[-1])

    def go_on(self, answers=6):
        """That many answers more."""
        n = len(self.replies)
        until(lambda: len(self.replies) >= n + answers or self.failures, 90, "answers")

    def longest_wait(self, since, within=15):
        waits = [after - before for reply in self.replies for before, after in zip(reply.times, reply.times[1:])
                 if since < after and before < since + within]
        return max(waits, default=0)


class Readers:
    """A stream for each body, read in threads."""

    def __init__(self, api, bodies):
        self.replies = [Reply(api, "POST", COMPLETIONS, body) for body in bodies]
        self.threads = [threading.Thread(target=reply.read, daemon=True) for reply in self.replies]
        for thread in self.threads:
            thread.start()

    def wait_events(self, numbers):
        until(lambda: all(len(reply.events) >= number for reply, number in zip(self.replies, numbers)), 60, "events")

    def values(self):
        for thread, reply in zip(self.threads, self.replies):
            thread.join(120)
            assert reply.ended, (reply.status, reply.events[-1:])
            reply.close()
        return [value(reply.events) for reply in self.replies]

    def longest_wait(self, since):
        return max((wait for reply in self.replies for wait in reply.waits(since)), default=0)


def check_back(pipeline):
    """All processes are ready, and no slot or block of a request is left."""
    pipeline.wait_ready()
    pipeline.wait_idle()
    until(lambda: pipeline.metric("lockstep_body_blocks_used") == 0, 20, "an empty pool")
