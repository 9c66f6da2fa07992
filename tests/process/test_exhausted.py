"""Memory and disks that are full: a clear error for who comes too late, and who runs goes on."""

import contextlib
import os
import pathlib
import subprocess

import pytest

from pipeline import BUILD, Pipeline, model_path, pipeline_with
from streams import Load, Readers, ask, check_back, value, with_stops

ROLES = ("npu-worker", "sampler", "tokenizer", "gateway", "keeper")


@pytest.fixture(scope="module")
def truths(shared):
    return [(body, value(ask(shared, body).events)) for body in with_stops(shared)]


@contextlib.contextmanager
def small_disk(path, size):
    """A file system of that size in memory."""
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "lockstep-test", path], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("only root can mount a file system")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def fill(directory):
    """To the last byte."""
    with open(directory / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    assert os.statvfs(directory).f_bfree == 0


def test_too_little_memory_for_the_segments(tmp_path):
    """The keeper says what it needs and what there is; no process dies later of a page that isn't there."""
    with small_disk(tmp_path / "shm", "64m") as directory:
        done = subprocess.run([BUILD / "bin/lockstep-keeper", "--run-dir", directory / "run", "--model", model_path()],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 78, (done.returncode, done.stderr)
        assert "MiB" in done.stderr and str(directory) in done.stderr, done.stderr
        assert not [path for path in (directory / "run").rglob("*") if path.is_file() and path.stat().st_blocks > 100]


def test_shared_memory_is_full(truths, tmp_path):
    """Everything was reserved at the start: requests run, and what dies comes back."""
    with small_disk(tmp_path / "shm", "1g") as directory:
        with pipeline_with(run_dir=directory / "run") as pipeline:
            with Load(pipeline, truths) as load:
                fill(directory)
                load.go_on()
                for role in ("npu-worker", "sampler", "tokenizer"):
                    pipeline.kill(role)
                    pipeline.start(role)
                    pipeline.wait_ready()
                    load.go_on(3)
            check_back(pipeline)


def test_the_disk_for_logs_is_full(truths, tmp_path):
    with small_disk(tmp_path / "logs", "1m") as directory, pipeline_with() as pipeline:
        fill(directory)
        pipeline.logs, before = pathlib.Path(directory), pipeline.logs
        for role in ROLES:
            pipeline.kill(role)
        for role in ROLES:
            pipeline.start(role)
        pipeline.wait_ready()
        readers = Readers(pipeline, [body for body, _ in truths])
        pipeline.kill("npu-worker")
        pipeline.start("npu-worker")
        assert readers.values() == [truth for _, truth in truths]
        check_back(pipeline)
        assert not any(path.stat().st_size for path in directory.iterdir() if path.name != "filler")
        pipeline.logs = before


def test_too_little_memory_may_be_locked(truths):
    """--lock-memory with a limit below the weights' size: this one doesn't start, by name; the other one goes on."""
    with pipeline_with(options={"npu-worker": ["--lock-memory"]}) as pipeline:
        with Load(pipeline, truths) as load:
            done = subprocess.run(["prlimit", "--memlock=65536:65536", "setpriv", "--bounding-set=-ipc_lock",
                                   BUILD / "bin/lockstep-npu-worker", "--run-dir", pipeline.dir, "--instance", "1", "--lock-memory"],
                                  capture_output=True, text=True, timeout=60)
            assert done.returncode == 78 and "RLIMIT_MEMLOCK is 64 KiB" in done.stderr, (done.returncode, done.stderr)
            load.go_on(3)
        check_back(pipeline)


def test_a_second_keeper_is_refused():
    with pipeline_with() as pipeline:
        done = subprocess.run([BUILD / "bin/lockstep-keeper", "--run-dir", pipeline.dir, "--instance", "0", "--model", model_path()],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode not in (0, 70) and done.stderr, done
        assert isinstance(pipeline, Pipeline) and pipeline.complete("a", max_tokens=1)
