"""Resources besides records: lists, descriptions, windows, searches, limits, layouts."""

from __future__ import annotations

import asyncio
import json
import threading
from urllib.parse import quote

import pytest

from tests.orgs import READER, TestOrg
from tests.unit.frontends.rest.caller import Caller, code, header, sign_in
from tidewire.schema.values import render_datetime

READERS = 8  # at least as many as a store has


@pytest.fixture
async def caller(org: TestOrg) -> Caller:
    return await sign_in(org)


@pytest.mark.parametrize("version", [20, 36, 67])
async def test_every_listed_resource_answers(caller: Caller, version: int) -> None:
    base = f"/services/data/v{version}.0"
    listed = json.loads((await caller.go("GET", "", base=base)).body)
    assert {"sobjects", "query", "search", "recent", "identity"} <= set(listed)
    for name, url in listed.items():
        if name in ("identity", "eventSchema", "jobs"):
            continue
        answer = await caller.go("GET", url.removeprefix(base), base=base)
        assert answer.status in (200, 400, 405), (name, answer.body)
        assert header(answer, "Sforce-Limit-Info").startswith("api-usage=")


async def test_resource_of_a_later_version_does_not_exist_in_an_earlier(caller: Caller) -> None:
    for path in ("/limits", "/parameterizedSearch?q=abc", "/sobjects/Account/updated"):
        assert code(await caller.go("GET", path, base="/services/data/v20.0")) == (404, "NOT_FOUND")


class TestDescribe:
    async def test_unchanged_description_is_not_sent_again(self, caller: Caller) -> None:
        first = await caller.go("GET", "/sobjects/Account/describe")
        for name, told in (("if_modified_since", "Last-Modified"), ("if_none_match", "ETag")):
            again = await caller.go("GET", "/sobjects/account/describe", **{name: header(first, told)})
            assert (again.status, again.body) == (304, b"")
        old = await caller.go(
            "GET", "/sobjects/Account/describe", if_modified_since="Wed, 3 Jul 2013 19:43:31 GMT"
        )
        assert old.status == 200

    async def test_changed_description_is_sent_even_in_the_same_second(
        self, org: TestOrg, caller: Caller
    ) -> None:
        first = await caller.go("GET", "/sobjects/Account/describe")
        await org.apply(objects={"Account": {"fields": {"New__c": {"type": "Checkbox"}}}})
        again = await caller.go(
            "GET", "/sobjects/Account/describe", if_modified_since=header(first, "Last-Modified")
        )
        assert again.status == 200
        assert "New__c" in again.body.decode()

    async def test_description_of_one_user_does_not_validate_anothers(
        self, org: TestOrg, caller: Caller
    ) -> None:
        first = await caller.go("GET", "/sobjects/Account/describe")
        reader = await sign_in(org, READER)
        other = await reader.go("GET", "/sobjects/Account/describe", if_none_match=header(first, "ETag"))
        assert other.status == 200


class TestReplication:
    async def test_changes_and_deletes_of_a_window_are_listed(self, org: TestOrg, caller: Caller) -> None:
        kept, gone = await org.make_account("kept"), await org.make_account("gone")
        await org.gate.delete(org.call, "Account", gone)
        now_ms = org.clock.now_ms()
        start = quote(render_datetime(now_ms - 3_600_000, "+00:00"))
        end = render_datetime(now_ms + 60_000, "+00:00")  # with a plus that nobody encoded
        updated = await caller.read(f"/sobjects/Account/updated/?start={start}&end={end}")
        assert kept in updated["ids"]
        assert gone not in updated["ids"]
        assert updated["latestDateCovered"].endswith("+0000")
        deleted = await caller.read(f"/sobjects/account/deleted?start={start}&end={end}")
        assert [r["id"] for r in deleted["deletedRecords"]] == [gone]
        assert set(deleted) == {"deletedRecords", "earliestDateAvailable", "latestDateCovered"}

    @pytest.mark.parametrize(
        "window",
        [
            "",
            "start=x&end=y",
            "start=2001-01-01T00:00:00Z&end=2001-02-01T00:00:00Z",
            "start=2999-01-01T00:00:00Z&end=2999-02-01T00:00:00Z",
        ],
    )
    async def test_invalid_window_is_rejected(self, caller: Caller, window: str) -> None:
        for kind in ("updated", "deleted"):
            answer = await caller.go("GET", f"/sobjects/Account/{kind}?{window}")
            assert code(answer) == (400, "INVALID_REPLICATION_DATE")


class TestSearch:
    async def test_parameters_and_body_find_alike(self, org: TestOrg, caller: Caller) -> None:
        await org.make_account("Zebrafish Ltd")
        path = "/parameterizedSearch/?q=Zebrafish&sobject=Account&Account.fields=id,name&Account.limit=5"
        (found,) = (await caller.read(path))["searchRecords"]
        assert found["Name"] == "Zebrafish Ltd"
        wanted = {"q": "Zebrafish", "sobjects": [{"name": "Account", "fields": ["Name"]}], "in": "NAME"}
        answer = await caller.go("POST", "/parameterizedSearch", wanted)
        assert json.loads(answer.body)["searchRecords"][0]["Name"] == "Zebrafish Ltd"
        old = await caller.go("GET", path, base="/services/data/v36.0")
        assert isinstance(json.loads(old.body), list)

    @pytest.mark.parametrize(
        "body",
        [
            {},
            {"q": 7},
            {"q": " "},
            {"q": "abc", "in": "NOWHERE"},
            {"q": "abc", "sobjects": [{"name": "Account) , User(Id"}]},
            {"q": "abc", "sobjects": [{"name": "Account", "fields": ["Id FROM User"]}]},
            {"q": "abc", "sobjects": [{"name": "Account", "limit": "1 ALL ROWS"}]},
            {"q": "abc", "fields": ["Name"]},
        ],
    )
    async def test_malformed_search_is_rejected(self, caller: Caller, body: object) -> None:
        answer = await caller.go("POST", "/parameterizedSearch", body)
        assert code(answer) == (400, "MALFORMED_SEARCH")

    async def test_braces_in_the_word_stay_in_the_word(self, caller: Caller) -> None:
        answer = await caller.go("POST", "/parameterizedSearch", {"q": "a} IN NAME FIELDS RETURNING User("})
        assert answer.status == 200
        assert json.loads(answer.body) == {"searchRecords": []}


class TestRecent:
    async def test_records_are_listed_newest_first(self, org: TestOrg, caller: Caller) -> None:
        first = json.loads((await caller.go("POST", "/sobjects/Account", {"Name": "a"})).body)["id"]
        second = json.loads((await caller.go("POST", "/sobjects/Contact", {"LastName": "b"})).body)["id"]
        assert [r["Id"] for r in await caller.read("/recent")] == [second, first]
        await caller.go("GET", f"/sobjects/Account/{first}", sforce_mru="updateMru=true")
        (newest,) = await caller.read("/recent?limit=1")
        assert (newest["Id"], newest["Name"], newest["attributes"]["type"]) == (first, "a", "Account")
        assert [r["Id"] for r in (await caller.read("/sobjects/Contact"))["recentItems"]] == [second]
        await caller.go("DELETE", f"/sobjects/Account/{first}")
        assert [r["Id"] for r in await caller.read("/recent")] == [second]

    @pytest.mark.parametrize("limit", ["0", "201", "-1", "x", ""])
    async def test_limit_out_of_range_is_rejected(self, caller: Caller, limit: str) -> None:
        assert (await caller.go("GET", f"/recent?limit={limit}")).status == 400


async def test_limits_of_missing_features_are_zero(caller: Caller) -> None:
    limits = await caller.read("/limits")
    assert limits["DailyApiRequests"]["Remaining"] == limits["DailyApiRequests"]["Max"] - 1
    assert limits["MassEmail"] == {"Max": 0, "Remaining": 0}
    assert limits["PermissionSets"]["CreateCustom"]["Remaining"] < limits["PermissionSets"]["Max"]


async def test_records_are_counted_by_object(org: TestOrg, caller: Caller) -> None:
    await org.make_account("a")
    await org.make_account("b")
    counted = await caller.read("/limits/recordCount?sObjects=account,Contact,Nope")
    assert counted == {"sObjects": [{"count": 2, "name": "Account"}, {"count": 0, "name": "Contact"}]}
    everything = (await caller.read("/limits/recordCount"))["sObjects"]
    assert {"count": 2, "name": "Account"} in everything


class TestLayouts:
    async def test_layout_shows_only_fields_that_the_user_may_see(self, org: TestOrg, caller: Caller) -> None:
        def shown(answer: dict[str, list[dict[str, list[dict[str, object]]]]]) -> str:
            return json.dumps(answer["layouts"][0]["detailLayoutSections"])

        await org.apply(objects={"Account": {"fields": {"Secret__c": {"type": "Checkbox"}}}})
        path = "/sobjects/Account/describe/layouts"
        assert "Secret__c" in shown(await caller.read(path))
        reader = await sign_in(org, READER)
        assert "Secret__c" not in shown(await reader.read(path))
        mapping = (await caller.read(path))["recordTypeMappings"][0]
        assert (await caller.read(f"{path}/{mapping['recordTypeId']}"))["id"] == mapping["layoutId"]
        assert (await caller.go("GET", f"{path}/001000000000001")).status == 404

    @pytest.mark.parametrize(
        "path, key",
        [
            ("/sobjects/Account/describe/compactLayouts", "compactLayouts"),
            ("/sobjects/Account/describe/compactLayouts/primary", "fieldItems"),
            ("/sobjects/Account/describe/approvalLayouts", "approvalLayouts"),
            ("/sobjects/Account/listviews", "listviews"),
            ("/theme", "themeItems"),
            ("/appMenu/AppSwitcher", "appMenuItems"),
            ("/actions", "standard"),
            ("/actions/standard", "actions"),
        ],
    )
    async def test_page_resources_answer_in_their_form(self, caller: Caller, path: str, key: str) -> None:
        assert key in await caller.read(path)

    async def test_every_address_in_a_description_leads_somewhere(self, org: TestOrg, caller: Caller) -> None:
        await org.apply(objects={"Account": {"record_types": {"Retail": {"label": "In shops"}}}})
        for name in ("Account", "User"):
            described = await caller.read(f"/sobjects/{name}/describe")
            infos = [*described["namedLayoutInfos"], *described["recordTypeInfos"]]
            urls = [url for each in (described, *infos) for url in each["urls"].values()]
            for url in urls:
                if "{ID}" not in url:
                    assert (await caller.go("GET", url, base="")).status == 200, url
        named = (await caller.read("/sobjects/User/describe"))["namedLayoutInfos"]
        assert [each["name"] for each in named] == ["UserAlt"]

    async def test_record_types_are_described_and_have_the_layout(self, org: TestOrg, caller: Caller) -> None:
        await org.apply(objects={"Account": {"record_types": {"Retail": {"label": "In shops"}}}})
        retail, master = (await caller.read("/sobjects/Account/describe"))["recordTypeInfos"]
        assert (retail["developerName"], retail["name"], retail["master"]) == ("Retail", "In shops", False)
        assert (master["recordTypeId"], master["master"]) == ("012000000000000AAA", True)
        layouts = await caller.read("/sobjects/Account/describe/layouts")
        assert [each["name"] for each in layouts["recordTypeMappings"]] == ["In shops", "Master"]

    async def test_compact_layouts_of_several_objects_come_in_one_answer(self, caller: Caller) -> None:
        assert list(await caller.read("/compactLayouts?q=account,Contact")) == ["Account", "Contact"]
        assert (await caller.go("GET", "/compactLayouts?q=Nope")).status == 404

    async def test_unknown_object_or_layout_does_not_exist(self, caller: Caller) -> None:
        for path in (
            "/sobjects/Nope/describe/layouts",
            "/sobjects/Nope/listviews",
            "/sobjects/Account/describe/namedLayouts/Any",
            "/appMenu/Nope",
            "/actions/nope",
        ):
            assert (await caller.go("GET", path)).status == 404, path


class TestSessions:
    async def test_session_that_ends_during_a_read_gets_no_answer(self, org: TestOrg, caller: Caller) -> None:
        path = "/limits/recordCount?sObjects=Account"
        await caller.read(path)
        entry = await org.core.logins.sessions.peek(caller.token)
        is_revoked = threading.Event()
        # All reading waits for the end of the session, so the request is under way when it comes.
        held = [
            asyncio.ensure_future(org.gate.read_snapshot(lambda _: is_revoked.wait(120)))
            for _ in range(READERS)
        ]
        asked = asyncio.ensure_future(caller.go("GET", path))
        await org.core.logins.sessions.revoke(entry.session_id)
        assert not asked.done()
        is_revoked.set()
        assert code(await asked) == (401, "INVALID_SESSION_ID")
        await asyncio.gather(*held)

    async def test_write_that_was_done_is_answered_as_done(self, org: TestOrg, caller: Caller) -> None:
        await caller.read("/limits")
        entry = await org.core.logins.sessions.peek(caller.token)
        answer, _ = await asyncio.gather(
            caller.go("POST", "/sobjects/Account", {"Name": "x"}),
            org.core.logins.sessions.revoke(entry.session_id),
        )
        assert answer.status == 201

    async def test_org_without_apis_rejects_open_sessions(self, org: TestOrg, caller: Caller) -> None:
        await org.apply(settings={"api_enabled": False})
        answer = await caller.go("GET", "/limits")
        assert code(answer) == (403, "API_DISABLED_FOR_ORG")
