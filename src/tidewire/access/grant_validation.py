"""Validates rows that grant access (permissions, shares, user logins) before they are written.

Rights depend on others: Edit needs Read, Modify All needs all others. Field permissions exist only for permissionable
fields. A share must give more than the org-wide default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidewire.access.grants import is_permissionable
from tidewire.access.user_logins import NAME, check_user_login
from tidewire.errors import FieldsInconsistent
from tidewire.events import Value
from tidewire.records.table import try_read_row
from tidewire.records.work import UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import ObjectType
from tidewire.schema.share_objects import MANUAL, level_field
from tidewire.schema.sharing_rules import DEFAULT_ACCESS_LEVELS

Row = Mapping[str, object]

_READ, _EDIT, _DELETE = "PermissionsRead", "PermissionsEdit", "PermissionsDelete"
_VIEW_ALL = "PermissionsViewAllRecords"
NEEDED_RIGHTS = {
    "PermissionsCreate": (_READ,),
    _EDIT: (_READ,),
    _DELETE: (_READ, _EDIT),
    _VIEW_ALL: (_READ,),
    "PermissionsModifyAllRecords": (_READ, _EDIT, _DELETE, _VIEW_ALL),
}
"""The rights that each right on an object depends on."""


def check_row(unit: UnitOfWork, obj: ObjectType, record_id: str | None, values: Mapping[str, object]) -> None:
    """Raise FieldsInconsistent for an invalid row; without `record_id` it is a new one."""
    if obj.name == NAME:
        check_user_login(
            unit, obj, record_id, {f.name: v for n, v in values.items() if (f := obj.try_field(n))}
        )
        return
    rule = _check_share if obj.shares else _RULES.get(obj.name)
    if rule is not None:
        rule(unit.catalog, obj, _merged(unit, obj, record_id, values))


def _merged(unit: UnitOfWork, obj: ObjectType, record_id: str | None, values: Row) -> Row:
    """Return the row after the write, with new values as the caller sent them."""
    before: Mapping[str, Value] = {} if record_id is None else try_read_row(unit.tx, obj, record_id) or {}
    submitted = {f.name: value for name, value in values.items() if (f := obj.try_field(name)) is not None}
    defaults = {f.name: f.default for f in obj.fields} if record_id is None else {}
    return {**defaults, **before, **submitted}


def _is_on(row: Row, name: str) -> bool:
    return row.get(name) in (True, "true", "True", 1, "1")


def _check_object(catalog: Catalog, obj: ObjectType, row: Row) -> None:
    name = str(row.get("SobjectType"))
    if catalog.try_event(name) is not None:
        return  # events: publishing does not need subscribing
    _check_needed(obj, row, NEEDED_RIGHTS)


def _check_field(catalog: Catalog, obj: ObjectType, row: Row) -> None:
    _check_needed(obj, row, {_EDIT: (_READ,)})
    entity, _, name = str(row.get("Field")).partition(".")
    target = catalog.try_object(entity)
    field = None if target is None else target.try_field(name)
    if target is None or field is None or entity.lower() != str(row.get("SobjectType")).lower():
        raise FieldsInconsistent(f"Field: no such field {row.get('Field')}", fields=["Field"])
    if not is_permissionable(field) or target.is_setup or field.type is FieldType.ID:
        raise FieldsInconsistent(f"Field: {target.name}.{field.name} is not permissionable", fields=["Field"])


def _check_needed(obj: ObjectType, row: Row, needed: Mapping[str, tuple[str, ...]]) -> None:
    for name, others in needed.items():
        lacking = [other for other in others if _is_on(row, name) and not _is_on(row, other)]
        if lacking:
            labels = ", ".join(obj.by_name[other.lower()].label for other in lacking)
            own = obj.by_name[name.lower()].label
            raise FieldsInconsistent(f"Permission {own} depends on permission(s): {labels}", fields=[name])


def _check_share(catalog: Catalog, obj: ObjectType, row: Row) -> None:
    level = level_field(obj)
    if row.get("RowCause") not in (None, MANUAL):
        raise FieldsInconsistent("RowCause: only Manual shares can be made", fields=["RowCause"])
    model = catalog.object(obj.shares).internal_sharing
    if row.get(level.name) in DEFAULT_ACCESS_LEVELS.get(model, ()):
        raise FieldsInconsistent(
            f"{level.name}: trivial share level {row.get(level.name)}, for organization with default level"
            f" {DEFAULT_ACCESS_LEVELS[model][-1]}",
            fields=[level.name],
        )
    if row.get(level.name) == "All" or model == "ControlledByParent":
        raise FieldsInconsistent(f"{level.name}: a manual share is Read or Edit", fields=[level.name])


_RULES: dict[str, Callable[[Catalog, ObjectType, Row], None]] = {
    "ObjectPermissions": _check_object,
    "FieldPermissions": _check_field,
}
