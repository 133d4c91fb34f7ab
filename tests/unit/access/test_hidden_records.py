"""Hidden records, fields and types: no query, error or write reveals them to users who may not read them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.unit.access.test_sharing import People
from tests.unit.access.test_sharing import people as people  # the fixture
from tidewire.config import DEV_PASSWORD
from tidewire.errors import (
    AccessDenied,
    DeleteRestricted,
    DuplicateValue,
    FieldUnknown,
    ObjectUnknown,
    PlatformError,
    RecordNotFound,
    ResourceUnknown,
)
from tidewire.gate.changed_records import read_deleted, read_updated
from tidewire.gate.query_cursors import QueryCursors
from tidewire.gate.query_pages import CursorState, QueryPages
from tidewire.jobs.model import JobKind, JobRequest, Operation

_HIDDEN_NAMES = (
    "SELECT Secret__c FROM Box__c",
    "SELECT Id FROM Box__c WHERE Secret__c = 'x'",
    "SELECT Id FROM Box__c WHERE Secret__c LIKE 'x%'",
    "SELECT Id FROM Box__c ORDER BY Secret__c",
    "SELECT Secret__c, COUNT(Id) FROM Box__c GROUP BY Secret__c",
    "SELECT COUNT(Secret__c) FROM Box__c",
    "SELECT COUNT_DISTINCT(Secret__c) FROM Box__c",
    "SELECT MIN(Secret__c) FROM Box__c",
    "SELECT Name FROM Box__c GROUP BY Name HAVING MAX(Secret__c) > 'a'",
    "SELECT Id FROM Slot__c WHERE Box__r.Secret__c = 'x'",
    "SELECT Id FROM Slot__c ORDER BY Box__r.Secret__c",
    "SELECT Box__r.Secret__c FROM Slot__c",
    "SELECT Id FROM Slot__c WHERE Box__c IN (SELECT Id FROM Box__c WHERE Secret__c = 'x')",
    "SELECT Id FROM Vault__c",
    "SELECT Id FROM Box__c WHERE Vault__r.Name = 'x'",
    "SELECT Vault__r.Name FROM Box__c",
    "SELECT Id FROM Vault__Share",
)
_TOPIC = {"Name": "Mine", "ApiVersion": 60.0, "NotifyForFields": "All"}


async def _hide(people: People) -> None:
    """An object that only administrators read, a field of Box__c that only they see, and lookups to both."""
    await people.org.apply(
        objects={
            "Vault__c": {
                "sharing": "private",
                "fields": {"Key__c": {"type": "Text", "length": 20, "unique": True, "external_id": True}},
            },
            "Box__c": {
                "fields": {
                    "Secret__c": {"type": "Text", "length": 20},
                    "Vault__c": {
                        "type": "Lookup",
                        "references": "Vault__c",
                        "delete_constraint": "Restrict",
                    },
                    "Peer__c": {"type": "Lookup", "references": "Box__c", "delete_constraint": "Restrict"},
                }
            },
        },
        permission_sets={
            "Opener": {
                "objects": {"PushTopic": ["create", "read", "edit"]},
                "fields": {"Box__c": {"Vault__c": "edit", "Peer__c": "edit"}},
            }
        },
        users={
            f"{name}@tidewire.local": {"permission_sets": ["Worker", "Opener"]} for name in ("ann", "zoe")
        },
    )
    found = await people.org.gate.query(
        people.org.admin,
        "SELECT Id FROM FieldPermissions WHERE Field = 'Box__c.Secret__c' AND Parent.Name = 'Worker'",
    )
    for row in found.rows:
        await people.org.gate.delete(people.org.call, "FieldPermissions", str(row["Id"]))


async def test_query_answers_alike_for_hidden_and_unknown_names(people: People) -> None:
    await _hide(people)
    for soql in _HIDDEN_NAMES:
        with pytest.raises((FieldUnknown, ObjectUnknown)) as raised:
            await people.org.gate.query(people.zoe, soql)
        invented = soql.replace("Secret__c", "Absent__c").replace("Vault__", "Nobox__")
        with pytest.raises(type(raised.value)) as other:
            await people.org.gate.query(people.zoe, invented)
        told = raised.value.message.replace("Secret__c", "Absent__c").replace("Vault__", "Nobox__")
        assert told == other.value.message
        await people.org.gate.query(people.org.admin, soql)


async def test_fields_all_and_searches_omit_hidden_fields(people: People) -> None:
    await _hide(people)
    await people.make(people.org.admin, "Vault__c", Name="Gold")
    await people.org.gate.create(
        people.org.call, "Box__c", {"Name": "A", "Secret__c": "Gold", "OwnerId": people.zoe.user_id}
    )
    rows = await people.org.gate.query(people.zoe, "SELECT FIELDS(ALL) FROM Box__c LIMIT 5")
    assert "Secret__c" not in rows.rows[0]
    found = await people.org.gate.search(people.zoe, "FIND {Gold} IN ALL FIELDS")
    assert [answer.rows for answer in found if answer.rows] == []
    with pytest.raises((FieldUnknown, ObjectUnknown)):
        await people.org.gate.search(people.zoe, "FIND {Gold} RETURNING Box__c(Id, Secret__c)")


async def test_explain_counts_only_what_is_seen(people: People) -> None:
    await people.make(people.ann, "Box__c", Name="Hidden", Code__c="h1")
    pages = QueryPages(people.org.gate, QueryCursors[CursorState](people.org.clock), people.org.clock)
    for soql in ("SELECT Id FROM Box__c WHERE Code__c = 'h1'", "SELECT Id FROM Box__c WHERE Size__c = null"):
        plans = await pages.explain(people.zoe, soql, version=67)
        assert {(plan.cardinality, plan.entity_cardinality) for plan in plans} == {(0, 0)}
        own = await pages.explain(people.ann, soql, version=67)
        assert {plan.cardinality for plan in own} == {1}


async def test_description_names_no_object_that_is_hidden(people: People) -> None:
    await _hide(people)
    obj, readable, _ = await people.org.gate.visible_fields(people.zoe, "Box__c")
    assert "Vault__c" in readable
    assert obj.by_name["vault__c"].reference_to == ()
    assert obj.by_name["peer__c"].reference_to == ("Box__c",)


async def test_push_topic_over_what_is_hidden_is_refused(people: People) -> None:
    await _hide(people)
    topic = await people.make(people.zoe, "PushTopic", **_TOPIC, Query="SELECT Id, Name FROM Box__c")
    for query in (
        "SELECT Id, Secret__c FROM Box__c",
        "SELECT Id FROM Box__c WHERE Secret__c = 'x'",
        "SELECT Id FROM Vault__c",
    ):
        with pytest.raises((FieldUnknown, ObjectUnknown)):
            await people.make(people.zoe, "PushTopic", **(_TOPIC | {"Name": "Other"}), Query=query)
        refused = await people.edit(people.zoe, "PushTopic", topic, Query=query)
        assert refused in ("field_unknown", "object_unknown")
    query = "SELECT Id, Secret__c FROM Box__c"
    assert await people.edit(people.org.admin, "PushTopic", topic, Query=query) == "done"


async def test_restricted_delete_does_not_name_a_hidden_record(people: People) -> None:
    await _hide(people)
    box = await people.make(people.zoe, "Box__c", Name="A")
    holder = await people.make(people.org.admin, "Box__c", Name="B", Peer__c=box)
    with pytest.raises(DeleteRestricted) as raised:
        await people.org.gate.delete(people.call(people.zoe), "Box__c", box)
    assert holder[:15] not in raised.value.message
    with pytest.raises(DeleteRestricted) as raised:
        await people.org.gate.delete(people.org.call, "Box__c", box)
    assert holder in raised.value.message


async def test_lookup_by_the_key_of_a_hidden_record_finds_nothing(people: People) -> None:
    await _hide(people)
    await people.make(people.ann, "Box__c", Name="A", Code__c="qx1")
    refusals = []
    for code in ("qx1", "qx2"):
        with pytest.raises(PlatformError) as raised:
            await people.make(people.zoe, "Box__c", Name="Z", Peer__r={"Code__c": code})
        refusals.append((type(raised.value), raised.value.message.replace(code, "*")))
    assert refusals[0] == refusals[1]
    assert await people.make(people.ann, "Box__c", Name="Z", Peer__r={"Code__c": "qx1"})


async def test_undelete_does_not_name_who_took_a_unique_value(people: People) -> None:
    box = await people.make(people.zoe, "Box__c", Name="A", Code__c="x")
    assert await people.delete(people.zoe, "Box__c", box) == "done"
    taken = await people.make(people.ann, "Box__c", Name="B", Code__c="x")
    (refused,) = await people.org.gate.undelete(people.call(people.zoe), [box])
    assert isinstance(refused, DuplicateValue)
    assert taken[:15] not in refused.message


async def test_merge_needs_edit_on_the_master_and_full_access_to_the_others(people: People) -> None:
    gate = people.org.gate
    master = await people.make(people.ann, "Account", Name="Master")
    loser = await people.make(people.ann, "Account", Name="Loser")
    for account in (master, loser):
        share = {"AccountId": account, "UserOrGroupId": people.zoe.user_id, "AccountAccessLevel": "Edit"}
        await people.make(people.ann, "AccountShare", **share)
    with pytest.raises(PlatformError) as raised:
        await gate.merge(people.call(people.zoe), "Account", master, [loser], {})
    assert raised.value.code == "access_denied"
    # Children follow the master, whoever owns them.
    case = await people.make(people.org.admin, "Case", Subject="Help", AccountId=loser)
    await gate.merge(people.call(people.ann), "Account", master, [loser], {})
    rows = await gate.read(people.org.admin, "Case", case, ["AccountId"])
    assert rows.rows[0]["AccountId"] == master


async def test_delete_and_undelete_include_details_of_other_owners(
    people: People,
) -> None:
    box = await people.make(people.ann, "Box__c", Name="A")
    slot = await people.make(people.org.admin, "Slot__c", Name="1", Box__c=box)
    assert await people.delete(people.ann, "Box__c", box) == "done"
    with pytest.raises(PlatformError):
        await people.org.gate.read(people.org.admin, "Slot__c", slot, None)
    (refused,) = await people.org.gate.undelete(people.call(people.ben), [slot])
    assert isinstance(refused, RecordNotFound)
    assert await people.org.gate.undelete(people.call(people.ann), [box]) == [box]
    assert await people.sees(people.ann, "Slot__c", slot)


async def test_revoked_api_permission_ends_open_streams_and_rejects_new_ones(people: People) -> None:
    link = people.org.link
    token = (await people.org.core.logins.login("zoe@tidewire.local", DEV_PASSWORD, "test")).token
    await link.authenticate(token)
    for entity in ("PermissionSet", "Profile"):
        soql = (
            f"SELECT Id FROM {entity} WHERE PermissionsApiEnabled = true AND PermissionsModifyAllData = false"
        )
        for row in (await people.org.gate.query(people.org.admin, soql)).rows:
            values = {"PermissionsApiEnabled": False}
            await people.org.gate.update(people.org.call, entity, str(row["Id"]), values)
    attempts: list[Callable[[], Awaitable[object]]] = [
        lambda: link.authenticate(token),
        lambda: link.open_channel(people.zoe, "/data/ChangeEvents", 60.0),
        lambda: people.org.gate.check_api(people.zoe),
    ]
    for attempt in attempts:
        with pytest.raises(AccessDenied) as raised:
            await attempt()
        assert raised.value.details["permission"] == "ApiEnabled"


async def test_bulk_job_data_is_hidden_from_users_who_only_manage_jobs(people: People) -> None:
    await people.org.apply(
        permission_sets={"Operator": {"permissions": ["ManageDataIntegrations"]}},
        users={"zoe@tidewire.local": {"permission_sets": ["Worker", "Operator"]}},
    )
    jobs = people.org.core.jobs
    asked = JobRequest(JobKind.QUERY, Operation.QUERY, "", 60, "", query="SELECT Name FROM Box__c")
    job = await jobs.create(people.ann, asked)
    assert (await jobs.find(people.zoe, job.job_id, JobKind.QUERY)).job_id == job.job_id
    with pytest.raises(ResourceUnknown):
        await jobs.check_data(people.zoe, job)
    await jobs.check_data(people.ann, job)
    await jobs.check_data(people.org.admin, job)
    await people.org.core.job_runner.wait_idle()


async def test_polymorphic_lookups_do_not_reveal_hidden_types_and_records(people: People) -> None:
    await _hide(people)
    await people.org.apply(objects={"Task": {"sharing": "read"}})
    account = await people.make(people.ann, "Account", Name="Quiet")
    task = await people.make(people.ann, "Task", Subject="Call", WhatId=account)
    shown = await people.org.gate.query(
        people.zoe,
        "SELECT TYPEOF What WHEN Account THEN Name, Phone ELSE Name END FROM Task",
    )
    assert [row["What"] for row in shown.rows] == [None]
    assert await people.seen(people.zoe, "SELECT Id FROM Task WHERE What.Name = 'Quiet'") == []
    assert await people.seen(people.zoe, "SELECT Id FROM Task WHERE What.Name LIKE 'Q%'") == []
    assert await people.seen(people.ann, "SELECT Id FROM Task WHERE What.Name = 'Quiet'") == [task]
    grouped = await people.org.gate.query(
        people.zoe, "SELECT COUNT_DISTINCT(Account.Name) n FROM Task WHERE Account.Name != null"
    )
    assert grouped.rows == [{"n": 0}]


async def test_time_windows_tell_only_of_records_in_sight(people: People) -> None:
    box = await people.make(people.ann, "Box__c", Name="A")
    gone = await people.make(people.ann, "Box__c", Name="B")
    assert await people.delete(people.ann, "Box__c", gone) == "done"
    now_ms = people.org.clock.now_ms()
    window = ("Box__c", now_ms - 3_600_000, now_ms + 60_000, now_ms)
    gate = people.org.gate
    assert (await read_updated(gate, people.zoe, *window)).ids == ()
    assert (await read_deleted(gate, people.zoe, *window)).records == ()
    assert (await read_updated(gate, people.ann, *window)).ids == (box,)
    assert [each for each, _ in (await read_deleted(gate, people.ann, *window)).records] == [gone]


async def test_queues_and_record_types_of_hidden_objects_are_not_listed(people: People) -> None:
    await _hide(people)
    await people.org.apply(
        queues={"Depot": {"members": ["zoe@tidewire.local"], "objects": ["Box__c", "Vault__c"]}}
    )
    for entity in ("Box__c", "Vault__c"):
        values = {
            "Name": f"Kind of {entity}",
            "DeveloperName": "Kind",
            "SobjectType": entity,
            "IsActive": True,
        }
        await people.org.gate.create(people.org.call, "RecordType", values)
    for entity in ("QueueSobject", "RecordType"):
        soql = f"SELECT SobjectType FROM {entity} WHERE SobjectType IN ('Box__c', 'Vault__c')"
        rows = await people.org.gate.query(people.zoe, soql)
        assert [row["SobjectType"] for row in rows.rows] == ["Box__c"]
        everything = await people.org.gate.query(people.org.admin, soql)
        assert len(everything.rows) == 2
