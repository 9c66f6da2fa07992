"""lockstep trace: the spans of all processes, joined to a token's way."""

import json
import subprocess
import threading

from pipeline import BUILD

HOPS = ["step", "to the sampler", "draw", "to the worker", "token", "to the client"]


def trace(pipeline, *words):
    return subprocess.run([BUILD / "bin/lockstep", "trace", "--run-dir", pipeline.dir, *words], capture_output=True, text=True, timeout=120)


def test_a_stream_is_traced_from_step_to_client(shared, tmp_path):
    stop = threading.Event()

    def load():
        while not stop.is_set():
            shared.events("/v1/completions", prompt="Once upon a time", max_tokens=64, ignore_eos=True)

    loader = threading.Thread(target=load)
    loader.start()
    try:
        done = trace(shared, "--seconds", "4", "--json", "--output", tmp_path / "spans.json")
    finally:
        stop.set()
        loader.join()
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [hop["name"] for hop in found["hops"]] == HOPS
    for hop in found["hops"]:
        assert hop["tokens"] > 0 and 0 <= hop["median_us"] <= hop["p90_us"] <= hop["p99_us"], hop
    events = json.loads((tmp_path / "spans.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == found["spans"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    by_name = {"step": "npu-worker-0", "draw": "sampler-0", "send": "gateway-0", "tokenize": "tokenizer-0"}
    for name, process in by_name.items():
        assert {names[span["pid"]] for span in spans if span["name"] == name} == {process}
    assert all(span["dur"] >= 0 and span["ts"] > 0 for span in spans)


def test_nothing_is_traced_afterwards(shared):
    shared.complete("The sea", max_tokens=4)
    done = trace(shared, "--seconds", "0.1", "--json")
    assert json.loads(done.stdout)["spans"] == 0
    done = trace(shared, "--seconds", "0.1")
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "0 spans, 0 lost"


def test_what_cannot_be_is_refused(shared, tmp_path):
    assert trace(shared, "--seconds", "0").returncode == 64
    done = trace(shared, "--seconds", "0.1", "--output", tmp_path / "none" / "spans.json")
    assert done.returncode != 0 and "cannot write" in done.stderr
    done = subprocess.run([BUILD / "bin/lockstep", "trace", "--run-dir", tmp_path], capture_output=True, text=True)
    assert done.returncode != 0 and "nothing runs" in done.stderr
