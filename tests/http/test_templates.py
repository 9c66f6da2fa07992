"""Chat templates on their way through the whole pipeline: of a file, of a request; what they refuse and what they can't do."""

import pytest

from api import user, whole_of

CHAT = "/v1/chat/completions"
STRICT = """{%- for message in messages -%}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}
{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') -}}
{%- endif -%}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%}"""


@pytest.fixture(scope="module")
def strict(shared, tmp_path_factory):
    """With a template that insists on alternation, as several models' do, and with requests that may bring their own."""
    file = tmp_path_factory.mktemp("template") / "strict.jinja"
    file.write_text(STRICT)
    shared.restart("tokenizer", "--chat-template", file)
    shared.restart("gateway", "--trust-request-chat-template")
    yield shared
    shared.restart("tokenizer")
    shared.restart("gateway")


def test_a_file_overrides_the_models_template(strict):
    assert strict.post("/apply-template", messages=user("a"))["prompt"] == \
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
    assert strict.chat("What is the capital of France?", max_tokens=1)["usage"]["prompt_tokens"] == 16


@pytest.mark.parametrize("roles", [["system"], ["user", "user"], ["assistant", "user"], ["developer", "user"]])
@pytest.mark.parametrize("stream", [False, True])
def test_what_a_template_refuses_is_the_clients_error(strict, roles, stream):
    body = {"messages": [{"role": role, "content": "x"} for role in roles], "stream": stream}
    answer = strict.request("POST", CHAT, body)
    assert answer.status == 400 and answer.error[1] == "invalid_value"
    assert "Conversation roles must alternate" in answer.json["error"]["message"]


def test_a_request_brings_its_own(strict):
    body = {"messages": user("a"), "chat_template": "{{ greeting }} {{ messages[0].content }}{% if loud %}!{% endif %}"}
    assert strict.post("/apply-template", **body, chat_template_kwargs={"greeting": "hi", "loud": True})["prompt"] == "hi a!"
    assert strict.post("/apply-template", **body, chat_template_kwargs={"greeting": "ho"})["prompt"] == "ho a"
    whole, = whole_of(strict.chat("The capital of France is", chat_template="{{ messages[0].content }}", max_tokens=2, temperature=0,
                                  return_token_ids=True)).values()
    assert whole.text == " Paris."


# As several models' do, it shows the roles that it knows and nothing else.
KNOWN_ROLES = "{% for m in messages %}{% if m.role in ['system', 'user', 'assistant'] %}[{{ m.role }}] {{ m.content }}\n{% endif %}{% endfor %}"
ANY_ROLE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
DEVELOPER = "{% for m in messages %}{% if m.role == 'developer' %}D: {% endif %}{{ m.content }}\n{% endfor %}"


@pytest.mark.parametrize("template, role, prompt", [
    (KNOWN_ROLES, "developer", "[system] Be terse.\n[user] a\n"), (ANY_ROLE, "developer", "[system] Be terse.\n[user] a\n"),
    (DEVELOPER, "developer", "D: Be terse.\na\n"), (ANY_ROLE, "narrator", "[narrator] Be terse.\n[user] a\n"), (KNOWN_ROLES, "narrator", None)])
def test_no_message_is_left_out(strict, template, role, prompt):
    """What newer clients call developer is system to models that know no such role; a role whose messages wouldn't be seen is refused."""
    body = {"messages": [{"role": role, "content": "Be terse."}, *user("a")], "chat_template": template}
    if prompt:
        assert strict.post("/apply-template", **body)["prompt"] == prompt
    else:
        for path in ("/apply-template", CHAT):
            answer = strict.request("POST", path, body)
            assert answer.error == (400, "invalid_value", "messages") and "messages[0].role" in answer.json["error"]["message"]


HARMFUL = {
    "endless": "{% for i in range(10**9) %}{% for j in range(10**9) %}x{% endfor %}{% endfor %}",
    "no output": "{% for i in range(10**7) %}{% for j in range(10**7) %}{% endfor %}{% endfor %}",
    "large": "{{ 'x' * 10**9 }}",
    "doubling": "{% set ns = namespace(x='x') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
    "deep": "{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}",
    "nested": "{% if 1 %}" * 20000 + "{% endif %}" * 20000,
    "recursive": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "power": "{{ 9 ** 9 ** 9 ** 9 }}",
    "division": "{{ 1 // 0 }}",
    "unfinished": "{% for x in",
    "unknown": "{{ x | frobnicate }}",
    "attributes": "{{ ''.__class__.__mro__ }}",
    "unknown tag": "{% include 'x' %}",
    "slice": "{{ messages[::0] }}",
    "missing": "{{ a.b.c.d }}",
}


@pytest.mark.parametrize("name", HARMFUL)
def test_a_template_neither_crashes_nor_stalls(strict, name):
    answer = strict.request("POST", CHAT, {"messages": user("a"), "max_tokens": 1, "chat_template": HARMFUL[name]})
    assert answer.error[:2] in ((400, "invalid_value"), (413, "request_too_large")), answer.data[:500]
    if name == "unknown":
        assert "frobnicate" in answer.json["error"]["message"]
    if name == "unknown tag":
        assert "include" in answer.json["error"]["message"]
    assert strict.chat("a", max_tokens=1)
