"""Lookups by a key of the target, such as `{"Account": {"Number__c": "7"}}`, instead of its id."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidewire.errors import ExternalIdAmbiguous, FieldUnknown, ValueMalformed
from tidewire.records.table import find_by_value
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.values import parse_value
from tidewire.storage.store import Transaction

IsSeen = Callable[[ObjectType, str], bool]
"""Returns whether the user may know of a record; others are not found by their keys either."""
_MAX_HOLDERS = 50  # of one key that is not unique


@dataclass(frozen=True, slots=True)
class Reference:
    """The record of `target` that holds `value`, as the caller wrote it, in the field `key`."""

    target: ObjectType
    key: Field
    value: object


def try_lookup(obj: ObjectType, name: str) -> Field | None:
    """Return the lookup whose relationship has this name in any letter case, or None."""
    lowered = name.lower()
    return next(
        (f for f in obj.fields if f.relationship_name and f.relationship_name.lower() == lowered), None
    )


def parse_reference(catalog: Catalog, lookup: Field, name: str, raw: object) -> Reference:
    """What a value under a relationship's name points at. Raises ValueMalformed or FieldUnknown."""
    if not isinstance(raw, Mapping):
        raise ValueMalformed(f"{name} must be an object with one external id", fields=[lookup.name])
    attributes = raw.get("attributes")
    wanted = attributes.get("type") if isinstance(attributes, Mapping) else None
    keys = [key for key in raw if key != "attributes"]
    if len(keys) != 1:
        raise ValueMalformed(f"{name} must have exactly one field, an external id", fields=[lookup.name])
    named = [t for t in lookup.reference_to if not isinstance(wanted, str) or t.lower() == wanted.lower()]
    targets = [t for t in map(catalog.try_object, named) if t is not None]
    for target in targets:
        key = target.try_field(str(keys[0]))
        if key is not None and key.name in target.keys and key.column:
            return Reference(target, key, raw[keys[0]])
    entity = targets[0].name if targets else str(wanted)[:80]
    raise FieldUnknown(
        f"Field name provided, {str(keys[0])[:80]} is not an External ID or indexed field for {entity}",
        field=str(keys[0])[:80],
        entity=entity,
    )


def find_referenced(
    tx: Transaction, reference: Reference, lookup: Field, is_seen: IsSeen | None = None
) -> str:
    """The id of the record pointed at. Raises FieldUnknown if there is none, ExternalIdAmbiguous if several."""
    key = parse_value(reference.key, reference.value)
    found = [] if key is None else find_by_value(tx, reference.target, reference.key, key, _MAX_HOLDERS)
    if is_seen is not None:
        found = [each for each in found if is_seen(reference.target, each)]
    if not found:
        raise FieldUnknown(
            f"Foreign key external ID: {str(reference.value)[:255]} not found for field {reference.key.name}"
            f" in entity {reference.target.name}",
            field=lookup.name,
            entity=reference.target.name,
        )
    if len(found) > 1:
        raise ExternalIdAmbiguous(
            f"{reference.key.name}: more than one record found for external id field: [{', '.join(found)}]",
            fields=[lookup.name],
            entity=reference.target.name,
            record_ids=found,
        )
    return found[0]
