"""What the tests with foreign clients share: questions with known answers, and environments for what is too large for
tests/requirements.txt, made once and kept in the cache."""

import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "lockstep"
QUESTION, PARIS = "What is the capital of France?", "The capital of France is Paris."
STORY = "Tell me a story."


def kept(name, version, make):
    """The folder NAME-HASH in the cache, made by make(folder) unless it is complete. One maker at a time."""
    folder = CACHE / f"{name}-{hashlib.sha256(version.encode()).hexdigest()[:12]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    if (folder / "complete").exists():
        return folder
    with open(CACHE / f".{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            (folder / "complete").touch()
    return folder


def python_with(requirements):
    """The interpreter of a virtual environment that has what the file lists."""
    def make(folder):
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        # Most of it is never imported, so nothing is compiled here.
        subprocess.run([folder / "bin/pip", "install", "-q", "--no-compile", "--disable-pip-version-check", "-r", requirements],
                       check=True)
    return kept("venv", sys.version + requirements.read_text(), make) / "bin/python"


def lm_eval_python():
    return python_with(HERE.parent / "http/requirements-lm-eval.txt")


def python_program(name):
    """The command NAME of a virtual environment that has what http/requirements-NAME.txt lists."""
    return python_with(HERE.parent / f"http/requirements-{name}.txt").with_name(name)


def node_program(name, package):
    """The command NAME of an npm package, which has a folder of its own."""
    def make(folder):
        subprocess.run(["npm", "install", "--prefix", folder, "--no-fund", "--no-audit", package], check=True)
    return kept("node", package, make) / "node_modules/.bin" / name


if __name__ == "__main__":  # to have it made beside other work
    lm_eval_python()
