"""Time windows, passwords, sessions, and what every call has in common."""

from __future__ import annotations

from xml.etree.ElementTree import fromstring

import pytest

from tests.orgs import READER, TestOrg
from tests.unit.frontends.soap.caller import Caller, children, code, sign_in
from tidewire.config import DEV_PASSWORD
from tidewire.errors import LoginFailed, SessionInvalid
from tidewire.frontends.soap.serve import OPERATIONS
from tidewire.frontends.soap.wsdl.shapes import HEADERS
from tidewire.schema.values import render_datetime

MINUTE_MS = 60_000
DAY_MS = 86_400_000


def window(org: TestOrg, start_ms: int, end_ms: int, entity: str = "Account") -> str:
    now_ms = org.clock.now_ms()
    start, end = (render_datetime(now_ms + offset_ms, "Z") for offset_ms in (start_ms, end_ms))
    return f"<sObjectType>{entity}</sObjectType><startDate>{start}</startDate><endDate>{end}</endDate>"


async def test_timestamp_is_the_servers(org: TestOrg) -> None:
    caller = await sign_in(org)
    (result,) = await caller.call("getServerTimestamp")
    assert result.findtext("timestamp") == render_datetime(org.clock.now_ms(), "Z")


async def test_window_separates_changed_and_deleted_records(org: TestOrg) -> None:
    caller = await sign_in(org)
    old = await org.make_account("old")
    org.clock.advance(3600)
    fresh, gone = await org.make_account("fresh"), await org.make_account("gone")
    await org.gate.delete(org.call, "Account", gone)
    last_minutes = window(org, -10 * MINUTE_MS, MINUTE_MS)
    (updated,) = await caller.call("getUpdated", last_minutes)
    assert [e.text for e in updated.iterfind("ids")] == [fresh]
    (deleted,) = await caller.call("getDeleted", last_minutes)
    assert children(deleted) == ["deletedRecords", "earliestDateAvailable", "latestDateCovered"]
    assert children(deleted[0]) == ["deletedDate", "id"]
    assert deleted.findtext("deletedRecords/id") == gone
    (all_updated,) = await caller.call("getUpdated", window(org, -2 * 60 * MINUTE_MS, MINUTE_MS))
    assert [e.text for e in all_updated.iterfind("ids")] == [old, fresh]


async def test_purged_records_are_listed_for_users_who_could_see_them(org: TestOrg) -> None:
    await org.apply(objects={"Contact": {"sharing": "private"}})
    caller, reader = await sign_in(org), await sign_in(org, username=READER)
    gone = await org.gate.create(org.call, "Contact", {"LastName": "gone"})
    await org.gate.delete(org.call, "Contact", gone)
    assert await org.gate.purge(org.call, [gone]) == [gone]
    last_minutes = window(org, -10 * MINUTE_MS, MINUTE_MS, "Contact")
    (told,) = await caller.call("getDeleted", last_minutes)
    assert [e.text for e in told.iterfind("deletedRecords/id")] == [gone]
    (untold,) = await reader.call("getDeleted", last_minutes)
    assert children(untold) == ["earliestDateAvailable", "latestDateCovered"]


async def test_covered_time_precedes_commits_that_are_not_yet_visible(org: TestOrg) -> None:
    caller = await sign_in(org)
    now_ms = org.clock.now_ms()
    (recent,) = await caller.call("getUpdated", window(org, -10 * MINUTE_MS, MINUTE_MS))
    assert recent.findtext("latestDateCovered") == render_datetime(now_ms - MINUTE_MS, "Z")
    (past,) = await caller.call("getUpdated", window(org, -10 * MINUTE_MS, -5 * MINUTE_MS))
    assert past.findtext("latestDateCovered") == render_datetime(now_ms - 5 * MINUTE_MS, "Z")


@pytest.mark.parametrize(
    "start_ms, end_ms", [(0, 1000), (0, -MINUTE_MS), (-31 * DAY_MS, 0), (MINUTE_MS, 3 * MINUTE_MS)]
)
async def test_invalid_window_is_rejected(org: TestOrg, start_ms: int, end_ms: int) -> None:
    caller = await sign_in(org)
    for operation in ("getUpdated", "getDeleted"):
        fault = await caller.fault(operation, window(org, start_ms, end_ms))
        assert fault[0] == "sf:INVALID_REPLICATION_DATE"


async def test_window_needs_moments_and_a_visible_object(org: TestOrg) -> None:
    caller = await sign_in(org, username=READER)
    fault = await caller.fault("getUpdated", "<sObjectType>Account</sObjectType><startDate>x</startDate>")
    assert fault[0] == "sf:INVALID_REPLICATION_DATE"
    hidden = window(org, -10 * MINUTE_MS, 0, "Opportunity")
    assert (await caller.fault("getUpdated", hidden))[0] == "sf:INVALID_TYPE"


async def test_password_is_set_and_reset(org: TestOrg) -> None:
    caller = await sign_in(org)
    user = f"<userId>{org.reader.user_id}</userId>"
    await caller.call("setPassword", user + "<password>correct horse</password>")
    await org.core.logins.login(READER, "correct horse", "test")
    (result,) = await caller.call("resetPassword", user)
    await org.core.logins.login(READER, result.findtext("password") or "", "test")
    with pytest.raises(LoginFailed):
        await org.core.logins.login(READER, "correct horse", "test")
    fault = await caller.fault("setPassword", user + "<password>x</password>")
    assert fault[0] == "sf:INVALID_NEW_PASSWORD"


async def test_reader_may_not_set_anothers_password(org: TestOrg) -> None:
    caller = await sign_in(org, username=READER)
    arguments = f"<userId>{org.admin.user_id}</userId><password>correct horse</password>"
    assert (await caller.fault("setPassword", arguments))[0] == "sf:INSUFFICIENT_ACCESS"


async def test_sessions_are_ended_by_token_but_not_anothers(org: TestOrg) -> None:
    caller, other = await sign_in(org, username=READER), await sign_in(org)
    mine = await org.core.logins.login(READER, DEV_PASSWORD, "test")
    tokens = "".join(f"<sessionIds>{t}</sessionIds>" for t in (mine.token, other.token, "unknown"))
    results = await caller.call("invalidateSessions", tokens)
    assert [r.findtext("success") for r in results] == ["true", "false", "false"]
    assert code(results[1]) == code(results[2]) == "INVALID_SESSION_ID"
    await other.call("getUserInfo")
    with pytest.raises(SessionInvalid):
        await org.core.logins.sessions.authenticate(mine.token)


async def test_every_answer_except_login_reports_the_api_usage(org: TestOrg) -> None:
    caller = await sign_in(org)
    await caller.call("getUserInfo")
    header = fromstring((await caller.post("getUserInfo")).body)[0]
    info = [element.text for element in header[0][0]]
    assert info == ["2", "5000000", "API REQUESTS"]


async def test_call_without_valid_session_is_rejected_before_it_is_read(org: TestOrg) -> None:
    stranger = Caller(org, "00D!nobody")
    for operation in ("query", "create", "describeGlobal", "logout"):
        assert (await stranger.fault(operation))[0] == "sf:INVALID_SESSION_ID"


async def test_session_whose_user_lost_the_api_is_rejected_at_once(org: TestOrg) -> None:
    reader = await sign_in(org, username=READER)
    await reader.call("getServerTimestamp")
    for entity in ("PermissionSet", "Profile"):
        soql = (
            f"SELECT Id FROM {entity} WHERE PermissionsApiEnabled = true AND PermissionsModifyAllData = false"
        )
        for row in (await org.gate.query(org.admin, soql)).rows:
            await org.gate.update(org.call, entity, str(row["Id"]), {"PermissionsApiEnabled": False})
    assert "API_DISABLED_FOR_ORG" in (await reader.fault("getServerTimestamp"))[0]
    await reader.call("logout")


async def test_own_password_is_changed_for_the_old_one(org: TestOrg) -> None:
    caller = await sign_in(org, username=READER)
    wrong = "<oldPassword>wrong</oldPassword><newPassword>another one</newPassword>"
    answer = await caller.post("changeOwnPassword", wrong)
    assert b'<sf:InvalidOldPasswordFault xsi:type="sf:InvalidOldPasswordFault">' in answer.body
    assert b"<sf:exceptionCode>INVALID_OLD_PASSWORD</sf:exceptionCode>" in answer.body
    right = f"<oldPassword>{DEV_PASSWORD}</oldPassword><newPassword>another one</newPassword>"
    await caller.call("changeOwnPassword", right)
    await org.core.logins.login(READER, "another one", "test")


@pytest.mark.parametrize(
    "block, is_refused",
    [
        ('<CallOptions e:mustUnderstand="1"><client>x</client></CallOptions>', False),
        ('<Nope e:mustUnderstand="1"/>', True),
        ('<s:Security xmlns:s="urn:x" e:mustUnderstand="1"/>', True),
        ('<s:Security xmlns:s="urn:x" e:mustUnderstand="0"/>', False),
        ('<s:Security xmlns:s="urn:x"/>', False),
        ('<s:Security xmlns:s="urn:x" e:mustUnderstand="1" e:actor="urn:other"/>', False),
    ],
)
async def test_header_that_must_be_understood_and_is_not_is_a_fault(
    org: TestOrg, block: str, is_refused: bool
) -> None:
    caller = await sign_in(org)
    answer = await caller.post("getServerTimestamp", header=block)
    assert (b"<faultcode>soapenv:MustUnderstand</faultcode>" in answer.body) is is_refused
    assert answer.status == (500 if is_refused else 200)


async def test_headers_of_the_api_go_with_every_call(org: TestOrg) -> None:
    caller = await sign_in(org)
    blocks = "".join(f"<{name}/>" for name in sorted(HEADERS) if name != "SessionHeader")
    for name in sorted(OPERATIONS.keys() - {"logout"}):
        answer = await caller.post(name, header=blocks)
        fault = fromstring(answer.body).findtext(".//faultcode") or ""
        assert not fault.startswith("soapenv:"), name
        assert fault not in ("sf:UNKNOWN_EXCEPTION", "sf:INVALID_SESSION_ID"), name
