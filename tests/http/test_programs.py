"""Programs as people use them, set up as docs/clients.md says: Continue's command line, aider, and Open WebUI behind its page
in Chromium (js/open-webui.mjs). In the long form alone: each is large, is installed by itself and kept in the cache."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from api import Api, free_port, until
from clients import PARIS, QUESTION, node_program, python_program

HERE = pathlib.Path(__file__).resolve().parent
pytestmark = pytest.mark.skipif(not os.environ.get("LOCKSTEP_LONG"), reason="only with --long")
TOO_LONG = "x " * 9000  # tokens, of a context of 8,192
COUNTERS = {"asked": 'lockstep_requests_total{endpoint="chat_completions"}', "answered": 'lockstep_results_total{code="ok"}',
            "cancelled": 'lockstep_results_total{code="cancelled"}',
            "too_long": 'lockstep_results_total{code="context_length_exceeded"}',
            "prompt": "lockstep_prompt_tokens_total", "answer": "lockstep_generated_tokens_total",
            "events": "lockstep_sse_events_total"}


class Counted:
    """What the server has counted since this was made."""
    def __init__(self, pipeline):
        self.pipeline = pipeline
        self.before = self._read()

    def _read(self):
        # A result that there never was has no line.
        return {key: self.pipeline.metric(name) or 0 for key, name in COUNTERS.items()}

    def so_far(self):
        return SimpleNamespace(**{key: value - self.before[key] for key, value in self._read().items()})


def run(folder, *command, **environment):
    """As a person whose home is the folder runs it there; what comes back, whatever it is."""
    return subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True, timeout=1200, stdin=subprocess.DEVNULL,
                          env={**os.environ, "HOME": str(folder), "BROWSER": "true", **environment})


def of_python(name):
    """A Python program, where there is a Python for it."""
    if not (3, 11) <= sys.version_info < (3, 13):
        pytest.skip(f"NO OLDER PYTHON HERE: {name} runs on 3.11 and 3.12")
    return python_program(name)


def model_of(pipeline):
    return pipeline.get("/v1/models").json["data"][0]["id"]


# ---- Continue

CONTINUE = "@continuedev/cli@1.5.47"
CONFIG = """\
name: Local
version: 1.0.0
schema: v1
models:
  - name: Lockstep
    provider: openai
    model: {model}
    apiBase: {url}/v1
    apiKey: none
    roles: [chat, edit]
    defaultCompletionOptions: {{temperature: 0, maxTokens: 100}}
"""


@pytest.fixture
def cn(pipeline, tmp_path):
    if not shutil.which("npm"):
        pytest.skip("NO NPM HERE: Continue can't be installed")
    (tmp_path / "config.yaml").write_text(CONFIG.format(model=model_of(pipeline), url=pipeline.url))

    def cn(question):
        return run(tmp_path, node_program("cn", CONTINUE), "--config", "config.yaml", "-p", question, CONTINUE_CLI_ENABLE_TELEMETRY="0")
    return cn


def test_continue_answers(pipeline, cn, tmp_path):
    counted = Counted(pipeline)
    done = cn(QUESTION)
    assert (done.returncode, done.stdout.strip()) == (0, PARIS), done.stderr
    # It keeps what it was told of usage. Its tools go with the question.
    sessions = [path for path in (tmp_path / ".continue/sessions").glob("*.json") if path.name != "sessions.json"]
    usage = json.loads(sessions[0].read_text())["history"][-1]["message"]["usage"]
    here = counted.so_far()
    assert (here.asked, here.answered) == (1, 1) and here.events > here.answer == 8
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (here.prompt, 8) and here.prompt > 1000


def test_continue_is_told_that_it_is_too_long(pipeline, cn):
    counted = Counted(pipeline)
    done = cn(TOO_LONG)
    assert (done.returncode, done.stdout) == (1, "") and "maximum context length is 8192" in json.loads(done.stderr)["message"]
    here = counted.so_far()
    assert (here.asked, here.too_long) == (1, 1)


# ---- aider


@pytest.fixture
def aider(pipeline, tmp_path):
    model = f"openai/{model_of(pipeline)}"
    (tmp_path / ".aider.model.metadata.json").write_text(json.dumps({model: {
        "max_input_tokens": 8192, "max_output_tokens": 8192, "input_cost_per_token": 0, "output_cost_per_token": 0,
        "litellm_provider": "openai", "mode": "chat"}}))

    def aider(*words):
        return run(tmp_path, of_python("aider"), "--model", model, "--yes-always", "--no-git", "--no-check-update",
                   "--no-show-release-notes", "--analytics-disable", *words,
                   OPENAI_API_BASE=pipeline.url + "/v1", OPENAI_API_KEY="none")
    return aider


def test_aider_answers(pipeline, aider, tmp_path):
    counted = Counted(pipeline)
    done = aider("--message", QUESTION)
    assert done.returncode == 0, done.stderr
    # What it keeps of the conversation is what it showed.
    kept = (tmp_path / ".aider.chat.history.md").read_text().split(f"#### {QUESTION}", 1)[1].strip()
    answer = re.split(r"\n+> Tokens: ", kept)[0].strip()
    assert answer and answer in done.stdout
    assert re.search(r"Tokens: \d+ sent, [1-9]\d* received", done.stdout)
    here = counted.so_far()
    assert (here.asked, here.answered) == (1, 1) and here.events >= here.answer > 0


def test_aider_knows_that_it_is_too_long(pipeline, aider, tmp_path):
    """It counts before it asks, asks all the same, and takes the refusal for what it is: no retry."""
    (tmp_path / "big.py").write_text("".join(f"def f{i}():\n    return {i}\n\n\n" for i in range(900)))
    counted = Counted(pipeline)
    done = aider("big.py", "--message", "Change f1 to return 7.")
    assert "exceeds the 8,192 token limit" in done.stdout and "has hit a token limit" in done.stdout
    here = counted.so_far()
    assert (here.asked, here.too_long) == (1, 1)


# ---- Open WebUI

CONNECTIONS = {"openai": {"OPENAI_API_BASE_URL": "{url}/v1", "OPENAI_API_KEY": "none"},
               "ollama": {"ENABLE_OPENAI_API": "False", "OLLAMA_BASE_URL": "{url}"}}
SETTINGS = {"DEFAULT_MODEL_METADATA": '{"capabilities": {"builtin_tools": false}}', "DEFAULT_MODEL_PARAMS": '{"temperature": 0}',
            # It asks what the person asks, and nothing else.
            "ENABLE_FOLLOW_UP_GENERATION": "False", "ENABLE_TITLE_GENERATION": "False", "ENABLE_TAGS_GENERATION": "False",
            # One person, without a password; nothing is fetched from elsewhere.
            "WEBUI_AUTH": "False", "OFFLINE_MODE": "True", "HF_HUB_OFFLINE": "1", "RAG_EMBEDDING_MODEL_AUTO_UPDATE": "False"}


def is_healthy(page, process, log):
    assert process.poll() is None, log.read_text()[-3000:]
    try:
        return page.get("/health").status == 200
    except ConnectionError:
        return False


@contextlib.contextmanager
def open_webui(folder, connection):
    """Open WebUI with a database of its own: the process, and its page."""
    page, log = Api(free_port()), folder / "log"
    with open(log, "w") as file:
        process = subprocess.Popen(
            [of_python("open-webui"), "serve", "--host", page.host, "--port", str(page.port)], cwd=folder, stdin=subprocess.DEVNULL,
            stdout=file, stderr=file, env={**os.environ, "HOME": str(folder), "DATA_DIR": str(folder), **SETTINGS, **connection})
    try:
        until(lambda: is_healthy(page, process, log), 600, "Open WebUI")
        yield process, page
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module", params=CONNECTIONS)
def seen(request, shared, tmp_path_factory):
    """What a person saw in a browser, and what the server counted of it. The last answer is cut off by Open WebUI's end."""
    browser = shutil.which("chromium")
    if not browser or not shutil.which("node") or not (HERE / "node_modules/playwright-core").exists():
        pytest.skip("chromium, node or tests/http/node_modules isn't here (tests/run installs them)")
    folder, counted = tmp_path_factory.mktemp("open-webui"), Counted(shared)
    connection = {name: value.format(url=shared.url) for name, value in CONNECTIONS[request.param].items()}
    with open_webui(folder, connection) as (process, page):
        done = subprocess.run(["node", HERE / "js/open-webui.mjs", page.url, shared.url, browser, folder], capture_output=True,
                              text=True, timeout=1200)
        assert done.returncode == 0, done.stderr
        assert not shared.idle(), "the last answer ended too early for this test"
        process.terminate()
        shared.wait_idle()
    return {**json.loads(done.stdout.splitlines()[-1]), "counted": counted.so_far()}


def test_open_webui_shows_model_and_answer(seen, pipeline):
    assert seen["models"] == [model_of(pipeline)] and seen["answer"].strip().endswith(PARIS)


def test_open_webui_stops_an_answer(seen):
    assert len(seen["stopped"]) > 200 and seen["left"] == 0


def test_open_webui_says_that_it_is_too_long(seen):
    assert "maximum context length is 8192" in seen["tooLong"]


def test_open_webui_asks_once_for_each_question_and_leaves_nothing(seen):
    """A question, a story that is stopped, a text that is too long, a story within which Open WebUI ends."""
    here = seen["counted"]
    assert (here.asked, here.answered, here.too_long, here.cancelled) == (4, 1, 1, 2)
    # Nothing was added to the question that was answered.
    assert here.prompt == 37
