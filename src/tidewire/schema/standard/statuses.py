"""The statuses of leads, cases, tasks, contracts and orders, and the stages of opportunities.

The objects LeadStatus, CaseStatus and so on have one row per status, for clients that query them;
`status_rows` returns their values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidewire.schema.fields import checkbox, integer, percent, picklist, text
from tidewire.schema.layout import audit_fields, identity_fields, standard_object
from tidewire.schema.model import Field, ObjectType


@dataclass(frozen=True, slots=True)
class Status:
    """A status and its category. `code` groups the statuses of contracts and orders."""

    name: str
    is_default: bool = False
    is_closed: bool = False
    is_converted: bool = False
    code: str = ""


@dataclass(frozen=True, slots=True)
class OpportunityStage:
    """A stage of opportunities, and the fields that follow from it."""

    name: str
    probability: float
    forecast_category: str
    forecast_category_name: str
    is_closed: bool = False
    is_won: bool = False


FORECAST_CATEGORIES = "Omitted;Pipeline;BestCase;MostLikely;Forecast;Closed"
FORECAST_CATEGORY_NAMES = "Omitted;Pipeline;Best Case;Most Likely;Commit;Closed"
OPPORTUNITY_STAGES = (
    OpportunityStage("Prospecting", 10.0, "Pipeline", "Pipeline"),
    OpportunityStage("Qualification", 10.0, "Pipeline", "Pipeline"),
    OpportunityStage("Needs Analysis", 20.0, "Pipeline", "Pipeline"),
    OpportunityStage("Value Proposition", 50.0, "Pipeline", "Pipeline"),
    OpportunityStage("Id. Decision Makers", 60.0, "Pipeline", "Pipeline"),
    OpportunityStage("Perception Analysis", 70.0, "Pipeline", "Pipeline"),
    OpportunityStage("Proposal/Price Quote", 75.0, "Pipeline", "Pipeline"),
    OpportunityStage("Negotiation/Review", 90.0, "Pipeline", "Pipeline"),
    OpportunityStage("Closed Won", 100.0, "Closed", "Closed", is_closed=True, is_won=True),
    OpportunityStage("Closed Lost", 0.0, "Omitted", "Omitted", is_closed=True),
)
LEAD_STATUSES = (
    Status("Open - Not Contacted", is_default=True),
    Status("Working - Contacted"),
    Status("Closed - Converted", is_converted=True),
    Status("Closed - Not Converted"),
)
CASE_STATUSES = (
    Status("New", is_default=True),
    Status("Working"),
    Status("Escalated"),
    Status("Closed", is_closed=True),
)
TASK_STATUSES = (
    Status("Not Started", is_default=True),
    Status("In Progress"),
    Status("Completed", is_closed=True),
    Status("Waiting on someone else"),
    Status("Deferred"),
)
CONTRACT_STATUSES = (
    Status("In Approval Process", code="InApproval"),
    Status("Activated", code="Activated"),
    Status("Draft", is_default=True, code="Draft"),
)
ORDER_STATUSES = (Status("Draft", is_default=True, code="Draft"), Status("Activated", code="Activated"))


def names_of(statuses: Sequence[Status] | Sequence[OpportunityStage]) -> str:
    """Return the names joined by `;`, as picklists are written."""
    return ";".join(status.name for status in statuses)


def status_field(statuses: Sequence[Status], *, length: int = 40, required: bool = False) -> Field:
    """Return the Status field of an object with these statuses."""
    default = next(status.name for status in statuses if status.is_default)
    return picklist("Status", "Status", names_of(statuses), length=length, required=required, default=default)


def status_rows() -> dict[str, tuple[dict[str, object], ...]]:
    """Return the rows of each status object, by object name, in order."""
    stages: tuple[dict[str, object], ...] = tuple(
        {
            "MasterLabel": stage.name,
            "ApiName": stage.name,
            "IsActive": True,
            "SortOrder": place,
            "IsClosed": stage.is_closed,
            "IsWon": stage.is_won,
            "ForecastCategory": stage.forecast_category,
            "ForecastCategoryName": stage.forecast_category_name,
            "DefaultProbability": stage.probability,
        }
        for place, stage in enumerate(OPPORTUNITY_STAGES, 1)
    )
    return {
        "LeadStatus": _rows(LEAD_STATUSES, "IsConverted"),
        "CaseStatus": _rows(CASE_STATUSES, "IsClosed"),
        "TaskStatus": _rows(TASK_STATUSES, "IsClosed"),
        "OpportunityStage": stages,
        "ContractStatus": _rows(CONTRACT_STATUSES, "StatusCode"),
        "OrderStatus": _rows(ORDER_STATUSES, "StatusCode"),
    }


def _rows(statuses: Sequence[Status], own_field: str) -> tuple[dict[str, object], ...]:
    return tuple(
        {
            "MasterLabel": status.name,
            "ApiName": status.name,
            "SortOrder": place,
            "IsDefault": status.is_default,
            own_field: {
                "IsConverted": status.is_converted,
                "IsClosed": status.is_closed,
                "StatusCode": status.code,
            }[own_field],
        }
        for place, status in enumerate(statuses, 1)
    )


def _status_object(table_number: int, key_prefix: str, name: str, label: str, *own: Field) -> ObjectType:
    return standard_object(
        table_number,
        key_prefix,
        name,
        (
            *identity_fields(has_is_deleted=False),
            text("MasterLabel", "Master Label", 255, required=True),
            text("ApiName", "API Name", 255),
            integer("SortOrder", "Sort Order", 9),
            *own,
            *audit_fields(),
        ),
        label=label,
        is_setup=True,
        createable=False,
        updateable=False,
        deletable=False,
    )


def _is_default() -> Field:
    return checkbox("IsDefault", "Is Default")


LEAD_STATUS = _status_object(
    39, "01K", "LeadStatus", "Lead Status Value", _is_default(), checkbox("IsConverted", "Is Converted")
)
CASE_STATUS = _status_object(
    40, "01L", "CaseStatus", "Case Status Value", _is_default(), checkbox("IsClosed", "Is Closed")
)
TASK_STATUS = _status_object(
    41, "01M", "TaskStatus", "Task Status Value", _is_default(), checkbox("IsClosed", "Is Closed")
)
OPPORTUNITY_STAGE = _status_object(
    42,
    "01J",
    "OpportunityStage",
    "Opportunity Stage",
    checkbox("IsActive", "Is Active", default=True),
    checkbox("IsClosed", "Closed"),
    checkbox("IsWon", "Won"),
    picklist("ForecastCategory", "Forecast Category", FORECAST_CATEGORIES),
    picklist("ForecastCategoryName", "Forecast Category Name", FORECAST_CATEGORY_NAMES, length=255),
    percent("DefaultProbability", "Probability (%)", 3, 0),
    text("Description", "Description", 255),
)
CONTRACT_STATUS = _status_object(
    43,
    "01O",
    "ContractStatus",
    "Contract Status Value",
    _is_default(),
    picklist("StatusCode", "Status Code", "Draft;InApproval;Activated"),
)
ORDER_STATUS = _status_object(
    44,
    "01Q",
    "OrderStatus",
    "Order Status Value",
    _is_default(),
    picklist("StatusCode", "Status Code", "Draft;Activated"),
)
