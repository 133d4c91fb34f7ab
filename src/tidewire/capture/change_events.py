"""Change events: a record's change as the Avro event that `/data/...` channels carry.

CREATE and UNDELETE carry every value; UPDATE carries what changed, with LastModifiedDate always among it;
DELETE carries none. The full event is
stored; what a subscriber may not see is cut at delivery.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
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
    uuids = _iter_uuids(len(changes))
    has_persons = catalog.object("Account").try_field("IsPersonAccount") is not None
    stirred = _stirred(changes) if has_persons else frozenset()
    for change in changes:
        if change.entity not in catalog.captured:
            continue
        obj = catalog.object(change.entity)
        if _is_silent(change, obj) and change.record_id not in stirred:
            continue
        topic = change_event_name(change.entity)
        schema = schemas[topic]
        drafts.append(
            EventDraft(
                topic=topic,
                family=Family.CHANGE,
                payload=schema.encode(_value(change, context, obj, schema)),
                created_ms=context.commit_ms,
                schema_id=schema.schema_id,
                event_uuid=next(uuids),
            )
        )
    return drafts


def _is_silent(change: Change, obj: ObjectType) -> bool:
    """Whether an update has nothing to tell: all that changed are stamps, and fields that events do not carry."""
    if change.type is not ChangeType.UPDATE:
        return False
    paths = event_paths(obj)
    return not any(name in paths and name not in AUDIT_STAMPS for name in change.changed)


def _stirred(changes: Sequence[Change]) -> frozenset[Value]:
    """The other halves of persons that were updated: their change is told even if they only have new stamps."""
    halves: set[Value] = set()
    for change in changes:
        is_person = change.after is not None and change.after.get("IsPersonAccount")
        if is_person and change.type is ChangeType.UPDATE and not AUDIT_STAMPS.issuperset(change.changed):
            twin_field = "PersonContactId" if change.entity == "Account" else "AccountId"
            halves.add((change.after or {}).get(twin_field))
    return frozenset(halves)


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


def _iter_uuids(count: int) -> Iterator[str]:
    """Random uuids, version 4. One by one, the random bytes of a large transaction would cost a call each."""
    digits = os.urandom(16 * count).hex()
    for start in range(0, len(digits), 32):
        own = digits[start : start + 32]
        variant = "89ab"[int(own[16], 16) & 3]
        yield f"{own[:8]}-{own[8:12]}-4{own[13:16]}-{variant}{own[17:20]}-{own[20:]}"


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
        names = [name for name, value in row.items() if value is not None and name in paths]
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
            "nulledFields": encode_bitmap(schema, nulled) if nulled else [],
            "diffFields": [],
            "changedFields": encode_bitmap(schema, changed) if changed else [],
        },
        **body,
    }
