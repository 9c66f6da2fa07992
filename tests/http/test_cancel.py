"""Clients that leave, and clients that don't read: the slot is free again within a step, wherever the request was."""

import itertools
import re
import socket
import time

import pytest

from api import until, user
from pipeline import pipeline_with

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ENDLESS = {"prompt": "Once upon a time", "ignore_eos": True, "temperature": 0}
# Takes a dozen steps of some 0.3 s.
LONG = {"prompt": "word " * 6000, "max_tokens": 5}


@pytest.fixture(scope="module")
def server():
    """Two slots, so that a queue forms; large pieces, so that a prompt's steps can be told apart."""
    with pipeline_with(options={"keeper": ["--slots", 2], "gateway": ["--keep-alive-s", 0.2],
                                "npu-worker": ["--prefill-rows", 512, "--prefix-cache=false"]}) as pipeline:
        yield pipeline


@pytest.fixture(autouse=True)
def cancelled(server):
    """Whoever left was counted, and nothing is left: no slot, no page, no row."""
    yield
    server.wait_idle()
    status = server.status()
    assert status["pages"]["free"] == status["pages"]["total"]
    assert server.metric("lockstep_body_blocks_used") == 0
    assert server.complete("a", max_tokens=1)["usage"]["completion_tokens"] == 1


def steps(server):
    return sum(map(float, re.findall(r"^lockstep_worker_steps_total\S* (\S+)$", server.get("/metrics").data.decode(), re.M)))


def computed(server):
    """Positions computed so far."""
    return sum(map(float, re.findall(r"^lockstep_(?:prefill|decode)_tokens_total\S* (\S+)$", server.get("/metrics").data.decode(), re.M)))


def leaves(server, connection):
    """The connection goes; how many steps the worker still makes until it has nothing left."""
    before = steps(server)
    connection.close()
    server.wait_idle()
    return steps(server) - before


def generated(server):
    return sum(map(float, re.findall(r"^lockstep_decode_tokens_total\S* (\S+)$", server.get("/metrics").data.decode(), re.M)))


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_leaves_while_its_answer_comes(server, stream):
    before = generated(server)
    connection = server.open(COMPLETIONS, **ENDLESS, stream=stream)
    until(lambda: generated(server) > before + 5)
    # Between the reading of the counter and the close some steps pass; thousands would follow.
    assert leaves(server, connection) < 100


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_leaves_within_its_prompt(server, stream):
    before = computed(server)
    connection = server.open(COMPLETIONS, **LONG, stream=stream)
    until(lambda: computed(server) > before)
    # The step that ran, and on a busy machine one that had begun before the gateway saw the end of the connection.
    assert leaves(server, connection) <= 2


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_leaves_the_queue(server, stream):
    with server.stream(COMPLETIONS, **ENDLESS) as first, server.stream(COMPLETIONS, **ENDLESS) as second:
        for running in (first, second):
            next(iter(running))
        waiting = [server.open(COMPLETIONS, **ENDLESS, stream=stream) for _ in range(5)]
        until(lambda: server.slots()["waiting"] == 5)
        for connection in waiting:
            connection.close()
        until(lambda: server.busy() == 2)
        assert server.running() == 2
        # Those who run don't notice.
        assert len(list(itertools.islice(first, 3))) == len(list(itertools.islice(second, 3))) == 3


def test_one_of_several_choices_cannot_stay(server):
    before = generated(server)
    connection = server.open(COMPLETIONS, **ENDLESS, n=4, stream=True)
    until(lambda: generated(server) > before + 5)
    connection.close()
    server.wait_idle()


def test_a_reset_is_a_leave(server):
    with server.stream(COMPLETIONS, **ENDLESS) as stream:
        next(iter(stream))
        stream.connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    server.wait_idle()


def test_half_a_request_is_no_request(server):
    connection = server.open("/live")
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n{\"prompt\":")
    connection.close()
    assert server.idle()


def test_a_waiting_stream_gets_comments(server):
    """A long prompt and a full house: comment lines all the while, then the answer."""
    with server.stream(COMPLETIONS, **{**LONG, "prompt": "word " * 2500}) as stream:
        assert len(list(stream)) == 6
    assert stream.done and len(stream.comments) >= 1 and set(stream.comments) == {": waiting"}


def test_a_client_that_does_not_read_is_paused_then_dropped():
    """Its sequence runs on into its own slot, bounded as every answer is; the gateway holds a bounded part of it."""
    with pipeline_with(options={"gateway": ["--output-bytes", 4096, "--write-timeout-s", 1], "keeper": ["--slots", 2]}) as server:
        body = {**ENDLESS, "logprobs": 20, "stream": True, "max_tokens": 1500}
        before = server.resident_bytes("gateway")
        connection = server.open(COMPLETIONS, 2048, **body)
        until(lambda: server.metric("lockstep_http_dropped_slow_total") == 1, 240)
        assert server.resident_bytes("gateway") - before < 8 << 20
        server.wait_idle()
        assert server.metric('lockstep_results_total{code="cancelled"}') == 1
        connection.close()


def test_a_client_that_reads_slowly_gets_everything():
    with pipeline_with(options={"gateway": ["--output-bytes", 4096]}) as server:
        body = {**ENDLESS, "logprobs": 5, "max_tokens": 120}
        whole = server.events(COMPLETIONS, **body)
        with server.open(COMPLETIONS, 2048, **body, stream=True) as connection:
            connection.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            text = b""
            while piece := connection.recv(1000):
                text += piece
                time.sleep(0.002)
        assert text.count(b"data: ") == len(whole) + 1 and b"data: [DONE]\n\n\r\n0\r\n\r\nHTTP/1.1 200 OK" in text
