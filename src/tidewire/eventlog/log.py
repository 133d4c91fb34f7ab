"""The event log of one org: append in a transaction, read after a position.

Layout: one table per (family, hour), `e<family>_<hour>`, with the position as its key and an index (topic,
position). A `partitions` row holds the first
position of each. Retention drops whole tables. Channels are views: one sequence of positions serves them all.

Invariants: positions rise in commit order; the hour of a family's newest partition never goes back, even if
the wall clock does, so that partitions in hour order are
in position order; `trimmed_through` is the highest position that retention has dropped. A position is valid
to resume after if it lies in an
incarnation of the log (from just before its first position up to its last).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from tidewire.errors import SchemaUnknown
from tidewire.events import Event, EventDraft, Family
from tidewire.storage.store import Reader, Row, Transaction

EPOCH_2020_S = 1_577_836_800
_HOUR_MS = 3_600_000
_SCAN_OVER_TOPICS = (
    8  # from this many topics on, scanning by position beats merging one index range per topic
)
_COLUMNS = "position, topic, created_ms, schema_id, event_uuid, transaction_last, payload"


def first_position_at(now_ms: int) -> int:
    """Where an incarnation that starts now begins: far above what any earlier one can have given out, below
    2^53.
    """
    return (now_ms // 1000 - EPOCH_2020_S) << 21


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a family's readable events lie: after `trimmed_through`, up to `head`."""

    trimmed_through: int
    head: int


@dataclass(frozen=True, slots=True)
class Page:
    """Events after a position; everything up to `through` has been looked at."""

    events: tuple[Event, ...]
    through: int


class EventLog:
    """Appends and reads. Holds only caches that follow commits; any number may read beside the one writer."""

    def __init__(self) -> None:
        self._topic_numbers: dict[str, int] = {}
        self._newest_hour: dict[Family, int] = {}

    def append(self, tx: Transaction, drafts: Sequence[EventDraft], now_ms: int) -> list[Event]:
        """Give the drafts positions and store them. Call once per transaction, with all its events in order."""
        first = tx.progress.next_position
        last = first + len(drafts) - 1
        events = [
            Event(
                position=first + index,
                topic=draft.topic,
                family=draft.family,
                payload=draft.payload,
                created_ms=draft.created_ms,
                schema_id=draft.schema_id,
                event_uuid=draft.event_uuid,
                transaction_last=last,
            )
            for index, draft in enumerate(drafts)
        ]
        for event in events:
            insert = _insert_sql(self._ensure_partition(tx, event.family, event.position, now_ms))
            topic = self._ensure_topic(tx, event.topic, event.family)
            tx.insert_later(
                insert,
                (
                    event.position,
                    topic,
                    event.created_ms,
                    event.schema_id,
                    event.event_uuid,
                    last,
                    event.payload,
                ),
            )
        tx.progress.next_position = last + 1
        tx.events.extend(events)
        return events

    def append_schema(self, tx: Transaction, schema_id: str, topic: str, definition: str) -> None:
        """Keep an event schema for ever, under its id."""
        tx.execute(
            "INSERT INTO event_schemas (schema_id, topic, definition) VALUES (?, ?, ?)"
            " ON CONFLICT (schema_id) DO NOTHING",
            (schema_id, topic, definition),
        )

    def read_schema(self, reader: Reader, schema_id: str) -> str:
        """The schema's JSON text. Raises SchemaUnknown."""
        rows = reader.execute("SELECT definition FROM event_schemas WHERE schema_id = ?", (schema_id,))
        if not rows:
            raise SchemaUnknown(f"no event ever had schema id {schema_id[:64]}", schema_id=schema_id[:64])
        return str(rows[0][0])

    def read_head(self, reader: Reader) -> int:
        """The last position given out, as of this reader's commit."""
        ((next_position,),) = reader.execute("SELECT next_position FROM progress")
        return int(next_position) - 1

    def read_bounds(self, reader: Reader, family: Family) -> Bounds:
        """Earliest and latest position of a family."""
        head = self.read_head(reader)
        rows = reader.execute("SELECT trimmed_through FROM families WHERE family = ?", (int(family),))
        if rows:
            return Bounds(int(rows[0][0]), head)
        ((first,),) = reader.execute("SELECT MIN(first_position) FROM incarnations")
        return Bounds(int(first) - 1, head)

    def is_position_known(self, reader: Reader, position: int) -> bool:
        """Whether some incarnation gave this position out, or begins right after it."""
        head = self.read_head(reader)
        rows = reader.execute(
            "SELECT 1 FROM incarnations WHERE first_position - 1 <= ? AND ? <= COALESCE(last_position, ?)",
            (position, position, head),
        )
        return bool(rows)

    def read_after(
        self,
        reader: Reader,
        family: Family,
        topics: frozenset[str],
        after: int,
        max_events: int,
        max_bytes: int,
    ) -> Page:
        """One page of events with position > `after`, oldest first: at least one event if there is one."""
        head = self.read_head(reader)
        names = {
            number: name
            for number, name in reader.execute(
                "SELECT number, name FROM topics WHERE family = ?", (int(family),)
            )
            if name in topics
        }
        events: list[Event] = []
        size_bytes = 0
        if names:
            for table in self._tables_after(reader, family, after):
                for row in self._rows_after(reader, table, tuple(names), after, max_events - len(events)):
                    size_bytes += len(row[6])
                    if events and size_bytes > max_bytes:
                        return Page(tuple(events), events[-1].position)
                    events.append(_event(row, names[row[1]], family))
                if len(events) >= max_events:
                    return Page(tuple(events), events[-1].position)
        return Page(tuple(events), max(head, after))

    def trim(self, tx: Transaction, family: Family, before_ms: int) -> int:
        """Drop the partitions that ended before `before_ms`, never the newest; returns how many."""
        rows = tx.execute(
            "SELECT hour, first_position FROM partitions WHERE family = ? ORDER BY hour", (int(family),)
        )
        dropped = 0
        for (hour, _), (_, next_first) in zip(rows, islice(rows, 1, None), strict=False):
            if (hour + 1) * _HOUR_MS > before_ms:
                break
            tx.execute(f"DROP TABLE {_table(family, hour)}")
            tx.execute("DELETE FROM partitions WHERE family = ? AND hour = ?", (int(family), hour))
            tx.execute(
                "INSERT INTO families (family, trimmed_through) VALUES (?, ?)"
                " ON CONFLICT (family) DO UPDATE SET trimmed_through = excluded.trimmed_through",
                (int(family), next_first - 1),
            )
            dropped += 1
        return dropped

    def _ensure_partition(self, tx: Transaction, family: Family, position: int, now_ms: int) -> str:
        newest = self._newest_hour.get(family, -1)
        hour = max(now_ms // _HOUR_MS, newest)
        if hour == newest:
            return _table(family, hour)
        if newest < 0:
            ((found,),) = tx.execute("SELECT MAX(hour) FROM partitions WHERE family = ?", (int(family),))
            newest = -1 if found is None else int(found)
            hour = max(hour, newest)
        table = _table(family, hour)
        if hour != newest:
            # IF NOT EXISTS: another member of the same group may have made it, before the cache follows the
            # commit.
            tx.execute(
                f"CREATE TABLE IF NOT EXISTS {table} (position INTEGER PRIMARY KEY, topic INTEGER NOT NULL,"
                " created_ms INTEGER NOT NULL, schema_id TEXT NOT NULL, event_uuid TEXT NOT NULL,"
                " transaction_last INTEGER NOT NULL, payload BLOB NOT NULL)"
            )
            tx.execute(f"CREATE INDEX IF NOT EXISTS {table}_topic ON {table} (topic, position)")
            tx.execute(
                "INSERT INTO partitions (family, hour, first_position) VALUES (?, ?, ?)"
                " ON CONFLICT (family, hour) DO NOTHING",
                (int(family), hour, position),
            )
        tx.after_commit(lambda: self._newest_hour.__setitem__(family, hour))
        return table

    def _ensure_topic(self, tx: Transaction, name: str, family: Family) -> int:
        number = self._topic_numbers.get(name)
        if number is not None:
            return number
        rows = tx.execute("SELECT number FROM topics WHERE name = ?", (name,))
        if not rows:
            rows = tx.execute("SELECT COALESCE(MAX(number), 0) + 1 FROM topics")
            tx.execute(
                "INSERT INTO topics (number, name, family) VALUES (?, ?, ?)", (rows[0][0], name, int(family))
            )
        stored = int(rows[0][0])
        tx.after_commit(lambda: self._topic_numbers.__setitem__(name, stored))
        return stored

    def _tables_after(self, reader: Reader, family: Family, after: int) -> list[str]:
        rows = reader.execute(
            "SELECT hour, first_position FROM partitions WHERE family = ? ORDER BY hour", (int(family),)
        )
        nexts = [first for _, first in rows[1:]] + [None]
        return [
            _table(family, hour)
            for (hour, _), next_first in zip(rows, nexts, strict=True)
            if next_first is None or next_first - 1 > after
        ]

    def _rows_after(
        self, reader: Reader, table: str, numbers: tuple[int, ...], after: int, limit: int
    ) -> list[Row]:
        if len(numbers) >= _SCAN_OVER_TOPICS:
            marks = ", ".join("?" * len(numbers))
            return reader.execute(
                f"SELECT {_COLUMNS} FROM {table} WHERE position > ? AND +topic IN ({marks}) ORDER BY position LIMIT ?",  # noqa: S608
                (after, *numbers, limit),
            )
        rows: list[Row] = []
        for number in numbers:
            rows += reader.execute(
                f"SELECT {_COLUMNS} FROM {table} WHERE topic = ? AND position > ? ORDER BY position LIMIT ?",  # noqa: S608
                (number, after, limit),
            )
        rows.sort(key=lambda row: int(row[0]))
        return rows[:limit]


@lru_cache(maxsize=64)
def _insert_sql(table: str) -> str:
    return f"INSERT INTO {table} ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608  # table is ours


def _table(family: Family, hour: int) -> str:
    return f"e{int(family)}_{hour}"


def _event(row: Row, topic: str, family: Family) -> Event:
    position, _, created_ms, schema_id, event_uuid, transaction_last, payload = row
    return Event(position, topic, family, payload, created_ms, schema_id, event_uuid, transaction_last)
