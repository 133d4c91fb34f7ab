"""Which values of a write the user may set: the fields themselves, and lookups named by their target's key.

A lookup may be given as `{"Account": {"Number__c": "7"}}` instead of an id. What that says about records must not
reach somebody who may not read them, so both the object and the key field have to be readable.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidewire.access.grants import Grants
from tidewire.errors import FieldUnknown
from tidewire.records.given import not_writeable
from tidewire.records.references import parse_reference, try_lookup
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType


def check_editable(catalog: Catalog, obj: ObjectType, grants: Grants, values: Mapping[str, object]) -> None:
    """Raise FieldUnknown for what the user may not see, FieldNotWriteable for what they may not set.

    A name that the object does not have is left to the store, which refuses it in the same words.
    """
    refused = []
    for name, raw in values.items():
        field = obj.try_field(name) or try_lookup(obj, name)
        if field is None:
            continue
        if not grants.can_read_field(obj, field):
            raise unknown_column(name, obj)
        if not grants.can_edit_field(obj, field):
            refused.append(field.name)
        elif obj.try_field(name) is None and raw is not None:
            reference = parse_reference(catalog, field, name, raw)
            target = reference.target
            if not grants.can_read(target.name) or not grants.can_read_field(target, reference.key):
                raise unknown_column(reference.key.name, target)
    if refused:
        raise not_writeable(refused)


def unknown_column(name: str, obj: ObjectType) -> FieldUnknown:
    """The refusal of a field that the object does not have, or that the user may not see."""
    return FieldUnknown(f"No such column '{name}' on sobject of type {obj.name}", field=name, entity=obj.name)
