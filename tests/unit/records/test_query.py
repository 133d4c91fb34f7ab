"""Queries over real records: related ones, groups, distances, and what each user sees of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.orgs import TestOrg, open_org
from tests.postgres import PostgresServer
from tidewire.errors import FieldUnknown, ObjectUnknown, TooManyRecords
from tidewire.gate.requests import Rows
from tidewire.records import aggregate
from tidewire.records.query import Cell, Children, Related, count_rows
from tidewire.records.table import update_row
from tidewire.soql.dates import CLOCK_FUNCTIONS, DATE_FUNCTIONS

PLACES: dict[str, object] = {
    "objects": {
        "Site__c": {
            "fields": {
                "Place__c": {"type": "Geolocation"},
                "Tags__c": {"type": "MultiselectPicklist", "values": ["red", "green", "blue"]},
                "Kind__c": {"type": "Picklist", "values": ["Small", "Big", "Average"]},
                "Account__c": {
                    "type": "Lookup",
                    "references": "Account",
                    "relationship": "Account__r",
                    "child_relationship": "Sites",
                },
            }
        }
    }
}


async def ask(org: TestOrg, soql: str) -> Rows:
    return await org.gate.query(org.admin, soql)


async def names(org: TestOrg, soql: str, field: str = "Name") -> list[Cell]:
    return [row[field] for row in (await ask(org, soql)).rows]


def parent(row: Mapping[str, Cell], name: str) -> Mapping[str, Cell]:
    related = row[name]
    assert isinstance(related, Related)
    return related.row


async def make_people(org: TestOrg) -> tuple[str, str]:
    first = await org.make_account("Acme", Industry="Media", AnnualRevenue=100)
    second = await org.make_account("Beta", ParentId=first)
    for last, account in (("Zoe", first), ("Abel", first), ("Moe", second), ("Nil", None)):
        values = {"LastName": last, "FirstName": "X", "AccountId": account}
        await org.gate.create(org.call, "Contact", values)
    return first, second


async def test_parents_stand_inside_their_rows_and_a_null_parent_is_null(org: TestOrg) -> None:
    first, _ = await make_people(org)
    soql = "SELECT LastName, Account.Name, Account.Parent.Name, Account.Owner.Name FROM Contact ORDER BY LastName"
    abel, moe, nil, zoe = (await ask(org, soql)).rows
    assert parent(abel, "Account")["Name"] == "Acme"
    assert parent(abel, "Account")["Parent"] is None
    assert parent(parent(moe, "Account"), "Parent")["Id"] == first
    assert parent(parent(zoe, "Account"), "Owner")["LastName"]
    assert nil["Account"] is None


@pytest.mark.parametrize(
    "condition, found",
    [
        ("Account.Name = 'acme'", "Abel Zoe"),
        ("Account.Name != 'acme'", "Moe Nil"),
        ("Account.Name = NULL", "Nil"),
        ("NOT Account.Name LIKE 'a%'", "Moe Nil"),
        ("Account.Parent.Industry = 'Media'", "Moe"),
        ("Account.Parent.Parent.Name = NULL", "Abel Moe Nil Zoe"),
        ("Account.AnnualRevenue > 99", "Abel Zoe"),
        ("Account.Name = 'Beta' OR AccountId = NULL", "Moe Nil"),
        ("Account.Owner.Name != NULL", "Abel Moe Zoe"),
        ("AccountId IN (SELECT Id FROM Account WHERE Parent.Name = 'Acme')", "Moe"),
        ("AccountId NOT IN (SELECT Id FROM Account WHERE Parent.Name = 'Acme')", "Abel Nil Zoe"),
        ("NOT AccountId IN (SELECT ParentId FROM Account)", "Moe Nil"),
        ("Name LIKE 'x a%'", "Abel"),
        ("CreatedDate = TODAY AND LastName != 'Moe'", "Abel Nil Zoe"),
        ("CreatedDate < TODAY", ""),
        ("CALENDAR_YEAR(CreatedDate) = 2023 AND HOUR_IN_DAY(Account.CreatedDate) = 22", "Abel Moe Zoe"),
    ],
)
async def test_condition_on_related_records_picks(org: TestOrg, condition: str, found: str) -> None:
    await make_people(org)
    soql = f"SELECT LastName FROM Contact WHERE {condition} ORDER BY LastName"
    assert await names(org, soql, "LastName") == found.split()
    counted = await ask(org, f"SELECT COUNT() FROM Contact WHERE {condition}")
    assert counted.count == len(found.split())


async def test_rows_sort_by_fields_of_parents_and_by_whole_names(org: TestOrg) -> None:
    await make_people(org)
    by_account = "SELECT LastName FROM Contact ORDER BY Account.Name DESC NULLS LAST, Name"
    assert await names(org, by_account, "LastName") == ["Moe", "Abel", "Zoe", "Nil"]
    assert await names(org, "SELECT LastName FROM Contact ORDER BY Name DESC", "LastName") == [
        "Zoe",
        "Nil",
        "Moe",
        "Abel",
    ]


async def test_children_have_their_own_where_order_and_limit(org: TestOrg) -> None:
    first, _ = await make_people(org)
    soql = (
        "SELECT Name, (SELECT LastName, Account.Name FROM Contacts WHERE LastName != 'x' "
        "ORDER BY LastName DESC LIMIT 1), (SELECT Id FROM Opportunities) FROM Account ORDER BY Name"
    )
    rows = (await ask(org, soql)).rows
    contacts = rows[0]["Contacts"]
    assert isinstance(contacts, Children)
    assert [child["LastName"] for child in contacts.rows] == ["Zoe"]
    assert parent(contacts.rows[0], "Account")["Id"] == first
    assert rows[0]["Opportunities"] is None
    assert count_rows(rows) == 4


async def test_lookup_to_several_types_shows_the_record_it_points_at(org: TestOrg) -> None:
    account = await org.make_account("Acme", Phone="1")
    case = await org.gate.create(org.call, "Case", {"Subject": "S"})
    for subject, what in (("a", account), ("b", case), ("c", None)):
        await org.gate.create(org.call, "Task", {"Subject": subject, "WhatId": what})
    a, b, c = (await ask(org, "SELECT What.Type, What.Name, Owner.Name FROM Task ORDER BY Subject")).rows
    assert (parent(a, "What")["Type"], parent(a, "What")["Name"]) == ("Account", "Acme")
    assert (parent(b, "What")["Type"], parent(b, "What")["CaseNumber"]) == ("Case", "00001000")
    assert c["What"] is None
    owner = a["Owner"]
    assert isinstance(owner, Related)
    assert owner.entity.name == "User"
    typed = "SELECT TYPEOF What WHEN Account THEN Phone, Owner.Name END FROM Task ORDER BY Subject"
    a, b, _ = (await ask(org, typed)).rows
    assert parent(a, "What")["Phone"] == "1"
    assert b["What"] is None
    for condition, found in (
        ("What.Type = 'Account'", ["a"]),
        ("What.Type != 'Account'", ["b", "c"]),
        ("What.Type IN ('Case', 'Nothing')", ["b"]),
        ("What.Name = 'acme'", ["a"]),
        ("What.Name = NULL", ["c"]),
        ("What.Type = NULL", ["c"]),
        ("Owner.Name != NULL", ["a", "b", "c"]),
    ):
        soql = f"SELECT Subject FROM Task WHERE {condition} ORDER BY Subject"
        assert await names(org, soql, "Subject") == found, condition


async def make_deals(org: TestOrg) -> None:
    for name, stage, amount, day in (
        ("a", "Prospecting", 0.1, "2024-01-31"),
        ("b", "Prospecting", 0.2, "2024-04-01"),
        ("c", "Closed Won", 5, "2024-04-30"),
        ("d", "Closed Won", None, "2023-12-31"),
    ):
        values = {"Name": name, "StageName": stage, "Amount": amount, "CloseDate": day}
        await org.gate.create(org.call, "Opportunity", values)


async def test_overall_aggregates_ignore_nulls(org: TestOrg) -> None:
    soql = (
        "SELECT COUNT(Id), COUNT(Amount) n, COUNT_DISTINCT(StageName), SUM(Amount), AVG(Amount), MIN(Name), "
        "MAX(CloseDate) FROM Opportunity"
    )
    (empty,) = (await ask(org, soql)).rows
    assert empty == {
        "expr0": 0,
        "n": 0,
        "expr1": 0,
        "expr2": None,
        "expr3": None,
        "expr4": None,
        "expr5": None,
    }
    await make_deals(org)
    (row,) = (await ask(org, soql)).rows
    assert row["expr0"] == 4
    assert (row["n"], row["expr1"], row["expr2"]) == (3, 2, 5.3)
    assert row["expr3"] == pytest.approx(5.3 / 3)
    assert (row["expr4"], row["expr5"]) == ("a", 1_714_435_200_000)


async def test_groups_come_in_the_order_of_the_picklist_and_obey_having(org: TestOrg) -> None:
    await make_deals(org)
    rows = (await ask(org, "SELECT StageName, SUM(Amount) total FROM Opportunity GROUP BY StageName")).rows
    assert [tuple(row.values()) for row in rows] == [("Prospecting", 0.3), ("Closed Won", 5.0)]
    having = "GROUP BY StageName HAVING SUM(Amount) > 1 OR StageName LIKE 'x%'"
    assert await names(org, f"SELECT StageName FROM Opportunity {having}", "StageName") == ["Closed Won"]
    ordered = "SELECT StageName s FROM Opportunity GROUP BY StageName ORDER BY SUM(Amount) DESC LIMIT 1"
    assert await names(org, ordered, "s") == ["Closed Won"]


async def test_date_functions_group_and_roll_up(org: TestOrg) -> None:
    await make_deals(org)
    year, quarter = "CALENDAR_YEAR(CloseDate)", "CALENDAR_QUARTER(CloseDate)"
    soql = (
        f"SELECT {year} y, {quarter} q, COUNT(Id) n, GROUPING({quarter}) g "
        f"FROM Opportunity GROUP BY ROLLUP({year}, {quarter})"
    )
    rows = [tuple(row.values()) for row in (await ask(org, soql)).rows]
    assert rows == [
        (2023, 4, 1, 0),
        (2023, None, 1, 1),
        (2024, 1, 1, 0),
        (2024, 2, 2, 0),
        (2024, None, 3, 1),
        (None, None, 4, 1),
    ]


async def test_cube_has_every_combination_and_says_what_was_rolled_up(org: TestOrg) -> None:
    await make_deals(org)
    soql = (
        "SELECT IsWon, StageName, COUNT(Id) n, GROUPING(IsWon) won, GROUPING(StageName) stage "
        "FROM Opportunity GROUP BY CUBE(IsWon, StageName) ORDER BY GROUPING(IsWon), GROUPING(StageName)"
    )
    rows = [tuple(row.values()) for row in (await ask(org, soql)).rows]
    assert rows == [
        (False, "Prospecting", 2, 0, 0),
        (True, "Closed Won", 2, 0, 0),
        (False, None, 2, 0, 1),
        (True, None, 2, 0, 1),
        (None, "Prospecting", 2, 1, 0),
        (None, "Closed Won", 2, 1, 0),
        (None, None, 4, 1, 1),
    ]


async def test_groups_reach_over_relationships_and_pages(
    org: TestOrg, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aggregate, "_PAGE_ROWS", 3)
    await make_people(org)
    soql = (
        "SELECT Account.Name, COUNT(Id) n, MAX(Name) FROM Contact GROUP BY Account.Name "
        "ORDER BY Account.Name NULLS LAST"
    )
    rows = [tuple(row.values()) for row in (await ask(org, soql)).rows]
    assert rows == [("Acme", 2, "X Zoe"), ("Beta", 1, "X Moe"), (None, 1, "X Nil")]


async def test_more_groups_than_one_page_are_refused(org: TestOrg, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregate, "MAX_GROUPS", 2)
    await make_people(org)
    with pytest.raises(TooManyRecords, match="does not support queryMore"):
        await ask(org, "SELECT LastName FROM Contact GROUP BY LastName")
    assert len((await ask(org, "SELECT LastName FROM Contact GROUP BY LastName LIMIT 2")).rows) == 2


async def make_sites(org: TestOrg) -> str:
    await org.apply(**PLACES)
    account = await org.make_account()
    for name, latitude, longitude, tags, kind in (
        ("Paris", 48.8566, 2.3522, "red;green", "Big"),
        ("London", 51.5074, -0.1278, "green", "Small"),
        ("Tokyo", 35.6762, 139.6503, "blue", "Average"),
        ("Nowhere", None, None, None, None),
    ):
        values = {
            "Name": name,
            "Place__Latitude__s": latitude,
            "Place__Longitude__s": longitude,
            "Tags__c": tags,
            "Kind__c": kind,
            "Account__c": account,
        }
        await org.gate.create(org.call, "Site__c", values)
    return account


async def test_distance_is_selected_filtered_and_sorted_by(org: TestOrg) -> None:
    await make_sites(org)
    away = "DISTANCE(Place__c, GEOLOCATION(51.5, 0), 'km')"
    rows = (await ask(org, f"SELECT Name, {away} far FROM Site__c ORDER BY {away} NULLS LAST")).rows
    assert [row["Name"] for row in rows] == ["London", "Paris", "Tokyo", "Nowhere"]
    assert rows[1]["far"] == pytest.approx(339.5, abs=5)
    assert rows[3]["far"] is None
    near = f"FROM Site__c WHERE {away} < 500 AND Name != 'x'"
    assert await names(org, f"SELECT Name {near} ORDER BY {away} DESC LIMIT 1") == ["Paris"]
    assert (await ask(org, f"SELECT COUNT() {near}")).count == 2
    for number, keys in enumerate(
        (f"Kind__c NULLS LAST, {away} DESC", f"Account__c, {away} NULLS LAST", f"{away} DESC, Name")
    ):
        expected = ("London Paris Tokyo Nowhere", "London Paris Tokyo Nowhere", "Nowhere Tokyo Paris London")
        assert await names(org, f"SELECT Name FROM Site__c ORDER BY {keys}") == expected[number].split()
    either = f"SELECT Name FROM Site__c WHERE {away} > 5000 OR Name = 'nowhere' ORDER BY Name"
    assert await names(org, either) == ["Nowhere", "Tokyo"]
    miles = away.replace("km", "mi")
    assert await names(org, f"SELECT Name FROM Site__c WHERE NOT {miles} > 250 ORDER BY Name") == [
        "London",
        "Nowhere",
        "Paris",
    ]


async def test_picklists_sort_as_defined_and_multi_picklists_include(org: TestOrg) -> None:
    account = await make_sites(org)
    by_kind = "SELECT Name FROM Site__c ORDER BY Kind__c NULLS LAST"
    assert await names(org, by_kind) == ["London", "Paris", "Tokyo", "Nowhere"]
    for condition, found in (
        ("Tags__c INCLUDES ('RED;green', 'blue')", ["Paris", "Tokyo"]),
        ("Tags__c EXCLUDES ('green')", ["Nowhere", "Tokyo"]),
        ("Tags__c = 'green;red'", ["Paris"]),
        ("Account__r.Name = 'Acme' AND toLabel(Kind__c) = 'big'", ["Paris"]),
    ):
        assert await names(org, f"SELECT Name FROM Site__c WHERE {condition} ORDER BY Name") == found
    (row,) = (await ask(org, "SELECT Id, (SELECT Name FROM Sites__r) FROM Account")).rows
    assert isinstance(row["Sites__r"], Children)
    assert row["Id"] == account
    (group,) = (await ask(org, "SELECT MAX(Kind__c) k FROM Site__c")).rows
    assert group["k"] == "Average"


async def test_presented_values_are_texts(org: TestOrg) -> None:
    await org.make_account(AnnualRevenue=-1234567, NumberOfEmployees=1200, Industry="Media")
    soql = (
        "SELECT FORMAT(AnnualRevenue) money, FORMAT(NumberOfEmployees), FORMAT(CreatedDate) made, "
        "toLabel(Industry) FROM Account"
    )
    (row,) = (await ask(org, soql)).rows
    assert row["money"] == "-$1,234,567"
    assert row["NumberOfEmployees"] == "1,200"
    assert row["made"] == "11/14/2023, 10:13 PM"
    assert row["Industry"] == "Media"


async def test_deleted_records_show_only_when_asked_for(org: TestOrg) -> None:
    record_id = await org.make_account()
    await org.gate.delete(org.call, "Account", record_id)
    for soql, count in (("SELECT Id FROM Account", 0), ("SELECT Name FROM Account GROUP BY Name", 0)):
        assert len((await ask(org, soql)).rows) == count
        found = await org.gate.query(org.admin, soql, include_deleted=True)
        assert len(found.rows) == count + 1


MASTERS: dict[str, object] = {
    "objects": {
        "Box__c": {"fields": {}},
        "Item__c": {
            "fields": {
                "Box__c": {
                    "type": "MasterDetail",
                    "references": "Box__c",
                    "relationship": "Box__r",
                    "child_relationship": "Items",
                }
            }
        },
    }
}


async def test_deleted_master_shows_only_with_its_deleted_details(org: TestOrg) -> None:
    await org.apply(**MASTERS)
    box = await org.gate.create(org.call, "Box__c", {"Name": "B"})
    await org.gate.create(org.call, "Item__c", {"Name": "I", "Box__c": box})
    await org.gate.delete(org.call, "Box__c", box)
    soql = "SELECT Name, Box__r.Name FROM Item__c WHERE Box__r.Name = 'b'"
    assert (await ask(org, soql)).rows == []
    (item,) = (await org.gate.query(org.admin, soql, include_deleted=True)).rows
    assert parent(item, "Box__r")["Name"] == "B"
    nested = "SELECT Name, (SELECT Name FROM Items__r) FROM Box__c"
    (found,) = (await org.gate.query(org.admin, nested, include_deleted=True)).rows
    assert isinstance(found["Items__r"], Children)


async def test_lookup_to_a_deleted_record_is_cleared_in_both_kinds_of_query(org: TestOrg) -> None:
    first, _ = await make_people(org)
    await org.gate.delete(org.call, "Account", first)
    soql = "SELECT ParentId, Parent.Name FROM Account WHERE Name = 'Beta'"
    for include_deleted in (False, True):
        (row,) = (await org.gate.query(org.admin, soql, include_deleted=include_deleted)).rows
        assert (row["ParentId"], row["Parent"]) == (None, None)


async def test_parent_in_the_recycle_bin_is_none_unless_deleted_records_are_asked_for(org: TestOrg) -> None:
    account = await org.make_account("Gone")
    contact = await org.gate.create(org.call, "Contact", {"LastName": "Left"})
    await org.gate.delete(org.call, "Account", account)
    stored = org.gate.catalog.object("Contact")
    # No write leads here: a lookup that outlived its record, as a restored or repaired database may hold.
    await org.core.records.write_plain(lambda tx: update_row(tx, stored, contact, {"AccountId": account}))
    soql = "SELECT Account.Name FROM Contact WHERE LastName = 'Left'"
    for include_deleted, name in ((False, None), (True, "Gone")):
        (row,) = (await org.gate.query(org.admin, soql, include_deleted=include_deleted)).rows
        found = row["Account"]
        assert (found.row["Name"] if isinstance(found, Related) else None) == name
        for condition, count in (
            ("Account.Name = 'gone'", int(include_deleted)),
            ("Account.Name = NULL", int(not include_deleted)),
        ):
            rows = (
                await org.gate.query(org.admin, f"{soql} AND {condition}", include_deleted=include_deleted)
            ).rows
            assert len(rows) == count, condition


async def test_fields_function_reads_what_the_user_may_see(org: TestOrg) -> None:
    await org.make_account(Phone="1")
    seen = (await org.gate.query(org.reader, "SELECT FIELDS(ALL) FROM Account LIMIT 200")).columns
    everything = (await ask(org, "SELECT FIELDS(STANDARD) FROM Account")).columns
    assert {"Phone", "Fax"} <= {field.name for field in everything}
    assert "Phone" not in {field.name for field in seen}
    assert "Fax" in {field.name for field in seen}


@pytest.mark.parametrize(
    "soql",
    [
        "SELECT Parent.Phone FROM Account",
        "SELECT Id FROM Account WHERE Parent.Phone = 'x'",
        "SELECT Id FROM Account ORDER BY Parent.Phone",
        "SELECT Parent.Phone, COUNT(Id) FROM Account GROUP BY Parent.Phone",
        "SELECT MAX(Parent.Phone) FROM Account",
        "SELECT Id, (SELECT Phone FROM ChildAccounts) FROM Account",
        "SELECT Id FROM Account WHERE Id IN (SELECT ParentId FROM Account WHERE Phone = 'x')",
        "SELECT FORMAT(Parent.AnnualRevenue) FROM Account",
    ],
)
async def test_hidden_field_is_hidden_on_every_path(org: TestOrg, soql: str) -> None:
    await ask(org, soql)
    with pytest.raises(FieldUnknown):
        await org.gate.query(org.reader, soql)


async def test_hidden_object_is_reached_by_no_path(org: TestOrg) -> None:
    with pytest.raises(ObjectUnknown):
        await org.gate.query(org.reader, "SELECT Id, (SELECT Id FROM Opportunities) FROM Account")
    with pytest.raises(ObjectUnknown):
        await org.gate.query(
            org.reader, "SELECT Id FROM Account WHERE Id IN (SELECT AccountId FROM Opportunity)"
        )
    with pytest.raises(FieldUnknown):
        await org.gate.query(org.reader, "SELECT Owner.Profile.Name FROM Account")


BOTH_STORES = [
    "SELECT Name, Account.Name FROM Contact ORDER BY Account.Name DESC NULLS LAST, Name",
    "SELECT LastName FROM Contact WHERE Account.Parent.Name != 'x' AND Name LIKE '%x%' ORDER BY LastName DESC",
    "SELECT Name, (SELECT LastName FROM Contacts WHERE LastName > 'b' ORDER BY LastName LIMIT 1) FROM Account",
    "SELECT Id, (SELECT Id, (SELECT Name FROM Contacts ORDER BY Name LIMIT 1) FROM ChildAccounts) FROM Account",
    "SELECT Id FROM Account WHERE Id IN (SELECT AccountId FROM Contact WHERE Account.Name LIKE 'a%')",
    "SELECT LastName FROM Contact WHERE AccountId NOT IN (SELECT Id FROM Account WHERE Industry = 'Media')",
    "SELECT COUNT() FROM Contact WHERE Account.Name = NULL LIMIT 5 OFFSET 0",
    "SELECT Account.Name, COUNT(Id), MIN(Name) FROM Contact GROUP BY Account.Name HAVING COUNT(Id) > 0",
    "SELECT DAY_ONLY(CreatedDate) d, COUNT(Id) FROM Contact GROUP BY ROLLUP(DAY_ONLY(CreatedDate))",
    *(
        f"SELECT {function}(CloseDate) p, COUNT(Id) FROM Opportunity GROUP BY {function}(CloseDate)"
        for function in sorted(DATE_FUNCTIONS - CLOCK_FUNCTIONS)
    ),
    "SELECT Name FROM Opportunity WHERE CALENDAR_QUARTER(CloseDate) = 2 AND CloseDate = NEXT_YEAR",
    "SELECT Name FROM Opportunity WHERE HOUR_IN_DAY(CreatedDate) >= 0 ORDER BY StageName DESC, Amount, IsWon",
    "SELECT Name FROM Site__c WHERE Tags__c INCLUDES ('red;green', 'blue') ORDER BY Kind__c",
    "SELECT Name FROM Site__c WHERE Tags__c EXCLUDES ('green') OR Tags__c = 'green' ORDER BY Kind__c DESC",
    "SELECT Name FROM Site__c ORDER BY DISTANCE(Place__c, GEOLOCATION(51.5, 0), 'km') NULLS LAST",
    "SELECT Subject FROM Task WHERE What.Name = 'acme' OR What.Type = 'Case' ORDER BY What.Name, Owner.Name",
    "SELECT What.Type, Who.Name FROM Task",
]


async def test_both_databases_give_the_same_answers(
    org: TestOrg, postgres: PostgresServer, tmp_path: Path
) -> None:
    async with open_org(tmp_path / "other", store=postgres.make_url()) as other:
        for each in (org, other):
            await make_people(each)
            await make_deals(each)
            account = await make_sites(each)
            await each.gate.create(each.call, "Task", {"Subject": "a", "WhatId": account})
            await each.gate.create(each.call, "Task", {"Subject": "b"})
        for soql in BOTH_STORES:
            ours, theirs = await ask(org, soql), await ask(other, soql)
            assert ours.rows or ours.count is not None, soql
            assert (ours.count, ours.rows) == (theirs.count, theirs.rows), soql
