"""Starts, stops and restarts of processes while others depend on them."""

import http.client
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

from api import join, until
from pipeline import BUILD, Pipeline, pipeline_with
from test_kill import BODIES, COMPLETIONS, read_through


@pytest.fixture(scope="module")
def undisturbed(shared):
    return [join(shared.events(COMPLETIONS, **body, return_token_ids=True)) for body in BODIES]


# ---- asked to leave

@pytest.mark.parametrize("role", ["npu-worker", "sampler", "tokenizer", "keeper"])
def test_a_restart_is_not_noticed(pipeline, undisturbed, role):
    """SIGTERM in the middle of streams: the process leaves with 0 and hands on what it had."""
    def disturb():
        pipeline.stop(role)
        pipeline.start(role)
    assert read_through(pipeline, BODIES, 3, disturb) == undisturbed
    pipeline.wait_ready()


def test_a_gateway_answers_before_it_leaves():
    with pipeline_with() as pipeline:
        streams = [pipeline.stream(COMPLETIONS, **body) for body in BODIES]
        iterators = [iter(stream) for stream in streams]
        for iterator in iterators:
            next(iterator)
        pipeline.send(signal.SIGTERM, "gateway")
        until(lambda: pipeline.request("GET", "/ready").status == 503)
        refused = pipeline.request("POST", COMPLETIONS, {"prompt": "a"})
        assert refused.error[:2] == (503, "draining") and refused.headers["Retry-After"]
        for stream, iterator in zip(streams, iterators):
            assert list(iterator)[-1]["choices"][0]["finish_reason"] == "length" and stream.done
            stream.close()
        assert pipeline.processes.pop(("gateway", 0)).wait(40) == 0


def test_a_gateway_beside_another_serves_who_has_connected():
    """Also one whose request comes after the signal; it listens no more, and is gone when all is answered."""
    with pipeline_with() as pipeline:
        pipeline.restart("gateway")  # a port that is asked for by number is shared
        pipeline.start("gateway", 1)
        pipeline.wait_ready()
        talks = [http.client.HTTPConnection("127.0.0.1", pipeline.port, timeout=60) for _ in range(16)]
        for talk in talks:  # of each gateway some, with overwhelming likelihood
            talk.connect()
        time.sleep(0.3)
        pipeline.send(signal.SIGTERM, "gateway")
        until(lambda: "finishing what runs" in pipeline.log("gateway", 0))
        for talk in talks:
            talk.request("POST", COMPLETIONS, json.dumps({"prompt": "a", "max_tokens": 1}), {"Content-Type": "application/json"})
        answers = [talk.getresponse() for talk in talks]
        assert [answer.status for answer in answers] == [200] * len(talks)
        left = sum(answer.headers["Connection"] == "close" for answer in answers)
        assert 0 < left < len(talks)
        assert pipeline.processes.pop(("gateway", 0)).wait(40) == 0
        assert pipeline.request("GET", "/ready").status == 200


@pytest.mark.parametrize("role", ["gateway", "tokenizer", "sampler", "npu-worker"])
def test_a_process_that_waits_leaves_at_once(tmp_path, role):
    """There is no keeper to create the run; nobody has to wait for the end of that."""
    process = subprocess.Popen([BUILD / "bin" / f"lockstep-{role}", "--run-dir", tmp_path / "run"], stderr=subprocess.PIPE)
    assert b"waiting for the keeper" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(5) == 0
    process.stderr.close()


def test_a_sampler_that_waits_for_the_vocabulary_leaves_at_once():
    with pipeline_with() as pipeline:
        for role in ("tokenizer", "sampler"):
            pipeline.kill(role)
        (pipeline.dir / "vocab").unlink()
        pipeline.start("sampler")
        until(lambda: any(process["role"] == "sampler" and process["state"] == "starting" for process in pipeline.status()["processes"]))
        pipeline.stop("sampler")


# ---- missing

def test_what_is_missing_is_said():
    """Without a worker: /ready says so at once; a stream waits, then ends with an error event, not in silence; new
    requests are refused. With a worker again all is well."""
    with pipeline_with(options={"gateway": ["--no-worker-s", 1]}) as pipeline:
        for roles in (["npu-worker"], ["sampler"], ["tokenizer"], ["tokenizer", "npu-worker"]):
            # A running stream needs no tokenizer, so the one that is missing beside it must not hide the other.
            streams = [] if roles == ["tokenizer"] else [pipeline.stream(COMPLETIONS, **body) for body in BODIES[:2]]
            for stream in streams:
                next(iter(stream))
            for role in roles:
                pipeline.kill(role)
            until(lambda: pipeline.request("GET", "/ready").status == 503)
            assert roles[0] in pipeline.request("GET", "/ready").data.decode()
            assert pipeline.request("GET", "/live").status == 200
            for stream in streams:
                list(stream)
                assert stream.error["code"] == "no_worker" and not stream.done
                stream.close()
            refused = until(lambda: (answer := pipeline.request("POST", COMPLETIONS, {"prompt": "a"})).status == 503 and answer)
            assert refused.error[1] == "no_worker" and refused.headers["Retry-After"]
            for role in roles:
                pipeline.start(role)
            pipeline.wait_ready()
            pipeline.complete("a", max_tokens=1)


def test_a_request_waits_for_a_process_that_comes():
    with pipeline_with() as pipeline:
        pipeline.kill("npu-worker")
        connection = pipeline.stream(COMPLETIONS, prompt="The capital", max_tokens=2, temperature=0)
        time.sleep(0.3)
        pipeline.start("npu-worker")
        with connection:
            assert "".join(event["choices"][0]["text"] for event in connection) == " of the"


# ---- frozen

def test_a_frozen_process_without_a_deputy_is_ended_once():
    with pipeline_with(env={"LOCKSTEP_STALL_MS": "1000"}) as pipeline:
        pipeline.send(signal.SIGSTOP, "gateway")
        assert pipeline.processes.pop(("gateway", 0)).wait(60) == -signal.SIGKILL
        assert pipeline.log("keeper").count("it is ended") == 1
        pipeline.start("gateway")
        pipeline.wait_ready()


# ---- nothing is left behind

def test_twenty_starts_and_kills_leave_no_more_than_one():
    """In one run directory, everything killed each time: files and bytes as after the first."""
    pipeline = Pipeline()
    try:
        sizes = []
        for _ in range(20):
            pipeline.complete("a", max_tokens=1)
            with pipeline.stream(COMPLETIONS, **BODIES[0]) as stream:
                next(iter(stream))
                for role, instance in list(pipeline.processes):
                    pipeline.kill(role, instance)
            files = [path for path in pipeline.dir.rglob("*") if not path.is_dir()]
            sizes.append((len(files), sum(path.lstat().st_blocks for path in files)))
            for role in ("keeper", "npu-worker", "sampler", "tokenizer", "gateway"):
                pipeline.start(role)
            pipeline.wait_ready()
        assert max(sizes[1:])[0] <= sizes[0][0] + 8, sizes
        assert max(blocks for _, blocks in sizes[1:]) <= sizes[0][1] * 1.1, sizes
        assert pipeline.chat("What is the capital of France?", temperature=0)["choices"][0]["message"]["content"] == \
            "The capital of France is Paris."
    finally:
        pipeline.remove()


# ---- where compute threads run

def affinities(process):
    """{thread's name: the processors it may run on}."""
    found = {}
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        fields = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
        found[fields["Name"]] = fields["Cpus_allowed_list"]
    return found


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_compute_threads_are_held_on_processors_of_their_own(undisturbed):
    with pipeline_with(options={"npu-worker": ["--threads", "2", "--pin"]}) as pipeline:
        places = affinities(pipeline.processes["npu-worker", 0])
        own = [places["lockstep-npu-wo"], places["kernels-1"]]
        assert len(set(own)) == 2 and all(place.isdigit() for place in own), places
        assert [join(pipeline.events(COMPLETIONS, **body, return_token_ids=True)) for body in BODIES] == undisturbed


def test_more_pinned_threads_than_processors_are_refused(shared):
    done = subprocess.run([BUILD / "bin/lockstep-npu-worker", "--run-dir", shared.dir, "--instance", "1", "--threads", "200", "--pin"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 78 and "--pin: 200 threads" in done.stderr, done
