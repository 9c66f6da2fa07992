"""The software NPU: unmodified XRT over a stand-in for the kernel driver, in a Debian 13 root (tests/xrt)."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

import pipeline as pipelines
from api import until

XRT = pathlib.Path(__file__).resolve().parents[1] / "xrt"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "lockstep"
MAGIC, WORDS, MAX_TOKENS = 0x504e534c, 12, 64
WAIT_S = 300  # for what comes within a few seconds: on a busy machine everything takes its time
pipelines.START_SECONDS = WAIT_S
LIMIT_MS = 120000  # of a dispatch: a busy machine computes a prompt for some seconds
# What the default model has.
SHAPES = [("Q4_1", 576, 576), ("Q4_1", 192, 576), ("Q4_1", 1536, 576), ("Q4_1", 576, 1536), ("Q8_0", 49152, 576)]
LAYER = {"embd": 576, "ffn": 1536, "heads": 9, "kv_heads": 3, "head_dim": 64, "interleaved": True, "types": ["Q4_1"] * 7}
TYPES = {"Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q8_0": 8}


def make_root():
    """(root, build): made once, and what changed in the checkout compiled."""
    if os.geteuid() != 0 or not (shutil.which("debootstrap") or (CACHE / "docker-base/trixie.tar").exists()):
        pytest.skip("NO NPU TESTS HERE: a Debian 13 root needs root and debootstrap")
    made = subprocess.run([XRT / "make-root"], capture_output=True, text=True, timeout=1800)
    assert made.returncode == 0, made.stderr[-3000:]
    root, build = made.stdout.strip(), XRT.parents[1] / "build/xrt"
    done = subprocess.run([XRT / "in-root", root, build, "/src/tests/xrt/build"], capture_output=True, text=True, timeout=1800)
    if done.returncode != 0 and "unshare" in done.stderr:
        pytest.skip("NO NPU TESTS HERE: no mount namespace: " + done.stderr.strip())
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return root, build


def stream(kind, rows, cols):
    """The instruction stream of one token, as tests/xrt/softnpu/product.h has it."""
    def aligned(size):
        return (size + 63) // 64 * 64
    steps = aligned(MAX_TOKENS * cols * 2)
    sums = steps + aligned(MAX_TOKENS * cols // 32 * 4)
    return [MAGIC, 1, TYPES[kind], rows, cols, 1, 0, 0, steps, sums, rows, 0]


ROUNDINGS = {"a16-v1": 0, "b16-v1": 1}
FEATURES = {"qkv_bias": 3, "o_bias": 1, "head_norms": 2, "post_norms": 2, "gelu": 0, "softcap": 0}  # and how many parts each has


def layer_stream(shape, family):
    """A whole layer for one token and 64 keys, as tests/xrt/softnpu/layer.h has it; and where its places are."""
    dims = [shape[name] for name in ("embd", "ffn", "heads", "kv_heads", "head_dim")]
    flags, parts, at = 0, list(range(18, 36, 2)), 39
    for i, (name, count) in enumerate(FEATURES.items()):
        if name in shape.get("with", []):
            flags |= 1 << i
            parts += range(at, at + 2 * count, 2)
        at += 2 * count
    words = [MAGIC, 2, *dims, int(shape["interleaved"]), *(TYPES[t] for t in shape["types"]), 1, 1, 0, *[0] * 18, ROUNDINGS[family],
             flags, shape.get("window", 0), *[0] * 16]
    return {**shape, "words": words, "linear": [{"word": 15, "step": 1}], "keys": [{"word": 16, "keys": 64, "step": 1}], "kv": 17,
            "parts": parts}


def head_stream(kind, rows, cols, family):
    return {"type": kind, "rows": rows, "cols": cols, "words": [MAGIC, 3, TYPES[kind], cols, rows, 1, 0, 0, 0, 0, ROUNDINGS[family]],
            "linear": [{"word": 5, "step": 1}], "parts": [6, 8]}


def write_layers(folder, program, layers, head, family="a16-v1", products=(), **changes):
    """A kernel folder for whole layers of these shapes, and the head (type, rows, cols); with products, likewise."""
    write_kernels(folder, program, products, layers=[layer_stream(layer, family) for layer in layers], head=head_stream(*head, family),
                  family=family, **changes)


def write_kernels(folder, program, shapes, **changes):
    """A kernel folder for products of these (type, rows, cols)."""
    folder.mkdir(exist_ok=True)
    shutil.copy(program, folder / "softnpu.xclbin")
    products = [{"type": kind, "rows": rows, "cols": cols, "words": stream(kind, rows, cols), "linear": [{"word": 5, "step": 1}],
                 "weights": 6, "output": 11} for kind, rows, cols in shapes]
    manifest = {"format": 1, "family": "a16-v1", "program": "softnpu.xclbin", "kernel": "SOFTNPU", "max_tokens": MAX_TOKENS,
                "xxh3": (program.parent / "xxh3").read_text().strip(), **({"products": products} if shapes else {})}
    (folder / "manifest.json").write_text(json.dumps(manifest | changes))


class SoftNpu:
    """The device: a process that outlives its users."""

    def __init__(self, folder):
        self.root, self.build = make_root()
        self.folder, self.faults, self.socket = folder, folder / "faults", folder / "npu.sock"
        self.nodes = 0
        self.dir, self.log = folder, open(folder / "softnpu.log", "wb")
        pipelines.living.append(self)
        self.start()

    def start(self):
        self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *self.inside("/build/softnpu", self.socket, self.faults)],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=self.env())
        until(self.socket.exists, WAIT_S, "the software NPU")

    def env(self, **more):
        """With a device node of its own: the processes that get the same one see each other's lock."""
        self.nodes += 1
        node = self.folder / f"accel0-{self.nodes}"
        node.touch()
        return {**os.environ, "NPU_BIND": f"{self.folder}:{pipelines.MODELS}", "NPU_NODE_FILE": str(node), **more}

    def inside(self, *words):
        return [str(word) for word in (XRT / "in-root", self.root, self.build, *words)]

    def program(self, name, *options):
        """A program that sees the device."""
        return self.inside("/usr/bin/env", "LD_PRELOAD=/build/driver.so", f"SOFTNPU_SOCKET={self.socket}",
                           *[o for o in options if "=" in str(o)], f"/build/worker/bin/{name}")

    def worker(self, *options):
        """The program of a pipeline's npu-worker."""
        return self.program("lockstep-npu-worker", *options)

    def fault(self, words=""):
        temporary = self.folder / "faults.new"
        temporary.write_text(words)
        os.replace(temporary, self.faults)

    def check_alive(self):
        status = self.process.poll()
        assert status is None, f"the software NPU ended with {status}:\n{self.last_words()}"

    def said(self):
        return (self.folder / "softnpu.log").read_text()

    def last_words(self):
        """For the report of a test that failed."""
        return "---- softnpu\n" + self.said()[-2000:]

    def close(self):
        pipelines.living.remove(self)
        try:
            self.check_alive()
        finally:
            self.process.kill()
            self.process.wait()
            self.log.close()


def wait_for_end(pipeline, role="npu-worker"):
    """Its exit status, when it ends by itself."""
    process = pipeline.processes.pop((role, 0))
    try:
        return process.wait(WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
