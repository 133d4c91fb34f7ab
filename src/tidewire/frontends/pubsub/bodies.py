"""The requests of calls that have only one: read when their caller is known, and so many at a time.

Theory of operation. gRPC keeps a little of every call until somebody reads from it, and the whole of a request once
somebody does. So a call is answered for its metadata first, and a user has few requests being read at a time and a
bounded number of bytes being worked on; further ones wait, most of them still at the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from tidewire.errors import BodyMalformed
from tidewire.frontends.pubsub.calls import Requests
from tidewire.frontends.pubsub.settings import PubSubSettings


class Bodies:
    """Requests on their way in, by user."""

    def __init__(self, settings: PubSubSettings) -> None:
        self._settings = settings
        self._users: WeakValueDictionary[str, _Share] = WeakValueDictionary()

    @asynccontextmanager
    async def read(self, user_id: str, requests: Requests) -> AsyncIterator[bytes]:
        """The one request of a call, which counts as the user's while the context lasts. Raises BodyMalformed."""
        share = self._users.get(user_id)
        if share is None:
            share = self._users[user_id] = _Share(self._settings)
        async with share.reading:
            body = await self._receive(requests)
            await share.enter(len(body))
        try:
            yield body
        finally:
            share.leave(len(body))

    async def _receive(self, requests: Requests) -> bytes:
        try:
            async with asyncio.timeout(self._settings.body_timeout_s):
                body = await anext(requests, None)
        except TimeoutError:
            raise BodyMalformed("The request did not arrive in time") from None
        if body is None:
            raise BodyMalformed("The call has no request")
        return body


class _Share:
    """What one user may have under way."""

    def __init__(self, settings: PubSubSettings) -> None:
        self.reading = asyncio.Semaphore(settings.read_requests)
        self._limit_bytes = settings.worked_bytes
        self._size_bytes = 0
        self._has_left = asyncio.Event()

    async def enter(self, size_bytes: int) -> None:
        """Wait for room; a single request always has it."""
        while self._size_bytes and self._size_bytes + size_bytes > self._limit_bytes:
            self._has_left.clear()
            await self._has_left.wait()
        self._size_bytes += size_bytes

    def leave(self, size_bytes: int) -> None:
        """A request has been dealt with."""
        self._size_bytes -= size_bytes
        self._has_left.set()
