"""The whole NPU path without an NPU: the worker, unmodified XRT 2.25 and its XDNA plug-in, and a software NPU that
computes. The default model as a Q4NX folder, by whole layers and by single products: the same bits as the host; killed and
resumed; every fault with its message. Nothing here says anything about hardware."""

import json
import os
import pathlib
import re
import struct
import subprocess
import threading
import time

import pytest

import small_models
from api import Stream, join, until
from npu import LAYER, LIMIT_MS, SHAPES, WAIT_S, wait_for_end, write_kernels, write_layers
from pipeline import BUILD, model_path, pipeline_with

LONG = bool(os.environ.get("LOCKSTEP_LONG"))
TOKENS = 200 if LONG else 24
FEW = 12  # where the middle of an answer is enough
PROMPT = ("The lighthouse keeper's daughter had counted the ships every evening since the spring, and tonight, with the wind from the "
          "north and the lamp still unlit, there was one more than there should have been. She took")
BODY = {"prompt": PROMPT, "temperature": 0, "max_tokens": TOKENS, "ignore_eos": True, "logprobs": 3}
NEXT_ROWS = 16 * LAYER["embd"] // 32 * 20  # bytes from a block of a Q4_1 matrix's rows to the next
BEYOND = 4000000000  # where no buffer of the worker's reaches
HANG_MS = 20000  # for a device that hangs
KEEPER = ["--ctx", 512, "--slots", 2]


def start(npu, *options, kernels="layers", device="xrt", keeper=(), env=None, words=(), model="SmolLM2"):
    worker = ["--device", device, "--kernels", npu.folder / kernels, "--device-limit-ms", LIMIT_MS, "--device-pause-ms", 0, *options]
    return pipeline_with(model=npu.folder / model, options={"keeper": [*KEEPER, *keeper], "npu-worker": worker},
                         env=npu.env(**(env or {})), programs={"npu-worker": npu.worker(*words)})


class Reader(threading.Thread):
    """Reads a stream. Waiting for it ends when nothing comes any more, or nothing can: nobody restarts a worker that ends unasked."""

    def __init__(self, pipeline, body):
        super().__init__(daemon=True)
        self.pipeline, self.body, self.events, self.failure = pipeline, body, [], None
        self.start()

    def run(self):
        try:
            with Stream(self.pipeline, "/v1/completions", self.body) as stream:
                for event in stream:
                    self.events.append(event)
        except BaseException as failure:
            self.failure = failure

    def wait_for(self, condition, what):
        while not condition():
            seen = len(self.events)
            until(lambda: condition() or len(self.events) > seen or self.pipeline.check_alive("npu-worker"), WAIT_S, what)

    def finish(self):
        self.wait_for(lambda: not self.is_alive(), "the stream's next event")
        if self.failure:
            raise self.failure
        return join(self.events)


def ask(pipeline, **more):
    """Text, ids, log-probabilities and what was sent, of a stream."""
    return Reader(pipeline, {**BODY, **more, "return_token_ids": True}).finish()


def go_through(npu, pipeline, disturb, after=4, **more):
    """The same, of a stream in whose middle disturb() happens: behind some events. So that it is the middle, however slow the
    machine, the device takes its time until then."""
    npu.fault("late 200")
    reader = Reader(pipeline, {**BODY, **more, "return_token_ids": True})
    reader.wait_for(lambda: len(reader.events) > after or not reader.is_alive(), "the first events")
    assert reader.is_alive(), reader.failure
    disturb()
    npu.fault()
    return reader.finish()


def on_host(npu, *keeper):
    return pipeline_with(model=npu.folder / "SmolLM2", options={"keeper": [*KEEPER, *keeper], "npu-worker": ["--device", "host"]})


@pytest.fixture(scope="module")
def idle(npu):
    """A run whose own worker leaves the device alone."""
    with on_host(npu) as pipeline:
        yield pipeline


@pytest.fixture(scope="module")
def host(idle):
    """What the host engine answers."""
    return ask(idle)


@pytest.fixture(scope="module")
def on_device(npu, host):
    with start(npu) as pipeline:
        yield pipeline


@pytest.fixture
def pipeline(npu, on_device):
    """With a living worker and a device without faults, however the test before ended."""
    npu.check_alive()
    npu.fault()
    if not is_alive(on_device):
        on_device.processes.pop(("npu-worker", 0), None)
        come_back(on_device)
    return on_device


def is_alive(pipeline):
    worker = pipeline.processes.get(("npu-worker", 0))
    return worker is not None and worker.poll() is None


def test_the_same_bits_as_the_host(npu, host, pipeline):
    """Tokens, texts and log-probabilities; nothing was copied: the device reads and writes the shared segments."""
    assert ask(pipeline) == host and len(host[0].ids) == TOKENS
    assert "NPU: layers on the device; weights, activations, KV pages and logits: in place" in pipeline.log("npu-worker")


def activations(pipeline):
    return [path.name for path in pathlib.Path(pipeline.dir).rglob("activations-*")]


def test_activations_lie_in_a_segment_of_the_owners(pipeline):
    """It goes with its owner, and a successor makes a new one: what a dead owner's device still writes lands nowhere. The name of a
    dead one's goes when its pages are let go."""
    assert len(activations(pipeline)) == 1
    pipeline.stop("npu-worker")
    assert activations(pipeline) == []
    for _ in range(4):
        pipeline.start("npu-worker")
        pipeline.wait_ready()
        assert activations(pipeline)
        pipeline.kill("npu-worker")
    come_back(pipeline)
    pipeline.chat("A ship", max_tokens=2)
    pipeline.kill("npu-worker")
    come_back(pipeline)
    until(lambda: len(activations(pipeline)) == 1, what="one owner's activations")


def test_users_of_the_device_do_not_disturb_each_other(npu, idle, host, pipeline):
    """Each has buffers, addresses and a context of its own, while both are there and when one is gone."""
    longer, longest = ({"prompt": n * PROMPT, "max_tokens": FEW} for n in (2, 3))  # they need streams that nothing else did
    assert ask(pipeline) == host
    with start(npu) as other:
        assert ask(pipeline, **longer) == ask(other, **longer) == ask(idle, **longer)
        assert ask(other) == host
    assert ask(pipeline, **longest) == ask(idle, **longest)


def test_embeddings(idle, pipeline):
    """The last layer's rows come back from the device; their mean is the host engine's, to the bit."""
    texts = [PROMPT, "A ship."]
    of_host, of_npu = ([entry["embedding"] for entry in each.post("/v1/embeddings", input=texts)["data"]]
                       for each in (idle, pipeline))
    assert of_npu == of_host and len(of_npu[0]) == LAYER["embd"]


def prompt_length():
    done = subprocess.run([BUILD / "bin/lockstep", "tokenize", "--model", model_path(), PROMPT], capture_output=True, text=True)
    return len(done.stdout.split(","))


def test_one_list_of_runs_for_a_token(npu, host):
    """The device is asked once for each token; streams for more keys come from the rules when they are needed; the next
    token's positions are filled in while this one is computed."""
    with start(npu, "--run-ahead=false") as pipeline:
        assert ask(pipeline) == host
        pipeline.stop("npu-worker")
        found = re.search(r"NPU: (\d+) passes, one list of runs each; (\d+) of them with positions prepared while the one before ran; "
                          r"(\d+) sets of instruction streams derived", pipeline.log("npu-worker"))
        passes, prepared, derived = map(int, found.groups())
        first, last = prompt_length(), prompt_length() + TOKENS - 2  # positions of the tokens that were fed back
        assert first < 64 < last
        assert passes == TOKENS  # the prompt is one
        # Not for the first token behind the prompt, nor where a new page begins.
        assert prepared == last - first - len([p for p in range(first + 1, last + 1) if p % 64 == 0])
        assert derived == 2 + last // 64  # the prompt's, and one for each 64 keys
        pipeline.start("npu-worker")
        pipeline.wait_ready()


def test_products_alone(npu, host):
    """A kernel folder without layers for this model: its products, a list of runs per dispatch."""
    with start(npu, kernels="products") as pipeline:
        assert ask(pipeline, max_tokens=8)[0].ids == host[0].ids[:8]
        assert "NPU: products on the device; weights and activations: in place" in pipeline.log("npu-worker")


def test_another_family(npu, host):
    """bfloat16 activations: the host engine and the device's own code agree in every bit, and not with the family of int16."""
    with on_host(npu, "--family", "b16-v1") as pipeline:
        expected = ask(pipeline, max_tokens=12)
        assert "b16-v1" in pipeline.get("/status").data.decode()
    with start(npu, kernels="b16", keeper=("--family", "b16-v1")) as pipeline:
        assert ask(pipeline, max_tokens=12) == expected
        assert "NPU: layers on the device" in pipeline.log("npu-worker")
    assert expected[0].logprobs != host[0].logprobs[:12]


def host_then_npu(npu, model, kernels, keeper=(), **body):
    """The same request to a worker on the host, and to its successor on the NPU; the latter's log."""
    with start(npu, "--prefix-cache=false", device="host", model=model, kernels=kernels, keeper=keeper) as pipeline:
        expected = ask(pipeline, **body)
        pipeline.restart("npu-worker", "--device", "xrt")
        assert ask(pipeline, **body) == expected and len(expected[0].ids) == body["max_tokens"]
        return pipeline.log("npu-worker")


@pytest.mark.parametrize("name", small_models.ALL)
def test_layers_of_other_families(npu, name):
    """Biases, norms of heads and behind branches, gelu, windows with position tables of their own, fused projections, soft-caps;
    types that differ from layer to layer; a prompt longer than a window and than one run of the device."""
    path = small_models.make(name, npu.folder / f"{name}.gguf")
    shapes, head = small_models.layers_of(path)
    write_layers(npu.folder / name, npu.build / "kernels/softnpu.xclbin", shapes, head)
    assert len(shapes) > 1
    assert "NPU: layers on the device" in host_then_npu(npu, path.name, name, prompt=3 * PROMPT, max_tokens=FEW)


def test_layers_without_a_kernel_are_named(npu):
    """With what the folder has instead."""
    shapes, head = small_models.layers_of(small_models.make("gemma3", npu.folder / "plain.gguf"))
    write_layers(npu.folder / "wide-only", npu.build / "kernels/softnpu.xclbin", [shape for shape in shapes if "window" not in shape], head)
    with pipeline_with(model=npu.folder / "plain.gguf",
                       options={"keeper": KEEPER, "npu-worker": ["--device", "host"]}) as pipeline:
        status, text = second(npu, pipeline, "--kernels", npu.folder / "wide-only")
        assert status == 69 and ("none for layer 0 of this model: 128 wide, ffn 192, 4 heads and 2 of keys, each 48, with head_norms and "
                                 "post_norms and gelu, window 70") in text, text


def test_parts_that_begin_within_a_block(npu):
    """Packed weights are blocks of 16 rows. A fused projection whose parts begin elsewhere has no layers: it is said, and products
    compute it, or none can."""
    path, program = small_models.make("phi3_uneven", npu.folder / "uneven.gguf"), npu.build / "kernels/softnpu.xclbin"
    shapes, head = small_models.layers_of(path)
    write_layers(npu.folder / "uneven", program, shapes, head)
    write_layers(npu.folder / "uneven-products", program, shapes, head, products=small_models.products_of(path))
    why = "this model's fused projections have parts that don't begin at a multiple of 16 rows"
    with pipeline_with(model=path, options={"keeper": KEEPER, "npu-worker": ["--device", "host"]}) as pipeline:
        status, text = second(npu, pipeline, "--kernels", npu.folder / "uneven")
        assert status == 69 and why in text, text
    log = host_then_npu(npu, path.name, "uneven-products", max_tokens=FEW)
    assert "NPU: products on the device" in log and f"NPU: no whole layers: {why}" in log


@pytest.mark.skipif(not LONG, reason="the long form")
@pytest.mark.parametrize("name", ["Qwen2.5-Coder-0.5B-Instruct.gguf", "gemma-3-270m-Q4_K_M.gguf"])
def test_the_other_models(npu, name):
    folder, back = npu.folder / name[:5], npu.folder / f"{name[:5]}-back.gguf"
    for source, target in ((model_path(name), folder), (folder, back)):
        subprocess.run([BUILD / "bin/lockstep", "model", "convert", source, target], check=True, capture_output=True)
    shapes, head = small_models.layers_of(back)
    back.unlink()
    write_layers(npu.folder / f"{name[:5]}-kernels", npu.build / "kernels/softnpu.xclbin", shapes, head)
    # Gemma's windows have 512 keys: its prompt is longer.
    more = {"prompt": 13 * PROMPT, "keeper": ("--ctx", 1024)} if name.startswith("gemma") else {}
    log = host_then_npu(npu, folder.name, f"{name[:5]}-kernels", max_tokens=32, **more)
    subprocess.run(["rm", "-rf", folder])
    assert "NPU: layers on the device; weights, activations, KV pages and logits: in place" in log


def come_back(pipeline):
    pipeline.start("npu-worker")
    pipeline.wait_ready()


def test_the_draws_of_a_server_on_the_device(npu, tmp_path):
    """Its sampler's tape, across a worker that was killed: the host's engine computes each row of logits again."""
    tape = tmp_path / "tape"
    with pipeline_with(model=npu.folder / "SmolLM2", env=npu.env(), programs={"npu-worker": npu.worker()},
                       options={"keeper": KEEPER, "sampler": ["--tape", tape],
                                "npu-worker": ["--device", "xrt", "--kernels", npu.folder / "layers", "--device-limit-ms", LIMIT_MS,
                                               "--device-pause-ms", 0]}) as pipeline:
        def disturb():
            pipeline.kill("npu-worker")
            come_back(pipeline)
        answer = go_through(npu, pipeline, disturb, max_tokens=FEW, temperature=0.8, seed=7)
    told = subprocess.run([BUILD / "bin/lockstep", "verify", "tape", tape, "--model", npu.folder / "SmolLM2", "--json"],
                          capture_output=True, text=True)
    told = json.loads(told.stdout)
    assert told["identical"] and told["draws_identical"] == told["redrawn_same"] == len(answer[0].ids) == FEW


def test_killed_and_resumed(npu, host, pipeline):
    def disturb():
        pipeline.kill("npu-worker")
        come_back(pipeline)
    assert go_through(npu, pipeline, disturb, TOKENS // 2) == host
    # Every owner since the first attached to the weights.
    assert pipeline.log("npu-worker").count("packed the weights of") == 1


@pytest.fixture(scope="module")
def short(idle):
    """What the host engine answers, when less is asked for."""
    return ask(idle, max_tokens=FEW)


@pytest.mark.parametrize("fault, said", [
    ("reset", "was reset by the driver: it had hung (state 8)"), ("abort", "was aborted by the driver (state 6)"),
    ("error", "ended with an error (state 5)"), ("hang", f"has not answered for {HANG_MS} ms"),
    ("lost", "was aborted by the driver (state 6)"), ("again", "the NPU takes no command"),
    (f"wrong-weights {BEYOND}", "ended with an error (state 5)"), (f"wrong-word {BEYOND}", "ended with an error (state 5)"),
    ("gone", "the NPU failed, this process leaves")])
def test_a_failing_device_ends_the_worker_and_nothing_else(npu, short, pipeline, fault, said):
    """It leaves with its own status and says why; the next one goes on where it was."""
    def disturb():
        npu.fault(fault)
        status = wait_for_end(pipeline)
        npu.fault()
        assert status == 70 and said in pipeline.log("npu-worker")
        come_back(pipeline)
    if fault == "hang":
        pipeline.restart("npu-worker", "--device-limit-ms", HANG_MS)
    before = pipeline.log("npu-worker").count('"level":"error"')
    assert go_through(npu, pipeline, disturb, max_tokens=FEW) == short
    assert pipeline.log("npu-worker").count('"level":"error"') == before + 1


def test_contexts_of_one_process(npu):
    """A command runs in any context of its program, in none of another program, and in none that is lost."""
    module, kernels = "/build/worker/bin/liblockstep-xrt.so", ("/build/kernels", "/build/other-kernels")
    program = npu.worker()[:-1]
    done = subprocess.run([*program, "/build/worker/bin/contexts_test", module, *(f"{folder}/softnpu.xclbin" for folder in kernels),
                           npu.faults], capture_output=True, text=True, timeout=WAIT_S, env=npu.env())
    npu.fault()
    assert done.returncode == 0 and done.stdout.count("ok: ") == 8, done.stdout + done.stderr


def test_a_program_that_the_streams_are_not_for(npu, short, pipeline):
    """Its context is there, but the first command shows it; a worker with the right program goes on."""
    write_layers(npu.folder / "strange", npu.build / "other-kernels/softnpu.xclbin", [LAYER], SHAPES[-1])
    pipeline.restart("npu-worker", "--kernels", npu.folder / "strange")
    reader = Reader(pipeline, {**BODY, "max_tokens": FEW, "return_token_ids": True})
    assert wait_for_end(pipeline) == 70 and "ended with an error (state 5)" in pipeline.log("npu-worker")
    come_back(pipeline)
    assert reader.finish() == short


def test_a_device_that_slept(npu, host, pipeline):
    """The driver lets an idle device sleep, which forgets its contexts' programs, and wakes it for the next command."""
    worker, slept = pipeline.pid("npu-worker"), npu.said().count("slept")
    npu.fault("idle 300")
    assert ask(pipeline) == host
    time.sleep(1)
    assert ask(pipeline) == host
    assert pipeline.pid("npu-worker") == worker and npu.said().count("slept") > slept


def test_a_device_that_does_not_wake(npu, short, pipeline):
    """As users of some drivers report it: after a while without work the first command hangs until the driver resets the device."""
    npu.fault("oversleep 300")
    time.sleep(1)
    reader = Reader(pipeline, {**BODY, "max_tokens": FEW, "return_token_ids": True})
    assert wait_for_end(pipeline) == 70 and "was reset by the driver: it had hung (state 8)" in pipeline.log("npu-worker")
    npu.fault()
    come_back(pipeline)
    assert reader.finish() == short


def test_a_device_that_writes_late_harms_nobody(npu, short, pipeline):
    """What the killed worker started is finished after its successor began."""
    def disturb():
        npu.fault("late 1500")
        pipeline.kill("npu-worker")
        come_back(pipeline)
        npu.fault()
    assert go_through(npu, pipeline, disturb, max_tokens=FEW) == short


def clear_errors(pipeline):
    for path in pipeline.logs.iterdir():
        kept = [line for line in path.read_text().splitlines() if "the NPU failed, this process leaves" not in line]
        path.write_text("\n".join(kept) + "\n")


def test_the_end_of_the_faults(pipeline):
    """Their errors were wanted: nothing else is left in the logs."""
    clear_errors(pipeline)
    assert '"level":"error"' not in pipeline.log("npu-worker")


def test_without_user_pointers_everything_is_copied(npu, host):
    with start(npu, words=["SOFTNPU_NO_USER_POINTERS=1"]) as pipeline:
        assert ask(pipeline, max_tokens=8)[0].ids == host[0].ids[:8]
        assert "NPU: layers on the device; weights, activations, KV pages and logits: copied" in pipeline.log("npu-worker")


@pytest.mark.parametrize("kernels, dropped", [("products", "activations"), ("layers", "positions"),
                                              ("layers", "results")])
def test_missing_syncs_give_wrong_results(npu, host, kernels, dropped):
    """The software NPU sees what was synced, not what was written: so a forgotten sync would be found."""
    with start(npu, kernels=kernels, words=[f"SOFTNPU_DROP_SYNC={dropped}"]) as pipeline:
        answer = ask(pipeline, max_tokens=8)
        assert len(answer[0].ids) == 8 and answer[0].ids != host[0].ids[:8]


@pytest.mark.parametrize("kernels, fault", [("layers", f"wrong-word {NEXT_ROWS}"), ("layers", "wrong-output 64"),
                                            ("products", "wrong-output 64")])
def test_wrong_addresses_give_wrong_results(npu, host, kernels, fault):
    """The device takes what lies where it is sent: other rows of the weights, or another place for keys, values, logits, products.
    Without the fault the same worker is right again. Addresses outside of every buffer are refused: a failing device, above."""
    with start(npu, "--prefix-cache=false", kernels=kernels) as pipeline:
        npu.fault(fault)
        wrong = ask(pipeline, max_tokens=8)
        npu.fault()
        assert len(wrong[0].ids) == 8 and wrong[0].ids != host[0].ids[:8]
        assert ask(pipeline, max_tokens=8)[0].ids == host[0].ids[:8]


def test_a_storm_of_failures_is_waited_out(npu, short):
    """After the third within a minute the device is left alone for a while, and /ready says so. The two before are written down as
    two workers would have done: however slow the machine is, they are recent. So is the end of a short pause tried, and a long one
    seen."""
    def note_failures(*ago_us):
        folder = next(pathlib.Path(pipeline.dir).rglob("logits")).parent
        now = time.monotonic_ns() // 1000
        (folder / "npu-failures").write_bytes(struct.pack("<3Q", *(now - ago if ago else 0 for ago in ago_us)))

    def fail_and_wait():
        note_failures(0, 2, 1)
        npu.fault("reset")
        assert wait_for_end(pipeline) == 70
        npu.fault()
        pipeline.start("npu-worker")
        until(lambda: "it is left alone for" in pipeline.log("npu-worker"), WAIT_S, "the pause")
        answer = pipeline.request("GET", "/ready")
        assert answer.status == 503 and answer.json["missing"].startswith("npu-worker: the NPU failed again and again")
        pipeline.stop("npu-worker")
        note_failures(3, 2, 1)
        pipeline.start("npu-worker", 0, "--device-pause-ms", 3000)
        pipeline.wait_ready()

    with start(npu, "--device-pause-ms", 600000) as pipeline:
        assert go_through(npu, pipeline, fail_and_wait, max_tokens=FEW) == short
        clear_errors(pipeline)


def second(npu, pipeline, *options, words=(), env=None):
    """Another worker of the same run: (status, what it said)."""
    program = npu.worker(*words)
    done = subprocess.run([str(word) for word in (*program, "--run-dir", pipeline.dir, "--instance", 1, "--device", "xrt",
                                                  "--device-limit-ms", LIMIT_MS, *options)],
                          capture_output=True, text=True, timeout=WAIT_S, env={**npu.env(**(env or {})), **pipeline.env})
    return done.returncode, done.stderr


def test_one_process_owns_the_device(npu, pipeline):
    status, said = second(npu, pipeline, "--kernels", npu.folder / "layers")
    assert status == 69 and "is in use by another worker" in said


def missing(pipeline):
    """What /ready lacks; None: nothing."""
    answer = pipeline.request("GET", "/ready")
    assert answer.status == (503 if "missing" in answer.json else 200)
    return answer.json.get("missing")


@pytest.fixture
def deserted(npu, on_device):
    """The same run without a worker."""
    npu.check_alive()
    if is_alive(on_device):
        on_device.stop("npu-worker")
    on_device.processes.pop(("npu-worker", 0), None)
    return on_device


def test_a_device_that_goes_while_nothing_is_asked(npu, short, pipeline):
    """It is noticed and said before the next request meets it, and is a failure like another; who may compute on the host then does."""
    npu.fault("gone")
    assert wait_for_end(pipeline) == 70
    assert "the NPU failed, this process leaves: the NPU is gone" in pipeline.log("npu-worker")
    assert missing(pipeline).startswith("npu-worker: the NPU failed: the NPU is gone: the driver no longer answers for /dev/accel/accel0")
    assert second(npu, pipeline, "--kernels", npu.folder / "layers")[0] == 69
    assert "the device is gone" in missing(pipeline)
    pipeline.start("npu-worker", 0, "--device", "auto")
    pipeline.wait_ready()
    assert missing(pipeline) is None and ask(pipeline, max_tokens=FEW) == short
    npu.fault()
    pipeline.stop("npu-worker")
    come_back(pipeline)
    clear_errors(pipeline)
    assert missing(pipeline) is None and ask(pipeline, max_tokens=FEW) == short


WITHOUT = ["/usr/bin/setpriv", "--inh-caps=-all"]


@pytest.mark.parametrize("env, words, fault, said", [
    ({"NPU_DRIVER": "missing", "NPU_NODE": "missing"}, [], "", "the amdxdna kernel driver is not loaded"),
    ({"NPU_NODE": "missing"}, [], "", "/dev/accel/accel0 is missing"),
    ({"NPU_NODE": "closed"}, [*WITHOUT, "--bounding-set=-dac_override,-dac_read_search"], "", "add the user to the node's group"),
    ({}, [*WITHOUT, "--bounding-set=-ipc_lock", "/usr/bin/prlimit", "--memlock=8388608"], "", "the memlock limit is 8192 KiB"),
    ({}, [], "contexts 0", "all hardware contexts are taken"),
    ({}, [], "firmware", "the NPU's firmware, 1.0.0.166, doesn't take the program"),
    ({}, [], "gone", "the device is gone")])
def test_what_is_missing_is_named_with_its_remedy(npu, deserted, env, words, fault, said):
    """In the worker's log, and by /ready, for as long as no other worker is there."""
    npu.fault(fault)
    program = npu.worker()
    at = program.index("/build/worker/bin/lockstep-npu-worker")
    command = [*program[:at], *words, *program[at:], "--run-dir", deserted.dir, "--instance", 1, "--device", "xrt", "--kernels",
               npu.folder / "layers"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=WAIT_S,
                          env={**deserted.env, **npu.env(**env)})
    npu.fault()
    assert done.returncode == 69 and said in done.stderr, done.stderr
    assert said in missing(deserted) and missing(deserted).startswith("npu-worker: --device xrt: ")


def test_what_was_missing_is_forgotten(pipeline):
    """When a worker was ready again, what stopped an earlier one is no reason any more."""
    assert pipeline.request("GET", "/ready").status == 200
    pipeline.kill("npu-worker")
    until(lambda: missing(pipeline), WAIT_S, "/ready to miss it")
    assert missing(pipeline) == "npu-worker"


def test_kernels_that_do_not_fit_are_named(npu, idle):
    program = npu.build / "kernels/softnpu.xclbin"
    write_kernels(npu.folder / "few", program, SHAPES[:2])
    write_kernels(npu.folder / "other", program, SHAPES, family="f32-v1")
    write_layers(npu.folder / "narrow", program, [{**LAYER, "heads": 8}], SHAPES[-1])
    write_kernels(npu.folder / "damaged", program, SHAPES, xxh3="0" * 16)
    for words, said in (((), "--kernels names no folder"), (("--kernels", npu.folder / "none"), "no NPU kernels"),
                        (("--kernels", npu.folder / "few"), "it has Q4_1 576x576, Q4_1 192x576"),
                        (("--kernels", npu.folder / "narrow"), "it has layers of 576 wide, ffn 1536, 8 heads and 3 of keys, each 64"),
                        (("--kernels", npu.folder / "other"), "computes f32-v1, the run serves a16-v1"),
                        (("--kernels", npu.folder / "damaged"), "they don't belong together")):
        status, text = second(npu, idle, *words)
        assert status == 69 and said in text, text


def test_no_module_is_named(npu, idle):
    for module, said in (("/nowhere.so", "install XRT 2.25"), ("/build/stale.so", "is of another version than this program")):
        status, text = second(npu, idle, "--kernels", npu.folder / "layers", "--xrt-module", module)
        assert status == 69 and said in text, text


def test_auto_falls_back_and_says_why(npu, short):
    with start(npu, device="auto", env={"NPU_NODE": "missing"}) as pipeline:
        assert ask(pipeline, max_tokens=FEW) == short
        assert "computing on the host: no NPU: " in pipeline.log("npu-worker")


def test_auto_takes_the_npu(npu, host):
    with start(npu, device="auto") as pipeline:
        assert ask(pipeline, max_tokens=8)[0].ids == host[0].ids[:8]
        assert "layers on the device" in pipeline.log("npu-worker")
