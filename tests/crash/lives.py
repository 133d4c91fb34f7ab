"""A server that dies and comes back, as those know it who work with it."""

from __future__ import annotations

import threading
from collections.abc import Iterable

_BACK_S = 60.0
_END_S = 180.0  # longer than a request may wait for its answer


class Lives:
    """Counts the server's lives, lets threads wait for the next one, and ends them."""

    def __init__(self) -> None:
        self.count = 0
        self.is_stopping = False
        self._back = threading.Condition()

    def start(self, threads: Iterable[threading.Thread]) -> None:
        """Let threads begin."""
        self.is_stopping = False
        for thread in threads:
            thread.start()

    def note_back(self) -> None:
        """Tell those who wait that the server lives again."""
        with self._back:
            self.count += 1
            self._back.notify_all()

    def wait_back(self, life: int) -> None:
        """Wait for a life after this one, or for the end."""
        with self._back:
            self._back.wait_for(lambda: self.count > life or self.is_stopping, _BACK_S)

    def stop(self, threads: Iterable[threading.Thread]) -> None:
        """Let every thread finish its request, and wait for them."""
        self.is_stopping = True
        self.note_back()
        for thread in threads:
            thread.join(timeout=_END_S)
            assert not thread.is_alive(), "somebody is still waiting for an answer"
