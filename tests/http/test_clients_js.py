"""Clients as users have them, in JavaScript: openai, LangChain, Vercel's AI SDK. One run of a script in js/ asks all of its
questions; the tests look at what it got."""

import json
import pathlib
import shutil
import subprocess

import pytest

from clients import PARIS

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = ("openai", "langchain", "ai-sdk")


@pytest.fixture(scope="module")
def results(shared):
    if not shutil.which("node") or not (HERE / "node_modules").exists():
        pytest.skip("node or tests/http/node_modules isn't here (tests/run makes it)")
    model = shared.get("/v1/models").json["data"][0]["id"]
    found = {}
    for script in SCRIPTS:
        done = subprocess.run(["node", HERE / "js" / f"{script}.mjs", shared.url + "/v1", model], capture_output=True, text=True,
                              timeout=240)
        assert done.returncode == 0, done.stderr
        found[script] = json.loads(done.stdout.splitlines()[-1])
    shared.wait_idle()
    return found


@pytest.fixture(params=SCRIPTS)
def got(request, results):
    return results[request.param]


def test_chat(got):
    assert got["chat"] == {"text": PARIS, "finish": "stop", "usage": [37, 8]}


def test_stream(got):
    assert got["stream"]["text"] == PARIS and got["stream"]["n"] >= 7 and got["stream"]["usage"] == [37, 8]


def test_stop(got):
    assert got["stop"] == {"text": "The capital of France is "}


def test_logprobs(got):
    assert "".join(token for token, _, _ in got["logprobs"][:7]) == PARIS
    assert all(logprob < 0 and n == 2 for _, logprob, n in got["logprobs"]) and len(got["logprobs"]) == 8


def test_choices(results):
    for script in ("openai", "langchain"):
        first, second = results[script]["n"]
        assert first == second and len(set(first)) == 3
    assert results["ai-sdk"]["n"] == results["openai"]["n"][0]
    one, same, other = results["ai-sdk"]["seed"]
    assert one == same != other


def test_completions(results):
    assert results["openai"]["completions"]["text"].startswith("The capital")
    assert results["openai"]["completions"]["logprobs"][0] is None and len(results["openai"]["completions"]["logprobs"]) == 4
    assert results["langchain"]["completions"]["text"].startswith(" Paris")
    # This client makes a dialogue of its own of the prompt.
    assert "capital of France" in results["ai-sdk"]["completions"]["text"]


def test_errors(got):
    assert got["wrong"]["status"] == 400 and "temperature" in got["wrong"]["message"]
    assert got["unknownModel"]["status"] == 404
    assert "8192" in got["tooLong"]["message"]


def test_errors_are_known_by_their_codes(results):
    openai = results["openai"]
    assert openai["wrong"]["error"] == "BadRequestError" and openai["wrong"]["param"] == "temperature"
    assert openai["unknownModel"]["code"] == "model_not_found" and openai["tooLong"]["code"] == "context_length_exceeded"
    assert results["ai-sdk"]["wrong"]["error"].endswith("APICallError") and results["ai-sdk"]["tooLong"]["status"] == 400
    # By its code: whoever has a class of its own for it shortens the conversation.
    assert results["langchain"]["tooLong"]["error"] == "ContextOverflowError"


def test_others(results):
    assert results["openai"]["helper"] == {"text": PARIS} and len(results["openai"]["models"]) == 1
    assert results["langchain"]["batch"] == [PARIS] * 6
    assert results["openai"]["leaves"] == results["ai-sdk"]["leaves"] == "left"
