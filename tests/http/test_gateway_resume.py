"""Clients that come back: after a lost connection, after the gateway's end, to another gateway (echo_gateway.py)."""

import json
import time

import pytest

from api import until
from echo_gateway import contents, gateway, gateway_with, id_of, read_events, read_until, slow, whole_stream  # noqa: F401

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
    with gateway_with("--detach-s", 1) as server:
        server.open_stream("/v1/completions", {"Idempotency-Key": "x"}, prompt="!wait", stream=True).close()
        until(lambda: server.metric('lockstep_results_total{code="cancelled"}') == 1)
        assert server.busy() == 1
        until(lambda: server.busy() == 0, 10)
        answer = server.open_stream("/v1/completions", {"Idempotency-Key": "y"}, prompt="abc")
        answer.close()
        time.sleep(1.5)
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
