"""Roles, groups, queues, profiles, sharing and connected apps of a definition."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.orgs import READER, TestOrg, open_org
from tidewire.access.apps import try_read_app
from tidewire.errors import AccessDenied, DefinitionInvalid, PlatformError
from tidewire.events import Value
from tidewire.gate.requests import Call
from tidewire.records.table import read_all_rows
from tidewire.records.types import read_sharing_rules


async def rows(org: TestOrg, entity: str) -> list[dict[str, Value]]:
    obj = org.gate.catalog.object(entity)
    found = await org.core.records.read(lambda reader: read_all_rows(reader, obj))
    return [r for r in found if not r.get("IsDeleted")]


async def plan_of(org: TestOrg, document: Mapping[str, object]) -> list[str]:
    """Apply a document, having checked that a dry run says the same and a second run nothing."""
    shown = await org.gate.apply_definition(org.call, document, dry_run=True)
    done = await org.apply(**document)
    assert shown.lines == done
    assert await org.apply(**document) == []
    return done


ROLES: dict[str, Any] = {
    "Clerk": {"parent": "Head", "label": "Sales Clerk"},
    "Head": {"parent": "Board", "contact_access": "edit"},
    "Board": {},
}


async def test_roles_stand_below_their_parents_whatever_the_order(org: TestOrg) -> None:
    assert await plan_of(org, {"roles": ROLES}) == [
        "create role Board",
        "create role Head",
        "create role Clerk",
    ]
    found = {str(r["DeveloperName"]): r for r in await rows(org, "UserRole")}
    assert found["Clerk"]["ParentRoleId"] == found["Head"]["Id"]
    assert found["Head"]["ParentRoleId"] == found["Board"]["Id"]
    assert (found["Clerk"]["Name"], found["Head"]["ContactAccessForAccountOwner"]) == ("Sales Clerk", "Edit")
    assert await plan_of(org, {"roles": {"Clerk": {"parent": "Board"}, "Head": {"parent": ""}}}) == [
        "update role Head: ParentRoleId",
        "update role Clerk: ParentRoleId",
    ]


@pytest.mark.parametrize(
    "roles, reason",
    [
        ({"A": {"parent": "B"}, "B": {"parent": "A"}}, "above itself"),
        ({"A": {"parent": "A"}}, "above itself"),
        ({"A": {"parent": "Nobody"}}, "no role Nobody"),
        ({"not a name": {}}, "letters"),
        ({"A": {"case_access": "all"}}, "one of"),
        ({"A": {"case_access": None}}, "one of"),
        ({"A": {"color": "red"}}, "unknown keys"),
    ],
)
async def test_invalid_role_is_rejected(org: TestOrg, roles: dict[str, object], reason: str) -> None:
    with pytest.raises(DefinitionInvalid, match=reason):
        await org.apply(roles=roles)
    assert await rows(org, "UserRole") == []


async def test_users_get_roles_managers_and_profiles_of_the_same_document(org: TestOrg) -> None:
    document = {
        "users": {
            "low@example.org": {"role": "Clerk", "manager": "high@example.org", "profile": "Seller"},
            "high@example.org": {"role": "Board"},
            READER: {"role": "Clerk"},
        },
        "roles": ROLES,
        "profiles": {
            "Seller": {
                "permissions": ["ApiEnabled"],
                "objects": {"Account": ["read"]},
                "fields": {"Account": {"Phone": "read"}},
            }
        },
    }
    assert await plan_of(org, document) == [
        "create role Board",
        "create role Head",
        "create role Clerk",
        "create profile Seller",
        "create user low@example.org",
        "create user high@example.org",
        f"update user {READER}: UserRoleId",
        "set the manager of low@example.org: high@example.org",
    ]
    users = {str(r["Username"]): r for r in await rows(org, "User")}
    assert users["low@example.org"]["ManagerId"] == users["high@example.org"]["Id"]
    assert users[READER]["UserRoleId"] == users["low@example.org"]["UserRoleId"]
    with pytest.raises(DefinitionInvalid, match="has the role Clerk"):
        await org.apply(remove={"roles": ["Clerk"]})
    with pytest.raises(DefinitionInvalid, match="has the profile Seller"):
        await org.apply(remove={"profiles": ["Seller"]})


async def test_profile_grants_exactly_what_the_document_lists(org: TestOrg) -> None:
    seller = {"permissions": ["ApiEnabled"], "objects": {"Lead": ["read", "create"]}, "description": "Sells"}
    await plan_of(org, {"profiles": {"Seller": seller}, "users": {READER: {"profile": "Seller"}}})
    caller = Call(org.reader, "")
    await org.gate.create(caller, "Lead", {"LastName": "L", "Company": "C"})
    with pytest.raises(PlatformError):
        await org.gate.create(caller, "Case", {"Subject": "x"})
    assert await plan_of(org, {"profiles": {"Seller": {"permissions": ["ApiEnabled"]}}}) == [
        "update profile Seller"
    ]
    with pytest.raises(PlatformError):
        await org.gate.create(caller, "Lead", {"LastName": "L", "Company": "C"})
    own = [r for r in await rows(org, "PermissionSet") if r["IsOwnedByProfile"]]
    assert len(own) == 1
    with pytest.raises(DefinitionInvalid, match="belongs to a profile"):
        await org.apply(permission_sets={str(own[0]["Name"]): {}})


@pytest.mark.parametrize("permission", ["ManageUsers", "ManageEncryptionKeys", "ViewSetup", "AuthorApex"])
async def test_every_system_permission_can_be_granted(org: TestOrg, permission: str) -> None:
    await plan_of(org, {"permission_sets": {"Extra": {"permissions": [permission]}}})
    await org.apply(users={READER: {"permission_sets": ["Extra"]}})
    assert (await org.gate.grants(org.reader)).has(permission)


@pytest.mark.parametrize("section", ["permission_sets", "profiles"])
async def test_unknown_permission_is_named(org: TestOrg, section: str) -> None:
    with pytest.raises(DefinitionInvalid, match="unknown permission FlyToTheMoon"):
        await org.apply(**{section: {"Some": {"permissions": ["ApiEnabled", "FlyToTheMoon"]}}})


async def test_administrators_cannot_be_locked_out_by_a_document(org: TestOrg) -> None:
    with pytest.raises(DefinitionInvalid, match="cannot be changed"):
        await org.apply(profiles={"System Administrator": {}})
    with pytest.raises(DefinitionInvalid, match="standard profile"):
        await org.apply(remove={"profiles": ["System Administrator"]})


async def test_groups_and_queues_have_the_members_that_the_document_lists(org: TestOrg) -> None:
    document = {
        "roles": ROLES,
        "groups": {
            "Everybody": {"members": ["everyone"]},
            "Mixed": {"members": [READER, "group:Everybody", "role_and_subordinates:Head"]},
        },
        "queues": {"Support": {"label": "Help", "objects": ["Case", "Lead"], "members": ["group:Mixed"]}},
    }
    assert (await plan_of(org, document))[3:] == [
        "create group Everybody",
        "create group Mixed",
        "create queue Support",
        "set the members of group Everybody: everyone",
        f"set the members of group Mixed: {READER}, group:Everybody, role_and_subordinates:Head",
        "set the members of queue Support: group:Mixed",
        "set the objects of queue Support: Case, Lead",
    ]
    groups = {str(g["DeveloperName"]): g for g in await rows(org, "Group")}
    members = [
        m["UserOrGroupId"] for m in await rows(org, "GroupMember") if m["GroupId"] == groups["Mixed"]["Id"]
    ]
    assert set(members) == {org.reader.user_id, groups["Everybody"]["Id"], groups["Head"]["Id"]}
    assert groups["Head"]["Type"] == "RoleAndSubordinates"
    assert {q["SobjectType"] for q in await rows(org, "QueueSobject")} == {"Case", "Lead"}
    await plan_of(org, {"groups": {"Mixed": {"members": [READER]}}})
    left = [m for m in await rows(org, "GroupMember") if m["GroupId"] == groups["Mixed"]["Id"]]
    assert [m["UserOrGroupId"] for m in left] == [org.reader.user_id]
    case = await org.gate.create(org.call, "Case", {"Subject": "x", "OwnerId": groups["Support"]["Id"]})
    assert case.startswith("500")


@pytest.mark.parametrize(
    "document, reason",
    [
        ({"groups": {"A": {"members": ["nobody@example.org"]}}}, "no user"),
        ({"groups": {"A": {"members": ["group:B"]}}}, "no group B"),
        ({"groups": {"A": {"members": ["group:A"]}}}, "itself"),
        ({"groups": {"A": {"members": ["role:B"]}}}, "no role B"),
        ({"groups": {"A": {"members": ["planet:Mars"]}}}, "must be one of"),
        ({"groups": {"A": {"label": ""}}}, "1 to 40"),
        ({"queues": {"A": {"objects": ["Account"]}}}, "cannot own Account"),
        ({"queues": {"a b": {}}}, "letters"),
        ({"users": {READER: {"role": "Nope"}}}, "no role Nope"),
        ({"users": {READER: {"manager": READER}}}, "own manager"),
        ({"users": {READER: {"permission_sets": ["Nope"]}}}, "no permission set Nope"),
    ],
)
async def test_invalid_group_is_rejected(org: TestOrg, document: dict[str, object], reason: str) -> None:
    with pytest.raises(DefinitionInvalid, match=reason):
        await org.apply(**document)


async def test_org_wide_defaults_are_stored_and_shown_by_organization(tmp_path: Path) -> None:
    document: dict[str, object] = {
        "objects": {
            "Account": {"sharing": "private"},
            "Contact": {"sharing": "controlled_by_parent"},
            "Thing__c": {"sharing": "read"},
            "Part__c": {"fields": {"Thing__c": {"type": "MasterDetail", "references": "Thing__c"}}},
        }
    }
    async with open_org(tmp_path) as org:
        assert org.gate.catalog.object("Account").internal_sharing == "ReadWrite"
        plan = await plan_of(org, document)
        assert plan[:2] == ["share Account: private", "share Contact: controlled_by_parent"]
    async with open_org(tmp_path) as org:
        names = ("Account", "Contact", "Thing__c", "Part__c", "Lead")
        assert [org.gate.catalog.object(n).internal_sharing for n in names] == [
            "Private",
            "ControlledByParent",
            "Read",
            "ControlledByParent",
            "ReadWrite",
        ]
        (row,) = await rows(org, "Organization")
        assert (row["DefaultAccountAccess"], row["DefaultContactAccess"]) == ("None", "ControlledByParent")
        assert await plan_of(org, {"objects": {"Account": {"sharing": "read_write"}}}) == [
            "share Account: read_write"
        ]


@pytest.mark.parametrize(
    "entity, sharing, reason",
    [
        ("Account", "secret", "one of"),
        ("Account", "controlled_by_parent", "no parent"),
        ("Profile", "private", "has no org-wide default"),
        ("User", "read_write", "private or read"),
    ],
)
async def test_invalid_org_wide_default_is_rejected(
    org: TestOrg, entity: str, sharing: str, reason: str
) -> None:
    with pytest.raises(DefinitionInvalid, match=reason):
        await org.apply(objects={entity: {"sharing": sharing}})


RULES: dict[str, Any] = {
    "Owned": {"owned_by": "role:Clerk", "share_with": "role_and_subordinates:Head", "access": "edit"},
    "Big": {"criteria": [["AnnualRevenue", ">", 1000]], "share_with": "group:Partners"},
}


async def test_sharing_rules_are_stored_and_hold_what_they_name(tmp_path: Path) -> None:
    document = {
        "roles": ROLES,
        "groups": {"Partners": {}},
        "objects": {"Account": {"sharing_rules": RULES, "fields": {"Tier__c": {"type": "Text"}}}},
    }
    async with open_org(tmp_path) as org:
        assert (await plan_of(org, document))[-2:] == [
            "create sharing rule Account.Owned",
            "create sharing rule Account.Big",
        ]
        stored = await org.core.records.read(read_sharing_rules)
    async with open_org(tmp_path) as org:
        assert await org.core.records.read(read_sharing_rules) == stored
        groups = {str(g["Id"]): (g["Type"], g["DeveloperName"]) for g in await rows(org, "Group")}
        big, owned = stored
        assert (big.criteria, big.access) == ((("AnnualRevenue", ">", 1000),), "Read")
        assert groups[big.shared_with_id] == ("Regular", "Partners")
        assert groups[owned.owned_by_id] == ("Role", "Clerk")
        assert groups[owned.shared_with_id] == ("RoleAndSubordinates", "Head")
        with pytest.raises(DefinitionInvalid, match=r"Account.Big names Partners"):
            await org.apply(remove={"groups": ["Partners"]})
        with pytest.raises(DefinitionInvalid, match=r"Account.Owned names Clerk"):
            await org.apply(remove={"roles": ["Clerk"]})
        gone = {"sharing_rules": ["Account.Big", "Account.Owned"], "groups": ["Partners"], "roles": [*ROLES]}
        assert await plan_of(org, {"remove": gone}) == [
            "remove sharing rule Account.Big",
            "remove sharing rule Account.Owned",
            "remove group Partners",
            "remove role Clerk",
            "remove role Head",
            "remove role Board",
        ]
        assert await org.core.records.read(read_sharing_rules) == []


@pytest.mark.parametrize(
    "rule, reason",
    [
        ({"share_with": "everyone"}, "either"),
        ({"share_with": "everyone", "owned_by": "queue:Q"}, "no queue Q"),
        ({"share_with": "everyone", "criteria": [["Nope", "=", 1]]}, "no field Nope"),
        ({"share_with": "everyone", "criteria": [["AnnualRevenue", "=", "much"]]}, "."),
        ({"share_with": "everyone", "criteria": [["Description", "=", "x"]]}, "to filter by"),
        ({"share_with": "everyone", "criteria": [["Name", "~", "x"]]}, "operator"),
        ({"share_with": "everyone", "criteria": [], "access": "all"}, "one of"),
        ({"share_with": READER, "criteria": []}, "must be one of"),
    ],
)
async def test_invalid_sharing_rule_is_rejected(org: TestOrg, rule: dict[str, object], reason: str) -> None:
    with pytest.raises(DefinitionInvalid, match=reason):
        await org.apply(objects={"Account": {"sharing_rules": {"Rule": rule}}})
    assert await org.core.records.read(read_sharing_rules) == []


async def test_field_of_a_sharing_rule_stays_and_a_removed_object_takes_its_rules_along(org: TestOrg) -> None:
    rule = {"criteria": [["Level__c", "=", "x"]], "share_with": "everyone"}
    own = {"fields": {"Level__c": {"type": "Text"}}, "sharing_rules": {"R": rule}, "record_types": {"T": {}}}
    await plan_of(org, {"objects": {"Thing__c": own}})
    with pytest.raises(DefinitionInvalid, match="sharing rule R uses it"):
        await org.apply(remove={"fields": ["Thing__c.Level__c"]})
    await plan_of(org, {"remove": {"objects": ["Thing__c"]}})
    assert await org.core.records.read(read_sharing_rules) == []
    assert await rows(org, "RecordType") == []


async def test_secret_of_a_new_app_is_returned_once_and_never_in_the_plan(org: TestOrg) -> None:
    document: dict[str, object] = {
        "connected_apps": {
            "billing": {
                "label": "Billing",
                "callback_urls": ["https://billing.example.org/done"],
                "scopes": ["api", "refresh_token"],
                "flows": ["web_server", "client_credentials"],
                "run_as": "robot@example.org",
            },
            "page": {"public": True, "flows": ["user_agent"], "callback_urls": ["https://p.example.org/"]},
        },
        "users": {"robot@example.org": {}},
    }
    shown = await org.gate.apply_definition(org.call, document, dry_run=True)
    assert shown.secrets == {}
    applied = await org.gate.apply_definition(org.call, document, dry_run=False)
    assert applied.lines == shown.lines
    assert list(applied.secrets) == ["billing"]
    assert not any(applied.secrets["billing"] in line for line in [*applied.lines, repr(applied)])
    again = await org.gate.apply_definition(org.call, document, dry_run=False)
    assert (again.lines, dict(again.secrets)) == ([], {})
    app = await org.core.records.read(lambda reader: try_read_app(reader, "billing"))
    assert app is not None
    assert (app.callback_urls, app.run_as_user_id[:3]) == (("https://billing.example.org/done",), "005")
    changed = {"connected_apps": {"billing": {"scopes": ["api"]}}}
    assert await plan_of(org, changed) == ["update connected app billing: scopes"]
    stored = await org.core.records.read(lambda reader: try_read_app(reader, "billing"))
    assert stored is not None
    assert stored.secret_hash == app.secret_hash
    assert await plan_of(org, {"remove": {"connected_apps": ["billing"]}}) == ["remove connected app billing"]


@pytest.mark.parametrize(
    "spec, reason",
    [
        ({"secret": "x"}, "the server generates the secret"),
        ({"scopes": ["everything"]}, "everything"),
        ({"flows": ["magic"]}, "magic"),
        ({"flows": ["web_server"]}, "callback_urls"),
        ({"flows": ["client_credentials"]}, "run as"),
        ({"flows": ["client_credentials"], "run_as": "nobody"}, "no user nobody"),
        ({"callback_urls": ["javascript:alert(1)"]}, "safe scheme"),
        ({"certificate": "nonsense"}, "."),
        ({"public": "yes"}, "true or false"),
    ],
)
async def test_unsafe_app_is_rejected(org: TestOrg, spec: dict[str, object], reason: str) -> None:
    with pytest.raises(DefinitionInvalid, match=reason) as caught:
        await org.apply(connected_apps={"app": spec})
    assert str(caught.value.details["path"]).startswith("connected_apps.app")


async def test_reader_may_not_apply_any_of_it(org: TestOrg) -> None:
    with pytest.raises(AccessDenied):
        await org.gate.apply_definition(Call(org.reader, ""), {"roles": ROLES}, dry_run=True)


async def test_rule_both_defined_and_removed_is_rejected(org: TestOrg) -> None:
    rules = {"R": {"criteria": [["Industry", "=", "Energy"]], "share_with": "everyone"}}
    with pytest.raises(DefinitionInvalid, match=r"Account\.R is both defined and removed"):
        await org.apply(
            objects={"Account": {"sharing_rules": rules}}, remove={"sharing_rules": ["Account.R"]}
        )
