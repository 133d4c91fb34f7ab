"""The locations of a server's orgs, and inspection of an org without opening it.

The first org is in the data directory itself. Each additional org has a directory `orgs/<org id>/org.db`, or
a schema named after the first one's, `tidewire_<org id>`. The locations are the truth: a running server finds
orgs that are added there, and closes those that are removed. All functions do I/O: call them off the loop.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tidewire.config import Settings
from tidewire.errors import ConfigInvalid, PlatformError, StoreLocked
from tidewire.ids import try_normalise_id
from tidewire.jobs.store import read_waiting
from tidewire.records.settings import read_settings
from tidewire.server.backup import load_postgres
from tidewire.server.bootstrap import try_read_identity
from tidewire.server.usernames import read_username_keys
from tidewire.storage.archive import SQLITE_MEMBER
from tidewire.storage.backup import explain_sqlite_errors, read_layout, require_database
from tidewire.storage.migrations import LAYOUT_VERSION
from tidewire.storage.sqlite import SqliteConnection
from tidewire.storage.store import Reader

ORGS_DIRECTORY = "orgs"
_LOCK_FILE = "org.lock"
_UNLOCK_WAIT_S = 30.0
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class OrgInspection:
    """What can be read from an org's store without opening the org."""

    org_id: str
    name: str
    layout: int
    username_keys: frozenset[str]
    client_ids: frozenset[str]
    cors_origins: tuple[str, ...]
    has_jobs: bool


def additional_org_settings(settings: Settings, org_id: str) -> Settings:
    """Return the settings of an additional org of the same server."""
    directory = str(Path(settings.data) / ORGS_DIRECTORY / org_id)
    if settings.store == "sqlite":
        return replace(settings, data=directory, dev=False)
    schemas = load_postgres()
    name = f"{schemas.schema_of(settings.store)}_{org_id.lower()}"
    return replace(settings, data=directory, store=schemas.with_schema(settings.store, name), dev=False)


def list_additional_orgs(settings: Settings) -> list[str]:
    """List the ids of all additional orgs, sorted. A location may exist before its org does."""
    if settings.store == "sqlite":
        try:
            names = os.listdir(Path(settings.data) / ORGS_DIRECTORY)
        except FileNotFoundError:
            return []
        # Other names are orgs being created or removed.
        return sorted(name for name in names if try_normalise_id(name) == name and name.startswith("00D"))
    schemas = load_postgres()
    prefix = schemas.schema_of(settings.store) + "_"
    found = [name.removeprefix(prefix) for name in schemas.list_schemas(settings.store, prefix)]
    return sorted(
        org_id for name in found if name.startswith("00d") and (org_id := try_normalise_id(name.upper()))
    )


def locations_stamp(settings: Settings) -> int:
    """Return a number that changes when an org's directory is added or removed; -1 if unknown (PostgreSQL)."""
    if settings.store != "sqlite":
        return -1
    try:
        return (Path(settings.data) / ORGS_DIRECTORY).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


@contextmanager
def open_stored_org(settings: Settings) -> Iterator[tuple[Reader, int]]:
    """Read an org's store, which a server may be using; yields a reader and the layout, 0 if there is none.

    Raises ConfigInvalid if there is no store.
    """
    if settings.store != "sqlite":
        postgres = load_postgres()
        with postgres.open_snapshot(settings.store) as (reader, _):
            yield reader, postgres.read_layout(reader)
        return
    path = Path(settings.data) / SQLITE_MEMBER
    require_database(path)
    with explain_sqlite_errors(path), closing(SqliteConnection(path)) as connection:
        layout = read_layout(connection)
        connection.begin_read()
        yield connection, layout


def inspect_org(settings: Settings) -> OrgInspection:
    """Read the org of these settings, which a server may be using. Raises ConfigInvalid if there is none."""
    with open_stored_org(settings) as (reader, layout):
        identity = try_read_identity(reader) if layout else None
        if identity is None:
            raise ConfigInvalid(f"{settings.data} holds no org", setting="data")
        return OrgInspection(
            identity.org_id,
            identity.name,
            layout,
            frozenset(read_username_keys(reader)),
            read_client_ids(reader),
            read_settings(reader).cors_allowed_origins,
            layout == LAYOUT_VERSION and bool(read_waiting(reader, 1)),
        )


def try_inspect_org(settings: Settings) -> OrgInspection | None:
    """Like `inspect_org`, but None if there is no readable org."""
    try:
        return inspect_org(settings)
    except PlatformError:
        return None


def find_settings(settings: Settings, org_id: str) -> Settings:
    """Return the settings of the org with this id; the first org's for an empty id.

    Raises ConfigInvalid if there is no such org.
    """
    if not org_id:
        return settings
    wanted = try_normalise_id(org_id)
    first = try_inspect_org(settings)
    if first is not None and first.org_id == wanted:
        return settings
    if wanted is None or wanted not in list_additional_orgs(settings):
        raise unknown_org(org_id)
    return additional_org_settings(settings, wanted)


def unknown_org(org_id: str) -> ConfigInvalid:
    """Return the error for an id that no org has."""
    return ConfigInvalid(f"there is no org {org_id[:18]}; `tidewire org list` shows all orgs", setting="org")


def list_settings(settings: Settings) -> list[Settings]:
    """Return the settings of every org, beginning with the first."""
    return [
        settings,
        *(additional_org_settings(settings, org_id) for org_id in list_additional_orgs(settings)),
    ]


@contextmanager
def creating_location(settings: Settings, org_id: str) -> Iterator[Settings]:
    """Yield settings for creating an additional org, which becomes visible only when all is done."""
    final = additional_org_settings(settings, org_id)
    if settings.store != "sqlite":
        yield final
        return
    scratch = Path(settings.data) / ORGS_DIRECTORY / f".new-{org_id}"
    try:
        yield replace(final, data=str(scratch))
        scratch.rename(final.data)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def remove_location(settings: Settings, org_id: str) -> None:
    """Delete an additional org for good.

    A running server notices within seconds that an org's directory is gone and closes the org; nothing is
    deleted before that. An org in PostgreSQL cannot be removed while a server uses it. Raises StoreLocked.
    """
    location = additional_org_settings(settings, org_id)
    if settings.store != "sqlite":
        load_postgres().drop_schema(location.store)
        return
    doomed = Path(settings.data) / ORGS_DIRECTORY / f".removed-{org_id}"
    Path(location.data).rename(doomed)
    _wait_unlocked(doomed)
    shutil.rmtree(doomed)


def _wait_unlocked(directory: Path) -> None:
    """Wait until no server holds the lock, which moved along with its directory."""
    pause = threading.Event()
    fd = os.open(directory / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        for _ in range(round(_UNLOCK_WAIT_S / _POLL_S)):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                pause.wait(_POLL_S)
            else:
                return
    finally:
        os.close(fd)
    raise StoreLocked(
        f"a server still uses {directory}, where the org was moved; delete it once the server has stopped",
        path=str(directory),
    )


def read_client_ids(reader: Reader) -> frozenset[str]:
    """Read the ids of an org's connected apps."""
    return frozenset(str(row[0]) for row in reader.execute("SELECT client_id FROM connected_apps"))
