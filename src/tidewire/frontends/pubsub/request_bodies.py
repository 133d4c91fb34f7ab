"""Read the requests of unary calls within a budget per user.

Theory of operation. gRPC buffers little of a call that is not read, and the whole request of one that is. So a call is
authenticated by its metadata first, and each user has a limited number of requests being read and a limited number of
bytes in progress. Further requests wait, mostly still at the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from tidewire.errors import BodyMalformed
from tidewire.frontends.pubsub.calls import Requests
from tidewire.frontends.pubsub.settings import PubSubSettings


class RequestBodies:
    """Requests being read, by user."""

    def __init__(self, settings: PubSubSettings) -> None:
        self._settings = settings
        self._users: WeakValueDictionary[str, _UserBudget] = WeakValueDictionary()

    @asynccontextmanager
    async def read(self, user_id: str, requests: Requests) -> AsyncIterator[bytes]:
        """Read the request of a call; it counts against the user's budget while the context lasts.

        Raises BodyMalformed.
        """
        budget = self._users.get(user_id)
        if budget is None:
            budget = self._users[user_id] = _UserBudget(self._settings)
        async with budget.reading:
            body = await self._receive(requests)
            await budget.enter(len(body))
        try:
            yield body
        finally:
            budget.leave(len(body))

    async def _receive(self, requests: Requests) -> bytes:
        try:
            async with asyncio.timeout(self._settings.body_timeout_s):
                body = await anext(requests, None)
        except TimeoutError:
            raise BodyMalformed("The request did not arrive in time") from None
        if body is None:
            raise BodyMalformed("The call has no request")
        return body


class _UserBudget:
    """The budget of one user."""

    def __init__(self, settings: PubSubSettings) -> None:
        self.reading = asyncio.Semaphore(settings.read_requests)
        self._limit_bytes = settings.worked_bytes
        self._size_bytes = 0
        self._has_left = asyncio.Event()

    async def enter(self, size_bytes: int) -> None:
        """Wait for room. A single request always fits."""
        while self._size_bytes and self._size_bytes + size_bytes > self._limit_bytes:
            self._has_left.clear()
            await self._has_left.wait()
        self._size_bytes += size_bytes

    def leave(self, size_bytes: int) -> None:
        """Release the bytes of a finished request."""
        self._size_bytes -= size_bytes
        self._has_left.set()
