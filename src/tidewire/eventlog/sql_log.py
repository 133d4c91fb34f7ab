"""The event log in the org's own database, so that a change and its events share one commit.

Layout: one table per family and hour, `e<family>_<hour>`, with the position as primary key and an index on (topic,
position). `partitions` holds the first position of each table, `topics` a number per topic name, `families` the highest
trimmed position, `incarnations` the range of each incarnation, `event_schemas` every schema ever used. Retention drops
whole tables, because deleting rows would cost as much as writing them did.

Invariants: while a family has partitions, the hour of its newest one never decreases, even if the wall clock does;
partitions in hour order are therefore in position order. Caches follow commits and are never ahead of them.

Bounds: a page is measured before it is read, so that it takes no more memory than was asked for, plus at most one
event. A search over many topics looks at a limited number of rows, found or not, and returns what it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise
from operator import itemgetter

from tidewire.errors import ReplayIdExpired, SchemaUnknown
from tidewire.eventlog.log import FamilySize, Incarnation, LogBounds, LogPage, Positions
from tidewire.eventlog.sql_size import SizeCounter, table_name
from tidewire.events import Event, EventDraft, Family
from tidewire.storage.store import Reader, Transaction

_HOUR_MS = 3_600_000
# From this many topics on, one scan by position is faster than merging one index range per topic.
_SCAN_OVER_TOPICS = 8
_NAMES_AT_ONCE = 500  # below SQLite's limit of 999 parameters
_PAGE_EVENTS = 2000  # events of one transaction held in memory
_PAGE_BYTES = 4 << 20
_SCAN_ROWS = 20_000  # rows that one page of a scan looks at: about ten milliseconds
_COLUMNS = "position, topic, created_ms, schema_id, event_uuid, transaction_last, payload"


@dataclass(frozen=True, slots=True)
class _Candidates:
    """A query for the position and size of events that a page may hold."""

    sql: str
    params: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Range:
    """A range of positions with the number and total size of the events wanted from it."""

    first: int
    last: int
    count: int
    size_bytes: int


_NOTHING = _Range(0, 0, 0, 0)


class SqlEventLog:
    """`EventLog` over the transactions and readers of a store, SQLite or PostgreSQL."""

    def __init__(self) -> None:
        # Both caches are filled by after_commit only: a rolled back transaction must not leave an entry behind that
        # names a table or a topic number which does not exist. Readers on other threads see whole dict operations.
        self._topic_numbers: dict[str, int] = {}
        self._newest_hour: dict[Family, int] = {}
        self._sizes = SizeCounter()

    def append(self, tx: Transaction, drafts: Sequence[EventDraft], now_ms: int) -> list[Event]:
        first = tx.progress.next_position
        last = first + len(drafts) - 1
        events: list[Event] = []
        tables: dict[Family, str] = {}
        rows: dict[Family, list[tuple[int, int, int, str, str, int, bytes]]] = {}
        numbers: dict[str, int] = {}
        # Event(...) is Python code that calls tuple.__new__; for every row, calling that directly takes half the time.
        new = tuple.__new__
        for position, draft in enumerate(drafts, first):
            name, family, payload, created_ms, schema_id, event_uuid = draft
            if family not in tables:
                tables[family] = self._ensure_partition(tx, family, position, now_ms)
                rows[family] = []
            if name not in numbers:
                numbers[name] = self._ensure_topic(tx, name, family)
            event = (position, name, family, payload, created_ms, schema_id, event_uuid, last)
            events.append(new(Event, event))
            rows[family].append((position, numbers[name], created_ms, schema_id, event_uuid, last, payload))
        for family, table in tables.items():
            # Buffered until the transaction's next other statement, so that rows of a group are inserted together.
            tx.buffer_inserts(_insert_sql(table), rows[family])
        tx.progress.next_position = last + 1
        tx.events.extend(events)
        return events

    def append_uniform(
        self,
        tx: Transaction,
        topic: str,
        family: Family,
        schema_id: str,
        bodies: Sequence[tuple[str, bytes]],
        now_ms: int,
    ) -> int:
        first = tx.progress.next_position
        last = first + len(bodies) - 1
        table = self._ensure_partition(tx, family, first, now_ms)
        number = self._ensure_topic(tx, topic, family)
        new = tuple.__new__
        tx.events += [
            new(Event, (position, topic, family, payload, now_ms, schema_id, event_uuid, last))
            for position, (event_uuid, payload) in enumerate(bodies, first)
        ]
        rows = [
            (position, number, now_ms, schema_id, event_uuid, last, payload)
            for position, (event_uuid, payload) in enumerate(bodies, first)
        ]
        tx.buffer_inserts(_insert_sql(table), rows)
        tx.progress.next_position = last + 1
        return first

    def append_paged(self, tx: Transaction, drafts: Iterable[EventDraft], now_ms: int) -> None:
        pages = _pages(drafts)
        page = next(pages, [])
        following = next(pages, None)  # read ahead: one page alone is appended as usual
        if following is None:
            if page:
                self.append(tx, page, now_ms)
            return
        first, events_before = tx.progress.next_position, len(tx.events)
        families: set[Family] = set()
        for some in chain((page, following), pages):
            for event in self.append(tx, some, now_ms):
                families.add(event.family)
                tx.omitted[event.topic] = event.position
            # Edges read them from the log: a batch of this size would fill every edge's memory at once.
            del tx.events[events_before:]
        last = tx.progress.next_position - 1
        for family in families:
            # `append` gave each page its own last position; only now is the transaction's known. One table has all of
            # its events, because all of them carry the same time.
            table = self._ensure_partition(tx, family, first, now_ms)
            tx.execute(f"UPDATE {table} SET transaction_last = ? WHERE position >= ?", (last, first))  # noqa: S608

    def retire_topic(self, tx: Transaction, name: str) -> None:
        # Renamed, not deleted: the rows go with their partition. The number makes the name unique.
        tx.execute("UPDATE topics SET name = name || '#' || number WHERE name = ?", (name,))

        def forget() -> None:
            self._topic_numbers.pop(name, None)

        tx.after_commit(forget)

    def append_schema(self, tx: Transaction, schema_id: str, topic: str, definition: str) -> None:
        tx.execute(
            "INSERT INTO event_schemas (schema_id, topic, definition) VALUES (?, ?, ?)"
            " ON CONFLICT (schema_id) DO NOTHING",
            (schema_id, topic, definition),
        )

    def read_schema(self, reader: Reader, schema_id: str) -> str:
        rows = reader.execute("SELECT definition FROM event_schemas WHERE schema_id = ?", (schema_id,))
        if not rows:
            raise SchemaUnknown(f"no event ever had schema id {schema_id[:64]}", schema_id=schema_id[:64])
        return str(rows[0][0])

    def try_read_topic_schema(self, reader: Reader, schema_id: str, topic: str) -> str | None:
        rows = reader.execute(
            "SELECT definition FROM event_schemas WHERE schema_id = ? AND topic = ?", (schema_id, topic)
        )
        return str(rows[0][0]) if rows else None

    def count_schemas(self, reader: Reader) -> int:
        ((count,),) = reader.execute("SELECT COUNT(*) FROM event_schemas")
        return int(count)

    def read_head(self, reader: Reader) -> int:
        ((next_position,),) = reader.execute("SELECT next_position FROM progress")
        return int(next_position) - 1

    def read_bounds(self, reader: Reader, family: Family) -> LogBounds:
        head = self.read_head(reader)
        rows = reader.execute("SELECT trimmed_through FROM families WHERE family = ?", (int(family),))
        if rows:
            return LogBounds(int(rows[0][0]), head)
        ((first,),) = reader.execute("SELECT MIN(first_position) FROM incarnations")
        return LogBounds(int(first) - 1, head)

    def is_position_known(self, reader: Reader, position: int) -> bool:
        # COALESCE: the current incarnation has no last position yet; it ends at the head of this snapshot.
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
    ) -> LogPage:
        # The head of this snapshot, read first: everything up to it is visible to the queries below.
        head = self.read_head(reader)
        self._check_kept(reader, family, after)
        names = self._find_numbers(reader, topics)
        events: list[Event] = []
        left_bytes = max_bytes
        # Tables in hour order are in position order, so the first ones that fill the page are the right ones.
        for table in self._tables_after(reader, family, after) if names else ():
            candidates, ended_at = self._candidates(
                reader, table, tuple(names), after, max_events - len(events)
            )
            if candidates is not None:
                span = self._measure(reader, candidates)
                is_cut = span.size_bytes > left_bytes
                if is_cut:
                    span = self._cut(reader, candidates, left_bytes, is_empty=not events)
                events += self._read_range(reader, table, span, names, family)
                left_bytes -= span.size_bytes
                # A full page was searched only as far as its last event.
                if is_cut or len(events) >= max_events:
                    return LogPage(tuple(events), events[-1].position)
            # The scan ran into its row limit: later tables must wait, or events in between would be skipped.
            if ended_at is not None:
                return LogPage(tuple(events), ended_at)
        return LogPage(tuple(events), max(head, after))

    def read_positions(
        self, reader: Reader, family: Family, topics: frozenset[str], after: int, max_events: int
    ) -> Positions:
        head = self.read_head(reader)
        self._check_kept(reader, family, after)
        numbers = tuple(self._find_numbers(reader, topics))
        found: list[int] = []
        for table in self._tables_after(reader, family, after) if numbers else ():
            candidates, ended_at = self._candidates(reader, table, numbers, after, max_events - len(found))
            if candidates is not None:
                rows = reader.execute(
                    f"SELECT position FROM ({candidates.sql}) AS candidates ORDER BY position",  # noqa: S608
                    candidates.params,
                )
                found += [int(row[0]) for row in rows]
            if len(found) >= max_events:
                return Positions(tuple(found), found[-1])
            if ended_at is not None:
                return Positions(tuple(found), ended_at)
        return Positions(tuple(found), max(head, after))

    def read_incarnations(self, reader: Reader) -> tuple[Incarnation, ...]:
        rows = reader.execute(
            "SELECT first_position, last_position FROM incarnations ORDER BY first_position"
        )
        return tuple(Incarnation(int(first), None if last is None else int(last)) for first, last in rows)

    def incarnation_statements(self, head: int, first_position: int) -> tuple[str, ...]:
        return (
            f"UPDATE incarnations SET last_position = {head:d} WHERE last_position IS NULL",  # noqa: S608  # numbers
            f"INSERT INTO incarnations (first_position, last_position) VALUES ({first_position:d}, NULL)",  # noqa: S608
            f"UPDATE progress SET next_position = {first_position:d}, group_number = group_number + 1",  # noqa: S608
        )

    def find_time(self, reader: Reader, family: Family, time_ms: int) -> int:
        # Binary search inside the first table whose newest event is late enough.
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
        """Return when the first event at or after a position was created."""
        ((created_ms,),) = reader.execute(
            f"SELECT created_ms FROM {table} WHERE position >= ? ORDER BY position LIMIT 1",  # noqa: S608
            (position,),
        )
        return int(created_ms)

    def read_sizes(self, reader: Reader) -> tuple[FamilySize, ...]:
        return self._sizes.read(reader)

    def trim(self, tx: Transaction, family: Family, before_ms: int) -> int:
        rows = tx.execute("SELECT hour FROM partitions WHERE family = ? ORDER BY hour", (int(family),))
        dropped = 0
        for (hour,) in rows:
            if (hour + 1) * _HOUR_MS > before_ms:
                break
            table = table_name(family, hour)
            ((newest,),) = tx.execute(f"SELECT MAX(position) FROM {table}")  # noqa: S608  # table is ours
            tx.execute(f"DROP TABLE {table}")
            tx.execute("DELETE FROM partitions WHERE family = ? AND hour = ?", (int(family), hour))
            if newest is not None:
                # Readers that ask for positions up to here get ReplayIdExpired instead of a silent gap.
                tx.execute(
                    "INSERT INTO families (family, trimmed_through) VALUES (?, ?)"
                    " ON CONFLICT (family) DO UPDATE SET trimmed_through = excluded.trimmed_through",
                    (int(family), newest),
                )
            dropped += 1
        if dropped == len(rows):
            # The cached hour names a dropped table. Forget it now for the rest of this group, and again after the
            # commit, because an append earlier in the group may have queued its own cache update.
            self._forget_newest(family)
            tx.after_commit(lambda: self._forget_newest(family))
        return dropped

    def _forget_newest(self, family: Family) -> None:
        self._newest_hour.pop(family, None)

    def _ensure_partition(self, tx: Transaction, family: Family, position: int, now_ms: int) -> str:
        """Return the table for new events of a family, creating it if its hour has begun."""
        newest = self._newest_hour.get(family, -1)
        # Never an earlier hour than the newest, even if the clock was set back: see the module's invariants.
        hour = max(now_ms // _HOUR_MS, newest)
        if hour == newest:
            return table_name(family, hour)
        if newest < 0:  # first append since the start, or since everything was trimmed
            ((found,),) = tx.execute("SELECT MAX(hour) FROM partitions WHERE family = ?", (int(family),))
            newest = -1 if found is None else int(found)
            hour = max(hour, newest)
        table = table_name(family, hour)
        if hour != newest:
            # IF NOT EXISTS: another member of the same group may have created it; the cache follows the commit only.
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
        """Return the topic's number, assigning one to a new topic."""
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
        """Return the tables that may hold events after a position, oldest first."""
        rows = reader.execute(
            "SELECT hour, first_position FROM partitions WHERE family = ? ORDER BY hour", (int(family),)
        )
        older = [
            table_name(family, hour)
            for (hour, _), (_, next_first) in pairwise(rows)
            if next_first - 1 > after  # all positions of a table lie before the next table's first
        ]
        return older + [table_name(family, hour) for hour, _ in rows[-1:]]

    def _check_kept(self, reader: Reader, family: Family, after: int) -> None:
        """Raise ReplayIdExpired if events of the family after a position were trimmed."""
        rows = reader.execute("SELECT trimmed_through FROM families WHERE family = ?", (int(family),))
        if rows and after < rows[0][0]:
            raise ReplayIdExpired(
                f"replay id {after} is older than the log keeps", replay_id=after, earliest=int(rows[0][0])
            )

    def _find_numbers(self, reader: Reader, topics: frozenset[str]) -> dict[int, str]:
        """Return the names of those topics that ever had an event, by number."""
        known = self._topic_numbers
        numbers = {known[name]: name for name in topics if name in known}
        missing = [name for name in topics if name not in known]
        for start in range(0, len(missing), _NAMES_AT_ONCE):
            some = missing[start : start + _NAMES_AT_ONCE]
            marks = ", ".join("?" * len(some))
            numbers |= dict(reader.execute(f"SELECT number, name FROM topics WHERE name IN ({marks})", some))  # noqa: S608
        return numbers

    def _candidates(
        self, reader: Reader, table: str, numbers: tuple[int, ...], after: int, limit: int
    ) -> tuple[_Candidates | None, int | None]:
        """Return a query for the first events after a position, and where its search ends if before the table's end."""
        if len(numbers) < _SCAN_OVER_TOPICS:
            # One index range per topic, each cut at the limit, merged by position.
            one = (
                f"SELECT position, length(payload) AS size FROM {table} WHERE topic = ? AND position > ?"  # noqa: S608
                " ORDER BY position LIMIT ?"
            )
            sql = one
            if len(numbers) > 1:
                each = " UNION ALL ".join(f"SELECT * FROM ({one}) AS t{n}" for n in range(len(numbers)))  # noqa: S608
                sql = f"SELECT * FROM ({each}) AS found ORDER BY position LIMIT ?"  # noqa: S608
            params = [param for number in numbers for param in (number, after, limit)]
            return _Candidates(sql, (*params, limit) if len(numbers) > 1 else tuple(params)), None
        ((first,),) = reader.execute(f"SELECT MIN(position) FROM {table} WHERE position > ?", (after,))  # noqa: S608
        ((newest,),) = reader.execute(f"SELECT MAX(position) FROM {table}")  # noqa: S608  # table is ours
        if first is None:
            return None, None
        # Positions are unique, so a range of positions bounds the number of rows in it.
        end = int(first) + _SCAN_ROWS
        sql = (
            f"SELECT position, length(payload) AS size FROM {table} WHERE position > ? AND position <= ?"  # noqa: S608
            # The unary plus keeps SQLite from using the topic index, which would need a sort.
            f" AND +topic IN ({_marks(numbers)}) ORDER BY position LIMIT ?"
        )
        return _Candidates(sql, (after, end, *numbers, limit)), None if newest <= end else end

    def _measure(self, reader: Reader, candidates: _Candidates) -> _Range:
        """Return the range and the total size of the candidates."""
        ((first, last, count, size_bytes),) = reader.execute(
            f"SELECT MIN(position), MAX(position), COUNT(*), SUM(size) FROM ({candidates.sql}) AS candidates",  # noqa: S608
            candidates.params,
        )
        return _Range(int(first), int(last), int(count), int(size_bytes)) if count else _NOTHING

    def _cut(self, reader: Reader, candidates: _Candidates, max_bytes: int, *, is_empty: bool) -> _Range:
        """Return the range of the candidates that fit. An empty page takes the first one even if it is too large."""
        found = reader.execute(candidates.sql, candidates.params)
        count = size_bytes = 0
        for _, row_bytes in found:
            if (count or not is_empty) and size_bytes + row_bytes > max_bytes:
                break
            size_bytes += row_bytes
            count += 1
        return _Range(found[0][0], found[count - 1][0], count, size_bytes) if count else _NOTHING

    def _read_range(
        self, reader: Reader, table: str, span: _Range, names: Mapping[int, str], family: Family
    ) -> list[Event]:
        """Return the events of these topics in a range, oldest first."""
        if not span.count:
            return []
        numbers = tuple(names)
        if len(numbers) >= _SCAN_OVER_TOPICS or span.count * 2 > span.last - span.first:
            # Few rows of other topics in between: skipping them is faster than one index lookup per row.
            rows = reader.execute(
                f"SELECT {_COLUMNS} FROM {table} WHERE position BETWEEN ? AND ?"  # noqa: S608  # table is ours
                f" AND +topic IN ({_marks(numbers)}) ORDER BY position",
                (span.first, span.last, *numbers),
            )
        else:
            rows = []
            for number in numbers:
                rows += reader.execute(
                    f"SELECT {_COLUMNS} FROM {table} WHERE topic = ? AND position BETWEEN ? AND ?"  # noqa: S608
                    " ORDER BY position",
                    (number, span.first, span.last),
                )
            if len(numbers) > 1:
                rows.sort(key=itemgetter(0))
        # Event(...) would take twice as long, for every row read.
        new = tuple.__new__
        return [
            new(Event, (position, names[topic], family, payload, created_ms, schema_id, event_uuid, last))
            for position, topic, created_ms, schema_id, event_uuid, last, payload in rows
        ]


def _marks(numbers: Sequence[int]) -> str:
    return ", ".join("?" * len(numbers))


def _pages(drafts: Iterable[EventDraft]) -> Iterator[list[EventDraft]]:
    page: list[EventDraft] = []
    size_bytes = 0
    for draft in drafts:
        page.append(draft)
        size_bytes += len(draft.payload)
        if len(page) >= _PAGE_EVENTS or size_bytes >= _PAGE_BYTES:
            yield page
            page, size_bytes = [], 0
    if page:
        yield page


@lru_cache(maxsize=64)
def _insert_sql(table: str) -> str:
    return f"INSERT INTO {table} ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608  # table is ours
