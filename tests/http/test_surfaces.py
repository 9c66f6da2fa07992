"""Anthropic's messages, Ollama's API and OpenAI's responses, by their official clients: the same answers as from the chat
endpoint, byte for byte also when processes die on the way."""

import json
import re
import urllib.request

import anthropic
import ollama
import openai
import pytest

from api import until, user
from clients import PARIS, QUESTION, STORY
from pipeline import pipeline_with
from echo_gateway import gateway_with
from test_security import ALICE, BOB, bearer, keys, second_gateway  # noqa: F401

GREEDY = {"temperature": 0}
# The newest client has no argument for it.
CLAUDE = {"extra_body": GREEDY}


@pytest.fixture
def model(pipeline):
    return pipeline.get("/v1/models").json["data"][0]["id"]


@pytest.fixture
def claude(pipeline):
    with anthropic.Anthropic(base_url=pipeline.url, api_key="none", max_retries=0, timeout=120) as client:
        yield client


@pytest.fixture
def llama(pipeline):
    return ollama.Client(host=pipeline.url, timeout=120)


@pytest.fixture(scope="module")
def keeping():
    """Of its own: kept responses are no idle slots."""
    with pipeline_with() as pipeline:
        yield pipeline


@pytest.fixture
def client(keeping):
    with openai.OpenAI(base_url=keeping.url + "/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


@pytest.fixture
def served(keeping):
    return keeping.get("/v1/models").json["data"][0]["id"]


# ---- Anthropic

def test_anthropic(claude, model):
    answer = claude.messages.create(model=model, max_tokens=100, messages=user(QUESTION), **CLAUDE)
    assert [block.text for block in answer.content] == [PARIS] and answer.role == "assistant" and answer.type == "message"
    assert (answer.stop_reason, answer.stop_sequence) == ("end_turn", None) and answer.id.startswith("msg_")
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (37, 8)


def test_anthropic_streams(claude, model):
    with claude.messages.stream(model=model, max_tokens=100, messages=user(QUESTION), **CLAUDE) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    assert "".join(pieces) == final.content[0].text == PARIS and len(pieces) == 7
    assert (final.stop_reason, final.usage.input_tokens, final.usage.output_tokens) == ("end_turn", 37, 8)
    kinds = [event.type for event in claude.messages.create(model=model, max_tokens=3, messages=user(QUESTION), stream=True)]
    assert kinds == ["message_start", "content_block_start", *["content_block_delta"] * 3, "content_block_stop",
                     "message_delta", "message_stop"]


def test_anthropic_ends(claude, model):
    ask = {"model": model, "messages": user(QUESTION), **CLAUDE}
    cut = claude.messages.create(max_tokens=3, **ask)
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 3)
    stopped = claude.messages.create(max_tokens=99, stop_sequences=["never", " Paris"], **ask)
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", " Paris")
    assert stopped.content[0].text == "The capital of France is"


def test_anthropic_is_the_same_chat(pipeline, claude, model):
    turns = [*user("Name a color."), {"role": "assistant", "content": "Blue."}, *user("Another one.")]
    chat = pipeline.chat([{"role": "system", "content": "Be brief."}, *turns], max_tokens=30, **GREEDY)
    parts = [{**turn, "content": [{"type": "text", "text": turn["content"], "cache_control": {"type": "ephemeral"}}]}
             for turn in turns]
    for messages, system in ((turns, "Be brief."), (parts, [{"type": "text", "text": "Be brief."}])):
        ask = {"model": model, "messages": messages, "system": system}
        answer = claude.messages.create(max_tokens=30, **ask, **CLAUDE)
        assert answer.content[0].text == chat["choices"][0]["message"]["content"]
        assert answer.usage.input_tokens == chat["usage"]["prompt_tokens"]
        assert claude.messages.count_tokens(**ask).input_tokens == chat["usage"]["prompt_tokens"]


@pytest.mark.parametrize("more, error, words", [
    ({"model": "other"}, anthropic.NotFoundError, "does not exist"),
    ({"extra_body": {"temperature": 7}}, anthropic.BadRequestError, "temperature must be"),
    ({"messages": []}, anthropic.BadRequestError, "at least one"),
    ({"messages": [{"role": "system", "content": "x"}]}, anthropic.BadRequestError, "user or assistant"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, anthropic.BadRequestError, "only parts"),
    ({"stop_sequences": [""]}, anthropic.BadRequestError, "stop_sequences: stop"),
    ({"max_tokens": 10 ** 9}, anthropic.BadRequestError, "context"),
])
def test_anthropic_errors(claude, model, more, error, words):
    with pytest.raises(error, match=words) as caught:
        claude.messages.create(**{"model": model, "max_tokens": 9, "messages": user("a"), **more})
    assert caught.value.body["type"] == "error" and caught.value.body["error"]["type"] in (
        "invalid_request_error", "not_found_error")


# ---- Ollama

def test_ollama(llama, model):
    for name in (model, model + ":latest"):
        answer = llama.chat(name, user(QUESTION), options=GREEDY)
        assert answer.message.content == PARIS and answer.done and answer.done_reason == "stop"
        assert (answer.prompt_eval_count, answer.eval_count) == (37, 8) and answer.model == model
        assert answer.total_duration >= answer.eval_duration > 0
    parts = list(llama.chat(model, user(QUESTION), options=GREEDY, stream=True))
    assert "".join(part.message.content for part in parts) == PARIS
    assert [part.done for part in parts] == [False] * 7 + [True]


def test_ollama_generate(pipeline, llama, model):
    assert llama.generate(model, QUESTION, options=GREEDY).response == PARIS
    parts = list(llama.generate(model, QUESTION, options={**GREEDY, "num_predict": 3}, stream=True))
    assert "".join(part.response for part in parts) == "The capital of" and parts[-1].done_reason == "length"
    raw = llama.generate(model, "The capital of France is", raw=True, options={**GREEDY, "num_predict": 5})
    assert raw.response == pipeline.complete("The capital of France is", max_tokens=5, **GREEDY)["choices"][0]["text"]
    system = llama.generate(model, "Name a color.", system="Be brief.", options={**GREEDY, "num_predict": 9})
    chat = pipeline.chat([{"role": "system", "content": "Be brief."}, *user("Name a color.")], max_tokens=9, **GREEDY)
    assert system.response == chat["choices"][0]["message"]["content"]
    assert llama.generate(model).done_reason == "load"


def test_ollama_lists(pipeline, llama, model):
    listed, = llama.list().models
    running, = llama.ps().models
    assert listed.model == running.model == model and listed.size == pipeline.model.stat().st_size
    # Clients look the context up by the architecture's name, and turn away from an older version than they were written for.
    info = llama.show(model).modelinfo
    assert info[info["general.architecture"] + ".context_length"] == pipeline.get("/v1/models").json["data"][0]["max_model_len"]
    assert pipeline.get("/api/version").json["version"] >= "0.6.4" and pipeline.get("/api/version").json["lockstep"]
    with pytest.raises(ollama.ResponseError) as error:
        llama.show("other")
    assert error.value.status_code == 404


@pytest.mark.parametrize("more, status, words", [
    ({"model": "other"}, 404, "does not exist"),
    ({"messages": []}, 400, "at least one"),
    ({"options": {"temperature": 9}}, 400, "temperature must be"),
    ({"options": {"num_predict": "x"}}, 400, "max_tokens must be"),
    ({"format": {"not": {}}}, 400, "schema refused at /not"),
])
def test_ollama_errors(llama, model, more, status, words):
    with pytest.raises(ollama.ResponseError, match=words) as error:
        llama.chat(**{"model": model, "messages": user("a"), **more})
    assert error.value.status_code == status


# ---- OpenAI's responses

def test_responses(client, served):
    answer = client.responses.create(model=served, input=QUESTION, **GREEDY)
    assert answer.output_text == PARIS and answer.status == "completed" and answer.id.startswith("resp_")
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.total_tokens) == (37, 8, 45)
    assert answer.temperature == 0 and answer.incomplete_details is None
    assert client.responses.retrieve(answer.id).output_text == PARIS
    cut = client.responses.create(model=served, input=QUESTION, max_output_tokens=3, **GREEDY)
    assert (cut.status, cut.incomplete_details.reason, cut.max_output_tokens) == ("incomplete", "max_output_tokens", 3)


def test_responses_stream(client, served):
    with client.responses.stream(model=served, input=QUESTION, **GREEDY) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == PARIS and final.status == "completed"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == PARIS
    assert [event.type for event in events if "delta" not in event.type] == [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
        "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed"]


def test_a_response_goes_on_from_the_one_before(keeping, client, served):
    first = client.responses.create(model=served, input="Name a color.", instructions="Be brief.", max_output_tokens=9, **GREEDY)
    then = client.responses.create(model=served, input=[{"role": "user", "content": [{"type": "input_text", "text": "Why?"}]}],
                                   previous_response_id=first.id, max_output_tokens=9, **GREEDY)
    # Instructions are those of one response.
    chat = keeping.chat([*user("Name a color."), {"role": "assistant", "content": first.output_text}, *user("Why?")],
                         max_tokens=9, **GREEDY)
    assert then.output_text == chat["choices"][0]["message"]["content"] and then.previous_response_id == first.id
    assert then.usage.input_tokens == chat["usage"]["prompt_tokens"]


@pytest.mark.parametrize("more, error, param", [
    ({"model": "other"}, openai.NotFoundError, "model"),
    ({"input": []}, openai.BadRequestError, "input"),
    ({"previous_response_id": "resp_x"}, openai.NotFoundError, "previous_response_id"),
    ({"previous_response_id": "resp_" + "0" * 48}, openai.NotFoundError, "previous_response_id"),
    ({"max_output_tokens": 0}, openai.BadRequestError, "max_output_tokens"),
    ({"truncation": "auto"}, openai.BadRequestError, "truncation"),
    ({"tools": [{"type": "web_search"}]}, openai.BadRequestError, "tools"),
])
def test_responses_errors(client, served, more, error, param):
    with pytest.raises(error) as caught:
        client.responses.create(**{"model": served, "input": "a", **more})
    assert caught.value.param == param


def said(response):
    """The fake pipeline repeats its prompt, as far as its context reaches: the conversation that it was given."""
    return response["output"][0]["content"][0]["text"]


def respond(server, key=None, status=200, **body):
    got, _, data = server.request("POST", "/v1/responses", body, bearer(key) if key else {})
    assert got == status, data
    return json.loads(data)


def test_any_gateway_knows_a_response_and_only_its_account(keys):  # noqa: F811
    with gateway_with("--api-keys", keys) as server, second_gateway(server) as other:
        first = respond(server, ALICE, input="one", instructions="be kind")
        assert said(first).startswith('{"messages":[{"role":"system","content":"be kind"},{"role":"user","content":"one"}]')
        for gateway in (server, other):
            second = respond(gateway, ALICE, input="two", previous_response_id=first["id"])
            assert said(second).startswith('{"messages":[{"role":"user","content":"one"},{"role":"assistant","content":"{')
            path = "/v1/responses/" + first["id"]
            assert json.loads(gateway.request("GET", path, None, bearer(ALICE))[2])["output"] == first["output"]
            assert gateway.request("GET", path, None, bearer(BOB))[0] == 404
            respond(gateway, BOB, 404, input="two", previous_response_id=first["id"])
        # Any gateway forgets it, for its account.
        for key, status in ((BOB, 404), (ALICE, 200), (ALICE, 404)):
            assert other.request("DELETE", "/v1/responses/" + second["id"], None, bearer(key))[0] == status
        assert server.request("GET", "/v1/responses/" + second["id"], None, bearer(ALICE))[0] == 404
        # Whoever made it may be gone.
        server.kill()
        respond(other, ALICE, input="three", previous_response_id=first["id"])


def test_responses_are_kept_within_a_limit():
    with gateway_with() as server:
        none = respond(server, input="x", store=False)
        respond(server, status=404, input="y", previous_response_id=none["id"])
        first = respond(server, input="first")
        made = 0
        while server.request("GET", "/v1/responses/" + first["id"])[0] == 200:
            respond(server, input=str(made := made + 1))
            assert made < 1000
        assert made > 20
        respond(server, status=404, input="y", previous_response_id=first["id"])
    with gateway_with("--keep-s", 0.3) as server:
        first = respond(server, input="first")
        until(lambda: server.request("GET", "/v1/responses/" + first["id"])[0] == 404)
        assert server.busy() == 0


# ---- what dies on the way

SURFACES = {
    "/v1/messages": {"max_tokens": 120, "messages": user(STORY)},
    "/api/chat": {"messages": user(STORY), "options": {"num_predict": 120, "temperature": 0}},
    "/api/generate": {"prompt": STORY, "options": {"num_predict": 120, "temperature": 0}},
    "/v1/responses": {"input": STORY, "max_output_tokens": 120, "store": False},
}


def what_counts(text):
    """A stream's bytes but for ids and times, which are the request's own."""
    text = re.sub(r"^(id: .*|:.*)\n", "", text, flags=re.M)
    text = re.sub(r'(msg|resp)_[0-9a-f-]+', "ID", text)
    return re.sub(r'"(created_at|\w+_duration)":("[^"]*"|\d+)', "TIME", text)


def stream_text(pipeline, path, body, on_piece=lambda n: None):
    model = pipeline.get("/v1/models").json["data"][0]["id"]
    request = urllib.request.Request(pipeline.url + path, json.dumps({"model": model, "stream": True, **GREEDY, **body}).encode(),
                                     {"Content-Type": "application/json"})
    lines = []
    with urllib.request.urlopen(request, timeout=120) as response:
        for line in response:
            lines.append(line.decode())
            on_piece(len(lines))
    return "".join(lines)


def who_has_it(pipeline, role):
    """The process of that role that the one request comes back to; None while it is on its way to another."""
    request, = pipeline.get("/status").json["requests"]
    number = request["worker" if role == "npu-worker" else role]
    return next((each for each in pipeline.status()["processes"] if each["role"] == role and each["epoch"] == number), None)


def test_streams_go_on_when_processes_die():
    with pipeline_with(instances={"npu-worker": 2, "sampler": 2}) as pipeline:
        for path, body in SURFACES.items():
            body = {key: value for key, value in body.items()}
            undisturbed = what_counts(stream_text(pipeline, path, body))
            assert len(undisturbed) > 2000

            def kill(n):
                if n == 60:
                    for role in ("npu-worker", "sampler"):
                        pipeline.kill(role, until(lambda: who_has_it(pipeline, role), 10, f"its {role}")["instance"])

            assert what_counts(stream_text(pipeline, path, body, kill)) == undisturbed
            for role in ("npu-worker", "sampler"):
                for instance in range(2):
                    if (role, instance) not in pipeline.processes:
                        pipeline.start(role, instance)
            pipeline.wait_ready()
