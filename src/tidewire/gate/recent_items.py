"""Which records each user worked with last: for recent items, LastViewedDate and LastReferencedDate.

A use is noted in memory, by whoever reads or writes a record, and stored with many others a little later; so no
read or write waits for it. Who asks for the dates, or for the recent records, has what is noted so far counted in.
Uses are for the user's convenience: a crash may cost those of the last seconds.
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
"""Records of one object that a user's uses are kept of, and of all objects that may wait to be stored."""
KEPT_MS = 90 * 24 * 3_600_000
_STORE_EVERY_S = 2.0
_AT_ONCE = 500  # uses stored in one transaction
_MAX_USERS = 2_000  # whose uses wait to be stored
# What only looks like a name or a clause costs a look and nothing else.
_ASKED = re.compile(r"Last(?:Viewed|Referenced)Date|FIELDS\s*\(", re.IGNORECASE)
_TOLD = re.compile(r"\bFOR\s+(?:VIEW|REFERENCE)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Use:
    entity: str
    used_ms: int
    viewed_ms: int | None = None
    referenced_ms: int | None = None


_NOT_USED = _Use("", 0)


class RecordUses:
    """One org's. Joined calls use it on the writer thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._noted: dict[str, dict[str, _Use]] = {}  # by user and record, those used last at the end
        self._last_ms = 0

    def __len__(self) -> int:
        """How many uses wait to be stored."""
        return sum(len(uses) for uses in tuple(self._noted.values()))

    def note(self, principal: Principal, entity: str, record_id: str) -> None:
        """The user has made or changed a record."""
        self._note(principal.user_id, entity, record_id, is_viewed=False, is_referenced=False)

    def note_view(self, principal: Principal, entity: str, record_id: str) -> None:
        """The user has looked at a record."""
        self._note(principal.user_id, entity, record_id, is_viewed=True, is_referenced=True)

    def note_query(
        self, principal: Principal, soql: str, entity: str, rows: Iterable[Mapping[str, object]]
    ) -> None:
        """The user has got these records from a query, which may say that they are shown or referred to."""
        if _TOLD.search(soql) is None:
            return
        purposes = parse_query(soql).purposes
        is_viewed = "VIEW" in purposes
        if not is_viewed and "REFERENCE" not in purposes:
            return
        listed = [str(row["Id"]) for row in rows if row.get("Id")]
        # The first of an answer counts as the one used last.
        for record_id in reversed(listed[:MAX_RECENT]):
            self._note(principal.user_id, entity, record_id, is_viewed=is_viewed, is_referenced=True)

    def _note(
        self, user_id: str, entity: str, record_id: str, *, is_viewed: bool, is_referenced: bool
    ) -> None:
        now_ms = self._clock.now_ms()
        with self._lock:
            self._last_ms = used_ms = max(now_ms, self._last_ms + 1)  # no two at once: they have an order
            uses = self._noted.setdefault(user_id, {})
            last = uses.pop(record_id, _NOT_USED)
            viewed_ms = now_ms if is_viewed else last.viewed_ms
            referenced_ms = now_ms if is_referenced else last.referenced_ms
            uses[record_id] = _Use(entity, used_ms, viewed_ms, referenced_ms)
            if len(uses) > MAX_RECENT:
                del uses[next(iter(uses))]
            if len(self._noted) > _MAX_USERS:
                del self._noted[next(iter(self._noted))]

    async def settle(self, records: Records, soql: str) -> None:
        """Store what is noted if a query asks for it."""
        if self._noted and _ASKED.search(soql) is not None:
            await self.store(records)

    async def store(self, records: Records) -> None:
        """Store everything that is noted."""
        with self._lock:
            noted = [(u, r, use) for u, uses in self._noted.items() for r, use in uses.items()]
        for start in range(0, len(noted), _AT_ONCE):
            part = noted[start : start + _AT_ONCE]
            await records.write_plain(partial(self._store, part))

    def _store(self, part: list[tuple[str, str, _Use]], tx: Transaction) -> None:
        _insert(tx, part)
        # Not before: a transaction that this is only a part of may be taken back.
        tx.after_commit(partial(self._forget, part))

    def _forget(self, stored: list[tuple[str, str, _Use]]) -> None:
        with self._lock:
            for user_id, record_id, use in stored:
                uses = self._noted.get(user_id, {})
                if uses.get(record_id) is use:  # not used again meanwhile
                    del uses[record_id]
                    if not uses:
                        del self._noted[user_id]

    async def store_forever(self, records: Records) -> None:
        """Store what is noted every few seconds, until cancelled."""
        while True:
            await asyncio.sleep(_STORE_EVERY_S)
            if not self._noted:
                continue
            try:
                await self.store(records)
            except PlatformError as error:
                log.warning("access.uses_store_failed", extra={"code": error.code})

    def noted(self, user_id: str, record_id: str) -> _Use:
        """What waits to be stored of a record. To be asked before the read that `dates` is a part of: what is stored
        meanwhile is then in both places, and otherwise it could be in neither.
        """
        with self._lock:
            return self._noted.get(user_id, {}).get(record_id, _NOT_USED)

    def dates(
        self, reader: Reader, user_id: str, obj: ObjectType, record_id: str, noted: _Use
    ) -> dict[str, Value]:
        """The values of the record's two dates for a user; nothing if the object has none."""
        if not all(obj.try_field(name) for name in RECENT_ITEM_DATES):
            return {}
        rows = reader.execute(
            "SELECT viewed_ms, referenced_ms FROM record_uses WHERE user_id = ? AND record_id = ?",
            (user_id, record_id),
        )
        viewed, referenced = rows[0] if rows else (None, None)
        return {
            "LastViewedDate": max(filter(None, (viewed, noted.viewed_ms)), default=None),
            "LastReferencedDate": max(filter(None, (referenced, noted.referenced_ms)), default=None),
        }

    async def newest(
        self, records: Records, principal: Principal, limit: int, entity: str = ""
    ) -> list[tuple[str, str]]:
        """Object and id of the records that the user used last, the newest first."""
        with self._lock:  # before the read, as in `noted`
            noted = dict(self._noted.get(principal.user_id, {}))
        own = " AND entity = ?" if entity else ""
        params = (principal.user_id, *((entity,) if entity else ()), limit)
        rows = await records.read(
            lambda reader: reader.execute(
                f"SELECT record_id, entity, used_ms FROM record_uses WHERE user_id = ?{own}"  # noqa: S608
                " ORDER BY used_ms DESC, record_id LIMIT ?",
                params,
            )
        )
        found = {str(record_id): (int(used_ms), str(name)) for record_id, name, used_ms in rows}
        for record_id, use in noted.items():
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


def purge_uses(tx: Transaction, now_ms: int) -> None:
    """Forget uses that are too old, and all but the newest of each object that a user used much of."""
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
