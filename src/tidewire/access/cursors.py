"""Query cursors: the rows of a large answer, kept until their reader has fetched them page by page.

A cursor belongs to the login session that made it and dies with the process. Three bounds hold memory down:
cursors of one session, cursors in all, and rows in all; the cursor unused for longest goes first. A page may
be fetched again, so that a client can repeat a request whose answer it lost.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidewire.clock import Clock
from tidewire.ids import make_id, try_normalise_id

Answer = TypeVar("Answer")
"""What a query answered, kept whole; the cursors only need to know how many rows it has."""

CURSOR_PREFIX = "01g"
_LOCATOR = re.compile(r"(01g[0-9A-Za-z]{12,15})-([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class CursorLimits:
    """How much the cursors of one server may hold."""

    per_session: int = 10
    in_all: int = 1_000
    rows_in_all: int = 2_000_000
    idle_s: float = 15 * 60


@dataclass
class _Cursor(Generic[Answer]):
    session_id: str
    answer: Answer
    row_count: int
    weight: int
    used_at_s: float


class QueryCursors(Generic[Answer]):
    """Open cursors by id, the one unused for longest first. Not thread-safe: it lives on the core's loop."""

    def __init__(self, clock: Clock, limits: CursorLimits | None = None) -> None:
        self._clock = clock
        self._limits = limits or CursorLimits()
        self._cursors: OrderedDict[str, _Cursor[Answer]] = OrderedDict()
        self._next_number = 1
        self._rows_kept = 0

    def __len__(self) -> int:
        return len(self._cursors)

    def open(self, session_id: str, answer: Answer, row_count: int, weight: int = 0) -> str:
        """Keep this answer for the session; returns the cursor's id.

        `weight` is how many rows it holds if that is more than its own, because rows hold others.
        """
        self._expire()
        own = [key for key, cursor in self._cursors.items() if cursor.session_id == session_id]
        for key in own[: max(0, len(own) - self._limits.per_session + 1)]:
            self._drop(key)
        cursor_id = make_id(CURSOR_PREFIX, self._next_number)
        self._next_number += 1
        self._cursors[cursor_id] = _Cursor(
            session_id, answer, row_count, max(row_count, weight), self._clock.monotonic_s()
        )
        self._rows_kept += max(row_count, weight)
        # The newest stays even if it alone is over the bound: its rows are already in memory.
        while len(self._cursors) > 1 and (
            len(self._cursors) > self._limits.in_all or self._rows_kept > self._limits.rows_in_all
        ):
            self._drop(next(iter(self._cursors)))
        return cursor_id

    def try_find(self, session_id: str, locator: str) -> tuple[str, Answer, int] | None:
        """The cursor's id, its answer and the offset that a locator such as `01gTW0000000001AAA-2000` names.

        None if there is no such cursor, it belongs to another session, or the offset lies outside it.
        """
        self._expire()
        found = _LOCATOR.fullmatch(locator)
        cursor_id = try_normalise_id(found[1]) if found else None
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
        """Forget the cursors of a login session that has ended."""
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
        self._rows_kept -= self._cursors.pop(key).weight
