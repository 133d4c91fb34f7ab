"""What a user may do, added up from the profile and every permission set assigned to them.

Objects need a grant each. A field needs one too, unless it is one that everybody who reads the object sees:
its key and name, what the platform itself keeps, and what is required. Modify All Data stands for
everything.

What sets up the org goes by system permissions instead: some of it everybody may read, the rest needs View
Setup; people and what they may do are changed with Manage Users, everything else with Customize
Application. A share is read and changed by who may read, and edit, the records it opens. Which records that
are, `sharing.py` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from tidewire.access.sharing_principals import NO_PRINCIPALS, SharingPrincipals, read_sharing_principals
from tidewire.events import Value
from tidewire.records.settings import read_settings
from tidewire.records.table import read_all_rows, read_rows
from tidewire.schema.catalog import Catalog
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.share_objects import shared_entity
from tidewire.schema.standard.flag_lists import flag_lists
from tidewire.soql.dates import Calendar
from tidewire.soql.scope import NOBODY, Caller
from tidewire.soql.zones import load_zone
from tidewire.storage.store import Reader, Transaction

GRANT_OBJECTS = frozenset(
    {"User", "Profile", "PermissionSet", "PermissionSetAssignment", "ObjectPermissions", "FieldPermissions"}
    | {"Organization", "Group", "GroupMember", "UserRole"}
)
"""Objects whose records decide access, or what a user's queries mean: a change to one raises the org's access
generation."""


@dataclass(frozen=True, slots=True)
class ObjectGrant:
    """What may be done with one object's records."""

    can_create: bool = False
    can_read: bool = False
    can_edit: bool = False
    can_delete: bool = False
    can_view_all: bool = False
    can_modify_all: bool = False


_NOTHING = ObjectGrant()
_EVERYTHING = ObjectGrant(True, True, True, True, True, True)
_EVERYBODY = ""
_PEOPLE, _TYPES = "ManageUsers", "CustomizeApplication"
# Which permission it takes to read and to change what sets up the org.
_SETUP = {
    "User": (_EVERYBODY, _PEOPLE),
    "Profile": ("ViewSetup", _PEOPLE),
    "PermissionSet": ("ViewSetup", _PEOPLE),
    "PermissionSetAssignment": ("ViewSetup", _PEOPLE),
    "ObjectPermissions": ("ViewSetup", _PEOPLE),
    "FieldPermissions": ("ViewSetup", _PEOPLE),
    "UserLogin": (_PEOPLE, _PEOPLE),
    "Group": (_EVERYBODY, _PEOPLE),
    "GroupMember": (_EVERYBODY, _PEOPLE),
    "QueueSobject": (_EVERYBODY, _PEOPLE),
    "UserRole": (_EVERYBODY, _PEOPLE),
    "Organization": (_EVERYBODY, _TYPES),
    "RecordType": (_EVERYBODY, _TYPES),
    "LeadStatus": (_EVERYBODY, _TYPES),
    "CaseStatus": (_EVERYBODY, _TYPES),
    "TaskStatus": (_EVERYBODY, _TYPES),
    "OpportunityStage": (_EVERYBODY, _TYPES),
    "ContractStatus": (_EVERYBODY, _TYPES),
    "OrderStatus": (_EVERYBODY, _TYPES),
    "PlatformEventUsageMetric": ("ViewSetup", _TYPES),
    "EventBusSubscriber": ("ViewSetup", _TYPES),
}
# What users who may edit their own record must not give themselves.
_KEPT_OF_USERS = frozenset({"Username", "ProfileId", "UserRoleId", "IsActive", "FederationIdentifier"})
_OF_STREAMING = frozenset({"PushTopic", "StreamingChannel"})
# Who may read, or change, a streaming channel at all may do so with every field of it.
_WITHOUT_FIELD_PERMISSIONS = frozenset({"StreamingChannel"})


@dataclass(frozen=True)
class Grants:
    """One user's effective permissions at one access generation."""

    permissions: frozenset[str]
    objects: Mapping[str, ObjectGrant] = field(default_factory=dict)
    readable: frozenset[tuple[str, str]] = frozenset()
    editable: frozenset[tuple[str, str]] = frozenset()
    caller: Caller = NOBODY
    principals: SharingPrincipals = NO_PRINCIPALS
    switched_off: frozenset[str] = frozenset()
    """Objects that the org does not have, whatever anybody's permissions."""

    @cached_property
    def is_administrator(self) -> bool:
        """Whether nothing is out of principals."""
        return "ModifyAllData" in self.permissions

    def has(self, permission: str) -> bool:
        """Whether a system permission, such as `ViewAllData`, is held."""
        return self.is_administrator or permission in self.permissions

    def on(self, entity: str) -> ObjectGrant:
        """What may be done with records, or platform events, of this name."""
        if entity in self.switched_off:
            return _NOTHING
        if self.is_administrator:
            return _EVERYTHING
        shared = shared_entity(entity)
        if shared:
            records = self.on(shared)
            may = records.can_edit or records.can_modify_all
            return ObjectGrant(may, self.can_read(shared), may, may, records.can_view_all)
        granted = self.objects.get(entity, _NOTHING)
        if entity not in _SETUP:
            return granted
        reading, changing = _SETUP[entity]
        can_change = self.has(changing)
        can_read = not reading or can_change or self.has(reading) or granted.can_read
        can_edit = can_change or (entity == "User" and granted.can_edit)
        return ObjectGrant(can_change, can_read, can_edit, can_change)

    def can_read(self, entity: str) -> bool:
        """Whether records of the object may be read at all."""
        if entity in self.switched_off:
            return False
        grant = self.on(entity)
        return grant.can_read or grant.can_view_all or grant.can_modify_all or self.has("ViewAllData")

    def can_view_all(self, entity: str) -> bool:
        """Whether every record of the object may be read, whoever owns it."""
        if entity == "User":
            return self.has("ViewAllUsers")
        grant = self.on(entity)
        return grant.can_view_all or grant.can_modify_all or self.has("ViewAllData")

    def can_modify_all(self, entity: str) -> bool:
        """Whether every record of the object may be edited and deleted, whoever owns it."""
        return self.on(shared_entity(entity) or entity).can_modify_all

    def can_read_field(self, obj: ObjectType, f: Field) -> bool:
        """Whether the field may be seen, in queries and in events alike."""
        if self.is_administrator or not is_permissionable(f) or self._is_set_up(obj):
            return True
        return _is_granted(self.readable, obj, f)

    def can_edit_field(self, obj: ObjectType, f: Field) -> bool:
        """Whether the field may be set."""
        if self.is_administrator or self._is_set_up(obj):
            return True
        if obj.name == "User" and f.name in _KEPT_OF_USERS:
            return False
        return not is_permissionable(f) or _is_granted(self.editable, obj, f)

    def _is_set_up(self, obj: ObjectType) -> bool:
        """Whether the object itself, and no single field of it, is what a permission is needed for."""
        is_whole = obj.is_setup or obj.name in _WITHOUT_FIELD_PERMISSIONS
        return is_whole or (obj.name in _SETUP and self.has(_PEOPLE))

    def hidden_fields(self, obj: ObjectType) -> frozenset[str]:
        """The fields of an object that this user must not see, anywhere, and the lists that tell of them."""
        hidden = {f.name for f in obj.fields if not self.can_read_field(obj, f)}
        lists = flag_lists(obj).items() if hidden else ()
        hidden.update(name for name, boxes in lists if any(box.name in hidden for box in boxes))
        return frozenset(hidden)


def _is_granted(granted: frozenset[tuple[str, str]], obj: ObjectType, f: Field) -> bool:
    """A grant on a compound covers its parts; a compound shows as soon as one of its parts does."""
    if (obj.name, f.name) in granted or (f.compound and (obj.name, f.compound) in granted):
        return True
    return f.is_compound and any((obj.name, part.name) in granted for part in obj.components(f.name))


def is_permissionable(f: Field) -> bool:
    """Whether field permissions decide about the field."""
    if f.is_system or f.required or f.type is FieldType.ID:
        return False
    return f.name not in ("Name", "OwnerId") and f.compound != "Name"


def read_grants(reader: Reader, catalog: Catalog, user_id: str) -> Grants:
    """Add up a user's permissions, as of this reader's commit."""
    (user,) = read_rows(reader, catalog.object("User"), "Id", [user_id])
    principals = read_sharing_principals(reader, catalog, user)
    caller = _read_caller(reader, catalog, user, principals.queues)
    switched_off = frozenset[str]() if read_settings(reader).streaming_api else _OF_STREAMING
    permissions = read_permissions(reader, catalog, user)
    return replace(permissions, caller=caller, principals=principals, switched_off=switched_off)


def read_permissions(reader: Reader | Transaction, catalog: Catalog, user: Mapping[str, Value]) -> Grants:
    """What a user, given by their row, may do with objects and fields; nothing is said of single records."""
    user_id, profile_id = user["Id"], user["ProfileId"]
    profiles = read_rows(reader, catalog.object("Profile"), "Id", [profile_id])
    sets = catalog.object("PermissionSet")
    assigned = read_rows(reader, catalog.object("PermissionSetAssignment"), "AssigneeId", [user_id])
    held = read_rows(reader, sets, "Id", [a["PermissionSetId"] for a in assigned])
    held += [s for s in read_rows(reader, sets, "ProfileId", [profile_id]) if s["IsOwnedByProfile"]]
    set_ids = [s["Id"] for s in held]
    objects: dict[str, ObjectGrant] = {}
    for row in read_rows(reader, catalog.object("ObjectPermissions"), "ParentId", set_ids):
        entity = str(row["SobjectType"])
        objects[entity] = _union(objects.get(entity, _NOTHING), row)
    readable: set[tuple[str, str]] = set()
    editable: set[tuple[str, str]] = set()
    for row in read_rows(reader, catalog.object("FieldPermissions"), "ParentId", set_ids):
        entity, _, name = str(row["Field"]).partition(".")
        if row["PermissionsRead"] or row["PermissionsEdit"]:
            readable.add((entity, name))
        if row["PermissionsEdit"]:
            editable.add((entity, name))
    permissions = frozenset(
        name.removeprefix("Permissions")
        for row in [*profiles, *held]
        for name, value in row.items()
        if name.startswith("Permissions") and value
    )
    return Grants(permissions, objects, frozenset(readable), frozenset(editable))


def _read_caller(
    reader: Reader, catalog: Catalog, user: Mapping[str, Value], queues: tuple[str, ...]
) -> Caller:
    """What queries of the user depend on: their clock, their queues, and the org's fiscal year."""
    org = next(iter(read_all_rows(reader, catalog.object("Organization"))), {})
    month = org.get("FiscalYearStartMonth")
    calendar = Calendar(
        load_zone(str(user["TimeZoneSidKey"] or "GMT")),
        month if isinstance(month, int) and 1 <= month <= 12 else 1,
        bool(org.get("UsesStartDateAsFiscalYearName")),
    )
    return Caller(str(user["Id"]), queues, calendar)


def _union(grant: ObjectGrant, row: Mapping[str, Value]) -> ObjectGrant:
    return ObjectGrant(
        can_create=grant.can_create or bool(row["PermissionsCreate"]),
        can_read=grant.can_read or bool(row["PermissionsRead"]),
        can_edit=grant.can_edit or bool(row["PermissionsEdit"]),
        can_delete=grant.can_delete or bool(row["PermissionsDelete"]),
        can_view_all=grant.can_view_all or bool(row["PermissionsViewAllRecords"]),
        can_modify_all=grant.can_modify_all or bool(row["PermissionsModifyAllRecords"]),
    )
