"""The record-level checks of a call's writes, run inside its transaction.

Theory of operation. Grants were checked before the transaction, on objects and fields. What depends on a single
record (sharing, ownership, references) is checked here, because another transaction may change it until the moment
this one holds the writer. Rules:

- A record that the user may not see gives the same error as one that does not exist. Only a record that they see
  and may not change gives AccessDenied. So `require` tests READ before the level that the write needs.
- The target of a lookup must be visible too; a detail needs edit access to its master.
- An error must not leak what sharing hides: `redact_hidden_ids` removes ids of hidden records from it.
- Objects that everybody may change, and users who may modify all records, cost no SQL statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tidewire.access.derived_shares import is_derived
from tidewire.access.grant_validation import check_row
from tidewire.access.grants import read_permissions
from tidewire.access.sharing import Level, Sharing
from tidewire.errors import (
    AccessDenied,
    DeleteRestricted,
    DuplicateValue,
    ExternalIdAmbiguous,
    OwnerInactive,
    OwnerLacksRead,
    PlatformError,
    QueueUnfit,
    RecordNotFound,
    ReferenceForbidden,
)
from tidewire.ids import try_normalise_id
from tidewire.records.references import try_lookup
from tidewire.records.table import read_rows, try_read_row
from tidewire.records.work import UnitOfWork
from tidewire.schema.model import Field, ObjectType

OWNER_FIELD = "OwnerId"


class RecordGuard:
    """Checks the writes of one user in one unit of work, including every lookup that the unit sets."""

    def __init__(self, unit: UnitOfWork, sharing: Sharing) -> None:
        self._unit = unit
        self._sharing = sharing
        self._owners = NewOwners(unit)
        # A callback instead of a check up front: the unit resolves external ids and defaults to record ids first,
        # and finds them only among records that the second callback accepts.
        unit.watch_references(self._check_reference, self._is_seen)

    def require(self, obj: ObjectType, record_id: str, level: Level) -> None:
        """Raise RecordNotFound for a hidden record, AccessDenied for a visible one without access of this level."""
        if obj.shares and is_derived(record_id):
            # Derived shares are computed when they are read; there is no row to change.
            raise AccessDenied("only Manual shares can be changed or deleted", entity=obj.name)
        # None means that the user has this level on every record of the object: no statement needed.
        if self._sharing.condition(obj, level) is None:
            return
        # READ first: AccessDenied would confirm that a hidden record exists.
        if not self._is_open(obj, record_id, Level.READ):
            raise RecordNotFound("The requested resource does not exist", record_id=record_id)
        if level is not Level.READ and not self._is_open(obj, record_id, level):
            raise AccessDenied("insufficient access rights on object id", entity=obj.name)

    def check_create(self, obj: ObjectType, values: Mapping[str, object]) -> None:
        """Raise if the validation rules of grant and share objects reject a new record."""
        check_row(self._unit, obj, None, values)

    def check_update(self, obj: ObjectType, record_id: str, values: Mapping[str, object]) -> None:
        """Raise unless the user may set these values on the record."""
        self.require(obj, record_id, Level.EDIT)
        # Changing the owner takes more than edit access: full access, or a transfer permission on the object.
        if not self._sharing.can_transfer(obj) and self._is_transfer(obj, record_id, values):
            self.require(obj, record_id, Level.FULL)
        check_row(self._unit, obj, record_id, values)

    def redact_hidden_ids(self, error: PlatformError) -> PlatformError:
        """Return the error without the ids of records that the user may not see."""
        if isinstance(error, DuplicateValue):
            if self._sees(error.details.get("record_id")):
                return error
            # The platform still reports the duplicate, but names neither the field nor the other record.
            text = "duplicate value found: <unknown> duplicates value on record with id: <unknown>"
            return DuplicateValue(text, fields=[], record_id="")
        if isinstance(error, DeleteRestricted) and "child_id" in error.details:
            # Both ids: a cascade may start at a record below the one that the user deletes.
            named = (error.details.get("record_id"), error.details.get("child_id"))
            if not all(self._sees(each) for each in named):
                text = "Your attempt to delete the record could not be completed because of other records"
                return DeleteRestricted(text, fields=[])
        if isinstance(error, ExternalIdAmbiguous):
            found = error.details.get("record_ids")
            ids = [str(each) for each in found] if isinstance(found, list) else []
            seen = [each for each in ids if self._sees(each)]
            if seen != ids:  # still ambiguous, even if the user sees only one of them
                text = error.message.partition("[")[0] + f"[{', '.join(seen)}]"
                return ExternalIdAmbiguous(text, **{**error.details, "record_ids": seen})
        return error

    @contextmanager
    def redacting_hidden_ids(self) -> Iterator[None]:
        """Redact the errors that are raised inside the block."""
        try:
            yield
        except PlatformError as error:
            shown = self.redact_hidden_ids(error)
            if shown is error:
                raise
            raise shown from None  # the cause would carry the hidden ids into logs and responses

    def _sees(self, record_id: object) -> bool:
        # An id without an object, such as an empty one, counts as hidden: redact rather than leak.
        obj = self._unit.catalog.try_object_of_id(str(record_id))
        return obj is not None and self._is_seen(obj, str(record_id))

    def _is_seen(self, obj: ObjectType, record_id: str) -> bool:
        # Sharing alone is not enough: a public object may still be closed to this user by their grants.
        return self._sharing.can_read_object(obj) and self._is_open(obj, record_id, Level.READ)

    def _is_open(self, obj: ObjectType, record_id: str, level: Level) -> bool:
        if self._sharing.condition(obj, level) is None:
            return True
        return bool(self._sharing.filter_accessible(self._unit.tx, obj, [record_id], level))

    def _is_transfer(self, obj: ObjectType, record_id: str, values: Mapping[str, object]) -> bool:
        owner = obj.try_field(OWNER_FIELD)
        # Full access to every record includes transfers, so the stored owner need not be read.
        if owner is None or self._sharing.condition(obj, Level.FULL) is None:
            return False
        for name, value in values.items():
            if name.lower() == OWNER_FIELD.lower():
                # Clients send whole records back: the same owner again, as 15 or 18 characters, is no transfer.
                row = try_read_row(self._unit.tx, obj, record_id) or {}
                return row.get(OWNER_FIELD) != try_normalise_id(str(value))
            # `Owner: {...}` names the owner by a key; resolving it here would cost more than the stricter check.
            if obj.try_field(name) is None and try_lookup(obj, name) is owner:
                return True
        return False

    def _check_reference(self, obj: ObjectType, lookup: Field, target: ObjectType, target_id: str) -> None:
        # READ for a plain lookup; EDIT for a master, whose roll-ups the detail changes; FULL to share the target.
        level = self._sharing.level_to_reference(obj, lookup)
        if not self._is_open(target, target_id, level):
            raise ReferenceForbidden(
                "insufficient access rights on cross-reference id", fields=[lookup.name], entity=obj.name
            )
        if lookup.name == OWNER_FIELD:  # also owners that the unit sets by default
            self._owners.check(obj, target, target_id)


class NewOwners:
    """Checks that new owners may own a record: active users who can read its object, or queues for the object.

    Each owner is checked once per object and unit of work.
    """

    def __init__(self, unit: UnitOfWork) -> None:
        self._unit = unit
        self._fit: set[tuple[str, str]] = set()

    def check(self, obj: ObjectType, target: ObjectType, owner_id: str) -> None:
        """Raise OwnerInactive, OwnerLacksRead or QueueUnfit."""
        if (obj.name, owner_id) in self._fit:
            return
        if target.name == "Group":
            self._check_queue(obj, owner_id)
        elif owner_id != self._unit.user_id:  # the caller is active, and reads what they write
            self._check_user(obj, target, owner_id)
        self._fit.add((obj.name, owner_id))

    def _check_user(self, obj: ObjectType, users: ObjectType, owner_id: str) -> None:
        unit = self._unit
        for user in read_rows(unit.tx, users, "Id", [owner_id]):
            if not user["IsActive"]:
                raise OwnerInactive(
                    f"operation performed with inactive user [{owner_id[:15]}] as owner of {obj.label.lower()}",
                    fields=[OWNER_FIELD],
                    entity=obj.name,
                )
            if not read_permissions(unit.tx, unit.catalog, user).can_read(obj.name):
                raise OwnerLacksRead(
                    "The new owner must have read permission", fields=[OWNER_FIELD], entity=obj.name
                )

    def _check_queue(self, obj: ObjectType, queue_id: str) -> None:
        unit = self._unit
        supported = read_rows(unit.tx, unit.catalog.object("QueueSobject"), "QueueId", [queue_id])
        if obj.name not in {row["SobjectType"] for row in supported}:
            raise QueueUnfit(
                "Queue not associated with this SObject type", fields=[OWNER_FIELD], entity=obj.name
            )
