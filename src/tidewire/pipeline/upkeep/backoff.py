"""Retry with exponential backoff, counted by key."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from tidewire.clock import Clock
from tidewire.errors import (
    AccessDenied,
    ChannelForbidden,
    FieldUnknown,
    LogCorrupt,
    ObjectUnknown,
    PlatformError,
    RequestRefused,
    ResourceUnknown,
    TopicUnknown,
)

FIRST_S = 1.0
LONGEST_S = 300.0
MAX_ATTEMPTS = 3
"""After this many rejected attempts a request is not retried automatically."""

_LASTING = (
    AccessDenied,
    ChannelForbidden,
    FieldUnknown,
    LogCorrupt,
    ObjectUnknown,
    RequestRefused,
    ResourceUnknown,
    TopicUnknown,
)


def is_lasting(error: PlatformError) -> bool:
    """Return whether a retry would be rejected in the same way: the server was reachable and said no."""
    return isinstance(error, _LASTING)


@dataclass(slots=True)
class _Failures:
    count: int
    due_s: float


class Backoff:
    """Counts failures by key, for one thread."""

    def __init__(self, clock: Clock, first_s: float = FIRST_S, longest_s: float = LONGEST_S) -> None:
        self._clock = clock
        self._first_s = first_s
        self._longest_s = longest_s
        self._failures: dict[Hashable, _Failures] = {}

    def is_due(self, key: Hashable) -> bool:
        """Return whether the next attempt is due."""
        known = self._failures.get(key)
        return known is None or self._clock.monotonic_s() >= known.due_s

    def failed(self, key: Hashable) -> int:
        """Count a failure, delay the next attempt, and return the number of failures."""
        known = self._failures.setdefault(key, _Failures(0, 0.0))
        delay_s = min(self._first_s * 2**known.count, self._longest_s)
        known.count += 1
        known.due_s = self._clock.monotonic_s() + delay_s
        return known.count

    def succeeded(self, key: Hashable) -> None:
        """Reset the failures of a key."""
        self._failures.pop(key, None)
