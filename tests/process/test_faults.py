"""The table of faults: whatever dies or freezes, at whatever moment, a client gets the bytes of the undisturbed run. Nothing
supervises here: what dies stays dead until the test starts it again. The stall limit is 30 s unless a test is about it, so what
goes on earlier does so by a proof of death."""

import collections
import contextlib
import json
import shutil
import signal
import statistics
import subprocess
import threading
import time

import pytest

from api import Api, until
from pipeline import BUILD, pipeline_with
from streams import BASE, COMPLETIONS, Load, Readers, Reply, ask, check_back, value, with_stops

WORKING = ("npu-worker", "sampler", "tokenizer")
TWO = {role: 2 for role in WORKING}
# Longer than any recovery by a proof of death, far below the stall limit.
SOON_S = 10
gaps = collections.defaultdict(list)  # fault -> longest wait within a stream after it (s)


# ---- pipelines and truths

@pytest.fixture(scope="module")
def single(request):
    """One of each. At the end the gaps are told, passed or failed."""
    with pipeline_with() as pipeline:
        yield pipeline
    request.config.pluginmanager.get_plugin("terminalreporter").write("\n" + report() + "\n")


@pytest.fixture(scope="module")
def double():
    """Two of each that works on requests, and two gateways at one port."""
    with pipeline_with(instances=TWO) as pipeline:
        # A port that was asked for by number is shared.
        pipeline.restart("gateway")
        pipeline.start("gateway", 1)
        pipeline.wait_ready()
        yield pipeline


@pytest.fixture(scope="module")
def truths(single):
    """[(body, what it says)], of an undisturbed run."""
    found = []
    for body in with_stops(single):
        reply = ask(single, body)
        gaps["nothing"] += [statistics.median(reply.waits())]
        found.append((body, value(reply.events)))
    return found


def events_of(truth):
    """How many tokens its stream has."""
    return max(len(whole.ids) for whole in truth.values()) - 1


def report():
    lines = ["longest wait within a stream after a fault (ms; 'nothing': the usual time between two tokens)"]
    for fault, values in gaps.items():
        values = sorted(1e3 * value for value in values)
        lines.append(f"  {fault:34} n={len(values):3}  p50 {statistics.median(values):6.0f}  max {values[-1]:6.0f}")
    return "\n".join(lines)


# ---- kill -9

def kill_and_start(pipeline, *roles):
    for role in roles:
        pipeline.kill(role)
    for role in roles:
        pipeline.start(role)


@pytest.mark.parametrize("moment", ["first token", "middle", "last token"])
@pytest.mark.parametrize("role", [*WORKING, "keeper"])
def test_the_only_one_is_killed(single, truths, role, moment):
    deaths = single.status()["counters"]["deaths"]
    readers = Readers(single, [body for body, _ in truths])
    number = {"first token": lambda truth: 1, "middle": lambda truth: events_of(truth) // 2, "last token": events_of}[moment]
    readers.wait_events([number(truth) for _, truth in truths] if moment != "last token" else [events_of(truths[0][1])])
    began = time.monotonic()
    kill_and_start(single, role)
    assert readers.values() == [truth for _, truth in truths]
    gaps[f"kill -9 {role}, the only one"].append(wait := readers.longest_wait(began))
    assert wait < SOON_S
    check_back(single)
    # Only who comes upon its work notices a keeper's death.
    assert single.status()["counters"]["deaths"] > deaths or role == "keeper"


@pytest.mark.parametrize("role", WORKING)
def test_killed_while_others_wait(single, truths, role):
    """More requests than slots: some wait for their turn."""
    readers = Readers(single, [body for body, _ in truths] * 2)
    until(lambda: single.slots()["waiting"] > 0, 30, "a queue")
    kill_and_start(single, role)
    assert readers.values() == [truth for _, truth in truths] * 2
    check_back(single)


def test_killed_within_a_long_prompt(single):
    """After some of its steps, before the last one."""
    body = {**BASE, "prompt": "a long way to go " * 250, "max_tokens": 4, "temperature": 0, "logprobs": 1}
    answers = []
    for kill in (False, True):
        single.restart("npu-worker", "--prefix-cache=false", "--prefill-rows", "64")
        readers = Readers(single, [body])
        if kill:
            until(lambda: prefilled(single) > 400, 60, "half a prompt")
            assert not readers.replies[0].ended
            single.kill("npu-worker")
            single.start("npu-worker", 0, "--prefix-cache=false")
        answers += readers.values()
    assert answers[0] == answers[1]
    single.wait_ready()
    single.restart("npu-worker")
    check_back(single)


def prefilled(pipeline):
    """By the worker that runs now."""
    lines = pipeline.get("/metrics").data.decode().splitlines()
    counts = {line.split("epoch=")[1]: float(line.split()[-1]) for line in lines
              if line.startswith("lockstep_prefill_tokens_total{")}
    newest = max(counts, key=lambda text: int(text.split('"')[1]))
    return counts[newest]


@pytest.mark.parametrize("role", WORKING)
def test_one_of_two_is_killed(double, truths, role):
    """Again and again; the other one goes on with the work."""
    takeovers, kills = double.status()["counters"]["takeovers"], []
    with Load(double, truths) as load:
        for turn in range(4):
            kills.append(time.monotonic())
            double.kill(role, turn % 2)
            load.go_on(4)
            double.start(role, turn % 2)
            double.wait_ready()
    waits = [load.longest_wait(began) for began in kills]
    gaps[f"kill -9 {role}, one of two"] += waits
    assert max(waits) < SOON_S
    check_back(double)
    # Text is encoded and a token drawn in no time: only a worker always has something when it dies.
    assert double.status()["counters"]["takeovers"] > takeovers or role != "npu-worker"


# ---- SIGSTOP and SIGCONT (of the others: test_injected.py)

def test_a_frozen_keeper_is_missed_by_nobody(truths):
    """Nothing waits for it, however long; new requests are accepted; when it wakes it goes on."""
    with pipeline_with(env={"LOCKSTEP_STALL_MS": "2000"}) as pipeline:
        with Load(pipeline, truths, 3) as load:
            began = time.monotonic()
            pipeline.send(signal.SIGSTOP, "keeper")
            load.go_on(3)
            time.sleep(2.5)
            load.go_on(3)
            pipeline.send(signal.SIGCONT, "keeper")
            load.go_on(3)
        gaps["SIGSTOP keeper"].append(load.longest_wait(began))
        check_back(pipeline)


# ---- gateways

def second_gateway(pipeline):
    """On a port of its own, so that the test knows whom it asks."""
    port, pipeline.port = pipeline.port, None
    pipeline.start("gateway", 1)
    other, pipeline.port = Api(pipeline.port), port
    until(lambda: other.request("GET", "/ready").status == 200, 60, "the second gateway")
    return other


def resumed(api, body, key, last):
    """The rest of a stream in each way there is: (id, data) of its events."""
    for method, path, headers in (("POST", COMPLETIONS, {"Idempotency-Key": key, "Last-Event-ID": last}),
                                  ("GET", f"/v1/streams/{last}", {}), ("POST", COMPLETIONS, {"Last-Event-ID": last}),
                                  ("POST", COMPLETIONS, {"Idempotency-Key": key, "Last-Event-ID": last}),
                                  ("GET", f"/v1/streams/{last}", {})):
        reply = Reply(api, method, path, body if method == "POST" else None, headers)
        assert reply.status == 200, (method, path, headers, reply.error)
        assert reply.read() and reply.ended
        reply.close()
        yield reply.events


def start_with_keys(api, truths, name):
    """Streams of which some events were read."""
    replies = [Reply(api, "POST", COMPLETIONS, body, {"Idempotency-Key": f"{name}-{i}"}) for i, (body, _) in enumerate(truths)]
    for reply in replies:
        assert reply.status == 200 and reply.read(4)
    return replies


def check_resumed(api, truths, name, replies):
    for i, (reply, (body, truth)) in enumerate(zip(replies, truths)):
        key = f"{name}-{i}"
        whole = ask(api, body, {"Idempotency-Key": key}).events
        for rest in resumed(api, body, key, reply.events[-1][0]):
            # Not a byte twice, not a byte lost. Choices run beside each other: only within one is there an order of events.
            assert value(reply.events + rest) == truth
            assert body.get("n", 1) > 1 or reply.events + rest == whole
        assert value(whole) == truth


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_another_gateway_goes_on(truths, fault):
    with pipeline_with() as pipeline:
        replies = start_with_keys(pipeline, truths, "gone")
        other = second_gateway(pipeline)
        pipeline.send(fault, "gateway", 0)
        check_resumed(other, truths, "gone", replies)
        assert value(ask(other, truths[0][0]).events) == truths[0][1]
        for reply in replies:
            reply.close()
        pipeline.kill("gateway", 0)
        pipeline.start("gateway", 0)
        pipeline.wait_ready()


def test_all_are_killed_at_once(truths):
    """The segments stay, and with them every generation that someone may come back for. Without them it is lost by name."""
    roles = ("keeper", *WORKING, "gateway")
    with pipeline_with() as pipeline:
        replies = start_with_keys(pipeline, truths, "all")
        for role in roles:
            pipeline.send(signal.SIGKILL, role)
        kill_and_start(pipeline, *roles)
        pipeline.wait_ready()
        check_resumed(pipeline, truths, "all", replies)
        for reply in replies:
            reply.close()
        last = replies[0].events[-1][0]
        for role in roles:
            pipeline.kill(role)
        for path in pipeline.dir.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for role in roles:
            pipeline.start(role)
        pipeline.wait_ready()
        body = truths[0][0]
        for reply in (Reply(pipeline, "GET", f"/v1/streams/{last}"), Reply(pipeline, "POST", COMPLETIONS, body, {"Last-Event-ID": last})):
            assert (reply.status, reply.error["code"]) == (410, "stream_lost")
        # The key means nothing to the new run: asked anew, and the same comes out.
        assert value(ask(pipeline, body, {"Idempotency-Key": "all-0"}).events) == truths[0][1]


# ---- what does not come up, what kills

def test_a_worker_that_dies_at_start(single, truths):
    """The exit status, the log and /ready say why, and who waits is served when one comes up."""
    single.stop("npu-worker")
    readers = Readers.__new__(Readers)
    starter = threading.Thread(target=lambda: Readers.__init__(readers, single, [truths[0][0]]), daemon=True)
    starter.start()
    for _ in range(3):
        single.start("npu-worker", 0, "--device", "xrt")
        process = single.processes.pop(("npu-worker", 0))
        assert process.wait(30) == 69, single.log("npu-worker")
        answer = single.request("GET", "/ready")
        assert answer.status == 503 and answer.json["missing"].startswith("npu-worker: --device xrt: "), answer.data
        assert "npu-worker: " + single.status()["why"]["npu-worker"] == answer.json["missing"]
        assert single.request("GET", "/live").status == 200
    assert "device" in single.log("npu-worker") or "xrt" in single.log("npu-worker")
    single.log_path("npu-worker").unlink()
    single.start("npu-worker")
    single.wait_ready()
    assert single.status()["why"] == {}
    starter.join(60)
    assert readers.values() == [truths[0][1]]


def test_a_request_that_kills_is_given_up(truths):
    """Its worker dies five times before it gets anywhere: it alone ends, by name. Who ran beside it goes on."""
    poison = {"prompt": "word " * 500, "max_tokens": 1, "temperature": 0}
    options = {"npu-worker": ["--prefix-cache=false", "--prefill-rows", "512", "--prefill-rows-busy", "512", "--threads", "1"]}
    with pipeline_with(options=options) as pipeline:
        answers = []
        asker = threading.Thread(target=lambda: answers.append(pipeline.request("POST", COMPLETIONS, poison)), daemon=True)
        asker.start()
        until(pipeline.running, 30, "work")
        beside = Readers.__new__(Readers)
        opener = threading.Thread(target=lambda: Readers.__init__(beside, pipeline, [truths[0][0]]), daemon=True)
        opener.start()
        for _ in range(5):
            until(pipeline.running, 30, "work")
            pipeline.kill("npu-worker")
            pipeline.start("npu-worker")
            until(pipeline.is_ready, 30, "a worker")
        asker.join(60)
        opener.join(60)
        status, code, _ = answers[0].error
        assert (status, code) == (500, "worker_crashed")
        assert beside.values() == [truths[0][1]]
        pipeline.wait_idle()
        assert pipeline.complete("word", max_tokens=1)["choices"]
        pipeline.log_path("npu-worker").unlink()


# ---- SIGTERM

@pytest.mark.parametrize("role", [*WORKING, "gateway", "keeper"])
def test_sigterm_under_load(truths, double, role):
    """One of two leaves, comes back, and then the other one: no request notices."""
    with Load(double, truths) as load:
        for instance in (0, 1) if role != "keeper" else (0,):
            double.stop(role, instance)
            load.go_on(3)
            double.start(role, instance)
            double.wait_ready()
            load.go_on(3)
    check_back(double)


@pytest.mark.parametrize("role", WORKING)
def test_lockstep_restart(truths, double, role):
    """One instance after the other, while the test does what a supervisor does."""
    before = {double.pid(role, instance) for instance in (0, 1)}
    with Load(double, truths) as load:
        command = subprocess.Popen([BUILD / "bin/lockstep", "restart", role, "--run-dir", double.dir],
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        with contextlib.closing(command.stdout):
            end = time.monotonic() + 60
            while command.poll() is None:
                assert time.monotonic() < end, "lockstep restart hangs"
                for instance in (0, 1):
                    if double.processes[role, instance].poll() is not None:
                        assert double.processes.pop((role, instance)).returncode == 0
                        double.start(role, instance)
                time.sleep(0.02)
            assert command.returncode == 0, command.stdout.read()
        double.wait_ready()
        load.go_on(3)
    assert not before & {double.pid(role, instance) for instance in (0, 1)}
    check_back(double)
