"""How queries could be answered: which conditions an index serves, and what is counted."""

from __future__ import annotations

import pytest

from tests.orgs import TestOrg
from tidewire.errors import FieldUnknown
from tidewire.gate.query_pages import QueryPages
from tidewire.records import explain
from tidewire.records.explain import Plan


async def plans_of(org: TestOrg, condition: str) -> list[Plan]:
    pages = QueryPages(org.gate, org.core.cursors, org.clock)
    where = f" WHERE {condition}" if condition else ""
    return await pages.explain(org.admin, f"SELECT Id FROM Account{where}", version=62)


async def make_accounts(org: TestOrg) -> str:
    parent = await org.make_account("Acme")
    for number in range(9):
        await org.make_account(f"A{number}", Site="x", ParentId=parent if number < 3 else None)
    return parent


@pytest.mark.parametrize(
    "condition, fields, found",
    [
        ("Name = 'acme'", ["Name"], 1),
        ("Name LIKE 'a%'", ["Name"], 10),
        ("Id != NULL AND Name > 'a5'", ["Name"], 4),
        ("ParentId = '{}'", ["ParentId"], 3),
        ("ParentId = '{}' OR Name = 'acme'", ["ParentId", "Name"], 4),
        ("Id IN (SELECT ParentId FROM Account)", ["Id"], 1),
    ],
)
async def test_condition_on_an_indexed_field_leads(
    org: TestOrg, condition: str, fields: list[str], found: int
) -> None:
    parent = await make_accounts(org)
    plans = await plans_of(org, condition.format(parent))
    (indexed,) = [plan for plan in plans if plan.is_indexed]
    assert list(indexed.fields) == fields
    assert (indexed.cardinality, indexed.entity_cardinality) == (found, 10)
    assert indexed.relative_cost == pytest.approx(found / 3, abs=0.001)
    assert [plan.relative_cost for plan in plans] == sorted(plan.relative_cost for plan in plans)


@pytest.mark.parametrize(
    "condition, fields",
    [
        ("Site = 'x'", ["Site"]),
        ("Name != 'acme'", ["Name"]),
        ("Name LIKE '%a'", ["Name"]),
        ("NOT Name LIKE 'a%'", ["Name"]),
        ("ParentId NOT IN ('001000000000000AAA')", ["ParentId"]),
        ("Parent.Name = 'acme'", ["Parent.Name"]),
        ("Name = 'acme' OR Site = 'x'", ["Name", "Site"]),
    ],
)
async def test_other_condition_needs_a_scan_and_is_noted(
    org: TestOrg, condition: str, fields: list[str]
) -> None:
    await make_accounts(org)
    (plan,) = await plans_of(org, condition)
    assert (plan.is_indexed, plan.fields) == (False, ())
    assert [list(each) for each in plan.unindexed] == [fields]


async def test_numbers_are_bounded_and_an_empty_table_costs_nothing(
    org: TestOrg, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plan,) = await plans_of(org, "")
    assert (plan.cardinality, plan.entity_cardinality, plan.relative_cost) == (0, 0, 0.0)
    await make_accounts(org)
    monkeypatch.setattr(explain, "MAX_COUNTED", 4)
    (plan,) = await plans_of(org, "")
    assert (plan.cardinality, plan.entity_cardinality) == (4, 4)


async def test_hidden_field_is_not_explained(org: TestOrg) -> None:
    pages = QueryPages(org.gate, org.core.cursors, org.clock)
    with pytest.raises(FieldUnknown):
        await pages.explain(org.reader, "SELECT Phone FROM Account", version=62)
