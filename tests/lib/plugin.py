"""pytest plugin of the suites that start pipelines: `pipeline`, one for all tests of a session; logs with a failure."""

import signal

import pytest

import pipeline as pipelines


def pytest_configure():
    # Like an interrupt: the session ends, and its fixtures clean up.
    signal.signal(signal.SIGTERM, lambda *_: pytest.exit("terminated", 143))


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
