"""Invitees: answers, roles and limits. That they are invited at all is among the tests of activities."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.stores import OpenStore
from tests.unit.crm.activity_org import (
    children,
    find,
    make_event,
    make_guest,
    make_series,
    occurrences,
    open_activities,
    told,
    update,
)
from tests.unit.records.small_org import NOW_MS, Org
from tidewire.crm import invitees
from tidewire.errors import DuplicateValue, FieldNotWriteable, FieldsInconsistent, NumberOutOfRange
from tidewire.events import ChangeType

CREATE, UPDATE, DELETE = ChangeType.CREATE, ChangeType.UPDATE, ChangeType.DELETE
SECOND = NOW_MS - NOW_MS % 1000


@pytest.fixture
async def org(place: OpenStore) -> AsyncIterator[Org]:
    async with open_activities(place) as opened:
        yield opened


@pytest.fixture
async def guest(org: Org) -> str:
    return await make_guest(org)


@pytest.mark.parametrize("status", ["Accepted", "Declined", "Maybe"])
async def test_answer_is_dated_and_taken_back_undated(org: Org, guest: str, status: str) -> None:
    event = await make_event(org)
    relation = await org.make("EventRelation", EventId=event, RelationId=guest)
    await update(org, "EventRelation", relation, Status=status, Response="see you")
    assert told(org) == [("EventRelation", UPDATE)]
    row = await org.row("EventRelation", relation)
    assert (row["Status"], row["RespondedDate"], row["Response"]) == (status, SECOND, "see you")
    assert len(await children(org, event)) == 1
    await update(org, "EventRelation", relation, Status="New")
    assert (await org.row("EventRelation", relation))["RespondedDate"] is None


async def test_date_of_an_answer_can_be_given(org: Org, guest: str) -> None:
    relation = await org.make("EventRelation", EventId=await make_event(org), RelationId=guest)
    await update(org, "EventRelation", relation, Status="Accepted", RespondedDate="2023-11-01T00:00:00.000Z")
    assert (await org.row("EventRelation", relation))["RespondedDate"] == 1_698_796_800_000


async def test_uninvited_user_loses_the_child_and_gets_one_when_invited_again(org: Org, guest: str) -> None:
    event = await make_event(org, Subject="Planning")
    relation = await org.make("EventRelation", EventId=event, RelationId=guest)
    (child,) = await children(org, event)
    await update(org, "EventRelation", relation, Status="Uninvited")
    assert told(org) == [("EventRelation", UPDATE), ("Event", DELETE)]
    assert org.changes[1].record_id == child["Id"]
    assert await children(org, event) == []
    await update(org, "Event", event, Subject="Review")
    await update(org, "EventRelation", relation, Status="New")
    assert told(org) == [("EventRelation", UPDATE), ("Event", CREATE)]
    (child,) = await children(org, event)
    assert (child["OwnerId"], child["Subject"]) == (guest, "Review")


async def test_answer_to_a_series_is_one_to_each_occurrence_not_answered_otherwise(
    org: Org, guest: str
) -> None:
    series = await make_series(org)
    relation = await org.make("EventRelation", EventId=series, RelationId=guest)
    first, *others = await occurrences(org, series)
    (own,) = await find(org, "EventRelation", "EventId", first["Id"])
    await update(org, "EventRelation", own["Id"], Status="Declined")
    assert told(org) == [("EventRelation", UPDATE)]
    await update(org, "EventRelation", relation, Status="Accepted")
    assert told(org) == [("EventRelation", UPDATE)] * 3
    for occurrence, status in zip((first, *others), ("Declined", "Accepted", "Accepted"), strict=True):
        (row,) = await find(org, "EventRelation", "EventId", occurrence["Id"])
        assert (row["Status"], row["RespondedDate"]) == (status, SECOND)
    await update(org, "EventRelation", relation, Status="Uninvited")
    assert (
        told(org) == [("EventRelation", UPDATE)] + [("Event", DELETE)] * 2 + [("EventRelation", UPDATE)] * 2
    )
    assert [len(await children(org, row["Id"])) for row in (first, *others)] == [1, 0, 0]
    await update(org, "EventRelation", relation, Status="New")
    assert [len(await children(org, row["Id"])) for row in (first, *others)] == [1, 1, 1]
    assert await children(org, series) == []


async def test_contact_and_lead_are_invited_without_an_event_of_their_own(org: Org) -> None:
    event = await make_event(org)
    for entity, values in (("Contact", {"LastName": "C"}), ("Lead", {"LastName": "L", "Company": "L"})):
        person = await org.make(entity, **values)
        relation = await org.make("EventRelation", EventId=event, RelationId=person)
        assert (await org.row("EventRelation", relation))["IsInvitee"] is True
    assert await children(org, event) == []
    assert (await org.row("Event", event))["IsGroupEvent"] is True


async def test_deleted_contact_takes_the_invitation_and_undelete_brings_it_back(org: Org) -> None:
    event = await make_event(org)
    contact = await org.make("Contact", LastName="C")
    relation = await org.make("EventRelation", EventId=event, RelationId=contact)
    await org.delete("Contact", contact)
    assert told(org) == [("Contact", DELETE), ("EventRelation", DELETE), ("Event", UPDATE)]
    assert (await org.row("Event", event))["GroupEventType"] == "0"
    await org.undelete("Contact", contact)
    assert (await org.row("EventRelation", relation))["IsDeleted"] is False
    assert (await org.row("Event", event))["GroupEventType"] == "1"


async def test_deleted_event_takes_children_and_invitations_and_brings_them_back(
    org: Org, guest: str
) -> None:
    event = await make_event(org)
    await org.make("EventRelation", EventId=event, RelationId=guest)
    (child,) = await children(org, event)
    await org.delete("Event", event)
    assert org.changes[0].record_id == event
    assert sorted(told(org), key=str) == [("Event", DELETE), ("Event", DELETE), ("EventRelation", DELETE)]
    await org.undelete("Event", event)
    assert len(org.changes) == 3
    assert await children(org, event) == [await org.row("Event", str(child["Id"]))]


async def test_changed_event_changes_its_children_after_itself(org: Org, guest: str) -> None:
    event = await make_event(org)
    account = await org.make("Account", Name="One")
    await org.make("EventRelation", EventId=event, RelationId=guest)
    await update(org, "Event", event, Location="Room 1", WhatId=account, ShowAs="Free")
    assert told(org) == [("Event", UPDATE)] * 2
    assert org.changes[0].record_id == event
    (child,) = await children(org, event)
    assert (child["Location"], child["WhatId"], child["AccountId"]) == ("Room 1", account, account)
    assert child["ShowAs"] == "Busy"


async def test_role_that_nobody_has_is_refused(org: Org, guest: str) -> None:
    event = await make_event(org)
    relation = await org.make("EventRelation", EventId=event, RelationId=guest)
    with pytest.raises(FieldsInconsistent):
        await update(org, "EventRelation", relation, IsInvitee=False)
    with pytest.raises(FieldNotWriteable):
        await update(org, "EventRelation", relation, IsParent=True)
    contact = await org.make("Contact", LastName="C")
    for role in ("IsParent", "IsWhat"):
        with pytest.raises(FieldNotWriteable) as refused:
            await org.make("EventRelation", EventId=event, RelationId=contact, **{role: True})
        assert refused.value.details["fields"] == [role]


async def test_second_invitation_and_one_too_many_are_refused(
    org: Org, guest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    event, series = await make_event(org), await make_series(org)
    for invited_to in (event, series):
        await org.make("EventRelation", EventId=invited_to, RelationId=guest)
        with pytest.raises(DuplicateValue):
            await org.make("EventRelation", EventId=invited_to, RelationId=guest)
    contact = await org.make("Contact", LastName="C")
    monkeypatch.setattr(invitees, "MAX_INVITEES", 1)
    with pytest.raises(NumberOutOfRange):
        await org.make("EventRelation", EventId=event, RelationId=contact)
    monkeypatch.setattr(invitees, "MAX_SERIES_INVITEES", 1)
    with pytest.raises(NumberOutOfRange):
        await org.make("EventRelation", EventId=series, RelationId=contact)
    assert org.changes == []
