"""Several calls in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.orgs import TestOrg
from tidewire.errors import FieldUnknown, InternalError, RequiredFieldMissing, StoreClosed
from tidewire.events import Change, CommitContext
from tidewire.gate.gate import Gate
from tidewire.gate.query_pages import QueryPages
from tidewire.gate.requests import Call, Write
from tidewire.gate.shared_transaction import run_in_transaction
from tidewire.records.work import UnitOfWork


class Seen:
    """What the hooks of an org were seen."""

    def __init__(self, org: TestOrg) -> None:
        self.transactions: list[tuple[list[Change], CommitContext]] = []
        org.core.records.add_hook(self._note)

    def _note(self, unit: UnitOfWork, changes: Sequence[Change], context: CommitContext) -> None:
        self.transactions.append((list(changes), context))


def always(result: object) -> bool:
    return True


async def names(gate: Gate, org: TestOrg) -> list[object]:
    found = await gate.query(org.admin, "SELECT Name FROM Account ORDER BY Name")
    return [row["Name"] for row in found.rows]


async def test_calls_see_each_other_and_become_one_transaction(org: TestOrg) -> None:
    seen = Seen(org)

    async def calls(gate: Gate) -> list[object]:
        record_id = await gate.create(org.call, "Account", {"Name": "A"})
        await gate.update(org.call, "Account", record_id, {"Phone": "1"})
        assert (await gate.read(org.admin, "Account", record_id, ["Phone"])).rows[0]["Phone"] == "1"
        await gate.create(org.call, "Account", {"Name": "B"})
        return await names(gate, org)

    assert await run_in_transaction(org.gate, org.call, calls, always) == ["A", "B"]
    assert await names(org.gate, org) == ["A", "B"]
    ((changes, context),) = seen.transactions
    assert [(c.type.name, c.after and c.after["Phone"]) for c in changes] == [
        ("CREATE", "1"),
        ("CREATE", None),
    ]
    assert context.origin == org.call.origin


async def test_nobody_else_sees_anything_before_the_commit(org: TestOrg) -> None:
    loop = asyncio.get_running_loop()
    others: list[object] = []

    async def calls(gate: Gate) -> None:
        await gate.create(org.call, "Account", {"Name": "A"})
        # The writer thread waits here, inside the transaction, for a reader of its own.
        others.append(asyncio.run_coroutine_threadsafe(names(org.gate, org), loop).result(120))

    await run_in_transaction(org.gate, org.call, calls, always)
    assert others == [[]]
    assert await names(org.gate, org) == ["A"]


async def test_result_that_is_not_kept_leaves_nothing_behind(org: TestOrg) -> None:
    seen = Seen(org)
    head = await org.link.read_log_head()

    async def calls(gate: Gate) -> str:
        return await gate.create(org.call, "Account", {"Name": "A"})

    assert await run_in_transaction(org.gate, org.call, calls, lambda result: False)
    assert await names(org.gate, org) == []
    assert seen.transactions == []
    assert await org.link.read_log_head() == head


async def test_failed_write_takes_everything_back_even_if_the_calls_go_on(org: TestOrg) -> None:
    async def calls(gate: Gate) -> str:
        await gate.create(org.call, "Account", {"Name": "A"})
        with pytest.raises(RequiredFieldMissing):
            await gate.create(org.call, "Account", {})
        return await gate.create(org.call, "Account", {"Name": "B"})

    await run_in_transaction(org.gate, org.call, calls, always)
    assert await names(org.gate, org) == []


async def test_rows_that_fail_on_their_own_do_not_take_the_others_back(org: TestOrg) -> None:
    writes = [Write("Account", None, {"Name": "A"}), Write("Account", None, {})]

    async def calls(gate: Gate) -> None:
        await gate.write_together(org.call, writes, all_or_none=False)

    await run_in_transaction(org.gate, org.call, calls, always)
    assert await names(org.gate, org) == ["A"]


async def test_error_that_is_raised_takes_everything_back(org: TestOrg) -> None:
    async def calls(gate: Gate) -> None:
        await gate.create(org.call, "Account", {"Name": "A"})
        await gate.create(org.call, "Account", {})

    with pytest.raises(RequiredFieldMissing):
        await run_in_transaction(org.gate, org.call, calls, always)
    assert await names(org.gate, org) == []


async def test_fault_found_at_the_end_is_raised(org: TestOrg) -> None:
    topic = {"Name": "T", "Query": "SELECT Nope FROM Account", "ApiVersion": 60}

    async def calls(gate: Gate) -> None:
        await gate.create(org.call, "PushTopic", topic)

    with pytest.raises(FieldUnknown):
        await run_in_transaction(org.gate, org.call, calls, always)


async def test_call_that_awaits_something_else_is_rejected(org: TestOrg) -> None:
    async def calls(gate: Gate) -> None:
        await gate.create(org.call, "Account", {"Name": "A"})
        await asyncio.sleep(0)

    with pytest.raises(InternalError):
        await run_in_transaction(org.gate, org.call, calls, always)
    assert await names(org.gate, org) == []
    assert await org.make_account("B")


async def test_totals_follow_each_call_also_back_again(org: TestOrg) -> None:
    campaign = await org.gate.create(org.call, "Campaign", {"Name": "C"})

    async def leads(gate: Gate) -> object:
        read = await gate.read(org.admin, "Campaign", campaign, ["NumberOfLeads"])
        return read.rows[0]["NumberOfLeads"]

    async def calls(gate: Gate) -> list[object]:
        lead = await gate.create(org.call, "Lead", {"LastName": "L", "Company": "X"})
        seen = [await leads(gate)]
        member = await gate.create(org.call, "CampaignMember", {"CampaignId": campaign, "LeadId": lead})
        seen.append(await leads(gate))
        await gate.delete(org.call, "CampaignMember", member)
        return [*seen, await leads(gate)]

    assert await run_in_transaction(org.gate, org.call, calls, always) == [0, 1, 0]
    assert await leads(org.gate) == 0


async def test_query_inside_opens_a_cursor_that_lasts(org: TestOrg) -> None:
    await org.gate.write_together(
        org.call, [Write("Account", None, {"Name": f"A{i}"}) for i in range(205)], all_or_none=True
    )

    async def calls(gate: Gate) -> str:
        await gate.create(org.call, "Account", {"Name": "Z"})
        pages = QueryPages(gate, org.core.cursors, org.clock)
        return (
            await pages.open(org.admin, "SELECT Name FROM Account ORDER BY Name", 200, version=60)
        ).locator

    locator = await run_in_transaction(org.gate, org.call, calls, always)
    pages = QueryPages(org.gate, org.core.cursors, org.clock)
    rest = await pages.read_next(org.admin, locator, 200)
    assert [row["Name"] for row in rest.rows.rows][-1] == "Z"


async def test_grant_that_was_taken_before_the_transaction_does_not_count(org: TestOrg) -> None:
    await org.apply(
        permission_sets={"Maker": {"objects": {"Account": ["read", "create"]}}},
        users={"reader@tidewire.local": {"permission_sets": ["Maker"]}},
    )
    assert (await org.gate.grants(org.reader)).on("Account").can_create
    await org.gate.grants(org.admin)  # both are known by now, so that both writes are queued in this order
    seen: list[bool] = []

    async def calls(gate: Gate) -> None:
        seen.append((await gate.grants(org.reader)).on("Account").can_create)

    taken = asyncio.ensure_future(org.apply(permission_sets={"Maker": {"objects": {"Account": ["read"]}}}))
    shared = asyncio.ensure_future(run_in_transaction(org.gate, Call(org.reader, ""), calls, always))
    await asyncio.gather(taken, shared)
    assert seen == [False]


async def test_closed_store_takes_no_transaction(org: TestOrg) -> None:
    async def calls(gate: Gate) -> None:
        await gate.create(org.call, "Account", {"Name": "A"})

    await org.gate.grants(org.admin)
    org.core.writer.stop()
    with pytest.raises(StoreClosed):
        await run_in_transaction(org.gate, org.call, calls, always)
