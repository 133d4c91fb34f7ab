"""When each user used a record last: noted, stored, asked for, and forgotten in the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orgs import TestOrg, open_org
from tests.postgres import PostgresServer
from tidewire.access.principal import Principal
from tidewire.clock import ManualClock
from tidewire.events import Value
from tidewire.gate.gate import Gate
from tidewire.gate.query_pages import QueryPages
from tidewire.gate.recent_items import KEPT_MS, MAX_RECENT, purge_recent_items
from tidewire.gate.requests import Call
from tidewire.gate.shared_transaction import run_in_transaction

_DATES = ("LastViewedDate", "LastReferencedDate")


async def dates(org: TestOrg, who: Principal, record_id: str, entity: str = "Account") -> tuple[Value, Value]:
    """The dates by query, which must be those of the record itself."""
    found = await org.gate.query(who, f"SELECT {', '.join(_DATES)} FROM {entity} WHERE Id = '{record_id}'")
    read = await org.gate.read(who, entity, record_id, None)
    queried = tuple(found.rows[0][name] for name in _DATES)
    assert queried == tuple(read.rows[0][name] for name in _DATES)
    viewed, referenced = queried
    assert not isinstance(viewed, str)
    assert viewed is None or isinstance(viewed, int)
    assert referenced is None or isinstance(referenced, int)
    return viewed, referenced


async def recent(org: TestOrg, who: Principal, limit: int = 10, entity: str = "") -> list[tuple[str, str]]:
    return await org.gate.recent_items.read_newest(org.gate.records, who, limit, entity)


async def test_record_that_nobody_used_has_no_dates(org: TestOrg) -> None:
    account = await org.make_account()
    assert await dates(org, org.admin, account) == (None, None)


async def test_query_for_view_sets_both_dates_of_its_user_alone(org: TestOrg) -> None:
    account, other = await org.make_account("a"), await org.make_account("b")
    await org.gate.query(org.admin, f"SELECT Id FROM Account WHERE Id = '{account}' FOR VIEW")
    now_ms = org.clock.now_ms()
    assert await dates(org, org.admin, account) == (now_ms, now_ms)
    assert await dates(org, org.admin, other) == (None, None)
    assert await dates(org, org.reader, account) == (None, None)


async def test_query_for_reference_sets_one_date_and_leaves_the_other(org: TestOrg) -> None:
    account = await org.make_account()
    await org.gate.query(org.admin, "SELECT Id FROM Account FOR REFERENCE")
    first_ms = org.clock.now_ms()
    assert await dates(org, org.admin, account) == (None, first_ms)
    org.clock.advance(60)
    await org.gate.query(org.admin, "SELECT Id FROM Account FOR VIEW")
    viewed_ms = org.clock.now_ms()
    org.clock.advance(60)
    await org.gate.query(org.admin, "SELECT Name FROM Account FOR REFERENCE")
    assert await dates(org, org.admin, account) == (viewed_ms, org.clock.now_ms())


async def test_paged_query_for_view_counts_too(org: TestOrg) -> None:
    account = await org.make_account()
    pages = QueryPages(org.gate, org.core.cursors, org.clock)
    await pages.open(org.admin, "SELECT Id FROM Account FOR VIEW", 200, version=60)
    assert (await dates(org, org.admin, account))[0] == org.clock.now_ms()


async def test_words_in_a_text_are_no_clause(org: TestOrg) -> None:
    account = await org.make_account("for view")
    await org.gate.query(org.admin, "SELECT Id FROM Account WHERE Name = 'for view'")
    assert await dates(org, org.admin, account) == (None, None)


async def test_dates_filter_and_sort(org: TestOrg) -> None:
    names = ["a", "b", "c"]
    accounts = {name: await org.make_account(name) for name in names}
    for name in ("b", "a"):
        org.clock.advance(60)
        await org.gate.query(org.admin, f"SELECT Id FROM Account WHERE Id = '{accounts[name]}' FOR VIEW")
    found = await org.gate.query(
        org.admin, "SELECT Name FROM Account WHERE LastViewedDate != NULL ORDER BY LastViewedDate DESC"
    )
    assert [row["Name"] for row in found.rows] == ["a", "b"]
    never = await org.gate.query(org.admin, "SELECT Name FROM Account WHERE LastViewedDate = NULL")
    assert [row["Name"] for row in never.rows] == ["c"]
    today = await org.gate.query(org.admin, "SELECT COUNT() FROM Account WHERE LastReferencedDate = TODAY")
    assert today.count == 2
    newest = await org.gate.query(org.admin, "SELECT MAX(LastViewedDate) newest FROM Account")
    assert newest.rows[0]["newest"] == org.clock.now_ms()
    assert not (await org.gate.query(org.reader, "SELECT Id FROM Account WHERE LastViewedDate != NULL")).rows


async def test_dates_of_parents_children_and_all_fields_are_the_readers(org: TestOrg) -> None:
    account = await org.make_account("parent")
    await org.gate.create(org.call, "Contact", {"LastName": "child", "AccountId": account})
    await org.gate.query(org.admin, "SELECT Id FROM Account FOR VIEW")
    await org.gate.query(org.admin, "SELECT Id FROM Contact FOR VIEW")
    now_ms = org.clock.now_ms()
    above = await org.gate.query(
        org.admin,
        "SELECT Account.LastViewedDate, LastViewedDate FROM Contact WHERE Account.LastViewedDate != NULL"
        " ORDER BY Account.LastReferencedDate",
    )
    (row,) = above.rows
    assert row["LastViewedDate"] == now_ms
    assert row["Account"].row["LastViewedDate"] == now_ms  # type: ignore[union-attr]
    below = await org.gate.query(
        org.admin, "SELECT Id, (SELECT LastViewedDate FROM Contacts LIMIT 1) FROM Account"
    )
    assert below.rows[0]["Contacts"].rows[0]["LastViewedDate"] == now_ms  # type: ignore[union-attr]
    whole = await org.gate.query(org.admin, "SELECT FIELDS(STANDARD) FROM Account LIMIT 1")
    assert whole.rows[0]["LastReferencedDate"] == now_ms


async def test_uses_outlive_the_server(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_org(tmp_path / "org", clock) as org:
        account = await org.make_account()
        await org.gate.query(org.admin, "SELECT Id FROM Account FOR VIEW")
    async with open_org(tmp_path / "org", clock) as org:
        assert (await dates(org, org.admin, account))[0] is not None
        assert await recent(org, org.admin) == [("Account", account)]


async def test_uses_are_kept_on_postgresql(postgres: PostgresServer, tmp_path: Path) -> None:
    async with open_org(tmp_path, store=postgres.make_url()) as org:
        account = await org.make_account()
        await org.gate.query(org.admin, "SELECT Id FROM Account FOR VIEW")
        assert (await dates(org, org.admin, account))[0] == org.clock.now_ms()
        never = await org.gate.query(org.reader, "SELECT Id FROM Account ORDER BY LastViewedDate")
        assert len(never.rows) == 1
        assert await recent(org, org.admin) == [("Account", account)]


async def test_recent_records_merge_unflushed_and_stored_uses(org: TestOrg) -> None:
    for name in ("r1", "r2", "r3"):
        org.gate.recent_items.add_use(org.admin, "Account", name)
    await org.gate.recent_items.flush(org.gate.records)
    org.gate.recent_items.add_use(org.admin, "Contact", "r4")
    org.gate.recent_items.add_view(org.admin, "Account", "r1")
    assert [r for _, r in await recent(org, org.admin)] == ["r1", "r4", "r3", "r2"]
    assert [r for _, r in await recent(org, org.admin, limit=2)] == ["r1", "r4"]
    assert await recent(org, org.admin, entity="Contact") == [("Contact", "r4")]
    assert await recent(org, org.reader) == []


async def test_memory_holds_a_bounded_number_of_uses_until_they_are_stored(org: TestOrg) -> None:
    for n in range(MAX_RECENT + 50):
        org.gate.recent_items.add_use(org.admin, "Account", f"r{n}")
    assert len(org.gate.recent_items) == MAX_RECENT
    await org.gate.recent_items.flush(org.gate.records)
    assert len(org.gate.recent_items) == 0


async def test_old_and_surplus_uses_are_forgotten(org: TestOrg) -> None:
    org.gate.recent_items.add_use(org.admin, "Account", "old")
    await org.gate.recent_items.flush(org.gate.records)
    org.clock.advance(KEPT_MS / 1000 + 1)
    for _ in range(2):
        for n in range(MAX_RECENT):
            org.gate.recent_items.add_use(org.admin, "Account", f"r{org.clock.now_ms()}-{n}")
        await org.gate.recent_items.flush(org.gate.records)
        org.clock.advance(1)
    now_ms = org.clock.now_ms()
    await org.gate.records.write_plain(lambda tx: purge_recent_items(tx, now_ms))
    kept = await recent(org, org.admin, limit=1000)
    assert len(kept) == MAX_RECENT
    assert ("Account", "old") not in kept


async def test_use_inside_a_transaction_is_seen_by_later_calls_of_it(org: TestOrg) -> None:
    account = await org.make_account()
    org.gate.recent_items.add_view(org.admin, "Account", account)

    async def calls(gate: object) -> list[object]:
        assert hasattr(gate, "query")
        found = await gate.query(org.admin, "SELECT LastViewedDate FROM Account")
        return [row["LastViewedDate"] for row in found.rows]

    call = Call(org.admin, "com/test")
    assert await run_in_transaction(org.gate, call, calls, lambda result: True) == [org.clock.now_ms()]


async def test_uses_outlive_a_transaction_that_is_taken_back(org: TestOrg) -> None:
    account = await org.make_account()
    org.gate.recent_items.add_view(org.admin, "Account", account)

    async def calls(gate: Gate) -> int:
        return len((await gate.query(org.admin, "SELECT LastViewedDate FROM Account")).rows)

    assert await run_in_transaction(org.gate, org.call, calls, lambda result: False) == 1
    now_ms = org.clock.now_ms()
    assert await dates(org, org.admin, account) == (now_ms, now_ms)
    assert await recent(org, org.admin) == [("Account", account)]


@pytest.mark.parametrize("entity", ["StreamingChannel"])
async def test_channel_has_the_dates(org: TestOrg, entity: str) -> None:
    channel = await org.gate.create(org.call, entity, {"Name": "/u/Seen"})
    await org.gate.query(org.admin, f"SELECT Id FROM {entity} FOR VIEW")
    assert (await dates(org, org.admin, channel, entity))[0] == org.clock.now_ms()
