"""A CometD subscriber that needs nothing but HTTP, and a comparison of events with the guide's examples."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from tests.running import Json

ANY = object()
"""Stands for a value that no two orgs share: an id, a time, a user."""
CONNECT_TIMEOUT_S = 130.0


class Watcher:
    """One CometD session, subscribed to one channel for what comes from now on, or after a replay id."""

    def __init__(
        self, base_url: str, token: str, channel: str = "/data/ChangeEvents", *, replay_id: int = -1
    ) -> None:
        self._connection = HTTPConnection(urlsplit(base_url).netloc, timeout=CONNECT_TIMEOUT_S)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        handshake = {
            "channel": "/meta/handshake",
            "version": "1.0",
            "supportedConnectionTypes": ["long-polling"],
        }
        (shaken,) = self._post(handshake)
        self._client_id = shaken["clientId"]
        replay = {"replay": {channel: replay_id}}
        (answer,) = self._post({"channel": "/meta/subscribe", "subscription": channel, "ext": replay})
        assert answer["successful"], answer

    def take(self, count: int) -> list[Json]:
        """The next `count` events; more than these in the same answer are a failure."""
        events: list[Json] = []
        while len(events) < count:
            connect = {"channel": "/meta/connect", "connectionType": "long-polling"}
            for message in self._post(connect):
                assert message.get("successful", True), message
                if message["channel"].startswith("/data/"):
                    events.append(message["data"])
        assert len(events) == count, [e["payload"]["ChangeEventHeader"] for e in events]
        return events

    def wait_for(self, change_type: str) -> Json:
        """The next event of a kind; what comes before it is passed over."""
        while True:
            for message in self._post({"channel": "/meta/connect", "connectionType": "long-polling"}):
                assert message.get("successful", True), message
                data = message.get("data", {})
                if data and data["payload"]["ChangeEventHeader"]["changeType"] == change_type:
                    return data

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _post(self, message: dict[str, Any]) -> list[Json]:
        if message["channel"] != "/meta/handshake":
            message["clientId"] = self._client_id
        self._connection.request("POST", "/cometd/62.0", json.dumps([message]), self._headers)
        response = self._connection.getresponse()
        for name, value in response.getheaders():
            if name.lower() == "set-cookie":
                self._headers["Cookie"] = value.split(";")[0]
        answer: list[Json] = json.loads(response.read())
        return answer


def check_event(event: Json, change_type: str, entity: str, sequence: int, body: dict[str, Any]) -> Json:
    """Compare a message with an example of the guide: the header's every field, and just these fields of the record.
    Returns the header.
    """
    assert set(event) == {"schema", "payload", "event"}
    payload = dict(event["payload"])
    header: Json = payload.pop("ChangeEventHeader")
    assert set(header) == {
        "entityName",
        "recordIds",
        "changeType",
        "changedFields",
        "changeOrigin",
        "transactionKey",
        "sequenceNumber",
        "commitTimestamp",
        "commitNumber",
        "commitUser",
    }
    assert (header["changeType"], header["entityName"], header["sequenceNumber"]) == (
        change_type,
        entity,
        sequence,
    )
    assert set(payload) == set(body), set(payload) ^ set(body)
    shown = {name: payload[name] for name, value in body.items() if value is not ANY}
    assert shown == {name: value for name, value in body.items() if value is not ANY}
    return header
