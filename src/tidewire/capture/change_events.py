"""Change events: a record's change as the Avro event that `/data/...` channels carry.

CREATE and UNDELETE carry every value; UPDATE carries what changed, with LastModifiedDate always among it;
DELETE carries none. The full event is
stored; what a subscriber may not see is cut at delivery.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from functools import lru_cache

from tidewire.events import Change, ChangeType, CommitContext, EventDraft, Family, Value
from tidewire.names import change_event_name
from tidewire.schema.bitmap import encode_bitmap
from tidewire.schema.catalog import Catalog
from tidewire.schema.codec import EventSchema
from tidewire.schema.model import ObjectType

AUDIT_STAMPS = frozenset({"LastModifiedDate", "LastModifiedById", "SystemModstamp"})
"""Fields that every save touches; alone they are no change worth telling."""


def change_events(
    changes: Sequence[Change], context: CommitContext, catalog: Catalog, schemas: Mapping[str, EventSchema]
) -> list[EventDraft]:
    """The change events of one transaction, in order, for the objects that are selected."""
    drafts = []
    for change in changes:
        if change.entity not in catalog.captured:
            continue
        if change.type is ChangeType.UPDATE and AUDIT_STAMPS.issuperset(change.changed):
            continue
        topic = change_event_name(change.entity)
        schema = schemas[topic]
        obj = catalog.object(change.entity)
        drafts.append(
            EventDraft(
                topic=topic,
                family=Family.CHANGE,
                payload=schema.encode(_value(change, context, obj, schema)),
                created_ms=context.commit_ms,
                schema_id=schema.schema_id,
                event_uuid=str(uuid.uuid4()),
            )
        )
    return drafts


@lru_cache(maxsize=1024)
def event_paths(obj: ObjectType) -> dict[str, tuple[str, str]]:
    """Where each stored field stands in the object's change events: its top-level name, and its part of a
    compound.
    """
    return {
        f.name: (f.compound, f.component) if f.compound else (f.name, "")
        for f in obj.stored_fields
        if f.in_change_events and not f.is_compound  # a stored Name only repeats its parts
    }


def _value(change: Change, context: CommitContext, obj: ObjectType, schema: EventSchema) -> dict[str, object]:
    paths = event_paths(obj)
    changed: list[str] = []
    nulled: list[str] = []
    body: dict[str, Value | dict[str, Value]] = {}
    row = change.after or {}
    if change.type is ChangeType.UPDATE:
        names = [n for n in change.changed if n in paths and n != "LastModifiedDate"]
        # A lead that is converted is the one update whose event does not tell when.
        if "LastModifiedDate" in paths and not (change.entity == "Lead" and "IsConverted" in change.changed):
            names.append("LastModifiedDate")
        for name in names:
            top, part = paths[name]
            path = f"{top}.{part}" if part else top
            changed.append(path)
            if row[name] is None:
                nulled.append(path)
    elif change.type is ChangeType.DELETE:
        names = []
    else:
        names = [n for n in paths if row.get(n) is not None]
    for name in names:
        top, part = paths[name]
        if not part:
            body[top] = row[name]
            continue
        compound = body.setdefault(top, {})
        if isinstance(compound, dict):
            compound[part] = row[name]
    return {
        "ChangeEventHeader": {
            "entityName": change.entity,
            "recordIds": [change.record_id],
            "changeType": change.type.value,
            "changeOrigin": context.origin,
            "transactionKey": context.transaction_key,
            "sequenceNumber": change.sequence,
            "commitTimestamp": context.commit_ms,
            "commitNumber": context.commit_number,
            "commitUser": context.user_id,
            "nulledFields": encode_bitmap(schema, nulled),
            "diffFields": [],
            "changedFields": encode_bitmap(schema, changed),
        },
        **body,
    }
