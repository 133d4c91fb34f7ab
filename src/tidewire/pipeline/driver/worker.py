"""The pipeline's upkeep: one job at a time on one thread.

Jobs read dirty records, resync objects, fold bases, merge files and roll up usage. A job that fails backs off
and does not block the others.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidewire.errors import DiskFull, InternalError, PlatformError
from tidewire.pipeline.driver.queries import PipelineConfig
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.source.records_reader import RecordsReader
from tidewire.pipeline.status import usage
from tidewire.pipeline.status.health import Health
from tidewire.pipeline.upkeep.backoff import Backoff
from tidewire.pipeline.upkeep.compaction import Compactor
from tidewire.pipeline.upkeep.maintain import Maintainer
from tidewire.pipeline.upkeep.reconcile import Reconciler
from tidewire.pipeline.upkeep.resync import Resyncer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidewire.clock import Clock

_log = logging.getLogger(__name__)
_IDLE_S = 0.5
_LONGEST_S = 60.0


@dataclass(frozen=True, slots=True)
class Job:
    """Something to do repeatedly, at most every `every_s` seconds. `run` returns whether there is more."""

    name: str
    every_s: float
    run: Callable[[], bool]


class Worker:
    """The jobs of one lake."""

    def __init__(
        self,
        config: PipelineConfig,
        epoch: int,
        clock: Clock,
        health: Health,
        spark: SparkSession | None = None,
        reader: RecordsReader | None = None,
    ) -> None:
        self._lake = config.lake
        self._epoch = epoch
        self._clock = clock
        self._health = health
        self._maintainer = Maintainer(config.lake, epoch, clock, config.folding, spark)
        self._compactor = Compactor(config.lake, epoch, clock, config.compaction)
        self._backoff = Backoff(clock, longest_s=_LONGEST_S)
        self._due_s: dict[str, float] = {}
        self._reader = reader
        self._reconciler = Reconciler(config.lake, epoch, reader, clock) if reader is not None else None
        self._resyncer = Resyncer(config.lake, epoch, reader, clock) if reader is not None else None
        self._jobs = [
            Job("reconcile", 0.0, self.reconcile),
            Job("resync", 0.0, self.resync),
            Job("maintain", 1.0, self.fold),
            Job("compact", 10.0, self.join),
            Job("retention", 600.0, self.clean),
            Job("usage", 300.0, self.roll_up),
        ]

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set. Failures are recorded in the health; nothing is raised."""
        self._attempt(Job("manifest", 0.0, self.refresh))
        while not stop.is_set():
            has_more = False
            for job in self._jobs:
                if stop.is_set():
                    return
                has_more = self._attempt(job) or has_more
            if not has_more:
                stop.wait(_IDLE_S)

    def refresh(self) -> bool:
        """Update the manifest from the control tables after a crash between them."""
        manifest.refresh(self._lake, self._epoch, self._clock.now_ms())
        return False

    def reconcile(self) -> bool:
        """Read dirty records again."""
        return self._reconciler is not None and self._reconciler.once() > 0

    def resync(self, show: Callable[[str, int, int | None], None] | None = None) -> bool:
        """Continue open resyncs; `show` is called with the progress of each."""
        if self._resyncer is None:
            return False
        found = self._resyncer.advance()
        for each in found:
            if show is not None and each.state == "reading":
                show(f"records of {each.entity}", each.rows, each.expected)
        return any(each.state == "reading" for each in found)

    def fold(self) -> bool:
        """Fold one object if it is due."""
        return self._maintainer.step() is not None

    def fold_all(self, show: Callable[[str, int, int | None], None] | None = None) -> int:
        """Fold every object up to the manifest and return how many moved; `show` is called with the progress."""
        entities = sorted(manifest.entities(self._lake))
        moved = 0
        for number, entity in enumerate(entities, 1):
            moved += self._maintainer.fold(entity) is not None
            if show is not None:
                show("replicas folded", number, len(entities))
        return moved

    def join(self) -> bool:
        """Merge small files where there are many."""
        for name in self._compactor.names():
            self._compactor.join(name)
        return False

    def clean(self) -> bool:
        """Drop what is past its retention."""
        self._compactor.forget_done()
        self._compactor.drop_old()
        self._compactor.delete_unnamed()
        return False

    def roll_up(self) -> bool:
        """Store the server's usage counts."""
        if self._reader is not None:
            usage.roll_up(self._lake, self._epoch, self._reader, self._clock)
        return False

    def _attempt(self, job: Job) -> bool:
        """Run a job if it is due; return whether it has more to do."""
        now_s = self._clock.monotonic_s()
        if now_s < self._due_s.get(job.name, 0.0) or not self._backoff.is_due(job.name):
            return False
        try:
            has_more = job.run()
        except Exception as error:  # noqa: BLE001 - Delta, Arrow, Spark's bridge: one job's failure ends no other
            self._backoff.failed(job.name)
            self._health.fails(job.name, as_platform_error(job.name, error))
            return False
        self._backoff.succeeded(job.name)
        self._health.works(job.name)
        if not has_more:
            self._due_s[job.name] = self._clock.monotonic_s() + job.every_s
        return has_more


def as_platform_error(part: str, error: Exception) -> PlatformError:
    """Return an error of a library or of the system as one of ours."""
    if isinstance(error, PlatformError):
        return error
    text = str(error)
    if getattr(error, "errno", None) == errno.ENOSPC or "os error 28" in text or "No space left" in text:
        return DiskFull(f"{part} failed: there is no room left on the disk of the lake")
    return InternalError(f"{part} failed: {text.splitlines()[0] if text else type(error).__name__}")
