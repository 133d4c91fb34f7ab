"""Lookups given by a key of their target: resolved, and only for those who may read it."""

from __future__ import annotations

import pytest

from tests.orgs import READER, TestOrg
from tidewire.errors import AccessDenied, ExternalIdAmbiguous, FieldUnknown, PlatformError, ValueMalformed
from tidewire.gate.requests import Call, Upsert

KEYED = {"Key__c": {"type": "Text", "length": 20, "external_id": True}}


async def prepare(org: TestOrg) -> str:
    await org.apply(objects={"Account": {"fields": KEYED}})
    return await org.make_account(Key__c="k1")


async def test_reference_by_external_id_becomes_the_lookup(org: TestOrg) -> None:
    account = await prepare(org)
    made = await org.gate.create(org.call, "Contact", {"LastName": "L", "account": {"key__c": "K1"}})
    rows = await org.gate.read(org.admin, "Contact", made, ["AccountId"])
    assert rows.rows[0]["AccountId"] == account
    await org.gate.update(org.call, "Contact", made, {"Account": None})
    rows = await org.gate.read(org.admin, "Contact", made, ["AccountId"])
    assert rows.rows[0]["AccountId"] is None


@pytest.mark.parametrize(
    "reference, expected",
    [
        ({"Key__c": "none"}, FieldUnknown),
        ({"Key__c": ""}, FieldUnknown),
        ({"Name": "Acme"}, FieldUnknown),
        ({"attributes": {"type": "User"}, "Key__c": "k1"}, FieldUnknown),
        ({"Key__c": "k1", "Name": "Acme"}, ValueMalformed),
        ({}, ValueMalformed),
        ("k1", ValueMalformed),
    ],
)
async def test_reference_that_matches_no_record_is_rejected(
    org: TestOrg, reference: object, expected: type[PlatformError]
) -> None:
    await prepare(org)
    with pytest.raises(expected):
        await org.gate.create(org.call, "Contact", {"LastName": "L", "Account": reference})


async def test_reference_to_several_records_is_rejected(org: TestOrg) -> None:
    await prepare(org)
    await org.make_account(Key__c="k1")
    with pytest.raises(ExternalIdAmbiguous):
        await org.gate.create(org.call, "Contact", {"LastName": "L", "Account": {"Key__c": "k1"}})


async def test_reference_by_a_hidden_key_reveals_nothing(org: TestOrg) -> None:
    await prepare(org)
    await org.apply(
        permission_sets={
            "Maker": {
                "objects": {"Contact": ["read", "create", "edit"]},
                "fields": {"Contact": {"AccountId": "edit"}},
            }
        },
        users={READER: {"permission_sets": ["Maker"]}},
    )
    call = Call(org.reader, "")
    for key in ("k1", "none"):
        with pytest.raises(FieldUnknown, match="No such column 'Key__c' on sobject of type Account"):
            await org.gate.create(call, "Contact", {"LastName": "L", "Account": {"Key__c": key}})


async def test_upserts_fail_one_by_one_and_leave_nothing_of_the_failed(org: TestOrg) -> None:
    account = await prepare(org)
    await org.apply(
        permission_sets={
            "Editor": {
                "objects": {"Account": ["read", "edit"]},
                "fields": {"Account": {"Key__c": "edit", "Fax": "edit"}},
            }
        },
        users={READER: {"permission_sets": ["Editor"]}},
    )
    known = Upsert("Account", "Key__c", "k1", {"Fax": "9"})
    fresh = Upsert("Account", "Key__c", "k2", {"Name": "New"})
    first, second = await org.gate.upsert_together(Call(org.reader, ""), [fresh, known], all_or_none=False)
    assert isinstance(first, AccessDenied)
    assert second == (account, False)
    rows = await org.gate.query(org.admin, "SELECT Fax FROM Account")
    assert [row["Fax"] for row in rows.rows] == ["9"]


async def test_all_or_none_upserts_store_nothing_when_one_fails(org: TestOrg) -> None:
    await prepare(org)
    known = Upsert("Account", "Key__c", "k1", {"Fax": "9"})
    broken = Upsert("Account", "Key__c", "k2", {})
    results = await org.gate.upsert_together(org.call, [known, broken], all_or_none=True)
    assert [isinstance(r, PlatformError) for r in results] == [False, True]
    rows = await org.gate.query(org.admin, "SELECT Fax FROM Account")
    assert [row["Fax"] for row in rows.rows] == [None]
