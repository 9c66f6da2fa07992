"""docs/api.md and docs/openapi.json name every parameter of the gateway's table, with its range and default, and no other;
docs/surfaces.md every member of the other forms; docs/errors.md every error code with its status and what to do."""

import json
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
TEXT = (ROOT / "docs/api.md").read_text()
ENDPOINTS = {"GW_CHAT": "/v1/chat/completions", "GW_COMPLETIONS": "/v1/completions", "GW_EMBEDDINGS": "/v1/embeddings"}
INT_MAX = 2 ** 31 - 1


def source(name):
    return (ROOT / name).read_text()


def section(name):
    return re.search(rf"## {name}\n(.*?)(?:\n## |\Z)", TEXT, re.S)[1]


def rows(text):
    """Cells of a section's table, the names in the first one taken apart."""
    for line in text.splitlines():
        if line.startswith("| `"):
            cells = [cell.strip() for cell in line.strip()[1:-1].split(" | ")]
            yield re.findall(r"`(\w+)`", cells[0]), cells[1:]


def table():
    return re.search(r"params\[\] = \{(.*?)\n\};", source("gateway/api/api_params.c"), re.S)[1]


def numbers():
    """(name, endpoints, low, high, default) of every parameter that is a number."""
    found = re.findall(r'\b(?:INT|REAL|LOCAL)\(\s*"(\w+)", ([\w |]+), (?:KIND_INT, )?\w+,\s*([-\w.]+), ([-\w.]+), ([-\w.]+)\)', table())
    return [(name, where, float(low), INT_MAX if high == "INT_MAX_D" else float(high), float(default))
            for name, where, low, high, default in found]


def test_every_parameter_is_documented():
    names = set(re.findall(r'\b(?:BOOL|INT|REAL|LOCAL|CUSTOM|IGNORED|REFUSED)\(\s*"(\w+)"', table()))
    assert len(names) > 50
    text = section("Parameters")
    assert names - set(re.findall(r"`(\w+)`", text)) == set()
    assert {name for own, _ in rows(text) for name in own} - names == set()


def written(cell):
    """(low, high or None) of "0 to 2", "-1 to 2^31-1", "1 …"."""
    cell = cell.replace("−", "-").replace("2³¹-1", str(INT_MAX))
    low, high = re.match(r"(-?[\d.]+) (?:to (-?[\d.]+)|…)", cell).groups()
    return float(low), float(high) if high else None


def test_ranges_and_defaults_are_the_tables():
    assert len(numbers()) > 15
    documented = [(name, cells) for own, cells in rows(section("Parameters")) for name in own]
    for name, where, low, high, default in numbers():
        of = {"GW_CHAT": "chat", "GW_COMPLETIONS": "completions"}.get(where, "")
        cells = [cells for own, cells in documented if own == name and of in cells[0]]
        assert cells, name
        for where_cell, range_cell, default_cell in cells:
            if name in ("max_completion_tokens", "best_of"):  # said in words: like another one
                continue
            # max_tokens stands once for both, with completions' 0 in brackets.
            own_low, own_high = written(range_cell)
            assert own_low == low or "completions: 0" in range_cell, (name, range_cell)
            assert own_high == high or (own_high is None and high >= 65535), (name, range_cell)
            if re.fullmatch(r"-?[\d.]+", default_cell):
                # -1 is how the table says: not given.
                assert float(default_cell) == (0 if name == "top_logprobs" and default == -1 else default), (name, default_cell)


def test_the_machines_document_has_the_same_ranges():
    document = json.loads(source("docs/openapi.json"))
    compared = 0
    for name, where, low, high, default in numbers():
        wheres = ["GW_CHAT", "GW_COMPLETIONS"] if where == "GENERATE" else [where]
        for path in [ENDPOINTS[each] for each in wheres if each in ENDPOINTS]:
            own = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"][name]
            assert (own["minimum"], own["maximum"]) == (low, high), (path, name, own)
            assert own.get("default", default) == default, (path, name, own)
            compared += 1
    assert compared > 25


@pytest.mark.parametrize("kind, first", [("IGNORED", "Accepted without effect:"), ("REFUSED", "Refused by name")])
def test_what_is_ignored_or_refused_is_said(kind, first):
    names = set(re.findall(rf'\b{kind}\(\s*"(\w+)"', table()))
    # What stands in brackets is what to use instead.
    sentence = re.sub(r"\([^)]*\)", "", re.search(rf"^{first}(.*?)\.\s", section("Parameters"), re.S | re.M)[1])
    assert len(names) > 5 and set(re.findall(r"`(\w+)`", sentence)) == names


LIMITS = [("stop", "GW_STOPS_MAX", "at most {},"), ("stop", "GW_STOP_BYTES_MAX", "1 to {} bytes"), ("stop_token_ids", "GW_STOP_IDS_MAX", "at most {} "),
          ("logit_bias", "GW_BIASES_MAX", "at most {} "), ("messages", "GW_MESSAGES_MAX", "1 to {} "), ("input", "GW_INPUTS_MAX", "at most {} "),
          ("tools", "GW_TOOLS_MAX", "at most {} ")]


@pytest.mark.parametrize("name, constant, words", LIMITS)
def test_limits_of_counts_are_the_codes(name, constant, words):
    headers = source("gateway/api/api_request.h") + source("gateway/tools.h")
    value = re.search(rf"#define {constant}\s+(\d+)u\b", headers)[1]
    cell, = (cells[1] for own, cells in rows(section("Parameters")) if name in own)
    assert words.format(value) in cell


def sent_codes():
    """{code: statuses} of everything that can stand in an error object."""
    codes = {}
    for name, status in re.findall(r'\[SVC_\w+\] = \{"(\w+)", [^,]+, (\d+),', source("base/err.c")):
        codes.setdefault(name, set()).add(int(status))
    del codes["ok"]
    codes["model_not_found"] = codes["not_found"]
    for path in (ROOT / "gateway/http").glob("*.c"):
        for status, name in re.findall(r'struct gw_http_fault \w+ = \{\s*(\d{3}),\s*"(\w+)"', path.read_text()):
            codes.setdefault(name, set()).add(int(status))
    return codes


def test_every_error_code_is_documented_with_its_status():
    codes, documented = sent_codes(), {}
    assert len(codes) > 40 and codes["request_too_large"] == {413}
    for line in source("docs/errors.md").splitlines():
        match = re.match(r"\| (\d{3}) \| ([^|]+) \| ([^|]{10,}) \|", line)
        for name in re.findall(r"`(\w+)`", match[2]) if match else []:
            assert name not in documented or name == "not_found", name
            documented.setdefault(name, set()).add(int(match[1]))
    assert documented == codes


# Of docs/surfaces.md, the names that a form refuses: rows that say so, or its sentence.
FORMS = [("gateway/api/api_anthropic.c", "gw_anthropic_members", "Anthropic"), ("gateway/api/api_ollama.c", "gw_ollama_options", "Ollama"),
         ("gateway/api/api_ollama.c", "chat_members", "Ollama"), ("gateway/api/api_ollama.c", "generate_members", "Ollama"),
         ("gateway/api/api_ollama.c", "embed_members", "Ollama"), ("gateway/api/api_responses.c", "gw_responses_members", "OpenAI's responses")]


def refused_in(text):
    listed = re.findall(r"^\| (`.*`) \| refused \|$", text, re.M) + re.findall(r"Refused: (.*?)\.\s", text)
    return set(re.findall(r"`(\w+)`", " ".join(listed)))


@pytest.mark.parametrize("name, members, title", FORMS, ids=[each[1] for each in FORMS])
def test_the_other_forms_members_are_documented(name, members, title):
    own = re.search(rf"{members}\[\w*\] = \{{(.*?)\n\}};", source(name), re.S)[1]
    found = re.findall(r'\{"(\w+)",\s*(?:NULL|"\w+"),\s*(NULL|")', own)
    text = re.search(rf"## {title}[^\n]*\n(.*?)(?:\n## |\Z)", source("docs/surfaces.md"), re.S)[1]
    assert len(found) >= 6 and len(found) == own.count("{")
    assert {each for each, _ in found} - set(re.findall(r"[`.](\w+)", text)) == set()
    refused = {each for each, remedy in found if remedy != "NULL"}
    assert refused <= refused_in(text) and not refused_in(text) & {each for each, _ in found} - refused
