"""Queries whose meaning depends on who asks: their clock, the org's fiscal year, their own records."""

from __future__ import annotations

import pytest

from tests.orgs import TestOrg
from tidewire.access.principal import Principal
from tidewire.errors import FieldUnknown, SoqlSyntaxError

LOS_ANGELES, TOKYO = "America/Los_Angeles", "Asia/Tokyo"
# The clock of a test org stands at 2023-11-14T22:13:20Z: afternoon in Los Angeles, the next morning in Tokyo.


async def live_in(org: TestOrg, zone: str, user: Principal | None = None) -> None:
    user_id = (user or org.admin).user_id
    await org.gate.update(org.call, "User", user_id, {"TimeZoneSidKey": zone})


async def ask(org: TestOrg, soql: str, user: Principal | None = None) -> list[tuple[object, ...]]:
    rows = (await org.gate.query(user or org.admin, soql)).rows
    return [tuple(row.values()) for row in rows]


async def count(org: TestOrg, condition: str, entity: str = "Account") -> int | None:
    return (await org.gate.query(org.admin, f"SELECT COUNT() FROM {entity} WHERE {condition}")).count


@pytest.fixture
async def meetings(org: TestOrg) -> TestOrg:
    """An org with records whose moments lie on either side of midnight in one zone or another."""
    await org.apply(
        objects={
            "Meeting__c": {
                "name": {"type": "Text"},
                "fields": {"At__c": {"type": "DateTime"}, "Due__c": {"type": "Date"}},
            }
        }
    )
    for name, at, due in (
        ("early", "2023-11-14T07:59:59Z", "2023-11-14"),
        ("noon", "2023-11-14T14:59:59Z", "2023-11-15"),
        ("late", "2023-11-14T15:00:00Z", "2023-11-15"),
        ("night", "2023-11-15T08:00:00Z", "2023-11-16"),
        ("never", None, None),
    ):
        await org.gate.create(org.call, "Meeting__c", {"Name": name, "At__c": at, "Due__c": due})
    return org


@pytest.mark.parametrize(
    "zone, at_today, due_today",
    [
        ("GMT", ["early", "late", "noon"], ["early"]),
        (LOS_ANGELES, ["late", "noon"], ["early"]),
        (TOKYO, ["late", "night"], ["late", "noon"]),
    ],
)
async def test_today_is_a_day_of_the_callers_zone(
    meetings: TestOrg, zone: str, at_today: list[str], due_today: list[str]
) -> None:
    await live_in(meetings, zone)
    for field, names in (("At__c", at_today), ("Due__c", due_today)):
        soql = f"SELECT Name FROM Meeting__c WHERE {field} = TODAY ORDER BY Name"
        assert [row["Name"] for row in (await meetings.gate.query(meetings.admin, soql)).rows] == names


async def test_two_callers_get_each_their_own_day(meetings: TestOrg) -> None:
    await live_in(meetings, LOS_ANGELES)
    await live_in(meetings, TOKYO, meetings.reader)
    account = await meetings.make_account()
    soql = f"SELECT COUNT() FROM Account WHERE Id = '{account}' AND DAY_ONLY(convertTimezone(CreatedDate)) = 2023-11-15"
    for user, expected in ((meetings.admin, 0), (meetings.reader, 1), (meetings.admin, 0)):
        assert (await meetings.gate.query(user, soql)).count == expected


async def test_converted_moments_are_selected_grouped_and_filtered(meetings: TestOrg) -> None:
    day, hour = "DAY_ONLY(convertTimezone(At__c))", "HOUR_IN_DAY(convertTimezone(At__c))"
    grouped = (
        f"SELECT {hour} h, COUNT(Id) n FROM Meeting__c GROUP BY {hour} HAVING {hour} != NULL ORDER BY {hour}"
    )
    assert await ask(meetings, grouped) == [(7, 1), (8, 1), (14, 1), (15, 1)]
    await live_in(meetings, LOS_ANGELES)
    assert await ask(meetings, grouped) == [(0, 1), (6, 1), (7, 1), (23, 1)]
    assert await count(meetings, f"{day} = 2023-11-14", "Meeting__c") == 2
    assert await count(meetings, f"{day} = TODAY", "Meeting__c") == 2
    assert await count(meetings, f"{hour} IN (23, 0)", "Meeting__c") == 2
    # Without the conversion a function is of UTC, whoever asks.
    assert await count(meetings, "HOUR_IN_DAY(At__c) = 14", "Meeting__c") == 1
    (first, *_) = await ask(meetings, f"SELECT {day}, COUNT(Id) FROM Meeting__c GROUP BY ROLLUP({day})")
    assert first == (None, 1)


async def test_converted_moment_stands_at_any_depth_of_a_condition(meetings: TestOrg) -> None:
    await live_in(meetings, LOS_ANGELES)
    condition = "HOUR_IN_DAY(convertTimezone(At__c)) = 23"
    for level in range(20):
        condition = f"Name != 'x' AND ({condition})" if level % 2 else f"Name = 'x' OR ({condition})"
    assert await count(meetings, condition, "Meeting__c") == 1


async def test_formatted_moment_is_that_of_the_callers_clock(org: TestOrg) -> None:
    await live_in(org, LOS_ANGELES)
    await org.make_account()
    (row,) = (await org.gate.query(org.admin, "SELECT FORMAT(CreatedDate) made FROM Account")).rows
    assert row["made"] == "11/14/2023, 2:13 PM"


async def test_fiscal_year_is_the_orgs(meetings: TestOrg) -> None:
    ((org_id,),) = await ask(meetings, "SELECT Id FROM Organization")
    year = "FISCAL_YEAR(Due__c) = 2023 AND FISCAL_QUARTER(Due__c) = 4 AND FISCAL_MONTH(Due__c) = 11"
    assert await count(meetings, year, "Meeting__c") == 4
    await meetings.gate.update(meetings.call, "Organization", str(org_id), {"FiscalYearStartMonth": 11})
    assert await count(meetings, year, "Meeting__c") == 0
    year = "FISCAL_YEAR(Due__c) = 2024 AND FISCAL_QUARTER(Due__c) = 1 AND FISCAL_MONTH(Due__c) = 1"
    assert await count(meetings, year, "Meeting__c") == 4
    assert await count(meetings, "Due__c = THIS_FISCAL_QUARTER", "Meeting__c") == 4
    assert await count(meetings, "Due__c = LAST_FISCAL_YEAR", "Meeting__c") == 0
    await meetings.gate.update(
        meetings.call, "Organization", str(org_id), {"UsesStartDateAsFiscalYearName": True}
    )
    assert await count(meetings, "FISCAL_YEAR(Due__c) = 2023", "Meeting__c") == 4


async def test_scope_mine_finds_the_callers_own_records(org: TestOrg) -> None:
    await org.make_account("Ours")
    await org.make_account("Theirs", OwnerId=org.reader.user_id)
    for scope, names in (
        ("mine", ["Ours"]),
        ("MineAndMyGroups", ["Ours"]),
        ("everything", ["Ours", "Theirs"]),
    ):
        rows = (
            await org.gate.query(org.admin, f"SELECT Name FROM Account USING SCOPE {scope} ORDER BY Name")
        ).rows
        assert [row["Name"] for row in rows] == names
    soql = "SELECT COUNT() FROM Account USING SCOPE mine WHERE Name = 'Ours' OR Name = 'Theirs'"
    assert (await org.gate.query(org.reader, soql)).count == 1
    assert (await org.gate.query(org.admin, soql)).count == 1


async def test_scope_mine_of_an_object_without_owner_is_refused(org: TestOrg) -> None:
    with pytest.raises(SoqlSyntaxError, match="scope 'mine' is not supported for entity 'User'"):
        await org.gate.query(org.admin, "SELECT Id FROM User USING SCOPE mine")


async def test_from_names_relationships_by_aliases(org: TestOrg) -> None:
    account = await org.make_account("Acme")
    await org.gate.create(org.call, "Contact", {"LastName": "Zoe", "AccountId": account})
    await org.gate.create(org.call, "Contact", {"LastName": "Nil"})
    soql = (
        "SELECT c.LastName, a.Name, o.Username FROM Contact c, c.Account a, a.Owner o "
        "WHERE a.Name = 'acme' AND o.Username != NULL ORDER BY a.Name"
    )
    plain = (
        "SELECT LastName, Account.Name, Account.Owner.Username FROM Contact "
        "WHERE Account.Name = 'acme' AND Account.Owner.Username != NULL ORDER BY Account.Name"
    )
    aliased = (await org.gate.query(org.admin, soql)).rows
    assert aliased == (await org.gate.query(org.admin, plain)).rows
    assert len(aliased) == 1
    wanted = (
        await org.gate.query(org.admin, "SELECT Name, (SELECT LastName FROM Contacts) FROM Account")
    ).rows
    for soql in (
        "SELECT Name, (SELECT LastName FROM Account.Contacts) FROM Account",
        "SELECT Name, (SELECT c.LastName FROM a.Contacts c) FROM Account a",
        "SELECT Name, (SELECT c.LastName FROM c) FROM Account a, a.Contacts c",
    ):
        assert (await org.gate.query(org.admin, soql)).rows == wanted


async def test_amount_in_a_currency_is_the_number(org: TestOrg) -> None:
    await org.make_account("Small", AnnualRevenue=100)
    await org.make_account("Big", AnnualRevenue=5000)
    assert await count(org, "AnnualRevenue > USD100") == 1
    assert await count(org, "AnnualRevenue IN (USD100.0, eur5000)") == 2


@pytest.mark.parametrize(
    "clauses",
    [
        "WITH SECURITY_ENFORCED",
        "WITH USER_MODE",
        "WITH SYSTEM_MODE",
        "FOR UPDATE",
        "FOR VIEW UPDATE TRACKING",
    ],
)
async def test_clause_without_effect_changes_nothing_that_is_seen(org: TestOrg, clauses: str) -> None:
    await org.make_account("Acme", Phone="1")
    assert len(await ask(org, f"SELECT Name FROM Account {clauses}")) == 1
    with pytest.raises(FieldUnknown):
        await org.gate.query(org.reader, f"SELECT Phone FROM Account {clauses}")


async def test_change_of_the_zone_is_seen_by_the_next_query(meetings: TestOrg) -> None:
    soql = "HOUR_IN_DAY(convertTimezone(At__c)) = 23"
    assert await count(meetings, soql, "Meeting__c") == 0
    await live_in(meetings, LOS_ANGELES)
    assert await count(meetings, soql, "Meeting__c") == 1
    await live_in(meetings, "GMT")
    assert await count(meetings, soql, "Meeting__c") == 0


async def test_scope_of_groups_finds_what_the_callers_queues_own(org: TestOrg) -> None:
    queue = await org.gate.create(org.call, "Group", {"Name": "Support", "Type": "Queue"})
    other = await org.gate.create(org.call, "Group", {"Name": "Sales", "Type": "Queue"})
    # Which objects a queue takes is a record of its own.
    for group in (queue, other):
        await org.gate.create(org.call, "QueueSobject", {"QueueId": group, "SobjectType": "Case"})
    for subject, owner in (("own", org.admin.user_id), ("queued", queue), ("other", other)):
        await org.gate.create(org.call, "Case", {"Subject": subject, "OwnerId": owner})
    soql = "SELECT Subject FROM Case USING SCOPE mine_and_my_groups ORDER BY Subject"

    async def found() -> list[object]:
        return [row["Subject"] for row in (await org.gate.query(org.admin, soql)).rows]

    assert await found() == ["own"]
    member = {"GroupId": queue, "UserOrGroupId": org.admin.user_id}
    member_id = await org.gate.create(org.call, "GroupMember", member)
    assert await found() == ["own", "queued"]
    await org.gate.delete(org.call, "GroupMember", member_id)
    assert await found() == ["own"]
