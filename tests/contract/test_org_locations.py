"""Several orgs in one place, alike for both stores: made, found, used apart and removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres import PostgresServer
from tidewire.clock import ManualClock
from tidewire.config import Settings
from tidewire.errors import ConfigInvalid
from tidewire.server.core import open_core
from tidewire.server.org_admin import create_additional_org, list_orgs, remove_org, show_org
from tidewire.server.org_locations import find_settings, inspect_org, list_additional_orgs
from tidewire.server.orgs import Orgs

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "postgres"])
async def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """A place with a first org."""
    store = "sqlite"
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        store = server.make_url()
    settings = Settings(data=str(tmp_path / "data"), store=store, dev=True)
    core = await open_core(settings, ManualClock())
    await core.close()
    return settings


async def test_org_is_made_found_and_removed(settings: Settings) -> None:
    clock = ManualClock()
    org_id, _ = await create_additional_org(settings, clock, "Beta", "admin@beta.example")
    assert list_additional_orgs(settings) == [org_id]
    assert [org.name for org in list_orgs(settings)] == ["Tidewire", "Beta"]
    assert inspect_org(find_settings(settings, org_id)).username_keys == {"admin@beta.example"}
    with pytest.raises(ConfigInvalid):
        await create_additional_org(settings, clock, "Gamma", "Admin@Beta.example")
    remove_org(settings, org_id)
    assert list_additional_orgs(settings) == []
    with pytest.raises(ConfigInvalid):
        show_org(settings, org_id)


async def test_two_orgs_are_open_at_once_and_share_nothing(settings: Settings) -> None:
    clock = ManualClock()
    org_id, password = await create_additional_org(settings, clock, "Beta", "admin@beta.example")
    orgs = Orgs(settings, clock)
    await orgs.start()
    try:
        assert await orgs.find_by_login("ADMIN@beta.example") == org_id
        async with orgs.using(org_id) as beta, orgs.using(orgs.first_id) as first:
            login = await beta.core.logins.login("admin@beta.example", password, "test")
            assert login.principal.org_id == org_id
            assert len(await beta.core.logins.sessions.entries()) == 1
            assert await first.core.logins.sessions.entries() == []
    finally:
        await orgs.close()
