"""Record sharing: org-wide defaults, owners, roles, shares, groups and rules, in a real org."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.orgs import TestOrg
from tidewire.access.principal import Principal
from tidewire.config import DEV_PASSWORD
from tidewire.errors import (
    AccessDenied,
    DuplicateValue,
    FieldsInconsistent,
    FieldUnknown,
    ObjectUnknown,
    PlatformError,
    RecordNotFound,
    ReferenceForbidden,
)
from tidewire.gate.requests import Call, Write
from tidewire.records.query import Children

_ALL = ["create", "read", "edit", "delete"]
_OBJECTS = ("Account", "Contact", "Opportunity", "Case", "Lead", "Task", "Box__c", "Slot__c")


@dataclass(frozen=True)
class People:
    """A boss, two people below her in one role, and somebody without a role."""

    org: TestOrg
    boss: Principal
    ann: Principal
    ben: Principal
    zoe: Principal

    def call(self, who: Principal) -> Call:
        return Call(who, "com/test")

    async def make(self, who: Principal, entity: str, **values: object) -> str:
        return await self.org.gate.create(self.call(who), entity, values)

    async def seen(self, who: Principal, soql: str) -> list[object]:
        rows = await self.org.gate.query(who, soql)
        return [row["Id"] for row in rows.rows]

    async def sees(self, who: Principal, entity: str, record_id: str) -> bool:
        """The answer of every path to a record, which must be one."""
        queried = record_id in await self.seen(who, f"SELECT Id FROM {entity}")
        asked = record_id in await self.org.gate.visible_record_ids(who, entity, [record_id])
        try:
            await self.org.gate.read(who, entity, record_id, None)
            is_read = True
        except RecordNotFound:
            is_read = False
        assert queried == asked == is_read
        return is_read

    async def edit(self, who: Principal, entity: str, record_id: str, **values: object) -> str:
        """What an update comes to: `done`, or the error's code."""
        try:
            await self.org.gate.update(self.call(who), entity, record_id, values)
        except PlatformError as error:
            return error.code
        return "done"

    async def delete(self, who: Principal, entity: str, record_id: str) -> str:
        try:
            await self.org.gate.delete(self.call(who), entity, record_id)
        except PlatformError as error:
            return error.code
        return "done"


@pytest.fixture
async def people(org: TestOrg) -> People:
    users = {
        f"{name}@tidewire.local": {
            "password": DEV_PASSWORD,
            "last_name": name.title(),
            "permission_sets": ["Worker"],
            **({"role": role} if role else {}),
        }
        for name, role in (("boss", "Head"), ("ann", "Sales"), ("ben", "Sales"), ("zoe", ""))
    }
    await org.apply(
        objects={
            "Account": {"sharing": "private"},
            "Opportunity": {"sharing": "private"},
            "Case": {"sharing": "read"},
            "Contact": {"sharing": "controlled_by_parent"},
            "Box__c": {
                "sharing": "private",
                "fields": {
                    "Code__c": {"type": "Text", "length": 20, "unique": True, "external_id": True},
                    "Size__c": {"type": "Number"},
                },
            },
            "Slot__c": {"fields": {"Box__c": {"type": "MasterDetail", "references": "Box__c"}}},
        },
        roles={"Head": {}, "Sales": {"parent": "Head"}, "Other": {}},
        permission_sets={
            "Worker": {
                "permissions": ["ApiEnabled"],
                "objects": dict.fromkeys(_OBJECTS, _ALL),
                "fields": {name: {"*": "edit"} for name in _OBJECTS},
            }
        },
        users=users,
    )
    principals = [
        (await org.core.logins.login(f"{name}@tidewire.local", DEV_PASSWORD, "test")).principal
        for name in ("boss", "ann", "ben", "zoe")
    ]
    return People(org, *principals)


async def test_private_record_is_seen_by_owner_and_above_only(people: People) -> None:
    account = await people.make(people.ann, "Account", Name="Acme")
    assert [await people.sees(who, "Account", account) for who in (people.ann, people.boss)] == [True, True]
    assert [await people.sees(who, "Account", account) for who in (people.ben, people.zoe)] == [False, False]
    assert await people.sees(people.org.admin, "Account", account)


async def test_private_record_edits_and_deletes(people: People) -> None:
    account = await people.make(people.ann, "Account", Name="Acme")
    assert await people.edit(people.ben, "Account", account, Name="B") == "record_not_found"
    assert await people.delete(people.ben, "Account", account) == "record_not_found"
    assert await people.edit(people.boss, "Account", account, Name="C") == "done"
    assert await people.delete(people.boss, "Account", account) == "done"


async def test_public_read_record_is_edited_by_owner_and_above_only(people: People) -> None:
    case = await people.make(people.ann, "Case", Subject="Help")
    assert await people.sees(people.zoe, "Case", case)
    assert await people.edit(people.zoe, "Case", case, Subject="No") == "access_denied"
    assert await people.edit(people.boss, "Case", case, Subject="Yes") == "done"


async def test_public_record_is_edited_by_all_and_deleted_by_its_owner(people: People) -> None:
    lead = await people.make(people.ann, "Lead", LastName="Lee", Company="Lee")
    assert await people.edit(people.zoe, "Lead", lead, Company="L") == "done"
    assert await people.delete(people.zoe, "Lead", lead) == "access_denied"
    assert await people.edit(people.zoe, "Lead", lead, OwnerId=people.zoe.user_id) == "access_denied"
    assert await people.edit(people.ann, "Lead", lead, OwnerId=people.zoe.user_id) == "done"
    assert await people.delete(people.zoe, "Lead", lead) == "done"


async def test_transfer_takes_the_record_from_its_old_owner(people: People) -> None:
    account = await people.make(people.ann, "Account", Name="Acme")
    assert await people.edit(people.ann, "Account", account, OwnerId=people.zoe.user_id) == "done"
    assert not await people.sees(people.ann, "Account", account)
    assert not await people.sees(people.boss, "Account", account)
    assert await people.sees(people.zoe, "Account", account)


async def test_role_change_counts_at_once(people: People) -> None:
    account = await people.make(people.zoe, "Account", Name="Acme")
    assert not await people.sees(people.boss, "Account", account)
    roles = await people.org.gate.query(people.org.admin, "SELECT Id FROM UserRole WHERE Name = 'Sales'")
    values = {"UserRoleId": roles.rows[0]["Id"]}
    await people.org.gate.update(people.org.call, "User", people.zoe.user_id, values)
    assert await people.sees(people.boss, "Account", account)


async def test_hierarchy_switched_off_leaves_records_to_their_owner(people: People) -> None:
    await people.org.apply(objects={"Box__c": {"grant_by_hierarchy": False}})
    box = await people.make(people.ann, "Box__c", Name="A")
    assert not await people.sees(people.boss, "Box__c", box)
    await people.org.apply(objects={"Box__c": {"grant_by_hierarchy": True}})
    assert await people.sees(people.boss, "Box__c", box)


async def test_manual_share_opens_one_record_to_read_then_to_edit(people: People) -> None:
    account = await people.make(people.ann, "Account", Name="Acme")
    other = await people.make(people.ann, "Account", Name="Other")
    share = await people.make(
        people.ann,
        "AccountShare",
        AccountId=account,
        UserOrGroupId=people.zoe.user_id,
        AccountAccessLevel="Read",
    )
    assert await people.sees(people.zoe, "Account", account)
    assert not await people.sees(people.zoe, "Account", other)
    assert await people.edit(people.zoe, "Account", account, Name="Z") == "access_denied"
    assert await people.edit(people.ann, "AccountShare", share, AccountAccessLevel="Edit") == "done"
    assert await people.edit(people.zoe, "Account", account, Name="Z") == "done"
    assert await people.delete(people.zoe, "Account", account) == "access_denied"
    assert await people.delete(people.ann, "AccountShare", share) == "done"
    assert not await people.sees(people.zoe, "Account", account)
    deleted = await people.org.gate.query(people.zoe, "SELECT Id FROM Account", include_deleted=True)
    assert deleted.rows == []


async def test_share_with_somebody_below_opens_the_record_above(people: People) -> None:
    box = await people.make(people.zoe, "Box__c", Name="A")
    await people.make(
        people.zoe, "Box__Share", ParentId=box, UserOrGroupId=people.ann.user_id, AccessLevel="Edit"
    )
    assert await people.sees(people.ann, "Box__c", box)
    assert await people.edit(people.boss, "Box__c", box, Name="B") == "done"
    assert not await people.sees(people.ben, "Box__c", box)


async def test_share_by_somebody_without_full_access_is_refused(people: People) -> None:
    account = await people.make(people.ann, "Account", Name="Acme")
    values = {"AccountId": account, "UserOrGroupId": people.zoe.user_id, "AccountAccessLevel": "Read"}
    await people.org.gate.create(people.call(people.ann), "AccountShare", values)
    with pytest.raises(ReferenceForbidden):
        await people.org.gate.create(
            people.call(people.zoe), "AccountShare", {**values, "UserOrGroupId": people.ben.user_id}
        )
    shares = await people.seen(people.zoe, "SELECT Id FROM AccountShare WHERE RowCause = 'Manual'")
    assert await people.delete(people.zoe, "AccountShare", str(shares[0])) == "access_denied"
    assert await people.seen(people.ben, "SELECT Id FROM AccountShare") == []


async def test_manual_shares_end_with_their_owner(people: People) -> None:
    account = await people.make(people.ann, "Account", Name="Acme")
    values = {"AccountId": account, "UserOrGroupId": people.zoe.user_id, "AccountAccessLevel": "Read"}
    await people.make(people.ann, "AccountShare", **values)
    assert await people.edit(people.ann, "Account", account, OwnerId=people.ben.user_id) == "done"
    assert not await people.sees(people.zoe, "Account", account)


@pytest.mark.parametrize(
    "level, cause", [("All", "Manual"), ("Edit", "Rule")], ids=["full access", "not by hand"]
)
async def test_share_that_nobody_can_give_is_refused(people: People, level: str, cause: str) -> None:
    account = await people.make(people.ann, "Account", Name="Acme")
    values = {"AccountId": account, "UserOrGroupId": people.zoe.user_id, "AccountAccessLevel": level}
    with pytest.raises(FieldsInconsistent):
        await people.make(people.ann, "AccountShare", **values, RowCause=cause)


async def test_share_below_the_default_is_refused(people: People) -> None:
    case = await people.make(people.ann, "Case", Subject="Help")
    values = {"CaseId": case, "UserOrGroupId": people.zoe.user_id}
    with pytest.raises(FieldsInconsistent):
        await people.make(people.ann, "CaseShare", **values, CaseAccessLevel="Read")
    await people.make(people.ann, "CaseShare", **values, CaseAccessLevel="Edit")
    assert await people.edit(people.zoe, "Case", case, Subject="Z") == "done"


async def test_groups_inside_groups_and_of_roles_are_grantees(people: People) -> None:
    await people.org.apply(
        groups={
            "Inner": {"members": ["zoe@tidewire.local"]},
            "Outer": {"members": ["group:Inner", "role:Sales"]},
        }
    )
    groups = await people.org.gate.query(
        people.org.admin, "SELECT Id FROM Group WHERE DeveloperName = 'Outer'"
    )
    admin_box = await people.make(people.org.admin, "Box__c", Name="A")
    assert not await people.sees(people.zoe, "Box__c", admin_box)
    await people.make(
        people.org.admin,
        "Box__Share",
        ParentId=admin_box,
        UserOrGroupId=groups.rows[0]["Id"],
        AccessLevel="Read",
    )
    for who in (people.zoe, people.ann, people.ben, people.boss):
        assert await people.sees(who, "Box__c", admin_box)
    await people.org.apply(groups={"Inner": {"members": []}})
    assert not await people.sees(people.zoe, "Box__c", admin_box)


async def test_queue_members_reach_what_their_queue_owns(people: People) -> None:
    await people.org.apply(
        queues={"Boxes": {"members": ["ann@tidewire.local"], "objects": ["Box__c"]}},
    )
    queues = await people.org.gate.query(people.org.admin, "SELECT Id FROM Group WHERE Type = 'Queue'")
    box = await people.make(people.org.admin, "Box__c", Name="A", OwnerId=queues.rows[0]["Id"])
    assert [await people.sees(w, "Box__c", box) for w in (people.ann, people.boss)] == [True, True]
    assert [await people.sees(w, "Box__c", box) for w in (people.ben, people.zoe)] == [False, False]
    assert await people.edit(people.ann, "Box__c", box, Name="B") == "done"


async def test_owner_rule_follows_owner_membership_and_rule(people: People) -> None:
    await people.org.apply(groups={"Readers": {"members": ["zoe@tidewire.local"]}})
    rule = {"owned_by": "role:Sales", "share_with": "group:Readers", "access": "read"}
    await people.org.apply(objects={"Account": {"sharing_rules": {"Sales_To_Readers": rule}}})
    account = await people.make(people.ann, "Account", Name="Acme")
    assert await people.sees(people.zoe, "Account", account)
    assert await people.edit(people.zoe, "Account", account, Name="Z") == "access_denied"
    await people.org.apply(
        objects={"Account": {"sharing_rules": {"Sales_To_Readers": {**rule, "access": "edit"}}}}
    )
    assert await people.edit(people.zoe, "Account", account, Name="Z") == "done"
    admin_id = people.org.admin.user_id
    await people.org.gate.update(people.org.call, "Account", account, {"OwnerId": admin_id})
    assert not await people.sees(people.zoe, "Account", account)
    await people.org.gate.update(people.org.call, "Account", account, {"OwnerId": people.ann.user_id})
    await people.org.apply(groups={"Readers": {"members": []}})
    assert not await people.sees(people.zoe, "Account", account)


async def test_criteria_rule_follows_the_field(people: People) -> None:
    rule = {"criteria": [["Size__c", ">", 10]], "share_with": "everyone", "access": "edit"}
    await people.org.apply(objects={"Box__c": {"sharing_rules": {"Large": rule}}})
    box = await people.make(people.ann, "Box__c", Name="A", Size__c=11)
    assert await people.edit(people.zoe, "Box__c", box, Size__c=10) == "done"
    assert not await people.sees(people.zoe, "Box__c", box)


async def test_contact_is_controlled_by_its_account(people: People) -> None:
    account = await people.make(people.ann, "Account", Name="Acme")
    contact = await people.make(people.boss, "Contact", LastName="C", AccountId=account)
    alone = await people.make(people.ann, "Contact", LastName="D")
    assert await people.sees(people.ann, "Contact", contact)
    assert not await people.sees(people.zoe, "Contact", contact)
    assert not await people.sees(people.ben, "Contact", alone)
    assert await people.sees(people.boss, "Contact", alone)
    with pytest.raises(ReferenceForbidden):
        await people.make(people.zoe, "Contact", LastName="E", AccountId=account)


async def test_detail_is_controlled_by_its_master(people: People) -> None:
    box = await people.make(people.ann, "Box__c", Name="A")
    slot = await people.make(people.ann, "Slot__c", Name="1", Box__c=box)
    assert not await people.sees(people.zoe, "Slot__c", slot)
    share = {"ParentId": box, "UserOrGroupId": people.zoe.user_id, "AccessLevel": "Read"}
    share_id = await people.make(people.ann, "Box__Share", **share)
    assert await people.sees(people.zoe, "Slot__c", slot)
    assert await people.edit(people.zoe, "Slot__c", slot, Name="2") == "access_denied"
    with pytest.raises(ReferenceForbidden):
        await people.make(people.zoe, "Slot__c", Name="2", Box__c=box)
    assert await people.edit(people.ann, "Box__Share", share_id, AccessLevel="Edit") == "done"
    assert await people.delete(people.zoe, "Slot__c", slot) == "done"


async def test_owner_of_a_child_reads_the_account(people: People) -> None:
    account = await people.make(people.ann, "Account", Name="Acme")
    assert not await people.sees(people.zoe, "Account", account)
    await people.make(
        people.ann,
        "Opportunity",
        Name="O",
        StageName="Prospecting",
        CloseDate="2030-01-01",
        AccountId=account,
        OwnerId=people.zoe.user_id,
    )
    assert await people.sees(people.zoe, "Account", account)
    assert await people.edit(people.zoe, "Account", account, Name="Z") == "access_denied"


async def test_account_owner_gets_the_child_access_of_their_role(people: People) -> None:
    account = await people.make(people.ann, "Account", Name="Acme")
    values = {"Name": "O", "StageName": "Prospecting", "CloseDate": "2030-01-01", "AccountId": account}
    deal = await people.make(people.org.admin, "Opportunity", **values)
    assert not await people.sees(people.ann, "Opportunity", deal)
    await people.org.apply(roles={"Sales": {"opportunity_access": "read"}})
    assert await people.sees(people.ann, "Opportunity", deal)
    assert await people.sees(people.boss, "Opportunity", deal)
    assert await people.edit(people.ann, "Opportunity", deal, Name="P") == "access_denied"
    await people.org.apply(roles={"Sales": {"opportunity_access": "edit"}})
    assert await people.edit(people.ann, "Opportunity", deal, Name="P") == "done"


async def test_private_task_is_read_with_what_it_is_about(people: People) -> None:
    await people.org.apply(objects={"Task": {"sharing": "private"}})
    account = await people.make(people.ann, "Account", Name="Acme")
    task = await people.make(people.org.admin, "Task", Subject="Call", WhatId=account)
    assert await people.sees(people.ann, "Task", task)
    assert not await people.sees(people.zoe, "Task", task)
    assert await people.edit(people.ann, "Task", task, Subject="Mail") == "access_denied"


async def test_hidden_parent_is_null_wherever_a_query_names_it(people: People) -> None:
    account = await people.make(people.ann, "Account", Name="Secret", Phone="1")
    case = await people.make(people.ann, "Case", Subject="Help", AccountId=account)
    rows = await people.org.gate.query(people.zoe, "SELECT AccountId, Account.Name FROM Case")
    assert rows.rows[0]["Account"] is None
    assert rows.rows[0]["AccountId"] == account
    assert await people.seen(people.zoe, "SELECT Id FROM Case WHERE Account.Name = 'Secret'") == []
    assert await people.seen(people.zoe, "SELECT Id FROM Case WHERE Account.Name = null") == [case]
    ordered = (
        "SELECT Id FROM Case WHERE Account.Phone != '1' AND Subject = 'Help' ORDER BY Account.Name LIMIT 5"
    )
    assert await people.seen(people.zoe, ordered) == [case]
    inner = "SELECT Id FROM Case WHERE AccountId IN (SELECT Id FROM Account WHERE Name = 'Secret')"
    assert await people.seen(people.zoe, inner) == []
    assert await people.seen(people.ann, inner) == [case]
    grouped = await people.org.gate.query(
        people.zoe, "SELECT Account.Name n, COUNT(Id) c FROM Case GROUP BY Account.Name"
    )
    assert grouped.rows == [{"n": None, "c": 1}]


async def test_child_queries_counts_and_searches_omit_hidden_records(people: People) -> None:
    case = await people.make(people.ann, "Case", Subject="Help")
    await people.make(people.ann, "Task", Subject="Call", WhatId=case)
    await people.make(people.ann, "Account", Name="Secret Tower")
    await people.org.apply(objects={"Task": {"sharing": "controlled_by_parent"}})
    count = await people.org.gate.query(people.zoe, "SELECT COUNT() FROM Account")
    assert count.count == 0
    found = await people.org.gate.search(people.zoe, "FIND {Secret} RETURNING Account(Id)")
    assert [rows.rows for rows in found] == [[]]
    rows = await people.org.gate.query(people.zoe, "SELECT Id, (SELECT Id FROM Shares) FROM Case")
    shares = rows.rows[0]["Shares"]
    assert isinstance(shares, Children)
    assert shares.total == 1  # its owner's


async def test_lookup_to_a_record_out_of_sight_is_refused(people: People) -> None:
    account = await people.make(people.ann, "Account", Name="Acme")
    with pytest.raises(ReferenceForbidden):
        await people.make(people.zoe, "Case", Subject="Help", AccountId=account)
    case = await people.make(people.zoe, "Case", Subject="Help")
    assert await people.edit(people.zoe, "Case", case, AccountId=account) == "reference_forbidden"
    results = await people.org.gate.write_together(
        people.call(people.zoe),
        [Write("Case", case, {"AccountId": account}), Write("Case", case, {"Subject": "Still"})],
        all_or_none=False,
    )
    assert isinstance(results[0], ReferenceForbidden)
    assert results[1] == case


async def test_upsert_does_not_find_a_hidden_record(people: People) -> None:
    box = await people.make(people.ann, "Box__c", Name="A", Code__c="x")
    with pytest.raises(RecordNotFound):
        await people.org.gate.upsert(people.call(people.zoe), "Box__c", "Code__c", "x", {"Name": "Z"})
    with pytest.raises(DuplicateValue) as raised:
        await people.make(people.zoe, "Box__c", Name="Z", Code__c="x")
    assert box[:15] not in raised.value.message
    assert await people.org.gate.upsert(
        people.call(people.boss), "Box__c", "Code__c", "x", {"Name": "B"}
    ) == (
        box,
        False,
    )


async def test_undelete_merge_and_conversion_need_the_records(people: People) -> None:
    gate = people.org.gate
    account = await people.make(people.ann, "Account", Name="Acme")
    other = await people.make(people.zoe, "Account", Name="Other")
    with pytest.raises(RecordNotFound):
        await gate.merge(people.call(people.zoe), "Account", other, [account], {})
    assert await people.delete(people.ann, "Account", account) == "done"
    (refused,) = await gate.undelete(people.call(people.zoe), [account])
    assert isinstance(refused, RecordNotFound)
    assert await gate.undelete(people.call(people.ann), [account]) == [account]


async def test_setup_objects_need_their_permission(people: People) -> None:
    gate = people.org.gate
    assert await people.seen(people.zoe, "SELECT Id FROM UserRole WHERE Name = 'Head'")
    with pytest.raises(ObjectUnknown):
        await people.seen(people.zoe, "SELECT Id FROM ObjectPermissions")
    with pytest.raises(AccessDenied):
        await gate.create(people.call(people.zoe), "Group", {"Name": "Mine", "Type": "Regular"})
    with pytest.raises(AccessDenied):
        await gate.update(people.call(people.zoe), "User", people.zoe.user_id, {"Title": "Queen"})
    await people.org.apply(
        permission_sets={"Staff": {"permissions": ["ManageUsers"]}},
        users={"zoe@tidewire.local": {"permission_sets": ["Worker", "Staff"]}},
    )
    await gate.create(people.call(people.zoe), "Group", {"Name": "Mine", "Type": "Regular"})
    await gate.update(people.call(people.zoe), "User", people.ann.user_id, {"Title": "Queen"})
    assert await people.seen(people.zoe, "SELECT Id FROM PermissionSet WHERE PermissionsApiEnabled = true")


async def test_private_users_see_themselves_and_those_below(people: People) -> None:
    await people.org.apply(objects={"User": {"sharing": "private"}})
    assert await people.seen(people.ann, "SELECT Id FROM User") == [people.ann.user_id]
    below = {people.boss.user_id, people.ann.user_id, people.ben.user_id}
    assert set(await people.seen(people.boss, "SELECT Id FROM User")) == below


@pytest.mark.parametrize(
    "right, others",
    [
        ("PermissionsEdit", ()),
        ("PermissionsDelete", ("PermissionsRead",)),
        ("PermissionsViewAllRecords", ()),
        ("PermissionsModifyAllRecords", ("PermissionsRead", "PermissionsEdit", "PermissionsDelete")),
    ],
)
async def test_object_permission_without_those_it_needs_is_refused(
    org: TestOrg, right: str, others: tuple[str, ...]
) -> None:
    parent = await org.gate.create(org.call, "PermissionSet", {"Name": "P", "Label": "P"})
    values = {"ParentId": parent, "SobjectType": "Lead", right: True, **dict.fromkeys(others, True)}
    with pytest.raises(FieldsInconsistent):
        await org.gate.create(org.call, "ObjectPermissions", values)


@pytest.mark.parametrize(
    "field, rights",
    [
        ("Account.Phone", {"PermissionsEdit": True}),
        ("Account.Name", {"PermissionsRead": True}),
        ("Account.Nothing", {"PermissionsRead": True}),
        ("Contact.Phone", {"PermissionsRead": True}),
    ],
)
async def test_field_permission_that_cannot_be_is_refused(
    org: TestOrg, field: str, rights: dict[str, bool]
) -> None:
    parent = await org.gate.create(org.call, "PermissionSet", {"Name": "P", "Label": "P"})
    values = {"ParentId": parent, "SobjectType": "Account", "Field": field, **rights}
    with pytest.raises(FieldsInconsistent):
        await org.gate.create(org.call, "FieldPermissions", values)


async def test_describe_tells_what_the_user_may_do(people: People) -> None:
    obj, _, editable = await people.org.gate.visible_fields(people.org.reader, "Account")
    assert (obj.createable, obj.updateable, obj.deletable, editable) == (False, False, False, frozenset())
    obj, _, editable = await people.org.gate.visible_fields(people.ann, "Account")
    assert (obj.createable, obj.updateable, obj.deletable) == (True, True, True)
    assert "Phone" in editable


async def test_removed_object_takes_its_shares_along(people: People) -> None:
    box = await people.make(people.ann, "Box__c", Name="A")
    await people.make(
        people.ann, "Box__Share", ParentId=box, UserOrGroupId=people.zoe.user_id, AccessLevel="Read"
    )
    await people.org.apply(remove={"objects": ["Slot__c"]})
    await people.org.apply(remove={"objects": ["Box__c"]})
    with pytest.raises(ObjectUnknown):
        await people.seen(people.org.admin, "SELECT Id FROM Box__Share")
    with pytest.raises(FieldUnknown):
        await people.seen(people.org.admin, "SELECT Nothing FROM AccountShare")
