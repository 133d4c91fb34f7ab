"""Query cursors: the state of large results while their readers fetch them page by page.

A cursor belongs to the login session that opened it and ends with the process. Limits bound the memory: queries per
session, cursors per query, cursors in total and rows in total; the least recently used cursor goes first. A page may
be fetched again, so that a client can retry a request whose response was lost. `query_pages.py` defines what a cursor
keeps and how pages are read from it.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidewire.clock import Clock
from tidewire.ids import make_id, try_normalise_id

Answer = TypeVar("Answer")
"""The state of a result; the cursors only need to know how many rows it has."""

CURSOR_PREFIX = "01g"
_LOCATOR = re.compile(r"(01g[0-9A-Za-z]{12,15})-([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class CursorLimits:
    """Limits on the cursors of one org."""

    per_session: int = 10
    per_query: int = 100  # including those of child rows that did not fit into their page
    in_all: int = 1_000
    rows_in_all: int = 2_000_000
    idle_s: float = 15 * 60


@dataclass
class _Cursor(Generic[Answer]):
    session_id: str
    query_id: str
    answer: Answer
    row_count: int
    weight: int
    used_at_s: float


class QueryCursors(Generic[Answer]):
    """Open cursors by id, least recently used first.

    Used on the core's loop and, by queries in a shared transaction, on the writer thread; hence the lock. No other
    lock is taken while it is held.
    """

    def __init__(self, clock: Clock, limits: CursorLimits | None = None) -> None:
        self._clock = clock
        self._limits = limits or CursorLimits()
        self._cursors: OrderedDict[str, _Cursor[Answer]] = OrderedDict()
        self._next_number = 1
        self._total_rows = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._cursors)

    def open(
        self, session_id: str, answer: Answer, row_count: int, weight: int = 0, *, beside: str = ""
    ) -> str:
        """Open a cursor for the session; returns its id.

        `weight` counts its rows if that is more than `row_count`, because rows hold child rows. `beside` is another
        cursor of the same query; both count as one query of the session.
        """
        with self._lock:
            self._expire()
            cursor_id = make_id(CURSOR_PREFIX, self._next_number)
            self._next_number += 1
            known = self._cursors.get(beside)
            query_id = cursor_id if known is None else known.query_id
            self._make_room(session_id, query_id)
            self._cursors[cursor_id] = _Cursor(
                session_id, query_id, answer, row_count, max(row_count, weight), self._clock.monotonic_s()
            )
            self._total_rows += max(row_count, weight)
            # The newest stays even if it exceeds the limit alone: its rows are in memory already.
            while len(self._cursors) > 1 and (
                len(self._cursors) > self._limits.in_all or self._total_rows > self._limits.rows_in_all
            ):
                self._drop(next(iter(self._cursors)))
            return cursor_id

    def _make_room(self, session_id: str, query_id: str) -> None:
        """Drop cursors of the session that exceed a limit before it opens one more for this query."""
        own = [
            (key, cursor.query_id) for key, cursor in self._cursors.items() if cursor.session_id == session_id
        ]
        same = [key for key, query in own if query == query_id]
        for key in same[: max(0, len(same) - self._limits.per_query + 1)]:
            self._drop(key)
        # A query is as old as the last use of any of its cursors, so its newest cursor decides.
        others = list(dict.fromkeys(query for _, query in reversed(own) if query != query_id))[::-1]
        oldest = set(others[: max(0, len(others) - self._limits.per_session + 1)])
        for key, query in own:
            if query in oldest:
                self._drop(key)

    def try_find(self, session_id: str, locator: str) -> tuple[str, Answer, int] | None:
        """Return the id, state and offset of a locator such as `01gTW0000000001AAA-2000`.

        None if there is no such cursor, it belongs to another session, or the offset is out of range.
        """
        found = _LOCATOR.fullmatch(locator)
        cursor_id = try_normalise_id(found[1]) if found else None
        with self._lock:
            self._expire()
            if found is None or cursor_id is None:
                return None
            cursor = self._cursors.get(cursor_id)
            offset = int(found[2])
            if cursor is None or cursor.session_id != session_id or offset >= cursor.row_count:
                return None
            cursor.used_at_s = self._clock.monotonic_s()
            self._cursors.move_to_end(cursor_id)
            return cursor_id, cursor.answer, offset

    def drop_session(self, session_id: str) -> None:
        """Drop the cursors of a login session that has ended."""
        with self._lock:
            for key in [key for key, cursor in self._cursors.items() if cursor.session_id == session_id]:
                self._drop(key)

    def _expire(self) -> None:
        oldest_allowed_s = self._clock.monotonic_s() - self._limits.idle_s
        while self._cursors:
            key, cursor = next(iter(self._cursors.items()))
            if cursor.used_at_s >= oldest_allowed_s:
                return
            self._drop(key)

    def _drop(self, key: str) -> None:
        self._total_rows -= self._cursors.pop(key).weight
