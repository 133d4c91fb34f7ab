"""Shared Activities: several people on an activity, and relations only where the org has them on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.stores import OpenStore
from tests.unit.crm.activity_org import (
    Row,
    children,
    find,
    make_event,
    make_guest,
    make_recurring_task,
    make_series,
    occurrences,
    open_activities,
    tasks_of,
    told,
    update,
)
from tests.unit.records.small_org import Org
from tidewire.crm import shared_activities
from tidewire.crm.leads import Conversion, convert_lead
from tidewire.errors import (
    DuplicateValue,
    FieldNotWriteable,
    FieldsInconsistent,
    NumberOutOfRange,
    ObjectUnknown,
    ReferenceWrongType,
)
from tidewire.events import ChangeType, Value
from tidewire.records.settings import OrgSettings

CREATE, UPDATE, DELETE = ChangeType.CREATE, ChangeType.UPDATE, ChangeType.DELETE


@pytest.fixture
async def org(place: OpenStore) -> AsyncIterator[Org]:
    async with open_activities(place, is_shared=True) as opened:
        yield opened


@pytest.fixture
async def account(org: Org) -> str:
    return await org.make("Account", Name="One")


async def make_contact(org: Org, name: str = "C", **values: object) -> str:
    return await org.make("Contact", LastName=name, **values)


async def related(org: Org, activity: Value, entity: str = "Task") -> list[Row]:
    return await find(org, f"{entity}Relation", f"{entity}Id", activity)


async def who(org: Org, task: Value) -> tuple[Value, ...]:
    row = await org.row("Task", str(task))
    return row["WhoId"], row["WhoCount"], row["WhatId"], row["WhatCount"], row["AccountId"]


async def test_without_shared_activities_who_and_what_are_all_there_is(place: OpenStore) -> None:
    async with open_activities(place) as org:
        contact = await make_contact(org)
        account = await org.make("Account", Name="One")
        task = await org.make("Task", WhoId=contact, WhatId=account)
        assert told(org) == [("Task", CREATE)]
        event = await make_event(org, WhoId=contact, WhatId=account)
        assert told(org) == [("Event", CREATE)]
        await update(org, "Task", task, WhoId=None)
        assert told(org) == [("Task", UPDATE)]
        with pytest.raises(ObjectUnknown):
            await org.make("TaskRelation", TaskId=task, RelationId=contact)
        assert await related(org, event, "Event") == []


async def test_activity_is_made_with_its_relations_after_it(org: Org, account: str) -> None:
    contact = await make_contact(org, AccountId=account)
    task = await org.make("Task", WhoId=contact, WhatId=account)
    assert told(org) == [("Task", CREATE), ("TaskRelation", CREATE), ("TaskRelation", CREATE)]
    assert await who(org, task) == (contact, 1, account, 1, account)
    rows = await related(org, task)
    assert [(row["RelationId"], row["IsWhat"], row["AccountId"]) for row in rows] == [
        (contact, False, account),
        (account, True, account),
    ]
    event = await make_event(org, WhoId=contact, WhatId=account)
    assert told(org) == [("Event", CREATE), ("EventRelation", CREATE), ("EventRelation", CREATE)]
    roles = [
        (r["IsParent"], r["IsWhat"], r["IsInvitee"], r["Status"]) for r in await related(org, event, "Event")
    ]
    assert roles == [(True, False, False, None), (True, True, False, None)]
    assert (await org.row("Event", event))["IsGroupEvent"] is False


async def test_second_person_is_counted_and_follows_when_the_first_goes(org: Org, account: str) -> None:
    first, second = await make_contact(org), await make_contact(org, "D", AccountId=account)
    task = await org.make("Task", WhoId=first)
    relation = await org.make("TaskRelation", TaskId=task, RelationId=second)
    assert told(org) == [("Task", UPDATE), ("TaskRelation", CREATE)]
    assert await who(org, task) == (first, 2, None, 0, None)
    await update(org, "Task", task, WhoId=None)
    assert told(org) == [("Task", UPDATE), ("TaskRelation", DELETE)]
    assert await who(org, task) == (second, 1, None, 0, account)
    await org.delete("TaskRelation", relation)
    assert told(org) == [("TaskRelation", DELETE), ("Task", UPDATE)]
    assert await who(org, task) == (None, 0, None, 0, None)
    await org.undelete("TaskRelation", relation)
    assert await who(org, task) == (second, 1, None, 0, account)


async def test_new_person_replaces_the_first_and_a_related_one_is_only_put_first(org: Org) -> None:
    first, second, third = [await make_contact(org, name) for name in "CDE"]
    task = await org.make("Task", WhoId=first)
    await org.make("TaskRelation", TaskId=task, RelationId=second)
    await update(org, "Task", task, WhoId=third)
    assert told(org) == [("Task", UPDATE), ("TaskRelation", DELETE), ("TaskRelation", CREATE)]
    assert {row["RelationId"] for row in await related(org, task)} == {second, third}
    assert (await who(org, task))[:2] == (third, 2)
    await update(org, "Task", task, WhoId=second)
    assert told(org) == [("Task", UPDATE)]
    assert (await who(org, task))[:2] == (second, 2)
    await update(org, "Task", task, Subject="Call")
    assert told(org) == [("Task", UPDATE)]


async def test_what_is_replaced_and_cleared_with_its_relation(org: Org, account: str) -> None:
    other = await org.make("Account", Name="Two")
    task = await org.make("Task", WhatId=account)
    await update(org, "Task", task, WhatId=other)
    assert [row["RelationId"] for row in await related(org, task)] == [other]
    assert await who(org, task) == (None, 0, other, 1, other)
    (relation,) = await related(org, task)
    await org.delete("TaskRelation", str(relation["Id"]))
    assert await who(org, task) == (None, 0, None, 0, None)
    await org.make("TaskRelation", TaskId=task, RelationId=account)
    assert await who(org, task) == (None, 0, account, 1, account)


async def test_relation_that_does_not_fit_is_refused(
    org: Org, account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    contact = await make_contact(org)
    lead = await org.make("Lead", LastName="L", Company="L")
    task = await org.make("Task", WhoId=contact, WhatId=account)
    with pytest.raises(DuplicateValue):
        await org.make("TaskRelation", TaskId=task, RelationId=contact)
    with pytest.raises(FieldsInconsistent):
        await org.make("TaskRelation", TaskId=task, RelationId=lead)
    with pytest.raises(FieldsInconsistent):
        await org.make("TaskRelation", TaskId=task, RelationId=await org.make("Account", Name="Two"))
    event = await make_event(org)
    with pytest.raises(ReferenceWrongType):
        await org.make("EventRelation", EventId=event, RelationId=await make_guest(org), IsParent=True)
    (relation, _) = await related(org, task)
    with pytest.raises(FieldNotWriteable):
        await update(org, "TaskRelation", relation["Id"], IsWhat=True)
    monkeypatch.setattr(shared_activities, "MAX_PEOPLE", 1)
    other = await make_contact(org, "D")
    with pytest.raises(NumberOutOfRange):
        await org.make("TaskRelation", TaskId=task, RelationId=other)
    assert org.changes == []
    await update(org, "Task", task, WhoId=lead)
    assert (await who(org, task))[:2] == (lead, 1)


async def test_deleted_contact_leaves_the_task_to_the_next_and_returns_behind_it(org: Org) -> None:
    first, second = await make_contact(org), await make_contact(org, "D")
    task = await org.make("Task", WhoId=first)
    await org.make("TaskRelation", TaskId=task, RelationId=second)
    await org.delete("Contact", first)
    assert sorted(told(org)) == [("Contact", DELETE), ("Task", UPDATE), ("TaskRelation", DELETE)]
    assert (await who(org, task))[:2] == (second, 1)
    await org.undelete("Contact", first)
    assert (await who(org, task))[:2] == (second, 2)


async def test_deleted_task_takes_its_relations_and_brings_them_back(org: Org, account: str) -> None:
    task = await org.make("Task", WhoId=await make_contact(org), WhatId=account)
    before = await who(org, task)
    await org.delete("Task", task)
    assert told(org) == [("Task", DELETE), ("TaskRelation", DELETE), ("TaskRelation", DELETE)]
    await org.undelete("Task", task)
    assert len(org.changes) == 3
    assert await who(org, task) == before


async def test_invited_contact_who_becomes_first_has_one_relation_with_both_roles(org: Org) -> None:
    contact = await make_contact(org)
    event = await make_event(org)
    relation = await org.make("EventRelation", EventId=event, RelationId=contact)
    await update(org, "Event", event, WhoId=contact)
    assert told(org) == [("Event", UPDATE), ("EventRelation", UPDATE)]
    row = await org.row("EventRelation", relation)
    assert (row["IsInvitee"], row["IsParent"]) == (True, True)
    with pytest.raises(DuplicateValue):
        await org.make("EventRelation", EventId=event, RelationId=contact)
    await update(org, "EventRelation", relation, IsInvitee=False)
    assert (await org.row("Event", event))["IsGroupEvent"] is False
    await update(org, "EventRelation", relation, IsInvitee=True, IsParent=False)
    after = await org.row("Event", event)
    assert (after["WhoId"], after["WhoCount"], after["IsGroupEvent"]) == (None, 0, True)
    await update(org, "EventRelation", relation, IsParent=True)
    await update(org, "Event", event, WhoId=None)
    assert told(org) == [("Event", UPDATE), ("EventRelation", UPDATE)]
    assert (await org.row("EventRelation", relation))["IsParent"] is False


async def test_child_shows_the_people_of_its_event_and_has_no_relations(org: Org) -> None:
    event = await make_event(org)
    await org.make("EventRelation", EventId=event, RelationId=await make_guest(org))
    contact = await make_contact(org)
    relation = await org.make("EventRelation", EventId=event, RelationId=contact, IsParent=True)
    (child,) = await children(org, event)
    assert (child["WhoId"], child["WhoCount"]) == (contact, 1)
    assert await related(org, child["Id"], "Event") == []
    await org.delete("EventRelation", relation)
    (child,) = await children(org, event)
    assert (child["WhoId"], child["WhoCount"]) == (None, 0)


async def test_series_and_its_occurrences_are_related_alike(org: Org, account: str) -> None:
    contact = await make_contact(org)
    series = await make_series(org, WhoId=contact)
    assert told(org) == [("Event", CREATE)] * 4 + [("EventRelation", CREATE)] * 4
    relation = await org.make("EventRelation", EventId=series, RelationId=account, IsParent=True)
    assert told(org) == [("Event", UPDATE)] * 4 + [("EventRelation", CREATE)] * 4
    await update(org, "Event", series, Recurrence2PatternText="RRULE:FREQ=DAILY;COUNT=2")
    found = await occurrences(org, series)
    assert [(row["WhoId"], row["WhatId"], row["AccountId"]) for row in found] == [
        (contact, account, account)
    ] * 2
    assert [len(await related(org, row["Id"], "Event")) for row in found] == [2, 2]
    await org.delete("EventRelation", relation)
    assert told(org) == [("EventRelation", DELETE)] * 3 + [("Event", UPDATE)] * 3
    assert {row["WhatId"] for row in await occurrences(org, series)} == {None}
    other = await make_contact(org, "D")
    await update(org, "Event", series, WhoId=other)
    assert (
        told(org)
        == [("Event", UPDATE)]
        + [("EventRelation", DELETE)] * 3
        + [("Event", UPDATE)] * 2
        + [("EventRelation", CREATE)] * 3
    )
    for row in await occurrences(org, series):
        assert [r["RelationId"] for r in await related(org, row["Id"], "Event")] == [other]
        assert (row["WhoId"], row["WhoCount"]) == (other, 1)


async def test_recurring_task_relates_each_of_its_tasks(org: Org) -> None:
    first, second = await make_contact(org), await make_contact(org, "D")
    series = await make_recurring_task(org, WhoId=first)
    await org.make("TaskRelation", TaskId=series, RelationId=second)
    for task in await tasks_of(org, series):
        assert {row["RelationId"] for row in await related(org, task["Id"])} == {first, second}
        assert (await who(org, task["Id"]))[:2] == (first, 2)


async def test_successor_of_a_closed_task_is_with_the_same_people(org: Org, account: str) -> None:
    first, second = await make_contact(org), await make_contact(org, "D")
    task = await org.make(
        "Task",
        WhoId=first,
        WhatId=account,
        RecurrenceRegeneratedType="RecurrenceRegenerateAfterToday",
        RecurrenceInterval=1,
    )
    await org.make("TaskRelation", TaskId=task, RelationId=second)
    await update(org, "Task", task, Status="Completed")
    assert told(org) == [("Task", UPDATE), ("Task", CREATE)] + [("TaskRelation", CREATE)] * 3
    successor = org.changes[1].record_id
    assert {row["RelationId"] for row in await related(org, successor)} == {first, second, account}
    assert (await who(org, successor))[:4] == (first, 2, account, 1)


async def test_converted_lead_leaves_its_relations_to_the_contact(org: Org) -> None:
    lead = await org.make("Lead", LastName="L", Company="L")
    task = await org.make("Task", WhoId=lead)
    conversion = Conversion(lead_id=lead, converted_status="Closed - Converted")
    made = await org.write(lambda unit: convert_lead(unit, conversion))
    assert [row["RelationId"] for row in await related(org, task)] == [made.contact_id]
    assert (await who(org, task))[:2] == (made.contact_id, 1)


async def test_activity_from_before_shared_activities_keeps_its_person(place: OpenStore) -> None:
    async with open_activities(place) as org:
        contact, other = await make_contact(org), await make_contact(org, "D")
        task = await org.make("Task", WhoId=contact)
        settings = OrgSettings(shared_activities=True)
        await org.records.write_plain(lambda tx: org.types.change_settings(tx, settings))
        relation = await org.make("TaskRelation", TaskId=task, RelationId=other)
        assert (await who(org, task))[:2] == (contact, 2)
        await org.delete("TaskRelation", relation)
        assert (await who(org, task))[:2] == (contact, 1)
