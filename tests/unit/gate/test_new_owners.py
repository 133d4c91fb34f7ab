"""Who may be given a record, and by whom."""

from __future__ import annotations

import pytest

from tests.unit.access.test_sharing import People
from tests.unit.access.test_sharing import people as people  # the fixture
from tidewire.config import DEV_PASSWORD
from tidewire.crm.leads import Conversion
from tidewire.errors import OwnerInactive, OwnerLacksRead, QueueUnfit


async def _make_user(people: People, name: str, *permission_sets: str) -> str:
    values = {"password": DEV_PASSWORD, "last_name": name, "permission_sets": list(permission_sets)}
    await people.org.apply(users={f"{name}@tidewire.local": values})
    soql = f"SELECT Id FROM User WHERE Username = '{name}@tidewire.local'"
    return str((await people.org.gate.query(people.org.admin, soql)).rows[0]["Id"])


async def _deactivate(people: People, user_id: str) -> None:
    await people.org.gate.update(people.org.call, "User", user_id, {"IsActive": False})


async def test_inactive_owner_is_rejected_for_every_caller(people: People) -> None:
    gone = await _make_user(people, "gone", "Worker")
    box = await people.make(people.ann, "Box__c", Name="A")
    assert await people.edit(people.ann, "Box__c", box, OwnerId=gone) == "done"
    await _deactivate(people, gone)
    with pytest.raises(OwnerInactive, match=rf"inactive user \[{gone[:15]}\] as owner of box"):
        await people.make(people.org.admin, "Box__c", Name="B", OwnerId=gone)
    other = await people.make(people.ann, "Box__c", Name="C")
    assert await people.edit(people.ann, "Box__c", other, OwnerId=gone) == "owner_inactive"
    # What an inactive user owns can still be changed, and given to somebody else.
    assert await people.edit(people.org.admin, "Box__c", box, Name="D", OwnerId=gone) == "done"
    assert await people.edit(people.org.admin, "Box__c", box, OwnerId=people.zoe.user_id) == "done"


async def test_owner_who_cannot_read_the_object_is_rejected(people: People) -> None:
    blind = await _make_user(people, "blind")
    with pytest.raises(OwnerLacksRead):
        await people.make(people.org.admin, "Box__c", Name="A", OwnerId=blind)
    box = await people.make(people.ann, "Box__c", Name="B")
    assert await people.edit(people.ann, "Box__c", box, OwnerId=blind) == "owner_lacks_read"
    await _make_user(people, "blind", "Worker")
    assert await people.edit(people.ann, "Box__c", box, OwnerId=blind) == "done"


async def test_queue_can_own_only_records_of_its_objects(people: People) -> None:
    await people.org.apply(
        queues={"Boxes": {"members": ["ann@tidewire.local"], "objects": ["Box__c"]}},
        groups={"Plain": {"members": ["ann@tidewire.local"]}},
    )
    found = await people.org.gate.query(
        people.org.admin, "SELECT Id, Type FROM Group WHERE DeveloperName IN ('Boxes', 'Plain')"
    )
    ids = {str(row["Type"]): str(row["Id"]) for row in found.rows}
    box = await people.make(people.ann, "Box__c", Name="A")
    assert await people.edit(people.ann, "Box__c", box, OwnerId=ids["Queue"]) == "done"
    with pytest.raises(QueueUnfit):
        await people.make(people.ann, "Case", Subject="Help", OwnerId=ids["Queue"])
    with pytest.raises(QueueUnfit):
        await people.make(people.ann, "Box__c", Name="B", OwnerId=ids["Regular"])


async def test_transfer_is_for_owners_those_above_and_modify_all(people: People) -> None:
    box = await people.make(people.ann, "Box__c", Name="A")
    share = {"ParentId": box, "UserOrGroupId": people.zoe.user_id, "AccessLevel": "Edit"}
    await people.make(people.ann, "Box__Share", **share)
    assert await people.edit(people.zoe, "Box__c", box, OwnerId=people.zoe.user_id) == "access_denied"
    assert await people.edit(people.boss, "Box__c", box, OwnerId=people.ben.user_id) == "done"
    everything = ["create", "read", "edit", "delete", "view_all", "modify_all"]
    await people.org.apply(
        permission_sets={"Keeper": {"objects": {"Box__c": everything}}},
        users={"zoe@tidewire.local": {"permission_sets": ["Worker", "Keeper"]}},
    )
    assert await people.edit(people.zoe, "Box__c", box, OwnerId=people.zoe.user_id) == "done"


async def test_lead_is_not_converted_for_an_inactive_owner(people: People) -> None:
    gone = await _make_user(people, "left", "Worker")
    lead = await people.make(people.ann, "Lead", LastName="Lee", Company="Lee")
    await _deactivate(people, gone)
    statuses = await people.org.gate.query(
        people.org.admin, "SELECT MasterLabel FROM LeadStatus WHERE IsConverted = true"
    )
    conversion = Conversion(
        lead_id=lead,
        converted_status=str(statuses.rows[0]["MasterLabel"]),
        owner_id=gone,
        makes_opportunity=False,
    )
    with pytest.raises(OwnerInactive):
        await people.org.gate.convert_lead(people.call(people.ann), conversion)


@pytest.mark.parametrize(
    "permission, entity, expected",
    [
        ("TransferAnyEntity", "Box__c", "done"),
        ("TransferAnyLead", "Box__c", "access_denied"),
        ("TransferAnyLead", "Lead", "done"),
        ("TransferAnyCase", "Lead", "access_denied"),
    ],
)
async def test_transfer_permission_suffices_with_edit_access(
    people: People, permission: str, entity: str, expected: str
) -> None:
    everything = ["create", "read", "edit", "delete"]
    await people.org.apply(
        objects={"Lead": {"sharing": "private"}},
        permission_sets={
            "Leads": {"objects": {"Lead": everything}, "fields": {"Lead": {"*": "edit"}}},
            "Carrier": {"permissions": [permission]},
        },
        users={
            "ann@tidewire.local": {"permission_sets": ["Worker", "Leads"]},
            "zoe@tidewire.local": {"permission_sets": ["Worker", "Leads", "Carrier"]},
        },
    )
    named = {"LastName": "A", "Company": "A"} if entity == "Lead" else {"Name": "A"}
    record_id = await people.make(people.ann, entity, **named)
    assert await people.edit(people.zoe, entity, record_id, OwnerId=people.zoe.user_id) == "record_not_found"
    share = {"UserOrGroupId": people.zoe.user_id}
    share |= (
        {"LeadId": record_id, "LeadAccessLevel": "Edit"}
        if entity == "Lead"
        else {"ParentId": record_id, "AccessLevel": "Edit"}
    )
    await people.make(people.ann, "LeadShare" if entity == "Lead" else "Box__Share", **share)
    assert await people.edit(people.zoe, entity, record_id, OwnerId=people.zoe.user_id) == expected
