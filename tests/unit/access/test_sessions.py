"""Login sessions: how long they live, what keeps them alive and what ends them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.orgs import READER, TestOrg, open_org
from tidewire.access.scopes import parse_scopes
from tidewire.access.sessions import Origin, Sessions, end_sessions
from tidewire.clock import ManualClock
from tidewire.config import DEV_PASSWORD, DEV_USERNAME
from tidewire.delivery.hub import LATEST, Hub
from tidewire.errors import GrantInvalid, SessionInvalid
from tidewire.frontends.pubsub.wire import PubSubForm

ORIGIN = Origin("OAuth", "10.0.0.1", parse_scopes("api id"), "app-1", "grant-1")


async def start(org: TestOrg, sessions: Sessions, origin: Origin = ORIGIN) -> str:
    token, _ = await sessions.start(org.reader.user_id, READER, origin, lambda tx: None)
    return token


async def written_back(org: TestOrg) -> None:
    """Until what was handed to the writer before is durable."""
    await asyncio.sleep(0)
    await org.core.records.write_plain(lambda tx: None)


def small(org: TestOrg, max_live: int) -> Sessions:
    return Sessions(org.core.records, org.clock, org.core.logins.org_id, lambda: 7200, max_live)


async def test_session_cache_is_bounded_and_evicted_sessions_still_work(org: TestOrg) -> None:
    sessions = small(org, max_live=3)
    tokens = [await start(org, sessions) for _ in range(10)]
    assert len(sessions) == 3
    for token in tokens:
        assert (await sessions.authenticate(token)).user_id == org.reader.user_id
    assert len(sessions) == 3


async def test_last_use_of_an_evicted_session_is_stored(org: TestOrg) -> None:
    sessions = small(org, max_live=1)
    first = await start(org, sessions)
    org.clock.advance(200)  # less than what is written back at once
    await sessions.authenticate(first)
    await start(org, sessions)
    await written_back(org)
    org.clock.advance(7100)
    await sessions.authenticate(first)


async def test_session_without_api_scope_is_identified_but_rejected(org: TestOrg) -> None:
    sessions = org.core.logins.sessions
    token = await start(org, sessions, Origin("OAuth", "", parse_scopes("openid id")))
    assert (await sessions.identify(token)).username == READER
    with pytest.raises(SessionInvalid) as caught:
        await org.core.logins.sessions.authenticate(token)
    assert caught.value.details["needed_scope"] == "api"


async def test_rejected_start_leaves_no_session_but_commits_other_writes(org: TestOrg) -> None:
    sessions = org.core.logins.sessions
    before = len(sessions)

    def refuse(tx: object) -> GrantInvalid:
        tx.execute("INSERT INTO settings (name, value) VALUES ('noted', 'yes')")  # type: ignore[attr-defined]
        return GrantInvalid("no")

    with pytest.raises(GrantInvalid):
        await sessions.start(org.reader.user_id, READER, ORIGIN, refuse)
    assert len(sessions) == before
    noted = await org.core.records.read(
        lambda reader: reader.execute("SELECT value FROM settings WHERE name = 'noted'")
    )
    assert noted == [("yes",)]


async def test_session_ended_while_it_is_read_does_not_come_back(org: TestOrg) -> None:
    sessions = small(org, max_live=1)
    token = await start(org, sessions)
    await start(org, sessions)  # pushes the first one out of memory
    unwatch = org.core.commits.watch(lambda batch: sessions.forget(batch.ended_sessions))
    reading = asyncio.ensure_future(sessions.authenticate(token))
    await asyncio.sleep(0)
    await org.core.records.write_plain(lambda tx: end_sessions(tx, "user_id", org.reader.user_id))
    await asyncio.gather(reading, return_exceptions=True)
    with pytest.raises(SessionInvalid):
        await sessions.authenticate(token)
    unwatch()


async def test_grants_sessions_end_together_and_others_stay(org: TestOrg) -> None:
    sessions = org.core.logins.sessions
    ended, stays = await start(org, sessions), await start(org, sessions, Origin("OAuth", "", ORIGIN.scopes))
    await org.core.records.write_plain(lambda tx: end_sessions(tx, "grant_id", "grant-1"))
    await org.core.records.write_plain(lambda tx: end_sessions(tx, "grant_id", ""))
    with pytest.raises(SessionInvalid):
        await sessions.authenticate(ended)
    await sessions.authenticate(stays)


async def test_entries_show_kind_app_and_peer_and_omit_expired_sessions(org: TestOrg) -> None:
    sessions = org.core.logins.sessions
    org.clock.advance(1)
    await start(org, sessions)
    (entry, *_) = await sessions.entries(org.reader.user_id)
    assert (entry.username, entry.origin.client_id, entry.origin.peer) == (READER, "app-1", "10.0.0.1")
    org.clock.advance(7201)
    assert await sessions.entries(org.reader.user_id) == []


async def test_purge_removes_expired_sessions_from_the_store(org: TestOrg) -> None:
    token = await start(org, org.core.logins.sessions)
    kept = await org.core.logins.login(DEV_USERNAME, DEV_PASSWORD, "")
    for _ in range(5):
        org.clock.advance(6000)
        await org.core.logins.sessions.authenticate(kept.token)
    await org.core.logins.purge()
    rows = await org.core.records.read(lambda r: r.execute("SELECT session_id FROM login_sessions"))
    assert rows == [(kept.principal.session_id,)]
    with pytest.raises(SessionInvalid):
        await org.core.logins.sessions.authenticate(token)


async def test_open_stream_keeps_its_session_and_ends_with_it(org: TestOrg) -> None:
    login = await org.core.logins.login(DEV_USERNAME, DEV_PASSWORD, "")
    hub = Hub(org.link)
    await hub.start()
    subscription = await hub.subscribe(
        login.principal, "/data/ChangeEvents", 59.0, LATEST, PubSubForm(), lambda: None
    )
    for _ in range(4):
        org.clock.advance(7000)
        hub.touch_sessions()
    await org.core.logins.sessions.authenticate(login.token)
    await org.core.logins.sessions.log_out(login.principal.session_id)
    await org.core.records.write_plain(lambda tx: None)
    await asyncio.sleep(0)
    assert isinstance(subscription.error, SessionInvalid)
    await hub.close()


async def test_touch_extends_a_session_that_is_not_cached(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_org(tmp_path, clock) as org:
        login = await org.core.logins.login(DEV_USERNAME, DEV_PASSWORD, "")
    async with open_org(tmp_path, clock) as org:
        clock.advance(7000)
        org.core.logins.sessions.touch([login.principal.session_id])
        await written_back(org)
        clock.advance(7000)
        assert await org.core.logins.sessions.authenticate(login.token) == login.principal


async def test_org_setting_shortens_the_session(org: TestOrg) -> None:
    await org.apply(settings={"session_timeout_s": 60})
    login = await org.core.logins.login(DEV_USERNAME, DEV_PASSWORD, "")
    assert login.seconds_valid == 60
    org.clock.advance(59)
    await org.core.logins.sessions.authenticate(login.token)
    org.clock.advance(61)
    with pytest.raises(SessionInvalid):
        await org.core.logins.sessions.authenticate(login.token)
