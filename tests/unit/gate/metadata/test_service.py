"""Single components: made, changed, read, listed, renamed and removed, with the codes that clients know."""

from __future__ import annotations

from typing import Any

import pytest

from tests.orgs import TestOrg
from tests.unit.gate.metadata.samples import make_everything, services
from tidewire.errors import AccessDenied, DefinitionInvalid, TooManyRecords
from tidewire.gate.metadata.properties import Component
from tidewire.gate.metadata.service import SaveResult
from tidewire.gate.requests import Call

pytestmark = pytest.mark.anyio

INVOICE: dict[str, Any] = {
    "label": "Invoice",
    "pluralLabel": "Invoices",
    "nameField": {"label": "Number", "type": "AutoNumber", "displayFormat": "INV-{0000}"},
    "deploymentStatus": "Deployed",
    "sharingModel": "ReadWrite",
}


def code(saved: SaveResult) -> str:
    return "" if saved.error is None else str(saved.error.details.get("status_code"))


def field(name: str, **properties: object) -> Component:
    return Component("CustomField", f"Account.{name}", {"label": name, **properties})


async def create(org: TestOrg, *components: Component, all_or_none: bool = False) -> list[SaveResult]:
    metadata, _, _ = services(org)
    return await metadata.create(org.call, components, all_or_none=all_or_none)


async def make_invoice(org: TestOrg) -> None:
    (saved,) = await create(org, Component("CustomObject", "Invoice__c", INVOICE))
    assert saved.error is None


REJECTED_FIELDS: list[tuple[dict[str, object], str, str]] = [
    (
        {"type": "Text"},
        "FIELD_INTEGRITY_EXCEPTION",
        "Must specify 'length' for a CustomField of type Text",
    ),
    ({"type": "Text", "length": 256}, "FIELD_INTEGRITY_EXCEPTION", "Invalid length, must be between"),
    (
        {"type": "LongTextArea", "length": "255", "visibleLines": "3"},
        "FIELD_INTEGRITY_EXCEPTION",
        "Invalid length, minimum is: 256",
    ),
    (
        {"type": "Checkbox", "required": False, "defaultValue": "false"},
        "FIELD_INTEGRITY_EXCEPTION",
        "Can not specify 'required'",
    ),
    ({"type": "Checkbox"}, "FIELD_INTEGRITY_EXCEPTION", "Must specify 'defaultValue'"),
    ({"type": "Number", "scale": 2}, "FIELD_INTEGRITY_EXCEPTION", "Must specify 'precision'"),
    (
        {"type": "EncryptedText", "length": 10},
        "FIELD_INTEGRITY_EXCEPTION",
        "EncryptedText are not supported",
    ),
    ({"type": "Lookup"}, "FIELD_INTEGRITY_EXCEPTION", "Must specify 'referenceTo'"),
    ({"type": "Lookup", "referenceTo": "No__c"}, "INVALID_CROSS_REFERENCE_KEY", "No__c"),
    (
        {"type": "Text", "length": 5, "defaultValue": "TODAY()"},
        "FIELD_INTEGRITY_EXCEPTION",
        "use a literal",
    ),
    ({"type": "Text", "length": 5, "colour": "red"}, "FIELD_INTEGRITY_EXCEPTION", "Property 'colour'"),
    ({"type": "Text", "length": 5, "unique": "maybe"}, "FIELD_INTEGRITY_EXCEPTION", "xsd:boolean"),
    ({"type": "Text", "length": 5, "label": ""}, "REQUIRED_FIELD_MISSING", "label"),
    ({}, "REQUIRED_FIELD_MISSING", "type"),
    (
        {"type": "Picklist", "valueSet": {"controllingField": "Rating"}},
        "FIELD_INTEGRITY_EXCEPTION",
        "controllingField",
    ),
    (
        {"type": "Number", "precision": 4, "scale": 0, "formula": "No_Such__c"},
        "FIELD_INTEGRITY_EXCEPTION",
        "",
    ),
]


async def test_invalid_field_is_rejected_with_its_status_code(org: TestOrg) -> None:
    for properties, expected, message in REJECTED_FIELDS:
        (saved,) = await create(org, field("Odd__c", **properties))
        assert (properties, code(saved)) == (properties, expected)
        assert saved.error is not None
        assert message in saved.error.message
    assert org.gate.catalog.object("Account").try_field("Odd__c") is None


async def test_create_of_an_existing_component_is_rejected(org: TestOrg) -> None:
    await make_invoice(org)
    again, other = await create(
        org,
        Component("CustomObject", "INVOICE__c", INVOICE),
        field("Name", type="Text", length=5),
    )
    assert (code(again), code(other)) == ("DUPLICATE_DEVELOPER_NAME", "DUPLICATE_DEVELOPER_NAME")


async def test_update_of_a_missing_component_is_rejected(org: TestOrg) -> None:
    metadata, _, _ = services(org)
    components = [Component("CustomObject", "No__c", INVOICE), field("No__c", type="Text", length=5)]
    results = await metadata.update(org.call, components, all_or_none=False)
    assert [code(saved) for saved in results] == ["INVALID_CROSS_REFERENCE_KEY"] * 2


async def test_update_replaces_a_field_as_a_whole(org: TestOrg) -> None:
    metadata, _, _ = services(org)
    full = field(
        "Extra__c", type="Text", length=10, description="Old", inlineHelpText="Help", externalId=True
    )
    await create(org, full)
    await metadata.update(org.call, [field("Extra__c", type="Text", length=20)], all_or_none=False)
    stored = org.gate.catalog.object("Account").by_name["extra__c"]
    assert (stored.length, stored.description, stored.help_text, stored.external_id) == (20, "", "", False)


async def test_value_that_an_update_leaves_out_is_offered_no_more(org: TestOrg) -> None:
    def picklist(*names: str) -> Component:
        values = [{"fullName": name, "default": "false", "label": name} for name in names]
        return field(
            "Level__c", type="Picklist", valueSet={"valueSetDefinition": {"sorted": "false", "value": values}}
        )

    metadata, _, _ = services(org)
    await create(org, picklist("Low", "Mid", "High"))
    await metadata.update(org.call, [picklist("High", "Low")], all_or_none=False)
    stored = org.gate.catalog.object("Account").by_name["level__c"].picklist
    assert [(v.value, v.is_active) for v in stored] == [("High", True), ("Low", True), ("Mid", False)]


async def test_upsert_reports_which_components_are_new(org: TestOrg) -> None:
    await make_invoice(org)
    metadata, _, _ = services(org)
    components = [Component("CustomObject", "Invoice__c", INVOICE), field("New__c", type="Date")]
    results = await metadata.upsert(org.call, components, all_or_none=False)
    assert [saved.is_created for saved in results] == [False, True]


async def test_all_or_none_rolls_back_valid_components_with_an_invalid_one(org: TestOrg) -> None:
    results = await create(org, field("Good__c", type="Date"), field("Bad__c", type="Text"), all_or_none=True)
    assert [saved.is_undone for saved in results] == [True, False]
    assert code(results[1]) == "FIELD_INTEGRITY_EXCEPTION"
    assert org.gate.catalog.object("Account").try_field("Good__c") is None


async def test_valid_components_are_kept_without_all_or_none(org: TestOrg) -> None:
    results = await create(org, field("Bad__c", type="Text"), field("Good__c", type="Date"))
    assert [saved.error is None for saved in results] == [False, True]
    assert org.gate.catalog.object("Account").try_field("Good__c") is not None


async def test_delete_of_a_component_in_use_is_rejected(org: TestOrg) -> None:
    await make_everything(org)
    metadata, _, _ = services(org)
    (used,) = await metadata.delete(org.call, "CustomField", ["Master__c.Number__c"], all_or_none=False)
    (master,) = await metadata.delete(org.call, "CustomObject", ["Master__c"], all_or_none=False)
    assert (code(used), code(master)) == ("DEPENDENCY_EXISTS", "DEPENDENCY_EXISTS")


async def test_delete_removes_each_type_and_reports_missing_components(org: TestOrg) -> None:
    await make_everything(org)
    metadata, _, _ = services(org)
    for kind, name in (
        ("CustomField", "Master__c.Url__c"),
        ("CustomObject", "Happened__e"),
        ("PermissionSet", "Clerk"),
        ("Profile", "Cashier"),
    ):
        first, second = [
            (await metadata.delete(org.call, kind, [name], all_or_none=False))[0] for _ in range(2)
        ]
        assert (kind, code(first), code(second)) == (kind, "", "INVALID_CROSS_REFERENCE_KEY")
        assert await metadata.read(org.admin, kind, [name]) == [None]


async def test_renamed_field_keeps_its_values_and_rights(org: TestOrg) -> None:
    metadata, _, _ = services(org)
    await create(org, field("Old__c", type="Text", length=10))
    account = await org.make_account(Old__c="kept")
    await org.apply(permission_sets={"Seers": {"fields": {"Account": {"Old__c": "read"}}}})
    saved = await metadata.rename(org.call, "CustomField", "Account.Old__c", "Account.New__c")
    assert saved.error is None
    rows = await org.gate.query(org.admin, f"SELECT New__c FROM Account WHERE Id = '{account}'")
    assert rows.rows[0]["New__c"] == "kept"
    (seers,) = await metadata.read(org.admin, "PermissionSet", ["Seers"])
    assert seers is not None
    assert seers["fieldPermissions"] == [{"editable": False, "field": "Account.New__c", "readable": True}]


async def test_rename_to_a_taken_name_or_of_a_used_field_is_rejected(org: TestOrg) -> None:
    await make_everything(org)
    metadata, _, _ = services(org)
    taken = await metadata.rename(org.call, "CustomField", "Master__c.Url__c", "Master__c.Phone__c")
    used = await metadata.rename(org.call, "CustomField", "Master__c.Number__c", "Master__c.Num__c")
    assert (code(taken), code(used)) == ("DUPLICATE_DEVELOPER_NAME", "DEPENDENCY_EXISTS")


async def test_profile_keeps_what_a_component_does_not_mention(org: TestOrg) -> None:
    await make_everything(org)
    metadata, _, _ = services(org)
    rights = [{"object": "Contact", "allowRead": "true"}]
    (saved,) = await metadata.update(
        org.call, [Component("Profile", "Cashier", {"objectPermissions": rights})], all_or_none=False
    )
    assert saved.error is None
    (cashier,) = await metadata.read(org.admin, "Profile", ["Cashier"])
    assert cashier is not None
    assert [each["object"] for each in cashier["objectPermissions"]] == ["Account", "Contact"]  # type: ignore[attr-defined]


async def test_administrators_keep_their_profile_whatever_is_deployed(org: TestOrg) -> None:
    metadata, _, _ = services(org)
    flags = [{"name": "ModifyAllData", "enabled": "false"}]
    before = await metadata.read(org.admin, "Profile", ["Admin"])
    (saved,) = await metadata.update(
        org.call, [Component("Profile", "Admin", {"userPermissions": flags})], all_or_none=False
    )
    assert saved.error is None
    assert await metadata.read(org.admin, "Profile", ["Admin"]) == before


async def test_unknown_types_are_rejected(org: TestOrg) -> None:
    metadata, _, _ = services(org)
    (saved,) = await create(org, Component("ApexClass", "X", {}))
    assert code(saved) == "INVALID_TYPE"
    with pytest.raises(DefinitionInvalid):
        await metadata.read(org.admin, "ApexClass", ["X"])


async def test_list_names_files_and_makers(org: TestOrg) -> None:
    await make_everything(org)
    metadata, _, _ = services(org)
    listed = {each.full_name: each for each in await metadata.entries(org.admin, ["CustomField", "Profile"])}
    assert listed["Happened__e.What__c"].path == "objects/Happened__e.object"
    assert listed["Admin"].path == "profiles/Admin.profile"
    assert listed["Master__c.Text__c"].created_by[1] == "Ada Admin"
    assert "Master__c.Place__Latitude__s" not in listed


async def test_reader_may_neither_read_nor_write_metadata(org: TestOrg) -> None:
    metadata, _, _ = services(org)
    with pytest.raises(AccessDenied):
        await metadata.read(org.reader, "CustomObject", ["Account"])
    with pytest.raises(AccessDenied):
        await metadata.delete(Call(org.reader, ""), "CustomObject", ["Account"], all_or_none=False)


async def test_more_than_ten_components_are_too_many(org: TestOrg) -> None:
    with pytest.raises(TooManyRecords):
        await create(org, *(field(f"F{n}__c", type="Date") for n in range(11)))


async def test_platform_event_is_made_with_its_volume_and_publishing(org: TestOrg) -> None:
    metadata, _, _ = services(org)
    properties: dict[str, Any] = {
        "label": "Told",
        "pluralLabel": "Tolds",
        "eventType": "StandardVolume",
        "publishBehavior": "PublishImmediately",
        "deploymentStatus": "Deployed",
        "fields": [{"fullName": "Text__c", "label": "Text", "type": "Text", "length": 5}],
    }
    (saved,) = await create(org, Component("CustomObject", "Told__e", properties))
    assert saved.error is None
    (read,) = await metadata.read(org.admin, "CustomObject", ["Told__e"])
    assert read is not None
    assert (read["eventType"], read["publishBehavior"]) == ("StandardVolume", "PublishImmediately")
    later = {"label": "Told", "publishBehavior": "PublishAfterCommit"}
    await metadata.update(org.call, [Component("CustomObject", "Told__e", later)], all_or_none=False)
    event = org.gate.catalog.try_event("Told__e")
    assert event is not None
    assert (event.is_high_volume, event.publishes_immediately) == (False, False)


@pytest.mark.parametrize(
    "given",
    [{"eventType": "HugeVolume"}, {"publishBehavior": "PublishLater"}, {"nameField": {"type": "Text"}}],
)
async def test_invalid_platform_event_is_rejected(org: TestOrg, given: dict[str, Any]) -> None:
    (saved,) = await create(org, Component("CustomObject", "Odd__e", {"label": "Odd", **given}))
    assert saved.error is not None
    assert org.gate.catalog.try_event("Odd__e") is None
