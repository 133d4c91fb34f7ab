"""Single writes, each all or nothing, as a user may make them: what grants say of one before its transaction, and
what is done inside of it, behind the guard.

A write checks everything before it touches a row, so one that fails has left nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable

from tidewire.access.grants import GRANT_OBJECTS, ObjectGrant
from tidewire.access.sharing import Level
from tidewire.errors import AccessDenied, ObjectUnknown, PlatformError
from tidewire.gate.editable_fields import check_editable
from tidewire.gate.publishing import refuse_event
from tidewire.gate.reads import check_topic_query
from tidewire.gate.requests import Upsert, Write
from tidewire.gate.user_view import View
from tidewire.gate.write_guard import RecordGuard
from tidewire.ids import normalise_id
from tidewire.records.table import read_living
from tidewire.records.work import UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType

BinAct = Callable[[UnitOfWork, ObjectType, str], None]

# Deleted by themselves they leave nothing in the recycle bin; deleted along with their parent they do.
_GONE_AT_ONCE = frozenset({"CampaignMember"})


def check_write(view: View, catalog: Catalog, write: Write, now_ms: int) -> ObjectType:
    """The object that is written to. Raises ObjectUnknown, AccessDenied, FieldUnknown or FieldNotWriteable for what
    the user may not do with any record.
    """
    obj = catalog.try_object(write.entity)
    if obj is None or not view.can_read(obj):
        operation = "create" if write.record_id is None else "delete" if write.values is None else "update"
        refuse_event(catalog, view.grants, write.entity, operation)
        raise ObjectUnknown(f"sObject type '{write.entity}' is not supported.", entity=write.entity)
    described = view.described(obj)
    if write.record_id is None:
        is_allowed = described.createable
    elif write.values is None:
        is_allowed = described.deletable
    else:
        is_allowed = described.updateable
    check_allowed(obj, is_allowed)
    readable, editable = view.field_names(obj)
    given = write.values or {}
    if not (readable.issuperset(given) and editable.issuperset(given)):
        check_editable(catalog, obj, view.grants, given)
    if obj.name == "PushTopic":
        check_topic_query(view, obj, given, now_ms)
    return obj


def run_write(unit: UnitOfWork, guard: RecordGuard, obj: ObjectType, write: Write) -> str | PlatformError:
    """Carry out one write; its record's id, or why it failed."""
    try:
        if write.record_id is None:
            guard.check_create(obj, write.values or {})
            return unit.create(obj, write.values or {})
        record_id = normalise_id(write.record_id)
        if write.values is None:
            guard.require(obj, record_id, Level.FULL)
        else:
            guard.check_update(obj, record_id, write.values)
        if write.check is not None:
            write.check(read_living(unit.tx, obj, record_id))
        if write.values is None:
            unit.delete(obj, record_id)
            if write.is_hard or obj.name in _GONE_AT_ONCE:
                unit.purge(obj, record_id)
        else:
            unit.update(obj, record_id, write.values)
    except PlatformError as error:
        return guard.redact_hidden_ids(error)
    return record_id


def run_upsert(
    unit: UnitOfWork, guard: RecordGuard, obj: ObjectType, grant: ObjectGrant, upsert: Upsert
) -> tuple[str, bool] | PlatformError:
    """Carry out one upsert; its record's id and whether it is new, or why it failed."""
    if upsert.rejection is not None:
        return upsert.rejection

    def check(record_id: str | None) -> None:
        if record_id is None:
            check_allowed(obj, obj.createable and grant.can_create)
            guard.check_create(obj, upsert.values)
        else:
            check_allowed(obj, obj.updateable and (grant.can_edit or grant.can_modify_all))
            guard.check_update(obj, record_id, upsert.values)

    try:
        return unit.upsert(obj, upsert.field, upsert.value, upsert.values, check)
    except PlatformError as error:
        return guard.redact_hidden_ids(error)


def run_in_bin(
    unit: UnitOfWork, guard: RecordGuard, obj: ObjectType, record_id: str, act: BinAct
) -> str | PlatformError:
    """Do something with a record in the recycle bin; its id, or why it failed."""
    try:
        guard.require(obj, record_id, Level.FULL)
        act(unit, obj, record_id)
    except PlatformError as error:
        return guard.redact_hidden_ids(error)
    return record_id


def check_allowed(obj: ObjectType, is_allowed: bool) -> None:
    """Raise AccessDenied for what the user may not do with any record of the object."""
    if not is_allowed:
        raise AccessDenied("insufficient access rights on object id", entity=obj.name)


def needs_own_group(obj: ObjectType) -> bool:
    """Whether a write to the object is a group of its own: what follows must see what it changes."""
    return (obj.is_setup and not obj.shares) or obj.name in GRANT_OBJECTS
