"""The web page in a real browser (js/browser.mjs), before a pipeline of two gateways and two workers, one of each killed."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

from api import free_port
from clients import PARIS
from pipeline import Pipeline

HERE = pathlib.Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    browser = shutil.which("chromium")
    if not browser or not shutil.which("node") or not (HERE / "node_modules/playwright-core").exists():
        pytest.skip("chromium, node or tests/http/node_modules isn't here (tests/run installs them)")
    folder = pathlib.Path(os.environ.get("LOCKSTEP_SHOTS") or tmp_path_factory.mktemp("shots"))
    pipeline = Pipeline(instances={"gateway": 2, "npu-worker": 2}, port=free_port())
    try:
        done = subprocess.run(["node", HERE / "js/browser.mjs", pipeline.url, browser, folder], capture_output=True, text=True,
                              timeout=600)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])
    finally:
        pipeline.remove()


def test_nothing_is_fetched_from_elsewhere_and_nothing_fails(seen):
    assert seen["errors"] == [] and seen["elsewhere"] == []


def test_the_policy_is_strict(seen):
    rules = dict(rule.strip().split(" ", 1) for rule in seen["policy"].split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["frame-ancestors"] == "'none'"
    assert rules["script-src"].startswith("'nonce-") and "unsafe" not in seen["policy"]


def test_an_answer_with_its_probabilities(seen):
    assert seen["answer"] == seen["again"] == PARIS and "SmolLM2" in seen["model"]
    assert seen["copied"] == PARIS
    assert "8 tokens" in seen["foot"] and "tokens/s" in seen["foot"]
    assert "Paris" in seen["tip"] and seen["tip"].count("%") == 5


def test_conversations_are_kept_and_exported(seen):
    assert seen["kept"] == 2 and seen["keptAnswer"]
    assert seen["exported"] == [2, 8, seen["model"]]


def test_stopping_frees_the_slot(seen):
    assert "stopped" in seen["stopped"] and seen["left"] == 0


def test_a_killed_gateway_is_not_noticed(seen):
    text, foot = seen["goneOn"]
    assert text == seen["undisturbed"] and "300 tokens" in foot


def test_dark_and_on_a_phone(seen):
    assert seen["theme"] == "dark" and seen["wide"] <= 390 and seen["pipelineWide"] <= 390


def test_the_pipeline_page_shows_a_death_and_the_hand_over(seen):
    # One gateway was killed before.
    assert seen["processes"] >= 5 and seen["died"]
