"""A real core on a temporary directory, for tests that need no sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tidewire.access.gate import Call
from tidewire.access.principal import Principal
from tidewire.clock import ManualClock
from tidewire.config import DEV_PASSWORD, DEV_USERNAME, Settings
from tidewire.server.core import Core, open_core
from tidewire.server.link import LocalLink
from tidewire.transport.http import HttpRequest, HttpResponse

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
        self.link = LocalLink(core, _no_http)

    async def apply(self, **document: object) -> list[str]:
        """Apply an org definition as the administrator."""
        return await self.gate.apply_definition(self.call, document, dry_run=False)

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


async def _no_http(request: HttpRequest) -> HttpResponse:
    return HttpResponse(404)
