"""A session's subscriptions when its user goes on under another login."""

from __future__ import annotations

import asyncio

from tests.orgs import TestOrg
from tidewire.delivery.hub import LATEST, Hub
from tidewire.eventlog.log import LogBounds
from tidewire.events import Family
from tidewire.frontends.bayeux.session import EventSource, Session, SessionTimes
from tidewire.frontends.bayeux.subscribe import open_source, reopen
from tidewire.frontends.bayeux.wire import Endpoint
from tidewire.server.link import LocalLink

CHANNEL = "/data/AccountChangeEvent"


class HeldLink(LocalLink):
    """The core's own link, which tells the bounds of the log only when it may."""

    def __init__(self, org: TestOrg) -> None:
        super().__init__(org.core)
        self.was_asked = asyncio.Event()
        self.may_tell = asyncio.Event()

    async def read_log_bounds(self, family: Family) -> LogBounds:
        self.was_asked.set()
        await self.may_tell.wait()
        return await super().read_log_bounds(family)


async def take_one(source: EventSource, woken: asyncio.Event) -> bytes:
    while True:
        woken.clear()
        taken = source.take(10, 1 << 20)
        if taken:
            (event,) = taken
            return event
        await woken.wait()


async def test_reply_while_a_login_is_replaced_moves_the_new_subscription_too(org: TestOrg) -> None:
    link = HeldLink(org)
    hub = Hub(link)
    await hub.start()
    woken = asyncio.Event()
    session = Session("client", Endpoint(60.0, True), org.admin, "browser", SessionTimes(110.0, 40.0), 0.0)
    session.wake = woken.set
    old = session.sources[CHANNEL] = await open_source(hub, session, CHANNEL, LATEST)
    replacing = asyncio.create_task(reopen(hub, session))
    await link.was_asked.wait()
    await org.make_account("meanwhile")
    assert b"meanwhile" in await take_one(old, woken)
    link.may_tell.set()
    await replacing
    new = session.sources[CHANNEL]
    assert new is not old
    assert hub.subscription_count == 1
    await org.make_account("afterwards")
    assert b"afterwards" in await take_one(new, woken)
    await hub.close()
