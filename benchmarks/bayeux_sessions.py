"""Bayeux sessions for the load client: shaken hands, subscribed, and turned into the bytes of their long
poll."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from typing import Any

PATH = "/cometd/62.0"


class BayeuxSession:
    """One client session on a connection that several may share, one call at a time."""

    def __init__(self, connection: HTTPConnection, token: str, path: str = PATH, channel: str = "") -> None:
        self._connection = connection
        self._token = token
        self._path = path
        self._cookie = ""
        (reply,) = self._call(
            {
                "channel": "/meta/handshake",
                "version": "1.0",
                "minimumVersion": "1.0",
                "supportedConnectionTypes": ["long-polling"],
            }
        )
        assert reply["successful"], reply
        self._client_id = str(reply["clientId"])
        # The first connect asks for no waiting; after it the session counts as connected.
        first = [{**self._connect_message(), "advice": {"timeout": 0}}]
        replies = self._call(*first, *([self._subscribe_message(channel)] if channel else []))
        assert all(reply["successful"] for reply in replies), replies

    def subscribe(self, channel: str) -> None:
        """Listen to new events of a channel."""
        replies = self._call(self._subscribe_message(channel))
        assert replies[-1]["successful"], replies

    def poll(self) -> list[dict[str, Any]]:
        """One long poll, by the session itself: the events that came."""
        return [message for message in self._call(self._connect_message()) if "data" in message]

    def disconnect(self) -> None:
        """End the session."""
        self._call({"channel": "/meta/disconnect", "clientId": self._client_id})

    def poll_request(self) -> bytes:
        """The bytes of one long poll."""
        body = json.dumps([self._connect_message()])
        head = [
            f"POST {self._path}/connect HTTP/1.1",
            "Host: localhost",
            *(f"{k}: {v}" for k, v in self._headers().items()),
        ]
        return "\r\n".join([*head, f"Content-Length: {len(body)}", "", body]).encode()

    def _connect_message(self) -> dict[str, Any]:
        return {
            "channel": "/meta/connect",
            "clientId": self._client_id,
            "connectionType": "long-polling",
            "id": "1",
        }

    def _subscribe_message(self, channel: str) -> dict[str, Any]:
        return {"channel": "/meta/subscribe", "clientId": self._client_id, "subscription": channel}

    def _headers(self) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        if self._cookie:
            headers["Cookie"] = self._cookie
        return headers

    def _call(self, *messages: dict[str, Any]) -> list[dict[str, Any]]:
        self._connection.request("POST", self._path, json.dumps(messages), self._headers())
        response = self._connection.getresponse()
        if not self._cookie:
            self._cookie = (response.getheader("Set-Cookie") or "").split(";", 1)[0]
        answer = response.read()
        assert response.status == 200, (response.status, answer)
        replies: list[dict[str, Any]] = json.loads(answer)
        return replies
