"""Injected faults: requests that fail because a test asked for it, over HTTP and gRPC."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc

from tidewire.delivery.front_end import EdgeHttp
from tidewire.errors import ValueMalformed
from tidewire.server.orgs import Orgs
from tidewire.server.probes import Probes
from tidewire.server.routing import OrgRouter
from tidewire.transport.http import HttpRequest, HttpResponse
from tidewire.transport.routes import Exchange

_GRPC_NAMES = frozenset(status.name for status in grpc.StatusCode) - {"OK"}


@dataclass(slots=True)
class Fault:
    """A fault of the next `left` requests: an HTTP status for a path prefix, or a gRPC status."""

    status: int
    grpc_status: str
    path: str
    message: str
    left: int


def make_fault(status: int | str, *, count: int, path: str, message: str) -> Fault:
    """Build a fault. Raises ValueMalformed for an unknown status."""
    if count < 1:
        raise ValueMalformed(f"count must be 1 or more, not {count}", fields=["count"])
    if isinstance(status, int) and 400 <= status <= 599:
        return Fault(status, "", path, message, count)
    if isinstance(status, str) and status in _GRPC_NAMES:
        return Fault(0, status, path, message, count)
    raise ValueMalformed(
        f"status must be an HTTP status from 400 to 599 or the name of a gRPC status, not {status!r}",
        fields=["status"],
    )


class FailingRouter(OrgRouter):
    """An `OrgRouter` that injects faults."""

    def __init__(self, orgs: Orgs, probes: Probes) -> None:
        super().__init__(orgs, probes)
        self.faults: list[Fault] = []

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Do what `OrgRouter` does, unless a fault applies."""
        response = self._try_fail(request)
        return response if response is not None else await super().answer(request)

    def park(self, name: str, http: EdgeHttp, request: HttpRequest, exchange: Exchange) -> None:
        """Do what `OrgRouter` does, unless a fault applies."""
        response = self._try_fail(request)
        if response is None:
            super().park(name, http, request, exchange)
        else:
            exchange.respond_with(response)

    @asynccontextmanager
    async def find_calls(self, name: str, token: str) -> AsyncIterator[Any]:
        """Do what `OrgRouter` does, unless a fault applies."""
        fault = self._try_take(lambda each: bool(each.grpc_status))
        if fault is not None:
            yield _Failing(fault)
            return
        async with super().find_calls(name, token) as calls:
            yield calls

    def _try_fail(self, request: HttpRequest) -> HttpResponse | None:
        fault = self._try_take(lambda each: bool(each.status) and request.raw_path.startswith(each.path))
        if fault is None:
            return None
        body = [{"errorCode": "SERVER_UNAVAILABLE", "message": fault.message}]
        return HttpResponse(fault.status, json.dumps(body).encode())

    def _try_take(self, matches: Callable[[Fault], bool]) -> Fault | None:
        fault = next((each for each in self.faults if matches(each)), None)
        if fault is not None:
            fault.left -= 1
            if not fault.left:
                self.faults.remove(fault)
        return fault


class _Failing:
    """Answers one Pub/Sub call with a status."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    async def answer_call(self, rpc: str, requests: object, context: Any) -> bytes | None:
        await context.abort(grpc.StatusCode[self._fault.grpc_status], self._fault.message)
        return None
