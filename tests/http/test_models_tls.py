"""TLS in front of several models (deploy/haproxy/tls.cfg): HAProxy ends it, and behind one connection of a client are the gateways
of all models; streams have the same bytes as without it, also when their gateway dies."""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import ssl
import subprocess

import pytest

from api import until
from test_models_serving import BUILD, OFTEN, free_port, group_of
from test_security import certificate, trusting

CONFIG = pathlib.Path(__file__).resolve().parents[2] / "deploy/haproxy/tls.cfg"


@contextlib.contextmanager
def tls_before(group, folder):
    """Yields what opens a connection of a client that trusts the certificate."""
    if not shutil.which("haproxy"):
        pytest.skip("NO HAPROXY HERE (tests/packages.txt)")
    cert, key = certificate(folder, "front", "front")
    both, port = folder / "both.pem", free_port()
    both.write_text(cert.read_text() + key.read_text())
    env = {**os.environ, "LOCKSTEP_BIND": f"127.0.0.1:{port}", "LOCKSTEP_CERT": str(both), "LOCKSTEP_GATEWAYS": f"127.0.0.1:{group.port}"}
    with open(folder / "haproxy.log", "wb") as log:
        process = subprocess.Popen(["haproxy", "-f", CONFIG], env=env, stdout=log, stderr=log)
    context = trusting(cert)

    def connect():
        return http.client.HTTPSConnection("localhost", port, timeout=30, context=context)

    def answers():
        assert process.poll() is None, (folder / "haproxy.log").read_text()
        with contextlib.suppress(OSError):
            return ask(connect(), "GET", "/live")[0] == 200

    try:
        until(answers, 20, "HAProxy")
        yield connect
    finally:
        process.kill()
        process.wait()


def ask(connection, method, path, body=None, headers=()):
    connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json", **dict(headers)})
    response = connection.getresponse()
    return response.status, response.read()


@pytest.fixture(scope="module")
def group():
    with group_of() as group:
        yield group


@pytest.fixture(scope="module")
def connect(group, tmp_path_factory):
    with tls_before(group, tmp_path_factory.mktemp("tls")) as connect:
        yield connect


def test_one_connection_for_all_models(connect):
    connection = connect()
    for i in range(OFTEN):
        for name, served in (("tiny", "tiny"), ("coder", "coder"), ("gpt-4o", "coder")):
            status, data = ask(connection, "POST", "/v1/completions", {"model": name, "prompt": f"{i}!"})
            answer = json.loads(data)
            assert status == 200 and answer["model"] == served and answer["choices"][0]["text"] == f"{i}!"
    status, data = ask(connection, "POST", "/v1/completions", {"model": "nobody", "prompt": "x"})
    assert status == 404 and json.loads(data)["error"]["code"] == "model_not_found"
    status, data = ask(connection, "GET", "/v1/models")
    assert [model["id"] for model in json.loads(data)["data"]] == ["tiny", "coder", "gpt-4o"]
    assert connection.sock.version() == "TLSv1.3"
    connection.close()


def test_a_stream_has_the_same_bytes(connect, group):
    """And its events come one by one, not at its end."""
    for name in ("tiny", "coder"):
        body = {"model": name, "prompt": "hello", "stream": True, "seed": 1}
        key = {"Idempotency-Key": f"tls-{name}"}
        plain = group.request("POST", "/v1/completions", body, key)[2]
        assert b'"model":"' + name.encode() in plain and ask(connect(), "POST", "/v1/completions", body, key) == (200, plain)


def test_without_it_the_two_are_refused_together(group, tmp_path):
    cert, key = certificate(tmp_path, "own", "own")
    done = subprocess.run([BUILD / "bin/lockstep-gateway", "--run-dir", group.runs[0].dir, "--instance", "1", "--port", "0", "--models-file", group.models,
                           "--tls-cert", cert, "--tls-key", key], capture_output=True, text=True, timeout=20)
    assert done.returncode == 78 and "deploy/haproxy/tls.cfg" in done.stderr


def test_guards_hold_behind_it(connect):
    """Host and Origin are the client's own words still."""
    body = {"prompt": "x"}
    port = connect().port
    for headers, status in (({"Host": "evil.example"}, 403), ({"Origin": "https://evil.example"}, 403), ({"Origin": f"https://localhost:{port}"}, 200)):
        assert ask(connect(), "POST", "/v1/completions", body, headers)[0] == status, headers


def test_old_versions_and_plain_http_are_refused(connect):
    port, old = connect().port, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        http.client.HTTPSConnection("localhost", port, timeout=20, context=old).connect()
    plain = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with pytest.raises((http.client.HTTPException, OSError)):
        ask(plain, "GET", "/live")


def test_a_gateway_dies_in_a_stream(tmp_path):
    """Its client comes back over TLS, and the gateway's successor goes on; the other model isn't disturbed."""
    with group_of(step_us=20000) as group, tls_before(group, tmp_path) as connect:
        for name, run in zip(("tiny", "coder"), group.runs):
            body, key = {"model": name, "prompt": "0123456789", "stream": True}, {"Idempotency-Key": f"kill-{name}"}
            connection = connect()
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json", **key})
            response = connection.getresponse()
            head = b"".join(response.readline() for _ in range(9))
            run.kill()
            with contextlib.suppress(http.client.HTTPException, OSError):
                head += response.read()
            other, = {"tiny", "coder"} - {name}
            for _ in range(OFTEN):
                assert ask(connect(), "POST", "/v1/completions", {"model": other, "prompt": "x"})[0] == 200
            run.start(0)
            seen = head[:head.rindex(b"\n\n") + 2]
            last = [line[4:] for line in seen.decode().split("\n") if line.startswith("id: ")][-1]
            status, rest = ask(connect(), "GET", f"/v1/streams/{last}")
            assert status == 200 and rest.endswith(b"data: [DONE]\n\n")
            assert b"[DONE]" not in seen and ask(connect(), "POST", "/v1/completions", body, key) == (200, seen + rest)
