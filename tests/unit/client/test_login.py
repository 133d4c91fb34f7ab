"""Login over OAuth and SOAP against a scripted HTTP server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tidewire.client.login import Credentials, Login, login
from tidewire.errors import ConfigInvalid, LoginFailed, ServerUnreachable

OAUTH = b'{"access_token": "tok", "instance_url": "http://org", "id": "http://org/id/00D1/0051"}'
SOAP = (
    b'<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/" xmlns="urn:partner.soap.sforce.com"><e:Body>'
    b"<loginResponse><result><serverUrl>http://org:81/services/Soap/u/67.0/00D1</serverUrl>"
    b"<sessionId>ses</sessionId><userInfo><organizationId>00D1</organizationId></userInfo></result></loginResponse>"
    b"</e:Body></e:Envelope>"
)


class LoginServer(ThreadingHTTPServer):
    """Answers every POST with `status` and `body`, and keeps what was posted."""

    status = 200
    body = OAUTH

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.posted: list[tuple[str, bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    server: LoginServer

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        self.server.posted.append((self.path, self.rfile.read(size)))
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[LoginServer]:
    with LoginServer() as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_login_with_a_client_id_uses_the_password_grant(server: LoginServer) -> None:
    found = login(Credentials(server.url, "u", "p&w", "id", "secret"))
    assert found == Login("tok", "http://org", "00D1", "0051")
    path, body = server.posted[0]
    assert path == "/services/oauth2/token"
    assert b"grant_type=password" in body
    assert b"password=p%26w" in body


def test_login_without_a_client_id_uses_soap_and_escapes_the_password(server: LoginServer) -> None:
    server.body = SOAP
    assert login(Credentials(server.url + "/", "u", "<p&w>")) == Login("ses", "http://org:81", "00D1")
    path, body = server.posted[0]
    assert path == "/services/Soap/u/67.0"
    assert b"&lt;p&amp;w&gt;" in body


@pytest.mark.parametrize("client_id", ["id", ""])
@pytest.mark.parametrize(
    "status,body,error",
    [
        (400, b'{"error": "invalid_grant"}', LoginFailed),
        (500, b"<faultcode>INVALID_LOGIN</faultcode>", LoginFailed),
        (500, b"<faultcode>sf:LOGIN_MUST_USE_SECURITY_TOKEN</faultcode>", LoginFailed),
        (500, b"<faultcode>sf:SERVER_UNAVAILABLE</faultcode>", ServerUnreachable),
        (500, b'{"error": "temporarily_unavailable"}', ServerUnreachable),
        (503, b"busy", ServerUnreachable),
        (200, b"<html>", LoginFailed),
        (200, b"[]", LoginFailed),
    ],
)
def test_failed_login_says_whether_a_retry_may_help(
    server: LoginServer, client_id: str, status: int, body: bytes, error: type[Exception]
) -> None:
    server.status, server.body = status, body
    with pytest.raises(error) as raised:
        login(Credentials(server.url, "u", "hunter2", client_id, "sesame"))
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    "status,body,reason",
    [
        (400, b'{"error": "invalid_client_id", "error_description": "x"}', "invalid_client_id"),
        (500, b"<faultcode>sf:INVALID_LOGIN</faultcode>", "INVALID_LOGIN"),
        (400, b'{"error": "\\u001b[2J"}', ""),
        (400, b'["error"]', ""),
        (400, b"\xff", ""),
    ],
)
def test_refused_login_carries_the_servers_reason(
    server: LoginServer, status: int, body: bytes, reason: str
) -> None:
    server.status, server.body = status, body
    with pytest.raises(LoginFailed) as raised:
        login(Credentials(server.url, "u", "p", "id", "s"))
    assert raised.value.details["reason"] == reason
    assert raised.value.message == "the server rejected the login" + (f" ({reason})" if reason else "")


def test_login_at_a_closed_port_is_retryable_and_names_the_address() -> None:
    with pytest.raises(ServerUnreachable) as raised:
        login(Credentials("http://127.0.0.1:1", "u", "p"))
    assert raised.value.retryable


def test_login_at_anything_but_http_is_refused() -> None:
    with pytest.raises(ConfigInvalid):
        login(Credentials("file:///etc", "u", "p"))


def test_credentials_and_logins_never_show_secrets() -> None:
    shown = repr(Credentials("u", "n", "hunter2", "id", "sesame")) + repr(Login("tok-en", "u", "o"))
    assert not any(secret in shown for secret in ("hunter2", "sesame", "tok-en"))
