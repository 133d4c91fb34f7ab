"""Recurring events and tasks, and invitees."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.stores import OpenStore
from tests.unit.crm.activity_org import (
    DAILY,
    START,
    children,
    find,
    make_event,
    make_guest,
    make_recurring_task,
    make_series,
    moment,
    occurrences,
    open_activities,
    tasks_of,
    told,
    update,
)
from tests.unit.records.small_org import NOW_MS, USER, Org, make_user
from tidewire.capture.change_events import iter_change_events
from tidewire.errors import (
    DuplicateValue,
    FieldNotWriteable,
    FieldsInconsistent,
    NumberOutOfRange,
    ReferenceWrongType,
    RequiredFieldMissing,
    ValueMalformed,
)
from tidewire.events import ChangeType, CommitContext
from tidewire.records.work import UnitOfWork
from tidewire.schema.avro import change_event_schema
from tidewire.schema.catalog import Catalog
from tidewire.schema.codec import EventSchema
from tidewire.schema.standard import STANDARD_OBJECTS


@pytest.fixture
async def org(place: OpenStore) -> AsyncIterator[Org]:
    async with open_activities(place) as opened:
        yield opened


@pytest.fixture
async def guest(org: Org) -> str:
    return await make_guest(org)


async def test_event_times_given_in_part_are_completed(org: Org) -> None:
    row = await org.row("Event", await org.make("Event", StartDateTime=START, DurationInMinutes=90))
    assert row["ActivityDateTime"] == row["StartDateTime"] == moment("2023-11-20T09:00")
    assert row["EndDateTime"] == moment("2023-11-20T10:30")
    assert row["ActivityDate"] == row["EndDate"] == moment("2023-11-20")
    assert row["GroupEventType"] == "0"


async def test_all_day_event_ends_on_its_last_day(org: Org) -> None:
    event = await org.make("Event", IsAllDayEvent=True, ActivityDate="2023-11-20")
    row = await org.row("Event", event)
    assert (row["StartDateTime"], row["EndDateTime"]) == (moment("2023-11-20"), moment("2023-11-20"))
    assert row["DurationInMinutes"] == 24 * 60
    await update(org, "Event", event, EndDateTime="2023-11-21T00:00:00.000Z")
    assert (await org.row("Event", event))["DurationInMinutes"] == 48 * 60


async def test_event_moved_keeps_its_duration(org: Org) -> None:
    event = await org.make("Event", StartDateTime=START, EndDateTime="2023-11-20T09:45:00.000Z")
    await update(org, "Event", event, StartDateTime="2023-11-21T12:00:00.000Z")
    row = await org.row("Event", event)
    assert (row["EndDateTime"], row["DurationInMinutes"]) == (moment("2023-11-21T12:45"), 45)


async def test_event_that_ends_before_it_starts_is_refused(org: Org) -> None:
    with pytest.raises(FieldsInconsistent):
        await org.make("Event", StartDateTime=START, EndDateTime="2023-11-19T09:00:00.000Z")


async def test_series_is_created_with_its_occurrences_in_one_transaction(org: Org) -> None:
    series = await make_series(org, Recurrence2PatternTimeZone="Europe/Paris")
    assert told(org) == [("Event", ChangeType.CREATE)] * 4
    master = org.changes[0].after
    assert master is not None
    assert org.changes[0].record_id == series
    assert (master["GroupEventType"], master["IsRecurrence2"]) == ("3", True)
    assert master["Recurrence2PatternVersion"] == "1"
    assert master["Recurrence2PatternStartDate"] == master["StartDateTime"]
    assert str(master["ActivityRecurrence2Id"]).startswith("828")
    found = await occurrences(org, series)
    assert [row["StartDateTime"] for row in found] == [moment(f"2023-11-{day}T09:00") for day in (20, 21, 22)]
    assert [row["EndDateTime"] for row in found] == [moment(f"2023-11-{day}T10:00") for day in (20, 21, 22)]
    for row in found:
        assert (row["GroupEventType"], row["IsRecurrence2"], row["IsChild"]) == ("0", True, False)
        assert (row["Subject"], row["OwnerId"]) == ("Planning", USER)
        assert row["ActivityRecurrence2Id"] == master["ActivityRecurrence2Id"]
        assert row["Recurrence2PatternText"] == DAILY


@pytest.mark.parametrize(
    "values, error",
    [
        ({"Recurrence2PatternText": "every day"}, ValueMalformed),
        ({"Recurrence2PatternText": "RRULE:FREQ=DAILY"}, ValueMalformed),
        ({"Recurrence2PatternText": "RRULE:FREQ=DAILY;COUNT=1001"}, NumberOutOfRange),
        ({"Recurrence2PatternTimeZone": "Mars/Base"}, ValueMalformed),
        ({"StartDateTime": None}, RequiredFieldMissing),
        ({"IsRecurrence": True}, FieldsInconsistent),
    ],
)
async def test_series_that_cannot_be_expanded_is_refused_and_leaves_nothing(
    org: Org, values: dict[str, object], error: type[Exception]
) -> None:
    good = {"Recurrence2PatternText": DAILY, "StartDateTime": START, "DurationInMinutes": 60}

    def work_around(unit: UnitOfWork) -> None:
        with pytest.raises(error):
            unit.create(org.obj("Event"), {**good, **values})

    await org.write(work_around)
    assert org.changes == []


async def test_new_pattern_deletes_the_occurrences_and_makes_new_ones(org: Org) -> None:
    series = await make_series(org)
    old = await org.row("Event", series)
    await update(org, "Event", series, Recurrence2PatternText="RRULE:FREQ=WEEKLY;COUNT=2")
    assert (
        told(org)
        == [("Event", ChangeType.UPDATE)]
        + [("Event", ChangeType.DELETE)] * 3
        + [("Event", ChangeType.CREATE)] * 2
    )
    found = await occurrences(org, series)
    assert [row["StartDateTime"] for row in found] == [moment("2023-11-20T09:00"), moment("2023-11-27T09:00")]
    master = await org.row("Event", series)
    assert master["ActivityRecurrence2Id"] not in (None, old["ActivityRecurrence2Id"])
    assert {row["ActivityRecurrence2Id"] for row in found} == {master["ActivityRecurrence2Id"]}


@pytest.mark.parametrize(
    "values",
    [{"StartDateTime": "2023-11-20T10:00:00.000Z"}, {"Recurrence2PatternTimeZone": "Asia/Tokyo"}],
)
async def test_new_start_or_zone_makes_the_series_anew(org: Org, values: dict[str, object]) -> None:
    series = await make_series(org)
    before = {row["Id"] for row in await occurrences(org, series)}
    await update(org, "Event", series, **values)
    after = await occurrences(org, series)
    assert len(after) == 3
    assert not before & {row["Id"] for row in after}


async def test_other_change_reaches_only_occurrences_still_to_come(org: Org) -> None:
    series = await make_series(org)
    org.clock.advance((moment("2023-11-21T08:00") - NOW_MS) / 1000)
    await update(org, "Event", series, Subject="Review", DurationInMinutes=30)
    assert told(org) == [("Event", ChangeType.UPDATE)] * 3
    found = await occurrences(org, series)
    assert [row["Subject"] for row in found] == ["Planning", "Review", "Review"]
    assert [row["DurationInMinutes"] for row in found] == [60, 30, 30]
    assert found[1]["EndDateTime"] == moment("2023-11-21T09:30")


async def test_occurrence_changed_by_itself_is_an_exception_that_the_series_leaves_alone(org: Org) -> None:
    series = await make_series(org)
    first, *_ = await occurrences(org, series)
    await update(org, "Event", str(first["Id"]), Subject="Kick-off")
    assert len(org.changes) == 1
    await update(org, "Event", series, Subject="Review", Location="Room 1")
    found = await occurrences(org, series)
    assert [row["Subject"] for row in found] == ["Kick-off", "Review", "Review"]
    assert [row["IsRecurrence2Exception"] for row in found] == [True, False, False]


async def test_pattern_of_an_occurrence_cannot_be_changed(org: Org) -> None:
    first, *_ = await occurrences(org, await make_series(org))
    with pytest.raises(FieldNotWriteable):
        await update(org, "Event", str(first["Id"]), Recurrence2PatternText="RRULE:FREQ=DAILY;COUNT=9")


async def test_plain_event_given_a_pattern_becomes_a_series_and_back(org: Org) -> None:
    event = await org.make("Event", StartDateTime=START, DurationInMinutes=5)
    await update(org, "Event", event, Recurrence2PatternText=DAILY)
    assert len(await occurrences(org, event)) == 3
    await update(org, "Event", event, Recurrence2PatternText=None)
    assert await occurrences(org, event) == []
    row = await org.row("Event", event)
    assert (row["GroupEventType"], row["IsRecurrence2"], row["ActivityRecurrence2Id"]) == ("0", False, None)


async def test_deleted_series_takes_its_occurrences_and_brings_them_back(org: Org, guest: str) -> None:
    series = await make_series(org)
    await org.make("EventRelation", EventId=series, RelationId=guest)
    await org.delete("Event", series)
    assert (
        sorted(told(org)) == [("Event", ChangeType.DELETE)] * 7 + [("EventRelation", ChangeType.DELETE)] * 4
    )
    await org.undelete("Event", series)
    assert len(org.changes) == 11
    assert len(await occurrences(org, series)) == 3


async def test_invited_user_gets_a_child_event_before_the_relation(org: Org, guest: str) -> None:
    event = await org.make("Event", Subject="Planning", StartDateTime=START, DurationInMinutes=60)
    relation = await org.make("EventRelation", EventId=event, RelationId=guest)
    assert told(org) == [
        ("Event", ChangeType.UPDATE),
        ("Event", ChangeType.CREATE),
        ("EventRelation", ChangeType.CREATE),
    ]
    (child,) = await children(org, event)
    assert (child["OwnerId"], child["Subject"], child["GroupEventType"]) == (guest, "Planning", "1")
    assert child["StartDateTime"] == moment("2023-11-20T09:00")
    row = await org.row("EventRelation", relation)
    assert (row["IsInvitee"], row["IsParent"], row["IsWhat"], row["Status"]) == (True, False, False, "New")
    owner = await org.row("Event", event)
    assert (owner["IsGroupEvent"], owner["GroupEventType"], owner["OwnerId"]) == (True, "1", USER)


async def test_event_with_two_invitees_made_in_one_transaction_is_five_creates(org: Org, guest: str) -> None:
    other = await make_user(org, "other", str((await org.row("User", guest))["ProfileId"]))

    def work(unit: UnitOfWork) -> None:
        create = unit.create
        event = create(org.obj("Event"), {"StartDateTime": START, "DurationInMinutes": 60})
        for user in (guest, other):
            create(org.obj("EventRelation"), {"EventId": event, "RelationId": user})

    await org.write(work)
    assert (
        sorted(told(org)) == [("Event", ChangeType.CREATE)] * 3 + [("EventRelation", ChangeType.CREATE)] * 2
    )


async def test_invited_contact_gets_a_relation_and_no_event(org: Org) -> None:
    event = await org.make("Event", StartDateTime=START, DurationInMinutes=60)
    contact = await org.make("Contact", LastName="C")
    await org.make("EventRelation", EventId=event, RelationId=contact)
    assert told(org) == [("Event", ChangeType.UPDATE), ("EventRelation", ChangeType.CREATE)]
    await org.delete("Contact", contact)
    assert (await org.row("Event", event))["IsGroupEvent"] is False


async def test_second_invitation_of_the_same_person_is_refused(org: Org, guest: str) -> None:
    event = await org.make("Event", StartDateTime=START, DurationInMinutes=60)
    await org.make("EventRelation", EventId=event, RelationId=guest)
    with pytest.raises(DuplicateValue):
        await org.make("EventRelation", EventId=event, RelationId=guest)
    (child,) = await children(org, event)
    with pytest.raises(ReferenceWrongType):
        await org.make("EventRelation", EventId=child["Id"], RelationId=USER)


async def test_child_mirrors_its_event_and_keeps_its_own_reminder(org: Org, guest: str) -> None:
    event = await org.make("Event", Subject="Planning", StartDateTime=START, DurationInMinutes=60)
    await org.make("EventRelation", EventId=event, RelationId=guest)
    (child,) = await children(org, event)
    await update(org, "Event", str(child["Id"]), IsReminderSet=True)
    with pytest.raises(FieldNotWriteable):
        await update(org, "Event", str(child["Id"]), Subject="Mine")
    await update(org, "Event", event, Subject="Review", StartDateTime="2023-11-21T09:00:00.000Z")
    (child,) = await children(org, event)
    assert (child["Subject"], child["EndDateTime"]) == ("Review", moment("2023-11-21T10:00"))
    assert child["IsReminderSet"] is True


async def test_withdrawn_invitation_takes_the_child_and_undelete_brings_both_back(
    org: Org, guest: str
) -> None:
    event = await org.make("Event", StartDateTime=START, DurationInMinutes=60)
    relation = await org.make("EventRelation", EventId=event, RelationId=guest)
    await org.delete("EventRelation", relation)
    assert await children(org, event) == []
    row = await org.row("Event", event)
    assert (row["IsGroupEvent"], row["GroupEventType"]) == (False, "0")
    await org.undelete("EventRelation", relation)
    assert len(await children(org, event)) == 1
    assert (await org.row("Event", event))["GroupEventType"] == "1"


async def test_answer_to_an_invitation_is_dated(org: Org, guest: str) -> None:
    event = await org.make("Event", StartDateTime=START, DurationInMinutes=60)
    relation = await org.make("EventRelation", EventId=event, RelationId=guest)
    await update(org, "EventRelation", relation, Status="Accepted")
    assert (await org.row("EventRelation", relation))["RespondedDate"] == NOW_MS - NOW_MS % 1000


async def test_invitation_to_a_series_is_one_to_each_occurrence_also_when_made_anew(
    org: Org, guest: str
) -> None:
    series = await make_series(org)
    relation = await org.make("EventRelation", EventId=series, RelationId=guest)
    for count in (3, 5):
        found = await occurrences(org, series)
        assert len(found) == count
        for row in found:
            (child,) = await children(org, str(row["Id"]))
            assert (child["OwnerId"], child["StartDateTime"]) == (guest, row["StartDateTime"])
            assert len(await find(org, "EventRelation", "EventId", str(row["Id"]))) == 1
            assert (row["IsGroupEvent"], row["GroupEventType"]) == (True, "1")
        await update(org, "Event", series, Recurrence2PatternText="RRULE:FREQ=DAILY;COUNT=5")
    await update(org, "Event", series, Subject="Review")
    (child,) = await children(org, str((await occurrences(org, series))[0]["Id"]))
    assert child["Subject"] == "Review"
    await org.delete("EventRelation", relation)
    assert told(org).count(("EventRelation", ChangeType.DELETE)) == 6
    assert not any(row["IsGroupEvent"] for row in await occurrences(org, series))
    assert (await org.row("Event", series))["GroupEventType"] == "3"


async def test_classic_recurring_task_makes_a_task_per_day_and_deletes_them_together(org: Org) -> None:
    task = await org.make(
        "Task",
        Subject="Call",
        IsRecurrence=True,
        RecurrenceType="RecursDaily",
        RecurrenceInterval=1,
        RecurrenceStartDateOnly="2023-11-20",
        RecurrenceEndDateOnly="2023-11-22",
    )
    found = [row for row in await find(org, "Task", "RecurrenceActivityId", task) if row["Id"] != task]
    assert [row["ActivityDate"] for row in found] == [moment(f"2023-11-{day}") for day in (20, 21, 22)]
    assert not any(row["IsRecurrence"] or row["RecurrenceType"] for row in found)
    await update(org, "Task", task, Subject="Other")
    assert len(org.changes) == 4
    await update(org, "Task", task, RecurrenceEndDateOnly="2023-11-21")
    assert len(await find(org, "Task", "RecurrenceActivityId", task)) == 3
    await org.delete("Task", task)
    assert told(org) == [("Task", ChangeType.DELETE)] * 3


async def test_classic_recurring_event_keeps_its_time_of_day(org: Org) -> None:
    event = await org.make(
        "Event",
        IsRecurrence=True,
        RecurrenceType="RecursWeekly",
        RecurrenceInterval=1,
        RecurrenceDayOfWeekMask=2 | 8,
        RecurrenceStartDateTime=START,
        RecurrenceEndDateOnly="2023-11-27",
        RecurrenceTimeZoneSidKey="America/New_York",
        DurationInMinutes=15,
    )
    found = [row for row in await find(org, "Event", "RecurrenceActivityId", event) if row["Id"] != event]
    assert [row["StartDateTime"] for row in found] == [moment(f"2023-11-{day}T09:00") for day in (20, 22, 27)]
    assert {row["DurationInMinutes"] for row in found} == {15}
    await update(org, "Event", event, IsRecurrence=False)
    assert await find(org, "Event", "RecurrenceActivityId", event) == []


async def test_change_events_of_a_series_are_one_for_it_and_one_for_each_occurrence(org: Org) -> None:
    await make_series(org, Location="Room 1")
    catalog = Catalog(1, STANDARD_OBJECTS).with_captured({"Event"})
    schema = EventSchema(json.dumps(change_event_schema(catalog.object("Event"))))
    drafts = iter_change_events(
        org.changes,
        CommitContext("key-" + "0" * 32, 7, NOW_MS, USER, "here"),
        catalog,
        {"EventChangeEvent": schema},
    )
    series, *others = [schema.decode(draft.payload) for draft in drafts]
    assert [event["ChangeEventHeader"]["sequenceNumber"] for event in (series, *others)] == [1, 2, 3, 4]
    assert [event["GroupEventType"] for event in (series, *others)] == ["3", "0", "0", "0"]
    assert {event["ActivityRecurrence2Id"] for event in others} == {series["ActivityRecurrence2Id"]}
    assert series["ActivityDateTime"] == others[0]["ActivityDateTime"] == moment("2023-11-20T09:00")
    assert "ParentEventId" not in series


async def test_pattern_changed_midway_leaves_what_is_over_as_it_was(org: Org, guest: str) -> None:
    series = await make_series(org)
    await org.make("EventRelation", EventId=series, RelationId=guest)
    past, *_ = await occurrences(org, series)
    org.clock.advance((moment("2023-11-20T12:00") - NOW_MS) / 1000)
    await update(org, "Event", series, Recurrence2PatternText="RRULE:FREQ=DAILY;INTERVAL=2;COUNT=3")
    gone = [("Event", ChangeType.DELETE)] * 2 + [("EventRelation", ChangeType.DELETE)]
    invited = [("Event", ChangeType.CREATE), ("EventRelation", ChangeType.CREATE)]
    assert (
        told(org)
        == [("Event", ChangeType.UPDATE)]
        + gone * 2
        + [("Event", ChangeType.UPDATE)]
        + [("Event", ChangeType.CREATE)] * 2
        + invited * 2
    )
    found = await occurrences(org, series)
    assert [row["StartDateTime"] for row in found] == [moment(f"2023-11-{day}T09:00") for day in (20, 22, 24)]
    assert [row["IsRecurrence2Exclusion"] for row in found] == [True, False, False]
    assert found[0]["Id"] == past["Id"]
    assert len(await children(org, str(past["Id"]))) == 1


async def test_new_pattern_of_a_recurring_task_leaves_its_closed_tasks(org: Org) -> None:
    series = await make_recurring_task(org)
    first, *_ = await tasks_of(org, series)
    await update(org, "Task", first["Id"], Status="Completed")
    await update(org, "Task", series, RecurrenceEndDateOnly="2023-11-23")
    assert (
        told(org)
        == [("Task", ChangeType.UPDATE)]
        + [("Task", ChangeType.DELETE)] * 2
        + [("Task", ChangeType.CREATE)] * 3
    )
    found = await tasks_of(org, series)
    assert [row["ActivityDate"] for row in found] == [moment(f"2023-11-{day}") for day in (20, 21, 22, 23)]
    assert found[0]["Id"] == first["Id"]
    await update(org, "Task", series, Subject="Other")
    assert [row["Subject"] for row in await tasks_of(org, series)] == ["Call", "Other", "Other", "Other"]
    await org.delete("Task", series)
    assert told(org) == [("Task", ChangeType.DELETE)] * 5


async def test_one_occurrence_is_deleted_and_brought_back_alone(org: Org) -> None:
    series = await make_series(org)
    _, second, _ = await occurrences(org, series)
    await org.delete("Event", str(second["Id"]))
    assert told(org) == [("Event", ChangeType.DELETE)]
    assert len(await occurrences(org, series)) == 2
    await org.undelete("Event", str(second["Id"]))
    assert told(org) == [("Event", ChangeType.UNDELETE)]
    assert len(await occurrences(org, series)) == 3


async def test_series_leaves_out_the_days_its_pattern_excludes(org: Org) -> None:
    series = await make_series(org, DAILY + "\nEXDATE:20231121T090000Z")
    found = await occurrences(org, series)
    assert [row["StartDateTime"] for row in found] == [moment(f"2023-11-{day}T09:00") for day in (20, 22)]


@pytest.mark.parametrize(
    "recurrence",
    [
        {
            "Recurrence2PatternText": "RRULE:FREQ=DAILY;COUNT=2",
            "Recurrence2PatternTimeZone": "America/New_York",
        },
        {
            "IsRecurrence": True,
            "RecurrenceType": "RecursDaily",
            "RecurrenceInterval": 1,
            "RecurrenceEndDateOnly": "2024-03-10",
            "RecurrenceTimeZoneSidKey": "America/New_York",
        },
    ],
)
async def test_occurrences_keep_their_local_time_when_clocks_change(
    org: Org, recurrence: dict[str, object]
) -> None:
    series = await make_event(org, StartDateTime="2024-03-09T14:00:00.000Z", **recurrence)
    made = [change.after for change in org.changes if change.record_id != series]
    starts = [row["StartDateTime"] for row in made if row is not None]
    assert starts == [moment("2024-03-09T14:00"), moment("2024-03-10T13:00")]


async def test_event_keeps_its_times_when_something_else_changes(org: Org) -> None:
    event = await make_event(org)
    before = await org.row("Event", event)
    await update(org, "Event", event, Subject="Other")
    assert org.changes[0].changed == ("Subject",)
    assert await org.row("Event", event) == before | {"Subject": "Other"}


@pytest.mark.parametrize(
    "values, error",
    [
        ({"Subject": "Never"}, RequiredFieldMissing),
        ({"StartDateTime": START}, RequiredFieldMissing),
        (
            {"StartDateTime": START, "DurationInMinutes": 5, "EndDateTime": "2023-11-20T10:00:00.000Z"},
            FieldsInconsistent,
        ),
    ],
)
async def test_event_with_times_missing_or_in_conflict_is_refused(
    org: Org, values: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await org.make("Event", **values)
    assert org.changes == []


async def test_task_says_whether_it_is_closed_and_urgent(org: Org) -> None:
    task = await org.make("Task", Priority="High")
    row = await org.row("Task", task)
    assert (row["IsClosed"], row["IsHighPriority"], row["CompletedDateTime"]) == (False, True, None)
    await update(org, "Task", task, Status="Completed", Priority="Low")
    row = await org.row("Task", task)
    assert (row["IsClosed"], row["IsHighPriority"]) == (True, False)
    assert row["CompletedDateTime"] == NOW_MS - NOW_MS % 1000
    await update(org, "Task", task, Status="In Progress")
    assert (await org.row("Task", task))["CompletedDateTime"] is None
