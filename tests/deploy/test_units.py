"""The systemd units: each role's own filters, rated by systemd, and against what its process really does: every system call that
it makes while it answers is one that its unit allows, sockets are of the families that it may use, and no memory is both
writable and executable."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests/lib"))

from api import user  # noqa: E402
from pipeline import BUILD, Pipeline  # noqa: E402

ROLES = ("keeper", "gateway", "tokenizer", "npu-worker", "sampler")


def unit(role):
    path, = (REPO / "deploy/systemd").glob(f"lockstep-{role}*.service")
    return path


def settings(role, name):
    return re.findall(rf"^{name}=(.*)$", unit(role).read_text(), re.M)


def sets():
    """{"@name": its system calls and sets}, as this machine's systemd knows them."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze isn't here (tests/packages.txt)")
    text = subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager"], check=True, capture_output=True, text=True).stdout
    found, name = {}, None
    for line in text.splitlines():
        if line.startswith("@"):
            name = line.strip()
            found[name] = []
        elif name and (word := line.strip()) and not word.startswith("#"):
            found[name].append(word)
    return found


def members(known, word):
    if not word.startswith("@"):
        return {word}
    return {call for each in known[word] for call in members(known, each)}


def allowed(role, known):
    """As systemd reads the lines: the first one makes it a list of what is allowed, those with ~ take away."""
    calls = set()
    for line in settings(role, "SystemCallFilter"):
        of = {call for word in line.lstrip("~").split() for call in members(known, word)}
        calls = calls - of if line.startswith("~") else calls | of
    return calls


@pytest.mark.parametrize("role", ROLES)
def test_systemd_rates_them(role):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze isn't here (tests/packages.txt)")
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", unit(role)], capture_output=True, text=True)
    level = float(re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)[1])
    # 10 is a unit without any restriction.
    assert level <= 2, done.stdout


def test_only_the_gateway_may_reach_a_network():
    for role in ROLES:
        families = set(" ".join(settings(role, "RestrictAddressFamilies")).split())
        alone = settings(role, "PrivateNetwork") == ["yes"] and settings(role, "IPAddressDeny") == ["any"]
        assert (families == {"AF_UNIX"} and alone) == (role != "gateway"), role
    assert settings("gateway", "SocketBindAllow") == ["tcp"]


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """{role: what strace saw} of a pipeline that answers, refuses, and ends."""
    strace = shutil.which("strace")
    if not strace or subprocess.run([strace, "-qq", "-o", "/dev/null", "true"]).returncode:
        pytest.skip("strace isn't here, or may not trace")
    folder = tmp_path_factory.mktemp("strace")
    programs = {role: [strace, "-D", "-f", "-qq", "-s", "0", "-o", folder / role, BUILD / f"bin/lockstep-{role}"] for role in ROLES}
    pipeline = Pipeline(programs=programs, options={"gateway": ["--otlp-endpoint", "http://127.0.0.1:1"]})
    try:
        pipeline.chat(user("Hello"), max_tokens=4)
        assert pipeline.events("/v1/chat/completions", messages=user("Hello"), max_tokens=4, guided_regex="[a-z]+")
        assert pipeline.request("POST", "/v1/chat/completions", b"{").status == 400
        assert pipeline.request("GET", "/metrics").status == 200
        pipeline.post("/v1/embeddings", input="a")
        for role in reversed(ROLES):
            pipeline.stop(role)
        return {role: (folder / role).read_text(errors="replace") for role in ROLES}
    finally:
        pipeline.remove()


@pytest.mark.parametrize("role", ROLES)
def test_what_a_process_does_is_allowed(traces, role):
    known = sets()
    may, calls = allowed(role, known), set(re.findall(r"^\d+ +(?:<\.\.\. )?(\w+)[ (]", traces[role], re.M))
    assert len(calls) > 20 and "ptrace" not in may and "mount" not in may
    # Before the program itself runs: systemd's own.
    assert calls - may - {"execve", "exit_group", "resumed"} == set()


@pytest.mark.parametrize("role", ROLES)
def test_its_sockets_and_memory_are_allowed(traces, role):
    families = set(re.findall(r"\bsocket(?:pair)?\((AF_\w+)", traces[role]))
    assert families and families <= set(" ".join(settings(role, "RestrictAddressFamilies")).split())
    both = [line for line in traces[role].splitlines() if re.search(r"\b(?:mmap|mprotect)\(.*PROT_WRITE.*PROT_EXEC", line)]
    assert both == [] and settings(role, "MemoryDenyWriteExecute") == ["yes"]


@pytest.fixture
def of_several(tmp_path):
    """The units of a pipeline that is one of several, and the file's that they share."""
    done = subprocess.run([REPO / "deploy/systemd/pipeline", "tiny_1", tmp_path], check=True, capture_output=True, text=True)
    assert "lockstep-tiny_1.target" in done.stdout
    shutil.copy(REPO / "deploy/systemd/lockstep-models.service", tmp_path)
    return {path.name: path for path in tmp_path.iterdir()}


def test_units_of_one_of_several_pipelines(of_several):
    """They name each other and no plain unit; programs and filters are the plain units'."""
    names = {f"lockstep-tiny_1-{role}{'' if role == 'keeper' else '@'}.service" for role in ROLES}
    assert set(of_several) == names | {"lockstep-tiny_1.target", "lockstep-models.service"}
    for name in names | {"lockstep-tiny_1.target"}:
        text = of_several[name].read_text()
        named = re.findall(r"lockstep[-.\w]*(?:@\w*)?\.(?:service|target)", text)
        assert {re.sub("@.*service", "@.service", other) for other in named} <= set(of_several), name
        assert "lockstep-models.service" in named
    for role in ROLES:
        mine = of_several[f"lockstep-tiny_1-{role}{'' if role == 'keeper' else '@'}.service"].read_text().splitlines()
        changed = {line.split("=")[0] for line in set(mine) ^ set(unit(role).read_text().splitlines())}
        assert changed <= {"After", "Wants", "PartOf", "WantedBy", "Description", "Environment", "EnvironmentFile"}, role
        assert any(line.startswith("Environment=LOCKSTEP_RUN_DIR=/dev/shm/lockstep-models/tiny_1 ") for line in mine), role
    # A request is handed over by these.
    assert {"sendmsg", "recvmsg", "memfd_create", "unlink", "bind"} <= allowed("gateway", sets())


def test_systemd_knows_every_word_of_them(of_several):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze isn't here (tests/packages.txt)")
    for path in of_several.values():
        # The programs aren't installed here.
        path.write_text(re.sub(r"^ExecStart=/usr/bin/lockstep-\S+", "ExecStart=/bin/true", path.read_text(), flags=re.M))
    names = [name.replace("@.", "@0.") for name in of_several]
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *names], capture_output=True, text=True,
                          env={"SYSTEMD_UNIT_PATH": f"{path.parent}:", "PATH": "/usr/bin:/bin"})
    assert done.returncode == 0 and done.stderr == "", done.stderr


def test_a_pipelines_name_is_checked(tmp_path):
    for name in ("", "a/b", "a-b", "models", "x" * 41):
        assert subprocess.run([REPO / "deploy/systemd/pipeline", name, tmp_path], capture_output=True).returncode == 64
    assert not list(tmp_path.iterdir())
