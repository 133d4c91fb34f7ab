"""The REST client against a scripted server: requests, and responses that our server does not send."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidewire.cli.main import cli
from tidewire.client.login import Login
from tidewire.client.rest import RestClient
from tidewire.errors import RequestRefused, ServerUnreachable, SessionInvalid

GONE = [{"message": "Session expired or invalid", "errorCode": "INVALID_SESSION_ID"}]
Answers = dict[tuple[str, str], tuple[int, object]]


class Scripted:
    """A server that answers by method and path, and keeps who asked for what."""

    def __init__(self) -> None:
        self.answers: Answers = {}
        self.good_token = "good"
        self.seen: list[tuple[str, str, str, object]] = []
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                token = self.headers["Authorization"].removeprefix("Bearer ")
                scripted.seen.append((self.command, self.path, token, json.loads(body) if body else None))
                known = scripted.answers.get(
                    (self.command, self.path), (404, [{"errorCode": "NOT_FOUND", "message": "?"}])
                )
                status, value = known if token == scripted.good_token else (401, GONE)
                text = (
                    value
                    if isinstance(value, bytes)
                    else b""
                    if value is None
                    else json.dumps(value).encode()
                )
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PATCH = do_DELETE = answer

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    made = Scripted()
    running = threading.Thread(target=made.server.serve_forever)
    running.start()
    yield made
    made.server.shutdown()
    running.join()
    made.server.server_close()


def client_of(scripted: Scripted, token: str = "good") -> RestClient:
    return RestClient(Login(token, scripted.url, "00D"), api_version="60.0")


def test_pages_are_followed_to_the_last(scripted: Scripted) -> None:
    first = "/services/data/v60.0/query?q=SELECT%20Id%20FROM%20A%20WHERE%20B%20%3D%20%27%26%2F%27"
    scripted.answers[("GET", first)] = (
        200,
        {"records": [{"Id": 1}], "totalSize": 2, "done": False, "nextRecordsUrl": "/n"},
    )
    scripted.answers[("GET", "/n")] = (200, {"records": [{"Id": 2}], "totalSize": 2, "done": True})
    assert client_of(scripted).query("SELECT Id FROM A WHERE B = '&/'") == [{"Id": 1}, {"Id": 2}]


def test_names_and_values_are_escaped_in_the_path(scripted: Scripted) -> None:
    client = client_of(scripted)
    with pytest.raises(RequestRefused):
        client.read("A/../B?x", "1/2", "Name,Phone")
    assert scripted.seen[-1][1] == "/services/data/v60.0/sobjects/A%2F..%2FB%3Fx/1%2F2?fields=Name%2CPhone"


def test_ended_session_is_renewed_once_and_the_call_repeated(scripted: Scripted) -> None:
    scripted.answers[("POST", "/services/data/v60.0/sobjects/A")] = (201, {"id": "1"})
    renewed = Login("good", scripted.url, "00D")
    client = RestClient(Login("old", scripted.url, "00D"), api_version="60.0", renew=lambda: renewed)
    assert client.create("A", {"Name": "x"}) == "1"
    assert [(token, body) for _, _, token, body in scripted.seen] == [
        ("old", {"Name": "x"}),
        ("good", {"Name": "x"}),
    ]
    assert client.login is renewed
    scripted.good_token = "other"
    with pytest.raises(SessionInvalid):
        client.create("A", {})
    assert len(scripted.seen) == 4


def test_session_that_cannot_be_renewed_is_told(scripted: Scripted) -> None:
    with pytest.raises(SessionInvalid, match="Session expired"):
        client_of(scripted, "old").describe()


def test_upsert_without_a_response_body_reads_the_record(scripted: Scripted) -> None:
    path = "/services/data/v60.0/sobjects/A/Key__c/k%201"
    scripted.answers[("PATCH", path)] = (204, None)
    scripted.answers[("GET", path)] = (200, {"Id": "7"})
    assert client_of(scripted).upsert("A", "Key__c", "k 1", {"Name": "x"}) == {"id": "7", "created": False}
    scripted.answers[("PATCH", path)] = (201, {"id": "8", "created": True, "success": True})
    assert client_of(scripted).upsert("A", "Key__c", "k 1", {}) == {"id": "8", "created": True}


@pytest.mark.parametrize("answer", [b"<html>hello</html>", b"{"])
def test_answer_that_is_not_json_is_refused_in_words(scripted: Scripted, answer: bytes) -> None:
    scripted.answers[("GET", "/services/data/v60.0/sobjects")] = (200, answer)
    with pytest.raises(RequestRefused, match="not JSON"):
        client_of(scripted).describe()


def test_unreachable_server_is_retryable() -> None:
    with pytest.raises(ServerUnreachable):
        RestClient(Login("t", "http://127.0.0.1:1", "00D")).describe()


def test_status_of_another_server_shows_its_streaming_limits(scripted: Scripted, tmp_path: Path) -> None:
    limits = {
        "DailyStreamingApiEvents": {"Max": 10, "Remaining": 4},
        "FileStorageMB": {"Max": 1, "Remaining": 1},
    }
    scripted.answers[("GET", "/services/data/v67.0/limits")] = (200, limits)
    environment = {"TIDEWIRE_CONFIG_DIR": str(tmp_path), "TIDEWIRE_PROFILE": None}
    done = CliRunner(env=environment).invoke(
        cli, ["status", "--json", "--url", scripted.url, "--token", "good"]
    )
    assert json.loads(done.stdout) == [{"limit": "DailyStreamingApiEvents", "used": 6, "of": 10}]
