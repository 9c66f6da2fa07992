"""The requests of the chaos run and the clients that send them. Every request has one right answer: its text, token ids and
finish in an undisturbed run. A client may be cut off by its gateway's death; it then comes back with its Idempotency-Key
and the last event id it has, as a real one would, and must end up with every byte once."""

import http.client
import json
import random
import socket
import time

PROMPTS = [
    "What is the capital of France?",
    "Count from one to thirty in words.",
    "Write a short story about a lighthouse and a storm.",
    "Explain what a hash table is to a child.",
    "List ten animals with one fact about each.",
]
LONG = "The quick brown fox jumps over the lazy dog near the quiet river bank at dawn. " * 40


def catalogue():
    """name -> request body; sampling is seeded, so every answer is a constant."""
    bodies = {}
    for i, prompt in enumerate(PROMPTS):
        messages = [{"role": "user", "content": prompt}]
        bodies[f"greedy-{i}"] = {"messages": messages, "temperature": 0, "max_tokens": 60 + 40 * i}
        bodies[f"seeded-{i}"] = {"messages": messages, "temperature": 0.9, "top_p": 0.95, "seed": i, "max_tokens": 120}
    bodies["penalties"] = {"messages": [{"role": "user", "content": PROMPTS[2]}], "temperature": 0.7, "seed": 5, "max_tokens": 150,
                           "presence_penalty": 0.5, "frequency_penalty": 0.5, "repetition_penalty": 1.1}
    bodies["logprobs"] = {"messages": [{"role": "user", "content": PROMPTS[3]}], "temperature": 0, "max_tokens": 80,
                          "logprobs": True, "top_logprobs": 5}
    bodies["stop"] = {"messages": [{"role": "user", "content": PROMPTS[1]}], "temperature": 0, "max_tokens": 200,
                      "stop": ["seven, eight", "twenty"]}
    bodies["choices"] = {"messages": [{"role": "user", "content": PROMPTS[4]}], "temperature": 1.0, "seed": 9, "n": 3,
                         "max_tokens": 60}
    bodies["long"] = {"messages": [{"role": "user", "content": LONG + "Summarise this."}], "temperature": 0, "max_tokens": 40}
    return {name: {**body, "stream": True} for name, body in bodies.items()}


class Lost(Exception):
    """The connection broke before the answer was complete."""


class Refused(Exception):
    def __init__(self, status, code):
        super().__init__(f"{status} {code}")
        self.status, self.code = status, code


def events(port, body, headers, timeout):
    """(id, data) of each server-sent event; Lost if the stream ends without [DONE]."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        if response.status != 200:
            answer = json.loads(response.read() or b"{}")
            raise Refused(response.status, answer.get("error", {}).get("code"))
        event_id = None
        while line := response.readline():
            if line.startswith(b"id: "):
                event_id = line[4:].strip().decode()
            elif line.startswith(b"data: "):
                data = line[6:].strip()
                if data == b"[DONE]":
                    return
                yield event_id, json.loads(data)
        raise Lost
    except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
        raise Lost(repr(error)) from error
    finally:
        connection.close()


class Answer:
    """What a client has of an answer; comparable whatever way it came."""

    def __init__(self):
        self.choices, self.error, self.waits, self.last = {}, None, [], None

    def add(self, data):
        now = time.monotonic()
        if self.last is not None:
            self.waits.append((self.last, now))
        self.last = now
        if "error" in data:
            self.error = data["error"].get("code")
        for choice in data.get("choices", []):
            text, logprobs, finish = self.choices.setdefault(choice["index"], ["", [], None])
            delta = choice.get("delta", {}).get("content") or ""
            records = (choice.get("logprobs") or {}).get("content") or []
            self.choices[choice["index"]] = [text + delta, logprobs + [json.dumps(r, sort_keys=True) for r in records],
                                             choice.get("finish_reason") or finish]

    def complete(self):
        return bool(self.choices) and all(finish for _, _, finish in self.choices.values())

    def value(self):
        return json.dumps([self.choices[i] for i in sorted(self.choices)])


def ask(port, body, key=None, deadline=90):
    """One request to its end, reconnecting if it has a key. Returns (Answer, reconnects)."""
    answer, last_id, reconnects, end = Answer(), None, 0, time.monotonic() + deadline
    while True:
        headers = {"Idempotency-Key": key} if key else {}
        if last_id:
            headers["Last-Event-ID"] = last_id
        try:
            for event_id, data in events(port, body, headers, timeout=max(1, end - time.monotonic())):
                answer.add(data)
                last_id = event_id or last_id
            return answer, reconnects
        except Lost:
            if not key or time.monotonic() > end:
                raise
        except Refused as refused:
            # No gateway is up, or it is leaving: a client that may repeat itself does.
            if not key or refused.status not in (429, 503) or time.monotonic() > end:
                raise
        reconnects += 1
        time.sleep(0.05)


def cancel_early(port, body, rng):
    """A client that goes away after a while."""
    stop_after = rng.randrange(1, 20)
    try:
        for i, _ in enumerate(events(port, body, {}, timeout=30)):
            if i >= stop_after:
                return
    except (Lost, Refused):
        pass


BAD = [b"{", b'{"messages": 3}', b'{"messages": [{"role": "user", "content": "x"}], "temperature": -1}', b"[" * 20000,
       b'{"messages": [{"role": "user", "content": "\\ud83d"}]}', b"\xc3\x28", b""]


def send_bad(port, rng):
    """A malformed request must get a 4xx, whatever else happens. None: the gateway was gone."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", "/v1/chat/completions", rng.choice(BAD), {"Content-Type": "application/json"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException, socket.timeout):
        return None
    finally:
        connection.close()


def seeded(*parts):
    return random.Random(":".join(map(str, parts)))
