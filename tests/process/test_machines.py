"""Two machines, each with a pipeline of its own, behind HAProxy: one dies as a whole in the middle of streams. The machines are
network namespaces; nothing is shared but the model's file and the network."""

import os
import pathlib
import shutil
import subprocess
import time

import pytest

from api import Api, until
from pipeline import pipeline_with
from streams import BASE, COMPLETIONS, Reply, ask, value, with_stops

CONFIG = pathlib.Path(__file__).resolve().parents[2] / "deploy/haproxy/machines.cfg"
PORT = 8080


class Machine:
    """A network namespace with one cable to this one."""

    def __init__(self, number):
        self.name, self.cable = f"lockstep-{os.getpid()}-{number}", f"ls{os.getpid() % 100000}-{number}"
        self.address, here = f"10.213.{number}.2", f"10.213.{number}.1/24"
        self.prefix = ["ip", "netns", "exec", self.name]
        for words in (["ip", "netns", "add", self.name],
                      ["ip", "link", "add", self.cable, "type", "veth", "peer", "name", "eth0", "netns", self.name],
                      ["ip", "addr", "add", here, "dev", self.cable], ["ip", "link", "set", self.cable, "up"],
                      [*self.prefix, "ip", "addr", "add", f"{self.address}/24", "dev", "eth0"],
                      [*self.prefix, "ip", "link", "set", "eth0", "up"], [*self.prefix, "ip", "link", "set", "lo", "up"]):
            subprocess.run(words, check=True)

    def pull_the_cable(self):
        subprocess.run(["ip", "link", "set", self.cable, "down"], check=True)

    def remove(self):
        subprocess.run(["ip", "link", "del", self.cable], check=False)
        subprocess.run(["ip", "netns", "del", self.name], check=False)


@pytest.fixture
def machines():
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("haproxy"):
        pytest.skip("NO MACHINES HERE: network namespaces need root, iproute2 and haproxy")
    made = []
    try:
        for number in (1, 2):
            made.append(Machine(number))
        yield made
    finally:
        for machine in made:
            machine.remove()


def on(machine):
    return pipeline_with(machine=machine, port=PORT, options={"gateway": ["--host", machine.address]})


@pytest.fixture
def balancer(machines):
    port = 18000 + os.getpid() % 900
    env = {**os.environ, "LOCKSTEP_BIND": f"127.0.0.1:{port}", "LOCKSTEP_A": f"{machines[0].address}:{PORT}",
           "LOCKSTEP_B": f"{machines[1].address}:{PORT}"}
    process = subprocess.Popen(["haproxy", "-f", CONFIG], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield Api(port)
    finally:
        process.kill()
        process.wait()


def gone_on(balancer, body, headers, last):
    """The rest, from whoever answers; None while nobody does."""
    reply = Reply(balancer, "POST", COMPLETIONS, body, {**headers, "Last-Event-ID": last})
    if reply.status == 503:
        return None
    assert reply.status == 200, reply.error
    assert reply.read() and reply.ended
    reply.close()
    return reply.events


def test_a_machine_dies(machines, balancer):
    """Its streams break off; their clients come back and have every byte once, computed again by the other machine."""
    with on(machines[0]) as first, on(machines[1]) as second:
        until(lambda: balancer.request("GET", "/ready").status == 200, 30, "HAProxy")
        bodies = [{**body, "max_tokens": 300} for body in with_stops(first)]
        truths = [value(ask(second, body).events) for body in bodies]
        # Drawn without a seed of its own: the key gives it one, the same on every machine.
        unseeded = {**BASE, "prompt": "Once upon a time", "temperature": 1}
        drawn = [value(ask(machine, unseeded, {"Idempotency-Key": "unseeded"}).events) for machine in (first, second)]
        assert drawn[0] == drawn[1]
        headers = [{"Idempotency-Key": f"machine-{i}", "X-Session-ID": f"session-{i}"} for i in range(len(bodies))]
        replies = [Reply(balancer, "POST", COMPLETIONS, *each) for each in zip(bodies, headers)]
        assert all(reply.status == 200 and reply.read(4) for reply in replies)
        running = [pipeline.busy() for pipeline in (first, second)]
        assert all(running), f"sessions are not spread: {running}"
        machines[0].pull_the_cable()
        # Its gateway first: no word of it about the others' end is to be on its way still.
        for role, instance in sorted(first.processes, key=lambda each: each[0] != "gateway"):
            first.kill(role, instance)
        began, moved = time.monotonic(), 0
        for reply, body, header, truth in zip(replies, bodies, headers, truths):
            if not reply.read():
                moved += 1
                rest = until(lambda: gone_on(balancer, body, header, reply.events[-1][0]), 60, "the other machine")
                assert body.get("n", 1) > 1 or len(rest) > 0
                reply.events += rest
            reply.close()
            assert value(reply.events) == truth
        assert moved and time.monotonic() - began < 60
        # What was not begun anywhere is simply sent to who is there.
        assert value(ask(balancer, bodies[0], headers[0] | {"Idempotency-Key": "new"}).events) == truths[0]
