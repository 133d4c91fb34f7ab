"""A controlled server in a thread of the test process."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

import uvloop

from tidewire.config import Settings
from tidewire.errors import InternalError
from tidewire.testing.controlled import ControlledServer
from tidewire.testing.template_org import ensure_template_org

_START_S = 90.0
_STOP_S = 60.0


class ServerThread:
    """A `ControlledServer` on its own event loop. `start` and `stop` may be called once each."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ready: Future[dict[str, str]] = Future()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="tidewire-server", daemon=True)

    def start(self) -> dict[str, str]:
        """Start the server, wait until every listener is open, and return the ready line."""
        self._thread.start()
        return self._ready.result(_START_S)

    def stop(self) -> None:
        """Stop the server. Raises InternalError if it does not stop in time."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_STOP_S)
        if self._thread.is_alive():
            raise InternalError(f"the server did not stop within {_STOP_S} s")

    def _run(self) -> None:
        try:
            # Before uvloop.run: creating the org runs its own event loop.
            template = ensure_template_org()
            uvloop.run(self._serve(ControlledServer(self._settings, template)))
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _serve(self, server: ControlledServer) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            self._ready.set_result(await server.start())
            waits: list[asyncio.Task[Any]] = [
                asyncio.create_task(event.wait()) for event in (self._stop, server.failed)
            ]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        finally:
            await server.close()
