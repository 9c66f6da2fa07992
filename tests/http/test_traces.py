"""Traces: a request's spans at a small collector of our own: identifiers, parents, times and attributes in OTLP's JSON form; a
collector that is dead, slow or refuses costs spans and nothing else."""

import contextlib
import http.server
import json
import re
import threading
import time

import pytest

from api import Stream, until, user
from pipeline import pipeline_with

CHAT = "/v1/chat/completions"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEAD = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
BODY = {"messages": user("Tell me about rivers."), "temperature": 0, "max_tokens": 20}


class Collector(http.server.ThreadingHTTPServer):
    """answers: statuses of the next messages, then 200; hold: seconds before each answer."""
    daemon_threads = True

    def __init__(self):
        self.messages, self.answers, self.hold = [], [], 0
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def spans(self):
        return [span for message in list(self.messages) for span in checked(message)]

    def of(self, trace, n):
        """The n spans of a trace, by name."""
        until(lambda: sum(span["traceId"] == trace for span in self.spans()) >= n)
        own = [span for span in self.spans() if span["traceId"] == trace]
        assert len(own) == n, [span["name"] for span in own]
        return own


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(self.server.hold)
        status = self.server.answers.pop(0) if self.server.answers else 200
        if status == 200:
            assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json"
            self.server.messages.append(json.loads(body))
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


SPAN = {"traceId": "[0-9a-f]{32}", "spanId": "[0-9a-f]{16}", "parentSpanId": "[0-9a-f]{16}", "name": ".+", "startTimeUnixNano": "[0-9]{19}",
        "endTimeUnixNano": "[0-9]{19}"}


def attributes(listed):
    for entry in listed:
        assert set(entry) == {"key", "value"} and len(entry["value"]) == 1
        kind, value = next(iter(entry["value"].items()))
        # 64-bit numbers are strings in OTLP's JSON.
        assert isinstance(value, str) and (kind == "stringValue" or kind == "intValue" and re.fullmatch("-?[0-9]+", value)), entry
    names = [entry["key"] for entry in listed]
    assert len(set(names)) == len(names)
    return {entry["key"]: int(entry["value"]["intValue"]) if "intValue" in entry["value"] else entry["value"]["stringValue"] for entry in listed}


def checked(message):
    """Every member of an ExportTraceServiceRequest that we send, and no other."""
    resource, = message["resourceSpans"]
    assert set(message) == {"resourceSpans"} and set(resource) == {"resource", "scopeSpans"}
    own = attributes(resource["resource"]["attributes"])
    assert own["service.name"] == "lockstep" and own["service.instance.id"].endswith("/gateway-0")
    scope, = resource["scopeSpans"]
    assert set(scope) == {"scope", "spans"} and scope["scope"]["name"] == "lockstep-gateway"
    spans = []
    for span in scope["spans"]:
        assert set(span) - {"parentSpanId"} == {"traceId", "spanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "attributes", "status"}
        assert all(re.fullmatch(form, span.get(name, "0" * 16)) for name, form in SPAN.items()), span
        assert span["kind"] in (1, 2) and set(span["status"]) in (set(), {"code", "message"})
        start, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
        assert start <= end and abs(time.time() - end / 1e9) < 600
        spans.append({**span, "start": start, "end": end, "attributes": attributes(span["attributes"])})
    assert len({span["spanId"] for span in spans}) == len(spans)
    return spans


@pytest.fixture(scope="module")
def collector():
    server = Collector()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def traced(collector):
    with pipeline_with(options={"gateway": ["--otlp-endpoint", collector.url]}) as pipeline:
        yield pipeline


def head(trace, flags="01"):
    return {"traceparent": f"00-{trace}-{PARENT}-{flags}"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_requests_spans(traced, collector, stream):
    trace = f"{int(stream) + 1:032x}"
    assert traced.request("POST", CHAT, {**BODY, "stream": stream}, head(trace)).status == 200
    spans = {span["name"]: span for span in collector.of(trace, 4)}
    request, parts = spans[CHAT], [spans[name] for name in ("queue", "prefill", "decode")]
    assert request["kind"] == 2 and request["parentSpanId"] == PARENT and request["status"] == {}
    assert all(part["kind"] == 1 and part["parentSpanId"] == request["spanId"] for part in parts)
    # One after the other, within the request.
    edges = [request["start"]] + [edge for part in parts for edge in (part["start"], part["end"])] + [request["end"]]
    assert all(b - a > -50_000 for a, b in zip(edges, edges[1:])), edges
    own = request["attributes"]
    assert (own["http.route"], own["http.response.status_code"], own["gen_ai.operation.name"]) == (CHAT, 200, "chat")
    assert own["gen_ai.usage.output_tokens"] == parts[2]["attributes"]["gen_ai.usage.output_tokens"] == 20
    assert own["gen_ai.usage.input_tokens"] == parts[1]["attributes"]["gen_ai.usage.input_tokens"] > 5
    assert own["gen_ai.response.id"].startswith("chatcmpl-") and own["lockstep.takeovers"] == 0


def test_choices_have_spans_of_their_own(traced, collector):
    trace = f"{17:032x}"
    traced.request("POST", CHAT, {**BODY, "n": 2, "max_tokens": 3}, head(trace))
    spans = collector.of(trace, 7)
    assert sorted(span["attributes"].get("lockstep.choice", -1) for span in spans) == [-1, 0, 0, 0, 1, 1, 1]


def test_who_is_traced(traced, collector):
    """Without a field: a trace of its own. What the client doesn't keep isn't kept here; what is no such field counts as none."""
    before = len(collector.spans())
    for field in ({}, {"traceparent": "00-nonsense"}, head(TRACE, "00")):
        traced.request("POST", "/tokenize", {"prompt": "a"}, field)
    until(lambda: len(collector.spans()) >= before + 2)
    traced.request("POST", "/tokenize", {"prompt": "a"}, head(f"{18:032x}"))
    collector.of(f"{18:032x}", 1)
    own = collector.spans()[before:]
    assert [("parentSpanId" in span, span["name"]) for span in own] == [(False, "/tokenize")] * 2 + [(True, "/tokenize")]
    assert len({span["traceId"] for span in own}) == 3 and TRACE not in {span["traceId"] for span in own}


def test_errors_are_marked(traced, collector):
    trace = f"{19:032x}"
    assert traced.request("POST", CHAT, {**BODY, "temperature": 9}, head(trace)).status == 400
    span, = collector.of(trace, 1)
    assert span["status"] == {"code": 2, "message": "invalid_value"}
    assert (span["attributes"]["http.response.status_code"], span["attributes"]["error.type"]) == (400, "invalid_value")


def test_a_takeover_is_seen(traced, collector):
    """The request's spans are whole although its worker died."""
    trace = f"{20:032x}"
    with Stream(traced, CHAT, {**BODY, "max_tokens": 60}, head(trace)) as stream:
        for _, _ in zip(range(5), stream):
            pass
        traced.kill("npu-worker")
        traced.start("npu-worker")
        assert len(list(stream)) > 50
    spans = {span["name"]: span for span in collector.of(trace, 4)}
    assert spans["decode"]["attributes"]["lockstep.takeovers"] == spans[CHAT]["attributes"]["lockstep.takeovers"] >= 1
    traced.wait_ready()


def figures(server):
    lines = server.request("GET", "/metrics").data.decode().splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith("lockstep_otlp")}


def test_a_collector_that_refuses_is_asked_again(traced, collector):
    trace, before = f"{21:032x}", figures(traced)
    collector.answers = [503, 400]
    traced.request("POST", "/tokenize", {"prompt": "a"}, head(trace))
    until(lambda: not collector.answers)
    # 503: kept and sent again; then 400: given up.
    until(lambda: figures(traced)['lockstep_otlp_spans_total{result="dropped"}'] > before['lockstep_otlp_spans_total{result="dropped"}'])
    assert figures(traced)["lockstep_otlp_failures_total"] == before["lockstep_otlp_failures_total"] + 2
    traced.request("POST", "/tokenize", {"prompt": "a"}, head(f"{22:032x}"))
    collector.of(f"{22:032x}", 1)
    assert not any(span["traceId"] == trace for span in collector.spans())


def test_what_waits_is_sent_at_the_end(traced, collector):
    trace = f"{23:032x}"
    traced.request("POST", "/tokenize", {"prompt": "a"}, head(trace))
    traced.stop("gateway")
    collector.of(trace, 1)
    traced.start("gateway")
    traced.wait_ready()


def test_a_dead_or_silent_collector_holds_nothing_up(collector):
    """Answers are the same without it; nothing of it is waited for."""
    with pipeline_with(options={"gateway": ["--otlp-endpoint", "http://127.0.0.1:1"]}) as pipeline:
        dead = [pipeline.post(CHAT, **BODY)["choices"] for _ in range(3)]
        until(lambda: figures(pipeline)["lockstep_otlp_failures_total"] > 0)
        collector.hold = 3
        pipeline.restart("gateway", "--otlp-endpoint", collector.url)
        pipeline.request("POST", "/tokenize", {"prompt": "a"})
        time.sleep(1.5)  # the collector has the message, and keeps silent
        start = time.monotonic()
        assert [pipeline.post(CHAT, **BODY)["choices"]] * 3 == dead
        silent = time.monotonic() - start
        collector.hold = 0
        pipeline.restart("gateway")
        assert not any(figures(pipeline).values())
        start = time.monotonic()
        assert [pipeline.post(CHAT, **BODY)["choices"]] * 3 == dead
        print(f"with a silent collector {silent:.2f} s, without one {time.monotonic() - start:.2f} s")


def test_metrics_have_the_same_parts(traced):
    traced.post(CHAT, **BODY)
    text = traced.request("GET", "/metrics").data.decode()
    counts = {part: int(re.search(rf"^lockstep_{part}_seconds_count (\d+)$", text, re.M).group(1)) for part in ("queue", "prefill", "decode")}
    assert all(counts.values())
