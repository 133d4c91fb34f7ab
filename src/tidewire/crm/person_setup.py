"""Enabling person accounts, which cannot be disabled again."""

from __future__ import annotations

from dataclasses import replace

from tidewire.records.conversion import fill_column
from tidewire.records.types import Types
from tidewire.records.work import UnitOfWork
from tidewire.schema.field_types import FieldType
from tidewire.schema.standard.people import PERSON_OBJECTS, has_person_accounts


def ensure_person_accounts(unit: UnitOfWork, types: Types) -> None:
    """Add the fields of person accounts to Account, Contact and Lead, and create their record type.

    Afterwards `unit.catalog` is the new catalog. The caller changes the org's settings.
    """
    if has_person_accounts(unit.catalog.object("Account")):
        return
    grown = []
    for obj in PERSON_OBJECTS:
        held = unit.catalog.object(obj.name)
        # The org's own fields, and what it has changed about standard ones, stay as they are.
        own = {f.name: f for f in held.fields}
        fields = [replace(own.pop(f.name, f), required=f.required) for f in obj.fields]
        grown.append(replace(held, fields=(*fields, *own.values())))
    unit.tx.progress.access_generation += 1  # there is more to see now
    unit.catalog = types.change(unit.tx, objects=grown, base=unit.catalog)
    for obj, held in zip(PERSON_OBJECTS, grown, strict=True):
        for field in obj.fields:
            if field.type is FieldType.CHECKBOX and field.name.startswith(("Person", "IsPerson")):
                fill_column(unit.tx, held, field, False)
    unit.create(
        unit.catalog.object("RecordType"),
        {
            "Name": "Person Account",
            "DeveloperName": "PersonAccount",
            "SobjectType": "Account",
            "IsPersonType": True,
        },
    )
