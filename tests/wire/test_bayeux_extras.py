"""What Bayeux clients may ask for beyond the original: acknowledgements, WebSockets, kept sessions."""

from __future__ import annotations

import base64
import json
import os
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Message, Ping, Pong, TextMessage

from tests.bayeux import ANSWER_TIMEOUT_S, PATH, Dialler, Poller
from tests.running import Rest
from tidewire.testing import ServerProcess

CHANNEL = "/data/AccountChangeEvent"


@pytest.fixture(scope="module")
def extra_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with everything that must be asked for. Tests may restart it."""
    options = ["--bayeux-websocket", "--bayeux-durable-sessions"]
    with ServerProcess(tmp_path_factory.mktemp("extra") / "data", options=options) as process:
        yield process


class Socket:
    """A WebSocket client on a bare socket."""

    def __init__(self, server: ServerProcess, headers: dict[str, str] | None = None) -> None:
        address = urlsplit(server.http)
        assert address.hostname is not None
        self.raw = socket.create_connection((address.hostname, address.port or 80), timeout=ANSWER_TIMEOUT_S)
        self.framing = Connection(ConnectionType.CLIENT)
        given = {
            "Host": address.netloc,
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            **(headers or {}),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        self.raw.sendall(f"GET {PATH} HTTP/1.1\r\n{lines}\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.raw.recv(1)
        self.status = int(head.split()[1])

    def send(self, event: Event) -> None:
        self.raw.sendall(self.framing.send(event))

    def receive(self) -> Event:
        """The next event; a text message comes whole."""
        text = ""
        while True:
            for event in self.framing.events():
                if isinstance(event, Message):
                    text += str(event.data)
                    if not event.message_finished:
                        continue
                    return TextMessage(data=text)
                return event
            data = self.raw.recv(65_536)
            self.framing.receive_data(data or None)

    def ask(self, *messages: dict[str, Any]) -> list[dict[str, Any]]:
        self.send(TextMessage(data=json.dumps(messages)))
        event = self.receive()
        assert isinstance(event, TextMessage), event
        answer: list[dict[str, Any]] = json.loads(event.data)
        return answer

    def close_code(self) -> int:
        event = self.receive()
        assert isinstance(event, CloseConnection), event
        return event.code

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.raw.close()


def _handshake(**values: Any) -> dict[str, Any]:
    return {"channel": "/meta/handshake", "supportedConnectionTypes": ["websocket"], **values}


def _connect(client_id: str, **values: Any) -> dict[str, Any]:
    kind = {"channel": "/meta/connect", "connectionType": "websocket", "clientId": client_id}
    return {**kind, **values}


# acknowledgements, which need no setting


def test_reply_that_was_not_acknowledged_is_sent_again(
    server: ServerProcess, dial: Dialler, rest: Rest
) -> None:
    poller = Poller(dial.plain(server), server.login())
    assert poller.shake_hands(ext={"ack": True})["ext"]["ack"] is True
    poller.subscribe(CHANNEL)

    def connect(ack: int) -> tuple[list[str], int]:
        kind = {"channel": "/meta/connect", "connectionType": "long-polling"}
        *events, reply = poller.ask({**kind, "ext": {"ack": ack}, "advice": {"timeout": 5000}})
        return [e["data"]["payload"]["ChangeEventHeader"]["recordIds"][0] for e in events], reply["ext"][
            "ack"
        ]

    assert connect(0) == ([], 1)
    first = rest.create("Account", {"Name": "Ack One"})
    seen: list[str] = []
    batch = 1
    while first not in seen:
        seen, batch = connect(batch)
    again, last = connect(batch - 1)
    assert (again, last) == (seen, batch + 1)
    second = rest.create("Account", {"Name": "Ack Two"})
    seen = []
    while second not in seen:
        seen, last = connect(last)
        assert first not in seen


def test_client_that_does_not_ask_gets_no_acknowledgement_numbers(
    server: ServerProcess, dial: Dialler
) -> None:
    poller = Poller(dial.plain(server), server.login())
    assert "ack" not in poller.shake_hands()["ext"]
    (reply,) = poller.ask({"channel": "/meta/connect", "connectionType": "long-polling"})
    assert "ext" not in reply


# WebSockets


def test_without_the_setting_there_is_no_websocket(server: ServerProcess, dial: Dialler) -> None:
    with Socket(server) as refused:
        assert refused.status == 405
    reply = Poller(dial.plain(server), server.login()).shake_hands()
    assert reply["supportedConnectionTypes"] == ["long-polling"]


def test_websocket_carries_a_session_by_the_header_of_its_upgrade(extra_server: ServerProcess) -> None:
    token = extra_server.login()
    rest = Rest(extra_server.http, token)
    with Socket(extra_server, {"Authorization": f"Bearer {token}"}) as opened:
        assert opened.status == 101
        (reply,) = opened.ask(_handshake(id="1"))
        assert (reply["successful"], reply["id"]) == (True, "1")
        assert reply["supportedConnectionTypes"] == ["websocket", "long-polling"]
        client_id = reply["clientId"]
        assert opened.ask(_connect(client_id))[0]["advice"]["reconnect"] == "retry"
        subscribe = {"channel": "/meta/subscribe", "clientId": client_id, "subscription": CHANNEL}
        assert opened.ask(subscribe)[0]["successful"]
        # The held connect does not keep other messages from their answers.
        opened.send(TextMessage(data=json.dumps([_connect(client_id, id="held")])))
        opened.send(Ping(payload=b"there?"))
        assert opened.receive() == Pong(payload=b"there?")
        unsubscribe = {"channel": "/meta/unsubscribe", "clientId": client_id, "subscription": "/topic/None"}
        assert opened.ask(unsubscribe)[0]["channel"] == "/meta/unsubscribe"
        account = rest.create("Account", {"Name": "By Socket"})
        event = opened.receive()
        assert isinstance(event, TextMessage)
        found, reply = json.loads(event.data)
        assert found["data"]["payload"]["ChangeEventHeader"]["recordIds"] == [account]
        assert reply["id"] == "held"
        assert opened.ask({"channel": "/meta/disconnect", "clientId": client_id})[0]["successful"]
    rest.close()


def test_websocket_session_needs_a_token_in_its_messages_if_the_upgrade_had_none(
    extra_server: ServerProcess,
) -> None:
    with Socket(extra_server) as opened:
        (refusal,) = opened.ask(_handshake())
        reason = refusal["ext"]["sfdc"]["failureReason"]
        assert (refusal["error"], reason) == (
            "403::Handshake denied",
            "401::Request requires authentication",
        )
        token = {"authorization": f"Bearer {extra_server.login()}"}
        (reply,) = opened.ask(_handshake(ext=token))
        assert reply["successful"]
        assert opened.ask(_connect(reply["clientId"]))[0]["successful"]
    with Socket(extra_server) as other:
        (stranger,) = other.ask(_connect(reply["clientId"]))
        assert stranger["error"] == "401::Request requires authentication"


@pytest.mark.parametrize("headers", [{"Sec-WebSocket-Version": "8"}, {"Sec-WebSocket-Key": "short"}])
def test_improper_upgrade_is_answered_as_any_other_get(
    extra_server: ServerProcess, headers: dict[str, str]
) -> None:
    with Socket(extra_server, headers) as refused:
        assert refused.status == 405


def test_websocket_is_closed_for_what_it_must_not_carry(extra_server: ServerProcess) -> None:
    with Socket(extra_server) as binary:
        binary.send(BytesMessage(data=b"[]"))
        assert binary.close_code() == 1003
    with Socket(extra_server) as large:
        large.send(TextMessage(data=" " * 32_769))
        assert large.close_code() == 1009
    with Socket(extra_server) as pieces:
        for _ in range(33):
            pieces.send(TextMessage(data=" " * 1_000, message_finished=False))
        assert pieces.close_code() == 1009
    with Socket(extra_server) as unmasked:
        unmasked.raw.sendall(b"\x81\x02[]")
        assert unmasked.close_code() == 1002
    with Socket(extra_server) as malformed:
        malformed.send(TextMessage(data="[{"))
        assert malformed.close_code() == 1011
    with Socket(extra_server) as polite:
        polite.send(CloseConnection(code=1000))
        assert polite.close_code() == 1000


# sessions that are kept


@pytest.mark.parametrize("is_killed", [True, False])
def test_session_goes_on_after_a_restart(extra_server: ServerProcess, dial: Dialler, is_killed: bool) -> None:
    token = extra_server.login()
    poller = Poller(dial.plain(extra_server), token)
    poller.open(CHANNEL)
    rest = Rest(extra_server.http, token)
    first = rest.create("Account", {"Name": "Before"})
    assert [e["data"]["payload"]["ChangeEventHeader"]["recordIds"][0] for e in poller.poll()] == [first]
    # The next connect tells that the reply came, and its own answer that this was noted before.
    poller.ask({"channel": "/meta/connect", "connectionType": "long-polling", "advice": {"timeout": 0}})
    poller.subscribe("/data/ContactChangeEvent")
    rest.close()
    if is_killed:
        extra_server.kill()
    else:
        extra_server.stop()
    extra_server.start()
    rest = Rest(extra_server.http, token)
    second = rest.create("Account", {"Name": "After"})
    contact = rest.create("Contact", {"LastName": "After"})
    rest.close()
    poller.connection.close()
    seen: list[str] = []
    while len(seen) < 2:
        seen += [e["data"]["payload"]["ChangeEventHeader"]["recordIds"][0] for e in poller.poll()]
    assert sorted(seen) == sorted([second, contact])


def test_kept_session_is_its_users_only_and_gone_after_a_disconnect(
    extra_server: ServerProcess, dial: Dialler
) -> None:
    token = extra_server.login()
    poller, gone = (Poller(dial.plain(extra_server), token) for _ in range(2))
    poller.open(CHANNEL)
    gone.open(CHANNEL)
    gone.ask({"channel": "/meta/disconnect"})
    # The disconnect is written behind a commit that may be under way; the second of these comes after both.
    for channel in ("/data/ContactChangeEvent", "/data/OpportunityChangeEvent"):
        assert poller.subscribe(channel)["successful"]  # one that is refused writes nothing
    extra_server.kill()
    extra_server.start()
    thief = Poller(dial.plain(extra_server), extra_server.login("reader@tidewire.local"))
    thief.client_id = poller.client_id
    (reply,) = thief.ask({"channel": "/meta/connect", "connectionType": "long-polling"})
    assert reply["error"] == "403::Unknown client"
    late = Poller(dial.plain(extra_server), token)
    late.client_id = gone.client_id
    (reply,) = late.ask({"channel": "/meta/connect", "connectionType": "long-polling"})
    assert reply["error"] == "403::Unknown client"
    poller.connection.close()
    kind = {"channel": "/meta/connect", "connectionType": "long-polling", "advice": {"timeout": 0}}
    assert poller.ask(kind)[-1]["successful"]


def test_without_the_setting_a_restart_ends_every_session(fresh_server: ServerProcess, dial: Dialler) -> None:
    poller = Poller(dial.plain(fresh_server), fresh_server.login())
    poller.open(CHANNEL)
    fresh_server.kill()
    fresh_server.start()
    poller.connection.close()
    poller.connect()
    (reply,) = poller.receive()
    assert reply["error"] == "403::Unknown client"
