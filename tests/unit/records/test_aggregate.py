"""Groups made by the database are the groups that would be made of records one by one, on either store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orgs import TestOrg, open_org
from tests.postgres import PostgresServer
from tidewire.gate.requests import Write
from tidewire.records import aggregate
from tidewire.records.query import Record

NUMBERS: dict[str, object] = {
    "objects": {
        "Thing__c": {
            "fields": {
                "Money__c": {"type": "Currency", "precision": 18, "scale": 2},
                "Ratio__c": {"type": "Number", "precision": 18, "scale": 6},
                "Code__c": {"type": "Text", "length": 20},
                "Kind__c": {"type": "Picklist", "values": ["Small", "Big", "Average"]},
                "Flag__c": {"type": "Checkbox"},
                "Day__c": {"type": "Date"},
                "Owner__c": {
                    "type": "Lookup",
                    "references": "Account",
                    "relationship": "Owner__r",
                    "child_relationship": "Things",
                },
            }
        }
    }
}
QUERIES = [
    "SELECT COUNT(Id), COUNT(Money__c), COUNT_DISTINCT(Code__c), COUNT_DISTINCT(Flag__c) FROM Thing__c",
    "SELECT SUM(Money__c), AVG(Money__c), MIN(Money__c), MAX(Money__c), MIN(Day__c) FROM Thing__c",
    "SELECT SUM(Ratio__c), AVG(Ratio__c) FROM Thing__c WHERE Code__c != 'none'",
    "SELECT SUM(Money__c), MAX(Day__c) FROM Thing__c WHERE Code__c = 'nowhere'",
    "SELECT Code__c, COUNT(Id) n, SUM(Money__c) s FROM Thing__c GROUP BY Code__c",
    "SELECT Code__c, Kind__c, AVG(Money__c) FROM Thing__c GROUP BY Code__c, Kind__c",
    "SELECT Kind__c, COUNT_DISTINCT(Owner__c) FROM Thing__c GROUP BY Kind__c HAVING COUNT(Id) > 1",
    "SELECT Flag__c, SUM(Ratio__c) FROM Thing__c GROUP BY Flag__c ORDER BY SUM(Ratio__c) DESC",
    "SELECT Owner__c, COUNT(Id) FROM Thing__c WHERE Owner__r.Name LIKE 'A%' GROUP BY Owner__c",
    "SELECT Day__c, MAX(Money__c) FROM Thing__c GROUP BY Day__c ORDER BY Day__c DESC NULLS LAST LIMIT 2",
    "SELECT OwnerId, COUNT(Code__c) FROM Thing__c GROUP BY OwnerId",
]


async def make_things(org: TestOrg) -> None:
    await org.apply(**NUMBERS)
    accounts = [await org.make_account(name) for name in ("Acme", "Beta")]
    writes = []
    for number in range(60):
        values: dict[str, object] = {
            "Money__c": None if number % 7 == 0 else number * 0.1 - 2.35,
            "Ratio__c": number / 3,
            "Code__c": (None, "Straße", "STRASSE", "e\u0301", "é", "A", "a")[number % 7],
            "Kind__c": ("Big", "Small", None, "Average")[number % 4],
            "Flag__c": number % 3 == 0,
            "Day__c": None if number % 5 == 0 else f"2024-02-{number % 5:02}",
            "Owner__c": (*accounts, None)[number % 3],
        }
        writes.append(Write("Thing__c", None, values))
    results = await org.gate.write_together(org.call, writes, all_or_none=True)
    await org.gate.delete(org.call, "Thing__c", str(results[4]))


async def answers(org: TestOrg, *, include_deleted: bool = False) -> list[list[Record]]:
    return [(await org.gate.query(org.admin, soql, include_deleted=include_deleted)).rows for soql in QUERIES]


@pytest.mark.parametrize("include_deleted", [False, True])
async def test_database_and_records_one_by_one_give_the_same_groups(
    org: TestOrg,
    postgres: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    include_deleted: bool,
) -> None:
    taken: list[bool] = []
    grouped = aggregate.try_grouped

    def watched(*args: object, **kwargs: object) -> object:
        found = grouped(*args, **kwargs)  # type: ignore[arg-type]  # handed on as they came
        taken.append(found is not None)
        return found

    async with open_org(tmp_path / "other", store=postgres.make_url()) as other:
        for each in (org, other):
            await make_things(each)
        monkeypatch.setattr(aggregate, "try_grouped", watched)
        ours = await answers(org, include_deleted=include_deleted)
        theirs = await answers(other, include_deleted=include_deleted)
        assert taken == [True] * len(QUERIES) * 2
        monkeypatch.setattr(aggregate, "try_grouped", lambda *args, **kwargs: None)
        folded = await answers(org, include_deleted=include_deleted)
    for soql, database, server, one_by_one in zip(QUERIES, ours, theirs, folded, strict=True):
        assert database == one_by_one, soql
        # Ids differ between orgs only where the records' owners do, and those are made alike.
        assert server == one_by_one, soql


@pytest.mark.parametrize("odd", ["9e15", "12345678901234.56"])
async def test_sums_past_what_a_double_keeps_are_added_one_by_one(org: TestOrg, odd: str) -> None:
    await org.apply(**NUMBERS)
    for value in (odd, "0.01", "0.02"):
        await org.gate.create(org.call, "Thing__c", {"Money__c": float(value)})
    (row,) = (await org.gate.query(org.admin, "SELECT SUM(Money__c) s FROM Thing__c")).rows
    assert row["s"] == pytest.approx(float(odd) + 0.03, rel=1e-15)


async def test_sum_of_decimals_is_exact(org: TestOrg) -> None:
    await org.apply(**NUMBERS)
    writes = [Write("Thing__c", None, {"Money__c": 0.1, "Ratio__c": 0.000001}) for _ in range(30)]
    await org.gate.write_together(org.call, writes, all_or_none=True)
    (row,) = (await org.gate.query(org.admin, "SELECT SUM(Money__c) m, SUM(Ratio__c) r FROM Thing__c")).rows
    assert (row["m"], row["r"]) == (3.0, 0.00003)


@pytest.mark.parametrize(
    "soql",
    [
        "SELECT MAX(Code__c) m FROM Thing__c",
        "SELECT Owner__r.Name, COUNT(Id) m FROM Thing__c GROUP BY Owner__r.Name",
        "SELECT Kind__c, COUNT(Id) m FROM Thing__c GROUP BY ROLLUP(Kind__c)",
        "SELECT CALENDAR_YEAR(Day__c) y, COUNT(Id) m FROM Thing__c GROUP BY CALENDAR_YEAR(Day__c)",
    ],
)
async def test_what_the_database_might_do_otherwise_is_left_to_us(
    org: TestOrg, soql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_things(org)
    found: list[object] = []
    grouped = aggregate.try_grouped

    def watched(*args: object, **kwargs: object) -> object:
        found.append(grouped(*args, **kwargs))  # type: ignore[arg-type]  # handed on as they came
        return found[-1]

    monkeypatch.setattr(aggregate, "try_grouped", watched)
    assert (await org.gate.query(org.admin, soql)).rows
    assert found == [None]
