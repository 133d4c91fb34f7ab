"""Fields that follow from a record's stage or status."""

from __future__ import annotations

from tidewire.crm.rules import RULES
from tidewire.events import Value
from tidewire.records.derived import compute_derived
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType
from tidewire.schema.standard import STANDARD_OBJECTS

STANDARD = Catalog(version=1, objects=STANDARD_OBJECTS)
NOW_MS = 1_700_000_000_789


def derive(
    obj: ObjectType, row: dict[str, Value], before: dict[str, Value] | None = None
) -> dict[str, Value]:
    return compute_derived(obj, row, NOW_MS, before, RULES.rules_of(obj).derived)


def test_opportunity_takes_from_its_stage_what_nobody_set() -> None:
    opportunity = STANDARD.object("Opportunity")
    row: dict[str, Value] = {"StageName": "Closed Won", "Amount": 10.0}
    assert derive(opportunity, row) == {
        "IsClosed": True,
        "IsWon": True,
        "Probability": 100.0,
        "ForecastCategoryName": "Closed",
        "ForecastCategory": "Closed",
        "ExpectedRevenue": 10.0,
    }
    given = derive(opportunity, row | {"Probability": 5.0, "ForecastCategoryName": "Best Case"})
    assert (given["Probability"], given["ExpectedRevenue"]) == (5.0, 0.5)
    assert given["ForecastCategory"] == "BestCase"


def test_opportunity_with_a_new_stage_has_its_probability_unless_set_with_it() -> None:
    opportunity = STANDARD.object("Opportunity")
    before: dict[str, Value] = {
        "StageName": "Prospecting",
        "Probability": 10.0,
        "ForecastCategoryName": "Pipeline",
    }
    moved = derive(opportunity, before | {"StageName": "Closed Lost"}, before)
    assert (moved["Probability"], moved["IsClosed"], moved["IsWon"]) == (0.0, True, False)
    assert moved["ForecastCategory"] == "Omitted"
    both = derive(opportunity, before | {"StageName": "Closed Lost", "Probability": 7.0}, before)
    assert both["Probability"] == 7.0
    same = derive(opportunity, before | {"Probability": 7.0}, before)
    assert same["Probability"] == 7.0
    unknown = derive(opportunity, {"StageName": "Ours"})
    assert (unknown["Probability"], unknown["IsClosed"], unknown["ExpectedRevenue"]) == (None, False, None)


def test_case_and_task_are_closed_by_their_status() -> None:
    case, task = STANDARD.object("Case"), STANDARD.object("Task")
    second_ms = NOW_MS - NOW_MS % 1000
    assert derive(case, {"Status": "Closed"}) == {"IsClosed": True, "ClosedDate": second_ms}
    kept = derive(case, {"Status": "Closed", "ClosedDate": 5})
    assert kept["ClosedDate"] == 5
    reopened = derive(case, {"Status": "New", "ClosedDate": 5})
    assert reopened == {"IsClosed": False, "ClosedDate": None}
    done = derive(task, {"Status": "Completed", "Priority": "High"})
    assert done == {"IsClosed": True, "CompletedDateTime": second_ms, "IsHighPriority": True}


def test_contract_has_the_code_of_its_status() -> None:
    contract = STANDARD.object("Contract")
    assert derive(contract, {"Status": "In Approval Process"})["StatusCode"] == "InApproval"
