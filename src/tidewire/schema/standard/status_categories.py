"""The category of each status and stage of an object, by the org's own list.

The standard values have the category that `statuses` gives them. An org may override it, and defines it for
values that it adds: it is stored with the value in the type.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from tidewire.schema.model import ObjectType, StatusCategory
from tidewire.schema.standard.statuses import (
    CASE_STATUSES,
    CONTRACT_STATUSES,
    LEAD_STATUSES,
    OPPORTUNITY_STAGES,
    ORDER_STATUSES,
    TASK_STATUSES,
)

STATUS_FIELDS: dict[str, str] = {
    "Lead": "Status",
    "Case": "Status",
    "Task": "Status",
    "Opportunity": "StageName",
    "Contract": "Status",
    "Order": "Status",
}
"""The field, by object, whose values have a category."""

_STANDARD: dict[str, dict[str, StatusCategory]] = {
    entity: {s.name: StatusCategory(s.is_closed, False, s.is_converted, s.code) for s in statuses}
    for entity, statuses in (
        ("Lead", LEAD_STATUSES),
        ("Case", CASE_STATUSES),
        ("Task", TASK_STATUSES),
        ("Contract", CONTRACT_STATUSES),
        ("Order", ORDER_STATUSES),
    )
}
_STANDARD["Opportunity"] = {
    s.name: StatusCategory(s.is_closed, s.is_won, False, "", s.probability, s.forecast_category_name)
    for s in OPPORTUNITY_STAGES
}


def standard_category(entity: str, status: str) -> StatusCategory:
    """Return the standard category of a status, or an empty one if it is unknown."""
    return _STANDARD[entity].get(status, StatusCategory())


@lru_cache(maxsize=256)
def status_categories(obj: ObjectType) -> Mapping[str, StatusCategory]:
    """Return the category of every value on the object's list, in order. Shared: do not change it."""
    field = obj.by_name[STATUS_FIELDS[obj.name].lower()]
    return {v.value: v.category or standard_category(obj.name, v.value) for v in field.picklist}
