"""The front end before a real core: how many sessions there are, how they end, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.orgs import READER, TestOrg
from tidewire.config import DEV_PASSWORD, DEV_USERNAME
from tidewire.delivery.hub import Hub
from tidewire.frontends.bayeux.serve import BayeuxApp
from tidewire.frontends.bayeux.settings import BayeuxSettings
from tidewire.transport.http import HttpRequest, HttpResponse
from tidewire.transport.routes import Exchange

PER_USER = 5
SETTINGS = BayeuxSettings(max_sessions_per_user=PER_USER, sweep_s=0.01)


class Waiting:
    """An exchange that keeps its response."""

    def __init__(self) -> None:
        self.on_close: Callable[[Exchange], None] | None = None
        self.status = 0
        self.body = b""
        self._answered = asyncio.Event()

    @property
    def is_open(self) -> bool:
        return not self._answered.is_set()

    def respond(self, status: int, body: bytes, headers: bytes = b"") -> bool:
        if not self.is_open:
            return False
        self.status, self.body = status, body
        self._answered.set()
        return True

    def respond_with(self, response: HttpResponse) -> bool:
        return self.respond(response.status, response.body)

    async def stream_with(self, response: HttpResponse) -> None:
        self.respond_with(response)

    async def messages(self) -> list[dict[str, Any]]:
        async with asyncio.timeout(120):
            await self._answered.wait()
        assert self.status == 200, self.body
        found: list[dict[str, Any]] = json.loads(self.body)
        return found


class Client:
    """A Bayeux client of one user."""

    def __init__(self, app: BayeuxApp, token: str, version: str = "62.0") -> None:
        self._app = app
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        self._target = f"/cometd/{version}"
        self._has_connected = False
        self.client_id = ""

    def send(self, channel: str, **values: Any) -> Waiting:
        message = {"channel": channel, "clientId": self.client_id, **values}
        exchange = Waiting()
        self._app.handle(
            HttpRequest("POST", self._target, self._headers, json.dumps([message]).encode()), exchange
        )
        return exchange

    async def ask(self, channel: str, **values: Any) -> dict[str, Any]:
        return (await self.send(channel, **values).messages())[-1]

    async def shake_hands(self) -> Client:
        reply = await self.ask("/meta/handshake", supportedConnectionTypes=["long-polling"])
        self.client_id = reply["clientId"]
        return self

    async def hold(self) -> Waiting:
        """A connect that waits; the first, which never does, is done before."""
        if not self._has_connected:
            await self.ask("/meta/connect", connectionType="long-polling")
            self._has_connected = True
        held = self.send("/meta/connect", connectionType="long-polling")
        # Its answer to a later message shows that the connect has been taken in.
        await self.ask("/meta/unsubscribe", subscription="/topic/None")
        assert held.is_open
        return held


class Stage:
    """A front end and who speaks to it."""

    def __init__(self, org: TestOrg, hub: Hub, app: BayeuxApp, token: str) -> None:
        self.org = org
        self.hub = hub
        self.app = app
        self.token = token

    async def client(self, version: str = "62.0", token: str = "") -> Client:
        return await Client(self.app, token or self.token, version).shake_hands()


@pytest.fixture
async def stage(org: TestOrg) -> AsyncIterator[Stage]:
    hub = Hub(org.link)
    await hub.start()
    app = BayeuxApp(org.link, hub, org.clock, SETTINGS)
    login = await org.core.logins.login(DEV_USERNAME, DEV_PASSWORD, "")
    yield Stage(org, hub, app, login.token)
    await app.close()
    await hub.close()


UNKNOWN = {
    "advice": {"reconnect": "handshake", "interval": 0},
    "channel": "/meta/connect",
    "error": "403::Unknown client",
    "successful": False,
}


async def test_handshake_loop_of_one_user_ends_their_oldest_sessions(stage: Stage) -> None:
    login = await stage.org.core.logins.login(READER, DEV_PASSWORD, "")
    other = await stage.client(token=login.token)
    clients = [await stage.client() for _ in range(200)]
    assert stage.app.session_count == PER_USER + 1
    gone, kept = clients[-PER_USER - 1], clients[-PER_USER]
    assert await gone.ask("/meta/connect", connectionType="long-polling") == UNKNOWN
    assert (await kept.ask("/meta/connect", connectionType="long-polling"))["successful"]
    assert (await other.ask("/meta/connect", connectionType="long-polling"))["successful"]


async def test_handshake_loop_spares_clients_that_wait(stage: Stage) -> None:
    first = await stage.client()
    held = await first.hold()
    for _ in range(3 * PER_USER):
        await stage.client()
    assert held.is_open
    assert stage.app.session_count == PER_USER


async def test_client_that_waits_is_told_when_it_is_crowded_out(stage: Stage) -> None:
    held = [await (await stage.client()).hold() for _ in range(PER_USER)]
    await stage.client()
    assert await held[0].messages() == [UNKNOWN]
    assert all(exchange.is_open for exchange in held[1:])


async def test_session_of_an_old_version_ends_though_its_client_waits(stage: Stage) -> None:
    old, newer = await stage.client("24.0"), await stage.client("25.0")
    for _ in range(36):
        await old.hold()
        await newer.hold()
        stage.org.clock.advance(99.9)
    held = await old.hold(), await newer.hold()
    stage.org.clock.advance(5)
    assert await held[0].messages() == [UNKNOWN]
    assert held[1].is_open
    assert stage.app.session_count == 1


async def test_subscribe_begins_the_time_of_an_old_session_anew(stage: Stage) -> None:
    old = await stage.client("24.0")
    for _ in range(36):
        await old.hold()
        stage.org.clock.advance(99.9)
    assert (await old.ask("/meta/subscribe", subscription="/data/AccountChangeEvent"))["successful"]
    held = await old.hold()
    stage.org.clock.advance(100)
    await stage.org.make_account()
    assert [m["channel"] for m in await held.messages()] == ["/data/AccountChangeEvent", "/meta/connect"]


async def test_nothing_is_left_of_sessions_however_they_end(stage: Stage) -> None:
    login = await stage.org.core.logins.login(READER, DEV_PASSWORD, "")
    away, left, ended = await stage.client(), await stage.client(), await stage.client(token=login.token)
    for client in (away, left, ended):
        reply = await client.ask("/meta/subscribe", subscription="/data/AccountChangeEvent")
        assert reply["successful"], reply
    assert (stage.app.session_count, stage.hub.subscription_count) == (3, 3)
    await left.ask("/meta/disconnect")
    assert (stage.app.session_count, stage.hub.subscription_count) == (2, 2)
    held = await ended.hold()
    await stage.org.core.logins.sessions.log_out(login.principal.session_id)
    (reply,) = await held.messages()
    assert (reply["error"], reply["advice"]["reconnect"]) == ("401::Authentication invalid", "none")
    assert (stage.app.session_count, stage.hub.subscription_count) == (1, 1)
    last = await stage.client()
    held = await last.hold()
    stage.org.clock.advance(111)
    await held.messages()  # by the sweep that finds the other one overdue
    assert (stage.app.session_count, stage.hub.subscription_count) == (1, 0)
    await last.ask("/meta/disconnect")
    registry = stage.app._sessions  # noqa: SLF001 - what must not grow is nobody else's business
    assert not any((registry._by_client, registry._by_login, registry._by_user))  # noqa: SLF001


async def test_refused_messages_leave_nothing_behind(stage: Stage) -> None:
    client = await stage.client()
    good = "/data/AccountChangeEvent"
    for values in (
        {"subscription": [good, "/topic/Nope"]},
        {"subscription": good, "ext": {"replay": {good: 1}}},
        {"subscription": good, "ext": {"replay": {good: 1 << 52}}},
        {"subscription": good, "ext": {"replay": {good: "x"}}},
        {"subscription": good, "ext": {"replay": {good: []}}},
        {"subscription": [good, 7]},
        {"subscription": {"a": good}},
        {"subscription": "/data/*"},
        {"subscription": "/**"},
        {"subscription": "/meta/**"},
    ):
        reply = await client.ask("/meta/subscribe", **values)
        assert reply["successful"] is False, values
    assert (stage.app.session_count, stage.hub.subscription_count) == (1, 0)


async def test_deactivated_user_is_told_at_once(stage: Stage) -> None:
    login = await stage.org.core.logins.login(READER, DEV_PASSWORD, "")
    client = await stage.client(token=login.token)
    assert (await client.ask("/meta/subscribe", subscription="/data/AccountChangeEvent"))["successful"]
    held = await client.hold()
    await stage.org.gate.update(stage.org.call, "User", login.principal.user_id, {"IsActive": False})
    (reply,) = await held.messages()
    assert (reply["error"], reply["advice"]["reconnect"]) == ("401::Authentication invalid", "none")
    assert stage.app.session_count == stage.hub.subscription_count == 0


async def test_login_that_expired_unnoticed_ends_with_its_purge(stage: Stage) -> None:
    client = await stage.client()
    held = await client.hold()
    # A machine that slept for a day: nobody could tell that the stream was open.
    stage.org.clock.step(86_400)
    await stage.org.core.logins.sessions.purge()
    (reply,) = await held.messages()
    assert reply["error"] == "401::Authentication invalid"
    assert stage.app.session_count == 0


async def test_waiting_client_keeps_its_login(stage: Stage) -> None:
    client = await stage.client()
    held = await client.hold()
    for _ in range(4):
        stage.org.clock.step(7000)
        stage.hub.touch_sessions()
    await stage.org.core.logins.sessions.purge()
    assert held.is_open
    await stage.org.core.logins.sessions.authenticate(stage.token)
