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
    return subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True, timeout=120, **more).stdout


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
    done = subprocess.run(["lintian", package], capture_output=True, text=True, timeout=120)
    assert not [line for line in done.stdout.splitlines() if line.startswith("E:")] and done.returncode == 0, done.stdout


def test_its_fields(package):
    fields = dict(line.split(": ", 1) for line in output("dpkg-deb", "-f", package).splitlines() if ": " in line)
    assert fields["Package"] == "lockstep" and re.fullmatch(r"\d+\.\d+\.\d+", fields["Version"])
    assert all(library in fields["Depends"] for library in ("libc6", "libzmq5", "libssl3", "adduser"))
    assert "/usr/lib/systemd/system/lockstep-gateway@.service" in output("dpkg-deb", "-c", package)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_page_has_every_option(root, name):
    page = output("gzip", "-dc", root / f"usr/share/man/man1/{name}.1.gz").replace("\\-", "-")
    words = [[name]] if name != "lockstep" else [[name, command] for command in ("status", "generate", "chat", "bench")]
    for words in words:
        options = re.findall(r"^  (--[a-z-]+)", output(root / "usr/bin" / words[0], *words[1:], "--help"), re.M)
        assert len(options) >= 3 and all(f".B {option}" in page for option in options), (words, options)


def complete(root, *words):
    script = ('. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lockstep "$1"; printf "%s\\n" "${COMPREPLY[@]}"')
    return output("bash", "-c", script, root / "usr/share/bash-completion/completions/lockstep", *words).split()


def test_completion(root):
    program = root / "usr/bin/lockstep"
    assert complete(root, program, "st") == ["status"]
    assert set(complete(root, program, "status", "--")) >= {"--json", "--watch"}
    assert complete(root, f"{program}-gateway", "--api") == ["--api-keys"]
