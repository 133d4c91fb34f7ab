"""Tasks that come again when they are closed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.stores import OpenStore
from tests.unit.crm.activity_org import find, moment, open_activities, told, update
from tests.unit.records.small_org import USER, Org
from tidewire.errors import FieldsInconsistent, NumberOutOfRange, RequiredFieldMissing
from tidewire.events import ChangeType

AFTER_DUE_DATE = "RecurrenceRegenerateAfterDueDate"
AFTER_TODAY = "RecurrenceRegenerateAfterToday"


@pytest.fixture
async def org(place: OpenStore) -> AsyncIterator[Org]:
    async with open_activities(place) as opened:
        yield opened


async def make_task(org: Org, trigger: str, **values: object) -> str:
    given = {"Subject": "Call", "RecurrenceInterval": 7, "ActivityDate": "2023-11-10", **values}
    return await org.make("Task", RecurrenceRegeneratedType=trigger, **given)


@pytest.mark.parametrize("trigger, due", [(AFTER_DUE_DATE, "2023-11-17"), (AFTER_TODAY, "2023-11-21")])
async def test_closed_task_makes_the_next_one(org: Org, trigger: str, due: str) -> None:
    task = await make_task(
        org, trigger, Priority="High", IsReminderSet=True, ReminderDateTime="2023-11-10T08:00:00.000Z"
    )
    await update(org, "Task", task, Status="Completed", CallDisposition="left word")
    assert told(org) == [("Task", ChangeType.UPDATE), ("Task", ChangeType.CREATE)]
    closed, successor = (change.after for change in org.changes)
    assert closed is not None
    assert successor is not None
    assert (closed["IsClosed"], closed["RecurrenceRegeneratedType"]) == (True, "RecurrenceRegenerated")
    assert (successor["IsClosed"], successor["Status"]) == (False, "Not Started")
    assert (successor["Subject"], successor["IsHighPriority"], successor["OwnerId"]) == ("Call", True, USER)
    assert successor["ActivityDate"] == moment(due)
    assert successor["ReminderDateTime"] == moment(due + "T08:00")
    assert (successor["CompletedDateTime"], successor["CallDisposition"]) == (None, None)
    assert (successor["RecurrenceRegeneratedType"], successor["RecurrenceInterval"]) == (trigger, 7)


async def test_task_without_a_due_date_counts_from_today(org: Org) -> None:
    task = await make_task(org, AFTER_DUE_DATE, ActivityDate=None)
    await update(org, "Task", task, Status="Completed")
    successor = org.changes[1].after
    assert successor is not None
    assert successor["ActivityDate"] == moment("2023-11-21")


async def test_task_makes_its_successor_once(org: Org) -> None:
    task = await make_task(org, AFTER_DUE_DATE)
    await update(org, "Task", task, Subject="Other")
    assert told(org) == [("Task", ChangeType.UPDATE)]
    for status in ("Completed", "Not Started", "Completed"):
        await update(org, "Task", task, Status=status)
    assert told(org) == [("Task", ChangeType.UPDATE)]
    assert len(await find(org, "Task", "OwnerId", USER)) == 2


@pytest.mark.parametrize(
    "values, error",
    [
        ({"RecurrenceInterval": None}, RequiredFieldMissing),
        ({"RecurrenceInterval": 0}, NumberOutOfRange),
        ({"IsRecurrence": True}, FieldsInconsistent),
    ],
)
async def test_task_that_cannot_come_again_is_refused(
    org: Org, values: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await make_task(org, AFTER_DUE_DATE, **values)
    task = await org.make("Task", RecurrenceInterval=7)
    with pytest.raises(error):
        await update(org, "Task", task, RecurrenceRegeneratedType=AFTER_TODAY, **values)
