"""Bayeux clients for tests, on bare HTTP: what is sent and received is what stands in the test."""

from __future__ import annotations

import json
import ssl
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from tidewire.testing import ServerProcess

PATH = "/cometd/62.0"
ANSWER_TIMEOUT_S = 100.0  # less than the 110 s after which a held connect is answered anyway


class Poller:
    """One Bayeux client on one connection."""

    def __init__(self, connection: HTTPConnection, token: str, cookie: str = "", *, path: str = PATH) -> None:
        self.connection = connection
        self.path = path
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        if cookie:
            self._headers["Cookie"] = cookie
        self.client_id = ""
        self.cookie = ""

    def send(self, *messages: dict[str, Any]) -> None:
        body = [{"clientId": self.client_id, **m} if self.client_id else m for m in messages]
        self.connection.request("POST", self.path, json.dumps(body), self._headers)

    def receive(self) -> list[dict[str, Any]]:
        response: HTTPResponse = self.connection.getresponse()
        body = response.read()
        assert response.status == 200, body
        self.cookie = response.headers.get("Set-Cookie", self.cookie)
        messages: list[dict[str, Any]] = json.loads(body)
        return messages

    def ask(self, *messages: dict[str, Any]) -> list[dict[str, Any]]:
        self.send(*messages)
        return self.receive()

    def shake_hands(self, **values: Any) -> dict[str, Any]:
        (reply,) = self.ask(
            {"channel": "/meta/handshake", "supportedConnectionTypes": ["long-polling"], **values}
        )
        self.client_id = reply.get("clientId", "")
        return reply

    def subscribe(self, channel: Any, **values: Any) -> dict[str, Any]:
        (reply,) = self.ask({"channel": "/meta/subscribe", "subscription": channel, **values})
        return reply

    def poll(self) -> list[dict[str, Any]]:
        """The events of one connect, which must succeed."""
        self.connect()
        *events, reply = self.receive()
        assert reply["successful"], reply
        return events

    def open(self, *channels: str) -> None:
        """Shake hands, connect once, subscribe."""
        self.shake_hands()
        subscribes = [{"channel": "/meta/subscribe", "subscription": c} for c in channels]
        replies = self.ask({"channel": "/meta/connect", "connectionType": "long-polling"}, *subscribes)
        assert all(reply["successful"] for reply in replies), replies

    def connect(self) -> None:
        self.send({"channel": "/meta/connect", "connectionType": "long-polling", "id": "poll"})


class Dialler:
    """Opens connections and closes them all at the end of a test."""

    def __init__(self) -> None:
        self._opened: list[HTTPConnection] = []

    def plain(self, server: ServerProcess) -> HTTPConnection:
        connection = HTTPConnection(urlsplit(server.http).netloc, timeout=ANSWER_TIMEOUT_S)
        self._opened.append(connection)
        return connection

    def secure(self, server: ServerProcess) -> HTTPConnection:
        context = ssl.create_default_context(cafile=str(server.ca_path))
        connection = HTTPSConnection(urlsplit(server.https).netloc, timeout=ANSWER_TIMEOUT_S, context=context)
        self._opened.append(connection)
        return connection

    def revoke(self, server: ServerProcess, token: str) -> None:
        connection = self.plain(server)
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", "/services/oauth2/revoke", f"token={token}", form)
        response = connection.getresponse()
        response.read()
        assert response.status == 200

    def close(self) -> None:
        for connection in self._opened:
            connection.close()
