"""Removing by definition: only what is named, and only what nothing else needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orgs import TestOrg, open_org
from tests.unit.gate.definitions.test_apply import INVOICES
from tidewire.errors import DefinitionInvalid, FieldUnknown, ObjectUnknown
from tidewire.gate.requests import Call
from tidewire.records.table import read_all_rows


async def test_everything_removable_is_removed_once(org: TestOrg) -> None:
    await org.apply(**INVOICES)
    await org.gate.create(org.call, "Invoice_Statement__c", {"Description__c": "d"})
    remove = {
        "objects": ["Invoice_Statement__c"],
        "fields": ["Account.Tier__c"],
        "push_topics": ["Invoices"],
        "permission_sets": ["Clerk"],
    }
    assert await org.apply(remove=remove) == [
        "remove push topic Invoices",
        "remove permission set Clerk",
        "remove object Invoice_Statement__c and its 1 records",
        "remove field Account.Tier__c",
    ]
    assert "Invoice_Statement__c" not in org.gate.catalog.captured
    assert org.core.capture.push_topics.by_name == {}
    assert await org.apply(remove=remove) == []
    with pytest.raises(ObjectUnknown):
        await org.gate.create(org.call, "Invoice_Statement__c", {})
    with pytest.raises(FieldUnknown):
        await org.make_account(Tier__c="x")


async def test_field_created_again_after_removal_is_empty_and_without_permissions(tmp_path: Path) -> None:
    field = {"objects": {"Account": {"fields": {"Tier__c": {"type": "Text"}}}}}
    async with open_org(tmp_path) as org:
        await org.apply(**field, permission_sets={"P": {"fields": {"Account": {"Tier__c": "read"}}}})
        old_column = org.gate.catalog.object("Account").by_name["tier__c"].column
        account = await org.make_account(Tier__c="secret")
        await org.apply(remove={"fields": ["Account.Tier__c"]})
        assert org.gate.catalog.removed_from("Account") == {"Tier__c"}
    async with open_org(tmp_path) as org:
        assert org.gate.catalog.removed_from("Account") == {"Tier__c"}
        await org.apply(objects={"Account": {"fields": {"Tier__c": {"type": "Number"}}}})
        assert org.gate.catalog.removed_from("Account") == set()
        obj = org.gate.catalog.object("Account")
        assert obj.by_name["tier__c"].column != old_column
        rows = await org.core.records.read(lambda r: read_all_rows(r, obj))
        assert [(r["Id"], r["Tier__c"]) for r in rows] == [(account, None)]
        permissions = org.gate.catalog.object("FieldPermissions")
        held = await org.core.records.read(lambda r: read_all_rows(r, permissions))
        assert not [r for r in held if r["Field"] == "Account.Tier__c" and not r.get("IsDeleted")]


async def test_value_of_a_removed_field_is_hidden_in_events_of_the_past(org: TestOrg) -> None:
    await org.apply(objects={"Account": {"fields": {"Tier__c": {"type": "Text"}}}})
    await org.make_account(Tier__c="secret")
    await org.apply(remove={"fields": ["Account.Tier__c"]})
    grant = await org.link.open_channel(org.admin, "/data/AccountChangeEvent", 67.0)
    assert "Tier__c" in dict(grant.hidden)["AccountChangeEvent"]


@pytest.mark.parametrize(
    "remove, message",
    [
        ({"objects": ["Account"]}, "standard object"),
        ({"fields": ["Account.Name"]}, "custom field"),
        ({"fields": ["Account"]}, "form Object.Field__c"),
        ({"fields": ["Invoice_Statement__c.Status__c"]}, "Invoices uses Status__c"),
        ({"objects": ["Invoice_Statement__c"]}, "Invoices uses"),
        ({"objects": ["Parent__c"]}, "Child__c.Parent__c references Parent__c"),
        ({"records": []}, "unknown keys"),
        ({"objects": "Invoice_Statement__c"}, "list of names"),
        ([], "mapping"),
    ],
)
async def test_removal_of_something_in_use_is_rejected(org: TestOrg, remove: object, message: str) -> None:
    await org.apply(**INVOICES)
    lookup = {"type": "Lookup", "references": "Parent__c"}
    await org.apply(objects={"Parent__c": {}, "Child__c": {"fields": {"Parent__c": lookup}}})
    with pytest.raises(DefinitionInvalid, match=message):
        await org.apply(remove=remove)


async def test_name_both_defined_and_removed_is_rejected(org: TestOrg) -> None:
    objects = {"Account": {"fields": {"Tier__c": {"type": "Text"}}}, "Thing__c": {}}
    await org.apply(objects=objects)
    for remove in ({"fields": ["Account.Tier__c"]}, {"objects": ["Thing__c"]}):
        with pytest.raises(DefinitionInvalid, match="both defined and removed"):
            await org.apply(objects=objects, remove=remove)


async def test_holder_of_a_removed_permission_set_loses_its_rights(org: TestOrg) -> None:
    await org.apply(**INVOICES)
    clerk = (await org.core.logins.login("clerk@example.org", "secret", "")).principal
    await org.apply(remove={"permission_sets": ["Clerk"]})
    with pytest.raises(ObjectUnknown):
        await org.gate.create(Call(clerk, ""), "Invoice_Statement__c", {"Description__c": "d"})


async def test_undelete_after_a_lookup_was_removed_does_without_it(org: TestOrg) -> None:
    lookup = {"type": "Lookup", "references": "Account"}
    await org.apply(objects={"Line__c": {"fields": {"Account__c": lookup}}, "Other__c": {}})
    account = await org.make_account()
    await org.gate.create(org.call, "Line__c", {"Account__c": account})
    other = await org.gate.create(org.call, "Other__c", {"Name": "x"})
    await org.gate.delete(org.call, "Account", account)
    await org.gate.delete(org.call, "Other__c", other)
    await org.apply(remove={"fields": ["Line__c.Account__c"], "objects": ["Other__c"]})
    assert await org.gate.undelete(org.call, [account]) == [account]
    await org.gate.update(org.call, "Account", account, {"Name": "back"})
