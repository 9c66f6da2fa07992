"""pytest plugin of the suites that start pipelines: `pipeline`, one for all tests of a session; logs with a failure; a limit
for tests that stand still."""

import contextlib
import faulthandler
import os
import signal
import sys

import pytest

import pipeline as pipelines


def pytest_configure():
    # Like an interrupt: the session ends, and its fixtures clean up.
    signal.signal(signal.SIGTERM, lambda *_: pytest.exit(f"terminated in {os.environ.get('PYTEST_CURRENT_TEST', 'no test')}", 143))


# What a test waits for has its own limits, of a minute or a few; these are for what has none by mistake. The first
# preparation may make a Debian root.
PREPARE_S, TEST_S = 3000, 3600 if os.environ.get("LOCKSTEP_LONG") else 900


@contextlib.contextmanager
def _limit(seconds):
    """What takes longer fails, with the place where each thread stands."""
    def ring(*_):
        faulthandler.dump_traceback(sys.__stderr__)
        pytest.fail(f"it stood still: no end within {seconds} s")
    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_setup():
    with _limit(PREPARE_S):
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call():
    with _limit(TEST_S):
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown():
    with _limit(TEST_S):
        yield


@pytest.fixture(scope="session")
def shared():
    with pipelines.pipeline_with() as pipeline:
        yield pipeline


@pytest.fixture
def pipeline(shared):
    """The default model with default options. A test leaves it as it was: idle, with every process alive."""
    yield shared
    shared.wait_idle()
    for role, instance in shared.processes:
        shared.check_alive(role, instance)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed:
        for pipeline in pipelines.living:
            report.sections.append((f"logs of {pipeline.dir}", pipeline.last_words()))
