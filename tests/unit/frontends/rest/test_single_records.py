"""Single records over REST: external ids, relationships, conditions."""

from __future__ import annotations

import json

import pytest

from tests.orgs import READER, TestOrg
from tests.unit.frontends.rest.caller import Caller, V, code, header, sign_in
from tidewire.clock import ManualClock

KEYS = {
    "objects": {
        "Part__c": {
            "fields": {
                "Key__c": {"type": "Text", "length": 40, "external_id": True},
                "Number__c": {"type": "Number", "precision": 10, "scale": 0, "external_id": True},
            }
        }
    }
}


@pytest.fixture
async def caller(org: TestOrg) -> Caller:
    await org.apply(**KEYS)
    return await sign_in(org)


async def test_upsert_creates_then_updates_and_reports_which(caller: Caller) -> None:
    made = await caller.go("PATCH", "/sobjects/Part__c/Key__c/A1", {"Name": "one"})
    body = json.loads(made.body)
    assert (made.status, body["created"], body["success"]) == (201, True, True)
    assert header(made, "Location") == f"{V}/sobjects/Part__c/{body['id']}"
    changed = await caller.go("PATCH", "/sobjects/part__c/key__c/a1", {"Name": "two"})
    assert (changed.status, json.loads(changed.body)) == (200, body | {"created": False})
    old = await caller.go("PATCH", "/sobjects/Part__c/Key__c/A1", {}, base="/services/data/v45.0")
    assert (old.status, old.body) == (204, b"")
    read = await caller.read("/sobjects/Part__c/Key__c/A1?fields=Name")
    assert (read["Id"], read["Name"]) == (body["id"], "two")
    assert (await caller.go("DELETE", "/sobjects/Part__c/Key__c/A1")).status == 204
    assert code(await caller.go("GET", "/sobjects/Part__c/Key__c/A1")) == (404, "NOT_FOUND")
    assert code(await caller.go("DELETE", "/sobjects/Part__c/Key__c/A1"))[0] == 404


async def test_upsert_by_empty_id_creates(caller: Caller) -> None:
    for method in ("PATCH", "POST"):
        made = await caller.go(method, "/sobjects/Part__c/Id/", {"Name": "x"})
        assert made.status == 201


async def test_people_are_upserted_and_named_by_their_addresses(caller: Caller) -> None:
    made = await caller.go("PATCH", "/sobjects/Contact/Email/ada@example.org", {"LastName": "Ada"})
    again = await caller.go("PATCH", "/sobjects/Contact/Email/ADA@example.org", {"FirstName": "A"})
    assert (made.status, again.status) == (201, 200)
    named = {"LastName": "Bob", "ReportsTo": {"Email": "ada@example.org"}}
    bob = json.loads((await caller.go("POST", "/sobjects/Contact", named)).body)["id"]
    assert (await caller.read(f"/sobjects/Contact/{bob}"))["ReportsToId"] == json.loads(made.body)["id"]
    owned = {"Name": "Owned", "Owner": {"Username": "admin@tidewire.local"}}
    assert (await caller.go("POST", "/sobjects/Account", owned)).status == 201
    fields = (await caller.read("/sobjects/Contact/describe"))["fields"]
    assert [f["name"] for f in fields if f["idLookup"]] == ["Id", "Email"]


async def test_key_in_the_body_of_an_upsert_is_rejected(caller: Caller) -> None:
    answer = await caller.go("PATCH", "/sobjects/Part__c/Key__c/A1", {"key__c": "A1"})
    assert code(answer) == (400, "INVALID_FIELD")


async def test_update_only_upsert_of_nothing_is_not_found(caller: Caller) -> None:
    path = "/sobjects/Part__c/Key__c/A1?updateOnly=true"
    assert (await caller.go("PATCH", path, {"Name": "x"})).status == 404
    await caller.go("PATCH", "/sobjects/Part__c/Key__c/A1", {"Name": "x"})
    answer = await caller.go("PATCH", path, {"Name": "y"})
    assert (answer.status, json.loads(answer.body)["created"]) == (200, False)


async def test_several_records_with_one_key_are_listed_with_status_300(caller: Caller) -> None:
    ids = [
        json.loads((await caller.go("POST", "/sobjects/Part__c", {"Name": n, "Key__c": "same"})).body)["id"]
        for n in "ab"
    ]
    urls = sorted(f"{V}/sobjects/Part__c/{record_id}" for record_id in ids)
    for method in ("GET", "PATCH", "DELETE"):
        answer = await caller.go(method, "/sobjects/Part__c/Key__c/same", {"Name": "c"})
        assert (answer.status, sorted(json.loads(answer.body))) == (300, urls)
    assert (await caller.read("/query?q=SELECT+Name+FROM+Part__c"))["totalSize"] == 2


@pytest.mark.parametrize(
    "stored, path",
    [
        ("a b", "a%20b"),
        ("a b", "a+b"),
        ("a+b", "a+b"),
        ("a+b", "a%2Bb"),
        ("a/b", "a%2Fb"),
        ("it's \\", "it's%20%5C"),
        ("Zoë", "Zo%C3%AB"),
        ("x.xml", "x.xml"),
        ("%20", "%2520"),
    ],
)
async def test_key_is_found_however_the_client_wrote_it(caller: Caller, stored: str, path: str) -> None:
    await caller.go("POST", "/sobjects/Part__c", {"Name": "n", "Key__c": stored})
    assert (await caller.read(f"/sobjects/Part__c/Key__c/{path}"))["Key__c"] == stored
    again = await caller.go("PATCH", f"/sobjects/Part__c/Key__c/{path}", {"Name": "m"})
    assert (again.status, json.loads(again.body)["created"]) == (200, False)


async def test_number_key_is_compared_as_a_number(caller: Caller) -> None:
    await caller.go("PATCH", "/sobjects/Part__c/Number__c/7", {"Name": "n"})
    assert (await caller.read("/sobjects/Part__c/Number__c/7.0"))["Number__c"] == 7.0
    assert (await caller.go("GET", "/sobjects/Part__c/Number__c/7%20OR%20Id%21%3Dnull")).status == 404


@pytest.mark.parametrize("field", ["Nope__c", "Name", "nonsense"])
async def test_field_that_is_no_key_is_not_found(caller: Caller, field: str) -> None:
    answer = await caller.go("GET", f"/sobjects/Part__c/{field}/1")
    assert code(answer) == (404, "NOT_FOUND")
    assert json.loads(answer.body)[0]["message"].endswith(f"not accessible: {field}")


async def test_key_field_that_the_user_may_not_see_does_not_exist(org: TestOrg, caller: Caller) -> None:
    await caller.go("PATCH", "/sobjects/Part__c/Key__c/A1", {"Name": "one"})
    reader = await sign_in(org, READER)
    assert code(await reader.go("GET", "/sobjects/Part__c/Key__c/A1")) == (404, "NOT_FOUND")


async def test_method_override_updates_and_deletes(caller: Caller) -> None:
    made = await caller.go("POST", "/sobjects/Account", {"Name": "x"})
    path = f"/sobjects/Account/{json.loads(made.body)['id']}?_HttpMethod="
    assert (await caller.go("POST", path + "PATCH", {"Phone": "1"})).status == 204
    assert (await caller.go("POST", path + "delete")).status == 204
    assert code(await caller.go("POST", path + "NONSENSE", {})) == (405, "METHOD_NOT_ALLOWED")


async def test_parent_is_read_and_changed_along_its_relationship(caller: Caller) -> None:
    account = json.loads((await caller.go("POST", "/sobjects/Account", {"Name": "top"})).body)["id"]
    below = json.loads(
        (await caller.go("POST", "/sobjects/Account", {"Name": "low", "ParentId": account})).body
    )["id"]
    contact = json.loads(
        (await caller.go("POST", "/sobjects/Contact", {"LastName": "c", "AccountId": below})).body
    )["id"]
    assert (await caller.read(f"/sobjects/Contact/{contact}/Account/Parent"))["Name"] == "top"
    assert (await caller.read(f"/sobjects/Contact/{contact}/Account/Contacts"))["totalSize"] == 1
    answer = await caller.go("PATCH", f"/sobjects/Contact/{contact}/Account", {"Phone": "5"})
    assert answer.status == 204
    assert (await caller.read(f"/sobjects/Account/{below}"))["Phone"] == "5"
    assert (await caller.go("GET", f"/sobjects/Contact/{contact}/Account/Contacts/Account")).status == 404
    assert (await caller.go("DELETE", f"/sobjects/Account/{below}/Contacts")).status == 404


class TestConditions:
    async def _make(self, caller: Caller) -> tuple[str, str, str]:
        made = await caller.go("POST", "/sobjects/Account", {"Name": "x"})
        path = f"/sobjects/Account/{json.loads(made.body)['id']}"
        read = await caller.go("GET", path)
        return path, header(read, "ETag"), header(read, "Last-Modified")

    async def test_reader_with_current_etag_gets_not_modified(self, caller: Caller) -> None:
        path, etag, modified = await self._make(caller)
        for name, value in (("if_none_match", etag), ("if_modified_since", modified)):
            answer = await caller.go("GET", path, **{name: value})
            assert (answer.status, answer.body, header(answer, "ETag")) == (304, b"", etag)
            assert header(answer, "Sforce-Limit-Info").startswith("api-usage=")
        fresh = await caller.go("GET", path, if_none_match='"other"')
        assert fresh.status == 200
        assert (await caller.go("GET", path, if_match='"other"')).status == 412

    async def test_etag_changes_with_the_record_and_not_with_its_form(self, caller: Caller) -> None:
        path, etag, _ = await self._make(caller)
        some = await caller.go("GET", path + "?fields=Name", x_prettyprint="1", accept="application/xml")
        assert header(some, "ETag") == etag
        await caller.go("PATCH", path, {"Phone": "1"})
        assert header(await caller.go("GET", path), "ETag") != etag

    @pytest.mark.parametrize("method", ["PATCH", "DELETE"])
    async def test_write_with_an_outdated_etag_is_rejected(self, caller: Caller, method: str) -> None:
        path, etag, _ = await self._make(caller)
        assert (await caller.go("PATCH", path, {"Phone": "1"}, if_match=etag)).status == 204
        late = await caller.go(method, path, {"Phone": "2"}, if_match=etag)
        assert code(late) == (412, "PRECONDITION_FAILED")
        now = await caller.go("GET", path)
        assert json.loads(now.body)["Phone"] == "1"
        good = await caller.go(method, path, {"Phone": "3"}, if_match=f'"a", {header(now, "ETag")}')
        assert good.status == 204

    async def test_write_is_rejected_when_the_record_changed_after_a_date(
        self, org: TestOrg, caller: Caller
    ) -> None:
        path, _, modified = await self._make(caller)
        assert isinstance(org.clock, ManualClock)
        org.clock.advance(5)
        await caller.go("PATCH", path, {"Phone": "1"}, if_unmodified_since=modified)
        late = await caller.go("PATCH", path, {"Phone": "2"}, if_unmodified_since=modified)
        assert late.status == 412
        assert (await caller.go("PATCH", path, {"Phone": "2"}, if_unmodified_since="rubbish")).status == 204

    async def test_upsert_minds_the_state_of_what_it_would_change(self, caller: Caller) -> None:
        path = "/sobjects/Part__c/Key__c/K"
        await caller.go("PATCH", path, {"Name": "a"})
        etag = header(await caller.go("GET", path), "ETag")
        assert (await caller.go("PATCH", path, {"Name": "b"}, if_match=etag)).status == 200
        assert (await caller.go("PATCH", path, {"Name": "c"}, if_match=etag)).status == 412


@pytest.mark.parametrize(
    "body, place",
    [
        (b'{"LastName":"x","Birthdate":"soon"}', "[line:1, column:29]"),
        (b'{"LastName": "x",\n "birthdate" : {}}', "[line:2, column:16]"),
    ],
)
async def test_value_of_the_wrong_type_is_reported_with_line_and_column(
    caller: Caller, body: bytes, place: str
) -> None:
    refused = await caller.go("POST", "/sobjects/Contact", body)
    (error,) = json.loads(refused.body)
    assert error["errorCode"] == "JSON_PARSER_ERROR"
    assert error["message"].endswith(f"or request may be missing a required field at {place}")
