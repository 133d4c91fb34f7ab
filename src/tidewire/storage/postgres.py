"""PostgreSQL as a store: one schema per org, one writing process, readers on threads of their own.

Who may write. The writer's session holds an advisory lock on the org's schema, so lock and writes die
together: as long as an old session could still commit, no other one gets the lock. The row in `holder` names
the process that had the lock last. A process that lost its session may take the lock again and go on only if
it still finds itself named there; otherwise somebody else has written meanwhile and what this process keeps
in memory is stale, so it must stop. A second server on the same org is refused at start with StoreLocked.

A COMMIT without an answer is resolved by the next session: once it has the lock the old one is gone, and the
group number says what became of it. PostgreSQL itself stops rather than repeat a failed fsync, so that
number shows the outcome of its recovery.

Differences that are evened out here: numbers and truth values are sent as BIGINT, NUMERIC sums come back as
int or float, and a read that meets a table which retention has just dropped (tables, unlike rows, are seen as
of now) is run again. The server must be reached directly or through a session pool: transaction pooling takes
the lock away.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import errors as pg
from psycopg.abc import Buffer
from psycopg.adapt import Dumper, Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumper

from tidewire.errors import (
    ConfigInvalid,
    DiskFull,
    PlatformError,
    StoreClosed,
    StoreLocked,
    ValueMalformed,
    WriteConflict,
)
from tidewire.storage.dialect import render_postgres, try_render_copy
from tidewire.storage.migrations import LAYOUT_VERSION, migrate
from tidewire.storage.store import Reader, Row, SqlValue

T = TypeVar("T")
log = logging.getLogger(__name__)

DEFAULT_SCHEMA = "tidewire"
_SCHEMA_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)
_LOCK_SPACE = 0x54494445 << 32  # "TIDE": keeps our locks apart from those of other programs
_READER_THREADS = 4
_COPY_FROM_ROWS = 4  # a COPY is planned anew each time; for fewer rows a prepared INSERT is sooner done
_LOCK_WAIT_S = 10.0  # the session of a killed server ends as soon as its last statement does
_IDLE_CHECK_S = 5.0
_RECONNECT_TRIES = 60
_RECONNECT_EVERY_S = 0.5
# Defaults that the address may override. Either end notices within half a minute that the other's machine is gone.
_CONNECTION = {
    "application_name": "tidewire",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}
_SESSION = {
    "synchronous_commit": "on",
    "standard_conforming_strings": "on",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "lock_timeout": "10s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
# Errors of a session that the server ends; an error without a code means that the connection broke.
_CONNECTION_ENDS = (pg.AdminShutdown, pg.CrashShutdown, pg.CannotConnectNow)


def parse_store_url(url: str) -> tuple[str, str]:
    """Split an address into parameters of libpq and the schema (`?schema=NAME`). Raises ConfigInvalid."""
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
        others = urlencode([(name, value) for name, value in query if name != "schema"])
        known = conninfo_to_dict(urlunsplit(parts._replace(query=others)))
    except (ValueError, psycopg.ProgrammingError) as error:
        # libpq's own message may repeat the address, and with it the password.
        raise ConfigInvalid(
            "store: this is not an address of the form postgresql://USER@HOST/DATABASE", setting="store"
        ) from error
    (*_, schema) = [DEFAULT_SCHEMA, *(value for name, value in query if name == "schema")]
    if _SCHEMA_NAME.fullmatch(schema) is None or schema.startswith("pg_"):
        raise ConfigInvalid(
            "store: a schema is named by up to 63 of a-z, 0-9 and _, beginning with a letter", setting="store"
        )
    return make_conninfo("", **{**_CONNECTION, **known, "client_encoding": "UTF8"}), schema


class _BoolDumper(Dumper):
    """Load a boolean as the number that SQLite returns for it."""

    oid = Int8Dumper.oid

    def dump(self, obj: bool) -> Buffer:
        return b"1" if obj else b"0"


class _NumericLoader(Loader):
    """Load SUM and AVG of BIGINT as SQLite returns them: an integer or a double."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data)
        return int(text) if text.lstrip(b"-").isdigit() else float(text)


class PostgresConnection:
    """A connection that leaves transactions to its caller. Tied to the thread that uses it."""

    def __init__(self, conninfo: str, schema: str) -> None:
        # autocommit: psycopg starts no transaction behind our back
        self._db = psycopg.connect(conninfo, autocommit=True, cursor_factory=psycopg.RawCursor)
        with _closed_on_error(self):
            self._set_up(schema)

    @property
    def backend_pid(self) -> int:
        """Return the server process behind this connection, as pg_stat_activity names it."""
        return self._db.info.backend_pid

    def execute(self, sql: str, params: Sequence[SqlValue] = ()) -> list[Row]:
        try:
            cursor = self._db.execute(render_postgres(sql), params)
        except psycopg.DataError as error:
            raise _explain_data(error, [params]) from error
        return cursor.fetchall() if cursor.description is not None else []

    def execute_many(self, sql: str, rows: Iterable[Sequence[SqlValue]]) -> None:
        listed = list(rows)
        copy = try_render_copy(sql) if len(listed) >= _COPY_FROM_ROWS else None
        try:
            if copy is None:
                self._db.cursor().executemany(render_postgres(sql), listed)
            else:
                self._copy(copy, listed)
        except psycopg.DataError as error:
            raise _explain_data(error, listed) from error

    def _copy(self, statement: str, rows: Iterable[Sequence[SqlValue]]) -> None:
        with self._db.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)

    def begin(self) -> None:
        self._db.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")

    def begin_read(self) -> None:
        """Start a transaction that sees one commit, from its first statement until `commit` or `rollback`."""
        self._db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def commit(self) -> None:
        # PostgreSQL answers the COMMIT of a failed transaction by undoing it, and calls that a success.
        if self._db.execute("COMMIT").statusmessage != "COMMIT":
            raise pg.InFailedSqlTransaction("the transaction had failed and was rolled back")

    def rollback(self) -> None:
        if self.is_in_transaction():
            self._db.execute("ROLLBACK")

    def is_in_transaction(self) -> bool:
        return self._db.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)

    def is_open(self) -> bool:
        return not self._db.closed

    def close(self) -> None:
        self._db.close()

    def _set_up(self, schema: str) -> None:
        self._db.prepared_max = 512
        adapters = self._db.adapters
        # Always the same type for the same kind of value, so that a statement is planned once.
        adapters.register_dumper(int, Int8Dumper)
        adapters.register_dumper(bool, _BoolDumper)
        adapters.register_dumper(str, StrDumper)
        adapters.register_loader("numeric", _NumericLoader)
        settings = {"search_path": schema, **_SESSION}
        calls = ", ".join(f"set_config(${2 * n + 1}, ${2 * n + 2}, false)" for n in range(len(settings)))
        self._db.execute(f"SELECT {calls}", [word for pair in settings.items() for word in pair])


class PostgresStore:
    """One org's schema. Holds the org's lock from construction until `close`.

    `first_position` is where the event log of a new org begins; an existing one keeps its own.
    """

    driver_errors: tuple[type[Exception], ...] = (psycopg.Error,)

    def __init__(
        self,
        url: str,
        first_position: int,
        *,
        lock_wait_s: float = _LOCK_WAIT_S,
        idle_check_s: float = _IDLE_CHECK_S,
    ) -> None:
        self.idle_check_s: float | None = idle_check_s
        self._conninfo, self._schema = parse_store_url(url)
        self._first_position = first_position
        self._lock_wait_s = lock_wait_s
        self._holder = uuid.uuid4().hex
        self._closing = threading.Event()
        self._local = threading.local()
        self._reader_connections: set[PostgresConnection] = set()
        self._writer_connection: PostgresConnection | None = None
        try:
            connection = self._connect_locked()
            with _closed_on_error(connection):
                self._prepare(connection)
        except psycopg.Error as error:
            # The driver's message never repeats the password.
            reason = str(error).strip().splitlines()[0]
            raise ConfigInvalid(f"store: PostgreSQL cannot be used: {reason}", setting="store") from error
        self._writer_connection = connection
        self._readers = ThreadPoolExecutor(_READER_THREADS, thread_name_prefix="reader")

    def connect_writer(self) -> PostgresConnection:
        """Return the connection that holds the lock; if it was lost, a new one that has taken the lock again."""
        connection = self._writer_connection
        if connection is not None and connection.is_open():
            return connection
        if self._closing.is_set():
            raise StoreClosed("the store is closed")
        connection = self._reconnect_locked()
        with _closed_on_error(connection):
            if connection.execute("SELECT name FROM holder") != [(self._holder,)]:
                raise StoreLocked(
                    "another process has written this org since the connection was lost", path=self._schema
                )
        self._writer_connection = connection
        return connection

    async def read(self, work: Callable[[Reader], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._read, work)

    def explain_failure(self, error: Exception) -> tuple[type[PlatformError], str, bool]:
        if isinstance(error, pg.DiskFull):
            return DiskFull, "the database's disk is full; nothing was stored", False
        if isinstance(error, _CONNECTION_ENDS) or (
            isinstance(error, psycopg.OperationalError) and error.sqlstate is None
        ):
            return WriteConflict, "the connection to the database was lost; nothing was stored", False
        return WriteConflict, "the database rolled the transaction back; try again", False

    def close(self) -> None:
        self._closing.set()
        self._readers.shutdown(wait=True)
        for connection in self._reader_connections:
            connection.close()
        if self._writer_connection is not None:
            self._writer_connection.close()

    def _reconnect_locked(self) -> PostgresConnection:
        """Connect to a server that may be restarting: wait for it a while."""
        for _ in range(_RECONNECT_TRIES - 1):
            try:
                return self._connect_locked()
            except psycopg.OperationalError as error:
                log.warning("storage.reconnect_failed", exc_info=error)
                self._closing.wait(_RECONNECT_EVERY_S)
        return self._connect_locked()

    def _connect_locked(self) -> PostgresConnection:
        """Open a connection that holds the org's lock. Raises StoreLocked if another session keeps it."""
        connection = PostgresConnection(self._conninfo, self._schema)
        with _closed_on_error(connection):
            key = _LOCK_SPACE | self._ensure_schema(connection)
            wait = f"{round(self._lock_wait_s * 1000)}ms"
            connection.execute("SELECT set_config('lock_timeout', ?, false)", (wait,))
            try:
                connection.execute("SELECT pg_advisory_lock(?)", (key,))
            except pg.LockNotAvailable as error:
                raise StoreLocked(
                    f"another server is using the org in schema {self._schema}; stop it first",
                    path=self._schema,
                ) from error
            connection.execute("SELECT set_config('lock_timeout', ?, false)", (_SESSION["lock_timeout"],))
        return connection

    def _ensure_schema(self, connection: PostgresConnection) -> int:
        """Create the schema if it is missing; return its number, which is unique in the database."""
        find = "SELECT CAST(oid AS INTEGER) FROM pg_namespace WHERE nspname = ?"
        rows = connection.execute(find, (self._schema,))
        if not rows:
            # Another server may make it at the same moment.
            with contextlib.suppress(pg.UniqueViolation, pg.DuplicateSchema):
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self._schema}")  # its form was checked
            rows = connection.execute(find, (self._schema,))
        return int(rows[0][0])

    def _prepare(self, connection: PostgresConnection) -> None:
        """Bring the layout up to date and name this process as the holder of the lock."""
        connection.begin()
        connection.execute("CREATE TABLE IF NOT EXISTS layout (version INTEGER NOT NULL)")
        connection.execute("CREATE TABLE IF NOT EXISTS holder (name TEXT NOT NULL)")
        rows = connection.execute("SELECT version FROM layout")
        version = int(rows[0][0]) if rows else 0
        if version > LAYOUT_VERSION:
            raise ConfigInvalid(
                f"schema {self._schema} was written by a newer Tidewire"
                f" (layout {version}, this one knows {LAYOUT_VERSION})",
                setting="store",
            )
        if version < LAYOUT_VERSION:
            migrate(connection, version, self._first_position)
            connection.execute("DELETE FROM layout")
            connection.execute("INSERT INTO layout (version) VALUES (?)", (LAYOUT_VERSION,))
        connection.execute("DELETE FROM holder")
        connection.execute("INSERT INTO holder (name) VALUES (?)", (self._holder,))
        connection.commit()

    def _read(self, work: Callable[[Reader], T]) -> T:
        try:
            return self._read_once(work)
        except (psycopg.OperationalError, pg.UndefinedTable) as error:
            # A connection that died while idle says so only when it is used. A table that is missing was dropped
            # between this reader's snapshot and its statement.
            log.info("storage.read_rerun", exc_info=error)
        try:
            return self._read_once(work)
        except psycopg.OperationalError as error:
            raise StoreClosed("the database cannot be reached now; try again later") from error

    def _read_once(self, work: Callable[[Reader], T]) -> T:
        connection = self._reader()
        try:
            connection.begin_read()
            result = work(connection)
            # Nothing was written; psycopg forgets its prepared statements after a ROLLBACK.
            connection.commit()
        except BaseException:
            if connection.is_open():
                connection.rollback()
            raise
        return result

    def _reader(self) -> PostgresConnection:
        connection: PostgresConnection | None = getattr(self._local, "connection", None)
        if connection is None or not connection.is_open():
            if connection is not None:
                self._reader_connections.discard(connection)
            connection = self._local.connection = PostgresConnection(self._conninfo, self._schema)
            self._reader_connections.add(connection)
        return connection


@contextlib.contextmanager
def _closed_on_error(connection: PostgresConnection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _explain_data(error: psycopg.DataError, rows: Iterable[Sequence[SqlValue]]) -> Exception:
    if any(isinstance(param, str) and "\0" in param for params in rows for param in params):
        return ValueMalformed("text with a NUL character cannot be stored or looked for", fields=[])
    return error
