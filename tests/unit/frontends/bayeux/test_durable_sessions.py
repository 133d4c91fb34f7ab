"""Sessions that come back: whom they let in, and what is left of one that cannot."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.orgs import TestOrg
from tidewire import faults
from tidewire.config import DEV_PASSWORD, DEV_USERNAME
from tidewire.delivery.hub import Hub
from tidewire.errors import StoreClosed
from tidewire.frontends.bayeux.serve import BayeuxApp
from tidewire.frontends.bayeux.settings import BayeuxSettings
from tidewire.transport.http import HttpRequest, HttpResponse
from tidewire.transport.routes import Exchange

CHANNEL = "/data/AccountChangeEvent"


class Waiting:
    """An exchange that keeps its response."""

    def __init__(self) -> None:
        self.on_close: Callable[[Exchange], None] | None = None
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    @property
    def is_open(self) -> bool:
        return not self.answer.done()

    def respond(self, status: int, body: bytes, headers: bytes = b"") -> bool:
        self.answer.set_result(body)
        return True

    def respond_with(self, response: HttpResponse) -> bool:
        return self.respond(response.status, response.body)

    async def stream_with(self, response: HttpResponse) -> None:
        self.respond_with(response)


async def ask(app: BayeuxApp, headers: dict[str, str], channel: str, **values: Any) -> dict[str, Any]:
    exchange = Waiting()
    body = json.dumps([{"channel": channel, **values}]).encode()
    app.handle(HttpRequest("POST", "/cometd/62.0", headers, body), exchange)
    async with asyncio.timeout(120):
        replies: list[dict[str, Any]] = json.loads(await exchange.answer)
    return replies[-1]


@asynccontextmanager
async def serving(org: TestOrg) -> AsyncIterator[BayeuxApp]:
    """A front end that keeps its sessions."""
    hub = Hub(org.link)
    await hub.start()
    app = BayeuxApp(org.link, hub, org.clock, BayeuxSettings(has_durable_sessions=True))
    yield app
    await app.close()
    await hub.close()


@pytest.fixture
async def owner(org: TestOrg) -> dict[str, str]:
    """What the user of the sessions shows."""
    login = await org.core.logins.login(DEV_USERNAME, DEV_PASSWORD, "")
    return {"authorization": f"Bearer {login.token}"}


async def keep_client(org: TestOrg, owner: dict[str, str]) -> str:
    """The id of a client with one subscription, whose front end has ended since."""
    async with serving(org) as app:
        shaken = await ask(app, owner, "/meta/handshake", supportedConnectionTypes=["long-polling"])
        client_id = str(shaken["clientId"])
        reply = await ask(app, owner, "/meta/subscribe", clientId=client_id, subscription=CHANNEL)
        assert reply["successful"], reply
    return client_id


async def test_restored_session_lets_nobody_in_without_credentials(
    org: TestOrg, owner: dict[str, str]
) -> None:
    client_id = await keep_client(org, owner)
    async with serving(org) as app:
        durable = app._durable  # noqa: SLF001 - the moment before its client's own connect is let in
        assert durable is not None
        assert await durable.try_restore(client_id, org.admin) is not None
        advice = {"timeout": 0}
        connect = {"clientId": client_id, "connectionType": "long-polling", "advice": advice}
        stranger = await ask(app, {}, "/meta/connect", **connect)
        assert stranger["error"] == "401::Request requires authentication"
        assert (await ask(app, owner, "/meta/connect", **connect))["successful"]


async def test_session_that_cannot_be_restored_now_is_not_counted(
    org: TestOrg, owner: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client_id = await keep_client(org, owner)
    connect = {"clientId": client_id, "connectionType": "long-polling", "advice": {"timeout": 0}}
    async with serving(org) as app:
        with monkeypatch.context() as faulty:
            faulty.setattr(faults, "_failures", {f"bayeux.subscribe@{CHANNEL}": StoreClosed.code})
            assert not (await ask(app, owner, "/meta/connect", **connect))["successful"]
        assert org.core.allocations.used_clients(is_durable=True) == 0
        assert (await ask(app, owner, "/meta/connect", **connect))["successful"]
        assert org.core.allocations.used_clients(is_durable=True) == 1
