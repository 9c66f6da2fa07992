"""The public JSON-Schema-Test-Suite (2020-12): a schema that is supported allows no text that the suite calls invalid, and
every other one is refused by place. docs/schema-coverage.md has the figures: `python tests/unit/test_schema_suite.py`
writes it."""

import json
import os
import pathlib
import subprocess
import sys

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests/lib"))
import schema_suite  # noqa: E402

BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", REPO / "build/release")).resolve()
PAGE = REPO / "docs/schema-coverage.md"

HEAD = """# JSON schemas: what of the public test suite is covered

[JSON-Schema-Test-Suite](https://github.com/json-schema-org/JSON-Schema-Test-Suite), draft 2020-12, with its optional files about
formats, in the version that the source archive of `{version}` carries. Written by `python tests/unit/test_schema_suite.py`; a test holds
it up to date.

- *supported*: schemas that answers can be bound to. Each other one is a 400 that names the place; nothing is ignored.
- *refused*: of the texts that are invalid by a supported schema, how many are outside of the answers' language. It must be all.
- *makeable*: of the texts that are valid by a supported schema, how many an answer can be. A language may be a part of the
  schema's ([structured-output.md](structured-output.md#json-schemas)): a model that is asked for an integer needs no way to write a string.

| file | schemas | supported | invalid texts refused | valid texts makeable |
|---|--:|--:|--:|--:|
"""


def examine():
    """Rows {file: [schemas, supported, refused, invalid, makeable, valid]}, wrong: what must not be."""
    rows, wrong = {}, []
    cases = schema_suite.cases()
    questions = "".join(json.dumps({"kind": "schema", "source": case["schema"],
                                    "texts": [json.dumps(test["data"]) for test in case["tests"]]}) + "\n" for _, case in cases)
    answers = subprocess.run([BUILD / "test/gr_accept_test"], input=questions, stdout=subprocess.PIPE, text=True, check=True).stdout
    for (name, case), line in zip(cases, answers.splitlines(), strict=True):
        row, answer = rows.setdefault(name, [0] * 6), json.loads(line)
        row[0] += 1
        if "error" in answer:
            if not any(word in answer["error"] for word in ("schema refused at", "no text", "grammar")):
                wrong.append((name, case["description"], answer["error"]))
            continue
        row[1] += 1
        for test, accepted in zip(case["tests"], answer["accepts"], strict=True):
            row[4 if test["valid"] else 2] += accepted == test["valid"]
            row[5 if test["valid"] else 3] += 1
            if accepted and not test["valid"]:
                wrong.append((name, case["description"], test["description"], json.dumps(test["data"])))
    return rows, wrong


def page(rows):
    total = [sum(column) for column in zip(*rows.values())]
    lines = [f"| {name} | {row[0]} | {row[1]} | {row[2]} of {row[3]} | {row[4]} of {row[5]} |\n"
             for name, row in [*rows.items(), ("**all**", total)]]
    return HEAD.format(version=schema_suite.VERSION.replace("==", " ")) + "".join(lines)


def test_the_suite():
    rows, wrong = examine()
    assert not wrong, wrong
    assert sum(row[1] for row in rows.values()) > 100
    assert PAGE.read_text() == page(rows), f"python {pathlib.Path(__file__).relative_to(REPO)} writes it"


if __name__ == "__main__":
    found, faults = examine()
    PAGE.write_text(page(found))
    print(*faults, sep="\n")
