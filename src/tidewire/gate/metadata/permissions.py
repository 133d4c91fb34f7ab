"""PermissionSet and Profile.

A component replaces a permission set completely; a profile keeps what the component does not mention. The profile
of administrators, `Admin` here, has all rights already: a component for it is accepted and ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidewire.access.grants import is_permissionable
from tidewire.events import Value
from tidewire.gate.definitions.permissions import (
    OBJECT_RIGHTS,
    read_profile_sets,
    read_rights,
    try_read_by_name,
)
from tidewire.gate.metadata.field_parse import Context
from tidewire.gate.metadata.objects import Draft
from tidewire.gate.metadata.properties import (
    Component,
    Properties,
    check_properties,
    flag_of,
    items_of,
    names_in,
    ordered,
    reject,
    require,
    text_of,
)
from tidewire.records.table import read_all_rows
from tidewire.schema.catalog import Catalog
from tidewire.storage.store import Reader, Transaction

_IGNORED = names_in(
    "applicationVisibilities categoryGroupVisibilities classAccesses customMetadataTypeAccesses customPermissions"
    " customSettingAccesses emailRoutingAddressAccesses externalCredentialPrincipalAccesses"
    " externalDataSourceAccesses flowAccesses hasActivationRequired layoutAssignments license loginFlows loginHours"
    " loginIpRanges pageAccesses profileActionOverrides recordTypeVisibilities tabSettings tabVisibilities userLicense"
    " custom"
)
_USED = names_in("fullName description fieldPermissions label objectPermissions userPermissions")
_RIGHTS = {
    "allowCreate": "create",
    "allowDelete": "delete",
    "allowEdit": "edit",
    "allowRead": "read",
    "modifyAllRecords": "modify_all",
    "viewAllRecords": "view_all",
}
_ADMIN = "System Administrator"
# Standard profiles have other names in the Metadata API.
_PROFILE_NAMES = {"Admin": _ADMIN, "Standard": "Standard User"}
_PROFILE_COMPONENTS = {name: component for component, name in _PROFILE_NAMES.items()}


def profile_name(full_name: str) -> str:
    """Return the name of the profile for the name of a component."""
    return _PROFILE_NAMES.get(full_name, full_name)


def set_names(reader: Reader | Transaction, catalog: Catalog) -> list[tuple[str, Mapping[str, Value]]]:
    """Read all permission sets by name, except those that belong to profiles."""
    rows = read_all_rows(reader, catalog.object("PermissionSet"))
    return sorted((str(r["Name"]), r) for r in rows if not r["IsOwnedByProfile"] and not r.get("IsDeleted"))


def profile_names(reader: Reader | Transaction, catalog: Catalog) -> list[tuple[str, Mapping[str, Value]]]:
    """Read all profiles by their names in the Metadata API."""
    rows = read_all_rows(reader, catalog.object("Profile"))
    named = [(_PROFILE_COMPONENTS.get(str(r["Name"]), str(r["Name"])), r) for r in rows]
    return sorted(named, key=lambda item: item[0])


def add_permission_set(draft: Draft, component: Component, context: Context) -> None:
    """Add a permission set to the definition."""
    properties = component.properties
    check_properties(properties, _USED | _IGNORED, f"PermissionSet {component.full_name}")
    require(properties, "label")
    spec = {"label": text_of(properties, "label"), "description": text_of(properties, "description")}
    draft.section("permission_sets")[component.full_name] = spec | _read_rights(
        properties, context.catalog, {}
    )


def add_profile(draft: Draft, component: Component, context: Context) -> None:
    """Add a profile to the definition, including stored rights that the component does not mention."""
    properties, reader, catalog = component.properties, context.reader, context.catalog
    check_properties(properties, _USED | _IGNORED, f"Profile {component.full_name}")
    name = profile_name(component.full_name)
    stored: Mapping[str, Any] = {}
    row = try_read_by_name(reader, catalog.object("Profile"), name)
    if row is not None:
        stored = _stored_spec(reader, catalog, row, read_profile_sets(reader, catalog, str(row["Id"])))
    spec = _read_rights(properties, catalog, stored)
    if "description" in properties:
        spec["description"] = text_of(properties, "description")
    if name != _ADMIN:
        draft.section("profiles")[name] = spec


def _read_rights(properties: Properties, catalog: Catalog, stored: Mapping[str, Any]) -> dict[str, Any]:
    permissions = set(stored.get("permissions", ()))
    for item in items_of(properties, "userPermissions"):
        permissions.discard(text_of(item, "name"))
        if flag_of(item, "enabled"):
            permissions.add(text_of(item, "name"))
    objects = dict(stored.get("objects", {}))
    for item in items_of(properties, "objectPermissions"):
        name = _object_name(catalog, text_of(item, "object"))
        rights = [word for flag, word in _RIGHTS.items() if flag_of(item, flag)]
        objects.pop(name, None)
        if rights:
            objects[name] = rights
    fields = {name: dict(rules) for name, rules in stored.get("fields", {}).items()}
    for item in items_of(properties, "fieldPermissions"):
        entity, _, name = text_of(item, "field").partition(".")
        entity = _object_name(catalog, entity)
        _check_field(catalog, entity, name)
        is_readable = flag_of(item, "readable") or flag_of(item, "editable")
        right = "edit" if flag_of(item, "editable") else "read" if is_readable else "none"
        fields.setdefault(entity, {})[name] = right
    return {"permissions": sorted(permissions), "objects": objects, "fields": fields}


def _object_name(catalog: Catalog, name: str) -> str:
    known = catalog.try_object(name) or catalog.try_event(name)
    return known.name if known is not None else name


def _check_field(catalog: Catalog, entity: str, name: str) -> None:
    obj = catalog.try_object(entity)
    known = obj.try_field(name) if obj is not None else None
    if known is not None and not is_permissionable(known):
        reject(f"You cannot deploy to a required field: {entity}.{name}", fields=["fieldPermissions"])


def _stored_spec(
    reader: Reader | Transaction, catalog: Catalog, row: Mapping[str, Value], set_ids: list[str]
) -> dict[str, Any]:
    """Return the stored rights as a spec; parts of a compound field are implied by the compound."""
    stored = read_rights(reader, catalog, row, set_ids)
    fields: dict[str, dict[str, str]] = {}
    for (entity, name), is_editable in stored.fields.items():
        fields.setdefault(entity, {})[name] = "edit" if is_editable else "read"
    for entity, rules in fields.items():
        obj = catalog.try_object(entity)
        for f in obj.fields if obj is not None else ():
            if f.compound in rules and rules.get(f.name) == rules[f.compound]:
                del rules[f.name]
    return {
        "permissions": sorted(flag.removeprefix("Permissions") for flag in stored.flags),
        "objects": {
            entity: [word for word, column in OBJECT_RIGHTS.items() if column in rights]
            for entity, rights in stored.objects.items()
        },
        "fields": fields,
    }


def try_read_permission_set(
    reader: Reader | Transaction, catalog: Catalog, full_name: str
) -> dict[str, object] | None:
    """Return the properties of a permission set, or None if it does not exist."""
    row = try_read_by_name(reader, catalog.object("PermissionSet"), full_name)
    if row is None or row["IsOwnedByProfile"]:
        return None
    spec = _stored_spec(reader, catalog, row, [str(row["Id"])])
    return ordered(
        description=row.get("Description"),
        hasActivationRequired=False,
        label=str(row["Label"]),
        **_render_rights(spec),
    )


def try_read_profile(
    reader: Reader | Transaction, catalog: Catalog, full_name: str
) -> dict[str, object] | None:
    """Return the properties of a profile, or None if it does not exist."""
    name = profile_name(full_name)
    row = try_read_by_name(reader, catalog.object("Profile"), name)
    if row is None:
        return None
    spec = _stored_spec(reader, catalog, row, read_profile_sets(reader, catalog, str(row["Id"])))
    return ordered(
        custom=full_name not in _PROFILE_NAMES,
        description=row.get("Description"),
        userLicense="Salesforce",
        **_render_rights(spec),
    )


def _render_rights(spec: Mapping[str, Any]) -> dict[str, object]:
    objects = [
        {flag: word in rights for flag, word in _RIGHTS.items() if flag != "viewAllRecords"}
        | {"object": name, "viewAllRecords": "view_all" in rights}
        for name, rights in sorted(spec["objects"].items())
    ]
    fields = [
        {"editable": right == "edit", "field": f"{entity}.{name}", "readable": True}
        for entity, rules in sorted(spec["fields"].items())
        for name, right in sorted(rules.items())
    ]
    users = [{"enabled": True, "name": name} for name in spec["permissions"]]
    return {
        "fieldPermissions": fields or None,
        "objectPermissions": objects or None,
        "userPermissions": users or None,
    }
