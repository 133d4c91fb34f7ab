"""The values of a picklist: listed values are added; `rename`, `replace` and `deactivate` change existing ones.

`rename: {old: new}` renames a value, `replace: {old: other}` removes a value in favour of another one; records change
in the same transaction, as updates that subscribers see. `deactivate: [value]` keeps the value in records but no
longer offers it. Values that the document does not mention stay unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidewire.crm import persons
from tidewire.events import Value
from tidewire.gate.definitions.custom_fields import value_name
from tidewire.gate.definitions.document import reject, text_list, text_map
from tidewire.gate.definitions.plan import Step
from tidewire.records.conversion import iter_values
from tidewire.records.table import try_read_row, update_row
from tidewire.records.work import UnitOfWork
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, ObjectType, PicklistValue

_CHANGE_KEYS = ("rename", "replace", "deactivate")


@dataclass(frozen=True, slots=True)
class ValueChanges:
    """The changes to existing values in the definition of a field."""

    rename: Mapping[str, str] = field(default_factory=dict)
    replace: Mapping[str, str] = field(default_factory=dict)
    deactivate: frozenset[str] = frozenset()

    @property
    def moves(self) -> dict[str, str]:
        """Each old value with the value that records get instead."""
        return {**self.rename, **self.replace}


def moved_value(value_changes: ValueChanges, value: str) -> str:
    """Return the new value of a field or default after the changes; several values are joined by `;`."""
    return ";".join(dict.fromkeys(value_changes.moves.get(part, part) for part in value.split(";")))


def split_value_changes(spec: Mapping[str, Any], path: str) -> tuple[dict[str, Any], ValueChanges]:
    """Split the spec of a field into the spec without value changes, and the value changes."""
    plain = {key: value for key, value in spec.items() if key not in _CHANGE_KEYS}
    value_changes = ValueChanges(
        text_map(spec.get("rename"), f"{path}.rename"),
        text_map(spec.get("replace"), f"{path}.replace"),
        frozenset(text_list(spec.get("deactivate"), f"{path}.deactivate")),
    )
    values = spec.get("values")
    listed = [value_name(item) for item in values] if isinstance(values, list | tuple) else []
    for old in (*value_changes.moves, *value_changes.deactivate):
        if old in listed:
            reject(path, f"the value {old} is both listed and renamed, replaced or deactivated")
    return plain, value_changes


def merge_values(
    stored: Field,
    wanted: tuple[PicklistValue, ...],
    labels: Mapping[str, str],
    value_changes: ValueChanges,
    default: object,
    path: str,
) -> tuple[PicklistValue, ...]:
    """Return the list after the change: the wanted values in their order, then the others.

    `labels` are those that the document sets; other values keep theirs.
    """
    held = {v.value: v for v in stored.picklist}
    for old, new in value_changes.rename.items():
        if old not in held:
            continue
        if new in held:
            reject(f"{path}.rename.{old}", f"{new} exists already; use `replace`")
        named = held[old]
        label = new if named.label == old else named.label
        renamed = replace(named, value=new, label=label)
        held = {(new if k == old else k): (renamed if k == old else v) for k, v in held.items()}
    for old in value_changes.replace:
        held.pop(old, None)
    merged: dict[str, PicklistValue] = {}
    for value in wanted:
        known = held.pop(value.value, None)
        if known is None:
            merged[value.value] = value
        else:
            label = labels.get(value.value, known.label)
            merged[value.value] = replace(known, label=label, is_active=True)
    merged |= held
    for retired in value_changes.deactivate & merged.keys():
        merged[retired] = replace(merged[retired], is_active=False)
    missing = [new for new in value_changes.moves.values() if new not in merged and stored.picklist]
    if missing and any(old in {v.value for v in stored.picklist} for old in value_changes.moves):
        reject(path, f"{missing[0]} is not a value of the picklist")
    chosen = str(default).split(";") if default is not None else []
    return tuple(replace(v, is_default=v.value in chosen) for v in merged.values())


def value_steps(
    unit: UnitOfWork, obj: ObjectType, old: Field, new: Field, value_changes: ValueChanges
) -> list[Step]:
    """Return a step for each value that is added, renamed, replaced, activated or deactivated.

    Steps update records as `obj`, whose field has the new list in its old column.
    """
    where = f"{obj.name}.{old.name}"
    before = {v.value: v for v in old.picklist}
    after = {v.value: v for v in new.picklist}
    steps: list[Step] = []
    for word, moves in (("rename", value_changes.rename), ("replace", value_changes.replace)):
        for gone, kept in moves.items():
            affected = _holders(unit, obj, old, gone, kept)
            if gone in before or affected:
                line = f"{word} value {gone} of {where} by {kept} ({len(affected)} records)"
                steps.append(Step(line, _mover(unit, obj, new.name, affected, is_rename=word == "rename")))
    moved = set(value_changes.rename.values())
    for value in after:
        if value not in before and value not in moved:
            steps.append(Step(f"add value {value} to {where}", _nothing))
        elif value in before and before[value].is_active != after[value].is_active:
            word = "activate" if after[value].is_active else "deactivate"
            steps.append(Step(f"{word} value {value} of {where}", _nothing))
        if value in before and before[value].label != after[value].label:
            steps.append(Step(f"label value {value} of {where} as {after[value].label}", _nothing))
    order = [v for v in after if v in before]
    if not steps and order != [v for v in before if v in after]:
        steps.append(Step(f"reorder the values of {where}", _nothing))
    return steps


def _holders(unit: UnitOfWork, obj: ObjectType, field_: Field, gone: str, kept: str) -> list[tuple[str, str]]:
    """Return the records with a value, each with its new value."""
    found: list[tuple[str, str]] = []
    for record_id, value in iter_values(unit.tx, obj, field_):
        if field_.type is FieldType.PICKLIST:
            if value == gone:
                found.append((record_id, kept))
            continue
        if gone in str(value).split(";"):
            found.append((record_id, moved_value(ValueChanges({gone: kept}), str(value))))
    return found


def _mover(
    unit: UnitOfWork, obj: ObjectType, name: str, affected: list[tuple[str, str]], *, is_rename: bool
) -> Callable[[], None]:
    def run() -> None:
        for record_id, value in affected:
            row = try_read_row(unit.tx, obj, record_id)
            if row is None:
                continue
            if row.get("IsDeleted"):
                # No events for the recycle bin, but a restored record must fit the list.
                update_row(unit.tx, obj, record_id, {name: value})
                continue
            # Not a user's update, which would be rejected for a converted lead or an activated order.
            unit.store(obj, row, {name: value})
            if is_rename:
                _keep_others(unit, obj, row, name)
            if obj.name == "Contact" and persons.is_person(obj, row):
                _follow_person(unit, obj, row, name, value)

    return run


def _keep_others(unit: UnitOfWork, obj: ObjectType, before: Mapping[str, Value], name: str) -> None:
    """Restore fields that the new name of a stage reset, such as Probability: a renamed stage is the same stage."""
    row = try_read_row(unit.tx, obj, str(before["Id"]))
    if row is None:
        return
    fields = [f for f in obj.stored_fields if not (f.is_system or f.formula or f.roll_up)]
    own = [f.name for f in fields if f.name != name]
    lost = {n: before[n] for n in own if row.get(n) != before.get(n)}
    if lost:
        unit.store(obj, row, lost)


def _follow_person(unit: UnitOfWork, obj: ObjectType, row: dict[str, Value], name: str, value: str) -> None:
    """Copy the value to the account of a person; only the contact publishes a change event, as the guide says."""
    account, account_id = persons.twin_of(unit.catalog, obj, row)
    values = persons.twin_values(unit.catalog, obj, row | {name: value}, [name])
    if values:
        update_row(unit.tx, account, account_id, values)


def _nothing() -> None:
    """No-op: the new list is stored with the field."""
