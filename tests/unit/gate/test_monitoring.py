"""Real-time monitoring: which events logins and reads publish, who receives them, and what they never hold."""

from __future__ import annotations

from typing import Any

import pytest

from tests.orgs import READER, TestOrg
from tests.published import bodies, kept_events
from tests.unit.frontends.rest.data_caller import Caller
from tidewire.access.apps import WEB_SERVER, ConnectedApp, store_app
from tidewire.access.passwords import hash_token
from tidewire.access.scopes import parse_scopes
from tidewire.config import DEV_PASSWORD
from tidewire.errors import AccessDenied, ChannelForbidden, DefinitionInvalid, LoginFailed
from tidewire.schema.standard.monitoring import API, LIST_VIEW, LOGIN, LOGOUT, STANDARD_EVENTS

pytestmark = pytest.mark.anyio

ALL = [event.name for event in STANDARD_EVENTS]


async def listen(org: TestOrg, *names: str) -> int:
    await org.apply(settings={"monitoring_events": list(names or ALL)})
    return await org.link.read_log_head()


async def one(org: TestOrg, topic: str, after: int) -> dict[str, Any]:
    (body,) = await bodies(org, topic, after)
    return body


async def test_no_event_is_published_unless_settings_enable_it(org: TestOrg) -> None:
    head = await org.link.read_log_head()
    result = await org.core.logins.login(READER, DEV_PASSWORD, "192.0.2.1")
    await Caller(org).send("GET", "query?q=SELECT+Id+FROM+Account")
    await org.core.logins.sessions.log_out(result.principal.session_id)
    assert await org.link.read_log_head() == head


async def test_login_and_logout_events_share_their_session_keys(org: TestOrg) -> None:
    head = await listen(org)
    result = await org.core.logins.login(READER, DEV_PASSWORD, "192.0.2.1")
    await org.core.logins.sessions.log_out(result.principal.session_id)
    login, logout = await one(org, LOGIN, head), await one(org, LOGOUT, head)
    events = {name: login[name] for name in ("UserId", "Username", "SourceIp", "Status", "LoginType")}
    assert events == {
        "UserId": result.principal.user_id,
        "Username": READER,
        "SourceIp": "192.0.2.1",
        "Status": "Success",
        "LoginType": "Other Apex API",
    }
    for key in ("SessionKey", "LoginKey", "UserId", "Username", "SourceIp"):
        assert login[key] == logout[key]
    assert login["SessionKey"] != login["LoginKey"]
    (event,) = await kept_events(org, LOGIN, head)
    assert event.event_uuid == login["EventIdentifier"]


async def test_revoked_refresh_token_signs_out_every_session_that_it_gave(org: TestOrg) -> None:
    url, scopes, oauth = "https://app.example.org/cb", parse_scopes("api refresh_token"), org.core.oauth
    app = ConnectedApp("app-9", "App", hash_token("s"), (url,), scopes, frozenset({WEB_SERVER}))
    await org.core.records.write_plain(lambda tx: store_app(tx, app))
    code = await oauth.give_code(app, org.reader.user_id, scopes, url, challenge="", nonce="")
    issued = await oauth.grant_for_code("app-9", "s", code, url, "", "192.0.2.1")
    head = await listen(org)
    org.clock.advance(7_000)
    await oauth.grant_for_refresh("app-9", "s", issued.refresh_token, "", "192.0.2.2")
    org.clock.advance(300)  # by now the first session has expired, and was over before
    await oauth.grant_for_refresh("app-9", "s", issued.refresh_token, "", "192.0.2.3")
    assert await oauth.revoke(issued.refresh_token)
    logins, logouts = await bodies(org, LOGIN, head), await bodies(org, LOGOUT, head)
    assert [body["SourceIp"] for body in logouts] == ["192.0.2.2", "192.0.2.3"]
    assert [body["LoginKey"] for body in logouts] == [body["LoginKey"] for body in logins]


async def test_rejected_login_event_has_its_reason_and_no_session(org: TestOrg) -> None:
    head = await listen(org)
    for password in ("wrong-Passw0rd", ""):
        with pytest.raises(LoginFailed):
            await org.core.logins.login(READER, password, "192.0.2.1")
    with pytest.raises(LoginFailed):
        await org.core.logins.login("nobody@example.org", "wrong-Passw0rd", "192.0.2.1")
    events = await bodies(org, LOGIN, head)
    assert [(b["Status"], b["SessionKey"]) for b in events] == [("Invalid Password", None)] * 2


async def test_login_event_of_a_locked_out_user_names_the_lockout(org: TestOrg) -> None:
    await org.apply(settings={"lockout_attempts": 1, "lockout_minutes": 15})
    head = await listen(org, LOGIN)
    for password in ("wrong-Passw0rd", DEV_PASSWORD):
        with pytest.raises(LoginFailed):
            await org.core.logins.login(READER, password, "192.0.2.1")
    assert [b["Status"] for b in await bodies(org, LOGIN, head)] == ["Invalid Password", "User locked out"]


async def test_no_event_holds_a_password_or_a_token(org: TestOrg) -> None:
    await org.core.logins.credentials.set_password(org.call, org.reader.user_id, "right-Passw0rd")
    head = await listen(org)
    result = await org.core.logins.login(READER, "right-Passw0rd", "192.0.2.1")
    with pytest.raises(LoginFailed):
        await org.core.logins.login(READER, "wrong-Passw0rd", "192.0.2.1")
    caller = Caller(org, result.principal)
    await caller.send("GET", "query?q=SELECT+Id+FROM+Account", authorization=f"Bearer {result.token}")
    await org.core.logins.sessions.log_out(result.principal.session_id)
    kept = [event.payload for name in ALL for event in await kept_events(org, name, head)]
    assert len(kept) == 4
    for secret in ("right-Passw0rd", "wrong-Passw0rd", result.token, result.principal.session_id):
        assert not any(secret.encode() in payload for payload in kept)


async def test_query_event_names_what_was_read(org: TestOrg) -> None:
    record_id = await org.make_account("Acme")
    await org.gate.create(org.call, "Contact", {"LastName": "C", "AccountId": record_id})
    head = await listen(org)
    soql = "SELECT Id, (SELECT Id FROM Contacts) FROM Account"
    headers = {"user_agent": "probe/1", "sforce_call_options": "client=Probe"}
    await Caller(org).send("GET", "query?q=" + soql.replace(" ", "+"), **headers)
    body = await one(org, API, head)
    assert (body["Query"], body["QueriedEntities"], body["Operation"]) == (soql, "Account,Contact", "Query")
    assert (body["ApiType"], body["ApiVersion"], body["Client"]) == ("REST", 60.0, "Probe")
    assert (body["RowsProcessed"], body["RowsReturned"], body["UserAgent"]) == (1.0, 1.0, "probe/1")
    assert record_id in body["Records"]
    assert "Acme" not in body["Records"]


async def test_query_in_a_composite_that_is_taken_back_was_read_all_the_same(org: TestOrg) -> None:
    head = await listen(org, API)
    url = "/services/data/v60.0"
    subrequests = [
        {"method": "GET", "url": f"{url}/query?q=SELECT+Id+FROM+Account", "referenceId": "a"},
        {"method": "POST", "url": f"{url}/sobjects/Account", "referenceId": "b", "body": {}},
    ]
    await Caller(org).send("POST", "composite", {"allOrNone": True, "compositeRequest": subrequests})
    assert len(await kept_events(org, API, head)) == 1


async def test_list_view_event_names_columns_and_records(org: TestOrg) -> None:
    second, first = await org.make_account("B"), await org.make_account("A")
    head = await listen(org)
    caller = Caller(org)
    _, listed = await caller.send("GET", "sobjects/Account/listviews")
    (view,) = listed["listviews"]
    path = view["resultsUrl"].removeprefix("/services/data/v60.0/")
    status, page = await caller.send("GET", path)
    assert (status, page["size"], page["done"]) == (200, 2, True)
    assert [record["columns"][0]["value"] for record in page["records"]] == ["A", "B"]
    body = await one(org, LIST_VIEW, head)
    assert (body["ListViewId"], body["Name"]) == (view["id"], "All Accounts")
    assert (body["QueriedEntities"], body["RowsProcessed"], body["NumberOfColumns"]) == ("Account", 2.0, 5)
    assert body["ColumnHeaders"].startswith("Name,Id")
    assert first in body["Records"]
    assert second in body["Records"]
    assert await kept_events(org, API, head) == []


async def test_monitoring_events_need_the_view_permission(org: TestOrg) -> None:
    channel = f"/event/{LOGIN}"
    assert (await org.link.open_channel(org.admin, channel, 60.0)).topics == {LOGIN}
    with pytest.raises(ChannelForbidden):
        await org.link.open_channel(org.reader, channel, 60.0)
    with pytest.raises(AccessDenied):
        await org.link.describe_topic(org.reader, channel)
    assert (await Caller(org, org.reader).send("GET", f"sobjects/{LOGIN}/describe"))[0] == 404
    await org.apply(
        permission_sets={"Watcher": {"permissions": ["ViewRealTimeEventMonitoringData"]}},
        users={READER: {"permission_sets": ["Account_Reader", "Watcher"]}},
    )
    assert (await org.link.open_channel(org.reader, channel, 60.0)).topics == {LOGIN}
    topic = await org.link.describe_topic(org.reader, channel)
    assert (topic.can_publish, topic.can_subscribe) == (False, True)
    status, described = await Caller(org, org.reader).send("GET", f"sobjects/{LOGIN}/describe")
    assert (status, described["createable"], described["custom"]) == (200, False, False)
    status, schema = await Caller(org, org.reader).send(
        "GET", f"sobjects/{LOGIN}/eventSchema?payloadFormat=COMPACT"
    )
    assert (status, schema["uuid"], schema["name"]) == (200, topic.schema_id, LOGIN)


async def test_settings_accept_only_monitoring_events(org: TestOrg) -> None:
    with pytest.raises(DefinitionInvalid, match="is not one of"):
        await listen(org, "BigEventStream")
