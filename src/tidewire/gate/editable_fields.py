"""Field security for writes: which submitted values the user may set.

A lookup may be submitted as `{"Account": {"Number__c": "7"}}` instead of an id. Success or failure tells something
about that account, so the user must be able to read both the target object and the key field.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidewire.access.grants import Grants
from tidewire.errors import FieldUnknown
from tidewire.records.references import parse_reference, try_lookup
from tidewire.records.submitted import not_writeable
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType


def check_editable(catalog: Catalog, obj: ObjectType, grants: Grants, values: Mapping[str, object]) -> None:
    """Raise FieldUnknown for fields that the user may not see, FieldNotWriteable for those they may not set.

    Names that the object lacks are left to the store, which rejects them with the same message.
    """
    rejected = []
    for name, raw in values.items():
        field = obj.try_field(name) or try_lookup(obj, name)
        if field is None:
            continue
        if not grants.can_read_field(obj, field):
            raise unknown_column(name, obj)
        if not grants.can_edit_field(obj, field):
            rejected.append(field.name)
        elif obj.try_field(name) is None and raw is not None:
            reference = parse_reference(catalog, field, name, raw)
            target = reference.target
            if not grants.can_read(target.name) or not grants.can_read_field(target, reference.key):
                raise unknown_column(reference.key.name, target)
    if rejected:
        raise not_writeable(rejected)


def unknown_column(name: str, obj: ObjectType) -> FieldUnknown:
    """Return the error for a field that the object lacks or the user may not see."""
    return FieldUnknown(f"No such column '{name}' on sobject of type {obj.name}", field=name, entity=obj.name)
