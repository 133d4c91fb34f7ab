"""Statuses and stages: the category of each value, and the rows of LeadStatus and similar objects.

A value may be a mapping that sets its category: `{value: On Hold, closed: false}`. What is omitted stays unchanged; a
new value is open. Records whose status changes category get their flags in the same transaction, without events, as
the Change Data Capture guide says for stages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidewire.gate.definitions.document import reject
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
# The keys of a value by object, and the attribute that each sets.
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
    """Return whether the values of this field have categories."""
    return STATUS_FIELDS.get(entity) == field_name


def split_categories(
    entity: str, values: object, path: str
) -> tuple[object, dict[str, Mapping[str, object]]]:
    """Split a list of values into plain values, and the attributes of categories by value."""
    if not isinstance(values, list | tuple):
        return values, {}
    words = _WORDS[entity]
    plain: list[object] = []
    attributes: dict[str, Mapping[str, object]] = {}
    for i, item in enumerate(values):
        if not isinstance(item, Mapping):
            plain.append(item)
            continue
        plain.append({key: value for key, value in item.items() if key not in words})
        submitted = {words[key]: value for key, value in item.items() if key in words}
        if submitted:
            attributes[str(item.get("value", ""))] = _checked(entity, submitted, f"{path}.values[{i}]")
    return plain, attributes


def _checked(entity: str, submitted: dict[str, Any], path: str) -> dict[str, object]:
    for name, value in submitted.items():
        if name.startswith("is_") and not isinstance(value, bool):
            reject(path, "closed, won and converted must be true or false")
        if name == "probability" and (isinstance(value, bool) or not isinstance(value, int | float)):
            reject(path, "probability must be a number")
        if name == "probability" and not 0 <= value <= 100:
            reject(path, "probability must be 0 to 100")
        if name == "forecast_category_name" and value not in _FORECASTS:
            reject(path, f"forecast_category must be one of {', '.join(_FORECASTS)}")
        if name == "code" and value not in _CODES[entity]:
            reject(path, f"code must be one of {', '.join(_CODES[entity])}")
    return {n: float(v) if n == "probability" else v for n, v in submitted.items()}


def with_categories(obj: ObjectType, field: Field) -> Field:
    """Return the field with the category of every value in it, so that a renamed value keeps its category."""
    categories = status_categories(obj)
    return replace(field, picklist=tuple(replace(v, category=categories[v.value]) for v in field.picklist))


def set_categories(
    entity: str, values: Sequence[PicklistValue], attributes: Mapping[str, Mapping[str, Any]], path: str
) -> tuple[PicklistValue, ...]:
    """Return the values with the categories of the document. Rejects a list without a needed category."""
    out = []
    for v in values:
        old = v.category or _new_category(entity, v.value)
        out.append(replace(v, category=replace(old, **attributes.get(v.value, {}))))
    offered = [(v.value, v.category) for v in out if v.is_active and v.category is not None]
    for name, category in offered:
        if category.is_won and not category.is_closed:
            reject(path, f"{name} is `won`, so it must be `closed` too")
    if entity == "Lead" and not any(m.is_converted for _, m in offered):
        reject(path, "one value must be `converted`, for converted leads")
    if entity in ("Case", "Task", "Opportunity") and not any(m.is_closed for _, m in offered):
        reject(path, "one value must be `closed`")
    if all(m.is_closed or m.is_converted for _, m in offered):
        reject(path, "one value must be open, that is neither `closed` nor `converted`")
    return tuple(out)


def _new_category(entity: str, value: str) -> StatusCategory:
    """Return the category of a new value unless the document sets it."""
    standard = standard_category(entity, value)
    if standard != StatusCategory():
        return standard
    if entity == "Opportunity":
        return StatusCategory(forecast_category_name="Pipeline")
    return StatusCategory(code="Draft") if entity in _CODES else StatusCategory()


def without_standard_categories(entity: str, field: Field) -> Field:
    """Return the field as stored: only with categories that differ from the standard."""
    values = tuple(
        replace(v, category=None) if v.category == standard_category(entity, v.value) else v
        for v in field.picklist
    )
    return replace(field, picklist=values)


def category_lines(obj: ObjectType, old: Field, new: Field, renamed: Mapping[str, str]) -> list[str]:
    """Return a line for each value whose category changes; both fields have all categories."""
    before = {renamed.get(v.value, v.value): v.category for v in old.picklist}
    words = {attribute: word for word, attribute in _WORDS[obj.name].items()}
    lines = []
    for v in new.picklist:
        previous = before.get(v.value, _new_category(obj.name, v.value))
        if previous is None or v.category is None or previous == v.category:
            continue
        changed = [
            f"{word} = {_shown(getattr(v.category, attribute))}"
            for attribute, word in words.items()
            if getattr(previous, attribute) != getattr(v.category, attribute)
        ]
        lines.append(f"set category of {v.value} of {obj.name}.{new.name}: {', '.join(changed)}")
    return lines


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def store_status_rows(unit: UnitOfWork, obj: ObjectType, renamed: Mapping[str, str]) -> None:
    """Update the rows of LeadStatus or a similar object to match the picklist."""
    rows_of = unit.catalog.object(_ROW_OBJECTS[obj.name])
    names = {rows_of_field.name for rows_of_field in rows_of.fields}
    old = {renamed.get(str(r["ApiName"]), str(r["ApiName"])): r for r in read_all_rows(unit.tx, rows_of)}
    field = obj.by_name[STATUS_FIELDS[obj.name].lower()]
    place = 0
    for v in field.picklist:
        if not v.is_active and "IsActive" not in names:
            continue
        place += 1
        wanted = {n: w for n, w in _row(v, status_categories(obj)[v.value], place).items() if n in names}
        row = old.pop(v.value, None)
        if row is None:
            unit.create(rows_of, wanted)
        elif any(row.get(n) != w for n, w in wanted.items()):
            unit.update(rows_of, str(row["Id"]), wanted)
    for row in old.values():
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
