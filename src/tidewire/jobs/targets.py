"""What a job that writes is about: an object, or a platform event that its rows are published as."""

from __future__ import annotations

from tidewire.access.principal import Principal
from tidewire.errors import ObjectUnknown, TopicUnknown
from tidewire.gate.publishing import event_object, publishable_event
from tidewire.gate.records import Gate
from tidewire.jobs.model import Operation
from tidewire.schema.model import ObjectType


async def open_target(
    gate: Gate, principal: Principal, entity: str, operation: Operation
) -> tuple[ObjectType, frozenset[str]]:
    """The object, with the names of its fields that the user may name. Of an event that is to be published it is an
    object whose records would be the events.

    Raises ObjectUnknown, AccessDenied, or OperationUnsupported for what cannot be done with an event.
    """
    if operation is Operation.INSERT and gate.catalog.try_any_event(entity) is not None:
        try:
            event = publishable_event(gate.records.types, await gate.grants(principal), entity)
        except TopicUnknown as error:
            raise ObjectUnknown(f"sObject type '{entity}' is not supported.", entity=entity) from error
        return event_object(event), frozenset(f.name for f in event.fields)
    obj, readable, _ = await gate.visible_fields(principal, entity)
    return obj, readable
