"""Archived activities: which are, and who still sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orgs import TestOrg, open_org
from tests.stores import OpenStore
from tests.unit.crm.activity_org import (
    find,
    make_event,
    make_guest,
    make_recurring_task,
    make_series,
    moment,
    occurrences,
    open_activities,
    update,
)
from tests.unit.records.small_org import USER, Org
from tidewire.crm.archiving import archive_activities
from tidewire.records.work import UnitOfWork

NEW_YEAR = moment("2024-01-01")


async def archive(org: Org, before_ms: int = NEW_YEAR, limit: int = 500) -> dict[str, list[str]]:
    return await org.write(lambda unit: archive_activities(unit, before_ms, limit))


async def test_old_events_and_closed_tasks_are_archived_and_nobody_is_told(place: OpenStore) -> None:
    async with open_activities(place) as org:
        old = await make_event(org)
        await make_event(org, StartDateTime="2024-02-01T09:00:00.000Z")
        done = await org.make("Task", ActivityDate="2023-11-10", Status="Completed")
        undated = await org.make("Task", Status="Completed")
        await org.make("Task", ActivityDate="2023-11-10")
        await org.make("Task", ActivityDate="2024-02-01", Status="Completed")
        before = await org.row("Event", old)
        org.clock.advance(60)
        assert await archive(org) == {"Task": [done, undated], "Event": [old]}
        assert org.changes == []
        assert await org.row("Event", old) == before | {"IsArchived": True}
        assert await archive(org) == {"Task": [], "Event": []}


async def test_archiving_goes_in_portions(place: OpenStore) -> None:
    async with open_activities(place) as org:
        made = [await make_event(org) for _ in range(3)]
        assert (await archive(org, limit=2))["Event"] == made[:2]
        assert (await archive(org, limit=2))["Event"] == made[2:]


async def test_series_is_archived_with_its_last_occurrence(place: OpenStore) -> None:
    async with open_activities(place) as org:
        series = await make_series(org)
        first, second, third = await occurrences(org, series)
        await org.make("EventRelation", EventId=series, RelationId=await make_guest(org))
        archived = (await archive(org, moment("2023-11-22")))["Event"]
        assert archived[:2] == [first["Id"], second["Id"]]
        assert len(archived) == 4  # and the guest's own
        assert {series, third["Id"]} < {*(await archive(org))["Event"]}


async def test_recurring_task_is_never_archived_but_its_closed_occurrences_are(place: OpenStore) -> None:
    async with open_activities(place) as org:
        series = await make_recurring_task(org)
        tasks = await find(org, "Task", "OwnerId", USER)
        for task in tasks[1:]:
            await update(org, "Task", task["Id"], Status="Completed")
        assert (await archive(org))["Task"] == [task["Id"] for task in tasks if task["Id"] != series]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "org"


async def titles(org: TestOrg, soql: str, *, include_deleted: bool = False) -> list[str]:
    rows = await org.gate.query(org.call.principal, soql, include_deleted=include_deleted)
    return sorted(str(row["Subject"]) for row in rows.rows)


async def test_archived_activities_are_seen_only_by_those_who_ask_for_all(directory: Path) -> None:
    async with open_org(directory) as org:
        account = await org.make_account()
        for subject, status in (("old", "Completed"), ("open", "Not Started")):
            values = {"Subject": subject, "Status": status, "ActivityDate": "2001-01-01", "WhatId": account}
            await org.gate.create(org.call, "Task", values)

        def work(unit: UnitOfWork) -> None:
            archive_activities(unit, NEW_YEAR)

        await org.core.records.write(work, user_id=org.admin.user_id)
        soql = "SELECT Subject FROM Task"
        assert await titles(org, soql) == ["open"]
        assert await titles(org, soql, include_deleted=True) == ["old", "open"]
        assert await titles(org, f"{soql} WHERE IsArchived = true") == []
        about = "SELECT Id FROM Account WHERE Id IN (SELECT WhatId FROM Task WHERE Subject = 'old')"
        assert len((await org.gate.query(org.call.principal, about)).rows) == 0
