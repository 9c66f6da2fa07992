"""Runs `lockstep tokenize` and `lockstep detokenize` on many inputs at once."""
import json
import os
import pathlib
import shlex
import subprocess

REPO = pathlib.Path(__file__).resolve().parents[3]


def command():
    """LOCKSTEP_TOKENIZE, by default "build/release/bin/lockstep tokenize"; without the last word, which is a parameter here."""
    if "LOCKSTEP_TOKENIZE" in os.environ:
        words = shlex.split(os.environ["LOCKSTEP_TOKENIZE"])
        return words[:-1] if words[-1] == "tokenize" else words
    build = REPO / os.environ.get("LOCKSTEP_BUILD", "build/release")
    lockstep = build / "bin" / "lockstep"
    return [str(lockstep if lockstep.exists() else build / "test" / "lockstep-tok-test")]


def run(word, model, values, *flags):
    """One JSON value per line in, one per line out."""
    lines = "".join(json.dumps(value) + "\n" for value in values)
    done = subprocess.run([*command(), word, "--model", model, "--json", *flags], input=lines.encode(),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def tokenize(model, texts, *flags):
    return run("tokenize", model, texts, *flags)


def detokenize(model, lists, *flags):
    return run("detokenize", model, lists, *flags)
