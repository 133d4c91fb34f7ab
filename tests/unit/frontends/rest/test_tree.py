"""Trees of new records: all or none."""

from __future__ import annotations

from typing import Any

import pytest

from tests.orgs import TestOrg
from tests.unit.frontends.rest.data_caller import Caller, count

REFERENCE_MISSING = "Include a reference ID for each record in the request."


def record(entity: str, ref: str, **fields: object) -> dict[str, object]:
    return {"attributes": {"type": entity, "referenceId": ref}, **fields}


def children(*records: object) -> dict[str, object]:
    return {"records": list(records)}


async def make(org: TestOrg, *records: object, entity: str = "Account") -> tuple[int, Any]:
    return await Caller(org).send("POST", f"composite/tree/{entity}", {"records": list(records)})


async def test_tree_is_created_with_its_children_under_their_parents(org: TestOrg) -> None:
    status, body = await make(
        org,
        record(
            "Account",
            "a1",
            Name="A1",
            Contacts=children(
                record("Contact", "c1", LastName="C1", Cases=children(record("Case", "s1", Subject="S1"))),
                record("contact", "c2", LastName="C2"),
            ),
        ),
        record("Account", "a2", Name="A2"),
        entity="account",
    )
    assert status == 201
    assert body["hasErrors"] is False
    assert [r["referenceId"] for r in body["results"]] == ["a1", "a2", "c1", "c2", "s1"]
    found = await org.gate.query(
        org.admin, "SELECT LastName, Account.Name, (SELECT Subject FROM Cases) FROM Contact ORDER BY LastName"
    )
    first, second = [r["LastName"] for r in found.rows], [len(r) for r in found.rows]
    assert first == ["C1", "C2"]
    assert second
    ids = {r["referenceId"]: r["id"] for r in body["results"]}
    for child, lookup, parent in (("c1", "AccountId", "a1"), ("s1", "ContactId", "c1")):
        entity = "Contact" if child == "c1" else "Case"
        row = (await org.gate.read(org.admin, entity, ids[child], [lookup])).rows[0]
        assert row[lookup] == ids[parent]


async def test_tree_is_rolled_back_and_lists_failed_records_on_any_failure(org: TestOrg) -> None:
    head = await org.link.read_log_head()
    status, body = await make(
        org,
        record("Account", "a1", Name="A1", Contacts=children(record("Contact", "c1", FirstName="no"))),
        record("Account", "a2", Contacts=children(record("Contact", "c2", LastName="C2"))),
    )
    assert status == 400
    missing = {"statusCode": "REQUIRED_FIELD_MISSING", "fields": ["Name"]}
    assert body == {
        "hasErrors": True,
        "results": [
            {
                "referenceId": "a2",
                "errors": [{**missing, "message": "Required fields are missing: [Name]"}],
            },
            {
                "referenceId": "c1",
                "errors": [
                    {
                        "statusCode": "REQUIRED_FIELD_MISSING",
                        "message": "Required fields are missing: [LastName]",
                        "fields": ["LastName"],
                    }
                ],
            },
        ],
    }
    assert (await count(org), await count(org, "Contact")) == (0, 0)
    assert await org.link.read_log_head() == head


@pytest.mark.parametrize(
    "records, message",
    [
        (
            [record("Account", "a", Name="A"), record("Account", "a", Name="B")],
            "Duplicate ReferenceId provided in the request.",
        ),
        (
            [{"attributes": {"referenceId": "a"}, "Name": "A"}],
            "Include an entity type for each record in the request.",
        ),
        ([record("Contact", "a", LastName="A")], "The record must be of type Account, not Contact."),
    ],
)
async def test_record_of_the_wrong_form_is_named(org: TestOrg, records: list[object], message: str) -> None:
    status, body = await make(org, *records)
    assert status == 400
    error = {"statusCode": "INVALID_INPUT", "message": message, "fields": []}
    assert body == {"hasErrors": True, "results": [{"referenceId": "a", "errors": [error]}]}
    assert await count(org) == 0


async def test_record_without_reference_id_is_rejected(org: TestOrg) -> None:
    status, body = await make(org, {"attributes": {"type": "Account"}, "Name": "A"})
    assert (status, body) == (400, [{"message": REFERENCE_MISSING, "errorCode": "INVALID_INPUT"}])


def nested(levels: int) -> dict[str, object]:
    value = record("Account", f"r{levels}", Name="x")
    if levels > 1:
        value["ChildAccounts"] = children(nested(levels - 1))
    return value


async def test_five_levels_work_and_six_do_not(org: TestOrg) -> None:
    assert (await make(org, nested(5)))[0] == 201
    status, body = await make(org, nested(6))
    assert (status, body[0]["errorCode"]) == (400, "EXCEEDED_ID_LIMIT")
    assert await count(org) == 5


async def test_two_hundred_records_work_and_one_more_does_not(org: TestOrg) -> None:
    contacts = children(*[record("Contact", f"c{i}", LastName="C") for i in range(199)])
    assert (await make(org, record("Account", "a", Name="A", Contacts=contacts)))[0] == 201
    more = record("Account", "b", Name="B")
    status, body = await make(org, record("Account", "a", Name="A", Contacts=contacts), more)
    assert (status, body[0]["errorCode"]) == (400, "EXCEEDED_ID_LIMIT")
    assert await count(org) == 1


@pytest.mark.parametrize("records", [None, [], "x", [1], [[]], {"a": 1}])
async def test_body_without_records_is_rejected(org: TestOrg, records: object) -> None:
    status, _ = await Caller(org).send("POST", "composite/tree/Account", {"records": records})
    assert status == 400


async def test_unknown_relationship_is_an_unknown_field(org: TestOrg) -> None:
    status, body = await make(org, record("Account", "a", Name="A", Nopes=children(record("Contact", "c"))))
    assert (status, body["results"][0]["errors"][0]["statusCode"]) == (400, "INVALID_FIELD")


async def test_reader_cannot_create_and_does_not_see_hidden_objects(org: TestOrg) -> None:
    reader = Caller(org, org.reader)
    body = {"records": [record("Account", "a", Name="A")]}
    assert (await reader.send("POST", "composite/tree/Account", body))[0] == 400
    assert (await reader.send("POST", "composite/tree/Opportunity", body))[0] == 404
    assert (await reader.send("POST", "composite/tree/Nope", body))[0] == 404
    assert await count(org) == 0
