"""Frozen users, and the lock after too many failed logins."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orgs import READER, TestOrg, open_org
from tidewire.access.sessions import Origin
from tidewire.clock import ManualClock
from tidewire.config import DEV_PASSWORD
from tidewire.errors import (
    AccessDenied,
    FieldsInconsistent,
    GrantInvalid,
    LoginFailed,
    ObjectUnknown,
    PasswordInvalid,
    SessionInvalid,
)
from tidewire.gate.requests import Call
from tidewire.records.table import delete_row


async def row_of(org: TestOrg, user_id: str) -> dict[str, object]:
    soql = f"SELECT Id, IsFrozen, IsPasswordLocked FROM UserLogin WHERE UserId = '{user_id}'"
    return dict((await org.gate.query(org.admin, soql)).rows[0])


async def change(org: TestOrg, user_id: str, **values: object) -> None:
    row = await row_of(org, user_id)
    await org.gate.update(org.call, "UserLogin", str(row["Id"]), values)


async def fail_login(org: TestOrg, password: str = "wrong") -> None:
    with pytest.raises(LoginFailed):
        await org.core.logins.login(READER, password, "")


async def test_every_user_has_a_row_from_the_start(org: TestOrg) -> None:
    await org.apply(users={"new@example.org": {"password": "long enough"}})
    users = await org.gate.query(org.admin, "SELECT Id FROM User")
    rows = await org.gate.query(org.admin, "SELECT UserId, User.Username FROM UserLogin")
    assert sorted(str(r["UserId"]) for r in rows.rows) == sorted(str(r["Id"]) for r in users.rows)
    row = await row_of(org, org.reader.user_id)
    assert str(row["Id"]).startswith("0Yw")
    assert (row["IsFrozen"], row["IsPasswordLocked"]) == (False, False)


async def test_users_older_than_the_object_get_their_row_at_the_next_start(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_org(tmp_path, clock) as org:
        row, obj = await row_of(org, org.reader.user_id), org.gate.catalog.object("UserLogin")
        await org.core.records.write_plain(lambda tx: delete_row(tx, obj, str(row["Id"])))
        assert len((await org.gate.query(org.admin, "SELECT Id FROM UserLogin")).rows) == 1
    async with open_org(tmp_path, clock) as org:
        assert await row_of(org, org.reader.user_id) == row


async def test_freezing_ends_sessions_and_refuses_every_login_until_it_is_lifted(org: TestOrg) -> None:
    login = await org.core.logins.login(READER, DEV_PASSWORD, "")
    await change(org, org.reader.user_id, IsFrozen=True)
    with pytest.raises(SessionInvalid):
        await org.core.logins.sessions.authenticate(login.token)
    await fail_login(org, DEV_PASSWORD)
    origin = Origin("OAuth", "", frozenset({"api"}))
    with pytest.raises(GrantInvalid):
        await org.core.logins.start_session(org.reader.user_id, origin, lambda tx: None)
    await change(org, org.reader.user_id, IsFrozen=False)
    await org.core.logins.login(READER, DEV_PASSWORD, "")


async def test_nobody_freezes_themselves(org: TestOrg) -> None:
    with pytest.raises(FieldsInconsistent):
        await change(org, org.admin.user_id, IsFrozen=True)
    assert (await row_of(org, org.admin.user_id))["IsFrozen"] is False


async def test_only_who_manages_users_knows_the_object(org: TestOrg) -> None:
    row = await row_of(org, org.reader.user_id)
    call = Call(org.reader, "com/test")
    with pytest.raises(ObjectUnknown):
        await org.gate.query(org.reader, "SELECT Id FROM UserLogin")
    with pytest.raises(ObjectUnknown):
        await org.gate.update(call, "UserLogin", str(row["Id"]), {"IsFrozen": False})
    with pytest.raises(AccessDenied):
        await org.gate.create(org.call, "UserLogin", {"UserId": org.reader.user_id})
    with pytest.raises(AccessDenied):
        await org.gate.delete(org.call, "UserLogin", str(row["Id"]))


async def test_lock_shows_and_can_be_lifted_but_not_set(org: TestOrg) -> None:
    with pytest.raises(FieldsInconsistent):
        await change(org, org.reader.user_id, IsPasswordLocked=True)
    for _ in range(10):
        await fail_login(org)
    assert (await row_of(org, org.reader.user_id))["IsPasswordLocked"] is True
    await fail_login(org, DEV_PASSWORD)
    await change(org, org.reader.user_id, IsPasswordLocked=False)
    await org.core.logins.login(READER, DEV_PASSWORD, "")


async def test_freezing_leaves_failures_counted(org: TestOrg) -> None:
    for _ in range(9):
        await fail_login(org)
    await change(org, org.reader.user_id, IsFrozen=True)
    await change(org, org.reader.user_id, IsFrozen=False)
    await fail_login(org)
    await fail_login(org, DEV_PASSWORD)


async def test_expired_lock_is_cleared_by_the_purge(org: TestOrg) -> None:
    for _ in range(10):
        await fail_login(org)
    org.clock.advance(16 * 60)
    await org.core.logins.purge()
    assert (await row_of(org, org.reader.user_id))["IsPasswordLocked"] is False


async def test_purge_skips_the_row_of_a_deleted_user(org: TestOrg) -> None:
    for _ in range(10):
        await fail_login(org)
    user = org.gate.catalog.object("User")
    await org.core.records.write_plain(lambda tx: delete_row(tx, user, org.reader.user_id))
    org.clock.advance(16 * 60)
    await org.core.logins.purge()
    assert (await row_of(org, org.reader.user_id))["IsPasswordLocked"] is False


async def test_new_password_lifts_the_lock_and_is_dated(org: TestOrg) -> None:
    for _ in range(10):
        await fail_login(org)
    org.clock.advance(60)
    await org.core.logins.credentials.set_password(org.call, org.reader.user_id, "another long one")
    assert (await row_of(org, org.reader.user_id))["IsPasswordLocked"] is False
    soql = f"SELECT LastPasswordChangeDate FROM User WHERE Id = '{org.reader.user_id}'"
    (user,) = (await org.gate.query(org.admin, soql)).rows
    assert user["LastPasswordChangeDate"] == org.clock.now_ms() // 1000 * 1000


async def test_own_password_is_changed_for_the_old_one_only(org: TestOrg) -> None:
    logins, call = org.core.logins, Call(org.reader, "com/test")
    with pytest.raises(PasswordInvalid) as refused:
        await logins.change_own_password(call, "wrong", "another long one")
    assert refused.value.details["is_old"] is True
    with pytest.raises(PasswordInvalid):
        await logins.change_own_password(call, DEV_PASSWORD, "short")
    await logins.change_own_password(call, DEV_PASSWORD, "another long one")
    await fail_login(org, DEV_PASSWORD)
    await logins.login(READER, "another long one", "")


async def test_guesses_at_the_own_password_count_as_failed_logins(org: TestOrg) -> None:
    logins, call = org.core.logins, Call(org.reader, "com/test")
    for _ in range(10):
        with pytest.raises(PasswordInvalid):
            await logins.change_own_password(call, "wrong", "another long one")
    with pytest.raises(PasswordInvalid):
        await logins.change_own_password(call, DEV_PASSWORD, "another long one")
    await fail_login(org, DEV_PASSWORD)
