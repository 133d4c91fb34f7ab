"""Starting Spark while somebody may want to stop: on a thread of its own, which is left alone if that comes first.

It takes many seconds on a busy machine, and nothing interrupts it. On the main thread Spark would also take the
interrupt signal for itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidewire.pipeline.spark import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_S = 0.2


@contextmanager
def open_session(
    master: str, settings: Mapping[str, str], spark: SparkSession | None, stop: threading.Event
) -> Iterator[SparkSession | None]:
    """The caller's session, or one of our own that ends with us; None if `stop` came first."""
    if spark is not None:
        yield spark
        return
    start = _SessionStart(master, settings)
    session = start.wait(stop)
    try:
        yield session
    finally:
        if session is not None:
            session.stop()


class _SessionStart:
    """A session while it is being started."""

    def __init__(self, master: str, settings: Mapping[str, str]) -> None:
        self._master = master
        self._settings = settings
        self._lock = threading.Lock()
        self._is_ready = threading.Event()
        self._is_unwanted = False
        self._session: SparkSession | None = None
        self._failure: Exception | None = None
        threading.Thread(target=self._run, name="pipeline-session", daemon=True).start()

    def wait(self, stop: threading.Event) -> SparkSession | None:
        """The session; None if `stop` is set first. Raises what the start has failed with."""
        while not self._is_ready.wait(_POLL_S):
            with self._lock:
                if stop.is_set() and not self._is_ready.is_set():
                    self._is_unwanted = True
                    return None
        if self._failure is not None:
            raise self._failure
        return self._session

    def _run(self) -> None:
        session: SparkSession | None = None
        try:
            session = start_session(self._master, self._settings)
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            self._failure = error
        with self._lock:
            self._session = session
            self._is_ready.set()
        if self._is_unwanted and session is not None:
            session.stop()
