"""Standard picklists that a definition changes: values, statuses and stages, with the records that have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.orgs import TestOrg, open_org
from tidewire.crm.leads import Conversion, convert_lead
from tidewire.errors import DefinitionInvalid, PlatformError
from tidewire.events import Change, CommitContext, Value
from tidewire.records.table import read_all_rows, try_read_row
from tidewire.records.work import UnitOfWork

DEAL = {"Name": "Deal", "StageName": "Prospecting", "CloseDate": "2026-12-31", "Amount": 100}


async def read(org: TestOrg, record_id: str, *names: str) -> list[Value]:
    obj = org.gate.catalog.try_object_of_id(record_id)
    assert obj is not None
    row = await org.core.records.read(lambda reader: try_read_row(reader, obj, record_id))
    assert row is not None
    return [row[name] for name in names]


async def rows(org: TestOrg, entity: str, *names: str) -> list[tuple[Value, ...]]:
    """The records of a status object, in their order."""
    obj = org.gate.catalog.object(entity)
    found = await org.core.records.read(lambda reader: read_all_rows(reader, obj))
    return [tuple(r[n] for n in names) for r in sorted(found, key=lambda r: int(r["SortOrder"] or 0))]


async def define(org: TestOrg, entity: str, field: str, /, **spec: object) -> list[str]:
    return await org.apply(objects={entity: {"fields": {field: spec}}})


def watch(org: TestOrg) -> list[Change]:
    seen: list[Change] = []

    def hook(unit: UnitOfWork, changes: Any, context: CommitContext) -> None:
        seen.extend(c for c in changes if not unit.catalog.object(c.entity).is_setup)

    org.core.records.add_hook(hook)
    return seen


async def test_standard_picklist_gets_values_and_a_default(tmp_path: Path) -> None:
    spec: dict[str, Any] = {"values": ["Hot", {"value": "Icy", "label": "Ice cold"}], "default": "Icy"}
    async with open_org(tmp_path) as org:
        assert await define(org, "Account", "Rating", **spec) == [
            "change Account.Rating: default",
            "add value Icy to Account.Rating",
        ]
        assert await define(org, "Account", "Rating", **spec) == []
        assert await read(org, await org.make_account(), "Rating") == ["Icy"]
    async with open_org(tmp_path) as org:
        field = org.gate.catalog.object("Account").by_name["rating"]
        shown = [(v.value, v.label, v.is_default) for v in field.picklist]
        assert shown == [
            ("Hot", "Hot", False),
            ("Icy", "Ice cold", True),
            ("Warm", "Warm", False),
            ("Cold", "Cold", False),
        ]
        assert await define(org, "Account", "Rating", **spec) == []


async def test_renamed_standard_value_reaches_its_records_and_the_default(org: TestOrg) -> None:
    case = await org.gate.create(org.call, "Case", {"Subject": "x"})
    seen = watch(org)
    plan = await define(org, "Case", "Priority", rename={"Medium": "Usual"})
    assert plan == [
        "change Case.Priority: default",
        "rename value Medium of Case.Priority by Usual (1 records)",
    ]
    assert [(c.record_id, c.changed) for c in seen] == [(case, ("Priority",))]
    assert await read(org, case, "Priority") == ["Usual"]
    fresh = await org.gate.create(org.call, "Case", {"Subject": "y"})
    assert await read(org, fresh, "Priority") == ["Usual"]
    assert await define(org, "Case", "Priority", rename={"Medium": "Usual"}) == []


async def test_value_that_was_off_the_list_moves_while_the_list_stays(org: TestOrg) -> None:
    case = await org.gate.create(org.call, "Case", {"Subject": "x", "Priority": "Someday"})
    orders = {"replace": {"Someday": "Low"}}
    assert await define(org, "Case", "Priority", **orders) == [
        "replace value Someday of Case.Priority by Low (1 records)"
    ]
    assert await read(org, case, "Priority") == ["Low"]
    assert await define(org, "Case", "Priority", **orders) == []


async def test_new_stage_decides_over_its_opportunities(org: TestOrg) -> None:
    stage = {"value": "Shaken", "closed": True, "won": True, "probability": 95, "forecast_category": "Closed"}
    plan = await define(org, "Opportunity", "StageName", values=[stage])
    assert plan == [
        "add value Shaken to Opportunity.StageName",
        "set category of Shaken of Opportunity.StageName: closed = true, won = true, probability = 95,"
        " forecast_category = Closed",
    ]
    assert await define(org, "Opportunity", "StageName", values=[stage]) == []
    deal = await org.gate.create(org.call, "Opportunity", {**DEAL, "StageName": "Shaken"})
    assert await read(org, deal, "IsClosed", "IsWon", "Probability", "ForecastCategory") == [
        True,
        True,
        95.0,
        "Closed",
    ]
    first = (await rows(org, "OpportunityStage", "ApiName", "IsWon", "DefaultProbability", "SortOrder"))[0]
    assert first == ("Shaken", True, 95.0, 1)


async def test_stage_that_means_something_else_changes_its_records_without_a_word(org: TestOrg) -> None:
    deal = await org.gate.create(org.call, "Opportunity", DEAL)
    seen = watch(org)
    plan = await define(
        org, "Opportunity", "StageName", values=[{"value": "Prospecting", "closed": True, "won": True}]
    )
    assert plan == ["set category of Prospecting of Opportunity.StageName: closed = true, won = true"]
    assert await read(org, deal, "IsClosed", "IsWon", "Probability") == [True, True, 10.0]
    assert seen == []


async def test_renamed_stage_keeps_its_category_and_user_values(org: TestOrg) -> None:
    won = await org.gate.create(org.call, "Opportunity", {**DEAL, "StageName": "Closed Won"})
    await org.gate.update(org.call, "Opportunity", won, {"Probability": 42})
    seen = watch(org)
    await define(org, "Opportunity", "StageName", rename={"Closed Won": "Gewonnen"})
    assert await read(org, won, "StageName", "IsWon", "Probability", "ExpectedRevenue") == [
        "Gewonnen",
        True,
        42.0,
        42.0,
    ]
    assert [c.changed for c in seen] == [("StageName",)]
    named = [r for r in await rows(org, "OpportunityStage", "ApiName", "MasterLabel", "IsWon") if r[2]]
    assert named == [("Gewonnen", "Gewonnen", True)]
    fresh = await org.gate.create(org.call, "Opportunity", {**DEAL, "StageName": "Gewonnen"})
    assert await read(org, fresh, "IsWon") == [True]
    stale = await org.gate.create(org.call, "Opportunity", {**DEAL, "StageName": "Closed Won"})
    assert await read(org, stale, "IsWon") == [False]


async def test_lead_status_of_the_org_converts_and_converted_leads_follow_a_rename(org: TestOrg) -> None:
    assert await define(
        org,
        "Lead",
        "Status",
        values=["New", {"value": "Done", "converted": True}],
        deactivate=["Open - Not Contacted"],
        default="New",
    ) == [
        "change Lead.Status: default",
        "add value New to Lead.Status",
        "add value Done to Lead.Status",
        "deactivate value Open - Not Contacted of Lead.Status",
        "set category of Done of Lead.Status: converted = true",
    ]
    lead = await org.gate.create(org.call, "Lead", {"LastName": "L", "Company": "C"})
    assert await read(org, lead, "Status") == ["New"]

    def convert(unit: UnitOfWork) -> None:
        convert_lead(unit, Conversion(lead_id=lead, converted_status="Done"))

    await org.core.records.write(convert, user_id=org.admin.user_id)
    await define(org, "Lead", "Status", rename={"Done": "Converted"})
    assert await read(org, lead, "Status", "IsConverted") == ["Converted", True]
    names = [r[0] for r in await rows(org, "LeadStatus", "ApiName")]
    assert names == [
        "New",
        "Converted",
        "Working - Contacted",
        "Closed - Converted",
        "Closed - Not Converted",
    ]


async def test_case_that_is_closed_by_a_new_meaning_gets_its_date(org: TestOrg) -> None:
    case = await org.gate.create(org.call, "Case", {"Subject": "x", "Status": "Escalated"})
    await define(org, "Case", "Status", values=[{"value": "Escalated", "closed": True}])
    is_closed, closed = await read(org, case, "IsClosed", "ClosedDate")
    assert is_closed
    assert closed is not None


async def test_replaced_status_moves_its_records_and_leaves_the_list(org: TestOrg) -> None:
    task = await org.gate.create(org.call, "Task", {"Subject": "x", "Status": "Deferred"})
    plan = await define(org, "Task", "Status", replace={"Deferred": "Completed"})
    assert plan == ["replace value Deferred of Task.Status by Completed (1 records)"]
    assert await read(org, task, "Status", "IsClosed") == ["Completed", True]
    assert "Deferred" not in [r[0] for r in await rows(org, "TaskStatus", "ApiName")]


async def test_order_status_has_a_code(org: TestOrg) -> None:
    await define(org, "Order", "Status", values=[{"value": "Shipped", "code": "Activated"}, "Waiting"])
    codes = await rows(org, "OrderStatus", "ApiName", "StatusCode")
    assert codes == [
        ("Shipped", "Activated"),
        ("Waiting", "Draft"),
        ("Draft", "Draft"),
        ("Activated", "Activated"),
    ]


async def test_help_text_and_description_of_a_standard_field_change(org: TestOrg) -> None:
    plan = await define(org, "Account", "Phone", help_text="With area code", description="Main line")
    assert plan == ["change Account.Phone: description, help_text"]
    assert await define(org, "Account", "Phone", help_text="With area code") == []
    assert org.gate.catalog.object("Account").by_name["phone"].help_text == "With area code"


@pytest.mark.parametrize(
    "entity, field, spec, reason",
    [
        ("Account", "Phone", {"values": ["a"]}, "is not a picklist"),
        ("Account", "Phone", {"length": 20}, "keeps its length"),
        ("Account", "Phone", {"type": "Text"}, "stays Phone"),
        ("Account", "Nonsense", {"help_text": "x"}, "no field Nonsense"),
        ("Account", "rating", {"help_text": "x"}, "has a field Rating"),
        ("Account", "CleanStatus", {"values": ["x"]}, "belong to the platform"),
        ("Account", "Rating", {"values": [{"value": "a", "closed": True}]}, "unknown keys: closed"),
        ("Account", "Rating", {"default": "Nope"}, "is not an active value"),
        ("Account", "Rating", {"rename": {"Hot": "Warm"}}, "use `replace`"),
        ("Account", "Rating", {"values": [["a"]]}, "a value must be text"),
        ("Task", "CallType", {"values": ["x"]}, "belong to the platform"),
        ("User", "TimeZoneSidKey", {"values": ["x"]}, "belong to the platform"),
        (
            "Opportunity",
            "StageName",
            {"values": [{"value": "x", "won": True}]},
            "is `won`, so it must be `closed`",
        ),
        ("Opportunity", "StageName", {"values": [{"value": "x", "probability": 101}]}, "0 to 100"),
        ("Opportunity", "StageName", {"values": [{"value": "x", "closed": 1}]}, "true or false"),
        ("Opportunity", "StageName", {"values": [{"value": "x", "forecast_category": "Maybe"}]}, "one of"),
        ("Lead", "Status", {"deactivate": ["Closed - Converted"]}, "must be `converted`"),
        ("Case", "Status", {"replace": {"Closed": "New"}}, "must be `closed`"),
        ("Lead", "Status", {"default": None}, "needs a default"),
        ("Lead", "Status", {"deactivate": ["Open - Not Contacted"]}, "is not an active value"),
        ("Contract", "Status", {"values": [{"value": "x", "code": "Odd"}]}, "code must be one of"),
    ],
)
async def test_invalid_change_of_a_standard_field_is_rejected_as_a_whole(
    org: TestOrg, entity: str, field: str, spec: dict[str, object], reason: str
) -> None:
    before = org.gate.catalog.version
    with pytest.raises(DefinitionInvalid, match=reason) as caught:
        await org.apply(objects={"Thing__c": {}, entity: {"fields": {field: spec}}})
    assert str(caught.value.details["path"]).startswith(f"objects.{entity}")
    assert org.gate.catalog.version == before


async def test_value_of_a_restricted_picklist_keeps_its_label_until_it_is_changed(
    org: TestOrg,
) -> None:
    spec: dict[str, Any] = {"type": "Picklist", "restricted": True, "values": [{"value": "a", "label": "A!"}]}
    await define(org, "Account", "Tier__c", **spec)
    assert await define(org, "Account", "Tier__c", type="Picklist", values=["a"]) == []
    named = {"type": "Picklist", "values": [{"value": "a", "label": "a"}, "b"]}
    assert await define(org, "Account", "Tier__c", **named) == [
        "label value a of Account.Tier__c as a",
        "add value b to Account.Tier__c",
    ]
    assert await define(org, "Account", "Tier__c", type="Picklist", values=["b", "a"]) == [
        "reorder the values of Account.Tier__c"
    ]
    with pytest.raises(PlatformError, match="restricted"):
        await org.make_account(Tier__c="A!")
