"""Records on every store: batches, the order of commits, and the one server that may write an org.

What single records do stands in tests/unit/records; `records` beside this file runs that on PostgreSQL too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from itertools import groupby, pairwise
from pathlib import Path

import pytest

from tests.orgs import TestOrg, open_org
from tests.stores import STORES
from tidewire.clock import ManualClock
from tidewire.config import Settings
from tidewire.errors import (
    DuplicateValue,
    PlatformError,
    ReferenceMissing,
    RequiredFieldMissing,
    StoreLocked,
)
from tidewire.events import Event, Family
from tidewire.gate.requests import Write
from tidewire.records.work import UnitOfWork
from tidewire.server.core import open_core
from tidewire.storage.store import Reader

WRITERS = 8
TOPIC = "AccountChangeEvent"


@pytest.fixture(params=STORES)
def store_address(request: pytest.FixtureRequest) -> str:
    """What `--store` is given: a place that does not exist yet."""
    if request.param == "sqlite":
        return "sqlite"
    return str(request.getfixturevalue("postgres").make_url())


@pytest.fixture
async def org(tmp_path: Path, store_address: str) -> AsyncIterator[TestOrg]:
    """A development org of this test's own, on the store in question."""
    async with open_org(tmp_path / "org", store=store_address) as opened:
        await opened.apply(
            objects={
                "Box__c": {
                    "name": {"type": "AutoNumber", "format": "B-{000}"},
                    "capture": True,
                    "fields": {
                        "Code__c": {"type": "Text", "length": 20, "unique": True, "external_id": True},
                        "State__c": {"type": "Text", "length": 20, "default": "new"},
                        "Account__c": {"type": "Lookup", "references": "Account"},
                    },
                }
            }
        )
        yield opened


async def create_boxes(
    org: TestOrg, *values: Mapping[str, object], all_or_none: bool
) -> list[str | PlatformError]:
    writes = [Write("Box__c", None, each) for each in values]
    return await org.gate.write_together(org.call, writes, all_or_none=all_or_none)


async def box_values(org: TestOrg, *names: str) -> list[tuple[object, ...]]:
    found = await org.gate.query(org.admin, f"SELECT {', '.join(names)} FROM Box__c ORDER BY Name")
    return [tuple(row[name] for name in names) for row in found.rows]


async def read_events(org: TestOrg, topic: str) -> list[Event]:
    log = org.core.log
    first = await org.core.store.read(lambda r: log.read_bounds(r, Family.CHANGE))
    page = await org.core.store.read(
        lambda r: log.read_after(
            r, Family.CHANGE, frozenset({topic}), first.trimmed_through, 100_000, 1 << 30
        )
    )
    return list(page.events)


async def test_batch_stores_defaults_numbers_and_events_of_every_record_in_order(org: TestOrg) -> None:
    results = await create_boxes(org, *({"Code__c": f"c{n}"} for n in range(450)), all_or_none=True)
    assert len({r for r in results if isinstance(r, str)}) == 450
    rows = await box_values(org, "Id", "Name", "Code__c", "State__c", "CreatedById")
    assert rows == [
        (record_id, f"B-{n + 1:03}", f"c{n}", "new", org.admin.user_id) for n, record_id in enumerate(results)
    ]
    schema = org.gate.latest_schema("Box__ChangeEvent")
    told = [schema.decode(e.payload) for e in await read_events(org, "Box__ChangeEvent")]
    assert [t["ChangeEventHeader"]["recordIds"] for t in told] == [[r] for r in results]
    assert [t["ChangeEventHeader"]["sequenceNumber"] for t in told] == list(range(1, 451))
    assert [t["Code__c"] for t in told] == [f"c{n}" for n in range(450)]


async def test_numbers_go_on_where_the_last_batch_ended(org: TestOrg) -> None:
    await create_boxes(org, {}, {}, {}, all_or_none=True)
    await create_boxes(org, {}, all_or_none=True)
    await create_boxes(org, {}, {}, all_or_none=True)
    assert await box_values(org, "Name") == [(f"B-{n:03}",) for n in range(1, 7)]


async def test_failing_records_of_a_batch_leave_the_others_alone(org: TestOrg) -> None:
    gone = await org.make_account("Gone")
    await org.gate.delete(org.call, "Account", gone)
    results = await create_boxes(
        org,
        {"Code__c": "a"},
        {"Code__c": "A"},
        {"Code__c": "b", "Account__c": gone},
        {"Code__c": "c"},
        all_or_none=False,
    )
    assert [type(r) for r in results] == [str, DuplicateValue, ReferenceMissing, str]
    assert [code for (code,) in await box_values(org, "Code__c")] == ["a", "c"]
    assert len(await read_events(org, "Box__ChangeEvent")) == 2


async def test_batch_that_must_be_whole_leaves_nothing_of_itself(org: TestOrg) -> None:
    accounts = [Write("Account", None, {"Name": str(n)}) for n in range(20)]
    results = await org.gate.write_together(
        org.call, [*accounts, Write("Account", None, {"Phone": "1"})], all_or_none=True
    )
    assert isinstance(results[-1], RequiredFieldMissing)
    assert (await org.gate.query(org.admin, "SELECT COUNT() FROM Account")).count == 0
    assert await read_events(org, TOPIC) == []


async def test_later_statements_of_a_unit_see_what_earlier_ones_wrote(org: TestOrg) -> None:
    box, account = org.gate.catalog.object("Box__c"), org.gate.catalog.object("Account")

    def work(unit: UnitOfWork) -> list[str]:
        owner = unit.create(account, {"Name": "A"})
        first = unit.create(box, {"Code__c": "x", "Account__c": owner})
        with pytest.raises(DuplicateValue):
            unit.create(box, {"Code__c": "X"})
        unit.update(box, first, {"Code__c": "y"})
        second = unit.create(box, {"Code__c": "x", "Account__c": owner})
        assert unit.upsert(box, "Code__c", "x", {"State__c": "old"}) == (second, False)
        unit.delete(box, second)
        third = unit.create(box, {"Code__c": "x"})
        unit.delete(account, owner)
        with pytest.raises(ReferenceMissing):
            unit.create(box, {"Account__c": owner})
        return [first, second, third]

    first, _, third = await org.core.records.write(work, user_id=org.admin.user_id)
    rows = await box_values(org, "Id", "Code__c", "State__c", "Account__c")
    assert rows == [(first, "y", "new", None), (third, "x", "new", None)]
    schema = org.gate.latest_schema("Box__ChangeEvent")
    told = [schema.decode(e.payload) for e in await read_events(org, "Box__ChangeEvent")]
    assert [(t["ChangeEventHeader"]["recordIds"], t["Code__c"]) for t in told] == [
        ([first], "y"),
        ([third], "x"),
    ]
    assert {t["ChangeEventHeader"]["changeType"] for t in told} == {"CREATE"}


async def test_unique_value_given_up_inside_a_unit_is_free_and_a_taken_one_is_not(org: TestOrg) -> None:
    box = org.gate.catalog.object("Box__c")
    (held,) = await create_boxes(org, {"Code__c": "held"}, all_or_none=True)

    def work(unit: UnitOfWork) -> str:
        unit.update(box, str(held), {"Code__c": "moved"})
        fresh = unit.create(box, {"Code__c": "HELD"})
        with pytest.raises(DuplicateValue):
            unit.update(box, str(held), {"Code__c": "held"})
        with pytest.raises(DuplicateValue):
            unit.create(box, {"Code__c": "moved"})
        return fresh

    fresh = await org.core.records.write(work, user_id=org.admin.user_id)
    assert await box_values(org, "Id", "Code__c") == [(held, "moved"), (fresh, "HELD")]


async def test_commits_of_concurrent_writers_have_the_order_of_their_replay_ids(org: TestOrg) -> None:
    async def write(writer: int) -> list[list[str]]:
        made = []
        for turn in range(6):
            writes = [Write("Account", None, {"Name": f"{writer}/{turn}/{n}"}) for n in range(3)]
            results = await org.gate.write_together(org.call, writes, all_or_none=True)
            made.append([r for r in results if isinstance(r, str)])
        return made

    made = await asyncio.gather(*(write(n) for n in range(WRITERS)))
    events = await read_events(org, TOPIC)
    schema = org.gate.latest_schema(TOPIC)
    headers = [schema.decode(e.payload)["ChangeEventHeader"] for e in events]
    assert len(events) == WRITERS * 6 * 3
    assert all(b.position == a.position + 1 for a, b in pairwise(events))
    commits = [(key, list(group)) for key, group in groupby(headers, lambda h: h["commitNumber"])]
    assert all(b > a for (a, _), (b, _) in pairwise(commits))
    told = {group[0]["transactionKey"]: [h["recordIds"][0] for h in group] for _, group in commits}
    assert len(told) == len(commits) == WRITERS * 6
    place = {tuple(ids): index for index, ids in enumerate(told.values())}
    for transactions in made:
        # Each writer waited for its answer, so its own commits stand in the order in which it made them.
        places = [place[tuple(ids)] for ids in transactions]
        assert places == sorted(places)


async def test_second_server_on_the_org_is_refused_and_the_first_goes_on(
    org: TestOrg, tmp_path: Path, store_address: str
) -> None:
    await org.make_account("before")
    # In PostgreSQL the directory is not what counts: another server has one of its own.
    data = tmp_path / ("org" if store_address == "sqlite" else "second")
    with pytest.raises(StoreLocked):
        await open_core(Settings(data=str(data), store=store_address, dev=True), ManualClock())
    await org.make_account("after")
    assert (await org.gate.query(org.admin, "SELECT COUNT() FROM Account")).count == 2


async def test_org_that_is_opened_again_has_its_records_numbers_and_events(
    tmp_path: Path, store_address: str
) -> None:
    async with open_org(tmp_path / "org", store=store_address) as first:
        made = [await first.make_account(str(n)) for n in range(3)]
    async with open_org(tmp_path / "org", store=store_address) as again:
        made.append(await again.make_account("3"))
        found = await again.gate.query(again.admin, "SELECT Id, Name FROM Account ORDER BY Name")
        assert [(row["Id"], row["Name"]) for row in found.rows] == [(i, str(n)) for n, i in enumerate(made)]
        events = await read_events(again, TOPIC)
    assert len(set(made)) == 4
    assert [e.position for e in events] == sorted({e.position for e in events})
    assert len(events) == 4


@pytest.mark.parametrize("condition", ["= ?", "IN (?, ?)"])
async def test_lookups_are_found_by_an_index_that_leaves_out_the_empty_ones(
    org: TestOrg, store_address: str, condition: str
) -> None:
    box = org.gate.catalog.object("Box__c")
    column = box.by_name["account__c"].column
    query = f"SELECT id FROM {box.table} WHERE {column} {condition}"
    targets = ["001000000000001AAA"] * condition.count("?")

    def plan(reader: Reader) -> str:
        if store_address == "sqlite":
            return str(reader.execute(f"EXPLAIN QUERY PLAN {query}", targets))
        # A table of a few rows is read whole unless that is forbidden; the plan must not need to know the values.
        for name, value in (("enable_seqscan", "off"), ("plan_cache_mode", "force_generic_plan")):
            reader.execute("SELECT set_config(?, ?, true)", (name, value))
        reader.execute(f"PREPARE wanted AS {query}")
        quoted = ", ".join(f"'{target}'" for target in targets)
        return str(reader.execute(f"EXPLAIN EXECUTE wanted ({quoted})"))

    await create_boxes(org, *({"State__c": "s"} for _ in range(50)), all_or_none=True)
    assert f"{box.table}_{column}" in await org.core.store.read(plan)
