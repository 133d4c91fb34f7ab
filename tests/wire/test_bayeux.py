"""Golden Bayeux conversations against a live server; adding a case is adding a file to `bayeux/`.

Each file is one conversation. Lines:

    # ...          a comment
    @as NAME       who speaks from here on: admin, reader, nobody, or a bare Authorization header
    @path PATH     where to post from here on
    @rest {...}    a REST call as the administrator: method, path, body; `bind` names parts of its answer
    > [...]        a request; `>> ` sends it on a connection of its own and does not wait
    < [...]        the answer to it; `<< ` the answer to the oldest request that was not waited for
    <! 413 text    an answer that is not HTTP 200, and its body; likewise `<<! `

In messages, `"$name"` stands for a value: the first use in an answer binds it, later uses must equal it.
`"$*"` stands for anything. Objects must have exactly the fields shown, in any order.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.bayeux import ANSWER_TIMEOUT_S
from tests.running import Rest
from tidewire.testing import READER_USERNAME, ServerProcess

HAS_EDGES = int(os.environ.get("TIDEWIRE_EDGES", "0")) > 1
CONVERSATIONS = sorted((Path(__file__).parent / "bayeux").glob("*.jsonl"))


class Conversation:
    """Plays one file."""

    def __init__(self, server: ServerProcess, rest: Rest) -> None:
        self._address = urlsplit(server.http).netloc
        self._rest = rest
        self._headers = {
            "admin": {"Authorization": f"Bearer {server.login()}"},
            "reader": {"Authorization": f"OAuth {server.login(READER_USERNAME)}"},
            "nobody": {},
        }
        self._speaker = "admin"
        self._path = "/cometd/62.0"
        self._bound: dict[str, Any] = {}
        self._waiting: list[HTTPConnection] = []
        self._opened: list[HTTPConnection] = []
        self._edge = ""
        self._connection = self._open()

    def play(self, lines: list[str]) -> None:
        """Send and compare, line by line."""
        response: HTTPResponse | None = None
        for number, line in enumerate(lines, 1):
            mark, _, rest = line.partition(" ")
            match mark:
                case "" | "#":
                    continue
                case "@as":
                    self._speaker = rest
                case "@path":
                    self._path = rest
                case "@rest":
                    self._call_rest(json.loads(rest))
                case ">":
                    response = self._send(self._connection, rest)
                case ">>":
                    connection = self._open()
                    self._waiting.append(connection)
                    self._post(connection, rest)
                case "<" | "<!" if response is not None:
                    self._compare(mark, rest, response, number)
                case "<<" | "<<!":
                    self._compare(mark, rest, self._waiting.pop(0).getresponse(), number)
                case _:
                    pytest.fail(f"line {number}: unknown mark {mark!r}")

    def close(self) -> None:
        """Drop every connection."""
        for connection in self._opened:
            connection.close()

    def _open(self) -> HTTPConnection:
        """A connection that the server has accepted, so that what is sent on it keeps its place among the others."""
        while True:
            connection = HTTPConnection(self._address, timeout=ANSWER_TIMEOUT_S)
            self._opened.append(connection)
            connection.request("GET", self._path)
            response = connection.getresponse()
            response.read()
            assert response.status == 405
            # What goes through another edge than the client's own may be overtaken by what does not.
            if not HAS_EDGES or self._ends_at_one_edge(connection):
                return connection

    def _ends_at_one_edge(self, connection: HTTPConnection) -> bool:
        """Whether it has come to the edge of the first connection: client ids begin with what names their edge."""
        headers = {"Content-Type": "application/json", **self._headers["admin"]}

        def ask(**message: Any) -> dict[str, Any]:
            connection.request("POST", "/cometd/62.0", json.dumps([message]), headers)
            (answer,) = json.loads(connection.getresponse().read())
            assert answer["successful"], answer
            return dict(answer)

        shaken = ask(channel="/meta/handshake", version="1.0", supportedConnectionTypes=["long-polling"])
        client_id = shaken["clientId"]
        ask(channel="/meta/disconnect", clientId=client_id)
        self._edge = self._edge or client_id[0]
        return bool(client_id[0] == self._edge)

    def _send(self, connection: HTTPConnection, text: str) -> HTTPResponse:
        self._post(connection, text)
        return connection.getresponse()

    def _post(self, connection: HTTPConnection, text: str) -> None:
        if text.startswith(("[", "{")):
            text = json.dumps(self._filled(json.loads(text)))
        headers = self._headers.get(self._speaker, {"Authorization": self._speaker})
        connection.request("POST", self._path, text, {"Content-Type": "application/json", **headers})

    def _call_rest(self, call: dict[str, Any]) -> None:
        answer = self._rest.call(call["method"], self._filled(call["path"]), self._filled(call.get("body")))
        for name, key in call.get("bind", {}).items():
            self._bound[name] = answer[key]

    def _compare(self, mark: str, expected: str, response: HTTPResponse, number: int) -> None:
        body = response.read()
        if mark.endswith("!"):
            assert f"{response.status} {body.decode().strip()}".strip() == expected, f"line {number}"
            return
        assert response.status == 200, f"line {number}: {response.status} {body!r}"
        assert response.headers["Content-Type"] == "application/json;charset=UTF-8"
        actual = json.loads(body)
        assert self._matches(json.loads(expected), actual), (
            f"line {number}:\nexpected {expected}\nactual   {body.decode()}\nbound    {self._bound}"
        )

    def _matches(self, expected: Any, actual: Any) -> bool:
        if isinstance(expected, str) and expected.startswith("$"):
            return expected == "$*" or bool(self._bound.setdefault(expected, actual) == actual)
        if isinstance(expected, dict) and isinstance(actual, dict):
            return expected.keys() == actual.keys() and all(
                self._matches(value, actual[key]) for key, value in expected.items()
            )
        if isinstance(expected, list) and isinstance(actual, list):
            return len(expected) == len(actual) and all(map(self._matches, expected, actual))
        if isinstance(expected, str) and isinstance(actual, str):
            return bool(self._filled(expected) == actual)
        return type(expected) is type(actual) and bool(expected == actual)

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._filled(key): self._filled(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._filled(item) for item in value]
        if isinstance(value, str):
            if value in self._bound:
                return self._bound[value]
            for name, bound in self._bound.items():
                value = value.replace(f"{{{name}}}", str(bound))
        return value


@contextmanager
def _conversation(server: ServerProcess, rest: Rest) -> Iterator[Conversation]:
    conversation = Conversation(server, rest)
    try:
        yield conversation
    finally:
        conversation.close()


@pytest.mark.parametrize("path", CONVERSATIONS, ids=lambda path: path.stem)
def test_conversation_goes_as_written(path: Path, server: ServerProcess, rest: Rest) -> None:
    with _conversation(server, rest) as conversation:
        conversation.play(path.read_text().splitlines())
