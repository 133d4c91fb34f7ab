"""Untracked changes: field conversions and changes below the API, which have no change event per record.

A conversion that loses a field's values becomes one change event for all records of the object. A picklist that
becomes a checkbox or a multi-select picklist becomes a gap event for the records that had a value. Other conversions
have no event. A contact field that person accounts share is reported for both objects. Changes made below the API
become gap events only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidewire.crm.person_fields import conversions_on_accounts
from tidewire.events import Change, ChangeType, UntrackedChange
from tidewire.records.conversion import ConversionEffect, ConversionNote
from tidewire.schema.catalog import Catalog
from tidewire.storage.store import Transaction

_MAX_IDS = 5000  # record ids that one event may name


def untracked_changes_of(note: ConversionNote, tx: Transaction, catalog: Catalog) -> list[UntrackedChange]:
    """Return the untracked changes of a converted field, including those of person accounts for a contact's field."""
    found = (_try_untracked(each) for each in (note, *conversions_on_accounts(tx, catalog, note)))
    return [untracked for untracked in found if untracked is not None]


def _try_untracked(note: ConversionNote) -> UntrackedChange | None:
    if note.effect is ConversionEffect.WILDCARD:
        return UntrackedChange(note.entity, ChangeType.UPDATE, (), lost_field=note.field)
    if note.effect is ConversionEffect.GAP and note.record_ids:
        return UntrackedChange(note.entity, ChangeType.UPDATE, note.record_ids)
    return None


def group_untracked(changes: Iterable[Change], transaction_key: str) -> Iterator[UntrackedChange]:
    """Group changes made below the API by object and type, in order of first appearance, `_MAX_IDS` at a time."""
    kinds: dict[tuple[str, ChangeType], list[str]] = {}
    for change in changes:
        ids = kinds.setdefault((change.entity, change.type), [])
        ids.append(change.record_id)
        if len(ids) >= _MAX_IDS:
            yield UntrackedChange(change.entity, change.type, tuple(ids), transaction_key=transaction_key)
            ids.clear()
    for (entity, change_type), ids in kinds.items():
        if ids:
            yield UntrackedChange(entity, change_type, tuple(ids), transaction_key=transaction_key)
