"""The event log of one org: append in a transaction, read after a position.

Layout: one table per (family, hour), `e<family>_<hour>`, with the position as its key and an index (topic,
position). A `partitions` row holds the first position of each. Retention drops whole tables. Channels are
views: one sequence of positions serves them all.

Invariants: positions rise in commit order; while a family has partitions, the hour of its newest never goes
back, even if the wall clock does, so that partitions in hour order are in position order; `trimmed_through` is
the highest position that retention has dropped of a family. A position is valid to resume after if it lies in
an incarnation of the log (from just before its first position up to its last) and nothing after it was dropped.

Bounds: a page is measured before it is read, so that its memory is what was asked for and one event at most; a
search over many topics looks at so many rows, found or not, and then answers with what it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from tidewire.errors import ReplayIdExpired, SchemaUnknown
from tidewire.events import Event, EventDraft, Family
from tidewire.storage.store import Reader, Row, Transaction

EPOCH_2020_S = 1_577_836_800
_HOUR_MS = 3_600_000
_SCAN_OVER_TOPICS = (
    8  # from this many topics on, scanning by position beats merging one index range per topic
)
_NAMES_AT_ONCE = 500
_SCAN_ROWS = 20_000  # how many rows one page of such a scan looks at: some ten milliseconds
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
        events: list[Event] = []
        tables: dict[Family, str] = {}
        rows: dict[Family, list[tuple[int, int, int, str, str, int, bytes]]] = {}
        numbers: dict[str, int] = {}
        for position, draft in enumerate(drafts, first):
            name, family, payload, created_ms, schema_id, event_uuid = draft
            if family not in tables:
                tables[family] = self._ensure_partition(tx, family, position, now_ms)
                rows[family] = []
            if name not in numbers:
                numbers[name] = self._ensure_topic(tx, name, family)
            events.append(Event(position, name, family, payload, created_ms, schema_id, event_uuid, last))
            rows[family].append((position, numbers[name], created_ms, schema_id, event_uuid, last, payload))
        for family, table in tables.items():
            tx.insert_many_later(_insert_sql(table), rows[family])
        tx.progress.next_position = last + 1
        tx.events.extend(events)
        return events

    def retire_topic(self, tx: Transaction, name: str) -> None:
        """Put a topic's events out of everybody's reach: a later topic of the same name begins without them."""
        tx.execute("UPDATE topics SET name = name || '#' || number WHERE name = ?", (name,))

        def forget() -> None:
            self._topic_numbers.pop(name, None)

        tx.after_commit(forget)

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
        """One page of events with position > `after`, oldest first.

        A page without events may still end before the head: a long search goes on from its `through`. Raises
        ReplayIdExpired if events of the family after that position were dropped already.
        """
        head = self.read_head(reader)
        self._check_kept(reader, family, after)
        names = self._find_numbers(reader, topics)
        events: list[Event] = []
        size_bytes = 0
        for table in self._tables_after(reader, family, after) if names else ():
            found, ended_at = self._measure(reader, table, tuple(names), after, max_events - len(events))
            fitting = 0
            for _, _, row_bytes in found:
                if (events or fitting) and size_bytes + row_bytes > max_bytes:
                    break
                size_bytes += row_bytes
                fitting += 1
            rows = self._rows_of(reader, table, found[:fitting])
            events += [_event(row, names[row[1]], family) for row in rows]
            if fitting < len(found) or len(events) >= max_events:
                return Page(tuple(events), events[-1].position)
            if ended_at is not None:
                return Page(tuple(events), ended_at)
        return Page(tuple(events), max(head, after))

    def find_tail(self, reader: Reader, family: Family, topics: frozenset[str], count: int) -> int:
        """The position after which lie the newest `count` kept events of these topics, or all if they are fewer."""
        numbers = tuple(self._find_numbers(reader, topics))
        found: list[int] = []
        for table in reversed(self._tables_after(reader, family, -1)):
            for number in numbers:
                found += [
                    int(row[0])
                    for row in reader.execute(
                        f"SELECT position FROM {table} WHERE topic = ? ORDER BY position DESC LIMIT ?",  # noqa: S608
                        (number, count + 1),
                    )
                ]
            if len(found) > count:
                return sorted(found)[-count - 1]
        return self.read_bounds(reader, family).trimmed_through

    def find_time(self, reader: Reader, family: Family, time_ms: int) -> int:
        """The position before the family's first kept event from that time on; the head if there is none.

        Within an hour's partition times are taken to rise with positions, as they do unless the clock was set back.
        """
        for table in self._tables_after(reader, family, -1):
            ((low, high),) = reader.execute(f"SELECT MIN(position), MAX(position) FROM {table}")  # noqa: S608
            if high is None or self._time_at(reader, table, high) < time_ms:
                continue
            while low < high:
                middle = (low + high) // 2
                if self._time_at(reader, table, middle) < time_ms:
                    low = middle + 1
                else:
                    high = middle
            return int(low) - 1
        return self.read_head(reader)

    def _time_at(self, reader: Reader, table: str, position: int) -> int:
        """When the first event from a position on was made."""
        ((created_ms,),) = reader.execute(
            f"SELECT created_ms FROM {table} WHERE position >= ? ORDER BY position LIMIT 1",  # noqa: S608
            (position,),
        )
        return int(created_ms)

    def count_kept(self, reader: Reader, family: Family) -> dict[str, int]:
        """How many events of each topic retention still keeps."""
        counts: dict[int, int] = {}
        for table in self._tables_after(reader, family, -1):
            for number, count in reader.execute(f"SELECT topic, COUNT(*) FROM {table} GROUP BY topic"):  # noqa: S608
                counts[number] = counts.get(number, 0) + int(count)
        names: dict[int, str] = dict(reader.execute("SELECT number, name FROM topics")) if counts else {}
        return {names[number]: count for number, count in counts.items()}

    def trim(self, tx: Transaction, family: Family, before_ms: int) -> int:
        """Drop the partitions that ended before `before_ms`; returns how many."""
        rows = tx.execute("SELECT hour FROM partitions WHERE family = ? ORDER BY hour", (int(family),))
        dropped = 0
        for (hour,) in rows:
            if (hour + 1) * _HOUR_MS > before_ms:
                break
            table = _table(family, hour)
            ((newest,),) = tx.execute(f"SELECT MAX(position) FROM {table}")  # noqa: S608  # table is ours
            tx.execute(f"DROP TABLE {table}")
            tx.execute("DELETE FROM partitions WHERE family = ? AND hour = ?", (int(family), hour))
            if newest is not None:
                tx.execute(
                    "INSERT INTO families (family, trimmed_through) VALUES (?, ?)"
                    " ON CONFLICT (family) DO UPDATE SET trimmed_through = excluded.trimmed_through",
                    (int(family), newest),
                )
            dropped += 1
        if dropped == len(rows):
            # Nothing may be appended to what is gone: not by the rest of this group, and not after it.
            self._forget_newest(family)
            tx.after_commit(lambda: self._forget_newest(family))
        return dropped

    def _forget_newest(self, family: Family) -> None:
        self._newest_hour.pop(family, None)

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
        older = [
            _table(family, hour)
            for (hour, _), (_, next_first) in pairwise(rows)
            if next_first - 1 > after  # what is in it lies before the next one
        ]
        return older + [_table(family, hour) for hour, _ in rows[-1:]]

    def _check_kept(self, reader: Reader, family: Family, after: int) -> None:
        rows = reader.execute("SELECT trimmed_through FROM families WHERE family = ?", (int(family),))
        if rows and after < rows[0][0]:
            raise ReplayIdExpired(
                f"replay id {after} is older than the log keeps", replay_id=after, earliest=int(rows[0][0])
            )

    def _find_numbers(self, reader: Reader, topics: frozenset[str]) -> dict[int, str]:
        """The numbers of those topics that ever had an event, with their names."""
        known = self._topic_numbers
        numbers = {known[name]: name for name in topics if name in known}
        missing = [name for name in topics if name not in known]
        for start in range(0, len(missing), _NAMES_AT_ONCE):
            some = missing[start : start + _NAMES_AT_ONCE]
            marks = ", ".join("?" * len(some))
            numbers |= dict(reader.execute(f"SELECT number, name FROM topics WHERE name IN ({marks})", some))  # noqa: S608
        return numbers

    def _measure(
        self, reader: Reader, table: str, numbers: tuple[int, ...], after: int, limit: int
    ) -> tuple[list[Row], int | None]:
        """Position, topic and size of the first events after a position, and where the search ended if that was
        neither at the end of the table nor with all that was asked for.
        """
        if len(numbers) >= _SCAN_OVER_TOPICS:
            return self._scan(reader, table, numbers, after, limit)
        rows: list[Row] = []
        for number in numbers:
            rows += reader.execute(
                f"SELECT position, topic, length(payload) FROM {table} WHERE topic = ? AND position > ?"  # noqa: S608
                " ORDER BY position LIMIT ?",
                (number, after, limit),
            )
        rows.sort(key=_position_of)
        return rows[:limit], None

    def _scan(
        self, reader: Reader, table: str, numbers: tuple[int, ...], after: int, limit: int
    ) -> tuple[list[Row], int | None]:
        marks = ", ".join("?" * len(numbers))
        ((first,),) = reader.execute(f"SELECT MIN(position) FROM {table} WHERE position > ?", (after,))  # noqa: S608
        ((newest,),) = reader.execute(f"SELECT MAX(position) FROM {table}")  # noqa: S608  # table is ours
        if first is None:
            return [], None
        # No two rows share a position, so a stretch of positions is a bound on the rows in it.
        end = int(first) + _SCAN_ROWS
        rows = reader.execute(
            f"SELECT position, topic, length(payload) FROM {table}"  # noqa: S608  # table is ours
            f" WHERE position > ? AND position <= ? AND +topic IN ({marks}) ORDER BY position LIMIT ?",
            (after, end, *numbers, limit),
        )
        return rows, None if len(rows) == limit or newest <= end else end

    def _rows_of(self, reader: Reader, table: str, found: Sequence[Row]) -> list[Row]:
        """The whole rows of what was measured, in the same order."""
        if not found:
            return []
        first, last = found[0][0], found[-1][0]
        numbers = {row[1] for row in found}
        if len(numbers) >= _SCAN_OVER_TOPICS:
            marks = ", ".join("?" * len(numbers))
            return reader.execute(
                f"SELECT {_COLUMNS} FROM {table} WHERE position BETWEEN ? AND ? AND +topic IN ({marks})"  # noqa: S608
                " ORDER BY position",
                (first, last, *numbers),
            )
        rows: list[Row] = []
        for number in numbers:
            rows += reader.execute(
                f"SELECT {_COLUMNS} FROM {table} WHERE topic = ? AND position BETWEEN ? AND ?",  # noqa: S608
                (number, first, last),
            )
        rows.sort(key=_position_of)
        return rows


def _position_of(row: Row) -> int:
    return int(row[0])


@lru_cache(maxsize=64)
def _insert_sql(table: str) -> str:
    return f"INSERT INTO {table} ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608  # table is ours


def _table(family: Family, hour: int) -> str:
    return f"e{int(family)}_{hour}"


def _event(row: Row, topic: str, family: Family) -> Event:
    position, _, created_ms, schema_id, event_uuid, transaction_last, payload = row
    return Event(position, topic, family, payload, created_ms, schema_id, event_uuid, transaction_last)
