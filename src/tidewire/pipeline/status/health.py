"""The health of a running pipeline: what works, what is being retried, and a thread that reports it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from tidewire.clock import Clock
from tidewire.errors import PlatformError
from tidewire.pipeline.lake.tables import Lake
from tidewire.pipeline.status.lake_status import (
    BEHIND,
    BEHIND_MS,
    FAILED,
    OK,
    RETRYING,
    STARTING,
    STOPPED,
    UNREADABLE,
    PipelineStatus,
    StatusReader,
    describe_damage,
    write_status,
)
from tidewire.telemetry import counters

_log = logging.getLogger(__name__)
REPORT_S = 1.0
_MOST_HEADS = 600


class Health:
    """The current problem of each part of a pipeline. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._problems: dict[str, str] = {}
        self.word = STARTING

    def is_running(self) -> None:
        """Record that everything has started."""
        self.word = OK

    def has_stopped(self, error: PlatformError | None = None) -> None:
        """Record that the pipeline ends, on request or because of an error."""
        self.word = STOPPED if error is None else FAILED
        with self._lock:
            self._problems = {} if error is None else {"pipeline": f"{error.code}: {error.message}"}

    def fails(self, part: str, error: PlatformError) -> None:
        """Record that a part has failed and will be retried."""
        counters["pipeline.parts_failed"] += 1
        _log.warning(
            "pipeline.part_failed", extra={"part": part, "code": error.code, "reason": error.message}
        )
        with self._lock:
            self._problems[part] = f"{error.code}: {error.message}"

    def works(self, part: str) -> None:
        """Record that a part works."""
        with self._lock:
            self._problems.pop(part, None)

    def describe(self, word: str, status: PipelineStatus) -> PipelineStatus:
        """Return a status with health and problem; `word` is the health from before the status was read."""
        with self._lock:
            problems = dict(self._problems)
        if status.problem:
            problems.setdefault("status", status.problem)
        if word == OK and problems:
            word = RETRYING
        elif word == OK and (status.lag_ms > BEHIND_MS or status.resyncing or status.dirty):
            word = BEHIND
        text = "; ".join(f"{part}: {reason}" for part, reason in sorted(problems.items()))
        return replace(status, health=word, problem=text)


class StatusReporter:
    """A thread that writes the status to the lake each second, and keeps the last one for metrics."""

    def __init__(
        self, lake: Lake, clock: Clock, health: Health, head: Callable[[], int | None], epoch: int = 0
    ) -> None:
        self._lake = lake
        self._clock = clock
        self._epoch = epoch
        self._heads: deque[tuple[float, int]] = deque(maxlen=_MOST_HEADS)
        self._reader = StatusReader(lake, clock)
        self._health = health
        self._head = head
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pipeline-status", daemon=True)
        self.last = PipelineStatus(health=STARTING)

    def start(self) -> None:
        """Start reporting."""
        self._thread.start()

    def stop(self) -> PipelineStatus:
        """Write the last report and return it."""
        self._ended.set()
        self._thread.join()
        self._report()
        return self.last

    def _run(self) -> None:
        while True:
            self._report()
            if self._ended.wait(REPORT_S):
                return

    def _report(self) -> None:
        word = self._health.word
        try:
            status = self._measure(self._reader.read())
        except UNREADABLE as error:
            # A table that is being created, or is damaged: the last reported positions still hold.
            status = replace(self.last, problem=describe_damage(error), at_ms=self._clock.now_ms())
        self.last = self._health.describe(word, replace(status, epoch=self._epoch))
        try:
            write_status(self._lake, self.last)
        except OSError as error:
            counters["pipeline.status_failed"] += 1
            _log.info("pipeline.status_failed", extra={"reason": str(error)[:500]})

    def _measure(self, status: PipelineStatus) -> PipelineStatus:
        """Add how far the archive is behind the server, in positions and time."""
        head = self._head()
        if head is None:
            return status
        now_s = self._clock.monotonic_s()
        if not self._heads or head > self._heads[-1][1]:
            self._heads.append((now_s, head))
        while self._heads and self._heads[0][1] <= status.archived_through:
            self._heads.popleft()
        late_ms = round((now_s - self._heads[0][0]) * 1000) if self._heads else 0
        return replace(
            status, unread=max(0, head - status.archived_through), lag_ms=max(status.lag_ms, late_ms)
        )
