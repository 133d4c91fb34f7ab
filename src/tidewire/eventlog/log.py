"""The contract of an org's event log: append in a transaction, read after a position.

Positions rise in commit order over all topics, so that channels are views of one sequence. A position is valid to
resume after if it lies in an incarnation of the log (from just before its first position up to its last) and no event
of the family after it was trimmed.

An incarnation is one life of a log. A restored copy cannot know which positions the original assigned after the copy
was taken. It therefore closes its own incarnation at its head and begins another one above every position that the
original can have assigned. A client's position from the lost part then lies between two incarnations and is rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidewire.events import Event, EventDraft, Family
from tidewire.storage.store import Reader, Transaction

_EPOCH_2020_S = 1_577_836_800
# Positions reserved for each second, as a power of two: a log assigns fewer than this many per second on average.
_PER_SECOND_BITS = 21


def first_position_at(now_ms: int) -> int:
    """Return the first position of an incarnation that begins now: above all earlier ones, below 2^53."""
    return (now_ms // 1000 - _EPOCH_2020_S) << _PER_SECOND_BITS


def first_position_after(head: int, taken_ms: int, now_ms: int) -> int:
    """Return the first position for a copy with this head, taken at `taken_ms` and restored now.

    It lies above every position that the original can have assigned since, by the clock and by the head. The head
    decides if the log began ahead of the clock or the clock was set back.
    """
    elapsed_s = max(0, now_ms // 1000 - taken_ms // 1000)
    # One second more than elapsed: each of the two times may lie anywhere in its second.
    by_head = ((head >> _PER_SECOND_BITS) + elapsed_s + 2) << _PER_SECOND_BITS
    by_clock = first_position_at(now_ms + 1000)
    return max(by_head, by_clock)


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The readable range of a family: events after `trimmed_through`, up to `head`."""

    trimmed_through: int
    head: int


@dataclass(frozen=True, slots=True)
class LogPage:
    """Events after a position. Everything up to `through` was searched."""

    events: tuple[Event, ...]
    through: int


@dataclass(frozen=True, slots=True)
class Positions:
    """Positions of events, complete up to `through`."""

    found: tuple[int, ...]
    through: int


@dataclass(frozen=True, slots=True)
class Incarnation:
    """The positions that one life of the log assigned. `last` is None for the current one."""

    first: int
    last: int | None


@dataclass(frozen=True, slots=True)
class FamilySize:
    """How many events of a family the log holds. `oldest_ms` is None if it holds none.

    Without `is_counted` the numbers are lower bounds: counting has not caught up yet.
    """

    family: Family
    events: int
    payload_bytes: int
    oldest_ms: int | None
    is_counted: bool


class EventLog(Protocol):
    """One org's log. Appends run on the writer thread; any number of readers may run beside it.

    Appends and trims are part of the given transaction: they take effect with its commit and vanish with its rollback.
    """

    def append(self, tx: Transaction, drafts: Sequence[EventDraft], now_ms: int) -> list[Event]:
        """Assign positions and store the events. Call once per transaction, with all its events in order."""

    def append_uniform(
        self,
        tx: Transaction,
        topic: str,
        family: Family,
        schema_id: str,
        bodies: Sequence[tuple[str, bytes]],
        now_ms: int,
    ) -> int:
        """Store events that differ only in UUID and payload, and return the first one's position.

        Faster than `append`, for publishers of many events at once.
        """

    def append_paged(self, tx: Transaction, drafts: Iterable[EventDraft], now_ms: int) -> None:
        """Store any number of events with one page in memory at a time.

        Events of more than one page are omitted from the committed batch, which then only names their topics.
        """

    def retire_topic(self, tx: Transaction, name: str) -> None:
        """Make a topic's events unreadable. A later topic of the same name starts empty."""

    def append_schema(self, tx: Transaction, schema_id: str, topic: str, definition: str) -> None:
        """Store an event schema permanently. A no-op if the id is stored already."""

    def read_schema(self, reader: Reader, schema_id: str) -> str:
        """Return a schema's JSON text. Raises SchemaUnknown."""

    def try_read_topic_schema(self, reader: Reader, schema_id: str, topic: str) -> str | None:
        """Return a schema's JSON text if the topic ever used it, otherwise None."""

    def count_schemas(self, reader: Reader) -> int:
        """Return how many schemas are stored."""

    def read_head(self, reader: Reader) -> int:
        """Return the last position assigned, as of the reader's snapshot."""

    def read_bounds(self, reader: Reader, family: Family) -> LogBounds:
        """Return the readable range of a family."""

    def is_position_known(self, reader: Reader, position: int) -> bool:
        """Return whether an incarnation assigned this position or begins right after it."""

    def read_after(
        self,
        reader: Reader,
        family: Family,
        topics: frozenset[str],
        after: int,
        max_events: int,
        max_bytes: int,
    ) -> LogPage:
        """Return one page of events with position > `after`, oldest first.

        Its first event may be larger than `max_bytes`. A page without events may end before the head; continue from
        its `through`. Raises ReplayIdExpired if events of the family after that position were trimmed.
        """

    def read_positions(
        self, reader: Reader, family: Family, topics: frozenset[str], after: int, max_events: int
    ) -> Positions:
        """Return the positions of the next events without reading them. Raises ReplayIdExpired."""

    def read_incarnations(self, reader: Reader) -> tuple[Incarnation, ...]:
        """Return every incarnation of this log, oldest first."""

    def incarnation_statements(self, head: int, first_position: int) -> tuple[str, ...]:
        """Return SQL that ends the current incarnation at `head` and begins the next one, for one transaction.

        Complete text without parameters, because a restore passes it to psql.
        """

    def find_time(self, reader: Reader, family: Family, time_ms: int) -> int:
        """Return the position before the family's first event created at or after a time, or the head.

        Times are taken to rise with positions within an hour, as they do unless the clock was set back.
        """

    def read_sizes(self, reader: Reader) -> tuple[FamilySize, ...]:
        """Return the size of every family. Call from one task at a time; each call counts a bounded number of rows."""

    def trim(self, tx: Transaction, family: Family, before_ms: int) -> int:
        """Drop the hours that ended before a time, and return how many."""
