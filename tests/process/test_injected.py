"""Faults that can't be had by signals alone: a process that freezes, hangs or errs at a chosen place. The programs are those of
the release but for their fault points. Nothing supervises: what ends stays ended until the test starts it again."""

import concurrent.futures
import json
import random
import signal
import threading
import time

import pytest

from api import until
from pipeline import pipeline_with
from streams import COMPLETIONS, Load, Readers, ask, check_back, value, with_stops

WORKING = ("npu-worker", "sampler", "tokenizer")
TWO = {role: 2 for role in WORKING}
# Where the role owns a request: after a step, before what it found is committed.
AT_WORK = {"npu-worker": "worker.step", "sampler": "sampler.commit", "tokenizer": "tokenizer.commit"}


@pytest.fixture(scope="module")
def truths(shared):
    """[(body, what it says)], of an undisturbed run of the release."""
    return [(body, value(ask(shared, body).events)) for body in with_stops(shared)]


def start_again(pipeline, role, status):
    """What a supervisor does, for instance 0, which has ended by itself."""
    assert pipeline.processes[role, 0].wait(20) == status, pipeline.log(role)
    del pipeline.processes[role, 0]
    pipeline.start(role)
    pipeline.wait_ready()


def state_of(pipeline, pid):
    return next((process["state"] for process in pipeline.status()["processes"] if process["pid"] == pid), None)


# ---- killed

@pytest.mark.parametrize("role, point, nth", [("npu-worker", "worker.step", 1), ("npu-worker", "worker.step", 9),
                                              ("npu-worker", "worker.commit", 1), ("npu-worker", "worker.commit", 40),
                                              ("sampler", "sampler.commit", 1), ("sampler", "sampler.pass", 30),
                                              ("tokenizer", "tokenizer.commit", 1), ("tokenizer", "tokenizer.pass", 3)])
def test_killed_at_each_point(truths, role, point, nth):
    """After a step and before its result counts, after it counts and before the slot is handed on, and so on."""
    with pipeline_with(faults={(role, 0): f"{point}:kill@{nth}"}) as pipeline:
        with Load(pipeline, truths, starts=False) as load:
            start_again(pipeline, role, -signal.SIGKILL)
            load.go_on()
        check_back(pipeline)


@pytest.mark.parametrize("pooling", ["mean", "last"])
@pytest.mark.parametrize("point, nth", [("worker.step", 2), ("worker.commit", 1), ("worker.commit", 3)])
def test_a_sum_that_is_half_done(shared, pooling, point, nth):
    """Embeddings: with a sum stored and not counted, counted and not gone on with, complete and not handed on."""
    body = {"input": list(range(100, 290)), "pooling": pooling}
    data = shared.post("/v1/embeddings", **body)["data"]
    with pipeline_with(options={"npu-worker": ["--prefill-rows", "64"]}, faults={("npu-worker", 0): f"{point}:kill@{nth}"}) as pipeline:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            answer = pool.submit(pipeline.post, "/v1/embeddings", **body)
            start_again(pipeline, "npu-worker", -signal.SIGKILL)
            assert answer.result(120)["data"] == data


def test_a_gateway_leaves_after_the_last_word():
    """The answer is with the client, its pages still with the worker: who finds the slot later doesn't keep it for anybody."""
    with pipeline_with(faults={("npu-worker", 0): "worker.reclaim:stop@1"}) as pipeline:
        body = {"prompt": "word", "max_tokens": 4, "temperature": 0, "stream": True}
        assert ask(pipeline, body).ended
        assert pipeline.slots()["reclaim"] == 1
        pipeline.stop("gateway")
        pipeline.start("gateway")
        pipeline.send(signal.SIGCONT, "npu-worker")
        pipeline.wait_ready()
        pipeline.wait_idle(10)


# ---- frozen, hung

@pytest.mark.parametrize("role", WORKING)
def test_the_frozen_are_fenced(truths, role):
    """The other one takes the work over after the stall limit; who wakes up finds that, writes nothing and leaves with 75."""
    with pipeline_with(instances=TWO, env={"LOCKSTEP_STALL_MS": "2000"},
                       faults={(role, 0): f"{AT_WORK[role]}:stop@4"}) as pipeline:
        pid = pipeline.pid(role)
        # More than slots: who takes over is full, too.
        with Load(pipeline, truths, 12) as load:
            until(lambda: state_of(pipeline, pid) == "fenced", 60, "a fence")
            load.go_on(3)
            pipeline.send(signal.SIGCONT, role)
            start_again(pipeline, role, 75)
            load.go_on()
        assert pipeline.status()["counters"]["stalls"] >= 1
        check_back(pipeline)


@pytest.mark.parametrize("role", WORKING)
def test_who_hangs_ends_itself(truths, role):
    """What it waits for doesn't come, as with a device that doesn't answer: it leaves, and its work goes on elsewhere."""
    with pipeline_with(env={"LOCKSTEP_STALL_MS": "2000"}, faults={(role, 0): f"{AT_WORK[role]}:hang@4"}) as pipeline:
        with Load(pipeline, truths, starts=False) as load:
            start_again(pipeline, role, 75)
            load.go_on()
        assert "no beat for" in pipeline.log(role)
        assert pipeline.status()["counters"]["stalls"] == 0
        check_back(pipeline)
        pipeline.log_path(role).unlink()


# ---- numbers

def test_numbers_that_are_none(truths):
    """One request computes with NaN: it fails by name, its pages are not used again, and nobody beside it notices."""
    with pipeline_with(faults={("npu-worker", 0): "engine.embed:nan@20"}) as pipeline:
        bodies = [body for body, _ in truths]
        readers = Readers(pipeline, bodies)
        for thread in readers.threads:
            thread.join(60)
        failed = [i for i, reply in enumerate(readers.replies) if "error" in json.loads(reply.events[-1][1])]
        assert len(failed) == 1, failed
        error = json.loads(readers.replies[failed[0]].events[-1][1])["error"]
        assert error["code"] == "numeric_error" and "NaN" in error["message"], error
        for i, (reply, (_, truth)) in enumerate(zip(readers.replies, truths)):
            assert i in failed or value(reply.events) == truth
            reply.close()
        assert value(ask(pipeline, bodies[failed[0]]).events) == truths[failed[0]][1]
        check_back(pipeline)


# ---- hints

@pytest.mark.parametrize("action", ["lose%1", "lose%2", "twice%2", "late%3"])
def test_hints_are_only_hints(truths, action):
    """Messages and rings are lost (all of them; every other one), doubled, or late and out of order: only time is lost."""
    everyone = {(role, 0): f"bus.send:{action},bell.ring:{action}" for role in ("gateway", "keeper", *WORKING)}
    with pipeline_with(faults=everyone) as pipeline:
        readers = Readers(pipeline, [body for body, _ in truths])
        assert readers.values() == [truth for _, truth in truths]
        check_back(pipeline)


# ---- garbage

LINE, BLOCK, MAGIC, HEADER = 64, 65536, 0x59444F42.to_bytes(4, "little"), 14 * 64


def write_garbage(path, chance):
    """Over the header of a request that is in the bodies' segment, or over what follows it; False if there is none."""
    with open(path, "r+b") as file:
        blocks = range(BLOCK, path.stat().st_size, BLOCK)
        for at in (block + LINE for block in chance.sample(blocks, len(blocks))):
            file.seek(at)
            if file.read(4) == MAGIC:
                offset = chance.randrange(0, HEADER if chance.random() < 0.7 else BLOCK - 8, 4)
                file.seek(at + offset)
                file.write(chance.choice((chance.randbytes(4), chance.randbytes(8), b"\xff" * 4, b"\0" * 8)))
                return True
    return False


def test_garbage_in_shared_memory(truths):
    """Whatever another role's fields say: no process dies of it, each request ends, and afterwards all is as before."""
    chance = random.Random(11)
    with pipeline_with() as pipeline:
        pids = {key: process.pid for key, process in pipeline.processes.items()}
        written = 0
        for _ in range(12):
            readers = Readers(pipeline, [{**body, "max_tokens": 40} for body, _ in truths])
            end = time.monotonic() + 0.5
            while time.monotonic() < end:
                written += write_garbage(pipeline.dir / "bodies", chance)
                time.sleep(0.02)
            for thread, reply in zip(readers.threads, readers.replies):
                thread.join(30)
                assert not thread.is_alive(), "a request hangs"
                reply.close()
            pipeline.wait_idle()
        assert written > 100
        assert pids == {key: process.pid for key, process in pipeline.processes.items()}
        assert all(process.poll() is None for process in pipeline.processes.values())
        for body, truth in truths:
            assert value(ask(pipeline, body).events) == truth
        check_back(pipeline)
        for path in pipeline.logs.iterdir():
            path.unlink()
