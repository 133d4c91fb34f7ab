"""The storage contract: what every database must offer.

SQL text uses `?` placeholders, the type words INTEGER, REAL, TEXT and BLOB, and otherwise the subset that
SQLite and PostgreSQL share. One process writes an org, through one connection; any number of readers see
whole commits only. Implementations: `sqlite.py` and `postgres.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from tidewire.errors import PlatformError
from tidewire.events import Event, Value

T = TypeVar("T")
Row = tuple[Any, ...]
SqlValue = Value | bytes
_MAX_BUFFERED_INSERTS = 2000  # larger batches are not faster and only take memory


class Reader(Protocol):
    """A read transaction: every statement sees the same commit."""

    def execute(self, sql: str, params: Sequence[SqlValue] = ()) -> list[Row]:
        """Run one statement and return all its rows."""


class Connection(Reader, Protocol):
    """The writer's connection. Only the writer thread touches it."""

    def execute_many(self, sql: str, rows: Iterable[Sequence[SqlValue]]) -> None:
        """Run one statement for each row. What goes into an INTEGER column must be an int or a bool."""

    def begin(self) -> None:
        """Start a transaction that will write."""

    def commit(self) -> None:
        """Make it durable before returning. Raises the driver's own error."""

    def rollback(self) -> None:
        """Undo the transaction, if there still is one."""

    def is_in_transaction(self) -> bool:
        """Return whether a transaction is open; a database may roll it back by itself after an error."""

    def is_open(self) -> bool:
        """Return whether the connection worked when it was last used."""

    def close(self) -> None:
        """Close the connection; never raises."""


class Store(Protocol):
    """One org's database.

    `driver_errors` are the exceptions of its driver. After `idle_check_s` without work the writer checks its
    connection; None means that the connection cannot break.
    """

    driver_errors: tuple[type[Exception], ...]
    idle_check_s: float | None

    def connect_writer(self) -> Connection:
        """Open the writing connection, migrated to the newest layout.

        Called again only after the last one was closed or lost; raises StoreLocked if another process has
        written in between.
        """

    async def read(self, work: Callable[[Reader], T]) -> T:
        """Run `work` in a read transaction on a thread that owns its connection."""

    def explain_failure(self, error: Exception) -> tuple[type[PlatformError], str, bool]:
        """Return the error class and message for a driver error, and whether durability itself is in doubt."""

    def close(self) -> None:
        """Close every connection."""


@dataclass(slots=True)
class Progress:
    """The org's counters, one row in the database, written in every commit.

    `group_number` shows after a failed COMMIT whether it happened. `next_position` is the next replay id.
    `numbers` are the next record and auto numbers that the running group has taken, by name; the others are
    only in the database.
    """

    group_number: int
    next_position: int
    commit_number: int
    access_generation: int
    catalog_version: int
    numbers: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Progress:
        """Return an independent copy."""
        return Progress(
            self.group_number,
            self.next_position,
            self.commit_number,
            self.access_generation,
            self.catalog_version,
            self.numbers.copy(),
        )


class BufferedInserts:
    """New rows that have not reached the database yet, by their INSERT statement."""

    __slots__ = ("_by_statement", "_count")

    def __init__(self) -> None:
        self._by_statement: dict[str, list[Sequence[SqlValue]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, sql: str, params: Sequence[SqlValue]) -> None:
        """Add a row."""
        self._by_statement.setdefault(sql, []).append(params)
        self._count += 1

    def append_many(self, sql: str, rows: Sequence[Sequence[SqlValue]]) -> None:
        """Add rows of one INSERT."""
        self._by_statement.setdefault(sql, []).extend(rows)
        self._count += len(rows)

    def extend(self, others: BufferedInserts) -> None:
        """Add the rows of another buffer behind the present ones."""
        for sql, rows in others._by_statement.items():
            self._by_statement.setdefault(sql, []).extend(rows)
        self._count += others._count

    def insert(self, connection: Connection) -> None:
        """Insert all rows and empty the buffer."""
        # Emptied first: if an insert fails, the group is rolled back and runs again, and must not insert them twice.
        waiting, self._by_statement, self._count = self._by_statement, {}, 0
        for sql, rows in waiting.items():
            connection.execute_many(sql, rows)


class Transaction:
    """One member of a group commit, which can be undone without undoing the others.

    Work reads and writes through `execute`, takes numbers from `progress`, and leaves in-memory effects to
    `after_commit` callbacks, which run on the writer thread once the commit is durable and before it is
    reported. New rows go to `buffer_insert`: they reach the database many at a time, and before any other
    statement, so that every statement sees them. Rows of `earlier` members of the group may still be buffered
    as well.

    A member that has only read and buffered rows is undone by dropping them. Its first other statement is
    preceded by a SAVEPOINT: from then on it `is_guarded`. If a statement fails before that, it is unknown
    whose rows caused it, and `has_broken_group` is set.
    """

    __slots__ = (
        "_earlier",
        "_rows",
        "callbacks",
        "connection",
        "ended_sessions",
        "events",
        "has_broken_group",
        "is_guarded",
        "omitted",
        "progress",
        "trace",
        "undo_callbacks",
    )

    def __init__(self, connection: Connection, progress: Progress, earlier: BufferedInserts) -> None:
        self.connection = connection
        self._earlier = earlier
        self._rows = BufferedInserts()
        self.progress = progress
        self.events: list[Event] = []
        self.omitted: dict[str, int] = {}  # topics and last positions of events that are not in `events`
        self.ended_sessions: list[str] = []
        self.callbacks: list[Callable[[], None]] = []
        self.undo_callbacks: list[Callable[[], None]] = []
        self.is_guarded = False
        self.has_broken_group = False
        self.trace = ""  # what its events' deliveries belong to, if anybody follows them

    @property
    def stored(self) -> Reader:
        """Return a reader that does not see the rows that this transaction itself has buffered."""
        return _PastOwnRows(self)

    def execute(self, sql: str, params: Sequence[SqlValue] = ()) -> list[Row]:
        """Run one statement and return all its rows."""
        try:
            self._prepare(is_read=sql.startswith("SELECT"))
            return self.connection.execute(sql, params)
        except Exception:
            self._note_failure()
            raise

    def execute_many(self, sql: str, rows: Iterable[Sequence[SqlValue]]) -> None:
        """Run one statement for each row."""
        try:
            self._prepare(is_read=False)
            self.connection.execute_many(sql, rows)
        except Exception:
            self._note_failure()
            raise

    def execute_skipping_buffer(self, sql: str, params: Sequence[SqlValue] = ()) -> list[Row]:
        """Run a SELECT that need not see the rows that this transaction itself has buffered."""
        # A batch of creates checks its lookups this way: flushing before each check would insert row by row again.
        try:
            if self._earlier:
                self._earlier.insert(self.connection)
            return self.connection.execute(sql, params)
        except Exception:
            self._note_failure()
            raise

    def buffer_insert(self, sql: str, params: Sequence[SqlValue]) -> None:
        """Buffer a row of an INSERT, which runs before the next other statement or at the end."""
        self._rows.append(sql, params)
        if len(self._rows) >= _MAX_BUFFERED_INSERTS:
            self._flush()

    def buffer_inserts(self, sql: str, rows: Sequence[Sequence[SqlValue]]) -> None:
        """Buffer rows of an INSERT, as `buffer_insert` does."""
        self._rows.append_many(sql, rows)
        if len(self._rows) >= _MAX_BUFFERED_INSERTS:
            self._flush()

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Run `callback` if, and only after, this transaction is durable. It must not fail."""
        self.callbacks.append(callback)

    def after_undo(self, callback: Callable[[], None]) -> None:
        """Run `callback`, on the writer thread, whenever this transaction is undone. It must not fail."""
        self.undo_callbacks.append(callback)

    # Called by the writer:

    def guard(self) -> None:
        """Make sure that everything from now on can be undone alone."""
        # The rows of earlier members come before the savepoint: a rollback to it must not take them along.
        if self._earlier:
            self._earlier.insert(self.connection)
        if not self.is_guarded:
            self.connection.execute("SAVEPOINT member")
            self.is_guarded = True

    def finish(self) -> None:
        """Insert the buffered rows inside the savepoint, or leave them to the group if there is none."""
        if self.is_guarded:  # before RELEASE, or a bad row would be blamed on the whole group
            self._rows.insert(self.connection)
            return
        self._earlier.extend(self._rows)
        if len(self._earlier) >= _MAX_BUFFERED_INSERTS:
            try:
                self._earlier.insert(self.connection)
            except Exception:
                self._note_failure()
                raise

    def _flush(self) -> None:
        try:
            self._prepare(is_read=False)
        except Exception:
            self._note_failure()
            raise

    def _note_failure(self) -> None:
        # Inside a savepoint the failure is this member's own; outside, rows of earlier members may have caused it.
        if not self.is_guarded:
            self.has_broken_group = True

    def _prepare(self, *, is_read: bool) -> None:
        """Insert what the next statement must find in the database, with a savepoint before the first write."""
        # Own rows are inserted after the savepoint, so that they are undone with it. A mere read needs none: most
        # members of a group of creates never have a savepoint, which is what makes them cheap.
        if not is_read or self._rows:
            self.guard()
            self._rows.insert(self.connection)
        elif self._earlier:
            self._earlier.insert(self.connection)


class _PastOwnRows:
    """`Transaction.execute_skipping_buffer` as a Reader."""

    __slots__ = ("_tx",)

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def execute(self, sql: str, params: Sequence[SqlValue] = ()) -> list[Row]:
        return self._tx.execute_skipping_buffer(sql, params)


PROGRESS_COLUMNS = "group_number, next_position, commit_number, access_generation, catalog_version"


def read_progress(reader: Reader) -> Progress:
    """Return the counters as of this reader's commit."""
    ((group, position, commit, access, catalog),) = reader.execute(f"SELECT {PROGRESS_COLUMNS} FROM progress")  # noqa: S608  # constant
    return Progress(group, position, commit, access, catalog)


def write_progress(connection: Connection, progress: Progress) -> None:
    """Store the counters, as part of the running transaction."""
    connection.execute(
        "UPDATE progress SET group_number = ?, next_position = ?, commit_number = ?, access_generation = ?,"
        " catalog_version = ?",
        (
            progress.group_number,
            progress.next_position,
            progress.commit_number,
            progress.access_generation,
            progress.catalog_version,
        ),
    )
    if progress.numbers:
        connection.execute_many(
            "INSERT INTO numbers (name, next) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET next = excluded.next",
            list(progress.numbers.items()),
        )
