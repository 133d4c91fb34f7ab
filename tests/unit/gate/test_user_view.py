"""User views: cached queries follow changes of grants, types and the date."""

from __future__ import annotations

import pytest

from tests.orgs import TestOrg
from tidewire.errors import FieldUnknown
from tidewire.gate.user_view import UserView

pytestmark = pytest.mark.anyio

DAY_S = 86_400.0


async def view_of(org: TestOrg) -> UserView:
    return UserView(await org.gate.grants(org.admin), org.gate.catalog)


async def test_query_is_bound_once_when_repeated(org: TestOrg) -> None:
    view = await view_of(org)
    soql = "SELECT Id FROM Account WHERE Name = 'x'"
    assert view.bind(soql, 0) is view.bind(soql, 1)


@pytest.mark.parametrize("literal", ["TODAY", "last_n_days:5", "N_YEARS_AGO:1"])
async def test_query_with_a_relative_date_is_bound_for_the_current_time(org: TestOrg, literal: str) -> None:
    view = await view_of(org)
    soql = f"SELECT Id FROM Account WHERE CreatedDate > {literal}"
    assert view.bind(soql, 10**12).where != view.bind(soql, 2 * 10**12).where


async def test_cache_of_queries_is_bounded(org: TestOrg) -> None:
    view = await view_of(org)
    first = view.bind("SELECT Id FROM Account LIMIT 1", 0)
    for number in range(2, 300):
        view.bind(f"SELECT Id FROM Account LIMIT {number}", 0)
    again = view.bind("SELECT Id FROM Account LIMIT 1", 0)
    assert again is not first
    assert again == first


async def test_same_query_after_midnight_counts_from_the_new_day(org: TestOrg) -> None:
    await org.make_account()
    soql = "SELECT Id FROM Account WHERE CreatedDate = TODAY"
    assert len((await org.gate.query(org.admin, soql)).rows) == 1
    org.clock.advance(DAY_S)
    assert (await org.gate.query(org.admin, soql)).rows == []


async def test_same_query_succeeds_after_its_field_is_created(org: TestOrg) -> None:
    soql = "SELECT Colour__c FROM Account"
    with pytest.raises(FieldUnknown):
        await org.gate.query(org.admin, soql)
    await org.apply(objects={"Account": {"fields": {"Colour__c": {"type": "Text"}}}})
    assert (await org.gate.query(org.admin, soql)).rows == []


async def test_same_query_is_rejected_after_a_grant_is_removed(org: TestOrg) -> None:
    def grant(level: str) -> dict[str, object]:
        return {
            "Phones": {
                "label": "Phones",
                "objects": {"Account": ["read"]},
                "fields": {"Account": {"Phone": level}},
            }
        }

    user = {"reader@tidewire.local": {"permission_sets": ["Phones"]}}
    await org.apply(permission_sets=grant("read"), users=user)
    record_id = await org.make_account(Phone="1")
    soql = "SELECT Phone FROM Account"
    assert [row["Phone"] for row in (await org.gate.query(org.reader, soql)).rows] == ["1"]
    assert "Phone" in (await org.gate.read(org.reader, "Account", record_id, None)).rows[0]
    await org.apply(permission_sets=grant("none"))
    with pytest.raises(FieldUnknown):
        await org.gate.query(org.reader, soql)
    assert "Phone" not in (await org.gate.read(org.reader, "Account", record_id, None)).rows[0]
