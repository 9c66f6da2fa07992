"""docs/openapi.json against the gateway, by schemathesis: whatever it makes of the schemas, the answer has a status, a type
and a form that the document knows, and the server never fails."""

import importlib.util
import json
import os
import pathlib
import re

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

from echo_gateway import gateway_with

REPO = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = 200 if os.environ.get("LOCKSTEP_LONG") else 12
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
schema = schemathesis.openapi.from_path(REPO / "docs/openapi.json")
# Its systematic cases are some hundred an operation: for the long form.
schema.config.phases.coverage.enabled = bool(os.environ.get("LOCKSTEP_LONG"))


@pytest.fixture(scope="module")
def server():
    with gateway_with("--queue", 512) as server:
        yield server


@schema.parametrize()
@hypothesis.settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
                     suppress_health_check=list(hypothesis.HealthCheck), phases=[hypothesis.Phase.generate])
def test_as_documented(case, server):
    case.call_and_validate(base_url=server.url, checks=CHECKS, timeout=30)


def test_the_document_is_what_its_program_writes():
    spec = importlib.util.spec_from_file_location("openapi", REPO / "docs/openapi.py")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    assert json.loads((REPO / "docs/openapi.json").read_text()) == json.loads(json.dumps(program.document()))


def test_the_document_has_every_route_and_parameter():
    document = json.loads((REPO / "docs/openapi.json").read_text())
    routes = re.findall(r'\{"(GET|POST|DELETE)", "([^"]+)", \w+, (?:true|false)\}', (REPO / "gateway/gw_service.c").read_text())
    assert len(routes) > 20
    for method, path in routes:
        if path not in ("/", "/ui", "/ui/pipeline"):
            found = [each for each in document["paths"] if each == path or (path.endswith("/") and each.startswith(path + "{"))]
            assert found and method.lower() in document["paths"][found[0]], path
    table = re.search(r"params\[\] = \{(.*?)\n\};", (REPO / "gateway/api/api_params.c").read_text(), re.S)[1]
    names = set(re.findall(r'\b(?:BOOL|INT|REAL|LOCAL|CUSTOM|IGNORED)\(\s*"(\w+)"', table))
    known = set()
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize", "/detokenize"):
        known |= set(document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"])
    assert names == known
