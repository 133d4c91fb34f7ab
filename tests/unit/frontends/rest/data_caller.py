"""Requests to the data API of a core without sockets, with bodies of values rather than bytes."""

from __future__ import annotations

from typing import Any

import orjson

from tests.orgs import TestOrg
from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.errors import PlatformError
from tidewire.frontends.rest.calls import Api
from tidewire.frontends.rest.conditional_requests import ChangeTimes
from tidewire.frontends.rest.data import DATA_ROUTES
from tidewire.frontends.rest.wire import parse_segments
from tidewire.frontends.rest.wire_errors import render_error
from tidewire.transport.http import HttpRequest, HttpResponse


class Caller:
    """One user's requests to the data API of a version."""

    def __init__(
        self,
        org: TestOrg,
        principal: Principal | None = None,
        version: int = 60,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or org.clock
        self._api = Api(
            DATA_ROUTES,
            org.gate,
            org.core.cursors,
            clock,
            org.core.generic,
            org.core.allocations,
            ChangeTimes(clock),
        )
        self._principal = principal or org.admin
        self._version = version

    async def send(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """The status and the decoded body of the answer to one request."""
        content = b"" if body is None else orjson.dumps(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        target = f"/services/data/v{self._version}.0/{path}"
        answer = await self._ask(HttpRequest(method, target, {"host": "localhost", **named}, content))
        return answer.status, orjson.loads(answer.body) if answer.body else None

    async def _ask(self, request: HttpRequest) -> HttpResponse:
        segments = (parse_segments(request.raw_path) or ())[3:]
        try:
            return await self._api.answer(request, self._version, segments, self._principal)
        except PlatformError as error:
            return render_error(request, error)


async def count(org: TestOrg, entity: str = "Account") -> int | None:
    """How many records of an object there are for everybody."""
    return (await org.gate.query(org.admin, f"SELECT COUNT() FROM {entity}")).count
