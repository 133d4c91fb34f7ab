"""A user's effective permissions: the union of their profile and all assigned permission sets.

Every object needs a grant. A field needs one too, unless everybody who reads the object sees it: ids, names, system
fields and required fields. Modify All Data includes everything.

Setup objects follow system permissions instead. Some are readable by everybody, the others need View Setup. Users and
permissions are changed with Manage Users, all other setup with Customize Application. Share rows follow the permissions
on the shared object. Which records a user may access is decided in `sharing.py`.
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
"""Objects whose records decide access or the meaning of queries. Changing one raises the org's access generation."""


@dataclass(frozen=True, slots=True)
class ObjectGrant:
    """Permissions on one object's records."""

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
# The permissions to read and to change each setup object; empty means everybody.
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
# Fields of User that users with edit permission on their own record must not set.
_PROTECTED_USER_FIELDS = frozenset(
    {"Username", "ProfileId", "UserRoleId", "IsActive", "FederationIdentifier"}
)
_STREAMING_OBJECTS = frozenset({"PushTopic", "StreamingChannel"})
# Field permissions do not apply to streaming channels: the object permission covers every field.
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
    """Objects that an org setting disables for everybody."""

    @cached_property
    def is_administrator(self) -> bool:
        """Whether the user has Modify All Data, which includes every other permission."""
        return "ModifyAllData" in self.permissions

    def has(self, permission: str) -> bool:
        """Whether the user has a system permission such as `ViewAllData`."""
        return self.is_administrator or permission in self.permissions

    def on(self, entity: str) -> ObjectGrant:
        """Return the permissions on an object or platform event."""
        if entity in self.switched_off:
            return _NOTHING
        if self.is_administrator:
            return _EVERYTHING
        shared = shared_entity(entity)
        if shared:
            records = self.on(shared)
            can_share = records.can_edit or records.can_modify_all
            return ObjectGrant(can_share, self.can_read(shared), can_share, can_share, records.can_view_all)
        granted = self.objects.get(entity, _NOTHING)
        if entity not in _SETUP:
            return granted
        reading, changing = _SETUP[entity]
        can_change = self.has(changing)
        can_read = not reading or can_change or self.has(reading) or granted.can_read
        can_edit = can_change or (entity == "User" and granted.can_edit)
        return ObjectGrant(can_change, can_read, can_edit, can_change)

    def can_read(self, entity: str) -> bool:
        """Whether the user may read the object's records, subject to sharing."""
        if entity in self.switched_off:
            return False
        grant = self.on(entity)
        return grant.can_read or grant.can_view_all or grant.can_modify_all or self.has("ViewAllData")

    def can_view_all(self, entity: str) -> bool:
        """Whether the user may read all of the object's records regardless of sharing."""
        if entity == "User":
            return self.has("ViewAllUsers")
        grant = self.on(entity)
        return grant.can_view_all or grant.can_modify_all or self.has("ViewAllData")

    def can_modify_all(self, entity: str) -> bool:
        """Whether the user may edit and delete all of the object's records regardless of sharing."""
        return self.on(shared_entity(entity) or entity).can_modify_all

    def can_read_field(self, obj: ObjectType, f: Field) -> bool:
        """Whether the user may read the field, in queries and in events."""
        if self.is_administrator or not is_permissionable(f) or self._has_no_field_permissions(obj):
            return True
        return _is_granted(self.readable, obj, f)

    def can_edit_field(self, obj: ObjectType, f: Field) -> bool:
        """Whether the user may set the field."""
        if self.is_administrator or self._has_no_field_permissions(obj):
            return True
        if obj.name == "User" and f.name in _PROTECTED_USER_FIELDS:
            return False
        return not is_permissionable(f) or _is_granted(self.editable, obj, f)

    def _has_no_field_permissions(self, obj: ObjectType) -> bool:
        """Whether the object permission alone decides about all of its fields."""
        is_whole = obj.is_setup or obj.name in _WITHOUT_FIELD_PERMISSIONS
        return is_whole or (obj.name in _SETUP and self.has(_PEOPLE))

    def hidden_fields(self, obj: ObjectType) -> frozenset[str]:
        """Return the fields that the user must not see, and the flag lists that would reveal them."""
        hidden = {f.name for f in obj.fields if not self.can_read_field(obj, f)}
        lists = flag_lists(obj).items() if hidden else ()
        hidden.update(name for name, boxes in lists if any(box.name in hidden for box in boxes))
        return frozenset(hidden)


def _is_granted(granted: frozenset[tuple[str, str]], obj: ObjectType, f: Field) -> bool:
    """Whether a field is granted. A grant on a compound covers its parts; one on a part shows the compound."""
    if (obj.name, f.name) in granted or (f.compound and (obj.name, f.compound) in granted):
        return True
    return f.is_compound and any((obj.name, part.name) in granted for part in obj.components(f.name))


def is_permissionable(f: Field) -> bool:
    """Whether field permissions apply to the field."""
    if f.is_system or f.required or f.type is FieldType.ID:
        return False
    return f.name not in ("Name", "OwnerId") and f.compound != "Name"


def read_grants(reader: Reader, catalog: Catalog, user_id: str) -> Grants:
    """Read a user's effective permissions and sharing principals, as of this reader's commit."""
    (user,) = read_rows(reader, catalog.object("User"), "Id", [user_id])
    principals = read_sharing_principals(reader, catalog, user)
    caller = _read_caller(reader, catalog, user, principals.queues)
    switched_off = frozenset[str]() if read_settings(reader).streaming_api else _STREAMING_OBJECTS
    permissions = read_permissions(reader, catalog, user)
    return replace(permissions, caller=caller, principals=principals, switched_off=switched_off)


def read_permissions(reader: Reader | Transaction, catalog: Catalog, user: Mapping[str, Value]) -> Grants:
    """Read a user's permissions on objects and fields, without sharing principals."""
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
    """Return what the user's queries depend on: time zone, queues and the org's fiscal year."""
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
