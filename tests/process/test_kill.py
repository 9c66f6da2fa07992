"""kill -9 of each process in the middle of streams: a new one comes, the streams go on, byte for byte what they would have
been. A gateway holds its clients' sockets: they come back to its successor and go on where they were."""

import http.client
import json
import os
import threading

import pytest

from api import Stream, join, until
from pipeline import pipeline_with

COMPLETIONS = "/v1/completions"
ROLES = ("npu-worker", "sampler", "tokenizer", "keeper")
PATIENCE = 1200 if os.environ.get("LOCKSTEP_LONG") else 120  # seconds for what four streams at once say
BODIES = [
    {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 60, "ignore_eos": True, "logprobs": 3},
    {"prompt": "The sea is " * 40, "temperature": 0.9, "seed": 5, "max_tokens": 60, "ignore_eos": True, "stop": ["qqq"], "logprobs": 0},
    {"prompt": "One, two, three,", "temperature": 1, "seed": 6, "max_tokens": 50, "n": 2, "frequency_penalty": 0.5, "ignore_eos": True},
    {"prompt": "As JSON: ", "temperature": 1, "seed": 8, "max_tokens": 60, "guided_json": {
        "type": "object", "properties": {"a": {"type": "string", "minLength": 300}, "b": {"type": "array", "minItems": 9}}}},
    {"prompt": "word " * 300, "temperature": 0, "max_tokens": 20, "echo": True, "ignore_eos": True},
]


@pytest.fixture(scope="module")
def undisturbed(shared):
    """What each says when nobody dies."""
    return [join(shared.events(COMPLETIONS, **body, return_token_ids=True)) for body in BODIES]


class Reader(threading.Thread):
    """Reads a stream to its end; `met` is set after the event of that number."""

    def __init__(self, pipeline, body, number):
        super().__init__()
        self.stream = pipeline.stream(COMPLETIONS, **body, return_token_ids=True)
        self.met, self.number, self.events, self.failure = threading.Event(), number, [], None
        self.start()

    def run(self):
        try:
            with self.stream:
                for event in self.stream:
                    self.events.append(event)
                    if len(self.events) == self.number:
                        self.met.set()
            assert not self.stream.error, self.stream.error
        except Exception as failure:
            self.failure = failure
        self.met.set()


def read_through(pipeline, bodies, number, disturb):
    """The streams of all bodies; disturb() is called when each has come to that event."""
    readers = [Reader(pipeline, body, number) for body in bodies]
    for reader in readers:
        assert reader.met.wait(PATIENCE)
    assert all(reader.is_alive() for reader in readers[:2]), "too late: the answers are complete"
    disturb()
    for reader in readers:
        reader.join(PATIENCE)
        assert not reader.is_alive() and not reader.failure, reader.failure
    return [join(reader.events) for reader in readers]


@pytest.mark.parametrize("number", [1, 7])
@pytest.mark.parametrize("role", ROLES)
def test_a_death_is_not_noticed(pipeline, undisturbed, role, number):
    deaths = pipeline.status()["counters"]["deaths"]

    def disturb():
        pipeline.kill(role)
        pipeline.start(role)
    assert read_through(pipeline, BODIES, number, disturb) == undisturbed
    pipeline.wait_ready()
    assert pipeline.status()["counters"]["deaths"] > deaths or role == "keeper"


def test_all_die_at_once(pipeline, undisturbed):
    def disturb():
        for role in ROLES:
            pipeline.kill(role)
        for role in ROLES:
            pipeline.start(role)
    assert read_through(pipeline, BODIES, 5, disturb) == undisturbed
    pipeline.wait_ready()


def test_a_worker_dies_again_and_again(pipeline, undisturbed):
    """Every death is survived as long as there is progress in between."""
    start = sum_of(pipeline, "lockstep_generated_tokens_total")
    whole = start + sum(body["max_tokens"] for body in BODIES[:2])

    def progress(told):
        return sum_of(pipeline, "lockstep_generated_tokens_total") > min(told, whole - 1)

    def disturb():
        for _ in range(4):
            pipeline.kill("npu-worker")
            told = sum_of(pipeline, "lockstep_generated_tokens_total")
            pipeline.start("npu-worker")
            pipeline.wait_ready()
            until(lambda: progress(told))
    assert read_through(pipeline, BODIES[:2], 3, disturb) == undisturbed[:2]


def test_a_death_within_a_prompt(pipeline):
    """Half of a long prompt is computed when the worker dies; then two ask for the same at once."""
    body = {"prompt": "a long way to go " * 250, "max_tokens": 4, "temperature": 0, "logprobs": 5}
    prefilled = sum_of(pipeline, "lockstep_prefill_tokens_total")
    first = pipeline.open(COMPLETIONS, **body)
    until(lambda: sum_of(pipeline, "lockstep_prefill_tokens_total") > prefilled + 200)
    pipeline.kill("npu-worker")
    pipeline.start("npu-worker")
    second = pipeline.open(COMPLETIONS, **body)
    answers = [answer_of(connection) for connection in (first, second)]
    pipeline.wait_ready()
    pipeline.restart("npu-worker", "--prefix-cache=false")
    answers.append(pipeline.complete(**body))
    pipeline.restart("npu-worker")
    assert answers[0]["choices"] == answers[1]["choices"] == answers[2]["choices"]


def sum_of(pipeline, name):
    lines = pipeline.get("/metrics").data.decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def answer_of(connection):
    with connection:
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert response.status == 200
        return json.loads(response.read())


def test_a_survivor_takes_over():
    """With two of each, nobody is started again: the other one does it."""
    with pipeline_with(instances={"npu-worker": 2, "sampler": 2, "tokenizer": 2}) as pipeline:
        undisturbed = [join(pipeline.events(COMPLETIONS, **body, return_token_ids=True)) for body in BODIES]
        for role in ("npu-worker", "sampler", "tokenizer"):
            assert read_through(pipeline, BODIES, 4, lambda: pipeline.kill(role, 0)) == undisturbed
            pipeline.start(role, 0)
            pipeline.wait_ready()


def cut_off(stream, number):
    """A stream's events until the other side is gone; none is given in part."""
    events = []
    try:
        for event in stream:
            events.append(event)
            if len(events) == number:
                return events, True
    except (AssertionError, http.client.HTTPException, ConnectionError):
        pass
    return events, False


@pytest.mark.parametrize("which", [(0, 1, 2, 4), (3,)])
def test_a_gateway_dies(undisturbed, which):
    with pipeline_with() as pipeline:
        streams = [pipeline.stream(COMPLETIONS, **BODIES[i], return_token_ids=True) for i in which]
        events = [cut_off(stream, 3)[0] for stream in streams]
        pipeline.kill("gateway")
        for stream, seen in zip(streams, events):
            more, alive = cut_off(stream, 1000)
            assert not alive
            seen += more
            stream.close()
        # One may have come to its end before the gateway did.
        assert not all(stream.done for stream in streams)
        pipeline.start("gateway")
        pipeline.wait_ready()
        for stream, seen, whole in zip(streams, events, [undisturbed[i] for i in which]):
            if stream.done:
                assert join(seen) == whole
                continue
            with Stream(pipeline, "/v1/streams/" + stream.ids[-1]) as rest:
                assert join(seen + list(rest)) == whole
            # And again, from the same place.
            with Stream(pipeline, "/v1/streams/" + stream.ids[-1]) as again:
                assert join(seen + list(again)) == whole
        until(lambda: pipeline.running() == 0)
        answer = pipeline.chat("What is the capital of France?", temperature=0)
        assert answer["choices"][0]["message"]["content"] == "The capital of France is Paris."


def test_nothing_is_left_after_many_deaths():
    """Slots, pages, rows, blocks: all free again, and the run directory as large as before."""
    with pipeline_with() as pipeline:
        pipeline.complete("a", max_tokens=1)

        def files():
            return sorted(str(path.relative_to(pipeline.dir)) for path in pipeline.dir.rglob("*") if path.is_file())
        before = len(files())
        for role in ROLES * 3:
            reader = Reader(pipeline, {**BODIES[0], "max_tokens": 20}, 2)
            assert reader.met.wait(60)
            pipeline.kill(role)
            pipeline.start(role)
            reader.join(60)
            assert not reader.failure, reader.failure
            pipeline.wait_ready()
        pipeline.wait_idle()
        status = pipeline.status()
        assert status["pages"]["free"] == status["pages"]["total"]
        assert len(files()) <= before + 2, files()
        assert pipeline.metric("lockstep_body_blocks_used") == 0
