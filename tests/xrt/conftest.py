import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))

from plugin import (pytest_configure, pytest_runtest_call, pytest_runtest_makereport, pytest_runtest_setup,  # noqa: E402, F401
                    pytest_runtest_teardown)
