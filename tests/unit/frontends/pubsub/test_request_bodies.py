"""Requests on their way in: how many of a user are read and worked on at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tidewire.errors import BodyMalformed
from tidewire.frontends.pubsub.request_bodies import RequestBodies
from tidewire.frontends.pubsub.settings import PubSubSettings

pytestmark = pytest.mark.anyio


class Calls:
    """Calls of one user whose requests arrive when told."""

    def __init__(self, bodies: RequestBodies) -> None:
        self._bodies = bodies
        self.begun = 0
        self.worked_on = 0
        self.arrive = asyncio.Event()
        self.finish = asyncio.Event()

    async def requests(self, body: bytes) -> AsyncIterator[bytes]:
        self.begun += 1
        await self.arrive.wait()
        yield body

    async def run(self, user: str, body: bytes) -> None:
        async with self._bodies.read(user, self.requests(body)) as read:
            assert read == body
            self.worked_on += 1
            await self.finish.wait()


async def bind() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_user_has_few_requests_read_at_a_time_and_others_have_their_own() -> None:
    calls = Calls(RequestBodies(PubSubSettings(read_requests=2)))
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(calls.run("one", b"x"))
        await bind()
        assert calls.begun == 2
        group.create_task(calls.run("two", b"x"))
        await bind()
        assert calls.begun == 3
        calls.arrive.set()
        await bind()
        assert calls.worked_on == 6
        calls.finish.set()


async def test_user_has_a_bounded_number_of_bytes_worked_on() -> None:
    calls = Calls(RequestBodies(PubSubSettings(worked_bytes=25)))
    calls.arrive.set()
    async with asyncio.TaskGroup() as group:
        for size in (100, 10):
            group.create_task(calls.run("one", b"x" * size))
            await bind()
        assert calls.worked_on == 1
        calls.finish.set()
    calls.finish.clear()
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(calls.run("one", b"x" * 10))
        await bind()
        assert calls.worked_on == 4
        calls.finish.set()
    assert calls.worked_on == 5


async def test_call_without_a_request_is_refused() -> None:
    async def nothing() -> AsyncIterator[bytes]:
        for body in list[bytes]():
            yield body

    with pytest.raises(BodyMalformed):
        async with RequestBodies(PubSubSettings()).read("one", nothing()):
            raise AssertionError("there is nothing to work on")


async def test_request_that_does_not_arrive_is_given_up_and_makes_room() -> None:
    calls = Calls(RequestBodies(PubSubSettings(read_requests=1, body_timeout_s=0.01)))
    with pytest.raises(BodyMalformed):
        await calls.run("one", b"x")
    calls.arrive.set()
    calls.finish.set()
    await calls.run("one", b"x")
    assert (calls.begun, calls.worked_on) == (2, 1)
