"""Platform events that a definition changes or removes, and computed fields that follow a change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.orgs import TestOrg, open_org
from tidewire.errors import ChannelUnknown, DefinitionInvalid, PlatformError
from tidewire.events import Value
from tidewire.records.table import read_all_rows, try_read_row

HAPPENED: dict[str, Any] = {
    "fields": {"City__c": {"type": "Text", "length": 10}, "Size__c": {"type": "Number", "scale": 0}}
}


async def read(org: TestOrg, record_id: str, name: str) -> Value:
    obj = org.gate.catalog.try_object_of_id(record_id)
    assert obj is not None
    row = await org.core.records.read(lambda reader: try_read_row(reader, obj, record_id))
    assert row is not None
    return row[name]


async def test_attributes_of_an_event_and_its_fields_change_once(org: TestOrg) -> None:
    await org.apply(events={"Happened__e": HAPPENED})
    changed = {
        "label": "It happened",
        "description": "Tells it",
        "fields": {
            "City__c": {"type": "Text", "length": 20, "label": "Town", "help_text": "Where"},
            "Size__c": {"type": "Number", "scale": 0, "required": True},
        },
    }
    assert await org.apply(events={"Happened__e": changed}) == [
        "change Happened__e.City__c: help_text, label, length",
        "change Happened__e.Size__c: required",
        "change Happened__e: label, description",
    ]
    assert await org.apply(events={"Happened__e": changed}) == []
    event = org.gate.catalog.try_event("Happened__e")
    assert event is not None
    city, size = event.fields
    assert (event.description, city.length, city.label, city.help_text, size.required) == (
        "Tells it",
        20,
        "Town",
        "Where",
        True,
    )


@pytest.mark.parametrize(
    "spec, reason",
    [
        ({"type": "Number"}, "is Text; its type cannot be changed"),
        ({"type": "Text", "unique": True}, "unknown keys: unique"),
        ({"type": "Picklist", "values": ["a"]}, "type must be one of Checkbox, Date, DateTime"),
        ({"type": "Text", "description": "x" * 1001}, "1000"),
    ],
)
async def test_invalid_change_of_an_event_field_is_rejected(
    org: TestOrg, spec: dict[str, object], reason: str
) -> None:
    await org.apply(events={"Happened__e": HAPPENED})
    with pytest.raises(DefinitionInvalid, match=reason):
        await org.apply(events={"Happened__e": {"fields": {"City__c": spec}}})


async def test_removed_field_of_an_event_leaves_its_schema(tmp_path: Path) -> None:
    async with open_org(tmp_path) as org:
        await org.apply(events={"Happened__e": HAPPENED})
        before = org.core.records.types.schemas["Happened__e"].schema_id
        removal = {"fields": ["Happened__e.City__c", "Happened__e.Gone__c", "Nothing__e.X__c"]}
        assert await org.apply(remove=removal) == ["remove field Happened__e.City__c"]
        assert await org.apply(remove=removal) == []
        assert org.core.records.types.schemas["Happened__e"].schema_id != before
        assert "City__c" in await org.gate.schema_json(before)
    async with open_org(tmp_path) as org:
        event = org.gate.catalog.try_event("Happened__e")
        assert event is not None
        assert [f.name for f in event.fields] == ["Size__c"]
        with pytest.raises(DefinitionInvalid, match="both defined and removed"):
            await org.apply(events={"Happened__e": HAPPENED}, remove={"fields": ["Happened__e.Size__c"]})


async def test_removed_event_is_gone_with_its_permissions(tmp_path: Path) -> None:
    grant = {"Publisher": {"objects": {"Happened__e": ["create", "read"]}}}
    async with open_org(tmp_path) as org:
        await org.apply(events={"Happened__e": HAPPENED}, permission_sets=grant)
        await org.link.open_channel(org.admin, "/event/Happened__e", 60.0)
        assert await org.apply(remove={"events": ["Happened__e"]}) == ["remove platform event Happened__e"]
        assert await org.apply(remove={"events": ["Happened__e"]}) == []
        with pytest.raises(ChannelUnknown):
            await org.link.open_channel(org.admin, "/event/Happened__e", 60.0)
        assert "Happened__e" not in org.core.records.types.schemas
    async with open_org(tmp_path) as org:
        assert org.gate.catalog.try_event("Happened__e") is None
        permissions = org.gate.catalog.object("ObjectPermissions")
        held = await org.core.records.read(lambda r: read_all_rows(r, permissions))
        assert not any(p["SobjectType"] == "Happened__e" and not p["IsDeleted"] for p in held)
        with pytest.raises(DefinitionInvalid, match="both defined and removed"):
            await org.apply(events={"Happened__e": HAPPENED}, remove={"events": ["Happened__e"]})


async def test_changed_formula_reaches_stored_values_and_what_adds_them_up(org: TestOrg) -> None:
    def document(formula: str) -> dict[str, Any]:
        count: dict[str, Any] = {
            "child": "Part__c",
            "child_field": "Whole__c",
            "function": "SUM",
            "field": "Worth__c",
        }
        return {
            "Whole__c": {"fields": {"Total__c": {"type": "Number", "roll_up": count}}},
            "Part__c": {
                "fields": {
                    "Whole__c": {"type": "MasterDetail", "references": "Whole__c"},
                    "Price__c": {"type": "Number"},
                    "Worth__c": {"type": "Number", "formula": formula},
                }
            },
        }

    await org.apply(objects=document("Price__c * 2"))
    whole = await org.gate.create(org.call, "Whole__c", {"Name": "w"})
    part = await org.gate.create(org.call, "Part__c", {"Name": "p", "Whole__c": whole, "Price__c": 5})
    assert (await read(org, part, "Worth__c"), await read(org, whole, "Total__c")) == (10.0, 10.0)
    assert await org.apply(objects=document("Price__c * 3")) == ["change Part__c.Worth__c: formula"]
    assert (await read(org, part, "Worth__c"), await read(org, whole, "Total__c")) == (15.0, 15.0)
    with pytest.raises(DefinitionInvalid, match="computed from it"):
        await org.apply(remove={"fields": ["Part__c.Price__c"]})
    with pytest.raises(DefinitionInvalid, match="references Whole__c"):
        await org.apply(remove={"objects": ["Whole__c"]})


async def test_changed_roll_up_is_counted_again(org: TestOrg) -> None:
    def whole(roll_up: dict[str, object]) -> dict[str, Any]:
        common = {"child": "Part__c", "child_field": "Whole__c"}
        return {"fields": {"Total__c": {"type": "Number", "roll_up": {**common, **roll_up}}}}

    part = {
        "fields": {
            "Whole__c": {"type": "MasterDetail", "references": "Whole__c"},
            "Price__c": {"type": "Number"},
        }
    }
    await org.apply(objects={"Whole__c": whole({"function": "SUM", "field": "Price__c"}), "Part__c": part})
    record = await org.gate.create(org.call, "Whole__c", {"Name": "w"})
    for price in (3, 8):
        values = {"Name": "p", "Whole__c": record, "Price__c": price}
        await org.gate.create(org.call, "Part__c", values)
    assert await read(org, record, "Total__c") == 11.0
    highest = whole({"function": "MAX", "field": "Price__c", "filters": [["Price__c", "<", 5]]})
    assert await org.apply(objects={"Whole__c": highest}) == ["change Whole__c.Total__c: roll_up"]
    assert await read(org, record, "Total__c") == 3.0


async def test_texts_of_objects_and_custom_fields_change_once(org: TestOrg) -> None:
    await org.apply(objects={"Thing__c": {"fields": {"A__c": {"type": "Text"}}}})
    texts = {
        "description": "What it is",
        "fields": {"A__c": {"type": "Text", "help_text": "How", "description": "Why"}},
    }
    assert await org.apply(objects={"Thing__c": texts, "Account": {"description": "Whom we sell to"}}) == [
        "change Thing__c: description",
        "change Thing__c.A__c: description, help_text",
        "change Account: description",
    ]
    assert await org.apply(objects={"Thing__c": texts, "Account": {"description": "Whom we sell to"}}) == []


async def test_error_at_the_end_of_a_document_rolls_back_its_beginning(org: TestOrg) -> None:
    before = org.gate.catalog.version
    with pytest.raises(PlatformError):
        await org.apply(
            settings={"lockout_attempts": 3},
            roles={"Board": {}},
            objects={"Account": {"sharing": "private"}},
            connected_apps={"x": {"flows": ["nonsense"]}},
        )
    assert org.gate.catalog.version == before
    assert org.core.records.types.settings.lockout_attempts == 10
    roles = org.gate.catalog.object("UserRole")
    assert await org.core.records.read(lambda r: read_all_rows(r, roles)) == []


async def test_volume_is_fixed_at_creation_and_publish_behavior_can_change(tmp_path: Path) -> None:
    spec = {**HAPPENED, "volume": "standard", "publish": "immediately"}
    async with open_org(tmp_path) as org:
        await org.apply(events={"Happened__e": spec, "Usual__e": HAPPENED})
        assert await org.apply(events={"Happened__e": {"publish": "after_commit"}}) == [
            "change Happened__e: publish"
        ]
        with pytest.raises(DefinitionInvalid, match="cannot be changed"):
            await org.apply(events={"Happened__e": {"volume": "high"}})
    async with open_org(tmp_path) as org:
        stored = [(e.name, e.is_high_volume, e.publishes_immediately) for e in org.gate.catalog.events]
        assert sorted(stored)[:1] == [("Happened__e", False, False)]
        assert ("Usual__e", True, False) in stored


@pytest.mark.parametrize("key, word", [("volume", "huge"), ("publish", "later"), ("publish", True)])
async def test_unknown_volume_or_publish_behavior_is_rejected(org: TestOrg, key: str, word: object) -> None:
    with pytest.raises(DefinitionInvalid, match=f"{key}: must be"):
        await org.apply(events={"Happened__e": {**HAPPENED, key: word}})
    assert org.gate.catalog.try_event("Happened__e") is None


@pytest.mark.parametrize(
    "document",
    [
        {"events": {"LoginEventStream": {"label": "Mine"}}},
        {"permission_sets": {"P": {"objects": {"LoginEventStream": ["read"]}}}},
    ],
)
async def test_events_of_the_server_s_own_are_not_the_org_s_to_change(
    org: TestOrg, document: dict[str, object]
) -> None:
    with pytest.raises(PlatformError):
        await org.apply(**document)
    assert await org.apply(remove={"events": ["LoginEventStream"]}) == []
    assert org.gate.catalog.try_any_event("LoginEventStream") is not None
