import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))

from plugin import pytest_configure, pytest_runtest_makereport  # noqa: E402, F401
