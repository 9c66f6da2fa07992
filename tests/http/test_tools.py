"""Tools: each family's form, chosen by the chat template; whole answers and streams say the same; arguments are of the tool's
schema whatever the model would write; history with calls and results; streams that come back or lose a process."""

import itertools
import json

import jsonschema
import ollama
import openai
import pytest

from api import Stream, user
from pipeline import model_path, pipeline_with

CHAT = "/v1/chat/completions"
WEATHER = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["C", "F"]},
                                            "days": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 9}, "maxItems": 3}},
           "required": ["city", "unit", "days"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather of a city.", "parameters": WEATHER}},
         {"type": "function", "function": {"name": "now"}}]
SCHEMAS = {"get_weather": WEATHER, "now": {"type": "object", "maxProperties": 0}}
ASK = user("What is the weather in Paris, and what time is it?")
NAMED = {"type": "function", "function": {"name": "get_weather"}}

TURNS = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
         "{% for c in m.tool_calls or [] %}CALL{% endfor %}<|im_end|>\n{% endfor %}")
TEMPLATES = {
    "none": TURNS + "<|im_start|>assistant\n",
    "hermes": "{% if tools %}{{ tools | tojson }} as <tool_call>{% endif %}" + TURNS + "<|im_start|>assistant\n",
    "llama3": '{% if tools %}{{ tools | tojson }} as {"name": name, "parameters": {}}{% endif %}' + TURNS + "<|im_start|>assistant\n",
    "mistral": "{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}{% endif %}" + TURNS + "<|im_start|>assistant\n{# [TOOL_CALLS] #}",
    "other": "{% if tools %}{{ tools | tojson }}{% endif %}" + TURNS + "<|im_start|>assistant\n",
}


@pytest.fixture(scope="module", params=TEMPLATES)
def family(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("template") / "chat.jinja"
    path.write_text(TEMPLATES[request.param])
    with pipeline_with(options={"tokenizer": ["--chat-template", str(path)], "keeper": ["--ctx", 2048, "--slots", 4]}) as pipeline:
        with openai.OpenAI(base_url=pipeline.url + "/v1", api_key="none", max_retries=0, timeout=120) as client:
            yield request.param, pipeline, client


def calls_of(message):
    return [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or []]


def gathered(chunks):
    """(content, calls, finish) as a client puts a stream together."""
    content, calls, finish = "", {}, None
    for chunk in chunks:
        choice = chunk.choices[0]
        content += choice.delta.content or ""
        finish = choice.finish_reason or finish
        for piece in choice.delta.tool_calls or []:
            call = calls.setdefault(piece.index, ["", "", ""])
            if piece.id:
                call[:2] = piece.id, piece.function.name
            call[2] += piece.function.arguments or ""
    return content, [tuple(calls[i]) for i in sorted(calls)], finish


def valid(calls):
    for identity, name, arguments in calls:
        assert len(identity) == 9 and identity.isalnum()
        jsonschema.validate(json.loads(arguments), SCHEMAS[name])
    assert len({identity for identity, _, _ in calls}) == len(calls)


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
@pytest.mark.parametrize("temperature", [0, 1.2])
def test_calls_that_must_come(family, choice, temperature):
    name, _, client = family
    for seed in (1,):
        body = dict(model="", messages=ASK, tools=TOOLS, tool_choice=choice, temperature=temperature, seed=seed, max_tokens=120)
        body["model"] = client.models.list().data[0].id
        answer = client.chat.completions.create(**body).choices[0]
        content, calls, finish = gathered(client.chat.completions.create(**body, stream=True))
        whole = calls_of(answer.message)
        assert [call[1:] for call in calls] == [call[1:] for call in whole] and finish == answer.finish_reason and not content
        if finish == "length":
            continue
        assert finish == "tool_calls" and answer.message.content is None and whole
        valid(whole)
        valid(calls)
        assert choice == "required" or [call[1] for call in whole] == ["get_weather"]
        assert len(whole) == 1 or name not in ("llama3", "other")


def test_text_without_calls(family):
    _, pipeline, client = family
    model = client.models.list().data[0].id
    free = pipeline.chat(user("Hello"), temperature=0, max_tokens=12)["choices"][0]["message"]["content"]
    for body in ({"tools": TOOLS, "tool_choice": "none"}, {"tools": []}):
        answer = client.chat.completions.create(model=model, messages=user("Hello"), temperature=0, max_tokens=12, **body).choices[0]
        assert answer.message.content == free and not answer.message.tool_calls
    body = dict(model=model, messages=user("Hello"), temperature=0, max_tokens=12, tools=TOOLS)
    answer = client.chat.completions.create(**body).choices[0]
    content, calls, finish = gathered(client.chat.completions.create(**body, stream=True))
    assert (answer.message.content or "") == content and len(calls) == len(answer.message.tool_calls or [])
    assert content or calls


def test_history(family):
    """Calls and results go into the prompt; a template that knows no tools gets them as text."""
    name, pipeline, client = family
    call = {"id": "a1b2c3d4e", "type": "function", "function": {"name": "now", "arguments": '{"x": [1.5, "\u00e4"]}'}}
    for content in (None, "", [], [{"type": "text", "text": "Wait."}]):
        messages = ASK + [{"role": "assistant", "content": content, "tool_calls": [call]},
                          {"role": "tool", "tool_call_id": call["id"], "content": "14:05"},
                          {"role": "tool", "tool_call_id": "2", "content": [{"type": "text", "text": "Sunny"}]}]
        prompt = pipeline.post("/apply-template", messages=messages, tools=TOOLS)["prompt"]
        assert "get_weather" in prompt and "14:05" in prompt and "Sunny" in prompt
        if name == "none":
            assert '<tool_call>\n{"name": "now", "arguments": {"x": [1.5, "\u00e4"]}}\n</tool_call>' in prompt.encode().decode(
                "unicode_escape").encode("latin-1").decode() or "<tool_call>" in prompt
            assert "<tool_response>\n14:05\n</tool_response>\n<tool_response>\nSunny\n</tool_response>" in prompt
            assert "You can call functions" in prompt and prompt.count("<|im_start|>user") == 2
        answer = client.chat.completions.create(model=client.models.list().data[0].id, messages=messages, tools=TOOLS, max_tokens=5)
        assert answer.usage.prompt_tokens > 30


def test_calls_that_the_model_begins():
    """Qwen's own template: a bias for <tool_call> is all it takes, the grammar does the rest; several calls; parallel or not."""
    with pipeline_with(model=model_path("Qwen2.5-Coder-0.5B-Instruct.gguf"), options={"keeper": ["--ctx", 2048]}) as pipeline:
        trigger, = pipeline.post("/tokenize", prompt="<tool_call>")["tokens"]
        body = {"messages": ASK, "tools": TOOLS, "temperature": 0, "max_tokens": 150, "logit_bias": {str(trigger): 30}}
        with openai.OpenAI(base_url=pipeline.url + "/v1", api_key="none", max_retries=0, timeout=120) as client:
            model = client.models.list().data[0].id
            for parallel in (True, False):
                answer = client.chat.completions.create(model=model, **body, parallel_tool_calls=parallel).choices[0]
                content, calls, finish = gathered(
                    client.chat.completions.create(model=model, **body, parallel_tool_calls=parallel, stream=True))
                assert [call[1:] for call in calls] == [call[1:] for call in calls_of(answer.message)]
                assert answer.message.content == (content or None) and finish == answer.finish_reason == "tool_calls"
                valid(calls)
                assert parallel or len(calls) == 1
            # A schema for the text, and tools beside it: one or the other.
            schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
            form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
            answer = client.chat.completions.create(model=model, **{**body, "logit_bias": {str(trigger): -100}}, response_format=form)
            jsonschema.validate(json.loads(answer.choices[0].message.content), schema)
            answer = client.chat.completions.create(model=model, **{**body, "logit_bias": {str(trigger): 100}}, response_format=form)
            assert answer.choices[0].message.tool_calls


def test_a_stream_that_comes_back_and_loses_processes():
    body = {"messages": ASK, "tools": TOOLS, "tool_choice": "required", "temperature": 0.8, "seed": 3, "max_tokens": 150}
    with pipeline_with() as pipeline:
        key = {"Idempotency-Key": "tools-1"}
        with Stream(pipeline, CHAT, body, key) as stream:
            whole = list(stream)
            ids = list(stream.ids)
        for at in (1, len(ids) // 2, len(ids) - 2):
            with Stream(pipeline, CHAT, body, {**key, "Last-Event-ID": ids[at]}) as again:
                assert list(again) == whole[at + 1:]
        deltas = [event["choices"][0]["delta"] for event in whole]
        assert any("tool_calls" in delta for delta in deltas)
        for role in ("sampler", "npu-worker"):
            with Stream(pipeline, CHAT, body) as stream:
                seen = [event["choices"][0]["delta"] for event in itertools.islice(stream, 8)]
                pipeline.kill(role)
                pipeline.start(role)
                seen += [event["choices"][0]["delta"] for event in stream]
            assert without_ids(seen) == without_ids(deltas)
            pipeline.wait_ready()


def without_ids(deltas):
    return [{**delta, "tool_calls": [{k: v for k, v in call.items() if k != "id"} for call in delta.get("tool_calls", [])]}
            for delta in deltas]


def test_reasoning(tmp_path):
    """A template that opens the reasoning: what comes before </think> is no content."""
    path = tmp_path / "think.jinja"
    path.write_text(TURNS + "<|im_start|>assistant\n<think>\n")
    with pipeline_with(options={"tokenizer": ["--chat-template", str(path)]}) as pipeline:
        body = {"messages": user("Hello"), "temperature": 0, "max_tokens": 12}
        message = pipeline.post(CHAT, **body)["choices"][0]["message"]
        assert message["content"] == "" and message["reasoning_content"]
        deltas = [event["choices"][0]["delta"] for event in pipeline.events(CHAT, **body)]
        assert "".join(delta.get("reasoning_content", "") for delta in deltas) == message["reasoning_content"]
        assert not any(delta.get("content") for delta in deltas)
        # An answer that is bound to a form has no reasoning.
        assert pipeline.post(CHAT, **body, guided_choice=["yes"])["choices"][0]["message"]["content"] == "yes"


# As Qwen3's does it: thoughts unless told otherwise.
SWITCHED = TURNS.replace("{{ m.content }}", "{{ m.reasoning_content }}{{ m.content }}") + """<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}"""


def test_thinking_is_the_clients_to_say(tmp_path):
    """By OpenAI's clients as vLLM's users know it, by Ollama's own with think."""
    path = tmp_path / "think.jinja"
    path.write_text(SWITCHED)
    with pipeline_with(options={"tokenizer": ["--chat-template", str(path)]}) as pipeline:
        body = {"messages": user("Hello"), "temperature": 0, "max_tokens": 12}
        thought = pipeline.post(CHAT, **body)["choices"][0]["message"]
        plain = pipeline.post(CHAT, **body, chat_template_kwargs={"enable_thinking": False})["choices"][0]["message"]
        assert thought["reasoning_content"] and not thought["content"] and plain["content"] and "reasoning_content" not in plain
        assert pipeline.refused(CHAT, {**body, "chat_template_kwargs": {"greeting": True}})[2] == "chat_template_kwargs"
        llama = ollama.Client(host=pipeline.url)
        model, ask = pipeline.get("/v1/models").json["data"][0]["id"], {"messages": user("Hello"), "options": {"temperature": 0, "num_predict": 12}}
        answer = llama.chat(model, think=True, **ask).message
        assert (answer.thinking, answer.content) == (thought["reasoning_content"], "")
        pieces = [part.message for part in llama.chat(model, think=True, stream=True, **ask)]
        assert "".join(piece.thinking or "" for piece in pieces) == answer.thinking and not any(piece.content for piece in pieces)
        answer = llama.chat(model, think=False, **ask).message
        assert (answer.thinking, answer.content) == (None, plain["content"])
        assert llama.chat(model, **ask).message.content.lstrip() == thought["reasoning_content"]
        # What was thought goes back to the template.
        turn = {"role": "assistant", "content": "Hi."}
        lengths = [llama.chat(model, messages=[*user("Hello"), {**turn, **more}, *user("Again")], options={"num_predict": 1}).prompt_eval_count
                   for more in ({}, {"thinking": "a greeting of theirs"})]
        assert lengths[1] > lengths[0]
        for more, words in (({"think": True, "format": "json"}, "no room"), ({"think": "high"}, "levels")):
            with pytest.raises(ollama.ResponseError, match=words):
                llama.chat(model, **ask, **more)


def test_who_has_no_thoughts_is_not_asked_for_them(pipeline):
    llama = ollama.Client(host=pipeline.url)
    model = pipeline.get("/v1/models").json["data"][0]["id"]
    with pytest.raises(ollama.ResponseError, match="knows no thoughts"):
        llama.chat(model, messages=user("Hello"), think=True)
    assert llama.chat(model, messages=user("Hello"), think=False, options={"num_predict": 1}).message.thinking is None
    for raw in (False, True):
        with pytest.raises(ollama.ResponseError, match="/api/chat tells it apart"):
            llama.generate(model, "Hello", think=True, raw=raw)
        assert llama.generate(model, "Hello", think=False, raw=raw, options={"num_predict": 1}).response


@pytest.mark.parametrize("body, param, words", [
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"not": {}}}}}}]}, "tools",
     "tools[0].function.parameters: schema refused at /properties/a/not"),
    ({"tools": TOOLS + TOOLS[:1]}, "tools", "one name"), ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools", "letters"),
    ({"tool_choice": "required"}, "tool_choice", "no tools"), ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice", "auto"),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice", "not among"),
    ({"tools": TOOLS, "tool_choice": "required", "guided_regex": "a"}, "tool_choice", "one of them"),
    ({"tools": TOOLS, "grammar": 'root ::= "a"'}, "grammar", "beside tools"), ({"tools": TOOLS, "parallel_tool_calls": 1}, "parallel_tool_calls", "true")])
def test_refusals(pipeline, body, param, words):
    answer = pipeline.request("POST", CHAT, {"messages": ASK, **body})
    assert answer.status == 400 and answer.json["error"]["param"] == param and words in answer.json["error"]["message"]
