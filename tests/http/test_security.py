"""Who may use the gateway, from where, and how much: keys, limits over several gateways, Host and Origin, TLS. Every line
of docs/threat-model.md that names this file is a test here."""

import contextlib
import hashlib
import http.client
import json
import os
import re
import socket
import ssl
import stat
import subprocess
import time

import pytest

from api import together
from echo_gateway import Gateway, events_of, gateway_with, read_events, read_until, until, whole_stream
from test_http_layer import BUILD, echo_with

ALICE, BOB, ROOT = "alice-key-0123456789", "bob-key-0123456789", "root-key-0123456789"
BODY = {"prompt": "abc"}


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def write(path, text):
    """As an operator should: a complete file, renamed into place."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.chmod(0o600)
    new.rename(path)


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys"
    write(path, f"# who\nalice {ALICE}\nbob sha256:{hashlib.sha256(BOB.encode()).hexdigest()}\nroot {ROOT} admin\n")
    return path


@contextlib.contextmanager
def second_gateway(server):
    """Another gateway of the same run, on a port of its own: yields what asks it."""
    other = Gateway.__new__(Gateway)
    other.dir, other.options, other.pipeline = server.dir, server.options, None
    other.start()
    try:
        yield other
    finally:
        other.kill()


def complete(server, key, **more):
    return server.request("POST", "/v1/completions", {**BODY, **more}, bearer(key))


# ---- keys

def test_keys(keys):
    with gateway_with("--api-keys", keys) as server:
        for path in ("/live", "/ready", "/health", "/"):
            assert server.request("GET", path)[0] == 200
        for path in ("/v1/models", "/metrics", "/v1/streams/x"):
            assert server.request("GET", path)[0] == 401
        for headers in ({}, bearer("wrong"), bearer(""), {"Authorization": ALICE}, {"Authorization": f"Basic {ALICE}"},
                        bearer(ALICE[:-1]), bearer(ALICE + "x"), {"X-Api-Key": "wrong"}):
            status, fields, data = server.request("POST", "/v1/completions", BODY, headers)
            assert (status, json.loads(data)["error"]["code"]) == (401, "invalid_api_key")
            assert fields["WWW-Authenticate"] == "Bearer"
        for headers in (bearer(ALICE), bearer(BOB), {"X-Api-Key": BOB}, {"Authorization": f"bearer {ALICE}"}):
            assert server.request("POST", "/v1/completions", BODY, headers)[0] == 200
        assert ALICE not in server.read_log() and BOB not in server.read_log()


def test_a_refused_body_is_not_read(keys):
    with gateway_with("--api-keys", keys) as server, server.connect() as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 401 ")


def test_keys_are_read_again(keys):
    with gateway_with("--api-keys", keys) as server:
        assert complete(server, ALICE)[0] == 200
        write(keys, "carol carol-key-0123456789\n")
        until(lambda: complete(server, "carol-key-0123456789")[0] == 200)
        assert complete(server, ALICE)[0] == 401
        write(keys, "carol secret-but-alone\ncarol\n")
        until(lambda: "the API keys stay as they were" in server.read_log())
        assert "line 2: the key must have" in server.read_log() and "secret-but-alone" not in server.read_log()
        keys.unlink()
        time.sleep(1.2)
        assert complete(server, "carol-key-0123456789")[0] == 200


@pytest.mark.parametrize("text, words", [("", "no key in it"), ("alice short", "16 to 256"), (None, "cannot open")])
def test_a_wrong_file_is_refused_at_start(tmp_path, text, words):
    path = tmp_path / "keys"
    if text is not None:
        path.write_text(text)
    with gateway_with() as server:
        done = subprocess.run([BUILD / "bin/lockstep-gateway", "--run-dir", server.dir, "--port", "0", "--instance", "1",
                               "--api-keys", path], capture_output=True, timeout=20)
        assert done.returncode in (74, 78) and words in done.stderr.decode()


# ---- limits, over two gateways of one run

def test_a_rate_holds_over_all_gateways(keys):
    write(keys, f"alice {ALICE} requests-per-minute=6 burst=5\nbob {BOB}\n")
    with gateway_with("--api-keys", keys) as server, second_gateway(server) as other:
        answers = together(8, lambda i: complete((server, other)[i % 2], ALICE), range(12))
        assert sorted(answer[0] for answer in answers) == [200] * 5 + [429] * 7
        refused = next(answer for answer in answers if answer[0] == 429)
        assert json.loads(refused[2])["error"]["code"] == "rate_limit_exceeded"
        assert 1 <= int(refused[1]["Retry-After"]) <= 10
        assert complete(server, BOB)[0] == 200


def test_requests_at_once_are_limited_over_all_gateways(keys):
    write(keys, f"alice {ALICE} concurrent=2\nbob {BOB}\n")
    with gateway_with("--api-keys", keys, step_us=20000) as server, second_gateway(server) as other:
        prompt = {"prompt": "x" * 60}
        streams = [which.open_stream("/v1/completions", bearer(ALICE), stream=True, **prompt) for which in (server, other)]
        for stream in streams:
            read_events(stream, 2)
        for which in (server, other):
            status, _, data = complete(which, ALICE)
            assert (status, json.loads(data)["error"]["code"]) == (429, "rate_limit_exceeded")
        assert complete(other, BOB)[0] == 200
        # A place is free again when a request ends, however it ends: here with the gateway itself.
        other.kill()
        until(lambda: complete(server, ALICE)[0] == 200, 30)
        for stream in streams:
            stream.close()


# ---- what belongs to whom

def test_idempotency_keys_and_event_ids_belong_to_their_api_key(keys):
    with gateway_with("--api-keys", keys, step_us=5000) as server:
        same = {"Idempotency-Key": "same"}
        of_alice = whole_stream(server, {**bearer(ALICE), **same}, prompt="alice's", stream=True)
        of_bob = whole_stream(server, {**bearer(BOB), **same}, prompt="bob's own", stream=True)
        assert of_alice != of_bob
        assert whole_stream(server, {**bearer(ALICE), **same}, prompt="alice's", stream=True) == of_alice
        stream = server.open_stream("/v1/completions", {**bearer(ALICE), **same, "Idempotency-Key": "other"},
                                    prompt="x" * 40, stream=True)
        event = read_events(stream, 1)[0]
        place = next(line[4:] for line in event.split("\n") if line.startswith("id: "))
        for headers, status in ((bearer(BOB), 404), ({}, 401), (bearer("guessed-key-012345"), 401), (bearer(ALICE), 200)):
            assert server.request("GET", f"/v1/streams/{place}", None, headers)[0] == status
        stream.close()


# ---- pages of other origins

def test_a_name_that_was_bound_to_loopback_is_refused():
    with gateway_with("--allowed-hosts", "api.example") as server:
        for host, status in (("localhost", 200), ("127.0.0.1:80", 200), ("[::1]", 200), ("api.example:8080", 200),
                             ("evil.example", 403), ("localhost.evil.example", 403), ("10.0.0.1", 403)):
            for method, path, body in (("GET", "/v1/models", None), ("POST", "/v1/completions", BODY)):
                got, _, data = server.request(method, path, body, {"Host": host})
                assert got == status, (host, data)
        assert json.loads(data)["error"]["code"] == "forbidden" and b"--allowed-hosts" in data


def test_a_page_of_another_origin_cannot_post():
    with gateway_with("--cors-origins", "https://ui.example") as server:
        for kind in ("application/json", "text/plain"):
            for origin, status in (("https://evil.example", 403), ("null", 403), ("http://localhost:1", 403),
                                   ("https://ui.example", 200), (f"http://127.0.0.1:{server.port()}", 200)):
                got, fields, data = server.request("POST", "/v1/completions", BODY, {"Origin": origin, "Content-Type": kind})
                assert got == status, (origin, data)
                listed = origin == "https://ui.example"
                assert fields["Access-Control-Allow-Origin"] == (origin if listed else None)
        asks = {"Origin": "https://ui.example", "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,x-stainless-os"}
        _, fields, _ = server.request("OPTIONS", "/v1/completions", None, asks)
        assert fields["Access-Control-Allow-Headers"] == "authorization,x-stainless-os"


# ---- TLS

def certificate(folder, name, cn):
    """A key and a certificate of its own for localhost."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", f"/CN={cn}", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
                   check=True, capture_output=True)
    return cert, key


def trusting(cert):
    return ssl.create_default_context(cafile=cert)


def ask(port, context, path="/live"):
    connection = http.client.HTTPSConnection("localhost", port, timeout=20, context=context)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


def test_tls_streams_as_plain_http_does(tmp_path):
    cert, key = certificate(tmp_path, "a", "a")
    with gateway_with("--tls-cert", cert, "--tls-key", key) as server:
        # http.client would wait for the server's end; this reads to it, and so sees a cut.
        connection = http.client.HTTPSConnection("localhost", server.port(), timeout=20, context=trusting(cert))
        until(lambda: ask(server.port(), trusting(cert), "/ready") == b'{"status":"ok"}')
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "hello", "stream": True}),
                           {"Content-Type": "application/json", "Connection": "close"})
        response = connection.getresponse()
        events = events_of(response.read().decode())
        assert events[-1] == "[DONE]" and "".join(e["choices"][0]["text"] for e in events[:-1]) == "hello"
        connection.close()


def test_tls_versions_and_clients_that_speak_something_else(tmp_path):
    cert, key = certificate(tmp_path, "a", "a")
    with echo_with("--tls-cert", cert, "--tls-key", key, "--head-ms", 500) as server:
        old = trusting(cert)
        old.set_ciphers("DEFAULT:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask(server.port, old, "/counts")
        with pytest.raises(ssl.SSLCertVerificationError):
            ask(server.port, ssl.create_default_context(), "/counts")
        with server.connect() as plain:
            plain.sendall(b"GET /counts HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                assert b"HTTP" not in plain.recv(4096)
        with server.connect() as silent:
            began = time.monotonic()
            assert silent.recv(1) == b"" and time.monotonic() - began < 5
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            new = trusting(cert)
            new.minimum_version = new.maximum_version = version
            assert json.loads(ask(server.port, new, "/counts"))["faults"] == 0


def test_tls_bounds_output_and_ends_cleanly(tmp_path):
    cert, key = certificate(tmp_path, "a", "a")
    with echo_with("--tls-cert", cert, "--tls-key", key, "--write-ms", 400) as server:
        context = trusting(cert)
        reads = ask(server.port, context, "/flood?3000000")
        assert len(reads) == 3000000
        with context.wrap_socket(server.connect(receive_buffer=4096), server_hostname="localhost") as slow:
            slow.sendall(b"GET /flood?500000000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            until(lambda: json.loads(ask(server.port, context, "/counts"))["dropped_slow"] == 1)
        # Cut, or ended: the client must be able to tell.
        with context.wrap_socket(server.connect(), server_hostname="localhost", suppress_ragged_eofs=False) as ended:
            ended.sendall(b"GET /counts HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            text = b""
            while piece := ended.recv(4096):
                text += piece
            assert text.startswith(b"HTTP/1.1 200 ")


def test_a_new_certificate_is_taken_without_a_restart(tmp_path):
    cert, key = certificate(tmp_path, "a", "a")
    new_cert, new_key = certificate(tmp_path, "b", "b")
    trusts_new = trusting(new_cert)
    with gateway_with("--tls-cert", cert, "--tls-key", key) as server:
        kept = http.client.HTTPSConnection("localhost", server.port(), timeout=20, context=trusting(cert))
        kept.request("GET", "/live")
        assert kept.getresponse().read()
        # In the middle of the change the two don't fit, and the old pair goes on serving.
        os.replace(new_cert, cert)
        until(lambda: "the certificate stays as it was" in server.read_log())
        os.replace(new_key, key)

        def served():
            with contextlib.suppress(ssl.SSLError):
                return ask(server.port(), trusts_new)

        until(served)
        kept.request("GET", "/live")
        assert kept.getresponse().read()
        kept.close()


@pytest.mark.parametrize("which, words", [("cert", "given together"), ("both", "isn't the key"), ("none", "no PEM certificate that can be read")])
def test_wrong_tls_options_are_refused(tmp_path, which, words):
    cert, _ = certificate(tmp_path, "a", "a")
    _, other_key = certificate(tmp_path, "b", "b")
    options = {"cert": ["--tls-cert", cert], "both": ["--tls-cert", cert, "--tls-key", other_key],
               "none": ["--tls-cert", tmp_path / "none", "--tls-key", other_key]}[which]
    with gateway_with() as server:
        done = subprocess.run([BUILD / "bin/lockstep-gateway", "--run-dir", server.dir, "--port", "0", "--instance", "1",
                               *options], capture_output=True, timeout=20)
        assert done.returncode == 78 and words in done.stderr.decode()


# ---- what is left behind

def test_no_prompt_and_no_key_in_the_log(keys):
    with gateway_with("--api-keys", keys) as server:
        secret = "a very private question"
        server.request("POST", "/v1/completions", {"prompt": secret}, bearer(ALICE))
        server.request("POST", "/v1/completions", {"prompt": secret, "temperature": 7}, bearer(ALICE))
        server.request("POST", "/v1/completions", {"prompt": secret}, bearer("no-such-key-at-all"))
        server.request("POST", "/v1/completions", {"prompt": secret * 100}, bearer(ALICE))
        assert "private" not in server.read_log() and "no-such-key" not in server.read_log()


def test_the_run_directory_is_its_users_alone():
    with gateway_with() as server:
        for folder, _, files in os.walk(server.dir):
            assert folder == server.dir or stat.S_IMODE(os.stat(folder).st_mode) == 0o700, folder
            for name in files:
                path = os.path.join(folder, name)
                assert stat.S_IMODE(os.lstat(path).st_mode) & 0o077 == 0 or stat.S_ISSOCK(os.lstat(path).st_mode), path


def test_many_connections_of_one_address_are_refused(keys):
    with gateway_with("--max-connections-per-address", 3) as server:
        held = [server.connect() for _ in range(3)]
        time.sleep(0.1)
        with server.connect() as more:
            more.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert more.recv(4096).startswith(b"HTTP/1.1 503 ")
        elsewhere = socket.create_connection(("127.0.0.1", server.port()), source_address=("127.0.0.2", 0))
        elsewhere.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert elsewhere.recv(4096).startswith(b"HTTP/1.1 200 ")
        for connection in [*held, elsewhere]:
            connection.close()


# ---- requests that run

def test_requests_are_listed_and_cancelled_by_those_whose_they_are(keys):
    with gateway_with("--api-keys", keys, "--access-log", step_us=20000) as server, second_gateway(server) as other:
        stream = server.open_stream("/v1/completions", bearer(ALICE), prompt="x" * 200, stream=True)
        read_events(stream, 2)

        def listed(key):
            return json.loads(other.request("GET", "/v1/requests", None, bearer(key))[2])["data"]

        mine, = listed(ALICE)
        assert mine["key"] == "alice" and mine["prompt_tokens"] == 200 and mine["completion_tokens"] >= 1
        assert listed(BOB) == [] and [each["id"] for each in listed(ROOT)] == [mine["id"]]
        path = f"/v1/requests/{mine['id']}/cancel"
        for key, asked, status in ((BOB, path, 404), (ROOT, path + "x", 404), (ROOT, "/v1/requests/0/cancel", 404), (ROOT, path, 200)):
            assert other.request("POST", asked, {}, bearer(key))[0] == status
        assert b'"code":"cancelled"' in read_until(stream, b"\r\n0\r\n\r\n")
        assert listed(ROOT) == []
        stream.close()


def test_the_access_log(keys):
    """Who asked what, when, with which result; a client's own id is the one that it has in its logs. Nothing of the query."""
    with gateway_with("--api-keys", keys, "--access-log", step_us=20000) as server:
        _, fields, _ = server.request("POST", "/v1/completions?prompt=private", BODY, bearer(ALICE))
        server.request("POST", "/v1/completions", {**BODY, "n": 0}, {"X-Api-Key": BOB, "X-Request-Id": 'bob "7"'.replace(" ", "_")})
        server.request("GET", "/metrics", None, bearer("no-such-key-at-all"))
        stream = server.open_stream("/v1/completions", {**bearer(ROOT), "X-Request-Id": "gone-1"}, prompt="x" * 200, stream=True)
        read_events(stream, 1)
        stream.close()
        until(lambda: "gone-1" in server.read_log())
        lines = [json.loads(line) for line in server.read_log().splitlines() if '"access: ' in line]
        assert all(line["level"] == "info" and line["ts"] for line in lines)
        found = [re.fullmatch(r"access: 127\.0\.0\.1 (\w+) (\S+) (\d+), (\d+) bytes in \d+\.\d{3} s, key (\S+), id (\S+)", line["msg"])
                 for line in lines if "/ready" not in line["msg"]]
        assert [match.group(1, 2, 3, 5, 6) for match in found] == [
            ("POST", "/v1/completions", "200", "alice", fields["X-Request-Id"]), ("POST", "/v1/completions", "400", "bob", 'bob_"7"'),
            ("GET", "/metrics", "401", "-", found[2][6]), ("POST", "/v1/completions", "499", "root", "gone-1")]
        assert all(int(match[4]) > 0 for match in found) and "private" not in server.read_log()
