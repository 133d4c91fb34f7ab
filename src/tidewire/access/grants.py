"""What a user may do, added up from the profile and every permission set assigned to them.

Objects need a grant each. A field needs one too, unless it is one that everybody who reads the object sees:
its key and name, what the platform itself
keeps, and what is required. Modify All Data stands for everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tidewire.events import Value
from tidewire.records.table import read_rows
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import Field, FieldType, ObjectType
from tidewire.storage.store import Reader

GRANT_OBJECTS = frozenset(
    {"User", "Profile", "PermissionSet", "PermissionSetAssignment", "ObjectPermissions", "FieldPermissions"}
)
"""Objects whose records decide access: a change to one raises the org's access generation."""


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


@dataclass(frozen=True)
class Grants:
    """One user's effective permissions at one access generation."""

    permissions: frozenset[str]
    objects: Mapping[str, ObjectGrant] = field(default_factory=dict)
    readable: frozenset[tuple[str, str]] = frozenset()
    editable: frozenset[tuple[str, str]] = frozenset()

    @cached_property
    def is_administrator(self) -> bool:
        """Whether nothing is out of reach."""
        return "ModifyAllData" in self.permissions

    def has(self, permission: str) -> bool:
        """Whether a system permission, such as `ViewAllData`, is held."""
        return self.is_administrator or permission in self.permissions

    def on(self, entity: str) -> ObjectGrant:
        """What may be done with records, or platform events, of this name."""
        if self.is_administrator:
            return _EVERYTHING
        return self.objects.get(entity, _NOTHING)

    def can_read(self, entity: str) -> bool:
        """Whether records of the object may be read at all."""
        grant = self.on(entity)
        return grant.can_read or grant.can_view_all or grant.can_modify_all or self.has("ViewAllData")

    def can_view_all(self, entity: str) -> bool:
        """Whether every record of the object may be read, whoever owns it."""
        if entity == "User":
            return self.has("ViewAllUsers")
        grant = self.on(entity)
        return grant.can_view_all or grant.can_modify_all or self.has("ViewAllData")

    def can_read_field(self, obj: ObjectType, f: Field) -> bool:
        """Whether the field may be seen, in queries and in events alike."""
        return self.is_administrator or not is_permissionable(f) or _is_granted(self.readable, obj, f)

    def can_edit_field(self, obj: ObjectType, f: Field) -> bool:
        """Whether the field may be set."""
        return self.is_administrator or not is_permissionable(f) or _is_granted(self.editable, obj, f)

    def hidden_fields(self, obj: ObjectType) -> frozenset[str]:
        """The fields of an object that this user must not see, anywhere."""
        return frozenset(f.name for f in obj.fields if not self.can_read_field(obj, f))


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
    profile_id = user["ProfileId"]
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


def _union(grant: ObjectGrant, row: Mapping[str, Value]) -> ObjectGrant:
    return ObjectGrant(
        can_create=grant.can_create or bool(row["PermissionsCreate"]),
        can_read=grant.can_read or bool(row["PermissionsRead"]),
        can_edit=grant.can_edit or bool(row["PermissionsEdit"]),
        can_delete=grant.can_delete or bool(row["PermissionsDelete"]),
        can_view_all=grant.can_view_all or bool(row["PermissionsViewAllRecords"]),
        can_modify_all=grant.can_modify_all or bool(row["PermissionsModifyAllRecords"]),
    )
