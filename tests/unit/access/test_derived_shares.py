"""Derived share rows of owners, rules, accounts and their children, as queries return them."""

from __future__ import annotations

import pytest

from tests.unit.access.test_sharing import People
from tests.unit.access.test_sharing import people as people  # the fixture
from tidewire.access.principal import Principal
from tidewire.errors import AccessDenied
from tidewire.gate.query_cursors import QueryCursors
from tidewire.gate.query_pages import CursorState, QueryPages
from tidewire.ids import normalise_id

_DEAL = {"Name": "O", "StageName": "Prospecting", "CloseDate": "2030-01-01"}


async def _rows(people: People, who: Principal, soql: str) -> list[dict[str, object]]:
    return [dict(row) for row in (await people.org.gate.query(who, soql)).rows]


async def test_owner_row_exists_for_every_visible_record(people: People) -> None:
    account = await people.make(people.ann, "Account", Name="Acme")
    await people.make(people.zoe, "Account", Name="Other")
    soql = "SELECT Id, AccountId, UserOrGroupId, AccountAccessLevel, RowCause FROM AccountShare"
    (row,) = await _rows(people, people.boss, soql)
    assert normalise_id(str(row["Id"])[:15]) == row.pop("Id")
    assert row == {
        "AccountId": account,
        "UserOrGroupId": people.ann.user_id,
        "AccountAccessLevel": "All",
        "RowCause": "Owner",
    }
    assert len(await _rows(people, people.org.admin, soql)) == 2
    where = f"{soql} WHERE RowCause = 'owner' AND UserOrGroup.Name = 'Ann' AND AccountId = '{account[:15]}'"
    assert len(await _rows(people, people.boss, where)) == 1
    assert await _rows(people, people.boss, f"{soql} WHERE RowCause = 'Manual'") == []


async def test_owner_row_of_a_lead_has_a_well_formed_id(people: People) -> None:
    await people.make(people.ann, "Lead", LastName="Lee", Company="Lee")
    (row,) = await _rows(people, people.ann, "SELECT Id FROM LeadShare")
    assert normalise_id(str(row["Id"])[:15]) == row["Id"]
    read = await people.org.gate.read(people.ann, "LeadShare", str(row["Id"]), ["RowCause"])
    assert read.rows[0]["RowCause"] == "Owner"
    with pytest.raises(AccessDenied):
        await people.org.gate.delete(people.call(people.ann), "LeadShare", str(row["Id"]))


async def test_rule_rows_name_the_group_once_at_the_highest_level(people: People) -> None:
    large = {"criteria": [["Size__c", ">", 10]], "share_with": "everyone", "access": "read"}
    sales = {"owned_by": "role:Sales", "share_with": "everyone", "access": "edit"}
    await people.org.apply(objects={"Box__c": {"sharing_rules": {"Large": large, "Sales": sales}}})
    box = await people.make(people.ann, "Box__c", Name="A", Size__c=11)
    other = await people.make(people.zoe, "Box__c", Name="B", Size__c=12)
    await people.make(people.zoe, "Box__c", Name="C", Size__c=1)
    soql = "SELECT ParentId, AccessLevel FROM Box__Share WHERE RowCause = 'Rule' ORDER BY ParentId"
    rows = await _rows(people, people.org.admin, soql)
    assert [(row["ParentId"], row["AccessLevel"]) for row in rows] == [(box, "Edit"), (other, "Read")]
    counted = await _rows(
        people,
        people.org.admin,
        "SELECT RowCause, COUNT(Id) n FROM Box__Share GROUP BY RowCause ORDER BY COUNT(Id) DESC",
    )
    assert counted == [{"RowCause": "Owner", "n": 3}, {"RowCause": "Rule", "n": 2}]
    count = await people.org.gate.query(people.org.admin, "SELECT COUNT() FROM Box__Share")
    assert count.count == 5


async def test_implicit_rows_join_accounts_and_their_children(people: People) -> None:
    await people.org.apply(roles={"Sales": {"opportunity_access": "read"}})
    account = await people.make(people.ann, "Account", Name="Acme")
    for owner in (people.zoe, people.zoe, people.ann):
        await people.make(people.org.admin, "Opportunity", **_DEAL, AccountId=account, OwnerId=owner.user_id)
    case = {"Subject": "Help", "AccountId": account, "OwnerId": people.zoe.user_id}
    await people.make(people.org.admin, "Case", **case)
    of_account = await _rows(
        people,
        people.org.admin,
        "SELECT UserOrGroupId, AccountAccessLevel FROM AccountShare WHERE RowCause = 'ImplicitParent'",
    )
    assert [row["UserOrGroupId"] for row in of_account] == [people.zoe.user_id]
    assert of_account[0]["AccountAccessLevel"] == "Read"
    of_deals = await _rows(
        people,
        people.org.admin,
        "SELECT UserOrGroupId, OpportunityAccessLevel FROM OpportunityShare WHERE RowCause = 'ImplicitChild'",
    )
    assert [(r["UserOrGroupId"], r["OpportunityAccessLevel"]) for r in of_deals] == [
        (people.ann.user_id, "Read")
    ] * 2


async def test_share_rows_in_semi_joins_and_pages(people: People) -> None:
    boxes = [await people.make(people.ann, "Box__c", Name=str(n)) for n in range(7)]
    await people.make(people.zoe, "Box__c", Name="Z")
    mine = f"SELECT ParentId FROM Box__Share WHERE UserOrGroupId = '{people.ann.user_id}'"
    found = await people.seen(people.org.admin, f"SELECT Id FROM Box__c WHERE Id IN ({mine}) ORDER BY Name")
    assert found == boxes
    pages = QueryPages(people.org.gate, QueryCursors[CursorState](people.org.clock), people.org.clock)
    soql = "SELECT Id, ParentId, Parent.Name FROM Box__Share ORDER BY Parent.Name DESC"
    page = await pages.open(people.org.admin, soql, 3, version=67)
    assert page.total == 8
    parents = [row["ParentId"] for row in page.rows.rows]
    while page.locator:
        page = await pages.read_next(people.org.admin, page.locator, 3)
        parents += [row["ParentId"] for row in page.rows.rows]
    assert parents[1:] == boxes[::-1]


async def test_deleted_record_has_no_living_share_rows(people: People) -> None:
    box = await people.make(people.ann, "Box__c", Name="A")
    assert await people.delete(people.ann, "Box__c", box) == "done"
    assert await people.seen(people.ann, "SELECT Id FROM Box__Share") == []
    rows = await people.org.gate.query(people.ann, "SELECT Id FROM Box__Share", include_deleted=True)
    assert len(rows.rows) == 1
