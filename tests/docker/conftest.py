import os
import pathlib
import shutil
import sys

import pytest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1] / "lib")]

from compose import BASE_IMAGE, IMAGE, NPU_IMAGE, Engine, base_root  # noqa: E402


@pytest.fixture(scope="session")
def engine():
    missing = [name for name in ("dockerd", "docker", "docker-compose", "debootstrap") if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        pytest.skip(f"NO DOCKER TESTS HERE: {'missing ' + ', '.join(missing) if missing else 'they need root'} (tests/docker/README.md)")
    engine = Engine()
    try:
        if why := engine.start():
            pytest.skip(f"NO DOCKER TESTS HERE: a Docker engine can't run: {why}")
        yield engine
    finally:
        engine.close()


@pytest.fixture(scope="session")
def image(engine):
    with open(base_root(), "rb") as archive:
        engine.docker("import", "-", BASE_IMAGE, stdin=archive, timeout=300)
    return engine.build("deploy/Dockerfile", IMAGE)


@pytest.fixture(scope="session")
def npu_image(engine, image):
    return engine.build("deploy/Dockerfile.npu", NPU_IMAGE, "--build-arg", f"IMAGE={IMAGE}")
