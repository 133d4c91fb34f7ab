"""Merged, gap and overflow events, and what each stands for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tidewire.capture.change_events import MAX_MERGED_IDS, iter_change_events
from tidewire.events import Change, ChangeType, CommitContext, UntrackedChange, Value
from tidewire.ids import EMPTY_ID, make_id
from tidewire.schema.avro import change_event_schema
from tidewire.schema.bitmap import decode_bitmap
from tidewire.schema.catalog import Catalog
from tidewire.schema.codec import EventSchema
from tidewire.schema.standard import STANDARD_OBJECTS

ENTITIES = ("Account", "Contact", "User")
CATALOG = Catalog(1, STANDARD_OBJECTS).with_captured(ENTITIES)
SCHEMAS = {
    name + "ChangeEvent": EventSchema(json.dumps(change_event_schema(CATALOG.object(name))))
    for name in ENTITIES
}
CONTEXT = CommitContext("key-" + "0" * 32, 7, 1_700_000_000_123, make_id("005", 1), "com/x")
STAMPS: dict[str, Value] = {
    "LastModifiedDate": 5000,
    "LastModifiedById": CONTEXT.user_id,
    "SystemModstamp": 5000,
}


def record_id(number: int, entity: str = "Account") -> str:
    return make_id(CATALOG.object(entity).key_prefix, number)


def row(entity: str, number: int, values: dict[str, Value]) -> dict[str, Value]:
    empty: dict[str, Value] = {f.name: None for f in CATALOG.object(entity).stored_fields}
    return empty | STAMPS | {"Id": record_id(number, entity)} | values


def updated(number: int, entity: str = "Account", **values: Value) -> Change:
    before, after = row(entity, number, {}), row(entity, number, values)
    changed = tuple(f.name for f in CATALOG.object(entity).stored_fields if f.name in values)
    return Change(entity, record_id(number, entity), ChangeType.UPDATE, before, after, changed, number)


def deleted(number: int, entity: str = "Account") -> Change:
    before = row(entity, number, {})
    return Change(entity, record_id(number, entity), ChangeType.DELETE, before, None, (), number)


def created(number: int, entity: str = "Account", **values: Value) -> Change:
    after = row(entity, number, values)
    return Change(entity, record_id(number, entity), ChangeType.CREATE, None, after, (), number)


def events_of(
    changes: Sequence[Change], untracked_changes: Sequence[UntrackedChange] = (), **options: int
) -> list[dict[str, Any]]:
    drafts = iter_change_events(changes, CONTEXT, CATALOG, SCHEMAS, untracked_changes, **options)
    return [SCHEMAS[draft.topic].decode(draft.payload) for draft in drafts]


def summary(
    changes: Sequence[Change], untracked: Sequence[UntrackedChange] = (), **options: int
) -> list[tuple[Any, ...]]:
    headers = [event["ChangeEventHeader"] for event in events_of(changes, untracked, **options)]
    return [(h["entityName"], h["changeType"], len(h["recordIds"]), h["sequenceNumber"]) for h in headers]


def test_same_update_of_neighbours_is_one_event_and_counts_once() -> None:
    changes = [updated(n, Industry="Apparel") for n in (1, 2, 3)] + [updated(4, Industry="Banking")]
    first, second = (event["ChangeEventHeader"] for event in events_of(changes))
    assert first["recordIds"] == [record_id(n) for n in (1, 2, 3)]
    assert (first["sequenceNumber"], second["sequenceNumber"]) == (1, 2)


@pytest.mark.parametrize(
    "second",
    [
        updated(2, Industry="Banking"),
        updated(2, Industry="Apparel", Phone="1"),
        updated(2, Phone="Apparel"),
        updated(2, Industry="Apparel", LastModifiedDate=9000),
        deleted(2),
        updated(2, Industry="Apparel")._replace(never_merge=True),
    ],
)
def test_other_values_fields_times_or_types_are_events_of_their_own(second: Change) -> None:
    assert len(events_of([updated(1, Industry="Apparel"), second])) == 2


def test_creates_and_undeletes_are_never_merged() -> None:
    undeleted = [created(n, Name="A")._replace(type=ChangeType.UNDELETE) for n in (3, 4)]
    assert [line[2] for line in summary([created(1, Name="A"), created(2, Name="A"), *undeleted])] == [1] * 4


def test_deletes_of_one_entity_are_merged_up_to_a_bound() -> None:
    accounts = [deleted(n) for n in range(1, MAX_MERGED_IDS + 2)]
    assert summary([*accounts, deleted(MAX_MERGED_IDS + 2, "Contact")]) == [
        ("Account", "DELETE", MAX_MERGED_IDS, 1),
        ("Account", "DELETE", 1, 2),
        ("Contact", "DELETE", 1, 3),
    ]


def test_cascaded_changes_merge_only_in_large_transactions() -> None:
    few = [deleted(n)._replace(never_merge=True) for n in range(1, 11)]
    many = [deleted(n)._replace(never_merge=True) for n in range(1, 2002)]
    assert len(events_of(few)) == 10
    assert [line[2] for line in summary(many)] == [2001]


def test_event_above_a_megabyte_becomes_a_gap_of_its_kind() -> None:
    large = "x" * 600_000
    changes = [
        created(1, Name="A", Description=large, Site=large),
        created(2, Name="B"),
        created(3, Name="C", Description=large, Site=large),
    ]
    gap, whole = events_of(changes)
    header = gap.pop("ChangeEventHeader")
    assert (header["changeType"], header["recordIds"]) == ("GAP_CREATE", [record_id(1), record_id(3)])
    assert (header["sequenceNumber"], header["changeOrigin"]) == (1, "")
    assert (header["transactionKey"], header["changedFields"]) == (CONTEXT.transaction_key, [])
    assert set(gap.values()) == {None}
    assert whole["ChangeEventHeader"]["recordIds"] == [record_id(2)]


def test_event_that_cannot_be_encoded_becomes_a_gap() -> None:
    lines = summary([updated(1, NumberOfEmployees=1 << 40), updated(2, Phone="1")])
    assert lines == [("Account", "GAP_UPDATE", 1, 1), ("Account", "UPDATE", 1, 2)]


def test_change_below_the_api_is_a_gap_with_the_databases_key() -> None:
    ids = (record_id(1), record_id(2))
    untracked_changes = [
        UntrackedChange("Account", ChangeType.UPDATE, ids, transaction_key="0Mc1"),
        UntrackedChange("Account", ChangeType.DELETE, ids[:1], transaction_key="0Mc1"),
        UntrackedChange("Opportunity", ChangeType.UPDATE, ids, transaction_key="0Mc1"),
    ]
    headers = [event["ChangeEventHeader"] for event in events_of([], untracked_changes)]
    assert [(h["changeType"], h["recordIds"], h["transactionKey"]) for h in headers] == [
        ("GAP_UPDATE", list(ids), "0Mc1"),
        ("GAP_DELETE", [ids[0]], "0Mc1"),
    ]
    assert all((h["sequenceNumber"], h["changeOrigin"]) == (1, "") for h in headers)


def test_lost_field_is_one_event_for_all_records_without_any_value() -> None:
    (event,) = events_of([], [UntrackedChange("Account", ChangeType.UPDATE, (), lost_field="Site")])
    header = event.pop("ChangeEventHeader")
    assert (header["changeType"], header["recordIds"], header["sequenceNumber"]) == ("UPDATE", ["001*"], 1)
    assert decode_bitmap(SCHEMAS["AccountChangeEvent"], header["changedFields"]) == ["Site"]
    assert set(event.values()) == {None}


def test_changes_beyond_the_limit_are_one_overflow_event_for_each_entity() -> None:
    changes = [deleted(n) for n in (1, 2, 3)] + [deleted(4, "Contact"), deleted(5), deleted(6, "Contact")]
    assert summary(changes, max_changes=6)[-1] == ("Contact", "DELETE", 1, 4)
    assert summary(changes, max_changes=3) == [
        ("Account", "DELETE", 3, 1),
        ("Contact", "GAP_OVERFLOW", 1, 2),
        ("Account", "GAP_OVERFLOW", 1, 3),
    ]
    overflow = events_of(changes, max_changes=3)[-1]["ChangeEventHeader"]
    assert (overflow["recordIds"], overflow["changeOrigin"]) == ([EMPTY_ID], "")
    assert (overflow["transactionKey"], overflow["commitUser"]) == (CONTEXT.transaction_key, CONTEXT.user_id)


def test_update_counts_by_its_fields_and_stamps_do_not() -> None:
    three = [updated(n, Phone=str(n), Fax="1", Site="s", LastModifiedDate=9) for n in (1, 2)]
    assert [line[1] for line in summary(three, max_changes=6)] == ["UPDATE", "UPDATE"]
    assert [line[1] for line in summary(three, max_changes=5)] == ["UPDATE", "GAP_OVERFLOW"]


def test_changed_flag_of_a_user_is_sent_with_all_set_flags() -> None:
    values: dict[str, Value] = {
        "UserPreferencesReminderSoundOff": True,
        "UserPreferencesHideSfxWelcomeMat": True,
        "EmailPreferencesAutoBcc": True,
    }
    (whole,) = events_of([created(1, "User", LastName="L", **values)])
    assert whole["UserPreferences"] == ["ReminderSoundOff", "HideSfxWelcomeMat"]
    assert (whole["EmailPreferences"], whole["UserPermissions"]) == (["AutoBcc"], [])
    after = row("User", 1, values | {"UserPreferencesReminderSoundOff": False})
    change = updated(1, "User")._replace(after=after, changed=("UserPreferencesReminderSoundOff",))
    (update,) = events_of([change])
    assert (update["UserPreferences"], update["EmailPreferences"]) == (["HideSfxWelcomeMat"], None)
    changed = decode_bitmap(SCHEMAS["UserChangeEvent"], update["ChangeEventHeader"]["changedFields"])
    assert changed == ["LastModifiedDate", "UserPreferences"]


def test_long_text_that_changed_little_is_marked_as_a_difference() -> None:
    lines = [f"{n} " + "x" * 100 for n in range(20)]
    before = row("Account", 1, {"Description": "\n".join(lines)})
    after = before | {"Description": "\n".join(["changed", *lines[1:]])}
    change = Change("Account", record_id(1), ChangeType.UPDATE, before, after, ("Description",), 1)
    (event,) = events_of([change])
    assert event["Description"].startswith("--- \n+++ ")
    header = event["ChangeEventHeader"]
    assert decode_bitmap(SCHEMAS["AccountChangeEvent"], header["diffFields"]) == ["Description"]
    assert "Description" in decode_bitmap(SCHEMAS["AccountChangeEvent"], header["changedFields"])
