"""Query answers page by page: what counts towards a page, and what later pages show."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.orgs import TestOrg
from tidewire.errors import FieldUnknown, LocatorInvalid, SoqlSyntaxError, TooManyRecords
from tidewire.gate.query_pages import AnswerPage, QueryPages
from tidewire.gate.requests import Write
from tidewire.records import query
from tidewire.records.query import Cell, Children, count_rows


def phones(level: str) -> dict[str, object]:
    fields = {"Account": {"Phone": level}}
    return {"Phones": {"label": "Phones", "objects": {"Account": ["read"]}, "fields": fields}}


def pages_of(org: TestOrg) -> QueryPages:
    return QueryPages(org.gate, org.core.cursors, org.clock)


async def open_page(
    org: TestOrg, soql: str, size: int = 100, *, version: int = 62, include_deleted: bool = False
) -> AnswerPage:
    return await pages_of(org).open(org.admin, soql, size, version=version, include_deleted=include_deleted)


async def read_rest(org: TestOrg, locator: str, size: int) -> list[Mapping[str, Cell]]:
    """All rows from a locator on; every page but the last is full."""
    rows: list[Mapping[str, Cell]] = []
    while locator:
        page = await pages_of(org).read_next(org.admin, locator, size)
        assert count_rows(page.rows.rows) <= size
        rows += page.rows.rows
        locator = page.locator
    return rows


def children(row: Mapping[str, Cell], name: str) -> Children:
    found = row[name]
    assert isinstance(found, Children)
    return found


def texts(rows: list[Mapping[str, Cell]] | list[dict[str, Cell]], name: str) -> list[Cell]:
    return [row[name] for row in rows]


async def make_contacts(org: TestOrg, account: str, count: int) -> None:
    writes = [
        Write("Contact", None, {"LastName": f"C{number:03}", "AccountId": account}) for number in range(count)
    ]
    await org.gate.write_together(org.call, writes, all_or_none=True)


def nested(levels: int, name: str = "ChildAccounts") -> str:
    soql = f"SELECT Name FROM {name}"
    for _ in range(levels - 1):
        soql = f"SELECT Name, ({soql}) FROM {name}"
    return f"SELECT Name, ({soql}) FROM Account WHERE ParentId = NULL"


async def test_children_stand_in_children_five_levels_deep(org: TestOrg) -> None:
    parent = None
    for level in range(7):
        parent = await org.make_account(f"L{level}", ParentId=parent)
    (row,) = (await open_page(org, nested(5))).rows.rows
    record: Mapping[str, Cell] = row
    for level in range(1, 6):
        (record,) = children(record, "ChildAccounts").rows
        assert record["Name"] == f"L{level}"
    assert "ChildAccounts" not in record


@pytest.mark.parametrize(
    "levels, version, allowed", [(1, 57, 1), (2, 58, 5), (5, 67, 5), (2, 57, 1), (6, 58, 5), (6, 40, 1)]
)
async def test_nesting_beyond_the_api_version_is_rejected(
    org: TestOrg, levels: int, version: int, allowed: int
) -> None:
    if levels <= allowed:
        await open_page(org, nested(levels), version=version)
        return
    with pytest.raises(SoqlSyntaxError, match=r"more than \d levels? away from the root entity"):
        await open_page(org, nested(levels), version=version)


async def test_error_of_an_older_version_names_the_position_of_the_inner_subquery(org: TestOrg) -> None:
    with pytest.raises(SoqlSyntaxError) as caught:
        await open_page(org, nested(2), version=57)
    assert (caught.value.details["row"], caught.value.details["column"]) == (1, 28)


async def test_inner_limit_and_offset_hold_for_each_parent(org: TestOrg) -> None:
    for name, count in (("A", 3), ("B", 1), ("C", 0)):
        await make_contacts(org, await org.make_account(name), count)
    inner = "SELECT LastName FROM Contacts ORDER BY LastName DESC LIMIT 2"
    soql = f"SELECT Name, ({inner}) FROM Account ORDER BY Name"
    a, b, c = (await open_page(org, soql)).rows.rows
    assert texts(children(a, "Contacts").rows, "LastName") == ["C002", "C001"]
    assert texts(children(b, "Contacts").rows, "LastName") == ["C000"]
    assert c["Contacts"] is None
    soql = (
        "SELECT Name, (SELECT LastName FROM Contacts ORDER BY LastName LIMIT 5 OFFSET 1) "
        "FROM Account ORDER BY Name LIMIT 1"
    )
    (a,) = (await open_page(org, soql)).rows.rows
    assert texts(children(a, "Contacts").rows, "LastName") == ["C001", "C002"]
    assert children(a, "Contacts").total == 2


async def test_children_count_towards_the_page(org: TestOrg) -> None:
    for number in range(5):
        await make_contacts(org, await org.make_account(f"A{number}"), 3)
    soql = "SELECT Name, (SELECT LastName FROM Contacts) FROM Account ORDER BY Name"
    first = await open_page(org, soql, 9)
    assert texts(first.rows.rows, "Name") == ["A0", "A1"]
    assert (first.total, bool(first.locator)) == (5, True)
    rest = await read_rest(org, first.locator, 9)
    assert texts(rest, "Name") == ["A2", "A3", "A4"]
    assert all(len(children(row, "Contacts").rows) == 3 for row in rest)


async def test_children_larger_than_the_page_have_pages_of_their_own(org: TestOrg) -> None:
    account = await org.make_account("Big")
    await make_contacts(org, account, 12)
    await org.make_account("Small")
    soql = (
        "SELECT Name, (SELECT LastName, Account.Name FROM Contacts ORDER BY LastName), "
        "(SELECT Id FROM Opportunities) FROM Account ORDER BY Name"
    )
    first = await open_page(org, soql, 5)
    (big,) = first.rows.rows
    contacts = children(big, "Contacts")
    assert (contacts.total, len(contacts.rows), contacts.ids) == (12, 4, None)
    assert big["Opportunities"] is None
    shown = [*contacts.rows, *await read_rest(org, contacts.locator, 5)]
    assert texts(shown, "LastName") == [f"C{number:03}" for number in range(12)]
    assert texts(await read_rest(org, first.locator, 5), "Name") == ["Small"]
    with pytest.raises(LocatorInvalid, match="invalid query locator"):
        await pages_of(org).read_next(org.reader, contacts.locator, 5)


async def test_every_record_of_a_deep_answer_is_reached_through_its_locators(org: TestOrg) -> None:
    top = await org.make_account("top")
    for number in range(3):
        middle = await org.make_account(f"m{number}", ParentId=top)
        await make_contacts(org, middle, 7 if number == 1 else 2)
    soql = (
        "SELECT Name, (SELECT Name, (SELECT LastName FROM Contacts) FROM ChildAccounts ORDER BY Name) "
        "FROM Account WHERE ParentId = NULL"
    )
    for size in range(2, 18):
        seen: list[Cell] = []

        async def gather(rows: list[Mapping[str, Cell]], size: int = size, seen: list[Cell] = seen) -> None:
            for row in rows:
                seen.append(row.get("Name") or row.get("LastName"))
                for cell in row.values():
                    if isinstance(cell, Children):
                        rest = await read_rest(org, cell.locator, size)
                        assert cell.total == len(cell.rows) + len(rest)
                        await gather([*cell.rows, *rest])

        page = await open_page(org, soql, size)
        await gather([*page.rows.rows, *await read_rest(org, page.locator, size)])
        assert len(seen) == 15, size
        assert seen.count("top") == 1


async def test_ids_are_read_in_slices_and_pages_keep_the_order(
    org: TestOrg, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "_ID_SLICE", 3)
    for number in (3, 1, 4, 1, 5, 9, 2, 6):
        await org.make_account(f"A{number}")
    soql = "SELECT Name FROM Account ORDER BY Name DESC"
    whole = texts((await open_page(org, soql)).rows.rows, "Name")
    for limit, offset in ((100, 0), (7, 0), (6, 1), (6, 0), (3, 2)):
        page = await open_page(org, f"{soql} LIMIT {limit} OFFSET {offset}", 2)
        rows = [*page.rows.rows, *await read_rest(org, page.locator, 2)]
        assert texts(rows, "Name") == whole[offset : offset + limit]
        assert page.total == len(rows)
    monkeypatch.setattr(query, "MAX_ROWS", 7)
    with pytest.raises(TooManyRecords):
        await open_page(org, soql, 2)


async def test_later_page_shows_no_field_that_was_taken_away(org: TestOrg) -> None:
    user = {"reader@tidewire.local": {"permission_sets": ["Phones"]}}
    await org.apply(permission_sets=phones("read"), users=user)
    for number in range(4):
        await org.make_account(f"A{number}", Phone=str(number))
    pages = pages_of(org)
    soql = "SELECT Name, Phone FROM Account ORDER BY Name"
    page = await pages.open(org.reader, soql, 2, version=62)
    assert texts(page.rows.rows, "Phone") == ["0", "1"]
    await org.apply(permission_sets=phones("none"))
    with pytest.raises(FieldUnknown):
        await pages.read_next(org.reader, page.locator, 2)


async def test_later_page_omits_rows_that_no_longer_match(org: TestOrg) -> None:
    ids = [await org.make_account(f"A{number}", Site="x") for number in range(6)]
    soql = "SELECT Name FROM Account WHERE Site = 'x' ORDER BY Name"
    living = await open_page(org, soql, 2)
    every = await open_page(org, soql, 2, include_deleted=True)
    await org.gate.delete(org.call, "Account", ids[2])
    await org.gate.update(org.call, "Account", ids[4], {"Site": "y", "Name": "other"})
    await org.gate.update(org.call, "Account", ids[5], {"Name": "renamed"})
    assert texts(await read_rest(org, living.locator, 2), "Name") == ["A3", "renamed"]
    assert texts(await read_rest(org, every.locator, 2), "Name") == ["A2", "A3", "renamed"]


async def test_page_that_lost_all_its_rows_still_leads_on(org: TestOrg) -> None:
    ids = [await org.make_account(f"A{number}") for number in range(6)]
    page = await open_page(org, "SELECT Name FROM Account ORDER BY Name", 2)
    for record_id in ids[2:4]:
        await org.gate.delete(org.call, "Account", record_id)
    second = await pages_of(org).read_next(org.admin, page.locator, 2)
    assert second.rows.rows == []
    assert texts(await read_rest(org, second.locator, 2), "Name") == ["A4", "A5"]


async def test_distances_page_in_their_order(org: TestOrg) -> None:
    for number in (4, 1, 3, 2, 5):
        await org.make_account(f"A{number}", BillingLatitude=number, BillingLongitude=0)
    away = "DISTANCE(BillingAddress, GEOLOCATION(0, 0), 'km')"
    soql = f"SELECT Name FROM Account WHERE {away} < 500 ORDER BY {away}"
    page = await open_page(org, soql, 2)
    assert page.total == 4
    rows = [*page.rows.rows, *await read_rest(org, page.locator, 2)]
    assert texts(rows, "Name") == ["A1", "A2", "A3", "A4"]


async def test_groups_and_counts_are_not_paged(org: TestOrg) -> None:
    for number in range(5):
        await org.make_account(f"A{number}")
    groups = await open_page(org, "SELECT Name FROM Account GROUP BY Name", 2)
    assert (len(groups.rows.rows), groups.total, groups.locator) == (5, 5, "")
    counted = await open_page(org, "SELECT COUNT() FROM Account", 2)
    assert (counted.rows.count, counted.total, counted.locator) == (5, 5, "")
    assert counted.rows.position > 0
