"""Chat templates against jinja2: the same text or both an error, on real templates and on random ones; and where every
character of the text came from."""
import collections
import json
import os
import pathlib
import subprocess
import sys

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests" / "golden" / "templates"))

import conversations  # noqa: E402
import families  # noqa: E402
import generator  # noqa: E402
import reference  # noqa: E402

LONG = bool(os.environ.get("LOCKSTEP_LONG"))
BUILD = REPO / os.environ.get("LOCKSTEP_BUILD", "build/release")
RENDER = BUILD / "test" / "lockstep-tmpl-render"
MARK = "\ue000"


def render(requests):
    """What the engine says to each request: {"text", "pieces"} or {"error", "code"}."""
    if not RENDER.exists():
        pytest.fail(f"{RENDER} isn't built")
    lines = "".join(json.dumps({"now": reference.NOW, **request}) + "\n" for request in requests)
    done = subprocess.run([RENDER], input=lines.encode(), capture_output=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    answers = [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]
    assert len(answers) == len(requests)
    return answers


def family_template(family):
    try:
        return families.template(family)
    except families.Unavailable as why:
        pytest.skip(str(why))


def trusted(answer):
    """The text's trusted bytes, and its untrusted ones."""
    raw, sides, at = answer["text"].encode(), ([], []), 0
    for offset, length, is_trusted in answer["pieces"]:
        assert offset == at and length > 0
        sides[not is_trusted].append(raw[offset:offset + length])
        at += length
    assert at == len(raw)
    return b"|".join(sides[0]).decode(), b"|".join(sides[1]).decode()


def check(named_requests):
    """Every request against jinja2. Returns how many gave a text and how many an error."""
    counts = collections.Counter()
    for (name, request), answer in zip(named_requests, render([request for _, request in named_requests])):
        wanted = reference.render(request)
        where = f"{name}: {json.dumps({k: v for k, v in request.items() if k != 'template'}, ensure_ascii=False)}"
        if "text" in wanted:
            assert answer.get("text") == wanted["text"], f"{where}\n{answer.get('error')}"
            counts["text"] += 1
        else:
            assert "error" in answer, f"{where}\njinja2: {wanted['error']}\nhere: {answer.get('text')}"
            if wanted["raised"]:  # the template's own words are the client's 400
                assert (answer["code"], answer["error"]) == ("invalid_value", wanted["error"].split(": ", 1)[1]), where
            counts["error"] += 1
    return counts


@pytest.mark.parametrize("family", families.FULL)
def test_real_template(family):
    counts = check(list(conversations.cases(family_template(family))))
    assert counts["text"] > 100, counts


def test_collection():
    """The other real templates that can be had: some sixty families."""
    try:
        templates = families.collection()
    except families.Unavailable as why:
        pytest.skip(str(why))
    requests = [(f"{name}, {conversation}", request) for name, template in sorted(templates.items())
                for conversation, request in conversations.cases(template, full=LONG)]
    counts = check(requests)
    assert len(templates) > 50 and counts["text"] > 1500, (len(templates), counts)


@pytest.mark.parametrize("family", families.FULL)
def test_request_is_never_trusted(family):
    """Every character that a client sent is marked; the marks must all come out untrusted."""
    template, marks = family_template(family), 0
    requests = []
    for _, request in conversations.cases(template):
        request = {**request, "messages": conversations.marked(request["messages"], MARK)}
        if "tools" in request:
            request["tools"] = conversations.marked(request["tools"], MARK)
        requests.append(request)
    for answer in render(requests):
        if "text" in answer:
            template_side, request_side = trusted(answer)
            assert MARK not in template_side
            marks += request_side.count(MARK)
    assert marks > 1000


@pytest.mark.parametrize("family", families.FULL)
def test_injection_changes_nothing_trusted(family):
    """Control tokens in a user's text add nothing to what is recognised as control tokens."""
    template = family_template(family)

    def chat(content):
        return {"template": template, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True,
                "messages": [conversations.user(content), conversations.assistant(content), conversations.user(content)]}

    plain, attack = render([chat("hi"), chat(conversations.INJECTION)])
    assert trusted(plain)[0] == trusted(attack)[0]
    assert conversations.INJECTION in trusted(attack)[1]


def random_requests(seed, count):
    return [("template " + request["template"], request) for request in generator.cases(seed, count)]


def differs_knowingly(wanted, answer):
    """Constructs named as not supported, what prints a memory address, and slices of constants that Python refuses
    (folded at compile time, Jinja makes such a slice undefined)."""
    return (answer.get("code") == "unsupported" or " object at 0x" in wanted.get("text", "")
            or "slice" in answer.get("error", ""))


@pytest.mark.parametrize("seed", range(20 if LONG else 3))
def test_random_templates(seed):
    requests = random_requests(seed, 2000)
    texts = unknown = 0
    for (name, request), answer in zip(requests, render([request for _, request in requests])):
        wanted = reference.render(request)
        if differs_knowingly(wanted, answer):
            unknown += 1
        elif "text" in wanted:
            assert answer.get("text") == wanted["text"], f"seed {seed}, {name}\n{answer.get('error')}"
            trusted(answer)
            texts += 1
        else:
            assert "error" in answer, f"seed {seed}, {name}\njinja2: {wanted['error']}"
    assert texts > 1000 and unknown < 60, (texts, unknown)


def test_random_templates_keep_marks_untrusted():
    """A context all of marked strings, through every operation that the generator knows."""
    requests, marks = [], 0
    for _, request in random_requests(77, 2000):
        requests.append({**request, "kwargs": conversations.marked(generator.CONTEXT, MARK)})
    for answer in render(requests):
        if "text" in answer:
            template_side, request_side = trusted(answer)
            assert MARK not in template_side
            marks += request_side.count(MARK)
    assert marks > 1000


def test_whole_unicode():
    """Case, white space, repr and JSON of every code point, but for those that came with newer versions of Unicode."""
    import unicodedata
    old = unicodedata.ucd_3_2_0
    chars = [chr(c) for c in range(1, 0x20000)
             if not 0xD800 <= c <= 0xDFFF and old.category(chr(c)) not in ("Cn", "Co")]
    # Georgian and a few others got upper case after 3.2: Python's own table must agree with the pinned one's.
    chars = [c for c in chars if not 0x10A0 <= ord(c) <= 0x10FF]
    template = "{{ [s]|string }}\n{{ s|tojson(ensure_ascii=true) }}\n{{ s.upper() }}\n{{ s.lower() }}\n{{ s.title() }}\n" \
               "{{ s.strip() }}\n{{ s.swapcase() }}\n{{ s.split()|length }}\n{{ s.splitlines()|length }}\n{{ s is lower }}"
    requests = []
    for at in range(0, len(chars), 64):
        block = chars[at:at + 64]
        for text in ("".join(block), "a" + "b".join(block)):
            requests.append(("unicode", {"template": template, "kwargs": {"s": text}}))
    assert check(requests)["text"] == len(requests)


def test_reference_is_transformers():
    """The oracle itself, where transformers is installed."""
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    compared = 0
    for family in families.FULL:
        template = family_template(family)
        for _, case in conversations.cases(template, full=False):
            if "strftime_now" in template:
                continue
            wanted, tokens = reference.render(case), {k: case[k] for k in ("bos_token", "eos_token")}
            try:
                messages = utils._normalize_chat_messages(case["messages"])
                text = utils.render_jinja_template([messages], tools=case.get("tools"), chat_template=template,
                                                   add_generation_prompt=True, **tokens, **case["kwargs"])[0][0]
            except Exception:  # noqa: BLE001
                text = None
            assert text == wanted.get("text")
            compared += 1
    assert compared > 300
