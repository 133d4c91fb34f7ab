from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tidewire.access.principal import Principal
from tidewire.errors import ChannelForbidden, PlatformError
from tidewire.frontends.bayeux.registry import SessionRegistry
from tidewire.frontends.bayeux.session import Session, SessionTimes
from tidewire.frontends.bayeux.wire import CONNECT, Endpoint, Message
from tidewire.frontends.bayeux.wire_errors import Reconnect, WireError
from tidewire.transport.http import HttpResponse
from tidewire.transport.routes import Exchange

PRINCIPAL = Principal("00D", "005", "a@b.c", "login-1")
RETRY = {"reconnect": "retry", "interval": 0, "timeout": 110_000}


@dataclass(eq=False)
class Queue:
    """An event source fed by the test."""

    events: list[bytes] = field(default_factory=list)
    error: PlatformError | None = None
    position: int = 0
    is_closed: bool = False

    def take(self, max_events: int, max_bytes: int) -> list[bytes]:
        taken: list[bytes] = []
        while self.events and len(taken) < max_events and (not taken or sum(map(len, taken)) < max_bytes):
            taken.append(self.events.pop(0))
        return taken

    def reached(self) -> int:
        return self.position

    def close(self) -> None:
        self.is_closed = True


class Slot:
    """An exchange that only remembers."""

    def __init__(self) -> None:
        self.on_close: Callable[[Exchange], None] | None = None

    @property
    def is_open(self) -> bool:
        return True

    def respond(self, status: int, body: bytes, headers: bytes = b"") -> bool:
        return True

    def respond_with(self, response: HttpResponse) -> bool:
        return True

    async def stream_with(self, response: HttpResponse) -> None:
        return None


def make_session(now_s: float = 0.0) -> Session:
    return Session("client", Endpoint(62.0, True), PRINCIPAL, "browser", SessionTimes(110.0, 40.0), now_s)


def connect(**fields: Any) -> Message:
    return {"channel": CONNECT, "clientId": "client", "connectionType": "long-polling", "id": "1", **fields}


def is_held(session: Session) -> bool:
    return session.exchange is not None


def settle(session: Session, now_s: float = 0.0) -> None:
    """Get the first connect, which is special, out of the way."""
    session.begin_connect(connect())
    session.end_connect(now_s)


def test_first_connect_returns_at_once_with_advice() -> None:
    session = make_session()
    assert session.begin_connect(connect()) is None
    assert session.hold_for_s(connect()) == 0
    reply = json.loads(session.end_connect(0.0))
    assert reply == {"clientId": "client", "advice": RETRY, "channel": CONNECT, "id": "1", "successful": True}


def test_later_connect_is_held_and_answered_without_advice() -> None:
    session = make_session()
    settle(session)
    session.begin_connect(connect(id=2))
    assert session.hold_for_s(connect(id=2)) == 110
    session.hold(Slot(), 5.0, 110)
    assert session.deadline_s == 115
    reply = json.loads(session.end_connect(50.0))
    assert reply == {"clientId": "client", "channel": CONNECT, "id": 2, "successful": True}
    assert session.deadline_s == 90


def test_connect_without_id_is_answered_without_id() -> None:
    session = make_session()
    session.begin_connect({"channel": CONNECT, "clientId": "client"})
    assert "id" not in json.loads(session.end_connect(0.0))


def test_client_that_sends_advice_gets_advice() -> None:
    session = make_session()
    settle(session)
    session.begin_connect(connect(advice={"timeout": 0}))
    assert session.hold_for_s(connect(advice={"timeout": 0})) == 0
    assert json.loads(session.end_connect(0.0))["advice"] == RETRY


def test_client_may_shorten_the_hold_but_not_lengthen_it() -> None:
    session = make_session()
    settle(session)
    assert session.hold_for_s(connect(advice={"timeout": 5000})) == 5
    assert session.hold_for_s(connect(advice={"timeout": 900_000})) == 110


def test_client_that_will_sleep_gets_a_longer_window() -> None:
    session = make_session()
    settle(session)
    session.begin_connect(connect(advice={"interval": 60_000}))
    session.end_connect(0.0)
    assert session.deadline_s == 100


def test_other_transport_is_refused() -> None:
    error = make_session().begin_connect(connect(connectionType="websocket"))
    assert error == WireError("400::Invalid connection type {websocket}", Reconnect.NONE)


def test_lost_peer_starts_the_reconnect_window() -> None:
    session = make_session()
    settle(session)
    slot = Slot()
    session.hold(slot, 0.0, 110)
    session.lose_exchange(Slot(), 10.0)
    assert is_held(session)
    session.lose_exchange(slot, 10.0)
    assert not is_held(session)
    assert session.deadline_s == 50


def test_other_message_extends_the_window_but_never_a_hold() -> None:
    session = make_session()
    settle(session)
    session.touch(30.0)
    assert session.deadline_s == 70
    session.hold(Slot(), 30.0, 1)
    session.touch(30.5)
    assert session.deadline_s == 31


def test_collect_keeps_to_its_caps_and_leaves_the_rest() -> None:
    session = make_session()
    session.sources["/topic/A"] = Queue([b"1", b"2", b"3"])
    assert session.collect(2, 1000) == [b"1", b"2"]
    assert session.collect(2, 1000) == [b"3"]
    assert session.collect(2, 1000) == []


def test_collect_shares_one_reply_between_channels_and_takes_turns() -> None:
    session = make_session()
    for name in "AB":
        session.sources[f"/topic/{name}"] = Queue([name.encode()] * 4)
    first = session.collect(3, 1000)
    second = session.collect(3, 1000)
    assert sorted(set(first + second)) == [b"A", b"B"]
    assert first[0] != second[0]


def test_collect_stops_at_the_byte_cap() -> None:
    session = make_session()
    session.sources["/topic/A"] = Queue([b"a" * 60, b"b" * 60, b"c" * 60])
    session.sources["/topic/B"] = Queue([b"d" * 60])
    taken = session.collect(100, 100)
    assert len(taken) == 2


def test_ended_subscription_is_told_and_dropped() -> None:
    session = make_session()
    ended = Queue(error=ChannelForbidden("No access on channel"))
    session.sources["/topic/A"] = ended
    (message,) = session.collect(10, 1000)
    assert json.loads(message) == {
        "clientId": "client",
        "channel": "/meta/subscribe",
        "subscription": "/topic/A",
        "error": "403::No access on channel",
        "successful": False,
    }
    assert ended.is_closed
    assert not session.sources


def test_failed_connect_keeps_its_id() -> None:
    session = make_session()
    session.begin_connect(connect(id=9))
    reply = json.loads(session.fail_connect(WireError("401::x", Reconnect.NONE)))
    assert (reply["id"], reply["error"], reply["advice"]["reconnect"]) == (9, "401::x", "none")


def test_registry_finds_by_client_and_login_until_removed() -> None:
    registry = SessionRegistry()
    session = make_session()
    source = session.sources["/topic/A"] = Queue()
    registry.add(session)
    assert registry.try_find("client") is session
    assert registry.of_login("login-1") == [session]
    registry.move(session, Principal("00D", "005", "a@b.c", "login-2"))
    assert registry.of_login("login-1") == []
    assert registry.of_login("login-2") == [session]
    assert registry.overdue(39.9) == []
    assert registry.overdue(40.0) == [session]
    registry.remove(session)
    registry.remove(session)
    assert registry.try_find("client") is None
    assert registry.of_login("login-2") == []
    assert (len(registry), source.is_closed, session.is_closed) == (0, True, True)
