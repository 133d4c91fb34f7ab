"""Back up and restore one org, in any store.

A backup needs no running server and disturbs none. A restore starts a new incarnation of the event log (see
`eventlog.log`), raises the counters of record ids (see `records.numbers`) and deletes the login sessions and
tokens of the copy, all in the transaction that creates the org.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tidewire import __version__
from tidewire.clock import Clock
from tidewire.config import Settings
from tidewire.errors import ConfigInvalid
from tidewire.eventlog.backends import make_event_log
from tidewire.eventlog.log import first_position_after
from tidewire.records.numbers import restore_statements
from tidewire.server.bootstrap import try_read_identity
from tidewire.storage.archive import (
    FORMAT,
    POSTGRES_MEMBER,
    SQLITE_MEMBER,
    Archive,
    Manifest,
    measure_file,
    open_archive,
    reserve_file,
    write_archive,
)
from tidewire.storage.backup import (
    TLS_DIRECTORY,
    copy_database,
    fill_directory,
    open_copy,
    read_layout,
    require_database,
    require_empty,
    restore_certificates,
    restore_database,
)
from tidewire.storage.migrations import LAYOUT_VERSION
from tidewire.storage.store import Reader, read_progress

_OAUTH_LAYOUT = 4  # the first layout with tokens other than those of login sessions


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore: the manifest, and the first position of new events."""

    manifest: Manifest
    first_position: int


@dataclass(frozen=True, slots=True)
class _Contents:
    """The identity of the org in a copied database."""

    layout: int
    org_id: str
    head: int


def make_backup(settings: Settings, clock: Clock, to: Path, *, with_tls: bool) -> Manifest:
    """Copy the org to a new file. Raises ConfigInvalid, DiskFull or LogCorrupt, and leaves no file then."""
    certificates = _find_certificates(Path(settings.data)) if with_tls else {}
    # Read before the copy: a restore assumes that the log may have grown since then, never less.
    created_ms = clock.now_ms()
    with reserve_file(to) as scratch:
        if settings.store == "sqlite":
            name, schema = SQLITE_MEMBER, ""
            contents = _copy_sqlite(Path(settings.data), scratch / name)
        else:
            postgres = load_postgres()
            name, schema = POSTGRES_MEMBER, postgres.schema_of(settings.store)
            contents = _dump_postgres(postgres, settings.store, scratch / name)
        sources = {name: scratch / name, **certificates}
        manifest = Manifest(
            format=FORMAT,
            tidewire=__version__,
            layout=contents.layout,
            org_id=contents.org_id,
            head=contents.head,
            created_ms=created_ms,
            schema=schema,
            files={member: measure_file(path) for member, path in sources.items()},
        )
        write_archive(to, manifest, sources, scratch)
    return manifest


def restore_backup(file: Path, settings: Settings, clock: Clock) -> Restored:
    """Restore the org of a backup into an empty directory or a new schema.

    Raises ConfigInvalid, DiskFull or LogCorrupt, and leaves no org then.
    """
    data = Path(settings.data)
    with open_archive(file) as archive:
        manifest = archive.manifest
        _check_fits(manifest, settings, file)
        first = first_position_after(manifest.head, manifest.created_ms, clock.now_ms())
        statements = (
            *make_event_log().incarnation_statements(manifest.head, first),
            *restore_statements(manifest.created_ms, clock.now_ms()),
            *_token_statements(manifest.layout),
        )
        if settings.store == "sqlite":
            restore_database(archive, data, statements)
        else:
            _restore_postgres(archive, data, settings.store, statements)
    return Restored(manifest, first)


def _token_statements(layout: int) -> tuple[str, ...]:
    """Return SQL that ends all logins of the copy, which may have been revoked since the backup."""
    tables: tuple[str, ...] = ("login_sessions",)
    if layout >= _OAUTH_LAYOUT:
        tables += ("refresh_tokens", "authorization_codes", "device_codes")
    return tuple(f"DELETE FROM {table}" for table in tables)  # noqa: S608  # constants


def load_postgres() -> ModuleType:
    """Load the PostgreSQL functions, whose driver is an extra.

    Raises ConfigInvalid if it is not installed.
    """
    try:
        from tidewire.storage import postgres_schemas
    except ImportError as error:
        raise ConfigInvalid(
            "store: the PostgreSQL driver is missing; install tidewire[postgres]", setting="store"
        ) from error
    return postgres_schemas


def _find_certificates(data: Path) -> dict[str, Path]:
    found = {f"{TLS_DIRECTORY}/{path.name}": path for path in sorted((data / TLS_DIRECTORY).glob("*.pem"))}
    if not found:
        raise ConfigInvalid(
            f"{data} has no certificates yet; start the server once to create them", setting="data"
        )
    return found


def _copy_sqlite(data: Path, target: Path) -> _Contents:
    require_database(data / SQLITE_MEMBER)
    copy_database(data / SQLITE_MEMBER, target)
    with open_copy(target) as connection:
        layout = read_layout(connection)
        if layout == 0:
            raise ConfigInvalid(f"{data} holds no org", setting="data")
        return _read_contents(connection, layout)


def _dump_postgres(postgres: ModuleType, url: str, target: Path) -> _Contents:
    postgres.require_programs("pg_dump")
    with postgres.open_snapshot(url) as (reader, snapshot):
        contents = _read_contents(reader, postgres.read_layout(reader))
        postgres.dump_schema(url, snapshot, target)
    return contents


def _read_contents(reader: Reader, layout: int) -> _Contents:
    identity = try_read_identity(reader)
    if identity is None:
        raise ConfigInvalid("there is no org yet; run `tidewire init` first", setting="data")
    return _Contents(layout, identity.org_id, read_progress(reader).next_position - 1)


def _check_fits(manifest: Manifest, settings: Settings, file: Path) -> None:
    """Raise ConfigInvalid if this backup cannot be restored here."""
    if manifest.layout > LAYOUT_VERSION:
        raise ConfigInvalid(
            f"{file} was written by a newer Tidewire (layout {manifest.layout}, this one knows {LAYOUT_VERSION})",
            setting="file",
        )
    is_sqlite = SQLITE_MEMBER in manifest.files
    if is_sqlite != (settings.store == "sqlite"):
        kind = "SQLite" if is_sqlite else "PostgreSQL"
        raise ConfigInvalid(
            f"{file} is a backup of {kind}; restore it into the same kind of store", setting="store"
        )
    if not is_sqlite and load_postgres().schema_of(settings.store) != manifest.schema:
        raise ConfigInvalid(
            f"{file} is a backup of the schema {manifest.schema}; name it in --store (?schema={manifest.schema})",
            setting="store",
        )


def _restore_postgres(archive: Archive, data: Path, url: str, statements: tuple[str, ...]) -> None:
    postgres = load_postgres()
    postgres.require_programs("psql")
    postgres.require_no_schema(url)
    require_empty(data)

    def fill() -> None:
        dump = data / POSTGRES_MEMBER
        archive.extract(POSTGRES_MEMBER, dump)
        restore_certificates(archive, data)
        postgres.load_schema(url, dump, statements)
        dump.unlink()

    fill_directory(data, fill)
