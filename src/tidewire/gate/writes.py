"""Single writes as one user may make them: checks against grants before the transaction, then the write inside it.

A write checks everything before it changes a row, so a failed write leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tidewire.access.grants import GRANT_OBJECTS, ObjectGrant
from tidewire.access.sharing import Level
from tidewire.errors import AccessDenied, PlatformError, RecordNotFound
from tidewire.gate.editable_fields import check_editable
from tidewire.gate.reads import check_topic_query
from tidewire.gate.requests import Upsert, Write
from tidewire.gate.user_view import UserView
from tidewire.gate.write_guard import RecordGuard
from tidewire.ids import normalise_id
from tidewire.records.table import read_living
from tidewire.records.work import UnitOfWork
from tidewire.schema.model import ObjectType

T = TypeVar("T")
P = ParamSpec("P")
BinAction = Callable[[UnitOfWork, ObjectType, str], None]
"""Does something with a record in the recycle bin."""

# A direct delete of these bypasses the recycle bin; deleted along with their parent they go into it.
_NO_RECYCLE_BIN = frozenset({"CampaignMember"})


def check_write(view: UserView, write: Write, now_ms: int) -> ObjectType:
    """Return the object of a write that the user's grants allow on some record.

    Raises ObjectUnknown, AccessDenied, FieldUnknown or FieldNotWriteable.
    """
    operation = "create" if write.record_id is None else "delete" if write.values is None else "update"
    obj = view.open(write.entity, operation)
    described = view.described(obj)
    if write.record_id is None:
        is_allowed = described.createable
    elif write.values is None:
        is_allowed = described.deletable
    else:
        is_allowed = described.updateable
    check_allowed(obj, is_allowed)
    readable, editable = view.field_names(obj)
    submitted = write.values or {}
    if not (readable.issuperset(submitted) and editable.issuperset(submitted)):
        check_editable(view.org_catalog, obj, view.grants, submitted)
    if obj.name == "PushTopic":
        check_topic_query(view, obj, submitted, now_ms)
    return obj


def check_upsert(view: UserView, upsert: Upsert, now_ms: int) -> tuple[ObjectType, ObjectGrant]:
    """Return the object of an upsert and the user's grant on it. Raises like `check_write`.

    Whether the user may create or update is checked later, when it is known which of the two happens.
    """
    obj = view.open(upsert.entity, "upsert")
    key = obj.try_field(upsert.field)
    submitted = upsert.values if key is None else {**upsert.values, key.name: upsert.value}
    check_editable(view.org_catalog, obj, view.grants, submitted)
    check_topic_query(view, obj, submitted, now_ms)
    return obj, view.grants.on(obj.name)


def check_in_bin(view: UserView, record_id: str) -> tuple[ObjectType, str]:
    """Return the object and 18-character id of a record that the user may restore or purge."""
    record_id = normalise_id(record_id)
    known = view.org_catalog.try_object_of_id(record_id)
    if known is None:
        raise RecordNotFound("The requested resource does not exist", record_id=record_id)
    obj = view.open(known.name)
    check_allowed(obj, view.described(obj).deletable)
    return obj, record_id


def try_check(check: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | PlatformError:
    """Run a check; returns what it returns, or the error that it raises."""
    try:
        return check(*args, **kwargs)
    except PlatformError as error:
        return error


def run_write(unit: UnitOfWork, guard: RecordGuard, obj: ObjectType, write: Write) -> str | PlatformError:
    """Carry out one write; returns the id of its record, or the error."""
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
            if write.is_hard or obj.name in _NO_RECYCLE_BIN:
                unit.purge(obj, record_id)
        else:
            unit.update(obj, record_id, write.values)
    except PlatformError as error:
        return guard.redact_hidden_ids(error)
    return record_id


def run_upsert(
    unit: UnitOfWork, guard: RecordGuard, obj: ObjectType, grant: ObjectGrant, upsert: Upsert
) -> tuple[str, bool] | PlatformError:
    """Carry out one upsert; returns the id of its record and whether it is new, or the error."""
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
    unit: UnitOfWork, guard: RecordGuard, obj: ObjectType, record_id: str, action: BinAction
) -> str | PlatformError:
    """Do something with a record in the recycle bin; returns its id, or the error."""
    try:
        guard.require(obj, record_id, Level.FULL)
        action(unit, obj, record_id)
    except PlatformError as error:
        return guard.redact_hidden_ids(error)
    return record_id


def check_allowed(obj: ObjectType, is_allowed: bool) -> None:
    """Raise AccessDenied for an operation that the user may not do on any record of the object."""
    if not is_allowed:
        raise AccessDenied("insufficient access rights on object id", entity=obj.name)


def needs_own_group(obj: ObjectType) -> bool:
    """Return whether a write to the object must be alone in its commit group: later writes must see its effects."""
    return (obj.is_setup and not obj.shares) or obj.name in GRANT_OBJECTS
