"""A real core on a temporary directory, for tests that need no sockets."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.postgres import PostgresServer
from tidewire.access.principal import Principal
from tidewire.clock import ManualClock
from tidewire.config import DEV_PASSWORD, DEV_USERNAME, Settings
from tidewire.gate.requests import Call
from tidewire.server.core import Core, open_core
from tidewire.server.link import LocalLink

READER = "reader@tidewire.local"


class TestOrg:
    """A development org with its two users signed in, and the link that an edge would use."""

    __test__ = False

    def __init__(self, core: Core, clock: ManualClock, admin: Principal, reader: Principal) -> None:
        self.core = core
        self.clock = clock
        self.admin = admin
        self.reader = reader
        self.gate = core.gate
        self.call = Call(admin, "com/test")
        self.link = LocalLink(core)

    async def apply(self, **document: object) -> list[str]:
        """Apply an org definition as the administrator."""
        return (await self.gate.apply_definition(self.call, document, dry_run=False)).lines

    async def make_account(self, name: str = "Acme", **values: object) -> str:
        """Create an account as the administrator."""
        return await self.gate.create(self.call, "Account", {"Name": name, **values})


@asynccontextmanager
async def open_org(
    directory: Path, clock: ManualClock | None = None, *, store: str = "sqlite"
) -> AsyncIterator[TestOrg]:
    """Open, or make, the org in a directory, or in a PostgreSQL schema."""
    clock = clock or ManualClock()
    core = await open_core(Settings(data=str(directory), store=store, dev=True), clock)
    try:
        admin = await core.logins.login(DEV_USERNAME, DEV_PASSWORD, "test")
        reader = await core.logins.login(READER, DEV_PASSWORD, "test")
        yield TestOrg(core, clock, admin.principal, reader.principal)
    finally:
        await core.close()


@dataclass(frozen=True, slots=True)
class Template:
    """An org that is made once and copied for each test, with the tokens of its two users' sessions.

    `place` is its directory, or the name of its database in PostgreSQL.
    """

    place: str
    admin_token: str
    reader_token: str


async def make_template(directory: Path) -> Template:
    """Make the template of orgs on SQLite."""
    return await _fill_template(Settings(data=str(directory), dev=True), str(directory))


async def make_postgres_template(server: PostgresServer, directory: Path) -> Template:
    """Make the template of orgs in PostgreSQL, in a database of its own."""
    database = server.make_database()
    settings = Settings(data=str(directory), store=server.database_url(database), dev=True)
    return await _fill_template(settings, database)


async def _fill_template(settings: Settings, place: str) -> Template:
    core = await open_core(settings, ManualClock())
    try:
        admin = await core.logins.login(DEV_USERNAME, DEV_PASSWORD, "test")
        reader = await core.logins.login(READER, DEV_PASSWORD, "test")
    finally:
        await core.close()
    return Template(place, admin.token, reader.token)


@asynccontextmanager
async def open_copy(template: Template, directory: Path) -> AsyncIterator[TestOrg]:
    """Open a copy of a template on SQLite, in a third of the time that making an org takes."""
    shutil.copytree(template.place, directory)
    async with _open_template(template, Settings(data=str(directory), dev=True)) as org:
        yield org


@asynccontextmanager
async def open_postgres_copy(
    template: Template, server: PostgresServer, directory: Path
) -> AsyncIterator[TestOrg]:
    """Open a copy of a template in PostgreSQL: a copied database instead of some hundred new tables."""
    database = server.make_database(template.place)
    settings = Settings(data=str(directory), store=server.database_url(database), dev=True)
    try:
        async with _open_template(template, settings) as org:
            yield org
    finally:
        server.drop_database(database)


@asynccontextmanager
async def _open_template(template: Template, settings: Settings) -> AsyncIterator[TestOrg]:
    clock = ManualClock()
    core = await open_core(settings, clock)
    try:
        admin = await core.logins.sessions.authenticate(template.admin_token)
        reader = await core.logins.sessions.authenticate(template.reader_token)
        yield TestOrg(core, clock, admin, reader)
    finally:
        await core.close()
