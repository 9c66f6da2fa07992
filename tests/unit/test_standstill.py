"""A test that stands still fails after its limit, says where it stood, and lets the others go on (tests/lib/plugin.py)."""

import os
import pathlib
import subprocess
import sys

LIB = pathlib.Path(__file__).resolve().parents[1] / "lib"
CONFTEST = f"""
import sys
sys.path.insert(0, {str(LIB)!r})
import plugin
from plugin import pytest_runtest_call, pytest_runtest_setup, pytest_runtest_teardown
plugin.PREPARE_S = plugin.TEST_S = 1
"""
TESTS = """
import threading
import pytest

@pytest.fixture
def never_ready():
    threading.Event().wait()

def test_waits():
    threading.Event().wait()

def test_is_never_begun(never_ready):
    pass

def test_joins_a_thread_that_waits():
    thread = threading.Thread(target=wait_for_what_never_comes, daemon=True)
    thread.start()
    thread.join()

def wait_for_what_never_comes():
    threading.Event().wait()

def test_behind_them():
    pass
"""


def test_standstill(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_still.py").write_text(TESTS)
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "--rootdir", tmp_path, "-c", "/dev/null", tmp_path],
                          capture_output=True, text=True, timeout=300, env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    assert "2 failed, 1 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("Failed: it stood still: no end within 1 s") >= 3
    assert "in wait_for_what_never_comes" in done.stdout
