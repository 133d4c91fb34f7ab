"""Recent items: which records each user viewed or changed last, with LastViewedDate and LastReferencedDate.

Reads and writes record a use in memory and never wait for it; a background task flushes uses to the database in
batches every few seconds. Queries for the dates or the recent records include what is not flushed yet. A crash
may lose the uses of the last seconds, which is acceptable: they are a convenience.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.errors import PlatformError
from tidewire.events import Value
from tidewire.records.service import Records
from tidewire.schema.model import ObjectType
from tidewire.soql.parser import parse_query
from tidewire.soql.recent_item_dates import RECENT_ITEM_DATES
from tidewire.storage.store import Reader, Transaction

log = logging.getLogger(__name__)

MAX_RECENT = 200
"""Records kept per user and object in the database, and per user in memory before a flush."""
KEPT_MS = 90 * 24 * 3_600_000
_FLUSH_EVERY_S = 2.0
_BATCH = 500  # uses stored in one transaction
_MAX_USERS = 2_000  # users with unflushed uses
# Cheap tests before parsing; a false match only costs a parse or a flush.
_QUERIES_DATES = re.compile(r"Last(?:Viewed|Referenced)Date|FIELDS\s*\(", re.IGNORECASE)
_MARKS_USE = re.compile(r"\bFOR\s+(?:VIEW|REFERENCE)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Use:
    entity: str
    used_ms: int
    viewed_ms: int | None = None
    referenced_ms: int | None = None


_NOT_USED = _Use("", 0)


class RecentItems:
    """The unflushed uses of one org. Thread-safe: calls in a shared transaction run on the writer thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._unflushed: dict[str, dict[str, _Use]] = {}  # by user and record, the latest use last
        self._last_ms = 0

    def __len__(self) -> int:
        """Return the number of unflushed uses."""
        return sum(len(uses) for uses in tuple(self._unflushed.values()))

    def add_use(self, principal: Principal, entity: str, record_id: str) -> None:
        """Record that the user created or changed a record."""
        self._add(principal.user_id, entity, record_id, is_viewed=False, is_referenced=False)

    def add_view(self, principal: Principal, entity: str, record_id: str) -> None:
        """Record that the user viewed a record."""
        self._add(principal.user_id, entity, record_id, is_viewed=True, is_referenced=True)

    def add_query_results(
        self, principal: Principal, soql: str, entity: str, rows: Iterable[Mapping[str, object]]
    ) -> None:
        """Record the results of a query that says FOR VIEW or FOR REFERENCE; ignore other queries."""
        if _MARKS_USE.search(soql) is None:
            return
        purposes = parse_query(soql).purposes
        is_viewed = "VIEW" in purposes
        if not is_viewed and "REFERENCE" not in purposes:
            return
        listed = [str(row["Id"]) for row in rows if row.get("Id")]
        # The first row of a result counts as the latest use.
        for record_id in reversed(listed[:MAX_RECENT]):
            self._add(principal.user_id, entity, record_id, is_viewed=is_viewed, is_referenced=True)

    def _add(
        self, user_id: str, entity: str, record_id: str, *, is_viewed: bool, is_referenced: bool
    ) -> None:
        now_ms = self._clock.now_ms()
        with self._lock:
            self._last_ms = used_ms = max(now_ms, self._last_ms + 1)  # unique, so that uses have an order
            uses = self._unflushed.setdefault(user_id, {})
            last = uses.pop(record_id, _NOT_USED)
            viewed_ms = now_ms if is_viewed else last.viewed_ms
            referenced_ms = now_ms if is_referenced else last.referenced_ms
            uses[record_id] = _Use(entity, used_ms, viewed_ms, referenced_ms)
            if len(uses) > MAX_RECENT:
                del uses[next(iter(uses))]
            if len(self._unflushed) > _MAX_USERS:
                del self._unflushed[next(iter(self._unflushed))]

    async def flush_if_queried(self, records: Records, soql: str) -> None:
        """Flush before a query that may read the dates."""
        if self._unflushed and _QUERIES_DATES.search(soql) is not None:
            await self.flush(records)

    async def flush(self, records: Records) -> None:
        """Store every unflushed use; returns once all are durable."""
        with self._lock:
            uses = [(u, r, use) for u, own in self._unflushed.items() for r, use in own.items()]
        for start in range(0, len(uses), _BATCH):
            await records.write_plain(partial(self._store, uses[start : start + _BATCH]))

    def _store(self, batch: list[tuple[str, str, _Use]], tx: Transaction) -> None:
        _insert(tx, batch)
        # Only after the commit: the transaction may still be rolled back.
        tx.after_commit(partial(self._forget, batch))

    def _forget(self, stored: list[tuple[str, str, _Use]]) -> None:
        with self._lock:
            for user_id, record_id, use in stored:
                uses = self._unflushed.get(user_id, {})
                if uses.get(record_id) is use:  # not used again since
                    del uses[record_id]
                    if not uses:
                        del self._unflushed[user_id]

    async def flush_forever(self, records: Records) -> None:
        """Flush every few seconds, until cancelled."""
        while True:
            await asyncio.sleep(_FLUSH_EVERY_S)
            if not self._unflushed:
                continue
            try:
                await self.flush(records)
            except PlatformError as error:
                log.warning("access.uses_store_failed", extra={"code": error.code})

    def unflushed(self, user_id: str, record_id: str) -> _Use:
        """Return the unflushed use of a record, for `read_dates`.

        Call it before opening the read snapshot: a flush in between then leaves the use in both places, while
        the other order could find it in neither.
        """
        with self._lock:
            return self._unflushed.get(user_id, {}).get(record_id, _NOT_USED)

    def read_dates(
        self, reader: Reader, user_id: str, obj: ObjectType, record_id: str, unflushed: _Use
    ) -> dict[str, Value]:
        """Read LastViewedDate and LastReferencedDate for a user; empty if the object lacks these fields."""
        if not all(obj.try_field(name) for name in RECENT_ITEM_DATES):
            return {}
        rows = reader.execute(
            "SELECT viewed_ms, referenced_ms FROM record_uses WHERE user_id = ? AND record_id = ?",
            (user_id, record_id),
        )
        viewed, referenced = rows[0] if rows else (None, None)
        return {
            "LastViewedDate": max(filter(None, (viewed, unflushed.viewed_ms)), default=None),
            "LastReferencedDate": max(filter(None, (referenced, unflushed.referenced_ms)), default=None),
        }

    async def read_newest(
        self, records: Records, principal: Principal, limit: int, entity: str = ""
    ) -> list[tuple[str, str]]:
        """Read object name and id of the records that the user used last, newest first."""
        with self._lock:  # before the read, as for `unflushed`
            unflushed = dict(self._unflushed.get(principal.user_id, {}))
        of_entity = " AND entity = ?" if entity else ""
        params = (principal.user_id, *((entity,) if entity else ()), limit)
        rows = await records.read(
            lambda reader: reader.execute(
                f"SELECT record_id, entity, used_ms FROM record_uses WHERE user_id = ?{of_entity}"  # noqa: S608
                " ORDER BY used_ms DESC, record_id LIMIT ?",
                params,
            )
        )
        found = {str(record_id): (int(used_ms), str(name)) for record_id, name, used_ms in rows}
        for record_id, use in unflushed.items():
            if entity in ("", use.entity):
                found[record_id] = max(found.get(record_id, (0, "")), (use.used_ms, use.entity))
        newest = sorted(found.items(), key=lambda item: -item[1][0])
        return [(name, record_id) for record_id, (_, name) in newest[:limit]]


def _insert(tx: Transaction, uses: list[tuple[str, str, _Use]]) -> None:
    for user_id, record_id, use in uses:
        tx.execute(
            "INSERT INTO record_uses (user_id, record_id, entity, used_ms, viewed_ms, referenced_ms)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (user_id, record_id) DO UPDATE SET"
            " used_ms = excluded.used_ms, viewed_ms = COALESCE(excluded.viewed_ms, record_uses.viewed_ms),"
            " referenced_ms = COALESCE(excluded.referenced_ms, record_uses.referenced_ms)",
            (user_id, record_id, use.entity, use.used_ms, use.viewed_ms, use.referenced_ms),
        )


def purge_recent_items(tx: Transaction, now_ms: int) -> None:
    """Delete uses older than the retention time, and all but the newest of each user and object."""
    tx.execute("DELETE FROM record_uses WHERE used_ms < ?", (now_ms - KEPT_MS,))
    crowded = tx.execute(
        "SELECT user_id, entity FROM record_uses GROUP BY user_id, entity HAVING COUNT(*) > ?", (MAX_RECENT,)
    )
    for user_id, entity in crowded:
        ((oldest,),) = tx.execute(
            "SELECT used_ms FROM record_uses WHERE user_id = ? AND entity = ? ORDER BY used_ms DESC"
            " LIMIT 1 OFFSET ?",
            (user_id, entity, MAX_RECENT - 1),
        )
        tx.execute(
            "DELETE FROM record_uses WHERE user_id = ? AND entity = ? AND used_ms < ?",
            (user_id, entity, oldest),
        )
