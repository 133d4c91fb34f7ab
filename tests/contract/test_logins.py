"""Logins, sessions and OAuth tokens on every kind of store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orgs import READER, open_org
from tests.postgres import PostgresServer
from tests.stores import STORES
from tidewire.access.apps import DEVICE, WEB_SERVER, ConnectedApp
from tidewire.clock import ManualClock
from tidewire.config import DEV_PASSWORD
from tidewire.errors import GrantInvalid, LoginFailed, SessionInvalid

URL = "https://app.example.org/cb"


@pytest.fixture(params=STORES)
def address(request: pytest.FixtureRequest) -> str:
    """What `--store` takes, for each kind of store in turn."""
    if request.param == "sqlite":
        return "sqlite"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.make_url()


async def test_sessions_and_tokens_survive_a_restart_until_revoked(tmp_path: Path, address: str) -> None:
    clock = ManualClock()
    async with open_org(tmp_path, clock, store=address) as org:
        oauth = org.core.oauth
        asked = ConnectedApp(
            "", "App", callback_urls=(URL,), flows=frozenset({WEB_SERVER, DEVICE}), rotates_refresh=True
        )
        client_id, secret = await oauth.apps.create(org.call, asked)
        app = await oauth.find_app(client_id)
        await oauth.approve(app, org.reader.user_id, app.scopes)
        code = await oauth.give_code(app, org.reader.user_id, app.scopes, URL, challenge="", nonce="")
        device_code, user_code = await oauth.begin_device(client_id, "api")
    async with open_org(tmp_path, clock, store=address) as org:
        oauth, logins = org.core.oauth, org.core.logins
        first = await oauth.grant_for_code(client_id, secret, code, URL, "", "")
        second = await oauth.grant_for_refresh(client_id, secret, first.refresh_token, "", "")
        assert await oauth.answer_device(user_code, org.reader.user_id, allows=True)
        third = await oauth.grant_for_device(client_id, "", device_code, "")
        entries = await logins.sessions.entries(org.reader.user_id)
        assert {e.origin.client_id for e in entries} == {"", client_id}
        assert len(await logins.sessions.entries()) > len(entries)
        with pytest.raises(GrantInvalid):
            await oauth.grant_for_refresh(client_id, secret, first.refresh_token, "", "")
        for issued in (first, second):
            with pytest.raises(SessionInvalid):
                await logins.sessions.authenticate(issued.login.token)
        await logins.sessions.authenticate(third.login.token)
        await oauth.apps.delete(org.call, client_id)
        with pytest.raises(SessionInvalid):
            await logins.sessions.authenticate(third.login.token)


async def test_failures_lock_and_purge_forgets(tmp_path: Path, address: str) -> None:
    async with open_org(tmp_path, store=address) as org:
        logins = org.core.logins
        token = await logins.credentials.reset_security_token(org.call, org.reader.user_id)
        await logins.login(READER, DEV_PASSWORD + token, "203.0.113.1")
        for _ in range(10):
            with pytest.raises(LoginFailed):
                await logins.login(READER, "wrong", "203.0.113.1")
        with pytest.raises(LoginFailed):
            await logins.login(READER, DEV_PASSWORD + token, "203.0.113.1")
        org.clock.advance(16 * 60)
        await logins.purge()
        await logins.login(READER, DEV_PASSWORD + token, "203.0.113.1")
        with pytest.raises(LoginFailed):
            await logins.login("no\0body \ud800", "x", "")
        org.clock.advance(3 * 7200)
        await logins.purge()
        assert await logins.sessions.entries() == []
