"""Push topics: which queries are taken, and which changes they make known."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tidewire.capture.notifications import iter_notifications
from tidewire.capture.push_topics import PushTopic, compile_push_topic
from tidewire.capture.topic_index import PushTopicIndex
from tidewire.capture.topic_rules import topic_limit
from tidewire.errors import FieldUnknown, PushTopicInvalid, SoqlSyntaxError
from tidewire.events import Change, ChangeType, CommitContext, Family, Value
from tidewire.ids import make_id
from tidewire.schema.catalog import Catalog
from tidewire.schema.standard import STANDARD_OBJECTS
from tidewire.schema.values import DAY_MS

CATALOG = Catalog(1, STANDARD_OBJECTS)
CONTEXT = CommitContext("k", 1, 1_700_000_000_123, make_id("005", 1))
RECORD = make_id("001", 1)
TOPIC = make_id("0IF", 1)


def topic(query: str, notify_for: str = "Referenced", **settings: bool | float) -> PushTopic:
    values: dict[str, Value] = {
        "Id": TOPIC,
        "Name": "T",
        "Query": query,
        "ApiVersion": 50.0,
        "IsActive": True,
        "NotifyForFields": notify_for,
        "NotifyForOperationCreate": True,
        "NotifyForOperationUpdate": True,
        "NotifyForOperationDelete": True,
        "NotifyForOperationUndelete": True,
    }
    return compile_push_topic(values | settings, CATALOG)


def account(**values: Value) -> dict[str, Value]:
    empty: dict[str, Value] = {f.name: None for f in CATALOG.object("Account").stored_fields}
    return empty | {"Id": RECORD, "IsDeleted": False} | values


def change(kind: ChangeType, before: dict[str, Value] | None, after: dict[str, Value] | None) -> Change:
    changed: tuple[str, ...] = ()
    if before is not None and after is not None:
        changed = tuple(n for n in after if before[n] != after[n])
    return Change("Account", RECORD, kind, before, after, changed, 1)


def told(push_topic: PushTopic, one: Change) -> dict[str, object] | None:
    drafts = list(iter_notifications([one], CONTEXT, PushTopicIndex([push_topic])))
    if not drafts:
        return None
    (draft,) = drafts
    assert (draft.topic, draft.family) == (TOPIC, Family.PUSH_TOPIC)
    body: dict[str, object] = json.loads(draft.payload)
    return body


def is_told(push_topic: PushTopic, before: dict[str, Value], after: dict[str, Value]) -> bool:
    return told(push_topic, change(ChangeType.UPDATE, before, after)) is not None


def test_matching_create_is_notified_with_the_selected_fields() -> None:
    push_topic = topic("SELECT Id, Name, Phone, CreatedDate FROM Account WHERE Name LIKE 'a%'")
    row = account(Name="Acme", CreatedDate=1_700_000_000_000, Fax="9")
    assert told(push_topic, change(ChangeType.CREATE, None, row)) == {
        "type": "created",
        "createdDate": "2023-11-14T22:13:20.123Z",
        "sobject": {"Id": RECORD, "Name": "Acme", "Phone": None, "CreatedDate": "2023-11-14T22:13:20.000Z"},
    }
    assert told(push_topic, change(ChangeType.CREATE, None, account(Name="Bcme"))) is None


# The guide's four tables: a selected field, one in WHERE and another one change; the record matches throughout.
@pytest.mark.parametrize(
    "notify_for, selected, filtered, other",
    [
        ("All", True, True, True),
        ("Referenced", True, True, False),
        ("Select", True, False, False),
        ("Where", False, True, False),
    ],
)
def test_notify_for_fields_decides_which_changes_count(
    notify_for: str, selected: bool, filtered: bool, other: bool
) -> None:
    push_topic = topic("SELECT Id, Name FROM Account WHERE Phone LIKE '1%'", notify_for)
    before = account(Name="A", Phone="1", Fax="x")
    assert is_told(push_topic, before, before | {"Name": "B"}) is selected
    assert is_told(push_topic, before, before | {"Phone": "12"}) is filtered
    assert is_told(push_topic, before, before | {"Fax": "y"}) is other


@pytest.mark.parametrize("notify_for", ["All", "Referenced", "Select", "Where"])
def test_update_of_a_record_that_does_not_match_is_not_notified(notify_for: str) -> None:
    push_topic = topic("SELECT Id, Name FROM Account WHERE Phone = '1'", notify_for)
    before = account(Name="A", Phone="1")
    assert not is_told(push_topic, before, before | {"Name": "B", "Phone": "2"})


def test_update_that_begins_to_match_is_notified() -> None:
    push_topic = topic("SELECT Id, Name FROM Account WHERE Phone = '1'", "Where")
    assert is_told(push_topic, account(Phone="2"), account(Phone="1"))


def test_all_ignores_a_save_that_changed_nothing() -> None:
    before = account(Name="A", LastModifiedDate=1)
    assert not is_told(topic("SELECT Id FROM Account", "All"), before, before | {"LastModifiedDate": 2})


def test_delete_is_matched_by_its_last_values_and_sends_the_id_only() -> None:
    push_topic = topic("SELECT Id, Name FROM Account WHERE Phone = '1'")
    body = told(push_topic, change(ChangeType.DELETE, account(Name="A", Phone="1"), None))
    assert body is not None
    assert (body["type"], body["sobject"]) == ("deleted", {"Id": RECORD})
    assert told(push_topic, change(ChangeType.DELETE, account(Phone="2"), None)) is None


@pytest.mark.parametrize(
    "kind", [ChangeType.CREATE, ChangeType.UPDATE, ChangeType.DELETE, ChangeType.UNDELETE]
)
def test_operation_flags_switch_each_kind_off(kind: ChangeType) -> None:
    before = None if kind is ChangeType.CREATE else account(Name="A")
    after = None if kind is ChangeType.DELETE else account(Name="B")
    one = change(kind, before, after)
    flag = f"NotifyForOperation{kind.value.title()}"
    assert told(topic("SELECT Id, Name FROM Account"), one) is not None
    assert told(topic("SELECT Id, Name FROM Account", "Referenced", **{flag: False}), one) is None


def test_inactive_topic_sends_nothing() -> None:
    push_topic = topic("SELECT Id, Name FROM Account", IsActive=False)
    assert told(push_topic, change(ChangeType.CREATE, None, account(Name="A"))) is None


@pytest.mark.parametrize(
    "query, message",
    [
        ("SELECT Name FROM Account", "Id must be selected"),
        ("SELECT Id, Name FROM Account LIMIT 10", "'LIMIT' is not allowed"),
        ("SELECT Id, Name FROM Account ORDER BY Name", "'ORDER BY' clause is not allowed"),
        ("SELECT Id, Name FROM Account OFFSET 10", "'OFFSET' clause is not allowed"),
        ("SELECT Id FROM Account WHERE NOT Name = 'x'", "'NOT' is not supported"),
        ("SELECT Id, Owner.Name FROM Account", "relationships are not supported"),
        ("SELECT Id, COUNT(Name) FROM Account", "Aggregate queries are not supported"),
        ("SELECT COUNT() FROM Account", "Aggregate queries are not supported"),
        ("SELECT Id, OwnerId FROM Account GROUP BY OwnerId", "Aggregate queries are not supported"),
        ("SELECT Id FROM Account WHERE Id IN (SELECT AccountId FROM Contact)", "semi/anti join"),
        ("SELECT TYPEOF Owner WHEN User THEN Name END FROM Account", "'TYPEOF' clause is not allowed"),
        ("SELECT Id, AVG(AnnualRevenue) FROM Account", "Aggregate queries are not supported"),
        ("SELECT Id, Contact.Account.Name FROM Contact", "relationships are not supported"),
        ("SELECT Id FROM Contact WHERE Account.Name = 'x'", "relationships are not supported"),
        ("SELECT Id FROM Contact WHERE Account.Name IN ('x')", "relationships are not supported"),
        ("SELECT Id, (SELECT Id FROM Contacts) FROM Account", "relationships are not supported"),
        ("SELECT Id FROM Account WHERE Id NOT IN (SELECT AccountId FROM Contact)", "semi/anti join"),
        ("SELECT Id, Name FROM Account WHERE City = 'New York' OFFSET 10", "'OFFSET' clause is not allowed"),
        ("SELECT Id, toLabel(Industry) FROM Account", "'TOLABEL' is not supported"),
        (
            "SELECT Id FROM Account WHERE BillingStreet = 'x'",
            "text area fields are not supported in the WHERE",
        ),
        ("SELECT Id, Name FROM User", "'User' is not supported"),
        ("SELECT Id, Name FROM Quote", "'Quote' is not supported"),
    ],
)
def test_unsupported_query_is_rejected_with_its_reason(query: str, message: str) -> None:
    with pytest.raises(PushTopicInvalid, match=message):
        topic(query)


@pytest.mark.parametrize(
    "query, error",
    [
        ("SELECT Id, FROM Account", SoqlSyntaxError),
        ("SELECT Id, Nope FROM Account", FieldUnknown),
        ("SELECT Id FROM Nope", PushTopicInvalid),
    ],
)
def test_query_that_is_not_soql_gets_the_soql_error(query: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        topic(query)


@pytest.mark.parametrize(
    "query, notify_for",
    [
        ("SELECT Id FROM Account", "Referenced"),
        ("SELECT Id FROM Account WHERE Name = 'x'", "Select"),
        ("SELECT Id, Name FROM Account", "Where"),
        ("SELECT Id, Name FROM Account WHERE Id = '001TW0000000001AAA'", "Where"),
        ("SELECT Id, WhoCount, WhatCount FROM Task", "Referenced"),
    ],
)
def test_notify_for_fields_without_a_field_to_watch_is_rejected(query: str, notify_for: str) -> None:
    with pytest.raises(PushTopicInvalid):
        topic(query, notify_for)


def test_api_version_must_be_above_20() -> None:
    with pytest.raises(PushTopicInvalid):
        topic("SELECT Id, Name FROM Account", ApiVersion=20.0)


def test_api_version_must_not_be_beyond_the_newest() -> None:
    assert topic("SELECT Id, Name FROM Account", ApiVersion=67.0).name == "T"
    with pytest.raises(PushTopicInvalid, match="must not be greater"):
        topic("SELECT Id, Name FROM Account", ApiVersion=68.0)


@pytest.mark.parametrize(
    "where, days",
    [
        ("CreatedDate = TODAY", {0}),
        ("CreatedDate >= TODAY", {0, 1, 2}),
        ("CreatedDate = LAST_N_DAYS:1", {-1, 0}),
        ("CreatedDate IN (YESTERDAY, TOMORROW)", {-1, 1}),
        ("CreatedDate != TODAY AND Name = 'A'", {-2, -1, 1, 2}),
        ("(CreatedDate = TODAY OR Name = 'B') AND Phone = null", {0}),
    ],
)
def test_relative_date_counts_from_the_time_of_the_change(where: str, days: set[int]) -> None:
    push_topic = topic(f"SELECT Id, Name FROM Account WHERE {where}")
    index = PushTopicIndex([push_topic])
    for now_ms in (CONTEXT.commit_ms, CONTEXT.commit_ms + 40 * DAY_MS, CONTEXT.commit_ms):
        context = CONTEXT._replace(commit_ms=now_ms)
        rows = {day: account(Name="A", CreatedDate=now_ms + day * DAY_MS) for day in range(-2, 3)}
        found = {
            day
            for day, row in rows.items()
            if any(iter_notifications([change(ChangeType.CREATE, None, row)], context, index))
        }
        assert found == days


def test_relative_date_keeps_to_the_fields_that_are_watched() -> None:
    push_topic = topic("SELECT Id, Name FROM Account WHERE CreatedDate = TODAY")
    row = account(Name="A", CreatedDate=CONTEXT.commit_ms)
    assert not is_told(push_topic, row, row | {"Phone": "1"})
    assert is_told(push_topic, row, row | {"Name": "B"})


def test_person_name_is_watched_through_its_parts() -> None:
    push_topic = topic("SELECT Id, Name FROM Contact")
    assert push_topic.watched == frozenset({"Id", "Name", "Salutation", "FirstName", "LastName"})


def test_selected_person_name_shows_all_its_parts() -> None:
    push_topic = topic("SELECT Id, Name, Email FROM Contact")
    row: dict[str, Value] = {f.name: None for f in CATALOG.object("Contact").stored_fields}
    row |= {"Id": RECORD, "Salutation": "Ms.", "FirstName": "Ada", "LastName": "L", "Name": "Ada L"}
    body = told(push_topic, Change("Contact", RECORD, ChangeType.CREATE, None, row, (), 1))
    assert body is not None
    assert body["sobject"] == {
        "Id": RECORD,
        "Name": "Ada L",
        "Salutation": "Ms.",
        "FirstName": "Ada",
        "LastName": "L",
        "Email": None,
    }


def test_not_in_is_allowed() -> None:
    push_topic = topic("SELECT Id FROM Account WHERE Name NOT IN ('A', 'B')")
    assert told(push_topic, change(ChangeType.CREATE, None, account(Name="C"))) is not None
    assert told(push_topic, change(ChangeType.CREATE, None, account(Name="A"))) is None


def test_pilot_objects_need_the_pilot() -> None:
    row: dict[str, Value] = {
        "Id": TOPIC,
        "Name": "T",
        "Query": "SELECT Id, Name FROM Quote",
        "ApiVersion": 40.0,
    }
    assert compile_push_topic(row, CATALOG, has_pilot_objects=True).obj.name == "Quote"
    with pytest.raises(PushTopicInvalid):
        compile_push_topic(row | {"Query": "SELECT Id FROM Asset"}, CATALOG, has_pilot_objects=True)


def test_formula_is_never_filtered_and_before_25_not_even_selected() -> None:
    lead = CATALOG.object("Account")
    doubled = replace(
        lead.by_name["annualrevenue"], name="Twice__c", formula="AnnualRevenue * 2", custom=True
    )
    fields = (*lead.fields, doubled)
    catalog = Catalog(1, tuple(replace(o, fields=fields) if o is lead else o for o in STANDARD_OBJECTS))
    row: dict[str, Value] = {"Id": TOPIC, "Name": "T", "Query": "SELECT Id, Twice__c FROM Account"}
    assert compile_push_topic(row | {"ApiVersion": 25.0}, catalog).watched == frozenset({"Id", "Twice__c"})
    with pytest.raises(PushTopicInvalid, match="formula fields are not supported: Twice__c"):
        compile_push_topic(row | {"ApiVersion": 24.0}, catalog)
    row["Query"] = "SELECT Id FROM Account WHERE Twice__c > 1"
    with pytest.raises(PushTopicInvalid, match="formula fields are not supported in the WHERE clause"):
        compile_push_topic(row | {"ApiVersion": 25.0}, catalog)


def test_change_with_suppressed_notifications_is_not_notified() -> None:
    one = change(ChangeType.CREATE, None, account(Name="A"))._replace(suppress_notifications=True)
    assert told(topic("SELECT Id, Name FROM Account"), one) is None


@pytest.mark.parametrize(
    "edition, limit",
    [("", None), ("unlimited", 100), ("enterprise", 50), ("developer", 40), ("databasecom-24", 20)],
)
def test_topic_limit_goes_by_edition(edition: str, limit: int | None) -> None:
    assert topic_limit(edition) == limit
