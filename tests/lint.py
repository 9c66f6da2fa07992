"""Runs clang-tidy over the files of a compile_commands.json, newest changes first, within a time budget.

A file that passed is remembered by a hash of what the compiler would see of it, so only changes cost time.
"""

import argparse
import concurrent.futures
import hashlib
import json
import shlex
import subprocess
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
# clang doesn't know every warning of gcc; what a library's header does isn't ours.
LINES = {".h": 150, ".c": 600, ".py": 600}  # docs/contributing.md
LONGER = {"shm/layout.h"}  # every struct that crosses a process, in one place
EXTRA = ["--quiet", "--extra-arg=-Wno-unknown-warning-option", "--extra-arg=-Wno-error"]


def output(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, cwd=REPO, **options).stdout


def tracked_sources(build):
    """Absolute paths of the repository's own compiled files, last changed first."""
    compiled = {entry["file"]: entry for entry in json.loads((build / "compile_commands.json").read_text())}
    tracked = {str(REPO / name) for name in output("git", "ls-files", "*.c", text=True).split()}
    history = output("git", "log", "-n", "200", "--name-only", "--format=", "--", "*.c", text=True).split()
    newest = {str(REPO / name): -at for at, name in enumerate(reversed(history))}
    return compiled, sorted(tracked & compiled.keys(), key=lambda path: (newest.get(path, 1), path))


def too_long():
    for name in output("git", "ls-files", *(f"*{ending}" for ending in LINES), text=True).split():
        lines, most = (REPO / name).read_bytes().count(b"\n"), LINES[Path(name).suffix]
        if lines > most and name not in LONGER:
            yield f"{name} has {lines} lines, more than {most}: two files with a name each are easier to find one's way in"


def fingerprint(entry, version):
    """Hash of the preprocessed file, the configuration and the linter, or None when it doesn't preprocess."""
    words, command = iter(shlex.split(entry["command"])), []
    for word in words:
        if word in ("-o", "-c"):
            next(words) if word == "-o" else None
            continue
        command.append(word)
    seen = subprocess.run([*command, "-E", "-P"], capture_output=True, cwd=entry["directory"])
    if seen.returncode:
        return None
    parts = [seen.stdout, Path(entry["file"]).read_bytes(), (REPO / ".clang-tidy").read_bytes(), version]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def lint(path, entry, options, version, deadline):
    if time.monotonic() > deadline:
        return path, "skipped", ""
    mark = fingerprint(entry, version)
    if mark and (options.cache / mark).exists():
        return path, "passed", ""
    done = subprocess.run(["clang-tidy", *EXTRA, "-p", options.build, path], capture_output=True, text=True, cwd=REPO)
    if done.returncode:
        return path, "failed", done.stdout + done.stderr
    if mark:
        (options.cache / mark).touch()
    return path, "passed", ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--counts", type=Path, required=True, help="gets: passed failed skipped")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    version = output("clang-tidy", "--version")
    deadline = time.monotonic() + options.seconds
    compiled, paths = tracked_sources(options.build)
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for path, verdict, text in pool.map(lambda p: lint(p, compiled[p], options, version, deadline), paths):
            counts[verdict] += 1
            if verdict != "passed":
                print(f"{verdict}: {Path(path).relative_to(REPO)}\n{text}", flush=True)
    for text in too_long():
        counts["failed"] += 1
        print(f"failed: {text}", flush=True)
    options.counts.write_text("{passed} {failed} {skipped}\n".format(**counts))
    raise SystemExit(1 if counts["failed"] else 0)


main()
