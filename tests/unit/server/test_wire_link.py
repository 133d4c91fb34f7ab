"""The seam over a socket, both ends in one loop: calls, commits, bodies in pieces, and who lets go of what."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidewire.clock import ManualClock
from tidewire.config import DEV_PASSWORD, DEV_USERNAME, Settings
from tidewire.delivery.hub import LATEST
from tidewire.delivery.link_values import Delivered, DurableClient
from tidewire.errors import ChannelUnknown, SessionInvalid, StoreClosed
from tidewire.events import CommittedBatch, Family
from tidewire.frontends.bayeux.forms import bayeux_form
from tidewire.gate.requests import Call
from tidewire.server import wire_link as kinds
from tidewire.server.edge_orgs import EdgeOrgs
from tidewire.server.edge_session import EdgeSession, Feeds, Relay
from tidewire.server.orgs import Orgs
from tidewire.server.wire_link import PIECES_AHEAD, CoreWire, Message, RemoteLink, Wire, open_remote_link
from tidewire.transport.http import HttpRequest, HttpResponse
from tidewire.transport.uploads import Upload

pytestmark = pytest.mark.anyio


class Both:
    """An edge and a core, without a process or a listener between them."""

    def __init__(self, orgs: Orgs, directory: Path) -> None:
        self.orgs = orgs
        self.made = 0  # pieces of a body
        self.is_ended = False
        self.asked: list[HttpRequest] = []
        self.session = EdgeSession(0, orgs, self.answer, Feeds(), NoRelay(), directory)
        self.core = CoreWire()
        self.handlers: dict[int, Callable[..., None]] = {
            **self.core.handlers,
            kinds.FLAGS: lambda *_: None,
            kinds.BATCH: lambda *_: None,
        }

    async def join(self) -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        wire = self.core.wire = Wire(self.receive, lambda: None)
        await loop.create_unix_connection(lambda: wire, sock=theirs)
        await loop.create_unix_connection(lambda: self.session.wire, sock=ours)

    def receive(self, message: Message) -> None:
        self.handlers[message[0]](*message[1:])

    async def answer(self, request: HttpRequest) -> HttpResponse:
        self.asked.append(request)
        if request.upload is not None:
            body = b"".join(request.upload.iter_blocks(1 << 30))
            return HttpResponse(200, str(len(body)).encode())
        if request.target == "/pieces":
            return HttpResponse(200, pieces=self.pieces())
        if request.target == "/nothing":
            return HttpResponse(200, pieces=_no_pieces())
        return HttpResponse(201, request.body * 2, headers=(("X-Was", request.method),))

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            for number in range(100):
                self.made = number + 1
                yield b"%d," % number
        finally:
            self.is_ended = True


async def _no_pieces() -> AsyncIterator[bytes]:
    nothing: tuple[bytes, ...] = ()
    for piece in nothing:
        yield piece


class NoRelay(Relay):
    def forward(self, origin: int, number: int, home: int, request: Message) -> None:
        raise AssertionError

    reply: Any = forward
    leave: Any = forward


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[Both]:
    orgs = Orgs(Settings(data=str(tmp_path / "data"), dev=True), ManualClock(), has_fronts=False)
    await orgs.start()
    pair = Both(orgs, tmp_path)
    await pair.join()
    yield pair
    assert pair.core.wire is not None
    pair.core.wire.close()
    await pair.session.lost.wait()
    await orgs.close()


@pytest.fixture
async def link(both: Both) -> RemoteLink:
    """The first org's, held open."""
    await both.core.ask(kinds.HOLD, both.orgs.first_id)
    return open_remote_link(both.core, both.orgs.first_id)


async def sign_in(both: Both) -> str:
    async with both.orgs.using(both.orgs.first_id) as org:
        return (await org.core.logins.login(DEV_USERNAME, DEV_PASSWORD, "127.0.0.1")).token


async def settle(both: Both) -> None:
    """Let whatever is under way between the two arrive."""
    for _ in range(3 * PIECES_AHEAD):
        await both.core.call_http(HttpRequest("GET", "/other", {}))


async def test_calls_cross_and_so_do_their_errors(both: Both, link: RemoteLink) -> None:
    principal = await link.authenticate(await sign_in(both))
    assert principal.username == DEV_USERNAME
    assert (await link.open_channel(principal, "/data/ChangeEvents", 62.0)).channel == "/data/ChangeEvents"
    with pytest.raises(SessionInvalid):
        await link.authenticate("nobody")
    with pytest.raises(ChannelUnknown):
        await link.open_channel(principal, "/topic/Nowhere", 62.0)


async def test_streaming_clients_of_an_edge_count_for_the_org(both: Both, link: RemoteLink) -> None:
    client = DurableClient("1c", "005", 62.0, True, "b", -1, (("/topic/A", 7), ("/u/B", 9)))
    await link.admit_client("1c", "bayeux", "005", True)
    await link.admit_subscription("1c", "/u/B", Family.GENERIC, True)
    link.count_delivered((Delivered(True, Family.GENERIC, 5),))
    link.renew_clients(frozenset({"1c"}))
    await link.store_client(client)
    link.store_positions((replace(client, channels=(("/u/B", 10),)),))
    assert await link.find_client("1c") == replace(client, channels=(("/u/B", 10),))
    async with both.orgs.using(both.orgs.first_id) as org:
        counted = org.core.allocations
        assert counted.used_clients(is_durable=True) == 1
        assert counted.used_events(Family.GENERIC, is_durable=True) == 5
    link.release_subscription("1c", "/u/B")
    link.release_client("1c")
    link.forget_client("1c")
    assert await link.find_client("1c") is None
    assert counted.used_clients(is_durable=True) == 0


async def test_clients_of_an_edge_that_is_gone_do_not_count(both: Both, link: RemoteLink) -> None:
    (org,) = both.orgs.open_orgs
    await link.admit_client("1c", "bayeux", "005", True)
    await org.link.admit_client("2c", "bayeux", "005", True)
    both.core.send(kinds.RELEASE, org.org_id)
    await settle(both)
    assert org.core.allocations.used_clients(is_durable=True) == 1


async def test_any_message_of_an_edge_resets_its_silences(both: Both) -> None:
    both.session.silences = 3
    both.core.send(kinds.ALIVE)
    await settle(both)
    assert both.session.silences == 0


async def test_edge_that_was_cut_off_may_release_last(both: Both) -> None:
    (org,) = both.orgs.open_orgs
    feeds = Feeds()
    ours, unread = socket.socketpair()
    slow, quick = (Wire(lambda _: None, lambda: None) for _ in range(2))
    await asyncio.get_running_loop().create_unix_connection(lambda: slow, sock=ours)
    leave_slow, leave_quick = feeds.join(org, slow), feeds.join(org, quick)
    slow.send_frame(bytes(65 << 20))
    await settle(both)
    await sign_in(both)  # the commit that finds it too far behind
    leave_quick()
    leave_slow()
    unread.close()


async def test_call_for_an_org_that_is_not_held_is_rejected(both: Both) -> None:
    with pytest.raises(StoreClosed):
        await open_remote_link(both.core, both.orgs.first_id).read_log_head()


async def test_commit_is_known_before_its_writer_is_answered(both: Both, link: RemoteLink) -> None:
    batches: list[CommittedBatch] = []
    both.handlers[kinds.BATCH] = lambda _, form: link.take_batch(form)
    link.watch_commits(batches.append)
    before = len(batches)
    await sign_in(both)  # a login commits its session
    await link.read_log_head()
    assert len(batches) > before


async def test_edge_follows_an_org_until_it_closes(both: Both, tmp_path: Path) -> None:
    settings = Settings(data=str(tmp_path / "data"), dev=True)
    edge = EdgeOrgs(both.core, settings, ManualClock(), both.orgs.first_id, "")
    both.handlers |= edge.handlers
    front = await edge.start()
    principal = await open_remote_link(both.core, both.orgs.first_id).authenticate(await sign_in(both))
    subscription = await front.hub.subscribe(
        principal, "/data/ChangeEvents", 62.0, LATEST, bayeux_form(62.0), lambda: None
    )
    assert front.is_busy
    subscription.close()
    closing = asyncio.create_task(both.orgs.close())
    await closing
    with pytest.raises(StoreClosed):
        await open_remote_link(both.core, both.orgs.first_id).read_log_head()
    await edge.close()


async def test_request_and_response_cross_whole(both: Both) -> None:
    body = bytes(range(256)) * 20_000
    response = await both.core.call_http(HttpRequest("POST", "/x?y", {"host": "h"}, body, "https", "peer"))
    assert (response.status, response.body, response.headers) == (201, body * 2, (("X-Was", "POST"),))
    assert both.asked == [HttpRequest("POST", "/x?y", {"host": "h"}, body, "https", "peer")]


async def test_body_in_pieces_is_made_no_faster_than_it_is_read(both: Both) -> None:
    response = await both.core.call_http(HttpRequest("GET", "/pieces", {}))
    assert response.pieces is not None
    pieces = response.pieces
    first = await anext(pieces)
    await settle(both)
    assert PIECES_AHEAD < both.made <= PIECES_AHEAD + 2
    assert first + b"".join([piece async for piece in pieces]) == b"".join(b"%d," % n for n in range(100))


async def test_body_that_ends_before_its_head_is_read_is_whole(both: Both) -> None:
    response = await both.core.call_http(HttpRequest("GET", "/nothing", {}))
    assert response.pieces is not None
    assert [piece async for piece in response.pieces] == []


async def test_body_without_a_reader_is_not_generated(both: Both) -> None:
    response = await both.core.call_http(HttpRequest("GET", "/pieces", {}))
    assert response.pieces is not None
    del response  # its body with it
    await settle(both)
    assert both.is_ended
    assert both.made <= PIECES_AHEAD + 1


async def test_upload_crosses_in_blocks(both: Both, tmp_path: Path) -> None:
    upload = Upload(tmp_path)
    for _ in range(30):
        upload.append(b"x" * 100_000)
    response = await both.core.call_http(HttpRequest("PUT", "/up", {}, upload=upload))
    upload.close()
    assert response.body == b"3000000"
    (asked,) = both.asked
    assert asked.upload is not upload


async def test_managed_subscription_is_free_after_a_cancelled_opening(both: Both, link: RemoteLink) -> None:
    (org,) = both.orgs.open_orgs
    principal = await link.authenticate(await sign_in(both))
    managed = {"Mine": {"label": "Mine", "topic": "/data/ChangeEvents"}}
    document = {"managed_subscriptions": managed}
    await org.core.gate.apply_definition(Call(principal, "com/test"), document, dry_run=False)
    opening = asyncio.create_task(link.open_managed(principal, "", "Mine", "one"))

    def give_up(*_: Any) -> None:
        opening.cancel()

    both.handlers[kinds.RESULT] = give_up
    await asyncio.wait([opening])
    assert opening.cancelled()
    assert org.core.managed.is_read("Mine")
    link.release_managed("", "one")
    await settle(both)
    assert not org.core.managed.is_read("Mine")


async def test_cancelled_call_is_cancelled_in_the_core_too(both: Both, link: RemoteLink) -> None:
    asking = asyncio.create_task(link.read_log_head())
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled()
    assert await link.read_log_head() > 0
