"""Applying org definitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orgs import TestOrg, open_org
from tidewire.errors import AccessDenied, DefinitionInvalid, ObjectUnknown, PlatformError
from tidewire.gate.requests import Call

INVOICES: dict[str, object] = {
    "objects": {
        "Invoice_Statement__c": {
            "label": "Invoice Statement",
            "name": {"type": "AutoNumber", "format": "INV-{0000}"},
            "capture": True,
            "fields": {
                "Description__c": {"type": "Text", "length": 100},
                "Status__c": {"type": "Picklist", "values": ["Open", "Closed"], "default": "Open"},
                "Account__c": {"type": "Lookup", "references": "Account"},
                "Amount__c": {"type": "Currency"},
            },
        },
        "Account": {"fields": {"Tier__c": {"type": "Text", "length": 10}}},
    },
    "events": {"Order__e": {"fields": {"Number__c": {"type": "Text"}}}},
    "push_topics": {"Invoices": {"Query": "SELECT Id, Name, Status__c FROM Invoice_Statement__c"}},
    "permission_sets": {
        "Clerk": {
            "permissions": ["ApiEnabled"],
            "objects": {"Invoice_Statement__c": ["read", "create"], "Order__e": ["create"]},
            "fields": {"Invoice_Statement__c": {"*": "edit", "Amount__c": "read"}},
        }
    },
    "users": {"clerk@example.org": {"password": "secret", "permission_sets": ["Clerk"]}},
}


async def test_definition_makes_everything_and_a_second_run_nothing(org: TestOrg) -> None:
    plan = await org.apply(**INVOICES)
    assert plan == [
        "create object Invoice_Statement__c with 4 fields",
        "add field Account.Tier__c (Text)",
        "create platform event Order__e with 1 fields",
        "capture changes of Invoice_Statement__c",
        "create permission set Clerk",
        "create user clerk@example.org",
        "create push topic Invoices",
    ]
    assert await org.apply(**INVOICES) == []


async def test_dry_run_shows_the_plan_and_changes_nothing(org: TestOrg) -> None:
    plan = (await org.gate.apply_definition(org.call, INVOICES, dry_run=True)).lines
    assert len(plan) == 7
    assert org.gate.catalog.try_object("Invoice_Statement__c") is None
    assert await org.apply(**INVOICES) == plan


async def test_new_object_works_and_survives_a_restart(tmp_path: Path) -> None:
    async with open_org(tmp_path) as org:
        await org.apply(**INVOICES)
        account = await org.make_account(Tier__c="gold")
        invoice = await org.gate.create(
            org.call, "Invoice_Statement__c", {"Description__c": "d", "Account__c": account}
        )
        assert invoice.startswith("a00")
    async with open_org(tmp_path) as org:
        found = await org.gate.query(org.admin, "SELECT Name, Status__c FROM Invoice_Statement__c")
        assert [(r["Name"], r["Status__c"]) for r in found.rows] == [("INV-0001", "Open")]
        assert "Invoices" in org.core.capture.push_topics.by_name
        assert await org.apply(**INVOICES) == []


async def test_user_of_the_definition_has_exactly_its_rights(org: TestOrg) -> None:
    await org.apply(**INVOICES)
    clerk = (await org.core.logins.login("clerk@example.org", "secret", "")).principal
    call = Call(clerk, "")
    await org.gate.create(call, "Invoice_Statement__c", {"Description__c": "d"})
    await org.gate.publisher.publish(call, "Order__e", {"Number__c": "1"})
    with pytest.raises(PlatformError, match="Amount__c"):
        await org.gate.create(call, "Invoice_Statement__c", {"Amount__c": 5})
    with pytest.raises(ObjectUnknown):
        await org.gate.query(clerk, "SELECT Id FROM Account")


@pytest.mark.parametrize(
    "document",
    [
        {"objekts": {}},
        {"objects": {"Invoice": {}}},
        {"objects": {"Invoice__c": {"fields": {"Amount": {"type": "Number"}}}}},
        {"objects": {"Invoice__c": {"fields": {"Amount__c": {"type": "Money"}}}}},
        {"objects": {"Invoice__c": {"fields": {"Status__c": {"type": "Picklist"}}}}},
        {"objects": {"Invoice__c": {"fields": {"A__c": {"type": "Lookup"}}}}},
        {"objects": {"Invoice__c": {"fields": {"A__c": {"type": "Text", "length": -1}}}}},
        {"objects": []},
        {"events": {"Order__c": {}}},
        {"events": {"Order__e": {"fields": {"P__c": {"type": "Picklist", "values": ["x"]}}}}},
        {"capture": ["PushTopic"]},
        {"capture": "Account"},
        {"permission_sets": {"P": {"permissions": ["Fly"]}}},
        {"permission_sets": {"P": {"objects": {"Account": ["fly"]}}}},
        {"permission_sets": {"P": {"fields": {"Account": {"Nope": "read"}}}}},
        {"users": {"u@example.org": {"profile": "Nobody"}}},
        {"users": {"u@example.org": {"permission_sets": ["Nope"]}}},
    ],
)
async def test_invalid_definition_is_rejected_as_a_whole(org: TestOrg, document: dict[str, object]) -> None:
    version = org.gate.catalog.version
    with pytest.raises(DefinitionInvalid):
        await org.apply(**document)
    assert org.gate.catalog.version == version


async def test_lookup_to_an_unknown_object_is_rejected(org: TestOrg) -> None:
    with pytest.raises(ObjectUnknown):
        await org.apply(objects={"A__c": {"fields": {"B__c": {"type": "Lookup", "references": "Nope"}}}})


async def test_applying_needs_customize_application(org: TestOrg) -> None:
    with pytest.raises(AccessDenied):
        await org.gate.apply_definition(Call(org.reader, ""), {}, dry_run=True)
