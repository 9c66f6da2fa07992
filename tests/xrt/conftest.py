import pathlib
import subprocess
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))

from npu import LAYER, SHAPES, SoftNpu, write_kernels, write_layers  # noqa: E402
from pipeline import BUILD, model_path  # noqa: E402
from plugin import (pytest_configure, pytest_runtest_call, pytest_runtest_makereport, pytest_runtest_setup,  # noqa: E402, F401
                    pytest_runtest_teardown)


@pytest.fixture(scope="session")
def npu():
    """The device, kernels for the default model, and that model as a Q4NX folder."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-npu-", dir="/dev/shm"))
    npu = SoftNpu(folder)
    program = npu.build / "kernels/softnpu.xclbin"
    write_kernels(folder / "products", program, SHAPES)
    write_layers(folder / "layers", program, [LAYER], SHAPES[-1])
    write_layers(folder / "b16", program, [LAYER], SHAPES[-1], family="b16-v1")
    done = subprocess.run([BUILD / "bin/lockstep", "model", "convert", model_path(), folder / "SmolLM2"], capture_output=True)
    assert done.returncode == 0, done.stderr
    yield npu
    npu.close()
    subprocess.run(["rm", "-rf", folder])
