"""Collect the events of a channel in the background, for tests that wait for some of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Self

from tidewire.client.cometd import NEW_EVENTS, CometdClient, ReceivedEvent
from tidewire.client.login import Login
from tidewire.clock import SystemClock
from tidewire.errors import PlatformError, ServerUnreachable

_OPEN_S = 60.0


class Listener:
    """A CometD subscription, open during a `with` block. Thread-safe.

    It reconnects by itself when it is disconnected or its login session expires.
    """

    def __init__(self, sign_in: Callable[[], Login], channel: str, replay: int = NEW_EVENTS) -> None:
        self._sign_in = sign_in
        self._channel = channel
        self._replay = replay
        self._arrived = threading.Condition()
        self._events: list[ReceivedEvent] = []
        self._taken: set[int] = set()
        self._failure: BaseException | None = None
        self._opened: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name=f"listen {channel}", daemon=True)

    @property
    def events(self) -> list[ReceivedEvent]:
        """All events received so far, in order."""
        with self._arrived:
            return list(self._events)

    def wait_for(
        self, wanted: Callable[[ReceivedEvent], bool] = lambda event: True, timeout_s: float = 30.0
    ) -> ReceivedEvent:
        """Wait for the first matching event that was not returned before.

        Raises AssertionError with the received events on timeout, or the error that ended the subscription.
        """
        clock = SystemClock()
        until_s = clock.monotonic_s() + timeout_s
        with self._arrived:
            while True:
                for index, event in enumerate(self._events):
                    if index not in self._taken and wanted(event):
                        self._taken.add(index)
                        return event
                if self._failure is not None:
                    raise self._failure
                left_s = until_s - clock.monotonic_s()
                if left_s <= 0:
                    received = [event.data for event in self._events]
                    raise AssertionError(
                        f"no such event on {self._channel} within {timeout_s} s; received: {received}"
                    )
                self._arrived.wait(left_s)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._opened.result(_OPEN_S)
        except TimeoutError as error:
            self.close()
            raise ServerUnreachable(f"timeout while subscribing to {self._channel}") from error
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Unsubscribe. Idempotent."""
        loop, task = self._loop, self._task
        if loop is not None and task is not None and self._thread.is_alive():
            loop.call_soon_threadsafe(task.cancel)
        self._thread.join(_OPEN_S)

    def _run(self) -> None:
        asyncio.run(self._collect_until_cancelled())

    async def _collect_until_cancelled(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._collect())
        await asyncio.wait([self._task])

    async def _collect(self) -> None:
        try:
            async with CometdClient(self._sign_in) as client:
                await client.subscribe(self._channel, self._replay)
                self._opened.set_result(None)
                async for event in client:
                    with self._arrived:
                        self._events.append(event)
                        self._arrived.notify_all()
        except PlatformError as error:
            if not self._opened.done():
                self._opened.set_exception(error)
            with self._arrived:
                self._failure = error
                self._arrived.notify_all()
