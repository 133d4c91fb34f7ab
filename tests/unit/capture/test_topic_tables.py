"""The guide's tables, row by row: which changes of which fields each kind of push topic is told of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidewire.capture.notifications import iter_notifications
from tidewire.capture.push_topics import compile_push_topic
from tidewire.capture.topic_index import PushTopicIndex
from tidewire.events import Change, ChangeType, CommitContext, Value
from tidewire.ids import make_id
from tidewire.schema.catalog import Catalog
from tidewire.schema.fields import location, text
from tidewire.schema.layout import audit_fields, identity_fields
from tidewire.schema.model import ObjectType
from tidewire.schema.standard import STANDARD_OBJECTS

INVOICE = ObjectType(
    name="InvoiceStatement__c",
    label="Invoice Statement",
    label_plural="Invoice Statements",
    key_prefix="a07",
    fields=tuple(
        replace(f, column="" if f.is_compound else f"c{place}")
        for place, f in enumerate(
            (
                *identity_fields(),
                *(text(f"f{n}__c", f"F{n}", 80) for n in range(1, 6)),
                *location("location__c", "Location"),
                *audit_fields(),
            )
        )
    ),
    custom=True,
)
CATALOG = Catalog(1, (*STANDARD_OBJECTS, INVOICE))
CONTEXT = CommitContext("k", 1, 1_700_000_000_123, make_id("005", 1))
OWN, OTHER = make_id("a07", 1), make_id("a07", 2)
BEFORE: dict[str, Value] = {"f1__c": "a", "f2__c": "b", "f3__c": "abc", "f4__c": "xyz", "f5__c": "e"}
IDS = f"('{OWN}', '{make_id('a07', 3)}')"
_WHERE = "f3__c = 'abc' AND f4__c LIKE 'xyz%'"


def is_told(
    query: str, notify_for: str, record_id: str, before: dict[str, Value], after: dict[str, Value]
) -> bool:
    row: dict[str, Value] = {
        "Id": make_id("0IF", 1),
        "Name": "T",
        "Query": query,
        "ApiVersion": 42.0,
        "IsActive": True,
        "NotifyForFields": notify_for,
        "NotifyForOperationUpdate": True,
    }
    topic = compile_push_topic(row, CATALOG)
    empty: dict[str, Value] = {f.name: None for f in topic.obj.stored_fields}
    empty["Id"] = record_id
    full_before, full_after = empty | before, empty | after
    changed = tuple(name for name, value in full_after.items() if full_before[name] != value)
    one = Change(topic.obj.name, record_id, ChangeType.UPDATE, full_before, full_after, changed, 1)
    return any(iter_notifications([one], CONTEXT, PushTopicIndex([topic])))


# NotifyForFields, SELECT, WHERE, and the fields whose change is told if the record matches afterwards.
NOTIFY_ROWS = [
    ("All", "Id, f1__c, f2__c, f3__c", "", "1 2 3 4 5"),
    ("All", "Id, f1__c, f2__c", _WHERE, "1 2 3 4 5"),
    ("All", "Id", "", "1 2 3 4 5"),
    ("All", "Id", _WHERE, "1 2 3 4 5"),
    ("All", "Id", f"Id IN {IDS}", "1 2 3 4 5"),
    ("All", "Id, f1__c, f2__c", f"Id IN {IDS}", "1 2 3 4 5"),
    ("All", "Id, f1__c, f2__c", f"{_WHERE} AND Id IN {IDS}", "1 2 3 4 5"),
    ("Referenced", "Id, f1__c, f2__c, f3__c", "", "1 2 3"),
    ("Referenced", "Id, f1__c, f2__c", _WHERE, "1 2 3 4"),
    ("Referenced", "Id", _WHERE, "3 4"),
    ("Referenced", "Id, f1__c, f2__c", f"Id IN {IDS}", "1 2"),
    ("Referenced", "Id, f1__c, f2__c", f"{_WHERE} AND Id IN {IDS}", "1 2 3 4"),
    ("Select", "Id, f1__c, f2__c, f3__c", "", "1 2 3"),
    ("Select", "Id, f1__c, f2__c", _WHERE, "1 2"),
    ("Select", "Id, f1__c, f2__c", f"Id IN {IDS}", "1 2"),
    ("Select", "Id, f1__c, f2__c", f"{_WHERE} AND Id IN {IDS}", "1 2"),
    ("Where", "Id, f1__c, f2__c", _WHERE, "3 4"),
    ("Where", "Id", _WHERE, "3 4"),
    ("Where", "Id, f1__c, f2__c", f"{_WHERE} AND Id IN {IDS}", "3 4"),
]


@pytest.mark.parametrize("notify_for, select, where, told", NOTIFY_ROWS)
def test_change_of_a_field_is_notified_as_the_table_says(
    notify_for: str, select: str, where: str, told: str
) -> None:
    query = f"SELECT {select} FROM InvoiceStatement__c{' WHERE ' * bool(where)}{where}"
    for place in "12345":
        name = f"f{place}__c"
        # The record matches after the change; before it, the field that changes had another value.
        is_expected = place in told.split()
        assert is_told(query, notify_for, OWN, BEFORE | {name: "other"}, BEFORE) is is_expected, name


@pytest.mark.parametrize("notify_for, select, where, told", [row for row in NOTIFY_ROWS if row[2]])
def test_change_of_a_record_that_does_not_match_is_never_notified(
    notify_for: str, select: str, where: str, told: str
) -> None:
    query = f"SELECT {select} FROM InvoiceStatement__c WHERE {where}"
    changed: dict[str, Value] = {f"f{place}__c": "new" for place in "125"}
    if "f3__c" in where:
        assert not is_told(query, notify_for, OWN, BEFORE, BEFORE | changed | {"f3__c": "abd"})
        assert not is_told(query, notify_for, OWN, BEFORE, BEFORE | changed | {"f4__c": "yz"})
    if "Id IN" in where:
        assert not is_told(query, notify_for, OTHER, BEFORE, BEFORE | changed)


# What stands in SELECT, the fields that change, and whether that is noticed.
COMPOUND_ROWS = [
    ("Contact", "Id, Name", {"FirstName": "B", "Name": "B C"}, True),
    ("Contact", "Id, Name", {"Salutation": "Dr."}, True),
    ("Contact", "Id, Name, FirstName, LastName", {"LastName": "D", "Name": "A D"}, True),
    ("Contact", "Id, FirstName, LastName", {"LastName": "D", "Name": "A D"}, False),
    ("Lead", "Id, Name", {"LastName": "D", "Name": "A D"}, True),
    ("Lead", "Id, Name, FirstName, LastName", {"FirstName": "B", "Name": "B C"}, True),
    ("Lead", "Id, FirstName, LastName", {"FirstName": "B", "Name": "B C"}, False),
    ("Contact", "Id, MailingAddress", {"MailingCity": "Bonn"}, False),
    ("Contact", "Id, MailingAddress, MailingCity, MailingStreet", {"MailingCity": "Bonn"}, True),
    ("Contact", "Id, MailingCity, MailingStreet", {"MailingStreet": "1 Main St"}, True),
    ("InvoiceStatement__c", "Id, location__c", {"location__Latitude__s": 1.0}, False),
    (
        "InvoiceStatement__c",
        "Id, location__c, location__latitude__s, location__longitude__s",
        {"location__Longitude__s": 1.0},
        True,
    ),
    (
        "InvoiceStatement__c",
        "Id, location__latitude__s, location__longitude__s",
        {"location__Latitude__s": 1.0},
        True,
    ),
    ("Task", "Id, Subject, IsClosed", {"Status": "Completed", "IsClosed": True}, False),
    ("Task", "Id, Subject, IsClosed, Status", {"Status": "Completed", "IsClosed": True}, True),
    ("Task", "Id, Subject, WhoCount", {"WhoId": "x", "WhoCount": 1}, False),
    ("Task", "Id, WhoCount, WhoId", {"WhoId": "x", "WhoCount": 1}, True),
    ("Task", "Id, WhatCount, WhatId", {"WhatId": "x", "WhatCount": 1}, True),
]


@pytest.mark.parametrize("entity, select, changed, is_noticed", COMPOUND_ROWS)
@pytest.mark.parametrize("notify_for", ["Referenced", "Select", "All"])
def test_change_of_a_compound_is_noticed_as_the_tables_say(
    entity: str, select: str, changed: dict[str, Value], is_noticed: bool, notify_for: str
) -> None:
    is_expected = is_noticed or notify_for == "All"
    assert is_told(f"SELECT {select} FROM {entity}", notify_for, OWN, {}, changed) is is_expected


def test_person_name_in_where_is_noticed_through_its_parts() -> None:
    query = "SELECT Id FROM Contact WHERE Name LIKE 'B%'"
    assert is_told(query, "Where", OWN, {}, {"FirstName": "B", "Name": "B C"})
