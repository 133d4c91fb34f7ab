"""Statuses and stages: what each value of such a picklist means, and the rows of LeadStatus and its like.

A value may be given as a mapping that says what it means: `{value: On Hold, closed: false}`. What is not said
stays as it is; a new value is open. Records whose status means something else from now on get their flags in
the same transaction, and nobody is told: so says the Change Data Capture guide of stages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidewire.gate.definitions.document import refuse
from tidewire.records.table import delete_row, read_all_rows
from tidewire.records.work import UnitOfWork
from tidewire.schema.model import Field, ObjectType, PicklistValue, StatusCategory
from tidewire.schema.standard.status_categories import STATUS_FIELDS, standard_category, status_categories

_ROW_OBJECTS = {
    "Lead": "LeadStatus",
    "Case": "CaseStatus",
    "Task": "TaskStatus",
    "Opportunity": "OpportunityStage",
    "Contract": "ContractStatus",
    "Order": "OrderStatus",
}
# What may be said of a value, by object, and the attribute it decides.
_WORDS: dict[str, dict[str, str]] = {
    "Lead": {"converted": "is_converted"},
    "Case": {"closed": "is_closed"},
    "Task": {"closed": "is_closed"},
    "Opportunity": {
        "closed": "is_closed",
        "won": "is_won",
        "probability": "probability",
        "forecast_category": "forecast_category_name",
    },
    "Contract": {"code": "code"},
    "Order": {"code": "code"},
}
_CODES = {"Contract": ("Draft", "InApproval", "Activated"), "Order": ("Draft", "Activated")}
_FORECASTS = {
    "Omitted": "Omitted",
    "Pipeline": "Pipeline",
    "Best Case": "BestCase",
    "Most Likely": "MostLikely",
    "Commit": "Forecast",
    "Closed": "Closed",
}


def is_status(entity: str, field_name: str) -> bool:
    """Whether the values of this field mean something."""
    return STATUS_FIELDS.get(entity) == field_name


def split_meanings(entity: str, values: object, path: str) -> tuple[object, dict[str, Mapping[str, object]]]:
    """A list of values without what is said of them, and that, by value and attribute."""
    if not isinstance(values, list | tuple):
        return values, {}
    words = _WORDS[entity]
    plain: list[object] = []
    said: dict[str, Mapping[str, object]] = {}
    for i, item in enumerate(values):
        if not isinstance(item, Mapping):
            plain.append(item)
            continue
        plain.append({key: value for key, value in item.items() if key not in words})
        given = {words[key]: value for key, value in item.items() if key in words}
        if given:
            said[str(item.get("value", ""))] = _checked(entity, given, f"{path}.values[{i}]")
    return plain, said


def _checked(entity: str, given: dict[str, Any], path: str) -> dict[str, object]:
    for name, value in given.items():
        if name.startswith("is_") and not isinstance(value, bool):
            refuse(path, "closed, won and converted are true or false")
        if name == "probability" and (isinstance(value, bool) or not isinstance(value, int | float)):
            refuse(path, "probability is a number")
        if name == "probability" and not 0 <= value <= 100:
            refuse(path, "probability is 0 to 100")
        if name == "forecast_category_name" and value not in _FORECASTS:
            refuse(path, f"forecast_category must be one of {', '.join(_FORECASTS)}")
        if name == "code" and value not in _CODES[entity]:
            refuse(path, f"code must be one of {', '.join(_CODES[entity])}")
    return {n: float(v) if n == "probability" else v for n, v in given.items()}


def with_meanings(obj: ObjectType, field: Field) -> Field:
    """The field with the category of every value beside it, so that it goes along with a renamed one."""
    categories = status_categories(obj)
    return replace(field, picklist=tuple(replace(v, category=categories[v.value]) for v in field.picklist))


def say_meanings(
    entity: str, values: Sequence[PicklistValue], said: Mapping[str, Mapping[str, Any]], path: str
) -> tuple[PicklistValue, ...]:
    """The values with what the document says of them. Refuses a list that no org could work with."""
    out = []
    for v in values:
        held = v.category or _fresh(entity, v.value)
        out.append(replace(v, category=replace(held, **said.get(v.value, {}))))
    offered = [(v.value, v.category) for v in out if v.is_active and v.category is not None]
    for name, category in offered:
        if category.is_won and not category.is_closed:
            refuse(path, f"{name} is won and not closed")
    if entity == "Lead" and not any(m.is_converted for _, m in offered):
        refuse(path, "a converted lead needs a status: one value must be `converted`")
    if entity in ("Case", "Task", "Opportunity") and not any(m.is_closed for _, m in offered):
        refuse(path, "one value must be `closed`")
    if all(m.is_closed or m.is_converted for _, m in offered):
        refuse(path, "one value must be open")
    return tuple(out)


def _fresh(entity: str, value: str) -> StatusCategory:
    """What a value that joins the list means unless the document says it."""
    standard = standard_category(entity, value)
    if standard != StatusCategory():
        return standard
    if entity == "Opportunity":
        return StatusCategory(forecast_category_name="Pipeline")
    return StatusCategory(code="Draft") if entity in _CODES else StatusCategory()


def without_standard_meanings(entity: str, field: Field) -> Field:
    """The field as it is stored: only what the org itself says of a value stands beside it."""
    values = tuple(
        replace(v, category=None) if v.category == standard_category(entity, v.value) else v
        for v in field.picklist
    )
    return replace(field, picklist=values)


def meaning_lines(obj: ObjectType, old: Field, new: Field, renamed: Mapping[str, str]) -> list[str]:
    """A line for each value that means something else. Both fields have every category beside its value."""
    before = {renamed.get(v.value, v.value): v.category for v in old.picklist}
    words = {attribute: word for word, attribute in _WORDS[obj.name].items()}
    lines = []
    for v in new.picklist:
        held = before.get(v.value, _fresh(obj.name, v.value))
        if held is None or v.category is None or held == v.category:
            continue
        changed = [
            f"{word} = {_shown(getattr(v.category, attribute))}"
            for attribute, word in words.items()
            if getattr(held, attribute) != getattr(v.category, attribute)
        ]
        lines.append(f"let {v.value} of {obj.name}.{new.name} mean {', '.join(changed)}")
    return lines


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def store_status_rows(unit: UnitOfWork, obj: ObjectType, renamed: Mapping[str, str]) -> None:
    """Bring the rows of LeadStatus or its like to what the object's list says."""
    rows_of = unit.catalog.object(_ROW_OBJECTS[obj.name])
    names = {rows_of_field.name for rows_of_field in rows_of.fields}
    held = {renamed.get(str(r["ApiName"]), str(r["ApiName"])): r for r in read_all_rows(unit.tx, rows_of)}
    field = obj.by_name[STATUS_FIELDS[obj.name].lower()]
    place = 0
    for v in field.picklist:
        if not v.is_active and "IsActive" not in names:
            continue
        place += 1
        wanted = {n: w for n, w in _row(v, status_categories(obj)[v.value], place).items() if n in names}
        row = held.pop(v.value, None)
        if row is None:
            unit.create(rows_of, wanted)
        elif any(row.get(n) != w for n, w in wanted.items()):
            unit.update(rows_of, str(row["Id"]), wanted)
    for row in held.values():
        delete_row(unit.tx, rows_of, str(row["Id"]))


def _row(v: PicklistValue, category: StatusCategory, place: int) -> dict[str, object]:
    forecast = category.forecast_category_name
    return {
        "MasterLabel": v.label,
        "ApiName": v.value,
        "SortOrder": place,
        "IsActive": v.is_active,
        "IsDefault": v.is_default,
        "IsClosed": category.is_closed,
        "IsWon": category.is_won,
        "IsConverted": category.is_converted,
        "StatusCode": category.code or None,
        "ForecastCategory": _FORECASTS.get(forecast),
        "ForecastCategoryName": forecast or None,
        "DefaultProbability": category.probability,
    }
