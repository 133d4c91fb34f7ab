"""Reconcile dirty records: read them through the records API and commit them at the fence of the read.

A record that no longer exists is committed as missing, which deletes its row. If the server is unreachable,
everything waits and backs off. If it rejects a query, the records that it rejects are isolated; after some
attempts they are closed as failed, with the reason in the log, so that they neither block others nor are
requested forever.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidewire.errors import PlatformError, WriteConflict
from tidewire.pipeline.lake.control import FAILED, Dirty
from tidewire.pipeline.lake.dirty import append_dirty, failed_records, open_records
from tidewire.pipeline.source.records_reader import IDS_AT_ONCE
from tidewire.pipeline.upkeep.backoff import MAX_ATTEMPTS, Backoff, is_lasting
from tidewire.pipeline.upkeep.fenced_reads import FencedPage, FencedReader, Records, commit_reads
from tidewire.telemetry import counters

if TYPE_CHECKING:
    from tidewire.clock import Clock
    from tidewire.pipeline.lake.tables import Lake

_log = logging.getLogger(__name__)

RECORDS_AT_ONCE = 2_000
_MOST_REFUSED = 8
"""Up to this many records of a query are isolated; with more, the whole query counts as rejected."""


class Reconciler:
    """Drains the dirty records of a lake. One per lake and process, for one thread; the lease must be held."""

    def __init__(self, lake: Lake, epoch: int, reader: Records, clock: Clock) -> None:
        self._lake = lake
        self._epoch = epoch
        self._reader = FencedReader(lake, reader)
        self._clock = clock
        self._backoff = Backoff(clock)

    def once(self, limit: int = RECORDS_AT_ONCE) -> int:
        """Read the next open and due records, oldest first, at most `limit`; return how many were updated.

        Raises WriteConflict.
        """
        return self._drain(open_records(self._lake), limit)

    def retry_failed(self, limit: int = RECORDS_AT_ONCE) -> int:
        """Read records that were closed as failed again; return how many were updated. Raises WriteConflict."""
        return self._drain(failed_records(self._lake), limit)

    def _drain(self, asked: Mapping[str, Mapping[str, int]], limit: int) -> int:
        count = 0
        for entity in sorted(asked, key=lambda entity: min(asked[entity].values())):
            if count >= limit or not self._backoff.is_due(entity):
                continue
            since = asked[entity]
            due = [each for each in since if self._backoff.is_due((entity, each))]
            ids = sorted(due, key=lambda record_id: since[record_id])[: limit - count]
            if ids:
                count += self._read(entity, ids, since)
        return count

    def _read(self, entity: str, ids: Sequence[str], since: Mapping[str, int]) -> int:
        refused: dict[str, PlatformError] = {}
        pages: list[FencedPage] = []
        try:
            description = self._reader.describe(entity)
            for i in range(0, len(ids), IDS_AT_ONCE):
                pages += self._read_some(entity, ids[i : i + IDS_AT_ONCE], refused)
        except WriteConflict:
            raise
        except PlatformError as error:
            self._backoff.failed(entity)
            if is_lasting(error):
                self._refuse(entity, dict.fromkeys(ids, error), since)
            else:
                _note("pipeline.reconcile_failed", entity, len(ids), error)
            return 0
        if refused:
            self._refuse(entity, refused, since)
        if not commit_reads(self._lake, self._epoch, self._clock.now_ms(), description, pages):
            # The base has just passed these reads; the next attempt will be newer.
            self._backoff.failed(entity)
            _log.warning("pipeline.reads_outrun", extra={"entity": entity})
            return 0
        self._backoff.succeeded(entity)
        read = [record_id for page in pages for record_id in page.ids()]
        for record_id in read:
            self._backoff.succeeded((entity, record_id))
        counters["pipeline.records_reconciled"] += len(read)
        return len(read)

    def _read_some(
        self, entity: str, ids: Sequence[str], refused: dict[str, PlatformError]
    ) -> list[FencedPage]:
        """Read records, skipping those that the server rejects."""
        try:
            return list(self._reader.read_ids(entity, ids))
        except PlatformError as error:
            if not is_lasting(error):
                raise
            if len(ids) == 1 or len(refused) >= _MOST_REFUSED:
                refused.update(dict.fromkeys(ids, error))
                return []
        middle = len(ids) // 2
        first = self._read_some(entity, ids[:middle], refused)
        return first + self._read_some(entity, ids[middle:], refused)

    def _refuse(self, entity: str, refused: Mapping[str, PlatformError], since: Mapping[str, int]) -> None:
        unreadable = [
            Dirty(entity, record_id, since[record_id], error.code)
            for record_id, error in refused.items()
            if self._backoff.failed((entity, record_id)) >= MAX_ATTEMPTS
        ]
        _note("pipeline.reconcile_refused", entity, len(refused), next(iter(refused.values())))
        append_dirty(self._lake, self._epoch, self._clock.now_ms(), unreadable, FAILED)
        counters["pipeline.records_given_up"] += len(unreadable)


def _note(event: str, entity: str, records: int, error: PlatformError) -> None:
    _log.warning(
        event, extra={"entity": entity, "records": records, "code": error.code, "reason": error.message}
    )
