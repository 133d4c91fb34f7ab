"""What the tests of activities share: an org with people in it, and short ways to write and look."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from tests.stores import OpenStore
from tests.unit.records.small_org import USER, Org, make_user, open_records
from tidewire.events import ChangeType, Value
from tidewire.records.settings import OrgSettings
from tidewire.records.table import read_rows

DAILY = "RRULE:FREQ=DAILY;INTERVAL=1;COUNT=3"
START = "2023-11-20T09:00:00.000Z"  # after the clock's 2023-11-14
Row = dict[str, Value]


@asynccontextmanager
async def open_activities(place: OpenStore, *, is_shared: bool = False) -> AsyncIterator[Org]:
    """An org whose one user is USER, with Shared Activities on or off."""
    async with open_records(place) as opened:
        profile = await opened.make("Profile", Name="Standard")
        assert await make_user(opened, "u", profile) == USER
        if is_shared:
            settings = OrgSettings(shared_activities=True)
            await opened.records.write_plain(lambda tx: opened.types.change_settings(tx, settings))
        yield opened


async def make_guest(org: Org) -> str:
    """A user to invite."""
    return await make_user(org, "guest", await org.make("Profile", Name="Guests"))


async def make_event(org: Org, **values: object) -> str:
    """An event of an hour."""
    return await org.make("Event", **{"StartDateTime": START, "DurationInMinutes": 60, **values})


async def make_series(org: Org, pattern: str = DAILY, **values: object) -> str:
    """A series of events of an hour."""
    return await make_event(org, **{"Subject": "Planning", "Recurrence2PatternText": pattern, **values})


async def make_recurring_task(org: Org, **values: object) -> str:
    """A task for each of three days."""
    given = {
        "Subject": "Call",
        "IsRecurrence": True,
        "RecurrenceType": "RecursDaily",
        "RecurrenceInterval": 1,
        "RecurrenceStartDateOnly": "2023-11-20",
        "RecurrenceEndDateOnly": "2023-11-22",
    }
    return await org.make("Task", **{**given, **values})


async def update(org: Org, entity: str, record_id: Value, **values: object) -> None:
    """Update a record in a transaction of its own."""
    await org.write(lambda unit: unit.update(org.obj(entity), str(record_id), values))


async def find(org: Org, entity: str, field: str, value: Value) -> list[Row]:
    """The living records with this id in a lookup."""
    return await org.store.read(lambda reader: read_rows(reader, org.obj(entity), field, [value]))


async def occurrences(org: Org, series: Value) -> list[Row]:
    """The occurrences of a series with a pattern."""
    return [row for row in await find(org, "Event", "ParentEventId", series) if not row["IsChild"]]


async def tasks_of(org: Org, series: Value) -> list[Row]:
    """The occurrences of a recurring task."""
    return [row for row in await find(org, "Task", "RecurrenceActivityId", series) if row["Id"] != series]


async def children(org: Org, event: Value) -> list[Row]:
    """The invitees' own copies of an event."""
    return [row for row in await find(org, "Event", "ParentEventId", event) if row["IsChild"]]


def told(org: Org) -> list[tuple[str, ChangeType]]:
    """The changes of the last transaction, in order."""
    return [(change.entity, change.type) for change in org.changes]


def moment(text: str) -> int:
    """A moment of UTC in milliseconds."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)
