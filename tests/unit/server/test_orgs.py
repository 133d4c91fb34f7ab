"""The orgs of a server, without sockets: found, opened on use, closed when idle, and apart in failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tidewire.clock import ManualClock
from tidewire.config import DEV_CLIENT_ID, DEV_USERNAME, Settings
from tidewire.delivery.hub import LATEST
from tidewire.errors import ConfigInvalid, OutcomeUnknown, StoreClosed, StoreLocked
from tidewire.frontends.bayeux.forms import bayeux_form
from tidewire.server.core import open_core
from tidewire.server.org_admin import create_additional_org, list_orgs, remove_org, show_org
from tidewire.server.org_locations import additional_org_settings, list_additional_orgs
from tidewire.server.orgs import Orgs
from tidewire.storage.sqlite import SqliteStore

pytestmark = pytest.mark.anyio
BETA = "admin@beta.example"


@pytest.fixture
async def settings(tmp_path: Path) -> Settings:
    """A data directory with a first org."""
    settings = Settings(data=str(tmp_path / "data"), dev=True, org_idle_s=300)
    core = await open_core(settings, ManualClock())
    await core.close()
    return settings


@pytest.fixture
async def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def made_beta(settings: Settings) -> tuple[str, str]:
    return await create_additional_org(settings, ManualClock(), "Beta", BETA)


@pytest.fixture
async def beta(made_beta: tuple[str, str]) -> str:
    """The id of a second org."""
    return made_beta[0]


@pytest.fixture
async def beta_password(made_beta: tuple[str, str]) -> str:
    """What its administrator signs in with."""
    return made_beta[1]


@pytest.fixture
async def orgs(settings: Settings, beta: str, clock: ManualClock) -> AsyncIterator[Orgs]:
    running = Orgs(settings, clock)
    await running.start()
    yield running
    await running.close()


def open_ids(orgs: Orgs) -> set[str]:
    return {org.org_id for org in orgs.open_orgs}


async def test_second_org_is_known_at_the_start_but_not_open(orgs: Orgs, beta: str) -> None:
    assert orgs.known_ids == [orgs.first_id, beta]
    assert open_ids(orgs) == {orgs.first_id}


async def test_login_goes_to_the_org_of_the_user(orgs: Orgs, beta: str) -> None:
    assert await orgs.find_by_login(BETA.upper()) == beta
    assert await orgs.find_by_login(DEV_USERNAME) == orgs.first_id
    assert await orgs.find_by_login("nobody@example.org") == orgs.first_id


async def test_user_of_an_org_without_the_app_goes_where_the_app_is(orgs: Orgs, beta: str) -> None:
    assert await orgs.find_by_login(BETA, DEV_CLIENT_ID) == orgs.first_id
    assert await orgs.find_by_client(DEV_CLIENT_ID) == orgs.first_id
    assert await orgs.find_by_client("no-such-app") == orgs.first_id


async def test_token_goes_to_the_org_that_it_names_and_any_other_to_the_first(orgs: Orgs, beta: str) -> None:
    assert await orgs.find_by_token(beta[:15] + "!x") == beta
    assert await orgs.find_by_token(beta[:15] + ".x") == beta
    for token in ("", "x", beta, beta[:15] + "x", "00DTW0000000001!x", orgs.first_id[:15] + "!x"):
        assert await orgs.find_by_token(token) == orgs.first_id


async def test_org_opens_on_use_once_for_all_who_wait(orgs: Orgs, beta: str) -> None:
    async def use() -> int:
        async with orgs.using(beta) as org:
            return id(org)

    assert len(set(await asyncio.gather(*(use() for _ in range(5))))) == 1
    assert open_ids(orgs) == {orgs.first_id, beta}


async def test_cancelled_opener_leaves_the_org_open_for_the_others(orgs: Orgs, beta: str) -> None:
    async def use() -> str:
        async with orgs.using(beta) as org:
            return org.org_id

    first, second = asyncio.ensure_future(use()), asyncio.ensure_future(use())
    await asyncio.sleep(0)
    first.cancel()
    assert await second == beta
    assert first.cancelled()


async def test_org_closes_when_idle_and_its_sessions_outlive_that(
    orgs: Orgs, beta: str, beta_password: str, clock: ManualClock
) -> None:
    async with orgs.using(beta) as org:
        await org.core.job_runner.wait_idle()
        token = (await org.core.logins.login(BETA, beta_password, "test")).token
        clock.advance(400)
        await orgs.close_idle()
        assert beta in open_ids(orgs)  # in use
    await orgs.close_idle()
    assert beta in open_ids(orgs)  # used just now
    clock.advance(301)
    await orgs.close_idle()
    assert open_ids(orgs) == {orgs.first_id}
    async with orgs.using(await orgs.find_by_token(token)) as org:
        assert (await org.core.logins.sessions.authenticate(token)).username == BETA


async def test_org_with_a_subscription_stays_open(
    orgs: Orgs, beta: str, beta_password: str, clock: ManualClock
) -> None:
    async with orgs.using(beta) as org:
        await org.core.job_runner.wait_idle()
        login = await org.core.logins.login(BETA, beta_password, "test")
        assert org.front is not None
        subscription = await org.front.hub.subscribe(
            login.principal, "/data/ChangeEvents", 62.0, LATEST, bayeux_form(62.0), lambda: None
        )
    clock.advance(1_000)
    await orgs.close_idle()
    assert beta in open_ids(orgs)
    subscription.close()
    await orgs.close_idle()
    assert beta not in open_ids(orgs)


async def test_org_made_beside_a_running_server_is_found(orgs: Orgs, settings: Settings) -> None:
    org_id, _ = await create_additional_org(settings, ManualClock(), "Gamma", "admin@gamma.example")
    assert await orgs.find_by_login("admin@gamma.example") == org_id
    assert await orgs.find_by_token(org_id[:15] + "!x") == org_id


async def test_removed_org_is_closed_and_its_names_are_free(
    orgs: Orgs, settings: Settings, beta: str
) -> None:
    async with orgs.using(beta):
        pass
    removing = asyncio.create_task(asyncio.to_thread(remove_org, settings, beta))
    while await orgs.find_by_login(BETA) == beta:
        continue
    await removing
    assert open_ids(orgs) == {orgs.first_id}
    assert await orgs.find_by_token(beta[:15] + "!x") == orgs.first_id
    assert list((Path(settings.data) / "orgs").iterdir()) == []
    with pytest.raises(StoreClosed):
        async with orgs.using(beta):
            pass


async def test_broken_org_is_passed_over_and_the_others_work(settings: Settings, beta: str) -> None:
    gamma, _ = await create_additional_org(settings, ManualClock(), "Gamma", "admin@gamma.example")
    (Path(additional_org_settings(settings, gamma).data) / "org.db").write_bytes(b"no database" * 1000)
    orgs = Orgs(settings, ManualClock())
    await orgs.start()
    try:
        assert orgs.known_ids == [orgs.first_id, beta]
        async with orgs.using(beta) as org:
            assert org.core.writer.failure is None
    finally:
        await orgs.close()


async def test_org_that_cannot_be_opened_rejects_only_its_own_callers(
    orgs: Orgs, settings: Settings, beta: str
) -> None:
    holder = SqliteStore(Path(additional_org_settings(settings, beta).data) / "org.db", 1)
    with pytest.raises(StoreLocked):
        async with orgs.using(beta):
            pass
    async with orgs.using(orgs.first_id) as org:
        assert org.org_id == orgs.first_id
    holder.close()
    async with orgs.using(beta) as org:
        assert org.org_id == beta


@pytest.mark.parametrize("fails_first", [True, False])
async def test_failed_writer_of_one_org_leaves_the_other_working(
    orgs: Orgs, beta: str, clock: ManualClock, fails_first: bool
) -> None:
    failing, other = (orgs.first_id, beta) if fails_first else (beta, orgs.first_id)
    async with orgs.using(failing) as org, orgs.using(other) as healthy:
        broken = org
        # What a disk that refuses to sync does to it; no test can make a real one do so at the right moment.
        org.core.writer._stop_for_good(OutcomeUnknown("the disk refused to sync"))  # noqa: SLF001
        await asyncio.to_thread(lambda: None)
        with pytest.raises(StoreClosed):
            await org.core.records.write_plain(lambda tx: None)
        await healthy.core.records.write_plain(lambda tx: None)
    assert not orgs.failed.is_set()
    with pytest.raises(StoreClosed):
        async with orgs.using(failing):
            pass
    clock.advance(10)
    async with orgs.using(failing) as org:
        assert org is not broken
        await org.core.records.write_plain(lambda tx: None)


async def test_failed_writer_of_the_only_org_stops_the_server(settings: Settings) -> None:
    orgs = Orgs(settings, ManualClock())
    await orgs.start()
    async with orgs.using(orgs.first_id) as org:
        org.core.writer._stop_for_good(OutcomeUnknown("the disk refused to sync"))  # noqa: SLF001
    await asyncio.wait_for(orgs.failed.wait(), 120)
    await orgs.close()


async def test_create_rejects_invalid_names(settings: Settings, beta: str, tmp_path: Path) -> None:
    for name, username in (
        ("", "x@y.z"),
        ("n" * 81, "x@y.z"),
        ("Org", "x"),
        ("Org", BETA.upper()),
        ("Org", DEV_USERNAME),
    ):
        with pytest.raises(ConfigInvalid):
            await create_additional_org(settings, ManualClock(), name, username)
    with pytest.raises(ConfigInvalid):
        await create_additional_org(Settings(data=str(tmp_path / "none")), ManualClock(), "Org", "x@y.z")
    assert list_additional_orgs(settings) == [beta]
    assert not (tmp_path / "none").exists()


async def test_first_org_and_unknown_ones_cannot_be_removed(settings: Settings, beta: str) -> None:
    first, second = list_orgs(settings)
    assert (first.is_first, second.is_first, second.org_id, second.name) == (True, False, beta, "Beta")
    for org_id in (first.org_id, "00DTW0000000001", "../..", ""):
        with pytest.raises(ConfigInvalid):
            remove_org(settings, org_id)
    assert len(list_orgs(settings)) == 2
    assert show_org(settings, beta[:15]).users == 1
