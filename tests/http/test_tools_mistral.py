"""Mistral's calls, which control tokens begin and divide: the form is the template's; no text becomes such a token, and no such
token becomes text. On a model whose vocabulary has them under Mistral's names."""

import itertools

import openai
import pytest

from api import Stream, user
from gguf_tokens import rename
from pipeline import model_path, pipeline_with
from test_tools import ASK, CHAT, NAMED, TOOLS, calls_of, gathered, valid, without_ids

NAMES = {"<issue_start>": "[TOOL_CALLS]", "<issue_comment>": "[ARGS]", "<issue_closed>": "[CALL_ID]"}
HEAD = "{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
TAIL = "<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
LOOP = "{% for c in m.tool_calls or [] %}"
FORMS = {
    "list": "{% if m.tool_calls %}[TOOL_CALLS][" + LOOP + "{{ c.function | tojson }}{% endfor %}]{% endif %}",
    "spaced": "{% if m.tool_calls %}[TOOL_CALLS] [" + LOOP + "{{ c.function | tojson }}{% endfor %}]{% endif %}",
    "args": LOOP + "[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}{% endfor %}",
    "ids": LOOP + "[TOOL_CALLS]{{ c.function.name }}[CALL_ID]{{ c.id }}[ARGS]{{ c.function.arguments | tojson }}{% endfor %}",
}
CALL = {"id": "a1b2c3d4e", "type": "function", "function": {"name": "now", "arguments": '{"x": "[TOOL_CALLS]"}'}}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistral")
    model = rename(model_path(), folder / "mistral.gguf", NAMES)
    (folder / "own.jinja").write_text(HEAD + FORMS["args"] + TAIL)
    with pipeline_with(model=model, options={"keeper": ["--ctx", 2048, "--slots", 4], "gateway": ["--trust-request-chat-template"],
                                             "tokenizer": ["--chat-template", folder / "own.jinja"]}) as pipeline:
        yield pipeline


@pytest.fixture(scope="module")
def control(server):
    """{name: id}"""
    ids = {name: server.post("/apply-template", messages=user("a"), chat_template=name) and
           server.post("/tokenize", messages=user("a"), chat_template=name, add_special_tokens=False)["tokens"] for name in NAMES.values()}
    assert all(len(own) == 1 for own in ids.values()), ids
    return {name: own[0] for name, own in ids.items()}


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


@pytest.fixture(params=FORMS)
def form(request):
    return request.param


def ask(form, **more):
    return {"messages": ASK, "tools": TOOLS, "max_tokens": 150, "chat_template": HEAD + FORMS[form] + TAIL, **more}


def through(client, body):
    """The answer, whole and as a stream, by OpenAI's client."""
    own = {key: value for key, value in body.items() if key == "chat_template"}
    more = {key: value for key, value in body.items() if key not in own}
    model = client.models.list().data[0].id
    answer = client.chat.completions.create(model=model, **more, extra_body=own).choices[0]
    return answer, gathered(client.chat.completions.create(model=model, **more, extra_body=own, stream=True))


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_calls_that_must_come(server, client, control, form, choice):
    answer, (content, calls, finish) = through(client, ask(form, tool_choice=choice, temperature=0.8, seed=1))
    whole = calls_of(answer.message)
    assert [call[1:] for call in calls] == [call[1:] for call in whole] and whole and not content
    assert finish == answer.finish_reason
    if finish == "tool_calls":
        valid(whole)
    body = ask(form, tool_choice=choice, temperature=0.8, seed=1, return_token_ids=True)
    ids = server.post(CHAT, **body)["choices"][0]["token_ids"]
    assert ids[0] == control["[TOOL_CALLS]"]
    assert ids.count(control["[TOOL_CALLS]"]) == (1 if form in ("list", "spaced") else len(whole))
    assert (control["[ARGS]"] in ids) == (form in ("args", "ids")) and (control["[CALL_ID]"] in ids) == (form == "ids")


def test_a_call_after_text(server, client, control, form):
    """Some words, then the token: text and calls are apart, in the stream too."""
    bias = {str(control["[TOOL_CALLS]"]): 12}
    answer, (content, calls, finish) = through(client, ask(form, temperature=0, logit_bias=bias, parallel_tool_calls=False))
    assert (answer.message.content or "") == content and finish == answer.finish_reason
    assert [call[1:] for call in calls] == [call[1:] for call in calls_of(answer.message)]
    assert len(calls) == 1 and finish == "tool_calls"
    valid(calls)
    never = {str(control["[TOOL_CALLS]"]): -100}
    answer, (content, calls, finish) = through(client, ask(form, temperature=0, logit_bias=never, max_tokens=20))
    assert answer.message.content == content and content and not calls and not answer.message.tool_calls


def test_a_call_that_is_cut(server, client, form):
    answer, (content, calls, finish) = through(client, ask(form, tool_choice="required", max_tokens=2, temperature=0))
    assert finish == answer.finish_reason == "length" and not content and not (answer.message.content or "")


def test_the_models_own_template(server, control):
    """Not only a request's: its form is read off when the model is loaded."""
    ids = server.post(CHAT, messages=ASK, tools=TOOLS, tool_choice="required", max_tokens=60, return_token_ids=True)["choices"][0]["token_ids"]
    assert ids[0] == control["[TOOL_CALLS]"] and control["[ARGS]"] in ids


def test_no_text_becomes_a_control_token(server, control, form):
    """In words, names, arguments and results of calls; the template's own are control tokens."""
    words = "".join(control)
    messages = user(words) + [{"role": "assistant", "content": words, "tool_calls": [CALL]},
                              {"role": "tool", "tool_call_id": CALL["id"], "content": words}] + user(words)
    ids = server.post("/tokenize", messages=messages, chat_template=HEAD + FORMS[form] + TAIL)["tokens"]
    counts = {name: ids.count(own) for name, own in control.items()}
    split = form in ("args", "ids")
    assert counts == {"[TOOL_CALLS]": 1, "[ARGS]": int(split), "[CALL_ID]": int(form == "ids")}


@pytest.mark.parametrize("grammar", ['root ::= <[5]> "a"', "root ::= <[99999999]>", "root ::= <a>"])
def test_a_requests_grammar_names_no_tokens(server, grammar):
    answer = server.request("POST", CHAT, {"messages": user("a"), "grammar": grammar})
    assert answer.status == 400 and answer.json["error"]["param"] == "grammar" and "token" in answer.json["error"]["message"]


def test_what_dies_on_the_way(server, form):
    body = ask(form, tool_choice="required", temperature=0.8, seed=3, max_tokens=60)
    with Stream(server, CHAT, body) as stream:
        whole = [event["choices"][0]["delta"] for event in stream]
    for role in ("sampler", "npu-worker"):
        with Stream(server, CHAT, body) as stream:
            seen = [event["choices"][0]["delta"] for event in itertools.islice(stream, 4)]
            server.kill(role)
            server.start(role)
            seen += [event["choices"][0]["delta"] for event in stream]
        assert without_ids(seen) == without_ids(whole)
        server.wait_ready()
