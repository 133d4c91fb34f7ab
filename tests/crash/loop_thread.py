"""A coroutine on a loop and in a thread of its own, and others that wait for what it does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine


class LoopThread:
    """Runs `watch` until it is stopped. Whoever changes what others wait for holds `changed` and notifies it."""

    def __init__(
        self, watch: Callable[[], Coroutine[object, object, None]], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.changed = threading.Condition()
        self._watch = watch
        self._loop = loop
        self._watching: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wait(self, claim: Callable[[], bool], timeout_s: float, state: Callable[[], str]) -> None:
        """Wait until something is so; `state` says how far it has come if it never is."""
        with self.changed:
            self.changed.wait_for(lambda: claim() or self._failure is not None, timeout_s)
            assert claim(), f"waited {timeout_s} s; {state()}; {self._failure!r}"

    def stop(self) -> None:
        """End the coroutine, and wait for the thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join(timeout=120)
        assert not self._thread.is_alive(), "the subscriber does not end"

    def _cancel(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    def _run(self) -> None:
        self._watching = self._loop.create_task(self._watch())
        try:
            self._loop.run_until_complete(self._watching)
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            with self.changed:
                self._failure = error
                self.changed.notify_all()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
