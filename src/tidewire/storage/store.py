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


class Reader(Protocol):
    """A read transaction: every statement sees the same commit."""

    def execute(self, sql: str, params: Sequence[SqlValue] = ()) -> list[Row]:
        """Run one statement and return all its rows."""


class Connection(Reader, Protocol):
    """The writer's connection. Only the writer thread touches it."""

    def execute_many(self, sql: str, rows: Iterable[Sequence[SqlValue]]) -> None:
        """Run one statement for each row."""

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
    """

    group_number: int
    next_position: int
    commit_number: int
    access_generation: int
    catalog_version: int

    def copy(self) -> Progress:
        """A value that later work cannot change."""
        return Progress(
            self.group_number,
            self.next_position,
            self.commit_number,
            self.access_generation,
            self.catalog_version,
        )


@dataclass(slots=True)
class Transaction:
    """One member of a group commit: a savepoint's worth of work.

    Work reads and writes through `execute`, takes numbers from `progress`, and leaves in-memory effects to
    `after_commit`
    callbacks, which run on the writer thread once the commit is durable and before anyone is told.
    """

    connection: Connection
    progress: Progress
    events: list[Event] = field(default_factory=list)
    ended_sessions: list[str] = field(default_factory=list)
    callbacks: list[Callable[[], None]] = field(default_factory=list)

    def execute(self, sql: str, params: Sequence[SqlValue] = ()) -> list[Row]:
        """Run one statement and return all its rows."""
        return self.connection.execute(sql, params)

    def execute_many(self, sql: str, rows: Iterable[Sequence[SqlValue]]) -> None:
        """Run one statement for each row."""
        self.connection.execute_many(sql, rows)

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Run `callback` if, and only after, this transaction is durable. It must not fail."""
        self.callbacks.append(callback)


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
