"""Hand each request to its org.

Front ends say which org a request is for, see `CoreSide` and `EdgeHttp`. Nothing is verified here: the org
that is found checks all credentials, and a request that names no known org goes to the first, which rejects
it like any bad token.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from tidewire.config import Settings
from tidewire.delivery.front_end import EdgeHttp
from tidewire.errors import InternalError, PlatformError
from tidewire.server.front_ends import (
    UNAVAILABLE,
    core_sides,
    edge_sides,
    find_core_sides,
    render_listener_error,
)
from tidewire.server.org_front import OrgFront
from tidewire.server.orgs import OpenOrg, Orgs
from tidewire.server.probes import PATHS, Probes
from tidewire.transport.http import HttpRequest, HttpResponse
from tidewire.transport.routes import Exchange, Route


class OrgRouter:
    """Routes the requests of all listeners of this process."""

    def __init__(self, orgs: Orgs, probes: Probes) -> None:
        self._orgs = orgs
        self._probes = probes
        self._preflights = [side.answer_preflight for side in core_sides().values() if side.answer_preflight]
        self._by_token = [
            (side.try_find_token, (name, side))
            for name, side in core_sides().items()
            if side.try_find_token is not None
        ]
        self._tasks: set[asyncio.Task[None]] = set()

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer a request that the core serves. Never raises."""
        orgs = self._orgs
        if request.raw_path in PATHS:
            return await self._probes.answer(request)
        if request.method == "OPTIONS":
            for answer_preflight in self._preflights:
                preflight = answer_preflight(request, orgs.cors_origins())
                if preflight is not None:
                    return preflight
        org_id = None
        for try_find_token, named_side in self._by_token:
            token = try_find_token(request)
            if token is not None:  # most requests: no path has to be matched
                sides, org_id = [named_side], orgs.try_known(token)
                break
        else:
            sides = find_core_sides(request)
        try:
            org = await orgs.enter(org_id or await sides[0][1].find_org(request, orgs))
        except PlatformError:
            return render_listener_error(request, 503, UNAVAILABLE)
        try:
            return await org.http.answer(request, sides)
        finally:
            orgs.leave(org)

    def edge_routes(self, settings: Settings) -> list[Route]:
        """Return the routes of front ends whose edge side is in this process."""
        return [
            route
            for name, side in edge_sides().items()
            if side.http is not None
            for route in side.http.make_routes(settings, partial(self.park, name, side.http))
        ]

    def park(self, name: str, http: EdgeHttp, request: HttpRequest, exchange: Exchange) -> None:
        """Hand a request to the named front end of its org, at once if the org is open."""
        token = http.find_token(request)
        org_id = self._orgs.try_known(token)
        org = self._orgs.try_open(org_id) if org_id else None
        if org is not None and org.front is not None:
            org.front.park[name](request, exchange)
            return
        task = asyncio.get_running_loop().create_task(
            self._open_and_park(name, http, token, request, exchange)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open_and_park(
        self, name: str, http: EdgeHttp, token: str, request: HttpRequest, exchange: Exchange
    ) -> None:
        try:
            async with self._orgs.using(await self._orgs.find_by_token(token)) as org:
                _front(org).park[name](request, exchange)
        except PlatformError:
            exchange.respond_with(http.unavailable)

    @asynccontextmanager
    async def find_calls(self, name: str, token: str) -> AsyncIterator[Any]:
        """Return the call target of the named front end in a token's org; see `FindCalls`."""
        async with self._orgs.using(await self._orgs.find_by_token(token)) as org:
            yield _front(org).apps[name].calls


def _front(org: OpenOrg) -> OrgFront:
    if org.front is None:
        raise InternalError("this org's clients belong to the edges")
    return org.front
