"""Passwords, security tokens and the lock after too many failures."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.orgs import READER, TestOrg, open_org
from tidewire.clock import ManualClock
from tidewire.config import DEV_PASSWORD, DEV_USERNAME
from tidewire.errors import AccessDenied, LoginFailed, PasswordInvalid, RecordNotFound, SessionInvalid
from tidewire.gate.requests import Call

FAILED = "Invalid username, password, security token; or user locked out."


async def fails(org: TestOrg, password: str, username: str = READER, peer: str = "") -> LoginFailed:
    with pytest.raises(LoginFailed) as caught:
        await org.core.logins.login(username, password, peer)
    return caught.value


async def test_too_many_failures_lock_even_the_right_password_out(org: TestOrg) -> None:
    for _ in range(10):
        await fails(org, "wrong", READER.upper())
    assert (await fails(org, DEV_PASSWORD)).message == FAILED
    await org.core.logins.login(DEV_USERNAME, DEV_PASSWORD, "")  # somebody else is not locked
    org.clock.advance(15 * 60 - 1)
    await fails(org, DEV_PASSWORD)
    org.clock.advance(2)
    await org.core.logins.login(READER, DEV_PASSWORD, "")


async def test_lock_outlives_the_process(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_org(tmp_path, clock) as org:
        await org.apply(users={"ann@example.org": {"password": "long enough"}})
        for _ in range(10):
            await fails(org, "wrong", "ann@example.org")
    async with open_org(tmp_path, clock) as org:
        assert (await fails(org, "long enough", "ann@example.org")).message == FAILED


async def test_success_and_time_forget_failures(org: TestOrg) -> None:
    for _ in range(9):
        await fails(org, "wrong")
    await org.core.logins.login(READER, DEV_PASSWORD, "")
    for _ in range(9):
        await fails(org, "wrong")
    org.clock.advance(15 * 60 + 1)
    for _ in range(9):
        await fails(org, "wrong")
    await org.core.logins.login(READER, DEV_PASSWORD, "")


async def test_guesses_at_the_same_time_do_not_pass_the_lock(org: TestOrg) -> None:
    await org.apply(settings={"lockout_attempts": 3})
    guesses = ["wrong"] * 6 + [DEV_PASSWORD] * 2
    results = await asyncio.gather(
        *(org.core.logins.login(READER, guess, "") for guess in guesses), return_exceptions=True
    )
    assert all(isinstance(r, LoginFailed) for r in results[:6])
    # However they were ordered, whoever came after the third failure was refused.
    await fails(org, DEV_PASSWORD)


async def test_lock_follows_the_orgs_settings(org: TestOrg) -> None:
    await org.apply(settings={"lockout_attempts": 3, "lockout_minutes": 0})
    for _ in range(3):
        await fails(org, "wrong")
    org.clock.advance(10 * 24 * 3600)
    await org.core.logins.purge()
    await fails(org, DEV_PASSWORD)
    await org.core.logins.credentials.unlock(org.call, org.reader.user_id)
    await org.core.logins.login(READER, DEV_PASSWORD, "")
    await org.apply(settings={"lockout_attempts": 0})
    for _ in range(20):
        await fails(org, "wrong")
    await org.core.logins.login(READER, DEV_PASSWORD, "")


async def test_unknown_names_are_counted_alike_and_forgotten(org: TestOrg) -> None:
    for _ in range(3):
        assert (await fails(org, "x", "nobody@example.org")).message == FAILED
    await fails(org, "x", "no\0body")
    count = "SELECT COUNT(*) FROM failed_logins"
    assert await org.core.records.read(lambda r: r.execute(count)) == [(2,)]
    org.clock.advance(16 * 60)
    await org.core.logins.purge()
    assert await org.core.records.read(lambda r: r.execute(count)) == [(0,)]


async def test_security_token_is_needed_away_from_trusted_addresses(org: TestOrg) -> None:
    logins = org.core.logins
    token = await logins.credentials.reset_security_token(Call(org.reader, ""), org.reader.user_id)
    refused = await fails(org, DEV_PASSWORD, peer="203.0.113.9")
    assert refused.details["exception_code"] == "LOGIN_MUST_USE_SECURITY_TOKEN"
    assert "exception_code" not in (await fails(org, "wrong", peer="203.0.113.9")).details
    assert "exception_code" not in (await fails(org, "wrong" + token, peer="203.0.113.9")).details
    await logins.login(READER, DEV_PASSWORD + token, "203.0.113.9")
    await org.apply(settings={"trusted_ip_ranges": ["203.0.113.0/24", "2001:db8::/32"]})
    for peer in ("203.0.113.9", "::ffff:203.0.113.9", "2001:db8::5"):
        await logins.login(READER, DEV_PASSWORD, peer)
    await fails(org, DEV_PASSWORD, peer="198.51.100.1")
    await fails(org, DEV_PASSWORD, peer="")


async def test_missing_api_permission_is_reported_only_with_the_right_password(org: TestOrg) -> None:
    await org.apply(profiles={"No_API": {"permissions": []}}, users={READER: {"profile": "No_API"}})
    await org.apply(permission_sets={"Account_Reader": {"permissions": []}})
    refused = await fails(org, DEV_PASSWORD)
    assert refused.details["exception_code"] == "API_DISABLED_FOR_ORG"
    assert "exception_code" not in (await fails(org, "wrong")).details


async def test_org_without_api_lets_nobody_in(org: TestOrg) -> None:
    await org.apply(settings={"api_enabled": False})
    refused = await fails(org, DEV_PASSWORD, DEV_USERNAME)
    assert refused.details["exception_code"] == "API_DISABLED_FOR_ORG"


async def test_login_updates_the_user_without_an_event(org: TestOrg) -> None:
    await org.apply(capture=["User"])
    head = await org.link.read_log_head()
    org.clock.advance(10)
    await org.core.logins.login(READER, DEV_PASSWORD, "")
    rows = await org.gate.read(org.admin, "User", org.reader.user_id, ["LastLoginDate"])
    assert rows.rows[0]["LastLoginDate"] == org.clock.now_ms() // 1000 * 1000
    assert await org.link.read_log_head() == head


async def test_new_password_ends_the_other_sessions(org: TestOrg) -> None:
    logins = org.core.logins
    here = await logins.login(READER, DEV_PASSWORD, "")
    there = await logins.login(READER, DEV_PASSWORD, "")
    await logins.credentials.set_password(Call(here.principal, ""), org.reader.user_id, "a new password")
    await logins.sessions.authenticate(here.token)
    with pytest.raises(SessionInvalid):
        await logins.sessions.authenticate(there.token)
    await fails(org, DEV_PASSWORD)
    await logins.login(READER, "a new password", "")


async def test_reset_password_is_drawn_and_unlocks(org: TestOrg) -> None:
    for _ in range(10):
        await fails(org, "wrong")
    password = await org.core.logins.credentials.reset_password(org.call, org.reader.user_id)
    await org.core.logins.login(READER, password, "")


@pytest.mark.parametrize(
    "password", ["", "short", "a" * 12, " " * 9, "x" * 1001, "abcdefg\0h", "abcdefgh\ud800"]
)
async def test_bad_new_password_is_refused(org: TestOrg, password: str) -> None:
    with pytest.raises(PasswordInvalid):
        await org.core.logins.credentials.set_password(org.call, org.reader.user_id, password)
    await org.core.logins.login(READER, DEV_PASSWORD, "")


async def test_only_managers_change_others_credentials(org: TestOrg) -> None:
    logins, reader = org.core.logins, Call(org.reader, "")
    for attempt in (
        logins.credentials.set_password(reader, org.admin.user_id, "a new password"),
        logins.credentials.reset_password(reader, org.admin.user_id),
        logins.credentials.reset_password(reader, org.reader.user_id),
        logins.credentials.reset_security_token(reader, org.admin.user_id),
        logins.credentials.drop_security_token(reader, org.reader.user_id),
        logins.credentials.unlock(reader, org.reader.user_id),
        logins.credentials.check_manager(reader),
    ):
        with pytest.raises(AccessDenied):
            await attempt
    with pytest.raises(RecordNotFound):
        await logins.credentials.set_password(org.call, "005000000000001AAA", "a new password")
    await org.apply(
        permission_sets={"Manager": {"permissions": ["ManageUsers", "ApiEnabled"]}},
        users={READER: {"permission_sets": ["Manager"]}},
    )
    await logins.credentials.check_manager(reader)
    await logins.credentials.set_password(reader, org.admin.user_id, "a new password")


async def test_deactivation_while_the_password_is_checked_wins(org: TestOrg) -> None:
    signing_in = asyncio.ensure_future(org.core.logins.login(READER, DEV_PASSWORD, ""))
    await org.apply(users={READER: {"active": False}})
    result = (await asyncio.gather(signing_in, return_exceptions=True))[0]
    # Either it was too late, or the session has ended with the others.
    if not isinstance(result, LoginFailed):
        assert not isinstance(result, BaseException)
        with pytest.raises(SessionInvalid):
            await org.core.logins.sessions.authenticate(result.token)


async def test_password_changed_while_the_old_one_is_checked_wins(org: TestOrg) -> None:
    signing_in = asyncio.ensure_future(org.core.logins.login(READER, DEV_PASSWORD, ""))
    await org.core.logins.credentials.set_password(org.call, org.reader.user_id, "a new password")
    result = (await asyncio.gather(signing_in, return_exceptions=True))[0]
    if not isinstance(result, LoginFailed):
        assert not isinstance(result, BaseException)
        with pytest.raises(SessionInvalid):
            await org.core.logins.sessions.authenticate(result.token)
