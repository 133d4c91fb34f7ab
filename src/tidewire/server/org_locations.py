"""Where the orgs of a server live, and what can be told of one without opening it.

The first org is the data directory's own. Further ones have a directory each, `orgs/<org id>/org.db`, or a
schema each, named after the first one's: `tidewire_<org id>`. These places are the truth: what is put there
while a server runs is found by it, and what is taken away is gone. All functions do I/O: call them off the
loop.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

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
_LETS_GO_S = 30.0
_LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class OrgInspection:
    """What a look at an org's store tells."""

    org_id: str
    name: str
    layout: int
    username_keys: frozenset[str]
    client_ids: frozenset[str]
    cors_origins: tuple[str, ...]
    has_jobs: bool


def additional_org_settings(settings: Settings, org_id: str) -> Settings:
    """The settings of another org of the same server."""
    directory = str(Path(settings.data) / ORGS_DIRECTORY / org_id)
    if settings.store == "sqlite":
        return replace(settings, data=directory, dev=False)
    schemas = _load_schemas()
    name = f"{load_postgres().schema_of(settings.store)}_{org_id.lower()}"
    return replace(settings, data=directory, store=schemas.with_schema(settings.store, name), dev=False)


def list_additional_orgs(settings: Settings) -> list[str]:
    """The ids of all orgs but the first, sorted. A place may be there before its org is."""
    if settings.store == "sqlite":
        try:
            names = os.listdir(Path(settings.data) / ORGS_DIRECTORY)
        except FileNotFoundError:
            return []
        # Other names are orgs being made or removed.
        return sorted(name for name in names if try_normalise_id(name) == name and name.startswith("00D"))
    prefix = load_postgres().schema_of(settings.store) + "_"
    found = [name.removeprefix(prefix) for name in _load_schemas().list_schemas(settings.store, prefix)]
    return sorted(
        org_id for name in found if name.startswith("00d") and (org_id := try_normalise_id(name.upper()))
    )


def locations_stamp(settings: Settings) -> int:
    """A number that changes when an org's directory comes or goes; always another for PostgreSQL, which has
    none.
    """
    if settings.store != "sqlite":
        return -1
    try:
        return (Path(settings.data) / ORGS_DIRECTORY).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def inspect_org(settings: Settings) -> OrgInspection:
    """Look at the org of these settings, which a server may be using.

    Raises ConfigInvalid if there is none.
    """
    if settings.store != "sqlite":
        postgres = load_postgres()
        with postgres.open_snapshot(settings.store) as (reader, _):
            return _inspect(reader, postgres.read_layout(reader), settings)
    path = Path(settings.data) / SQLITE_MEMBER
    require_database(path)
    with explain_sqlite_errors(path):
        connection = SqliteConnection(path)
        try:
            layout = read_layout(connection)
            if layout == 0:
                raise ConfigInvalid(f"{settings.data} holds no org", setting="data")
            connection.begin_read()
            return _inspect(connection, layout, settings)
        finally:
            connection.close()


def try_inspect_org(settings: Settings) -> OrgInspection | None:
    """Like `inspect_org`; None if there is no org that can be read."""
    try:
        return inspect_org(settings)
    except PlatformError:
        return None


def find_settings(settings: Settings, org_id: str) -> Settings:
    """The settings of the org with this id, whichever place it has; the first one's for an empty id.

    Raises ConfigInvalid if there is no such org.
    """
    if not org_id:
        return settings
    wanted = try_normalise_id(org_id)
    first = try_inspect_org(settings)
    if first is not None and first.org_id == wanted:
        return settings
    if wanted is None or wanted not in list_additional_orgs(settings):
        raise ConfigInvalid(
            f"there is no org {org_id[:18]} here; `tidewire org list` shows all", setting="org"
        )
    return additional_org_settings(settings, wanted)


def list_settings(settings: Settings) -> list[Settings]:
    """The settings of every org, the first one's first."""
    return [
        settings,
        *(additional_org_settings(settings, org_id) for org_id in list_additional_orgs(settings)),
    ]


@contextmanager
def creating_location(settings: Settings, org_id: str) -> Iterator[Settings]:
    """Settings under which a further org can be made; it is found under its id once all is done, or not at
    all.
    """
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
    """Remove a further org for good.

    A running server notices within seconds that an org's directory is gone, and lets go of it; until then
    nothing is deleted. An org in PostgreSQL cannot be removed while a server uses it. Raises StoreLocked.
    """
    place = additional_org_settings(settings, org_id)
    if settings.store != "sqlite":
        _load_schemas().drop_schema(place.store)
        return
    doomed = Path(settings.data) / ORGS_DIRECTORY / f".removed-{org_id}"
    Path(place.data).rename(doomed)
    _wait_let_go(doomed)
    shutil.rmtree(doomed)


def _wait_let_go(directory: Path) -> None:
    """Wait until nobody holds the lock, which has moved along with its directory."""
    pause = threading.Event()
    fd = os.open(directory / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        for _ in range(round(_LETS_GO_S / _LOOK_EVERY_S)):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                pause.wait(_LOOK_EVERY_S)
            else:
                return
    finally:
        os.close(fd)
    raise StoreLocked(
        f"a server still holds what was moved to {directory}; delete that once it has stopped",
        path=str(directory),
    )


def _inspect(reader: Reader, layout: int, settings: Settings) -> OrgInspection:
    identity = try_read_identity(reader)
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


def read_client_ids(reader: Reader) -> frozenset[str]:
    """The ids of an org's connected apps."""
    return frozenset(str(row[0]) for row in reader.execute("SELECT client_id FROM connected_apps"))


def _load_schemas() -> ModuleType:
    load_postgres()
    from tidewire.storage import postgres_schemas

    return postgres_schemas
