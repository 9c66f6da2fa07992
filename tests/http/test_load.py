"""Many requests, and many that are none: everyone is answered in turn, nothing grows, nobody falls over."""

import contextlib
import http.client
import json
import os
import random
import socket
import threading

import pytest

from api import bits, together, until, user
from pipeline import ROLES, pipeline_with

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MIB = 1 << 20


def memory(pipeline):
    return {role: pipeline.resident_bytes(role) for role in ROLES}


def grown(before, after):
    return {role: after[role] - before[role] for role in ROLES if after[role] > before[role]}


# ---- 64 at once on 8 slots

def crowd(pipeline, n=64):
    """n streams that come one after the other, faster than they are served; the order in which they got their first
    tokens, and their answers. Without drafts, whose memory grows to what the most sequences ever had at once."""
    order, answers, lock = [], [None] * n, threading.Lock()
    admitted = f'lockstep_admitted_total{{instance="0",epoch="{gateway_epoch(pipeline)}"}}'
    before = pipeline.metric(admitted)

    def read(index, stream):
        with stream:
            events = []
            for event in stream:
                if len(events) == 1:
                    with lock:
                        order.append(index)
                events.append(event)
        answers[index] = events
    threads = []
    for i in range(n):
        # The head of a stream comes with its tokens: asked for in the thread, which is started when the one before is in.
        threads.append(threading.Thread(target=lambda i=i: read(i, pipeline.stream(
            CHAT, messages=user(f"Say {i} in words."), max_tokens=16, ignore_eos=True, temperature=0, return_token_ids=True,
            speculate=False))))
        threads[-1].start()
        until(lambda: pipeline.metric(admitted) == before + i + 1)
    for thread in threads:
        thread.join()
    return order, answers


def gateway_epoch(pipeline):
    return max(process["epoch"] for process in pipeline.status()["processes"] if process["role"] == "gateway")


def test_sixty_four_at_once_on_eight_slots(pipeline):
    assert pipeline.slots()["limit"] == 8
    crowd(pipeline, 16)
    measured = []
    for _ in range(3):
        order, answers = crowd(pipeline)
        # Who is admitted together may overtake each other within a step; nobody overtakes one who came a house before.
        assert all(order.index(i) < order.index(j) for i in range(64) for j in range(i + 8, 64)), order
        assert all(sum(len(event["choices"][0].get("token_ids", [])) for event in events) == 16 for events in answers)
        pipeline.wait_idle()
        measured.append(memory(pipeline))
    assert all(size < MIB for size in grown(measured[0], measured[-1]).values()), measured
    assert pipeline.metric("lockstep_body_blocks_used") == 0


def test_all_at_the_same_moment(pipeline):
    """Nobody is lost when 64 connections come together, and each gets the answer it gets alone."""
    bodies = [{"prompt": f"{i} and", "max_tokens": 1 + i % 7, "seed": i, "logprobs": 1} for i in range(64)]
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(pipeline.open(COMPLETIONS, **body)) for body in bodies]
        answers = [read_answer(connection) for connection in connections]
    for body, answer in list(zip(bodies, answers))[::7]:
        assert bits(answer) == bits(pipeline.post(COMPLETIONS, **body))


def read_answer(connection):
    response = http.client.HTTPResponse(connection)
    response.begin()
    assert response.status == 200
    return json.loads(response.read())


# ---- 10,000 that are no requests

VALUES = [b"null", b"true", b"-1", b"0", b"1e308", b"1e999", b"-0.0", b"9223372036854775807", b"9223372036854775808", b'""', b'"a"', b"[]",
          b"{}", b"[[]]", b'{"a":1}', b"[1,2,3]", b'["a","b"]', b"NaN", b"'a'", b'"\\ud800"', b'"\\u0000"', b'"\xff"', b"[" * 70 + b"]" * 70,
          b'"' + b"a" * 3000 + b'"', b'"<|im_end|>"', b"[49151]", b"[49152]", b'{"49152":1}', b'{"0":1e39}', b"1" * 400]
NAMES = [b"prompt", b"messages", b"temperature", b"top_p", b"top_k", b"min_p", b"typical_p", b"n", b"seed", b"stop", b"stop_token_ids",
         b"logit_bias", b"logprobs", b"top_logprobs", b"echo", b"stream", b"stream_options", b"max_tokens", b"min_tokens", b"tools",
         b"response_format", b"ignore_eos", b"repetition_penalty", b"presence_penalty", b"frequency_penalty", b"user", b"model",
         b"return_token_ids", b"tokens", b"best_of", b"suffix", b"add_generation_prompt", b"chat_template"]
PATHS = [b"/v1/completions", b"/v1/chat/completions", b"/tokenize", b"/detokenize", b"/apply-template", b"/v1/models", b"/metrics", b"/x"]
GOOD = [b'{"prompt":"a","max_tokens":1}', b'{"messages":[{"role":"user","content":"a"}],"max_tokens":1}', b'{"tokens":[1,2]}',
        b'{"prompt":[1,2],"echo":true,"logprobs":1,"max_tokens":1}', b'{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]}']
TRICKS = [b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: +5", b"Content-Length: 0x5", b"Content-Length: 5,5",
          b"Content-Length: 99999999999999999999", b"Content-Length:", b"Content-Length : 5", b"Transfer-Encoding: chunked",
          b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: xchunked",
          b"Transfer-Encoding:\x0bchunked", b"Transfer-Encoding: identity", b"Host: b", b" folded: x", b"X: \x00", b"X: \xff", b": x", b"X",
          b"Expect: 100-continue", b"Expect: 200-ok", b"Connection: close", b"Connection: keep-alive, close", b"Upgrade: h2c",
          b"X: " + b"a" * 40000, b"Content-Encoding: br", b"Content-Type: text/xml", b"Origin: null", b"Authorization: Bearer \x7f",
          b"Last-Event-ID: 1.2.3.4", b"Idempotency-Key: a"]


def bad_json(draw):
    body = draw.choice(GOOD)
    for _ in range(draw.randrange(1, 4)):
        kind = draw.randrange(4)
        if kind == 0:  # another member, or the same again
            body = b"{" + b'"%s":%s' % (draw.choice(NAMES), draw.choice(VALUES)) + b"," + body[1:]
        elif kind == 1:  # cut
            body = body[:draw.randrange(len(body) + 1)]
        elif kind == 2:  # one byte
            at = draw.randrange(len(body) + 1)
            body = body[:at] + bytes([draw.randrange(256)]) + body[at + draw.randrange(2):]
        else:  # a value instead of another
            body = body.replace(draw.choice([b'"a"', b"1", b"[1,2]", b"true"]), draw.choice(VALUES), 1)
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (draw.choice(PATHS[:5]), len(body), body)


def bad_framing(draw):
    body = draw.choice(GOOD)
    lines = [b"%s %s HTTP/%s" % (draw.choice([b"POST", b"GET", b"HEAD", b"OPTIONS", b"PUT", b"post", b"A" * 50]),
                                 draw.choice(PATHS + [b"*", b"//", b"/%00", b"http://a/v1/models", b"/" + b"a" * 9000]),
                                 draw.choice([b"1.1", b"1.1", b"1.1", b"1.0", b"2.0", b"1.11", b"0.9"])), b"Host: localhost"]
    lines += draw.sample(TRICKS, draw.randrange(1, 4)) + [b"Content-Length: %d" % len(body)] * draw.randrange(2)
    lines[1:] = draw.sample(lines[1:], len(lines) - 1)
    end = draw.choice([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"\r\r\n"])
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    text = end.join(lines) + end + end + draw.choice([body, chunks, chunks[:-2], b"-1\r\n", b"fffffffffffffffff\r\n", b"5;" + b"x" * 500])
    return text * draw.choice([1, 1, 2])


def send(port, message, complete):
    """Until the other side has said all it wants. What may be cut gets an end, which makes a client that has left."""
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(message)
            if not complete:
                connection.shutdown(socket.SHUT_WR)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(65536):
                answer += piece
    assert answer == b"" or answer.startswith(b"HTTP/1."), (message, answer)
    return answer[9:12]


def touch_all(pipeline):
    """The most that working memory is used for: the engine's by whole chunks of several prompts at once, that of draws, the sampler's
    and the npu-worker's own, by each way to cut a distribution, over all of the vocabulary."""
    cuts = [{}, {"top_k": 40000}, {"top_p": 0.999}, {"min_p": 1e-9}, {"typical_p": 0.99}, {"top_k": 3, "top_p": 0.5}]

    def ask(i):
        pipeline.chat(f"{i}" + " ship" * 20, temperature=1.9, max_tokens=8, logprobs=True, top_logprobs=20, **cuts[i % len(cuts)])
        pipeline.post("/v1/embeddings", input=[f"{i}" + " sea" * 40] * 4)
    together(16, ask, range(32))
    pipeline.wait_idle()


def test_ten_thousand_malformed_requests():
    """A small context, as some of what is drawn is a request after all. Without drafts, as above."""
    seed = int(os.environ.get("LOCKSTEP_SEED", 20240607))
    draw, seen = random.Random(seed), {}
    with pipeline_with(options={"keeper": ["--ctx", 64], "npu-worker": ["--speculate", 0]}) as pipeline:
        touch_all(pipeline)
        before = None
        for i in range(10000):
            framed = draw.random() < 0.7
            message = (bad_json if framed else bad_framing)(draw)
            try:
                status = send(pipeline.port, message, framed)
            except Exception as failure:
                raise AssertionError(f"request {i} of seed {seed}: {message!r}") from failure
            seen[status] = seen.get(status, 0) + 1
            if i % 1000 == 999:
                assert pipeline.request("GET", "/ready").status == 200
                assert pipeline.chat("What is the capital of France?", temperature=0)["choices"][0]["message"]["content"].startswith("The capital")
            if i == 1999:
                before = memory(pipeline)
        pipeline.wait_idle()
        assert all(size < MIB for size in grown(before, memory(pipeline)).values()), grown(before, memory(pipeline))
        assert pipeline.metric("lockstep_body_blocks_used") == 0 and pipeline.metric("lockstep_http_body_bytes") < 4096
        # All kinds were among them, and none was a fault of ours.
        assert seen[b"400"] > 3000 and seen[b"200"] > 100 and {b"404", b"405", b"414", b"415", b"431", b"501", b"505"} <= set(seen), seen
        assert not {b"500", b"502", b"503", b"504"} & set(seen), f"seed {seed}: {seen}"
