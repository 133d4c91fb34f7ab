"""One socket after its upgrade: what of a message's pieces it takes."""

from __future__ import annotations

from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Event, TextMessage

from tidewire.transport.http import HttpRequest
from tidewire.transport.routes import Exchange, Route
from tidewire.transport.websocket import WebSocket

LIMIT_BYTES = 20


class Peer:
    """A client, and the connection below its socket."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.is_finished = False
        self._framing = Connection(ConnectionType.CLIENT)
        route = Route("/", park=self._park, body_limit_bytes=LIMIT_BYTES)
        self._socket = WebSocket(self, route, HttpRequest("GET", "/", {}))

    def _park(self, request: HttpRequest, exchange: Exchange) -> None:
        self.bodies.append(request.body)
        exchange.respond(200, b"[]")

    def write(self, data: bytes) -> None:
        self._framing.receive_data(data)

    def finish(self) -> None:
        self.is_finished = True

    def say(self, text: str, *, is_last: bool = True) -> None:
        self._socket.feed(self._framing.send(TextMessage(data=text, message_finished=is_last)))

    def heard(self) -> list[Event]:
        return list(self._framing.events())


def close_codes(peer: Peer) -> list[int]:
    return [int(event.code) for event in peer.heard() if isinstance(event, CloseConnection)]


def test_message_in_pieces_is_one_request_though_some_are_empty() -> None:
    peer = Peer()
    for _ in range(5):
        for piece in ("", "x" * LIMIT_BYTES, ""):
            peer.say(piece, is_last=False)
        peer.say("")
    assert peer.bodies == [b"x" * LIMIT_BYTES] * 5
    assert not peer.is_finished


def test_message_of_endless_empty_pieces_ends_the_socket() -> None:
    peer = Peer()
    for _ in range(2_000):
        peer.say("", is_last=False)
        if peer.is_finished:
            break
    assert peer.is_finished
    assert close_codes(peer) == [1008]
    assert peer.bodies == []


def test_many_messages_with_empty_pieces_are_taken() -> None:
    peer = Peer()
    for _ in range(1_500):
        peer.say("", is_last=False)
        peer.say("a")
    assert peer.bodies == [b"a"] * 1_500
