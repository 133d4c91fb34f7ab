"""The orgs that have clients on this edge. The core keeps an org open while an edge holds it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from tidewire.clock import Clock
from tidewire.config import Settings
from tidewire.delivery.front_end import EdgeHttp
from tidewire.errors import PlatformError, StoreClosed
from tidewire.ids import try_normalise_id
from tidewire.server import wire_link as kinds
from tidewire.server.front_ends import UNAVAILABLE
from tidewire.server.org_front import OrgFront, open_front
from tidewire.server.wire_link import CoreWire, open_remote_link
from tidewire.transport.http import HttpRequest
from tidewire.transport.routes import Exchange

_CHECK_EVERY_S = 2.0
_IDLE_S = 10.0
_CLOSE_WAIT_S = 5.0


class _EdgeOrg:
    """One org, from the request to hold it until it is released."""

    def __init__(self, core: CoreWire, org_id: str, now_s: float) -> None:
        self.org_id = org_id
        self.link = open_remote_link(core, org_id)
        self.front: OrgFront | None = None
        self.needs_https = False
        self.is_closed = False
        self.gone = asyncio.Event()
        self.opening: asyncio.Task[OrgFront] | None = None
        self.uses = 0
        self.unused = asyncio.Event()
        self.used_s = now_s


class EdgeOrgs:
    """`start` opens the first org, which stays open; the others are opened on use and closed when idle."""

    def __init__(self, core: CoreWire, settings: Settings, clock: Clock, first_id: str, home: str) -> None:
        self._core = core
        self._settings = settings
        self._clock = clock
        self._first_id = first_id
        self._home = home
        self._orgs: dict[str, _EdgeOrg] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self.handlers: dict[int, Callable[..., None]] = {
            kinds.BATCH: self._take_batch,
            kinds.FLAGS: self._take_flags,
            kinds.CLOSED: self._take_closed,
        }

    async def start(self) -> OrgFront:
        """Open the first org."""
        front = await self._ensure_open(self._first_id)
        self._spawn(self._close_idle())
        return front

    async def end_clients(self) -> None:
        """Answer all held requests and end all streams, in all orgs."""
        self._is_closing = True
        for org in self._orgs.values():
            if org.front is not None:
                await org.front.end_clients()

    async def close(self) -> None:
        """Close and release every org."""
        for task in tuple(self._tasks):
            task.cancel()
        for org in tuple(self._orgs.values()):
            await self._close_org(org)

    def park(self, name: str, http: EdgeHttp, request: HttpRequest, exchange: Exchange) -> None:
        """Hand a request to the named front end of its org; at once if the org is open here."""
        token = http.find_token(request)
        org = self._orgs.get(self._named_org(token))
        if org is not None and org.front is not None:
            org.used_s = self._clock.monotonic_s()
            org.front.park[name](request, exchange)
        else:
            self._spawn(self._open_and_park(name, http, token, request, exchange))

    async def _open_and_park(
        self, name: str, http: EdgeHttp, token: str, request: HttpRequest, exchange: Exchange
    ) -> None:
        try:
            front = await self._find_front(token)
        except PlatformError:
            exchange.respond_with(http.unavailable)
        else:
            front.park[name](request, exchange)

    @asynccontextmanager
    async def find_calls(self, name: str, token: str) -> AsyncIterator[Any]:
        """Return the call target of the named front end in a token's org; see `FindCalls`."""
        front = await self._find_front(token)
        org = next((o for o in self._orgs.values() if o.front is front), None)
        if org is None:
            raise StoreClosed(UNAVAILABLE)
        org.uses += 1
        org.unused.clear()
        try:
            yield front.apps[name].calls
        finally:
            org.uses -= 1
            org.used_s = self._clock.monotonic_s()
            if not org.uses:
                org.unused.set()

    def _named_org(self, token: str) -> str:
        """Return the org that a token names, the first if it names none; see `Orgs.try_known`."""
        org_id = try_normalise_id(token[:15]) if token[15:16] in ("!", ".") else None
        return org_id or self._first_id

    async def _find_front(self, token: str) -> OrgFront:
        org_id = self._named_org(token)
        if org_id not in self._orgs:
            org_id = await self._core.ask(kinds.FIND, token)
        return await self._ensure_open(org_id)

    async def _ensure_open(self, org_id: str) -> OrgFront:
        org = self._orgs.get(org_id)
        while org is not None and org.is_closed and not self._is_closing:
            # It is being closed because it was idle: wait and open it again.
            await org.gone.wait()
            org = self._orgs.get(org_id)
        if org is not None and org.front is not None:
            return org.front
        if self._is_closing:
            raise StoreClosed(UNAVAILABLE)
        if org is None:
            org = self._orgs[org_id] = _EdgeOrg(self._core, org_id, self._clock.monotonic_s())
            org.opening = asyncio.create_task(self._open(org))
        assert org.opening is not None  # noqa: S101  # set above, or by the caller that added the org
        return await asyncio.shield(org.opening)

    async def _open(self, org: _EdgeOrg) -> OrgFront:
        try:
            await self._core.ask(kinds.HOLD, org.org_id)
        except PlatformError:
            self._drop(org)
            raise
        try:
            front = await open_front(
                org.link,
                self._settings,
                self._clock,
                lambda: org.needs_https,
                is_first=org.org_id == self._first_id,
                home=self._home,
            )
            if org.is_closed:
                await front.hub.close()
                raise StoreClosed(UNAVAILABLE)
        except PlatformError:
            self._drop(org)
            self._core.send(kinds.RELEASE, org.org_id)
            raise
        org.front = front
        return front

    def _drop(self, org: _EdgeOrg) -> None:
        del self._orgs[org.org_id]
        org.gone.set()

    # messages of the core

    def _take_batch(self, org_id: str, form: list[Any]) -> None:
        org = self._orgs.get(org_id)
        if org is not None:
            org.link.take_batch(form)

    def _take_flags(self, org_id: str, needs_https: bool) -> None:
        org = self._orgs.get(org_id)
        if org is not None:
            org.needs_https = needs_https

    def _take_closed(self, org_id: str) -> None:
        org = self._orgs.get(org_id)
        if org is not None and not org.is_closed:
            org.is_closed = True
            if org.front is not None:
                self._spawn(self._close_org(org))

    async def _close_org(self, org: _EdgeOrg) -> None:
        """End an org's clients and release it."""
        org.is_closed = True
        front, org.front = org.front, None
        if front is None:
            return
        try:
            await front.end_clients()
            if org.uses:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_CLOSE_WAIT_S):
                        await org.unused.wait()
            await front.hub.close()
        finally:
            self._drop(org)
            self._core.send(kinds.RELEASE, org.org_id)

    async def _close_idle(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_EVERY_S)
            now_s = self._clock.monotonic_s()
            for org in tuple(self._orgs.values()):
                is_used = org.front is None or org.front.is_busy or org.uses or now_s - org.used_s < _IDLE_S
                if org.org_id != self._first_id and not is_used:
                    await self._close_org(org)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
