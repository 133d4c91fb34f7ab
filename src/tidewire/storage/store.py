"""The storage contract: what the stages may ask of a database, whichever it is.

SQL text uses `?` placeholders, the type words INTEGER, REAL, TEXT and BLOB, and otherwise the subset that SQLite
and PostgreSQL share. One process writes an org, through one connection; any number of readers see whole commits
only. Implementations: `sqlite.py` and `postgres.py`.
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
_MAX_BUFFERED_INSERTS = 2000  # more at once would only take memory


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
        """Whether a transaction is open. A database may have rolled it back by itself after an error."""

    def is_open(self) -> bool:
        """Whether the database can still be reached through this connection, as far as its last use told."""

    def close(self) -> None:
        """Let go of the database; never raises."""


class Store(Protocol):
    """One org's database.

    `driver_errors` are what its driver raises. After `idle_check_s` without work the writer looks whether its
    connection still stands; None means that it cannot break.
    """

    driver_errors: tuple[type[Exception], ...]
    idle_check_s: float | None

    def connect_writer(self) -> Connection:
        """Open the one writing connection, migrated to the newest layout. Called again only after the last one
        was closed or lost; raises StoreLocked if another process has written in between.
        """

    async def read(self, work: Callable[[Reader], T]) -> T:
        """Run `work` in a read transaction on a thread that owns its connection."""

    def explain_failure(self, error: Exception) -> tuple[type[PlatformError], str, bool]:
        """What a driver error means: the class of our tree, a message, and whether durability itself is in
        doubt.
        """

    def close(self) -> None:
        """Close every connection."""


@dataclass(slots=True)
class Progress:
    """The org's counters, one row in the database, written in every commit.

    `group_number` tells after a failed COMMIT whether it happened. `next_position` is the next replay id.
    `numbers` are the next ones of the table of that name, as far as the running group has taken any.
    """

    group_number: int
    next_position: int
    commit_number: int
    access_generation: int
    catalog_version: int
    numbers: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Progress:
        """A value that later work cannot change."""
        return Progress(
            self.group_number,
            self.next_position,
            self.commit_number,
            self.access_generation,
            self.catalog_version,
            self.numbers.copy(),
        )


class BufferedInserts:
    """New rows that have not reached the database yet, by their INSERT."""

    __slots__ = ("_by_statement", "_count")

    def __init__(self) -> None:
        self._by_statement: dict[str, list[Sequence[SqlValue]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, sql: str, params: Sequence[SqlValue]) -> None:
        """One more row."""
        self._by_statement.setdefault(sql, []).append(params)
        self._count += 1

    def append_many(self, sql: str, rows: Sequence[Sequence[SqlValue]]) -> None:
        """More rows of one INSERT."""
        self._by_statement.setdefault(sql, []).extend(rows)
        self._count += len(rows)

    def extend(self, others: BufferedInserts) -> None:
        """The rows of somebody else, behind those that are here."""
        for sql, rows in others._by_statement.items():
            self._by_statement.setdefault(sql, []).extend(rows)
        self._count += others._count

    def insert(self, connection: Connection) -> None:
        """Put all of them into the database."""
        waiting, self._by_statement, self._count = self._by_statement, {}, 0
        for sql, rows in waiting.items():
            connection.execute_many(sql, rows)


class Transaction:
    """One member of a group commit: what can be undone without undoing the others.

    Work reads and writes through `execute`, takes numbers from `progress`, and leaves in-memory effects to
    `after_commit` callbacks, which run on the writer thread once the commit is durable and before anyone is
    told. New rows may be handed to `buffer_insert`: they reach the database many at a time, and before any other
    statement does, so that no statement can tell. Rows of `earlier` members of the group may still wait as well.

    A member that has only read, and left rows to be inserted later, is undone by forgetting them. Its first other
    statement is preceded by a SAVEPOINT: from then on it `is_guarded`. A statement that fails before leaves the
    group in doubt, and `has_broken_group` set.
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
        """What the transaction sees, but for the rows that it has waiting itself."""
        return _PastOwnRows(self)

    def execute(self, sql: str, params: Sequence[SqlValue] = ()) -> list[Row]:
        """Run one statement and return all its rows."""
        try:
            self._reach(is_read=sql.startswith("SELECT"))
            return self.connection.execute(sql, params)
        except Exception:
            self._note_failure()
            raise

    def execute_many(self, sql: str, rows: Iterable[Sequence[SqlValue]]) -> None:
        """Run one statement for each row."""
        try:
            self._reach(is_read=False)
            self.connection.execute_many(sql, rows)
        except Exception:
            self._note_failure()
            raise

    def execute_skipping_buffer(self, sql: str, params: Sequence[SqlValue] = ()) -> list[Row]:
        """Run a SELECT that need not see the rows which this transaction itself has waiting."""
        try:
            if self._earlier:
                self._earlier.insert(self.connection)
            return self.connection.execute(sql, params)
        except Exception:
            self._note_failure()
            raise

    def buffer_insert(self, sql: str, params: Sequence[SqlValue]) -> None:
        """Run an INSERT before the next other statement, or at the end."""
        self._rows.append(sql, params)
        if len(self._rows) >= _MAX_BUFFERED_INSERTS:
            self._insert_waiting()

    def buffer_inserts(self, sql: str, rows: Sequence[Sequence[SqlValue]]) -> None:
        """The same for many rows of one INSERT."""
        self._rows.append_many(sql, rows)
        if len(self._rows) >= _MAX_BUFFERED_INSERTS:
            self._insert_waiting()

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Run `callback` if, and only after, this transaction is durable. It must not fail."""
        self.callbacks.append(callback)

    def after_undo(self, callback: Callable[[], None]) -> None:
        """Run `callback`, on the writer thread, whenever what this transaction did is undone. It must not fail."""
        self.undo_callbacks.append(callback)

    # called by the writer

    def guard(self) -> None:
        """Make sure that whatever this transaction does from now on can be undone alone."""
        if self._earlier:
            self._earlier.insert(self.connection)
        if not self.is_guarded:
            self.connection.execute("SAVEPOINT member")
            self.is_guarded = True

    def finish(self) -> None:
        """Carry out what was left for the end, inside the savepoint, or leave it to the group if there is none."""
        if self.is_guarded:
            self._rows.insert(self.connection)
            return
        self._earlier.extend(self._rows)
        if len(self._earlier) >= _MAX_BUFFERED_INSERTS:
            try:
                self._earlier.insert(self.connection)
            except Exception:
                self._note_failure()
                raise

    def _insert_waiting(self) -> None:
        try:
            self._reach(is_read=False)
        except Exception:
            self._note_failure()
            raise

    def _note_failure(self) -> None:
        if not self.is_guarded:
            self.has_broken_group = True

    def _reach(self, *, is_read: bool) -> None:
        """Bring the database to where the next statement must find it."""
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
    """The counters as of this reader's commit."""
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
