"""What running streams feel of a long prompt: the time between their tokens, without it and while it is computed."""

import http.client
import json
import random
import threading
import time


def ids(n):
    return [random.randrange(1000, 20000) for _ in range(n)]


def stream(port, prompt, tokens, on_token):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(f"port {port}: {response.status} {response.read()[:300]}")
    while line := response.readline():
        if line.startswith(b"data: {") and not on_token(time.monotonic()):
            break
    connection.close()


class Runner(threading.Thread):
    """One stream that goes on until it is told to stop; when each of its tokens came."""

    def __init__(self, port, room):
        super().__init__(daemon=True)
        self.port, self.room, self.times, self.over = port, room, [], False

    def run(self):
        def on_token(now):
            self.times.append(now)
            return not self.over
        while not self.over:
            stream(self.port, ids(16), self.room, on_token)

    def gaps_ms(self, since, until):
        times = [t for t in self.times if since <= t < until]
        return [(b - a) * 1e3 for a, b in zip(times, times[1:])]


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(p * len(values)))] if values else float("nan")


def measure(port, prompt, streams=4, quiet_s=4):
    """(p99 undisturbed, p99 while the prompt is computed, seconds of that), in ms."""
    runners = [Runner(port, 1500) for _ in range(streams)]
    for runner in runners:
        runner.start()
    while not all(len(runner.times) > 8 for runner in runners):
        time.sleep(0.02)
    start = time.monotonic()
    time.sleep(quiet_s)
    middle, first = time.monotonic(), []
    stream(port, ids(prompt), 1, lambda now: first.append(now))
    for runner in runners:
        runner.over = True
    for runner in runners:
        runner.join(60)
    quiet = [gap for runner in runners for gap in runner.gaps_ms(start, middle)]
    loaded = [gap for runner in runners for gap in runner.gaps_ms(middle, first[0])]
    return percentile(quiet, 0.99), percentile(loaded, 0.99), first[0] - middle
