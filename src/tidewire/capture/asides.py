"""Asides: what subscribers learn of changes that no record's own change event can tell.

A conversion that loses a field's values is one change event for all records of the object; a picklist that becomes
a checkbox or takes several values is a gap event for the records that had one; other conversions are not told. A
contact's field that person accounts have too is told of both. What is done below the API is told by gap events alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tidewire.events import Aside, Change, ChangeType
from tidewire.records.conversion import ConversionEffect, ConversionNote, iter_values
from tidewire.records.persons import has_person_accounts, shared_fields
from tidewire.schema.catalog import Catalog
from tidewire.storage.store import Transaction

_MOST_HELD = 5000  # ids of one kind, as many as one event may name


def asides_of(note: ConversionNote, tx: Transaction, catalog: Catalog) -> list[Aside]:
    """What a converted field is told by, if it is; of a contact's, also what its person accounts are told by."""
    notes = [note]
    account, contact = catalog.object("Account"), catalog.object("Contact")
    if note.entity == contact.name and has_person_accounts(account):
        held = frozenset(note.record_ids)
        links = iter_values(tx, account, account.by_name["personcontactid"], include_deleted=False)
        persons = tuple(i for i, contact_id in links if contact_id in held) if held else ()
        notes += [
            replace(note, entity=account.name, field=own, record_ids=persons)
            for own, other in shared_fields(account, contact).items()
            if other == note.field
        ]
    found = (_try_aside(each) for each in notes)
    return [aside for aside in found if aside is not None]


def _try_aside(note: ConversionNote) -> Aside | None:
    if note.effect is ConversionEffect.WILDCARD:
        return Aside(note.entity, ChangeType.UPDATE, (), lost_field=note.field)
    if note.effect is ConversionEffect.GAP and note.record_ids:
        return Aside(note.entity, ChangeType.UPDATE, note.record_ids)
    return None


def told_below(changes: Iterable[Change], transaction_key: str) -> Iterator[Aside]:
    """The changes of a transaction below the API, an aside for each kind, or for each few thousand of a kind, in the
    order of the first of them.
    """
    kinds: dict[tuple[str, ChangeType], list[str]] = {}
    for change in changes:
        ids = kinds.setdefault((change.entity, change.type), [])
        ids.append(change.record_id)
        if len(ids) >= _MOST_HELD:
            yield Aside(change.entity, change.type, tuple(ids), transaction_key=transaction_key)
            ids.clear()
    for (entity, change_type), ids in kinds.items():
        if ids:
            yield Aside(entity, change_type, tuple(ids), transaction_key=transaction_key)
