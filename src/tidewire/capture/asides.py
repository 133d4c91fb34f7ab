"""Asides: what subscribers learn of changes that no record's own change event can tell.

A conversion that loses a field's values is one change event for all records of the object; a picklist that becomes
a checkbox or takes several values is a gap event for the records that had one; other conversions are not told. What
is done below the API is told by gap events alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidewire.events import Aside, Change, ChangeType
from tidewire.records.conversion import ConversionEffect, ConversionNote


def try_aside(note: ConversionNote) -> Aside | None:
    """What a converted field is told by, if it is."""
    if note.effect is ConversionEffect.WILDCARD:
        return Aside(note.entity, ChangeType.UPDATE, (), lost_field=note.field)
    if note.effect is ConversionEffect.GAP and note.record_ids:
        return Aside(note.entity, ChangeType.UPDATE, note.record_ids)
    return None


def told_below(changes: Iterable[Change], transaction_key: str) -> list[Aside]:
    """The changes of a transaction below the API, one aside for each kind, in the order of the first of them."""
    kinds: dict[tuple[str, ChangeType], list[str]] = {}
    for change in changes:
        kinds.setdefault((change.entity, change.type), []).append(change.record_id)
    return [
        Aside(entity, change_type, tuple(ids), transaction_key=transaction_key)
        for (entity, change_type), ids in kinds.items()
    ]
