"""What a stage or status says about its record: the flags, codes and moments that follow from it.

Only the standard objects have such fields. A stage or status that the platform does not know is open and
says nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidewire.events import Value
from tidewire.schema.standard.statuses import (
    CASE_STATUSES,
    CONTRACT_STATUSES,
    OPPORTUNITY_STAGES,
    ORDER_STATUSES,
    TASK_STATUSES,
    Status,
)

Rule = Callable[[Mapping[str, Value], Mapping[str, Value] | None, int], dict[str, Value]]
"""From a row, the row before it if there was one, and the time, to the values that follow."""

_STAGES = {stage.name: stage for stage in OPPORTUNITY_STAGES}
# ForecastCategory has its own words for three of the categories that people see by name.
_FORECAST_CATEGORIES = {"Best Case": "BestCase", "Most Likely": "MostLikely", "Commit": "Forecast"}


def _opportunity(
    row: Mapping[str, Value], before: Mapping[str, Value] | None, now_ms: int
) -> dict[str, Value]:
    stage = _STAGES.get(str(row.get("StageName")))
    values: dict[str, Value] = {
        "IsClosed": stage is not None and stage.is_closed,
        "IsWon": stage is not None and stage.is_won,
        "Probability": row.get("Probability"),
        "ForecastCategoryName": row.get("ForecastCategoryName"),
    }
    if stage is not None:
        fresh: dict[str, Value] = {
            "Probability": stage.probability,
            "ForecastCategoryName": stage.forecast_category_name,
        }
        values |= {name: value for name, value in fresh.items() if _follows(name, row, before)}
    name = values["ForecastCategoryName"]
    values["ForecastCategory"] = None if name is None else _FORECAST_CATEGORIES.get(str(name), name)
    amount, probability = row.get("Amount"), values["Probability"]
    values["ExpectedRevenue"] = None
    if isinstance(amount, int | float) and isinstance(probability, int | float):
        values["ExpectedRevenue"] = amount * probability / 100
    return values


def _follows(name: str, row: Mapping[str, Value], before: Mapping[str, Value] | None) -> bool:
    """Whether the stage decides over a field that can also be set by hand: if nobody set it with the stage."""
    if before is None or row.get(name) is None:
        return row.get(name) is None
    return row.get("StageName") != before.get("StageName") and row.get(name) == before.get(name)


def _closing(statuses: tuple[Status, ...], moment_field: str) -> Rule:
    closed = {status.name for status in statuses if status.is_closed}

    def rule(row: Mapping[str, Value], before: Mapping[str, Value] | None, now_ms: int) -> dict[str, Value]:
        if row.get("Status") not in closed:
            return {"IsClosed": False, moment_field: None}
        return {"IsClosed": True, moment_field: row.get(moment_field) or now_ms - now_ms % 1000}

    return rule


def _task(row: Mapping[str, Value], before: Mapping[str, Value] | None, now_ms: int) -> dict[str, Value]:
    return _TASK_CLOSING(row, before, now_ms) | {"IsHighPriority": row.get("Priority") == "High"}


def _coded(statuses: tuple[Status, ...]) -> Rule:
    codes = {status.name: status.code for status in statuses}

    def rule(row: Mapping[str, Value], before: Mapping[str, Value] | None, now_ms: int) -> dict[str, Value]:
        return {"StatusCode": codes.get(str(row.get("Status")), row.get("StatusCode"))}

    return rule


_TASK_CLOSING = _closing(TASK_STATUSES, "CompletedDateTime")

STAGE_RULES: dict[str, Rule] = {
    "Opportunity": _opportunity,
    "Case": _closing(CASE_STATUSES, "ClosedDate"),
    "Task": _task,
    "Contract": _coded(CONTRACT_STATUSES),
    "Order": _coded(ORDER_STATUSES),
}
"""The rule of each object that has one."""
