"""Jinja2 as transformers sets it up for chat templates: the oracle of the template tests.

Only jinja2 is needed. What transformers does around it (its own tojson, namespace and dict, the
generation tag, the normalised messages) is written out here; test_templates.py compares with
transformers itself where that is installed.
"""
import copy
import functools
import json
from datetime import datetime, timezone

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

NOW = 1753700400  # 2025-07-28 11:00:00 UTC


class Generation(jinja2.ext.Extension):
    """{% generation %}: its body's text, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


class Dict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)


class Namespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attrs = dict(*args, **kwargs)
        for name in attrs:
            check_name(name)
        jinja2.utils.Namespace.__init__(self, attrs)

    def __setitem__(self, name, value):
        check_name(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)


def check_name(name):
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(name)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def strftime_now(pattern):
    return datetime.fromtimestamp(NOW, timezone.utc).replace(tzinfo=None).strftime(pattern)


def make_environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, strftime_now=strftime_now, dict=Dict(),
                       namespace=Namespace)
    return env


ENVIRONMENT = make_environment()
REASONING = ("reasoning_content", "thinking", "reasoning")


def normalise(messages):
    """Null keys are dropped, reasoning is found under each of its names."""
    out = []
    for message in messages:
        message = {k: v for k, v in message.items() if v is not None}
        reasoning = next((message[k] for k in REASONING if k in message), None)
        if reasoning is not None:
            message.setdefault("thinking", reasoning)
            message["reasoning_content"] = reasoning
        out.append(message)
    return out


@functools.lru_cache(maxsize=256)
def compiled(template):
    return ENVIRONMENT.from_string(template)


def render(case):
    """{"text": ...} or {"error": ...} for a request of lockstep-tmpl-render."""
    try:
        template = compiled(case["template"])
        tokens = {k: case[k] for k in ("bos_token", "eos_token") if k in case}
        given = {
            "messages": normalise(copy.deepcopy(case.get("messages") or [])),
            "tools": case.get("tools"),
            "documents": case.get("documents"),
            "add_generation_prompt": bool(case.get("add_generation_prompt")),
        }
        return {"text": template.render({**given, **tokens, **(case.get("kwargs") or {})})}
    except Exception as error:  # a template may fail in any way Python knows
        return {"error": f"{type(error).__name__}: {error}",
                "raised": type(error) is jinja2.exceptions.TemplateError}
