"""Copying a SQLite store while it is written, and restoring it.

A copy is one read transaction through SQLite's own backup call. In WAL mode it does not block the writer;
only the log cannot be truncated until the copy is done. A restored file gets its name last, after all changes
in it are on disk, so an interrupted restore leaves no org behind.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tidewire.errors import ConfigInvalid, DiskFull, LogCorrupt
from tidewire.storage.archive import SQLITE_MEMBER, Archive, explain_os_errors, sync_directory
from tidewire.storage.sqlite import SqliteConnection, SqliteStore

TLS_DIRECTORY = "tls"
_LOCK_FILE = "org.lock"


def copy_database(source: Path, target: Path) -> None:
    """Make `target` a copy of one commit of `source`, which may be in use by a server."""
    require_database(source)
    # mode=rw: a missing file must not be made; a log left by a crash may have to be read in.
    address = f"{source.resolve().as_uri()}?mode=rw"
    with (
        explain_sqlite_errors(source),
        closing(sqlite3.connect(address, uri=True)) as reading,
        closing(sqlite3.connect(target)) as writing,
    ):
        reading.execute("PRAGMA busy_timeout = 10000")
        writing.execute("PRAGMA synchronous = OFF")  # the backup file is synced, this copy is not kept
        reading.backup(writing)  # all pages in one step: one read transaction, never begun again


@contextmanager
def open_copy(path: Path) -> Iterator[SqliteConnection]:
    """Open a database file that nobody else uses, and leave it as one whole file without a write-ahead log."""
    with explain_sqlite_errors(path):
        connection = SqliteConnection(path)
        try:
            yield connection
            connection.execute("PRAGMA journal_mode = DELETE")
        finally:
            connection.close()


def read_layout(connection: SqliteConnection) -> int:
    """Return the layout version of a database."""
    ((version,),) = connection.execute("PRAGMA user_version")
    return int(version)


def require_database(path: Path) -> None:
    """Raise ConfigInvalid unless there is a database to work on; opening it would create one."""
    if not path.is_file():
        raise ConfigInvalid(f"{path.parent} holds no org", setting="data")


def require_empty(data: Path) -> None:
    """Raise ConfigInvalid unless the directory is missing or empty."""
    with explain_os_errors(data):
        if data.exists() and (not data.is_dir() or any(data.iterdir())):
            raise ConfigInvalid(f"{data} is not empty; a restore overwrites nothing", setting="data")


def restore_database(archive: Archive, data: Path, statements: Iterable[str]) -> None:
    """Restore the database and certificates of a backup into an empty directory, and run `statements` on it."""

    def unpack() -> None:
        partial = data / (SQLITE_MEMBER + ".partial")
        archive.extract(SQLITE_MEMBER, partial)
        with open_copy(partial) as connection:
            connection.begin()
            for statement in statements:
                connection.execute(statement)
            connection.commit()
        restore_certificates(archive, data)
        partial.rename(data / SQLITE_MEMBER)
        sync_directory(data)

    fill_directory(data, unpack)


def restore_certificates(archive: Archive, data: Path) -> None:
    """Restore the certificates of a backup, if it has any, to where a server reads them."""
    names = [name for name in archive.manifest.files if name.startswith(TLS_DIRECTORY + "/")]
    if names:
        (data / TLS_DIRECTORY).mkdir(mode=0o700)
        for name in names:
            archive.extract(name, data / name)
        sync_directory(data / TLS_DIRECTORY)


def fill_directory(data: Path, fill: Callable[[], None]) -> None:
    """Run `fill` on an empty directory under its lock; leaves it as it was if that fails."""
    require_empty(data)
    was_there = data.exists()
    with explain_os_errors(data):
        # Only its lock is used: no server may start here before the org has its name.
        store = SqliteStore(data / SQLITE_MEMBER, 0)
        try:
            if {path.name for path in data.iterdir()} - {_LOCK_FILE}:
                raise ConfigInvalid(f"{data} is being filled by somebody else", setting="data")
            try:
                fill()
                sync_directory(data.parent)
            except BaseException:
                _empty(data)
                if not was_there:
                    data.rmdir()
                raise
        finally:
            store.close()


def _empty(data: Path) -> None:
    for path in data.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def explain_sqlite_errors(path: Path) -> Iterator[None]:
    """Raise errors of SQLite as errors of ours."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        if name == "SQLITE_FULL":
            raise DiskFull(f"the disk is full; {path} was not copied") from error
        raise LogCorrupt(f"{path} cannot be read as an org's database: {error}") from error
