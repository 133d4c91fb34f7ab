"""Supervise a streaming query: restart it after retryable errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidewire.clock import Clock
from tidewire.errors import (
    InternalError,
    LoginFailed,
    PlatformError,
    ReplayIdExpired,
    SessionError,
    WriteConflict,
)
from tidewire.pipeline.driver.checkpoints import drop_checkpoint
from tidewire.pipeline.driver.queries import Gate, try_failure
from tidewire.pipeline.lake.tables import Lake
from tidewire.pipeline.status.health import Health
from tidewire.pipeline.upkeep.backoff import Backoff

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LONGEST_S = 60.0
_WELL_S = 10.0
"""A query that has run for this long counts as recovered."""
_LEASE_LOST = "no longer holds the lease"


@dataclass
class SupervisedQuery:
    """A query that is restarted when it fails."""

    _lake: Lake
    _name: str
    _start: Callable[[Gate], StreamingQuery]
    _clock: Clock
    _can_mend: Callable[[PlatformError], bool]
    _recover: Callable[[], None] | None = None
    query: StreamingQuery | None = None
    _gate: Gate = field(default_factory=Gate)
    _started_s: float = 0.0
    _must_recover: bool = False

    def __post_init__(self) -> None:
        self._backoff = Backoff(self._clock, longest_s=_LONGEST_S)

    def check(self, health: Health) -> None:
        """Start the query if it is due, and check whether it runs. Raises errors that no retry can fix."""
        if self.query is None:
            if self._backoff.is_due(self._name):
                self._try_start(health)
            return
        if self.query.isActive:
            if self._clock.monotonic_s() - self._started_s >= _WELL_S:
                self._backoff.succeeded(self._name)
                health.works(self._name)
            return
        error = try_failure(self.query) or InternalError(f"the query {self._name} has ended by itself")
        self.query = None
        self._fail(error, health)

    def stop(self) -> None:
        """Stop the query between batches, if it runs."""
        if self.query is not None:
            self._gate.stop(self.query)

    def _try_start(self, health: Health) -> None:
        try:
            if self._must_recover and self._recover is not None:
                self._recover()
                self._must_recover = False
            self._gate = Gate()
            self._started_s = self._clock.monotonic_s()
            self.query = self._start(self._gate)
        except PlatformError as error:
            self._fail(error, health)

    def _fail(self, error: PlatformError, health: Health) -> None:
        if isinstance(error, ReplayIdExpired) and self._recover is not None and not self._must_recover:
            self._must_recover = True
        elif not self._can_mend(error):
            raise error
        health.fails(self._name, error)
        if self._backoff.failed(self._name) > 1 and isinstance(error, InternalError):
            drop_checkpoint(self._lake, self._name, "the query keeps failing")


def is_retryable(error: PlatformError) -> bool:
    """Return whether a query's failure may go away by itself."""
    if isinstance(error, WriteConflict):
        return _LEASE_LOST not in error.message
    if isinstance(error, LoginFailed):
        return False
    return error.retryable or isinstance(error, InternalError | SessionError)
