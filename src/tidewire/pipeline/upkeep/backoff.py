"""When to try again what has failed: soon at first, then less and less often."""

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
"""After so many attempts that a server has refused, nobody asks again by itself."""

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
    """Whether asking the same again will be refused the same way: the server was there and said no."""
    return isinstance(error, _LASTING)


@dataclass(slots=True)
class _Failures:
    count: int
    due_s: float


class Backoff:
    """Failures by whatever they are counted by, for one thread."""

    def __init__(self, clock: Clock, first_s: float = FIRST_S, longest_s: float = LONGEST_S) -> None:
        self._clock = clock
        self._first_s = first_s
        self._longest_s = longest_s
        self._failures: dict[Hashable, _Failures] = {}

    def is_due(self, key: Hashable) -> bool:
        """Whether it may be tried now."""
        known = self._failures.get(key)
        return known is None or self._clock.monotonic_s() >= known.due_s

    def failed(self, key: Hashable) -> int:
        """Count a failure and put the next attempt off; returns how many there were."""
        known = self._failures.setdefault(key, _Failures(0, 0.0))
        delay_s = min(self._first_s * 2**known.count, self._longest_s)
        known.count += 1
        known.due_s = self._clock.monotonic_s() + delay_s
        return known.count

    def succeeded(self, key: Hashable) -> None:
        """Forget what has failed before."""
        self._failures.pop(key, None)
