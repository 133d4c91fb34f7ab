"""Derived fields: check formulas and roll-ups, and compute them for existing records."""

from __future__ import annotations

from collections.abc import Iterable

from tidewire.events import Value
from tidewire.records.conversion import iter_values
from tidewire.records.derived import check_formulas, compute_derived
from tidewire.records.rollups import check_roll_ups, compute_roll_up
from tidewire.records.table import try_read_row, update_row
from tidewire.records.work import UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType

# A roll-up may summarise a roll-up, as deep as master-detail relationships go.
_LEVELS = 3


def check_derived(catalog: Catalog, objects: Iterable[ObjectType]) -> None:
    """Reject formulas and roll-ups that refer to missing fields or have the wrong type."""
    for obj in objects:
        check_formulas(obj)
    for obj in catalog.objects:
        check_roll_ups(catalog, obj)


def fill_derived(unit: UnitOfWork, entities: Iterable[str]) -> None:
    """Compute formulas, roll-ups and status flags of every record of these objects.

    Publishes no events: no user changed these records.
    """
    wanted = list(entities)
    for _ in range(_LEVELS):
        changed = [entity for entity in wanted if _fill(unit, unit.catalog.object(entity))]
        if not changed:
            return


def _fill(unit: UnitOfWork, obj: ObjectType) -> bool:
    """Compute the records of one object; returns whether any changed."""
    has_changed = False
    rule = unit.rules.rules_of(obj).derived
    roll_ups = [f for f in obj.fields if f.roll_up is not None]
    for record_id, _ in iter_values(unit.tx, obj, obj.by_name["id"]):
        row = try_read_row(unit.tx, obj, record_id)
        if row is None:
            continue
        values: dict[str, Value] = {
            f.name: compute_roll_up(unit.tx, unit.catalog, obj, f, record_id, unit.rules) for f in roll_ups
        }
        values |= compute_derived(obj, row | values, unit.now_ms, row, rule)
        changed = {name: value for name, value in values.items() if row.get(name) != value}
        if changed:
            update_row(unit.tx, obj, record_id, changed)
            has_changed = True
    return has_changed
