"""Fields that follow from the record's own fields: flags and dates of a status, totals, a contract's end.

A stage or status that is not on the object's list counts as open.
"""

from __future__ import annotations

from calendar import monthrange
from datetime import date

from tidewire.events import Value
from tidewire.records.object_rules import DerivedRule, Row
from tidewire.schema.model import ObjectType
from tidewire.schema.standard.status_categories import status_categories
from tidewire.schema.values import DAY_MS

# ForecastCategory has its own words for three of the categories that people see by name.
_FORECAST_CATEGORIES = {"Best Case": "BestCase", "Most Likely": "MostLikely", "Commit": "Forecast"}
_ACTIVATED = "Activated"  # a status code
_RESPONDED = "Responded"  # a status of campaign members
# NotifyForOperations by whether a push topic notifies of creates, and of updates.
_OPERATIONS = {
    (True, True): "All",
    (True, False): "Create",
    (False, True): "Update",
    (False, False): "Extended",
}
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()


def _opportunity(obj: ObjectType, row: Row, before: Row | None, now_ms: int) -> dict[str, Value]:
    stage = status_categories(obj).get(str(row.get("StageName")))
    values: dict[str, Value] = {
        "IsClosed": stage is not None and stage.is_closed,
        "IsWon": stage is not None and stage.is_won,
        "Probability": row.get("Probability"),
        "ForecastCategoryName": row.get("ForecastCategoryName"),
    }
    if stage is not None:
        fresh: dict[str, Value] = {
            "Probability": stage.probability,
            "ForecastCategoryName": stage.forecast_category_name or None,
        }
        values |= {name: value for name, value in fresh.items() if _follows(name, row, before)}
    name = values["ForecastCategoryName"]
    values["ForecastCategory"] = None if name is None else _FORECAST_CATEGORIES.get(str(name), name)
    if before is not None and before.get("StageName") != row.get("StageName"):
        values["LastStageChangeDate"] = now_ms - now_ms % 1000
    amount, probability = row.get("Amount"), values["Probability"]
    values["ExpectedRevenue"] = None
    if isinstance(amount, int | float) and isinstance(probability, int | float):
        values["ExpectedRevenue"] = amount * probability / 100
    return values


def _follows(name: str, row: Row, before: Row | None) -> bool:
    """Return whether the stage sets a field: only if nobody has set the field together with the stage."""
    if before is None or row.get(name) is None:
        return row.get(name) is None
    return row.get("StageName") != before.get("StageName") and row.get(name) == before.get(name)


def _closing(moment_field: str) -> DerivedRule:
    def rule(obj: ObjectType, row: Row, before: Row | None, now_ms: int) -> dict[str, Value]:
        category = status_categories(obj).get(str(row.get("Status")))
        if category is None or not category.is_closed:
            return {"IsClosed": False, moment_field: None}
        return {"IsClosed": True, moment_field: row.get(moment_field) or now_ms - now_ms % 1000}

    return rule


def _task(obj: ObjectType, row: Row, before: Row | None, now_ms: int) -> dict[str, Value]:
    return _TASK_CLOSING(obj, row, before, now_ms) | {"IsHighPriority": row.get("Priority") == "High"}


def _coded(obj: ObjectType, row: Row, before: Row | None, now_ms: int) -> dict[str, Value]:
    category = status_categories(obj).get(str(row.get("Status")))
    code = row.get("StatusCode") if category is None else category.code or None
    if code != _ACTIVATED:
        return {"StatusCode": code, "ActivatedDate": None, "ActivatedById": None}
    if row.get("ActivatedDate") is not None:
        return {"StatusCode": code}
    return {
        "StatusCode": code,
        "ActivatedDate": now_ms - now_ms % 1000,
        "ActivatedById": row.get("LastModifiedById"),
    }


def _contract(obj: ObjectType, row: Row, before: Row | None, now_ms: int) -> dict[str, Value]:
    start_ms, months, end_ms = row.get("StartDate"), row.get("ContractTerm"), None
    if isinstance(start_ms, int) and isinstance(months, int):
        end_ms = _last_day(start_ms, months)
    return _coded(obj, row, before, now_ms) | {"EndDate": end_ms}


def _last_day(start_ms: int, months: int) -> int | None:
    """Return the day before the same day so many months later; the end of a month without such a day."""
    start = date.fromordinal(_EPOCH_ORDINAL + start_ms // DAY_MS)
    years, month = divmod(start.month - 1 + months, 12)
    year = start.year + years
    if not date.min.year <= year <= date.max.year:
        return None
    day = min(start.day, monthrange(year, month + 1)[1])
    return (date(year, month + 1, day).toordinal() - _EPOCH_ORDINAL - 1) * DAY_MS


def _member(obj: ObjectType, row: Row, before: Row | None, now_ms: int) -> dict[str, Value]:
    has_responded = row.get("Status") == _RESPONDED
    first_ms = row.get("FirstRespondedDate")
    if has_responded and first_ms is None:
        first_ms = now_ms - now_ms % DAY_MS
    return {"HasResponded": has_responded, "FirstRespondedDate": first_ms}


def _grand_total(obj: ObjectType, row: Row, before: Row | None, now_ms: int) -> dict[str, Value]:
    parts = (row.get(name) for name in ("TotalPrice", "Tax", "ShippingHandling"))
    return {"GrandTotal": sum(float(part) for part in parts if isinstance(part, int | float))}


def _push_topic(obj: ObjectType, row: Row, before: Row | None, now_ms: int) -> dict[str, Value]:
    notified = bool(row.get("NotifyForOperationCreate")), bool(row.get("NotifyForOperationUpdate"))
    return {"NotifyForOperations": _OPERATIONS[notified]}


_TASK_CLOSING = _closing("CompletedDateTime")

DERIVED: dict[str, DerivedRule] = {
    "Opportunity": _opportunity,
    "Case": _closing("ClosedDate"),
    "Task": _task,
    "Contract": _contract,
    "Order": _coded,
    "CampaignMember": _member,
    "Quote": _grand_total,
    "ServiceContract": _grand_total,
    "PushTopic": _push_topic,
}
"""The rule of each object that has derived fields."""
