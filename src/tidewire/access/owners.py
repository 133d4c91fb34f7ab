"""Who may be given a record: an active user who can read its object, or a queue that is meant for it."""

from __future__ import annotations

from tidewire.access.grants import read_permissions
from tidewire.errors import OwnerInactive, OwnerLacksRead, QueueUnfit
from tidewire.records.table import read_rows
from tidewire.records.work import UnitOfWork
from tidewire.schema.model import ObjectType

OWNER_FIELD = "OwnerId"


class NewOwners:
    """The owners that one unit of work gives records to; each is looked at once for each object."""

    def __init__(self, unit: UnitOfWork) -> None:
        self._unit = unit
        self._fit: set[tuple[str, str]] = set()

    def check(self, obj: ObjectType, target: ObjectType, owner_id: str) -> None:
        """Raise OwnerInactive, OwnerLacksRead or QueueUnfit."""
        if (obj.name, owner_id) in self._fit:
            return
        if target.name == "Group":
            self._check_queue(obj, owner_id)
        elif owner_id != self._unit.user_id:  # who writes is active, and reads what they write
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
