"""Push topics as records of an org: what is refused, who may have them, and what they are told of."""

from __future__ import annotations

import orjson
import pytest

from tests.orgs import TestOrg
from tidewire.capture.stage import CaptureStage
from tidewire.config import DEV_PASSWORD
from tidewire.crm.leads import Conversion
from tidewire.errors import AccessDenied, FieldNotWriteable, LimitExceeded, PlatformError, PushTopicInvalid
from tidewire.events import Event, Family
from tidewire.gate.requests import Call, Write
from tidewire.records.query import Record
from tidewire.soql.zones import load_zone

ACCOUNTS: dict[str, object] = {"Query": "SELECT Id, Name FROM Account", "ApiVersion": 59}


def watch(org: TestOrg) -> list[Event]:
    seen: list[Event] = []

    def note(events: tuple[Event, ...]) -> None:
        seen.extend(event for event in events if event.family is Family.PUSH_TOPIC)

    org.core.commits.watch(lambda batch: note(batch.events))
    return seen


async def told(org: TestOrg, seen: list[Event]) -> list[str]:
    """The records told of so far; a write after it has been answered has been told."""
    await org.gate.create(org.call, "Contact", {"LastName": "Last"})
    return [orjson.loads(event.payload)["sobject"]["Id"] for event in seen]


async def read(org: TestOrg, topic: str, call: Call | None = None) -> Record:
    rows = await org.gate.read((call or org.call).principal, "PushTopic", topic, None)
    return rows.rows[0]


async def test_wrong_topic_among_others_is_its_own_result(org: TestOrg) -> None:
    writes = [
        Write("PushTopic", None, {"Name": "Good", **ACCOUNTS}),
        Write("PushTopic", None, {"Name": "Bad", **ACCOUNTS, "Query": "SELECT Name FROM Account"}),
    ]
    good, bad = await org.gate.write_together(org.call, writes, all_or_none=False)
    assert isinstance(good, str)
    assert isinstance(bad, PushTopicInvalid)
    assert list(org.core.capture.push_topics.by_name) == ["Good"]


async def test_topic_gets_changes_of_its_own_transaction(org: TestOrg) -> None:
    seen = watch(org)
    writes = [Write("PushTopic", None, {"Name": "T", **ACCOUNTS}), Write("Account", None, {"Name": "A"})]
    _, account = await org.gate.write_together(org.call, writes, all_or_none=True)
    assert await told(org, seen) == [account]


async def test_new_query_and_deactivation_count_at_once(org: TestOrg) -> None:
    topic = await org.gate.create(org.call, "PushTopic", {"Name": "T", **ACCOUNTS})
    seen = watch(org)
    first = await org.make_account("A")
    await org.gate.update(org.call, "PushTopic", topic, {"Query": "SELECT Id FROM Account WHERE Name = 'B'"})
    await org.make_account("A")
    second = await org.make_account("B")
    await org.gate.update(org.call, "PushTopic", topic, {"IsActive": False})
    await org.make_account("B")
    assert await told(org, seen) == [first, second]


async def test_relative_dates_go_by_the_time_zone_of_the_org(org: TestOrg) -> None:
    query = "SELECT Id, Name FROM Opportunity WHERE CloseDate = TODAY"
    await org.gate.create(org.call, "PushTopic", {"Name": "T", "Query": query, "ApiVersion": 59})
    seen = watch(org)

    async def close_on(date: str) -> str:
        values = {"Name": "O", "StageName": "Prospecting", "CloseDate": date}
        return await org.gate.create(org.call, "Opportunity", values)

    assert (org.clock.now_ms() // 3_600_000) % 24 == 22  # of 14 November 2023, UTC
    first = await close_on("2023-11-14")
    await close_on("2023-11-15")
    await org.apply(settings={"time_zone": "Asia/Tokyo"})
    await close_on("2023-11-14")
    second = await close_on("2023-11-15")
    assert await told(org, seen) == [first, second]


async def test_org_keeps_its_calendar_after_a_restart(org: TestOrg) -> None:
    await org.apply(settings={"time_zone": "Asia/Tokyo"})
    stage = CaptureStage(org.core.log, org.core.records.types)
    await org.core.store.read(stage.load)
    assert stage.calendar.zone == load_zone("Asia/Tokyo")


async def test_operations_follow_from_the_four_flags_and_cannot_be_set(org: TestOrg) -> None:
    topic = await org.gate.create(org.call, "PushTopic", {"Name": "T", **ACCOUNTS})
    assert (await read(org, topic))["NotifyForOperations"] == "All"
    for create, update, word in (
        (True, False, "Create"),
        (False, True, "Update"),
        (False, False, "Extended"),
    ):
        flags = {"NotifyForOperationCreate": create, "NotifyForOperationUpdate": update}
        await org.gate.update(org.call, "PushTopic", topic, flags)
        assert (await read(org, topic))["NotifyForOperations"] == word
    with pytest.raises(FieldNotWriteable):
        await org.gate.update(org.call, "PushTopic", topic, {"NotifyForOperations": "All"})


@pytest.mark.parametrize(
    "given, flags",
    [
        ({}, (True, True, False, False)),
        ({"NotifyForOperations": "All"}, (True, True, False, False)),
        ({"notifyForOperations": "Create"}, (True, False, False, False)),
        ({"NotifyForOperations": "Update"}, (False, True, False, False)),
        ({"NotifyForOperations": "Extended"}, (False, False, True, True)),
    ],
)
async def test_version_28_sets_the_flags_by_operations(
    org: TestOrg, given: dict[str, object], flags: tuple[bool, ...]
) -> None:
    old = Call(org.admin, "com/test", api_version=28)
    topic = await org.gate.create(old, "PushTopic", {"Name": "T", **ACCOUNTS, **given})
    row = await read(org, topic)
    names = [f"NotifyForOperation{word}" for word in ("Create", "Update", "Delete", "Undelete")]
    assert tuple(bool(row[name]) for name in names) == flags


async def test_version_28_update_leaves_the_flags_it_does_not_know(org: TestOrg) -> None:
    topic = await org.gate.create(org.call, "PushTopic", {"Name": "T", **ACCOUNTS})
    old = Call(org.admin, "com/test", api_version=28)
    await org.gate.update(old, "PushTopic", topic, {"NotifyForOperations": "Extended"})
    row = await read(org, topic)
    assert (bool(row["NotifyForOperationCreate"]), bool(row["NotifyForOperationDelete"])) == (False, True)
    await org.gate.update(old, "PushTopic", topic, {"Description": "d"})
    assert (await read(org, topic))["NotifyForOperations"] == "Extended"


async def test_inactive_topics_do_not_count_towards_the_limit(org: TestOrg) -> None:
    stage = CaptureStage(org.core.log, org.core.records.types, max_topics=1)
    org.core.records.add_row_rule("PushTopic", stage.check_push_topic)
    first = await org.gate.create(org.call, "PushTopic", {"Name": "A", **ACCOUNTS})
    idle = await org.gate.create(org.call, "PushTopic", {"Name": "B", **ACCOUNTS, "IsActive": False})
    with pytest.raises(LimitExceeded):
        await org.gate.create(org.call, "PushTopic", {"Name": "C", **ACCOUNTS})
    with pytest.raises(LimitExceeded):
        await org.gate.update(org.call, "PushTopic", idle, {"IsActive": True})
    await org.gate.update(org.call, "PushTopic", first, {"IsActive": False})
    await org.gate.update(org.call, "PushTopic", idle, {"IsActive": True})
    await org.gate.delete(org.call, "PushTopic", idle)
    await org.gate.create(org.call, "PushTopic", {"Name": "C", **ACCOUNTS})


async def test_user_who_may_create_push_topics_sets_and_sees_every_field(org: TestOrg) -> None:
    await org.apply(
        permission_sets={
            "Streamers": {
                "permissions": ["ApiEnabled"],
                "objects": {"Account": ["read"], "PushTopic": ["create", "read", "edit"]},
            }
        },
        users={
            "sue@tidewire.local": {
                "password": DEV_PASSWORD,
                "last_name": "Sue",
                "permission_sets": ["Streamers"],
            }
        },
    )
    sue = Call(
        (await org.core.logins.login("sue@tidewire.local", DEV_PASSWORD, "test")).principal, "com/test"
    )
    topic = await org.gate.create(sue, "PushTopic", {"Name": "T", **ACCOUNTS, "NotifyForFields": "All"})
    assert (await read(org, topic, sue))["NotifyForFields"] == "All"
    with pytest.raises(AccessDenied):
        await org.gate.create(Call(org.reader, "com/test"), "PushTopic", {"Name": "R", **ACCOUNTS})


async def test_tasks_moved_by_a_conversion_or_merge_are_not_notified(org: TestOrg) -> None:
    query = "SELECT Id, WhoId, WhatId, Subject FROM Task"
    await org.gate.create(org.call, "PushTopic", {"Name": "T", "Query": query, "ApiVersion": 59})
    lead = await org.gate.create(org.call, "Lead", {"LastName": "L", "Company": "C"})
    master, loser = await org.make_account("M"), await org.make_account("N")
    seen = watch(org)
    of_lead = await org.gate.create(org.call, "Task", {"Subject": "Call", "WhoId": lead})
    of_loser = await org.gate.create(org.call, "Task", {"Subject": "Call", "WhatId": loser})
    conversion = Conversion(lead_id=lead, converted_status="Closed - Converted")
    made = await org.gate.convert_lead(org.call, conversion)
    await org.gate.merge(org.call, "Account", master, [loser], {})
    rows = (await org.gate.query(org.admin, "SELECT Id, WhoId, WhatId FROM Task")).rows
    assert {(r["WhoId"], r["WhatId"]) for r in rows} == {(made.contact_id, None), (None, master)}
    await org.gate.update(org.call, "Task", of_lead, {"Subject": "Called"})
    assert await told(org, seen) == [of_lead, of_loser, of_lead]


async def test_hard_delete_notifies_children_by_their_last_values(org: TestOrg) -> None:
    account = await org.make_account("Parent")
    values = {"AccountId": account, "LastName": "Child", "Phone": "1"}
    child = await org.gate.create(org.call, "Contact", values)
    for name, where in (("ByName", "LastName = 'Child'"), ("WithoutPhone", "Phone = null")):
        query = f"SELECT Id FROM Contact WHERE {where} AND AccountId != null"
        await org.gate.create(org.call, "PushTopic", {"Name": name, "Query": query, "ApiVersion": 59})
    seen = watch(org)
    await org.gate.write_together(org.call, [Write("Account", account, None, is_hard=True)], all_or_none=True)
    assert await told(org, seen) == [child]
    assert [event.topic for event in seen] == [org.core.capture.push_topics.by_name["ByName"].record_id]


async def test_deleted_topic_cannot_be_undeleted(org: TestOrg) -> None:
    topic = await org.gate.create(org.call, "PushTopic", {"Name": "T", **ACCOUNTS})
    await org.gate.delete(org.call, "PushTopic", topic)
    (result,) = await org.gate.undelete(org.call, [topic])
    assert isinstance(result, PlatformError)
    assert "T" not in org.core.capture.push_topics.by_name
