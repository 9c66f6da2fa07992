"""What deploy/compose.yaml has for some deployments only: the NPU's worker, and API keys."""

import os
import pathlib
import resource
import tempfile

import pytest

from api import until
from compose import NPU_IMAGE, ROLES, SUITE, Stack

KEY = "sk-of-the-docker-test"
LARGEST_IMAGE_MB = 400
UID = 10001
# Where even root may not raise it, the limit that is there.
MEMLOCK = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
CHAT = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0}


@pytest.fixture(scope="module")
def stack(engine, npu_image):
    """No NPU is here: the node that its worker gets is another device's."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        keys = pathlib.Path(folder) / "keys"
        keys.write_text(f"alice {KEY}\n")
        os.chown(keys, UID, UID)
        keys.chmod(0o400)
        stack = Stack(engine, "compose.keys.yaml", LOCKSTEP_KEYS=str(keys), COMPOSE_PROFILES="npu", LOCKSTEP_NPU_IMAGE=NPU_IMAGE,
                      LOCKSTEP_NPU_NODE="/dev/null", LOCKSTEP_NPU_GROUP="4242", LOCKSTEP_KERNELS=folder,
                      LOCKSTEP_NPU_MEMLOCK=str(MEMLOCK), LOCKSTEP_WORKER_CPUS="1", LOCKSTEP_THREADS="0")
        with stack.running():
            yield stack


def test_the_npu_is_its_workers_alone(stack):
    for container in stack.containers():
        service, host = container["Config"]["Labels"]["com.docker.compose.service"], container["HostConfig"]
        devices = [device["PathInContainer"] for device in host["Devices"] or []]
        limits = {limit["Name"]: (limit["Soft"], limit["Hard"]) for limit in host["Ulimits"] or []}
        is_npu = service == "npu"
        assert devices == (["/dev/accel/accel0"] if is_npu else []), service
        assert (host["GroupAdd"] or []) == (["4242"] if is_npu else []), service
        assert limits == ({"memlock": (MEMLOCK, MEMLOCK)} if is_npu else {}), service
        assert (container["Config"]["Image"] == NPU_IMAGE) == is_npu, service
        assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"], service


def test_nothing_limits_what_the_npu_locks(stack, monkeypatch):
    monkeypatch.delitem(stack.env, "LOCKSTEP_NPU_MEMLOCK")
    assert "memlock: -1" in stack.compose("config")


def test_without_an_npu_the_worker_says_so_and_the_others_answer(stack):
    until(lambda: any(container["State"]["ExitCode"] == 69 for container in stack.containers("npu")), 60, "its end")
    # The node can be opened here, being another device's: what is looked for next is what is missing.
    reason = "the memlock limit is" if MEMLOCK != resource.RLIM_INFINITY else "/kernels"
    assert reason in stack.compose("logs", "npu")
    answer = stack.request("POST", "/v1/chat/completions", CHAT, {"Authorization": f"Bearer {KEY}"})
    assert answer.json["choices"][0]["message"]["content"] == "The capital of France is Paris."


def test_its_image_has_xrt(stack, npu_image, capsys):
    """All that the module and its plug-in need is there; loading them is for a machine with the driver."""
    megabytes = npu_image["Size"] / 1e6
    with capsys.disabled():
        print(f"\nimage with XRT: {megabytes:.0f} MB on {SUITE}")
    assert megabytes < LARGEST_IMAGE_MB
    assert npu_image["Config"]["User"] == "10001:10001"
    said = stack.engine.docker("run", "--rm", "--network", "none", "--entrypoint", "ldd", NPU_IMAGE, "/usr/local/bin/liblockstep-xrt.so")
    assert "libxrt_coreutil.so.2" in said and "not found" not in said
    plugin = stack.engine.docker("run", "--rm", "--network", "none", "--entrypoint", "sh", NPU_IMAGE, "-c", "ls /usr/lib/*/libxrt_driver_xdna.so*")
    assert "libxrt_driver_xdna.so" in plugin


def test_keys_are_the_gateways_alone(stack):
    assert stack.request("POST", "/v1/chat/completions", CHAT).status == 401
    for container in stack.containers():
        service = container["Config"]["Labels"]["com.docker.compose.service"]
        secrets = {mount["Destination"]: mount["RW"] for mount in container["Mounts"] if mount["Destination"].startswith("/run/secrets")}
        assert secrets == ({"/run/secrets/api-keys": False} if service == "gateway" else {}), service
        assert KEY not in str(container), "a key stands in what Docker tells of a container"


def test_processors_are_limited_and_the_worker_knows(stack):
    cpus = {c["Config"]["Labels"]["com.docker.compose.service"]: c["HostConfig"]["NanoCpus"] / 1e9 for c in stack.containers()}
    assert cpus == {name: 1 for name in (*ROLES, "haproxy", "npu")}
    assert ", 1 threads" in stack.compose("logs", "npu-worker"), "more threads than its limit lets run"
