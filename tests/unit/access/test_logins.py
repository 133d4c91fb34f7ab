"""Logins: sessions start, tokens identify their users, and streams end with their session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orgs import READER, TestOrg, open_org
from tidewire.clock import ManualClock
from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_PASSWORD, DEV_USERNAME
from tidewire.errors import GrantInvalid, LoginFailed, SessionInvalid


async def test_token_contains_its_org_and_identifies_the_user(org: TestOrg) -> None:
    login = await org.core.logins.login(DEV_USERNAME.upper(), DEV_PASSWORD, "")
    assert login.token.startswith(org.core.logins.org_id[:15] + "!")
    assert await org.core.logins.sessions.authenticate(login.token) == login.principal
    assert login.principal.user_id == org.admin.user_id


@pytest.mark.parametrize(
    "username, password", [(DEV_USERNAME, "wrong"), ("nobody@x", DEV_PASSWORD), (DEV_USERNAME, "")]
)
async def test_wrong_login_is_refused_without_saying_what_was_wrong(
    org: TestOrg, username: str, password: str
) -> None:
    with pytest.raises(LoginFailed, match="Invalid username, password, security token"):
        await org.core.logins.login(username, password, "")


async def test_unknown_token_is_refused(org: TestOrg) -> None:
    for token in ("", "x", "00D000000000000!abc"):
        with pytest.raises(SessionInvalid):
            await org.core.logins.sessions.authenticate(token)


async def test_idle_session_ends_and_a_used_one_does_not(org: TestOrg) -> None:
    login = await org.core.logins.login(DEV_USERNAME, DEV_PASSWORD, "")
    for _ in range(3):
        org.clock.advance(7000)
        await org.core.logins.sessions.authenticate(login.token)
    org.clock.advance(7201)
    with pytest.raises(SessionInvalid):
        await org.core.logins.sessions.authenticate(login.token)


async def test_session_outlives_the_process(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_org(tmp_path, clock) as org:
        login = await org.core.logins.login(DEV_USERNAME, DEV_PASSWORD, "")
    async with open_org(tmp_path, clock) as org:
        assert (await org.core.logins.sessions.authenticate(login.token)) == login.principal


async def test_logout_ends_the_session_at_once(org: TestOrg) -> None:
    login = await org.core.logins.login(DEV_USERNAME, DEV_PASSWORD, "")
    await org.core.logins.sessions.log_out(login.principal.session_id)
    with pytest.raises(SessionInvalid):
        await org.core.logins.sessions.authenticate(login.token)


async def test_deactivated_user_loses_every_session_and_cannot_sign_in(org: TestOrg) -> None:
    login = await org.core.logins.login(READER, DEV_PASSWORD, "")
    await org.apply(users={READER: {"active": False}})
    with pytest.raises(SessionInvalid):
        await org.core.logins.sessions.authenticate(login.token)
    with pytest.raises(LoginFailed):
        await org.core.logins.login(READER, DEV_PASSWORD, "")


async def test_connected_app_is_checked(org: TestOrg) -> None:
    await org.core.oauth.check_app(DEV_CLIENT_ID, DEV_CLIENT_SECRET)
    for client, secret, code in (
        ("nope", DEV_CLIENT_SECRET, "invalid_client_id"),
        (DEV_CLIENT_ID, "wrong", "invalid_client"),
    ):
        with pytest.raises(GrantInvalid) as caught:
            await org.core.oauth.check_app(client, secret)
        assert caught.value.details["oauth_error"] == code


async def test_no_token_or_password_is_stored_readably(org: TestOrg, tmp_path: Path) -> None:
    login = await org.core.logins.login(DEV_USERNAME, DEV_PASSWORD, "")
    secret = login.token.partition("!")[2].encode()
    for path in (tmp_path / "org").iterdir():
        if path.is_file():
            content = path.read_bytes()
            assert secret not in content
            assert DEV_CLIENT_SECRET.encode() not in content


async def test_user_info_describes_the_user(org: TestOrg) -> None:
    info = await org.core.logins.user_info(org.reader)
    assert (info.full_name, info.username, info.is_active) == ("Rita Reader", READER, True)
    assert info.org_id == org.core.logins.org_id
