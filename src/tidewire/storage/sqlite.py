"""SQLite as a store: WAL, synchronous=FULL, one writer, readers on threads of their own.

Every commit costs one fsync of the write-ahead log. Checkpoints run on a second connection and thread,
because inside a commit they would cost tens of milliseconds at the 99th percentile. A lock file beside the
database keeps a second process out.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TypeVar

from tidewire.errors import ConfigInvalid, DiskFull, OutcomeUnknown, PlatformError, StoreLocked, WriteConflict
from tidewire.storage.migrations import LAYOUT_VERSION, migrate
from tidewire.storage.store import Reader, Row, SqlValue

T = TypeVar("T")

_CHECKPOINT_WAL_BYTES = 4 << 20
_RESTART_WAL_BYTES = 32 << 20
_CHECKPOINT_EVERY_S = 0.5
_READER_THREADS = 4
_ROWS_AT_ONCE = (32, 8)
_MAX_VALUES = 32_000  # a statement takes 32,766 of them
_PLAIN_INSERT = re.compile(r"(INSERT INTO [^()]+ \([^()]+\) VALUES )(\([?, ]+\))")


class SqliteConnection:
    """A connection that leaves transactions to its caller. Tied to the thread that uses it."""

    def __init__(self, path: Path) -> None:
        # isolation_level None: sqlite3 starts no transaction behind our back.
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=512)
        self._db.execute("PRAGMA busy_timeout = 10000")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA wal_autocheckpoint = 0")
        self._db.execute("PRAGMA secure_delete = OFF")
        self._db.execute(
            "PRAGMA case_sensitive_like = ON"
        )  # keys are folded already; LIKE must not fold again
        self._db.execute("PRAGMA trusted_schema = OFF")

    def execute(self, sql: str, params: Sequence[SqlValue] = ()) -> list[Row]:
        return self._db.execute(sql, params).fetchall()

    def execute_many(self, sql: str, rows: Iterable[Sequence[SqlValue]]) -> None:
        # For each row the driver gives the interpreter up and has to get it back, which may take a busy loop
        # milliseconds. So many rows of an INSERT go into the database in one step.
        left = list(rows)
        for count in _ROWS_AT_ONCE:
            if len(left) >= count and (statement := _try_widen(sql, count)) is not None:
                done = len(left) - len(left) % count
                for start in range(0, done, count):
                    self._db.execute(statement, list(chain.from_iterable(left[start : start + count])))
                del left[:done]
        self._db.executemany(sql, left)

    def begin(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def begin_read(self) -> None:
        """Start a transaction that sees one commit until `rollback`."""
        self._db.execute("BEGIN")

    def commit(self) -> None:
        self._db.execute("COMMIT")

    def rollback(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def is_in_transaction(self) -> bool:
        return self._db.in_transaction

    def is_open(self) -> bool:
        return True

    def close(self) -> None:
        try:
            self._db.close()
        except sqlite3.Error:
            # Closing after an I/O error reports that error again; the caller has it already.
            return


class SqliteStore:
    """One org's file. Holds the directory's lock from construction until `close`.

    `first_position` is where the event log of a new file begins; an existing file keeps its own.
    """

    driver_errors: tuple[type[Exception], ...] = (sqlite3.Error,)
    idle_check_s: float | None = None

    def __init__(self, path: Path, first_position: int) -> None:
        self._path = path
        self._first_position = first_position
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock_fd = _lock(path.with_suffix(".lock"))
        self._local = threading.local()
        self._reader_connections: list[SqliteConnection] = []
        self._readers = ThreadPoolExecutor(_READER_THREADS, thread_name_prefix="reader")
        self._stop = threading.Event()
        self._checkpointer: threading.Thread | None = None

    def connect_writer(self) -> SqliteConnection:
        connection = SqliteConnection(self._path)
        ((version,),) = connection.execute("PRAGMA user_version")
        if version > LAYOUT_VERSION:
            raise ConfigInvalid(
                f"{self._path} was written by a newer Tidewire (layout {version}, this one knows {LAYOUT_VERSION})",
                setting="data",
            )
        if version < LAYOUT_VERSION:
            connection.begin()
            migrate(connection, version, self._first_position)
            connection.execute(f"PRAGMA user_version = {LAYOUT_VERSION}")
            connection.commit()
        if self._checkpointer is None:
            self._checkpointer = threading.Thread(
                target=self._checkpoint, args=(SqliteConnection(self._path),), name="checkpoint", daemon=True
            )
            self._checkpointer.start()
        return connection

    async def read(self, work: Callable[[Reader], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._read, work)

    def explain_failure(self, error: Exception) -> tuple[type[PlatformError], str, bool]:
        name = getattr(error, "sqlite_errorname", "")
        if name == "SQLITE_FULL":
            return DiskFull, "the disk is full; nothing was stored", False
        if name.startswith("SQLITE_IOERR") and "SYNC" in name:
            # The kernel may have dropped the dirty pages, so a second fsync would lie. Only a restart shows what is
            # stored.
            return OutcomeUnknown, "the disk refused to sync; whether the write survived is unknown", True
        if name.startswith("SQLITE_IOERR"):
            return DiskFull, "the disk could not be written; nothing was stored", False
        return WriteConflict, "the database rolled the transaction back; try again", False

    def close(self) -> None:
        self._stop.set()
        if self._checkpointer is not None:
            self._checkpointer.join()
        self._readers.shutdown(wait=True)
        for connection in self._reader_connections:
            connection.close()
        os.close(self._lock_fd)

    def _read(self, work: Callable[[Reader], T]) -> T:
        connection: SqliteConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = SqliteConnection(self._path)
            self._reader_connections.append(connection)
        connection.begin_read()
        try:
            return work(connection)
        finally:
            connection.rollback()

    def _checkpoint(self, connection: SqliteConnection) -> None:
        # A truncating checkpoint holds the writer's lock while it waits for readers: it must give up soon.
        connection.execute("PRAGMA busy_timeout = 50")
        wal = self._path.with_name(self._path.name + "-wal")
        while not self._stop.wait(_CHECKPOINT_EVERY_S):
            try:
                size_bytes = wal.stat().st_size
                if size_bytes > _CHECKPOINT_WAL_BYTES:
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
                if size_bytes > _RESTART_WAL_BYTES:
                    # Under steady writes a passive checkpoint never reaches the end, and the file would grow for
                    # ever. This one holds the writer up, but only for the few frames the other left.
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            except (OSError, sqlite3.Error):
                # A full disk or a vanished file is the writer's to report; the log keeps every frame
                # meanwhile.
                continue
        connection.close()


def _lock(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise StoreLocked(
            f"another process is using {path.parent}; stop it first", path=str(path.parent)
        ) from error
    return fd


@lru_cache(maxsize=256)
def _try_widen(sql: str, count: int) -> str | None:
    """Return an INSERT of one row as one of `count` rows; None for others, and for too many columns."""
    found = _PLAIN_INSERT.fullmatch(sql)
    if found is None or found[2].count("?") * count > _MAX_VALUES:
        return None
    return found[1] + ", ".join([found[2]] * count)
