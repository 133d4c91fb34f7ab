"""Collections: several records in one request."""

from __future__ import annotations

from typing import Any

import pytest

from tests.orgs import TestOrg
from tests.unit.frontends.rest.data_caller import Caller, count

PATH = "composite/sobjects"
ROLLED_BACK = "ALL_OR_NONE_OPERATION_ROLLED_BACK"
OBJECTS = {
    "Part__c": {
        "fields": {
            "Number__c": {"type": "Text", "length": 20, "external_id": True, "unique": True},
            "Account__c": {"type": "Lookup", "references": ["Account"]},
        }
    },
    "Bolt__c": {"fields": {"Part__c": {"type": "Lookup", "references": ["Part__c"]}}},
}
EVENTS = {"Done__e": {"fields": {"Number__c": {"type": "Text", "length": 20}}}}


def row(entity: str = "Account", **fields: object) -> dict[str, object]:
    return {"attributes": {"type": entity}, **fields}


def part(number: object, **fields: object) -> dict[str, object]:
    return row("Part__c", Number__c=number, **fields)


def codes(results: list[dict[str, Any]]) -> list[str]:
    return [r["errors"][0]["statusCode"] if r["errors"] else "" for r in results]


async def test_mixed_types_are_created_in_order(org: TestOrg) -> None:
    records = [row(Name="A"), row("contact", LastName="C"), row(Name="B")]
    status, results = await Caller(org).send("POST", PATH, {"records": records})
    assert status == 200
    assert [r["id"][:3] for r in results] == ["001", "003", "001"]


async def test_update_accepts_either_spelling_of_id(org: TestOrg) -> None:
    first, second = await org.make_account("A"), await org.make_account("B")
    records = [row(id=first, Phone="1"), row(Id=second[:15], Phone="2"), row(Phone="3"), row(id=None)]
    _, results = await Caller(org).send("PATCH", PATH, {"records": records})
    assert [r.get("id") for r in results] == [first, second, None, None]
    missing = {
        "statusCode": "MISSING_ARGUMENT",
        "message": "Id not specified in an update call",
        "fields": [],
    }
    assert [r["errors"] for r in results[2:]] == [[missing], [missing]]


async def test_upsert_creates_and_updates_and_reports_which(org: TestOrg) -> None:
    await org.apply(objects=OBJECTS)
    caller = Caller(org)
    path = f"{PATH}/part__c/number__C"
    _, (made,) = await caller.send("PATCH", path, {"records": [part("1", Name="P1")]})
    assert made == {"id": made["id"], "success": True, "errors": [], "created": True}
    records = [part("1", Name="P1b"), part("2", Name="P2"), row("Part__c", Name="P3")]
    _, results = await caller.send("PATCH", path, {"records": records})
    assert [r["created"] for r in results] == [False, True, False]
    assert results[0]["id"] == made["id"]
    assert results[2]["errors"] == [
        {"statusCode": "MISSING_ARGUMENT", "message": "Number__c not specified", "fields": []}
    ]


async def test_rolled_back_upsert_reports_what_it_would_have_created(org: TestOrg) -> None:
    await org.apply(objects=OBJECTS)
    body = {"allOrNone": True, "records": [part("1", Name="P1"), part("2" * 21, Name="P2")]}
    _, results = await Caller(org).send("PATCH", f"{PATH}/Part__c/Number__c", body)
    assert [r["created"] for r in results] == [True, False]
    assert codes(results) == [ROLLED_BACK, "STRING_TOO_LONG"]
    assert await count(org, "Part__c") == 0


async def test_only_upserts_with_a_duplicate_key_are_rejected(org: TestOrg) -> None:
    await org.apply(objects=OBJECTS)
    records = [part("A", Name="P1"), part("b", Name="P2"), part("a", Name="P3")]
    _, results = await Caller(org).send("PATCH", f"{PATH}/Part__c/Number__c", {"records": records})
    assert [r["success"] for r in results] == [False, True, False]
    assert results[0]["errors"] == [
        {
            "statusCode": "DUPLICATE_VALUE",
            "message": "Duplicate external id specified: A",
            "fields": ["Number__c"],
        }
    ]
    assert await count(org, "Part__c") == 1


async def test_upsert_by_id_creates_records_without_one(org: TestOrg) -> None:
    known = await org.make_account("A")
    records = [row(Id=None, Name="New"), row(Name="Newer"), row(Id=known, Name="Known")]
    _, results = await Caller(org).send("PATCH", f"{PATH}/Account/Id", {"records": records})
    assert [r["created"] for r in results] == [True, True, False]
    assert await count(org) == 3


@pytest.mark.parametrize(
    "path, status, code",
    [
        ("Part__c/Name", 404, "NOT_FOUND"),
        ("Part__c/Nope__c", 404, "NOT_FOUND"),
        ("Nope__c/Id", 404, "NOT_FOUND"),
        ("Account/Id", 400, "JSON_PARSER_ERROR"),
    ],
)
async def test_upsert_needs_an_external_id_of_the_records_own_object(
    org: TestOrg, path: str, status: int, code: str
) -> None:
    await org.apply(objects=OBJECTS)
    answer = await Caller(org).send("PATCH", f"{PATH}/{path}", {"records": [part("1", Name="P")]})
    assert (answer[0], answer[1][0]["errorCode"]) == (status, code)


async def test_lookup_can_be_given_by_external_id(org: TestOrg) -> None:
    await org.apply(objects=OBJECTS)
    part_id = await org.gate.create(org.call, "Part__c", {"Name": "P", "Number__c": "7"})
    records = [
        row("Bolt__c", Name="B", Part__r={"Number__c": "7"}),
        row("Bolt__c", Name="C", Part__r={"Number__c": "8"}),
    ]
    _, results = await Caller(org).send("POST", PATH, {"records": records})
    read = await org.gate.read(org.admin, "Bolt__c", results[0]["id"], ["Part__c"])
    assert read.rows[0]["Part__c"] == part_id
    message = "Foreign key external ID: 8 not found for field Number__c in entity Part__c"
    assert results[1]["errors"][0]["message"] == message


async def test_delete_returns_a_result_for_each_id(org: TestOrg) -> None:
    caller = Caller(org)
    known = await org.make_account()
    missing = "001TW0000099999AAA"
    status, results = await caller.send("DELETE", f"{PATH}?ids={known},{missing},x,zzzTW0000000001AAA")
    assert status == 200
    assert codes(results) == [
        "",
        "INVALID_CROSS_REFERENCE_KEY",
        "MALFORMED_ID",
        "INVALID_CROSS_REFERENCE_KEY",
    ]
    other = await org.make_account()
    _, results = await caller.send("DELETE", f"{PATH}?ids={other},x&allOrNone=true")
    assert codes(results) == [ROLLED_BACK, "MALFORMED_ID"]
    assert await count(org) == 1


async def test_retrieve_keeps_order_and_has_null_for_missing_records(org: TestOrg) -> None:
    first, second = await org.make_account("A", Phone="1"), await org.make_account("B")
    gone = await org.make_account("C")
    await org.gate.delete(org.call, "Account", gone)
    contact = await org.gate.create(org.call, "Contact", {"LastName": "L"})
    ids = [second, "001TW0000099999AAA", gone, contact, first[:15], second]
    caller = Caller(org)
    status, by_query = await caller.send("GET", f"{PATH}/account?ids={','.join(ids)}&fields=name,Phone,NAME")
    assert status == 200
    assert [r and (r["Name"], r["Id"]) for r in by_query] == [
        ("B", second),
        None,
        None,
        None,
        ("A", first),
        ("B", second),
    ]
    assert by_query[4] == {
        "attributes": {"type": "Account", "url": f"/services/data/v60.0/sobjects/Account/{first}"},
        "Name": "A",
        "Phone": "1",
        "Id": first,
    }
    body = {"ids": ids, "fields": ["Name", "Phone", "Owner.Name"]}
    status, by_body = await caller.send("POST", f"{PATH}/Account", body)
    assert [r and r["Name"] for r in by_body] == ["B", None, None, None, "A", "B"]
    assert by_body[0]["Owner"]["Name"]


@pytest.mark.parametrize(
    "body, code",
    [
        ({"ids": [], "fields": ["Id"]}, "REQUIRED_FIELD_MISSING"),
        ({"ids": ["001TW0000000001AAA"], "fields": []}, "REQUIRED_FIELD_MISSING"),
        ({"ids": ["001TW0000000001AAA"]}, "REQUIRED_FIELD_MISSING"),
        ({"ids": ["x"], "fields": ["Id"]}, "MALFORMED_ID"),
        ({"ids": "x", "fields": ["Id"]}, "JSON_PARSER_ERROR"),
        ({"ids": [1], "fields": ["Id"]}, "JSON_PARSER_ERROR"),
        ({"ids": ["001TW0000000001AAA"], "fields": ["Nope"]}, "INVALID_FIELD"),
        ({"ids": ["001TW0000000001AAA"], "fields": ["Id FROM User"]}, "JSON_PARSER_ERROR"),
        ({"ids": ["001TW0000000001AAA"], "fields": ["COUNT()"]}, "JSON_PARSER_ERROR"),
        ({"ids": ["001TW0000000001AAA"] * 2001, "fields": ["Id"]}, "EXCEEDED_ID_LIMIT"),
    ],
)
async def test_malformed_retrieve_is_rejected(org: TestOrg, body: dict[str, object], code: str) -> None:
    status, answer = await Caller(org).send("POST", f"{PATH}/Account", body)
    assert (status, answer[0]["errorCode"]) == (400, code)


async def test_reader_retrieves_no_more_than_it_may_read(org: TestOrg) -> None:
    record_id = await org.make_account("A", Phone="1")
    reader = Caller(org, org.reader)
    status, answer = await reader.send("GET", f"{PATH}/Account?ids={record_id}&fields=Phone")
    assert (status, answer[0]["errorCode"]) == (400, "INVALID_FIELD")
    assert (await reader.send("GET", f"{PATH}/Opportunity?ids={record_id}&fields=Id"))[0] == 404
    _, (result,) = await reader.send("PATCH", PATH, {"records": [row(id=record_id, Fax="1")]})
    assert result["errors"][0]["statusCode"] == "INSUFFICIENT_ACCESS_OR_READONLY"


async def test_events_can_be_published_among_records(org: TestOrg) -> None:
    await org.apply(events=EVENTS)
    records = [row("Done__e", Number__c="1"), row(Name="A"), row("Done__e", Nope="1"), row()]
    _, results = await Caller(org).send("POST", PATH, {"records": records})
    assert [r["success"] for r in results] == [True, True, False, False]
    assert results[0]["errors"][0]["statusCode"] == "OPERATION_ENQUEUED"
    assert codes(results[2:]) == ["INVALID_FIELD", "REQUIRED_FIELD_MISSING"]
    assert await count(org) == 1
    head = await org.link.read_log_head()
    _, results = await Caller(org).send("POST", PATH, {"allOrNone": True, "records": records})
    assert codes(results) == [ROLLED_BACK, ROLLED_BACK, "INVALID_FIELD", "REQUIRED_FIELD_MISSING"]
    assert (await count(org), await org.link.read_log_head()) == (1, head)


MIXED = [row(Name="A") if i % 2 else row("Contact", LastName="C") for i in range(11)]


@pytest.mark.parametrize(
    "body, code, message",
    [
        ({}, "REQUIRED_FIELD_MISSING", "At least 1 record is required"),
        ({"records": []}, "REQUIRED_FIELD_MISSING", "At least 1 record is required"),
        (
            {"records": [row(Name="A")] * 201},
            "EXCEEDED_ID_LIMIT",
            "record limit reached. cannot submit more than 200 records into this call",
        ),
        (
            {"records": MIXED},
            "EXCEEDED_ID_LIMIT",
            "Cannot have more than 10 chunks in a single operation. Please rearrange the data to reduce chunking.",
        ),
        ({"records": [{"Name": "A"}]}, "JSON_PARSER_ERROR", "each record needs attributes with a type"),
        ({"records": [1]}, "JSON_PARSER_ERROR", "records must be JSON objects"),
        (
            {"records": [row(Name="A")], "allOrNone": "perhaps"},
            "JSON_PARSER_ERROR",
            "Cannot deserialize instance of boolean from the value of allOrNone",
        ),
    ],
)
async def test_malformed_list_is_rejected(
    org: TestOrg, body: dict[str, object], code: str, message: str
) -> None:
    for method in ("POST", "PATCH"):
        status, answer = await Caller(org).send(method, PATH, body)
        assert (status, answer[0]["errorCode"], answer[0]["message"]) == (400, code, message)
    assert await count(org) == 0


async def test_ten_chunks_of_two_hundred_records_are_created(org: TestOrg) -> None:
    chunks = [row(Name="A"), row("Contact", LastName="C")] * 5
    records = [record for chunk in chunks for record in [chunk] * 20]
    _, results = await Caller(org).send("POST", PATH, {"allOrNone": "true", "records": records})
    assert all(r["success"] for r in results)
    assert (await count(org), await count(org, "Contact")) == (100, 100)


async def test_collections_exist_from_version_42_and_upserts_from_46(org: TestOrg) -> None:
    assert (await Caller(org, version=41).send("POST", PATH, {}))[0] == 404
    assert (await Caller(org, version=45).send("PATCH", f"{PATH}/Account/Id", {}))[0] == 404
