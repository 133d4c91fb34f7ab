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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise
from operator import itemgetter

from tidewire.errors import ReplayIdExpired, SchemaUnknown
from tidewire.events import Event, EventDraft, Family
from tidewire.storage.store import Reader, Transaction

EPOCH_2020_S = 1_577_836_800
_HOUR_MS = 3_600_000
_SCAN_OVER_TOPICS = (
    8  # from this many topics on, scanning by position beats merging one index range per topic
)
_NAMES_AT_ONCE = 500
_PAGE_EVENTS = 2000  # of one transaction that memory holds
_PAGE_BYTES = 4 << 20
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


@dataclass(frozen=True, slots=True)
class _Candidates:
    """A query for position and size of events that may come on a page."""

    sql: str
    params: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Events from `first` to `last`, so many and so large."""

    first: int
    last: int
    count: int
    size_bytes: int


_NOTHING = _Stretch(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Positions:
    """Where events after a position are; all of them up to `through`."""

    found: tuple[int, ...]
    through: int


@dataclass(frozen=True, slots=True)
class Incarnation:
    """The positions that one life of the log has given out; `last` is None for the one that goes on."""

    first: int
    last: int | None


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
        new = tuple.__new__  # for the reason that reading has
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
            tx.insert_many_later(_insert_sql(table), rows[family])
        tx.progress.next_position = last + 1
        tx.events.extend(events)
        return events

    def append_alike(
        self,
        tx: Transaction,
        topic: str,
        family: Family,
        schema_id: str,
        bodies: Sequence[tuple[str, bytes]],
        now_ms: int,
    ) -> int:
        """Store events that differ only in their UUIDs and payloads; returns the position of the first."""
        first = tx.progress.next_position
        last = first + len(bodies) - 1
        table = self._ensure_partition(tx, family, first, now_ms)
        number = self._ensure_topic(tx, topic, family)
        new = tuple.__new__  # for the reason that reading has
        tx.events += [
            new(Event, (position, topic, family, payload, now_ms, schema_id, event_uuid, last))
            for position, (event_uuid, payload) in enumerate(bodies, first)
        ]
        rows = [
            (position, number, now_ms, schema_id, event_uuid, last, payload)
            for position, (event_uuid, payload) in enumerate(bodies, first)
        ]
        tx.insert_many_later(_insert_sql(table), rows)
        tx.progress.next_position = last + 1
        return first

    def append_all(self, tx: Transaction, drafts: Iterable[EventDraft], now_ms: int) -> None:
        """The same for any number of events, of which memory holds a page at a time. If there are more, whoever
        learns of the commit is only told where they are.
        """
        pages = _pages(drafts)
        page = next(pages, [])
        following = next(pages, None)
        if following is None:
            if page:
                self.append(tx, page, now_ms)
            return
        first, told = tx.progress.next_position, len(tx.events)
        families: set[Family] = set()
        for some in chain((page, following), pages):
            for event in self.append(tx, some, now_ms):
                families.add(event.family)
                tx.omitted[event.topic] = event.position
            del tx.events[told:]
        last = tx.progress.next_position - 1
        for family in families:
            # A transaction stays within one partition: all of it has one time.
            table = self._ensure_partition(tx, family, first, now_ms)
            tx.execute(f"UPDATE {table} SET transaction_last = ? WHERE position >= ?", (last, first))  # noqa: S608

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
        left_bytes = max_bytes
        for table in self._tables_after(reader, family, after) if names else ():
            candidates, ended_at = self._candidates(
                reader, table, tuple(names), after, max_events - len(events)
            )
            if candidates is not None:
                stretch = self._measure(reader, candidates)
                is_cut = stretch.size_bytes > left_bytes
                if is_cut:
                    stretch = self._cut(reader, candidates, left_bytes, is_empty=not events)
                events += self._read_stretch(reader, table, stretch, names, family)
                left_bytes -= stretch.size_bytes
                if is_cut or len(events) >= max_events:
                    return Page(tuple(events), events[-1].position)
            if ended_at is not None:
                return Page(tuple(events), ended_at)
        return Page(tuple(events), max(head, after))

    def read_positions(
        self, reader: Reader, family: Family, topics: frozenset[str], after: int, max_events: int
    ) -> Positions:
        """Where the next events are, at most so many, without reading them. Raises ReplayIdExpired."""
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
        """Every life that this log has had, oldest first."""
        rows = reader.execute(
            "SELECT first_position, last_position FROM incarnations ORDER BY first_position"
        )
        return tuple(Incarnation(int(first), None if last is None else int(last)) for first, last in rows)

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

    def _candidates(
        self, reader: Reader, table: str, numbers: tuple[int, ...], after: int, limit: int
    ) -> tuple[_Candidates | None, int | None]:
        """A query for the first events after a position, and where the search ends if that is before the end of the
        table.
        """
        if len(numbers) < _SCAN_OVER_TOPICS:
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
        # No two rows share a position, so a stretch of positions is a bound on the rows in it.
        end = int(first) + _SCAN_ROWS
        sql = (
            f"SELECT position, length(payload) AS size FROM {table} WHERE position > ? AND position <= ?"  # noqa: S608
            f" AND +topic IN ({_marks(numbers)}) ORDER BY position LIMIT ?"
        )
        return _Candidates(sql, (after, end, *numbers, limit)), None if newest <= end else end

    def _measure(self, reader: Reader, candidates: _Candidates) -> _Stretch:
        """Where the candidates lie, and how large they are together."""
        ((first, last, count, size_bytes),) = reader.execute(
            f"SELECT MIN(position), MAX(position), COUNT(*), SUM(size) FROM ({candidates.sql}) AS candidates",  # noqa: S608
            candidates.params,
        )
        return _Stretch(int(first), int(last), int(count), int(size_bytes)) if count else _NOTHING

    def _cut(self, reader: Reader, candidates: _Candidates, max_bytes: int, *, is_empty: bool) -> _Stretch:
        """As many of the candidates as fit; of an empty page, the first in any case."""
        found = reader.execute(candidates.sql, candidates.params)
        count = size_bytes = 0
        for _, row_bytes in found:
            if (count or not is_empty) and size_bytes + row_bytes > max_bytes:
                break
            size_bytes += row_bytes
            count += 1
        return _Stretch(found[0][0], found[count - 1][0], count, size_bytes) if count else _NOTHING

    def _read_stretch(
        self, reader: Reader, table: str, stretch: _Stretch, names: Mapping[int, str], family: Family
    ) -> list[Event]:
        """The events of these topics in a stretch, oldest first."""
        if not stretch.count:
            return []
        numbers = tuple(names)
        if len(numbers) >= _SCAN_OVER_TOPICS or stretch.count * 2 > stretch.last - stretch.first:
            # Few rows of other topics in between: passing over them is quicker than looking each one up.
            rows = reader.execute(
                f"SELECT {_COLUMNS} FROM {table} WHERE position BETWEEN ? AND ?"  # noqa: S608  # table is ours
                f" AND +topic IN ({_marks(numbers)}) ORDER BY position",
                (stretch.first, stretch.last, *numbers),
            )
        else:
            rows = []
            for number in numbers:
                rows += reader.execute(
                    f"SELECT {_COLUMNS} FROM {table} WHERE topic = ? AND position BETWEEN ? AND ?"  # noqa: S608
                    " ORDER BY position",
                    (number, stretch.first, stretch.last),
                )
            if len(numbers) > 1:
                rows.sort(key=itemgetter(0))
        # One for every row that is read, and the usual way of making a tuple with names takes twice as long.
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


def _table(family: Family, hour: int) -> str:
    return f"e{int(family)}_{hour}"
