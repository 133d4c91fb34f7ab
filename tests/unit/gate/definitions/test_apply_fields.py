"""Fields that a definition changes: attributes, picklist values and types, with the records they have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.orgs import TestOrg, open_org
from tidewire.errors import DefinitionInvalid
from tidewire.events import Change, CommitContext, Value
from tidewire.gate.definitions.custom_fields import ATTRIBUTES, parse_field
from tidewire.records.conversion import ConversionEffect, ConversionNote
from tidewire.records.table import try_read_row
from tidewire.records.work import UnitOfWork


async def read(org: TestOrg, record_id: str, name: str) -> Value:
    """What the store holds in one field."""
    obj = org.gate.catalog.try_object_of_id(record_id)
    assert obj is not None
    row = await org.core.records.read(lambda reader: try_read_row(reader, obj, record_id))
    assert row is not None
    return row[name]


async def define(org: TestOrg, name: str = "Tier__c", /, **spec: object) -> list[str]:
    """Apply a definition of one custom field of Account."""
    return await org.apply(objects={"Account": {"fields": {name: spec}}})


def watch(org: TestOrg) -> list[Change]:
    """Every change that transactions tell from now on."""
    seen: list[Change] = []

    def hook(unit: UnitOfWork, changes: Any, context: CommitContext) -> None:
        seen.extend(changes)

    org.core.records.add_hook(hook)
    return seen


STATUS: dict[str, Any] = {"type": "Picklist", "values": ["Open", "Closed"], "restricted": True}


async def test_attributes_without_data_are_changed_once(org: TestOrg) -> None:
    await define(org, type="Text", length=10)
    plan = await define(org, type="Text", length=20, label="Level", required=True, default="x")
    assert plan == ["change Account.Tier__c: default, label, length, required"]
    field = org.gate.catalog.object("Account").by_name["tier__c"]
    assert (field.label, field.length, field.required, field.default) == ("Level", 20, True, "x")
    assert await define(org, type="Text", length=20, label="Level", required=True, default="x") == []


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "Text", "length": 0},
        {"type": "Text", "length": 256},
        {"type": "TextArea", "length": 256},
        {"type": "LongTextArea", "length": 255},
        {"type": "Email", "length": 81},
        {"type": "Checkbox", "unique": True},
        {"type": "Date", "external_id": True},
        {"type": "LongTextArea", "unique": True},
    ],
)
async def test_field_with_sizes_beyond_the_platform_is_rejected(
    org: TestOrg, spec: dict[str, object]
) -> None:
    with pytest.raises(DefinitionInvalid, match=r"must be between|can be neither unique nor an external id"):
        await define(org, **spec)


async def test_attribute_that_is_not_named_stays(org: TestOrg) -> None:
    await define(org, type="Text", length=10, label="Level")
    assert await define(org, type="Text") == []
    assert org.gate.catalog.object("Account").by_name["tier__c"].length == 10


@pytest.mark.parametrize(
    "before, value, after",
    [
        ({"type": "Text", "length": 10}, "123456789", {"type": "Text", "length": 8}),
        ({"type": "Number", "scale": 2}, 1.25, {"type": "Number", "scale": 1}),
        ({"type": "Number", "precision": 18, "scale": 0}, 1000, {"type": "Number", "precision": 3}),
        ({"type": "Currency"}, 1e10, {"type": "Number", "precision": 6}),
    ],
)
async def test_shrinking_below_stored_data_is_rejected(
    org: TestOrg, before: dict[str, object], value: object, after: dict[str, object]
) -> None:
    await define(org, **before)
    account = await org.make_account(Tier__c=value)
    with pytest.raises(DefinitionInvalid, match="would not fit"):
        await define(org, **after)
    assert await read(org, account, "Tier__c") == value


async def test_shrinking_above_stored_data_is_applied(org: TestOrg) -> None:
    await define(org, type="Text", length=10)
    await org.make_account(Tier__c="1234")
    assert await define(org, type="Text", length=4) == ["change Account.Tier__c: length"]


async def test_field_with_equal_values_cannot_become_unique(org: TestOrg) -> None:
    await define(org, type="Text")
    first = await org.make_account(Tier__c="gold")
    await org.make_account(Tier__c="GOLD")
    with pytest.raises(DefinitionInvalid, match="twice"):
        await define(org, type="Text", unique=True)
    await org.gate.delete(org.call, "Account", first)
    await define(org, type="Text", unique=True)
    with pytest.raises(Exception, match="duplicate value"):
        await org.make_account(Tier__c="gold")


async def test_case_sensitive_text_gets_new_keys(org: TestOrg) -> None:
    await define(org, type="Text")
    await org.make_account(Tier__c="gold")
    await org.make_account(Tier__c="GOLD")
    await define(org, type="Text", case_sensitive=True)
    assert await define(org, type="Text", case_sensitive=True, unique=True) == [
        "change Account.Tier__c: unique"
    ]


async def test_added_checkbox_is_false_or_its_default_in_old_records(org: TestOrg) -> None:
    account = await org.make_account()
    await define(org, "Off__c", type="Checkbox")
    await define(org, "On__c", type="Checkbox", default=True)
    assert (await read(org, account, "Off__c"), await read(org, account, "On__c")) == (False, True)


async def test_values_are_added_and_retired(org: TestOrg) -> None:
    await define(org, **STATUS)
    plan = await define(org, type="Picklist", values=["Open", "Paused"], deactivate=["Closed"])
    assert plan == [
        "add value Paused to Account.Tier__c",
        "deactivate value Closed of Account.Tier__c",
    ]
    with pytest.raises(Exception, match="restricted picklist"):
        await org.make_account(Tier__c="Closed")
    await org.make_account(Tier__c="Paused")
    assert await define(org, type="Picklist", values=["Open", "Paused"], deactivate=["Closed"]) == []
    assert await define(org, **STATUS) == ["activate value Closed of Account.Tier__c"]


async def test_renamed_value_reaches_every_record_as_an_update(org: TestOrg) -> None:
    await define(org, **STATUS)
    opened = await org.make_account(Tier__c="Open")
    closed = await org.make_account(Tier__c="Closed")
    binned = await org.make_account(Tier__c="Open")
    await org.gate.delete(org.call, "Account", binned)
    seen = watch(org)
    value_changes = {**STATUS, "values": ["Active", "Closed"], "rename": {"Open": "Active"}}
    assert await define(org, **value_changes) == [
        "rename value Open of Account.Tier__c by Active (2 records)"
    ]
    assert [(c.record_id, c.changed) for c in seen] == [(opened, ("Tier__c",))]
    assert [await read(org, i, "Tier__c") for i in (opened, closed, binned)] == ["Active", "Closed", "Active"]
    assert await define(org, **value_changes) == []


async def test_replaced_value_leaves_the_list(org: TestOrg) -> None:
    await define(org, **STATUS)
    account = await org.make_account(Tier__c="Open")
    value_changes = {"type": "Picklist", "replace": {"Open": "Closed"}}
    assert await define(org, **value_changes) == [
        "replace value Open of Account.Tier__c by Closed (1 records)"
    ]
    assert await read(org, account, "Tier__c") == "Closed"
    values = org.gate.catalog.object("Account").by_name["tier__c"].picklist
    assert [v.value for v in values] == ["Closed"]
    assert await define(org, **value_changes) == []


async def test_renamed_value_becomes_a_change_event_of_a_captured_object(org: TestOrg) -> None:
    await define(org, **STATUS)
    await org.make_account(Tier__c="Open")
    head = await org.core.records.read(org.core.log.read_head)
    await org.apply(
        capture=["Account"],
        objects={
            "Account": {
                "fields": {
                    "Tier__c": {**STATUS, "values": ["Active"], "rename": {"Open": "Active"}},
                    "Extra__c": {"type": "Number"},
                }
            },
            "Thing__c": {"capture": True},
        },
    )
    assert await org.core.records.read(org.core.log.read_head) == head + 1


async def test_value_of_a_multiselect_picklist_is_renamed_among_others(org: TestOrg) -> None:
    await define(org, type="MultiselectPicklist", values=["a", "b", "c"])
    account = await org.make_account(Tier__c="a;b")
    other = await org.make_account(Tier__c="c")
    await define(org, type="MultiselectPicklist", values=["z", "b", "c"], rename={"a": "z"})
    assert await read(org, account, "Tier__c") == "z;b"
    assert await read(org, other, "Tier__c") == "c"


@pytest.mark.parametrize(
    "value_changes",
    [
        {"rename": {"Open": "Closed"}},
        {"replace": {"Open": "Nowhere"}},
        {"values": ["Open"], "rename": {"Open": "Active"}},
        {"values": ["Open"], "deactivate": ["Open"]},
        {"rename": ["Open"]},
        {"rename": {"Open": 5}},
        {"deactivate": "Open"},
    ],
)
async def test_contradicting_value_changes_are_rejected(
    org: TestOrg, value_changes: dict[str, object]
) -> None:
    await define(org, **STATUS)
    with pytest.raises(DefinitionInvalid) as caught:
        await define(org, type="Picklist", **value_changes)
    assert str(caught.value.details["path"]).startswith("objects.Account.fields.Tier__c")


@pytest.mark.parametrize(
    "before, value, after, expected, effect",
    [
        ({"type": "Text"}, "a@b.org", {"type": "Email"}, "a@b.org", ConversionEffect.NONE),
        ({"type": "LongTextArea"}, "123456", {"type": "Text", "length": 4}, "1234", ConversionEffect.NONE),
        ({"type": "Number"}, 5.25, {"type": "Text"}, "5.25", ConversionEffect.NONE),
        ({"type": "Number"}, 5.25, {"type": "Percent", "scale": 1}, 5.3, ConversionEffect.NONE),
        ({"type": "Currency"}, 7, {"type": "Text"}, "7", ConversionEffect.NONE),
        ({"type": "Text"}, "Open", {"type": "Picklist", "values": ["Open"]}, "Open", ConversionEffect.NONE),
        ({"type": "Picklist", "values": ["x"]}, "x", {"type": "Text"}, "x", ConversionEffect.NONE),
        ({"type": "Picklist", "values": ["Yes"]}, "Yes", {"type": "Checkbox"}, True, ConversionEffect.GAP),
        ({"type": "Picklist", "values": ["No"]}, "No", {"type": "Checkbox"}, False, ConversionEffect.GAP),
        (
            {"type": "Picklist", "values": ["a"]},
            "a",
            {"type": "MultiselectPicklist", "values": ["a", "b"]},
            "a",
            ConversionEffect.GAP,
        ),
        ({"type": "Date"}, "2026-01-02", {"type": "Text"}, None, ConversionEffect.WILDCARD),
        ({"type": "Text"}, "5", {"type": "Number"}, None, ConversionEffect.WILDCARD),
        ({"type": "Text"}, "5", {"type": "Checkbox"}, False, ConversionEffect.WILDCARD),
        ({"type": "Checkbox"}, True, {"type": "Text"}, None, ConversionEffect.WILDCARD),
    ],
)
async def test_conversion_follows_the_guide(
    org: TestOrg,
    before: dict[str, object],
    value: object,
    after: dict[str, object],
    expected: Value,
    effect: ConversionEffect,
) -> None:
    await define(org, **before)
    account = await org.make_account(Tier__c=value)
    seen = watch(org)
    notes: list[ConversionNote] = []
    org.core.records.add_conversion_hook(lambda unit, note: notes.append(note))
    plan = await define(org, **after)
    assert plan == [f"convert Account.Tier__c from {before['type']} to {after['type']} ({effect.value})"]
    assert await read(org, account, "Tier__c") == expected
    assert [(n.effect, n.record_ids) for n in notes] == [
        (effect, (account,) if effect is ConversionEffect.GAP else ())
    ]
    assert seen == []
    assert await define(org, **after) == []


async def test_converted_field_survives_a_restart_and_a_conversion_back(tmp_path: Path) -> None:
    async with open_org(tmp_path) as org:
        await define(org, type="Number")
        account = await org.make_account(Tier__c=12)
        await define(org, type="Text")
    async with open_org(tmp_path) as org:
        assert await read(org, account, "Tier__c") == "12"
        await org.gate.update(org.call, "Account", account, {"Tier__c": "twelve"})
        await define(org, type="Number")
        assert await read(org, account, "Tier__c") is None


@pytest.mark.parametrize(
    "before, after",
    [
        ({"type": "Text"}, {"type": "Lookup", "references": "Contact"}),
        ({"type": "Lookup", "references": "Contact"}, {"type": "Text"}),
        ({"type": "Lookup", "references": "Contact"}, {"type": "Lookup", "references": "Account"}),
    ],
)
async def test_lookups_do_not_convert(
    org: TestOrg, before: dict[str, object], after: dict[str, object]
) -> None:
    await define(org, **before)
    with pytest.raises(DefinitionInvalid):
        await define(org, **after)


async def test_field_of_a_push_topic_does_not_convert_under_it(org: TestOrg) -> None:
    await define(org, type="Text")
    topic = {"Query": "SELECT Id FROM Account WHERE tier__C = 'gold'"}
    await org.apply(push_topics={"Golden": topic})
    with pytest.raises(DefinitionInvalid, match="Golden uses Tier__c"):
        await define(org, type="Number")
    await org.apply(
        objects={"Account": {"fields": {"Tier__c": {"type": "Number"}}}},
        push_topics={"Golden": {"Query": "SELECT Id, Name FROM Account"}},
    )
    await org.make_account(Tier__c=5)


async def test_dry_run_of_a_conversion_changes_nothing(org: TestOrg) -> None:
    await define(org, type="Text")
    account = await org.make_account(Tier__c="x")
    document = {"objects": {"Account": {"fields": {"Tier__c": {"type": "Number"}}}}}
    plan = (await org.gate.apply_definition(org.call, document, dry_run=True)).lines
    assert await read(org, account, "Tier__c") == "x"
    assert await org.apply(**document) == plan


async def test_conversion_reaches_every_record_past_one_chunk(org: TestOrg) -> None:
    await define(org, type="Number")
    obj = org.gate.catalog.object("Account")

    def work(unit: UnitOfWork) -> list[str]:
        return [unit.create(obj, {"Name": "n", "Tier__c": n}) for n in range(1, 1101)]

    ids = await org.core.records.write(work, user_id=org.admin.user_id)
    await define(org, type="Text")
    assert [await read(org, ids[n], "Tier__c") for n in (0, 999, 1000, 1099)] == ["1", "1000", "1001", "1100"]


async def test_added_formula_is_computed_for_old_records(org: TestOrg) -> None:
    account = await org.make_account("Acme")
    seen = watch(org)
    await define(org, "Size__c", type="Number", formula="LEN(Name)", scale=0)
    assert await read(org, account, "Size__c") == 4
    assert await define(org, "Size__c", type="Number", formula="LEN(Name) + 1") == [
        "change Account.Size__c: formula"
    ]
    assert await read(org, account, "Size__c") == 5
    assert seen == []


async def test_added_roll_up_counts_what_is_there(org: TestOrg) -> None:
    master = {"type": "Lookup", "references": "Account", "master_detail": True}
    await org.apply(objects={"Line__c": {"fields": {"Account__c": master, "Amount__c": {"type": "Number"}}}})
    account = await org.make_account()
    for amount in (2, 3):
        await org.gate.create(org.call, "Line__c", {"Account__c": account, "Amount__c": amount})
    roll_up = {"child": "line__c", "child_field": "Account__c", "function": "SUM", "field": "Amount__c"}
    await define(org, "Total__c", type="Number", roll_up=roll_up)
    assert await read(org, account, "Total__c") == 5
    assert await define(org, "Total__c", type="Number", roll_up=roll_up) == []
    with pytest.raises(DefinitionInvalid, match="computed from it"):
        await org.apply(objects={"Line__c": {"fields": {"Amount__c": {"type": "Text"}}}})
    with pytest.raises(DefinitionInvalid, match="no master"):
        await org.apply(objects={"Line__c": {"fields": {"Other__c": master}}})


async def test_field_under_a_formula_is_neither_converted_nor_removed(org: TestOrg) -> None:
    await org.apply(
        objects={
            "Account": {
                "fields": {
                    "Tier__c": {"type": "Text"},
                    "Size__c": {"type": "Number", "formula": "LEN(Tier__c)"},
                }
            }
        }
    )
    with pytest.raises(DefinitionInvalid, match=r"Account\.Size__c is computed from it"):
        await define(org, type="TextArea")
    with pytest.raises(DefinitionInvalid):
        await org.apply(remove={"fields": ["Account.Tier__c"]})
    await org.apply(remove={"fields": ["Account.Tier__c", "Account.Size__c"]})


def test_every_word_of_a_field_is_compared() -> None:
    with pytest.raises(DefinitionInvalid) as caught:
        parse_field("X__c", dict.fromkeys([*ATTRIBUTES, "nonsense"]), "x")
    assert caught.value.message == "x has unknown keys: nonsense"


async def test_name_of_a_custom_object_changes_its_format_and_not_its_kind(org: TestOrg) -> None:
    number = {"type": "AutoNumber", "format": "T-{0}"}
    await org.apply(objects={"Thing__c": {"name": number}})
    changed = {"Thing__c": {"name": {**number, "format": "T-{000}", "label": "Number"}}}
    assert await org.apply(objects=changed) == ["change Thing__c.Name: format, label"]
    assert await org.apply(objects=changed) == []
    with pytest.raises(DefinitionInvalid, match="not supported"):
        await org.apply(objects={"Thing__c": {"name": {"type": "Text"}}})
