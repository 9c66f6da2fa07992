"""Tools and bound answers by Anthropic's, Ollama's and OpenAI's (responses) clients: calls of the tool's schema, whole and in
streams; history with calls and results becomes the same prompt as a chat's; what is wrong is said by name."""

import itertools
import json
import re
import urllib.request

import anthropic
import jsonschema
import ollama
import openai
import pytest

from api import user
from pipeline import pipeline_with
from test_surfaces import what_counts
from test_tools import ASK, SCHEMAS, TEMPLATES, WEATHER

GREEDY = {"temperature": 0}
CLAUDE = {"extra_body": GREEDY}
FLAT = [{"name": "get_weather", "description": "The weather of a city.", "input_schema": WEATHER}, {"name": "now", "input_schema": {}}]
NESTED = [{"type": "function", "function": {"name": "get_weather", "description": "The weather of a city.", "parameters": WEATHER}},
          {"type": "function", "function": {"name": "now", "parameters": {}}}]
ITEMS = [{"type": "function", "name": "get_weather", "description": "The weather of a city.", "parameters": WEATHER, "strict": True},
         {"type": "function", "name": "now", "parameters": {}}]
CALLED = set()
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
          "required": ["name", "age"], "additionalProperties": False}


@pytest.fixture(scope="module", params=["none", "llama3"])
def server(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("template") / "chat.jinja"
    path.write_text(TEMPLATES[request.param])
    with pipeline_with(options={"tokenizer": ["--chat-template", str(path)], "keeper": ["--ctx", 2048, "--slots", 4]}) as pipeline:
        yield pipeline


@pytest.fixture
def model(server):
    return server.get("/v1/models").json["data"][0]["id"]


@pytest.fixture
def claude(server):
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=120) as client:
        yield client


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


@pytest.fixture
def llama(server):
    return ollama.Client(host=server.url, timeout=120)


def as_chat(server, **body):
    """What the chat endpoint says to the same."""
    answer = server.post("/v1/chat/completions", messages=ASK, tools=NESTED, max_tokens=150, **{**GREEDY, **body})["choices"][0]
    return whole([(call["function"]["name"], call["function"]["arguments"]) for call in answer["message"].get("tool_calls") or []])


def whole(calls):
    """Without one that the limit has cut."""
    made = []
    for name, arguments in calls:
        try:
            made.append((name, json.loads(arguments)))
        except ValueError:
            assert (name, arguments) == calls[-1]
    return made


def valid(calls):
    assert calls
    for name, arguments in calls:
        jsonschema.validate(arguments, SCHEMAS[name])
    return calls


# ---- Anthropic

def test_anthropic(server, claude, model):
    ask = dict(model=model, max_tokens=150, messages=ASK, tools=FLAT, tool_choice={"type": "any", "disable_parallel_tool_use": True}, **CLAUDE)
    answer = claude.messages.create(**ask)
    block, = answer.content
    assert (answer.stop_reason, block.type, block.id[:6]) == ("tool_use", "tool_use", "toolu_")
    assert valid([(block.name, block.input)]) == as_chat(server, tool_choice="required", parallel_tool_calls=False)
    named = claude.messages.create(**{**ask, "tool_choice": {"type": "tool", "name": "now"}})
    assert [(block.name, block.input) for block in named.content] == [("now", {})]


def test_anthropic_streams(server, claude, model):
    """As many calls as there is room for: the last may be cut."""
    ask = dict(model=model, max_tokens=150, messages=ASK, tools=FLAT, tool_choice={"type": "any"}, **CLAUDE)
    answer = claude.messages.create(**ask)
    assert valid([(block.name, block.input) for block in answer.content]) == as_chat(server, tool_choice="required")
    pieces, starts, stops, last = {}, [], [], None
    for event in claude.messages.create(**ask, stream=True):
        if event.type == "content_block_start":
            starts.append((event.index, event.content_block.name))
        elif event.type == "content_block_delta":
            pieces[event.index] = pieces.get(event.index, "") + event.delta.partial_json
        elif event.type == "content_block_stop":
            stops.append(event.index)
        elif event.type == "message_delta":
            last = event.delta.stop_reason
    assert [index for index, _ in starts] == stops == list(range(len(starts))) and last == answer.stop_reason
    assert whole([(name, pieces.get(index, "")) for index, name in starts]) == [(block.name, block.input) for block in answer.content]


def test_anthropic_text(server, claude, model):
    """Without a call: text, also where tools are shown; cut off, nothing half."""
    ask = dict(model=model, max_tokens=12, messages=user("Hello"), **CLAUDE)
    free = claude.messages.create(**ask).content[0].text
    assert claude.messages.create(**ask, tools=FLAT, tool_choice={"type": "none"}).content[0].text == free
    with claude.messages.stream(**ask, tools=FLAT) as stream:
        final = stream.get_final_message()
    whole = claude.messages.create(**ask, tools=FLAT)
    assert [block.model_dump() for block in whole.content] == [block.model_dump() for block in final.content]
    cut = claude.messages.create(**{**ask, "max_tokens": 5}, tools=FLAT, tool_choice={"type": "any"})
    assert cut.stop_reason == "max_tokens" and not any(block.type == "tool_use" for block in cut.content)


def test_anthropic_history(server, claude, model):
    turns = [*ASK, {"role": "assistant", "content": [{"type": "text", "text": "Wait."},
                                                     {"type": "tool_use", "id": "toolu_a1b2c3d4e", "name": "now", "input": {"x": [1.5, "ä"]}}]},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_a1b2c3d4e", "content": "14:05"},
                                          {"type": "text", "text": "And then?"}]}]
    call = {"id": "a1b2c3d4e", "type": "function", "function": {"name": "now", "arguments": '{"x": [1.5, "ä"]}'}}
    chat = [*ASK, {"role": "assistant", "content": [{"type": "text", "text": "Wait."}], "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "14:05"}, {"role": "user", "content": [{"type": "text", "text": "And then?"}]}]
    count = len(server.post("/tokenize", messages=chat, tools=NESTED)["tokens"])
    assert claude.messages.count_tokens(model=model, messages=turns, tools=FLAT).input_tokens == count
    answer = claude.messages.create(model=model, max_tokens=9, messages=turns, tools=FLAT, tool_choice={"type": "none"}, **CLAUDE)
    same = server.chat(chat, max_tokens=9, **GREEDY)
    assert answer.content[0].text == same["choices"][0]["message"]["content"]


def test_anthropic_form(claude, model):
    for extra in ({"output_format": {"type": "json_schema", "schema": PERSON}}, {"output_config": {"format": {"type": "json_schema", "schema": PERSON}}}):
        answer = claude.messages.create(model=model, max_tokens=80, messages=user("Who?"), extra_body={**GREEDY, **extra})
        jsonschema.validate(json.loads(answer.content[0].text), PERSON)


@pytest.mark.parametrize("more, words", [
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools of type custom"),
    ({"tools": [{"name": "f", "input_schema": {"not": {}}}]}, "schema refused at /not"),
    ({"tools": FLAT, "tool_choice": {"type": "tool", "name": "g"}}, "not among"), ({"tools": FLAT, "tool_choice": {"type": "some"}}, "of type auto"),
    ({"tool_choice": {"type": "any"}}, "no tools"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]}, "tool_use_id"),
    ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": 5}]}, *ASK]}, "input of a tool_use"),
    ({"extra_body": {"output_config": {"effort": "low"}}}, "member format only"), ({"extra_body": {"output_format": {"type": "xml"}}}, "json_schema")])
def test_anthropic_refuses(claude, model, more, words):
    with pytest.raises(anthropic.BadRequestError, match=words):
        claude.messages.create(**{"model": model, "max_tokens": 9, "messages": ASK, **more})


# ---- Ollama

def test_ollama(server, llama, model):
    """It has no tool_choice: a conversation full of calls makes the model begin one by itself."""
    asked = user("What time is it?")
    turns = [*asked, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "now", "arguments": {}}}]},
             {"role": "tool", "content": "14:05"}, {"role": "assistant", "content": "14:05"}] * 3 + asked
    ask = dict(model=model, messages=turns, tools=NESTED, options={**GREEDY, "num_predict": 60})
    answer = llama.chat(**ask)
    parts = list(llama.chat(**ask, stream=True))
    assert "".join(part.message.content or "" for part in parts) == answer.message.content and parts[-1].done
    calls = [(call.function.name, dict(call.function.arguments)) for call in answer.message.tool_calls or []]
    streamed = [(call.function.name, dict(call.function.arguments)) for part in parts for call in part.message.tool_calls or []]
    assert calls == streamed and (calls or answer.message.content)
    CALLED.update(name for name, _ in calls)


def test_ollama_has_called():
    assert CALLED, "with one of the templates at least"


def test_ollama_history_and_form(server, llama, model):
    turns = [*ASK, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "now", "arguments": {"x": 1}}}]},
             {"role": "tool", "content": "14:05", "tool_name": "now"}]
    call = {"id": "000000001", "type": "function", "function": {"name": "now", "arguments": {"x": 1}}}
    chat = [*ASK, {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "000000001", "content": "14:05"}]
    answer = llama.chat(model, turns, options={**GREEDY, "num_predict": 9})
    assert answer.message.content == server.chat(chat, max_tokens=9, **GREEDY)["choices"][0]["message"]["content"]
    assert answer.prompt_eval_count == len(server.post("/tokenize", messages=chat)["tokens"])
    options = {**GREEDY, "num_predict": 80}
    jsonschema.validate(json.loads(llama.chat(model, user("Who?"), format=PERSON, options=options).message.content), PERSON)
    jsonschema.validate(json.loads(llama.generate(model, "Who?", format=PERSON, options=options).response), PERSON)
    with pytest.raises(ollama.ResponseError, match="schema refused at /not"):
        llama.chat(model, user("a"), format={"not": {}})


# ---- OpenAI's responses

def calls_of(response):
    return whole([(item.name, item.arguments) for item in response.output if item.type == "function_call"])


def test_responses(server, client, model):
    """As many calls as there is room for: the last may be cut."""
    ask = dict(model=model, input=ASK, tools=ITEMS, tool_choice="required", max_output_tokens=150, **GREEDY)
    answer = client.responses.create(**ask)
    calls = valid(calls_of(answer))
    assert calls == as_chat(server, tool_choice="required")
    single = client.responses.create(**ask, parallel_tool_calls=False)
    assert calls_of(single) == calls[:1] and single.status == "completed"
    events = list(client.responses.create(**ask, stream=True))
    final = events[-1].response
    assert calls_of(final) == calls and [item.call_id[:5] for item in final.output] == ["call_"] * len(answer.output)
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(set(numbers))
    pieces = {}
    for event in events:
        if event.type == "response.function_call_arguments.delta":
            pieces[event.output_index] = pieces.get(event.output_index, "") + event.delta
    assert [pieces.get(i, "") for i in range(len(final.output))] == [item.arguments for item in final.output]
    done = [event for event in events if event.type == "response.output_item.done"]
    assert [event.item.arguments for event in done] == [item.arguments for item in answer.output]
    named = client.responses.create(**{**ask, "tool_choice": {"type": "function", "name": "now"}})
    assert calls_of(named) == [("now", {})]


def test_responses_go_on(server, client, model):
    """From the response before, with what its call gave back; or with all of it in the input."""
    first = client.responses.create(model=model, input=ASK, tools=ITEMS, tool_choice={"type": "function", "name": "now"}, **GREEDY)
    call, = first.output
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "14:05"}
    then = client.responses.create(model=model, input=[result], previous_response_id=first.id, max_output_tokens=9, **GREEDY)
    alone = client.responses.create(model=model, input=[*ASK, {"type": "function_call", "call_id": call.call_id, "name": "now", "arguments": "{}"}, result],
                                    max_output_tokens=9, **GREEDY)
    own = {"id": call.call_id[5:], "type": "function", "function": {"name": "now", "arguments": "{}"}}
    chat = server.chat([*ASK, {"role": "assistant", "content": "", "tool_calls": [own]}, {"role": "tool", "tool_call_id": own["id"], "content": "14:05"}],
                       max_tokens=9, **GREEDY)
    assert then.output_text == alone.output_text == chat["choices"][0]["message"]["content"]
    assert then.usage.input_tokens == alone.usage.input_tokens == chat["usage"]["prompt_tokens"]
    assert calls_of(client.responses.retrieve(first.id)) == [("now", {})]


def test_responses_form(client, model):
    form = {"format": {"type": "json_schema", "name": "person", "schema": PERSON, "strict": True}}
    answer = client.responses.create(model=model, input="Who?", text=form, max_output_tokens=80, **GREEDY)
    jsonschema.validate(json.loads(answer.output_text), PERSON)


def test_responses_repeat_their_request(server, client, model):
    """Tools, choice, form, instructions and the rest stand in the answer as OpenAI's do: whole, in the stream, and when it is fetched."""
    form = {"format": {"type": "json_schema", "name": "person", "schema": PERSON, "strict": True}}
    tools = [{"type": "function", "name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}},
             {"type": "function", "name": "g", "parameters": None, "strict": True}]
    ask = dict(model=model, input="Who?", max_output_tokens=3, instructions="Say \"yes\"\n\u00e4", metadata={"a": "b\u0001", "c": ""}, user="u",
               safety_identifier="s", prompt_cache_key="k", **GREEDY)
    asked = [{"tools": tools, "tool_choice": "none", "parallel_tool_calls": False}, {"tools": tools, "tool_choice": {"type": "function", "name": "f"}},
             {"text": form, "previous_response_id": None}, {"tools": None, "text": None, "tool_choice": None, "parallel_tool_calls": None}]
    for more in asked:
        answer = client.responses.create(**ask, **more)
        shown = answer.to_dict()
        assert shown["tools"] == [{**tool, "parameters": tool["parameters"], "strict": True} for tool in more.get("tools") or []]
        assert shown["tool_choice"] == (more.get("tool_choice") or "auto")
        assert shown["parallel_tool_calls"] == (more.get("parallel_tool_calls") is not False)
        assert shown["text"] == (more.get("text") or {"format": {"type": "text"}})
        assert all(shown[name] == ask[name] for name in ("instructions", "metadata", "user", "safety_identifier", "prompt_cache_key"))
        assert (shown["temperature"], shown["max_output_tokens"], shown["truncation"]) == (0, 3, "disabled")
        assert client.responses.retrieve(answer.id).to_dict() == shown
        for event in client.responses.create(**ask, **more, stream=True):
            if event.type in ("response.created", "response.in_progress", "response.incomplete", "response.completed"):
                own = event.response.to_dict()
                assert {**own, **{name: shown[name] for name in ("id", "created_at", "status", "output", "usage", "incomplete_details")}} == shown
    plain = client.responses.create(model=model, input="a", max_output_tokens=1)
    assert (plain.instructions, plain.metadata, plain.tools, plain.tool_choice) == (None, {}, [], "auto")


@pytest.mark.parametrize("metadata", [[], "a", {"a": 1}, {"a": "x" * 513}, {"x" * 65: "a"}, {str(i): "a" for i in range(17)}])
def test_metadata_has_limits(server, model, metadata):
    answer = server.request("POST", "/v1/responses", {"model": model, "input": "a", "metadata": metadata})
    assert answer.status == 400 and answer.json["error"]["param"] == "metadata", answer.data


@pytest.mark.parametrize("more, param", [
    ({"tools": [{"type": "web_search"}]}, "tools"), ({"tools": ITEMS, "tool_choice": {"type": "file_search"}}, "tool_choice"),
    ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0]"), ({"input": [{"type": "reasoning", "summary": []}]}, "input[0]"),
    ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text"), ({"text": {"format": {"type": "xml"}}}, "text")])
def test_responses_refuse(server, model, more, param):
    answer = server.request("POST", "/v1/responses", {"model": model, "input": "a", **more})
    assert answer.status == 400 and answer.json["error"]["param"] == param, answer.data


# ---- what dies on the way, and who comes back

SURFACES = {
    "/v1/messages": {"max_tokens": 150, "messages": ASK, "tools": FLAT, "tool_choice": {"type": "any"}},
    "/v1/responses": {"input": ASK, "max_output_tokens": 150, "store": False, "tools": ITEMS, "tool_choice": "required"},
}


def lines_of(server, path, body, headers=()):
    request = urllib.request.Request(server.url + path, json.dumps({"model": None, "stream": True, **GREEDY, **body}).encode(),
                                     {"Content-Type": "application/json", **dict(headers)})
    return urllib.request.urlopen(request, timeout=120)


@pytest.mark.parametrize("path", SURFACES)
def test_a_stream_with_calls_loses_processes_and_comes_back(server, path):
    body = SURFACES[path]
    with lines_of(server, path, body, {"Idempotency-Key": path}.items()) as response:
        whole = response.read().decode()
    blocks = whole.split("\n\n")
    at = len(blocks) // 2
    last = blocks[at].split("\n")[0].removeprefix("id: ")
    with lines_of(server, path, body, {"Idempotency-Key": path, "Last-Event-ID": last}.items()) as response:
        rest = response.read().decode()
    after = next(i for i in range(at, len(blocks)) if not blocks[i].startswith("id: " + last + "\n"))
    assert rest == "\n\n".join(blocks[after:])
    for role in ("sampler", "npu-worker"):
        with lines_of(server, path, body) as response:
            text = "".join(line.decode() for line in itertools.islice(response, 12))
            server.kill(role)
            server.start(role)
            text += response.read().decode()
        assert without_ids(what_counts(text)) == without_ids(what_counts(whole))
        server.wait_ready()


def without_ids(text):
    return re.sub(r"(toolu|call|fc)_[0-9a-z_]+", "ID", text)


@pytest.mark.parametrize("path, body", [
    ("/v1/responses", {"input": "a", "text": "json"}), ("/v1/responses", {"input": "a", "text": {"format": "json_object"}}),
    ("/v1/messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "output_config": "json"}),
    ("/api/chat", {"messages": [{"role": "user", "content": "a", "tool_calls": {"function": {}}}]})])
def test_what_has_another_type_is_not_left_out(server, path, body):
    """It would change the answer."""
    answer = server.request("POST", path, {"model": None, **body})
    assert answer.status == 400, answer.data
