"""Roll-up summaries of child records, and the summary fields of standard objects.

They are computed again from the children rather than by differences: one indexed read per parent and field,
and no way to drift. A parent whose roll-up changes may itself be a child, so the work continues upward.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from tidewire.errors import DefinitionInvalid, RequestError
from tidewire.events import Value
from tidewire.records.derived import compute_derived, fit_number
from tidewire.records.object_rules import FlushUnit, RecordRules
from tidewire.records.table import try_read_row
from tidewire.schema.catalog import Catalog
from tidewire.schema.field_types import DATE_TYPES, NUMBER_TYPES, FieldType
from tidewire.schema.model import FILTER_OPERATORS, ROLL_UP_FUNCTIONS, Field, ObjectType, RollUp
from tidewire.schema.text_keys import fold_key
from tidewire.schema.values import parse_value
from tidewire.storage.store import Reader, Transaction

Row = Mapping[str, Value]
Touched = tuple[str, Row | None, Row | None]
"""An entity and one of its records before and after; None where there was or is no living record."""

# Master-detail goes at most three levels deep; a definition that goes round must not hold up the writer.
_MAX_LEVELS = 10
_PAGE = 1000  # records that are looked at together
_MAX_DONE = 10_000  # parents that are remembered


@dataclass(frozen=True, slots=True)
class _Rule:
    """A roll-up as its children see it: `inputs` are those of their fields that it depends on."""

    parent: str
    field: Field
    child_field: str
    inputs: frozenset[str]


def apply_roll_ups(unit: FlushUnit) -> None:
    """Update the roll-ups of all parents after the changes of a unit of work.

    Called once, after the last statement, with everything that the unit changed. Formulas over a roll-up are
    computed with it.
    """
    written = iter(unit.touched(_rolled_entities(unit.catalog.objects, unit.rules)))
    done: dict[tuple[str, str], tuple[Field, ...]] = {}
    while page := list(islice(written, _PAGE)):
        parents = affected_parents(unit.catalog, page, unit.rules)
        _apply(unit, {parent: fields for parent, fields in parents.items() if done.get(parent) != fields})
        # All is written already, so nothing would come of counting for the same parent again.
        done |= parents
        if len(done) > _MAX_DONE:
            done.clear()


def _apply(unit: FlushUnit, parents: Mapping[tuple[str, str], tuple[Field, ...]]) -> None:
    for _ in range(_MAX_LEVELS):
        touched = [
            change
            for (entity, record_id), fields in parents.items()
            if (change := _refresh(unit, unit.catalog.object(entity), record_id, fields)) is not None
        ]
        if not touched:
            return
        parents = affected_parents(unit.catalog, touched, unit.rules)


def affected_parents(
    catalog: Catalog, changes: Iterable[Touched], rules: RecordRules
) -> dict[tuple[str, str], tuple[Field, ...]]:
    """The parents, as entity and id, whose roll-ups may differ after these changes, and which roll-ups."""
    found: dict[tuple[str, str], dict[str, Field]] = {}
    by_child = _by_child(catalog.objects, rules)
    for entity, before, after in changes:
        old, new = _living(before), _living(after)
        if before is not None and old is None and new is not None:
            # Back from the recycle bin: some of its children may be gone for good meanwhile.
            for field in _by_parent(catalog.objects, rules).get(entity, ()):
                found.setdefault((entity, str(new["Id"])), {})[field.name] = field
        for rule in by_child.get(entity, ()):
            if old is not None and new is not None and all(old.get(n) == new.get(n) for n in rule.inputs):
                continue
            for row in (old, new):
                master = None if row is None else row.get(rule.child_field)
                if master is not None:
                    found.setdefault((rule.parent, str(master)), {})[rule.field.name] = rule.field
    return {parent: tuple(fields.values()) for parent, fields in found.items()}


def compute_roll_up(
    reader: Reader | Transaction,
    catalog: Catalog,
    parent: ObjectType,
    field: Field,
    parent_id: str,
    rules: RecordRules,
) -> Value:
    """Compute the roll-up `field` of one parent from its living children."""
    roll_up = rules.roll_up_of(parent, field)
    if roll_up is None:
        path = f"{parent.name}.{field.name}"
        raise DefinitionInvalid(f"{path} is not a roll-up", path=path)
    child = catalog.object(roll_up.child)
    master = child.by_name[roll_up.child_field.lower()]
    conditions = [f"{master.column} = ?"]
    values: list[Value] = [parent_id]
    deleted = child.try_field("IsDeleted")
    if deleted is not None and deleted.column:
        conditions.append(f"{deleted.column} = 0")
    for name, operator, literal in roll_up.filters:
        tested = child.by_name[name.lower()]
        conditions.append(_condition(tested, operator, parse_literal(tested, literal), values))
    if roll_up.function == "COUNT":
        counted = "COUNT(*)"
    else:
        word = ROLL_UP_FUNCTIONS[ROLL_UP_FUNCTIONS.index(roll_up.function)]
        counted = f"{word}({child.by_name[roll_up.summed_field.lower()].column})"
    # Names come from the catalog, words from this module.
    sql = f"SELECT {counted} FROM {child.table} WHERE {' AND '.join(conditions)}"  # noqa: S608
    ((found,),) = reader.execute(sql, values)
    if field.type in NUMBER_TYPES:
        if found is None:
            is_sum = roll_up.function == "SUM" and (parent.name, field.name) not in rules.set_by_hand
            return fit_number(field, 0) if is_sum else None
        return fit_number(field, found if isinstance(found, int) else float(found))
    if field.type is FieldType.CHECKBOX:
        return bool(found)
    return None if found is None else int(found)


def check_roll_ups(catalog: Catalog, obj: ObjectType) -> None:
    """Refuse, with DefinitionInvalid, an object with a roll-up that its children cannot answer."""
    for field in obj.fields:
        if field.roll_up is not None:
            reason = _fault(catalog, obj, field, field.roll_up)
            if reason:
                path = f"{obj.name}.{field.name}"
                raise DefinitionInvalid(f"{path}: {reason}", path=path)


def _fault(catalog: Catalog, obj: ObjectType, field: Field, roll_up: RollUp) -> str:
    child = catalog.try_object(roll_up.child)
    if child is None:
        return f"there is no object {roll_up.child}"
    master = child.try_field(roll_up.child_field)
    if master is None or not master.is_master_detail or obj.name not in master.reference_to:
        return f"{child.name}.{roll_up.child_field} is no master-detail field to {obj.name}"
    if roll_up.function not in ROLL_UP_FUNCTIONS:
        return f"the function of a roll-up is one of {', '.join(ROLL_UP_FUNCTIONS)}"
    if roll_up.function != "COUNT":
        summed = child.try_field(roll_up.summed_field)
        if summed is None or not summed.column:
            return f"{child.name} has no field {roll_up.summed_field or 'to add up'}"
        is_number = summed.type in NUMBER_TYPES and field.type in NUMBER_TYPES
        is_date = roll_up.function != "SUM" and summed.type in DATE_TYPES and summed.type is field.type
        if not (is_number or is_date):
            return f"{roll_up.function} of {child.name}.{summed.name} does not fit type {field.type.value}"
    elif field.type not in NUMBER_TYPES:
        return f"a COUNT does not fit type {field.type.value}"
    return _filter_fault(child, roll_up)


def _filter_fault(child: ObjectType, roll_up: RollUp) -> str:
    for name, operator, literal in roll_up.filters:
        tested = child.try_field(name)
        if tested is None or not tested.column or not tested.is_filterable:
            return f"{child.name} has no field {name} to filter by"
        if operator not in FILTER_OPERATORS:
            return f"the operator of a filter is one of {' '.join(FILTER_OPERATORS)}"
        try:
            value = parse_literal(tested, literal)
        except RequestError as error:
            return f"filter on {name}: {error.message}"
        if operator not in ("=", "!=") and (value is None or tested.type is FieldType.CHECKBOX):
            return f"filter on {name}: nothing is less or more than that"
    return ""


def _refresh(unit: FlushUnit, obj: ObjectType, record_id: str, fields: Sequence[Field]) -> Touched | None:
    """Compute and store the roll-ups of one parent; return the change, or None if nothing differs."""
    before = try_read_row(unit.tx, obj, record_id)
    if before is None or before.get("IsDeleted"):
        return None
    values = {f.name: compute_roll_up(unit.tx, unit.catalog, obj, f, record_id, unit.rules) for f in fields}
    values = {n: v for n, v in values.items() if v is not None or (obj.name, n) not in unit.rules.set_by_hand}
    if all(before.get(name) == value for name, value in values.items()):
        return None
    values |= compute_derived(obj, before | values, unit.now_ms, before, unit.rules.rules_of(obj).derived)
    unit.store_derived(obj, record_id, values)
    return obj.name, before, before | values


def _condition(field: Field, operator: str, value: Value, values: list[Value]) -> str:
    """Render a filter as SQL and append its value to `values`; null differs from every value, as in queries."""
    column = field.key_column if field.is_text else field.column
    if field.type is FieldType.CHECKBOX:
        is_true = bool(value) is (operator == "=")
        return f"{column} = 1" if is_true else f"({column} IS NULL OR {column} = 0)"
    if value is None:
        return f"{column} IS {'' if operator == '=' else 'NOT '}NULL"
    if field.is_text:
        value = fold_key(str(value), case_sensitive=field.case_sensitive)
    values.append(value)
    if operator == "!=":
        return f"({column} IS NULL OR {column} <> ?)"
    # The word is taken from our own list, so that no byte of a definition reaches the SQL.
    return f"{column} {FILTER_OPERATORS[FILTER_OPERATORS.index(operator)]} ?"


def parse_literal(field: Field, literal: object) -> Value:
    """Parse the literal of a filter. Raises errors of `parse_value`."""
    # A picklist may lose a value that a filter still asks for, so text is not held against the choices.
    if field.is_text and isinstance(literal, str):
        return literal.strip() or None
    return parse_value(field, literal)


def _living(row: Row | None) -> Row | None:
    return None if row is None or row.get("IsDeleted") else row


@lru_cache(maxsize=16)
def _rolled_entities(objects: tuple[ObjectType, ...], rules: RecordRules) -> frozenset[str]:
    """Return the entities on either side of a roll-up."""
    return frozenset(_by_child(objects, rules)) | frozenset(_by_parent(objects, rules))


def counted_entities(objects: tuple[ObjectType, ...], rules: RecordRules) -> frozenset[str]:
    """Return the entities whose records some roll-up counts."""
    return frozenset(_by_child(objects, rules))


@lru_cache(maxsize=16)
def _by_child(objects: tuple[ObjectType, ...], rules: RecordRules) -> dict[str, tuple[_Rule, ...]]:
    """Return every roll-up, by the entity whose records it counts."""
    children = {obj.name.lower(): obj for obj in objects}
    found: dict[str, list[_Rule]] = {}
    for obj in objects:
        for field in obj.fields:
            roll_up = rules.roll_up_of(obj, field)
            child = None if roll_up is None else children.get(roll_up.child.lower())
            if roll_up is not None and child is not None and child.try_field(roll_up.child_field):
                found.setdefault(child.name, []).append(_rule(obj, field, roll_up, child))
    return {entity: tuple(found_rules) for entity, found_rules in found.items()}


@lru_cache(maxsize=16)
def _by_parent(objects: tuple[ObjectType, ...], rules: RecordRules) -> dict[str, tuple[Field, ...]]:
    """Return the fields that hold roll-ups, by the entity that has them."""
    found: dict[str, list[Field]] = {}
    for of_child in _by_child(objects, rules).values():
        for rule in of_child:
            found.setdefault(rule.parent, []).append(rule.field)
    return {entity: tuple(fields) for entity, fields in found.items()}


def _rule(parent: ObjectType, field: Field, roll_up: RollUp, child: ObjectType) -> _Rule:
    named = (roll_up.child_field, roll_up.summed_field, *(name for name, _, _ in roll_up.filters))
    inputs = frozenset(known.name for name in named if (known := child.try_field(name)) is not None)
    return _Rule(parent.name, field, child.by_name[roll_up.child_field.lower()].name, inputs)
