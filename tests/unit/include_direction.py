"""Holds the direction of includes: a room sees only the rooms before it, and the four services never see each other.

    base  <-  model, grammar, proto, shm  <-  draw, services  <-  tokenizer, sampler, gateway, npu-worker  <-  verify  <-  keeper, cli

The same holds for what a room links (USES in its CMakeLists.txt).
"""

import re
from pathlib import Path

import pytest

LEVELS = [
    ["base"],
    ["model", "grammar", "proto", "shm"],
    ["draw", "services"],
    ["tokenizer", "sampler", "gateway", "npu-worker"],
    ["verify"],
    ["keeper", "cli"],
]
ROOMS = [room for level in LEVELS for room in level]
REPO = Path(__file__).resolve().parents[2]

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
USES = re.compile(r"lockstep_room\([^)]*?\bUSES\b([^)]*)\)", re.DOTALL)


def visible_from(room):
    """The rooms that a file of this room may include: its own and all lower levels."""
    allowed = {room}
    for level in LEVELS:
        if room in level:
            return allowed
        allowed.update(level)
    raise ValueError(f"{room} stands at no level")


def forbidden_includes(room, text):
    """The includes of text, a source file of room, that point the wrong way."""
    bad = []
    for path in INCLUDE.findall(text):
        target = path.split("/")[0] if "/" in path else room
        if ".." in path or target not in visible_from(room):
            bad.append(path)
    return bad


def forbidden_links(room, text):
    rooms = {word.removeprefix("lockstep_") for uses in USES.findall(text) for word in uses.split()}
    return sorted((rooms & set(ROOMS)) - visible_from(room))


def sources(room):
    return sorted(path for path in (REPO / room).rglob("*") if path.suffix in (".c", ".h", ".cpp"))


@pytest.mark.parametrize("room", ROOMS)
def test_includes_point_down(room):
    bad = {
        str(path.relative_to(REPO)): found
        for path in sources(room)
        if (found := forbidden_includes(room, path.read_text()))
    }
    assert not bad, f"a file of {room}/ may include only {sorted(visible_from(room))}: {bad}"


@pytest.mark.parametrize("room", ROOMS)
def test_links_point_down(room):
    lists = REPO / room / "CMakeLists.txt"
    if not lists.exists():
        pytest.skip(f"{room}/ has no CMakeLists.txt")
    assert not forbidden_links(room, lists.read_text())


def test_wrong_directions_are_found():
    assert forbidden_includes("shm", '#include "services/loop.h"\n') == ["services/loop.h"]
    assert forbidden_includes("gateway", '#include "base/err.h"\n#  include "sampler/seq.h"\n') == ["sampler/seq.h"]
    assert forbidden_includes("tokenizer", '#include "../gateway/http.h"\n') == ["../gateway/http.h"]
    assert forbidden_includes("base", '#include "buf.h"\n#include <zmq.h>\n') == []
    assert forbidden_links("shm", "lockstep_room(shm SOURCES a.c USES base services libzmq)") == ["services"]


def test_rooms_exist():
    assert sources("base"), "base/ holds no sources: is the path to the repository right?"
