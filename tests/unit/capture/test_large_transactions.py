"""Transactions of more changes than memory holds: their events are whole, and their memory is that of a page."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.orgs import TestOrg
from tidewire.delivery.hub import LATEST, Hub
from tidewire.events import CommittedBatch, Event, Family
from tidewire.records.work import UnitOfWork
from tidewire.schema.codec import EventSchema

TOPIC = "ContactChangeEvent"
FEW = 4_000
MANY = 3 * FEW
MOST_MORE_BYTES = 1_500_000
"""How much more memory three times as many records may take at the highest point; thin rows alone would be 6 MB."""


async def make_owner(org: TestOrg, contacts: int) -> str:
    """An account with so many contacts."""
    catalog = org.core.records.types.catalog
    account = await org.make_account("Owner")

    def work(unit: UnitOfWork) -> None:
        for number in range(500):
            unit.create(catalog.object("Contact"), {"LastName": f"C{number}", "AccountId": account})

    for _ in range(contacts // 500):
        await org.core.records.write(work, user_id=org.admin.user_id)
    return account


async def read_events(org: TestOrg, after: int) -> list[Event]:
    """The contacts' change events after a position, as the log has them."""
    found: list[Event] = []
    while True:
        page = await org.link.read_log(Family.CHANGE, frozenset({TOPIC}), after, 500, 1 << 20)
        found += page.events
        if not page.events:
            return found
        after = page.through


class Peak:
    """The most memory that was in use beyond what was in use at the start."""

    bytes = 0


@contextmanager
def measured() -> Iterator[Peak]:
    peak = Peak()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        yield peak
        peak.bytes = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.timeout(900)
async def test_cascade_and_its_undelete_take_no_more_memory_for_more_records(org: TestOrg) -> None:
    deleting: list[int] = []
    undeleting: list[int] = []
    for contacts in (FEW, MANY):
        account = await make_owner(org, contacts)
        with measured() as peak:
            await org.gate.delete(org.call, "Account", account)
        deleting.append(peak.bytes)
        with measured() as peak:
            await org.gate.undelete(org.call, [account])
        undeleting.append(peak.bytes)
    print(deleting, undeleting)  # noqa: T201
    assert deleting[1] - deleting[0] < MOST_MORE_BYTES
    assert undeleting[1] - undeleting[0] < MOST_MORE_BYTES


class NumberForm:
    """Spells an event as its position."""

    name = "number"

    def encode(self, event: Event, channel: str, hidden: frozenset[str], schema: EventSchema | None) -> bytes:
        return str(event.position).encode()


async def test_live_subscriber_reads_a_large_transaction_from_the_log(org: TestOrg) -> None:
    account = await make_owner(org, FEW)
    await org.gate.delete(org.call, "Account", account)
    hub = Hub(org.link)
    await hub.start()
    woken = asyncio.Event()
    subscription = await hub.subscribe(org.admin, f"/data/{TOPIC}", 60.0, LATEST, NumberForm(), woken.set)
    await org.gate.undelete(org.call, [account])
    last = (await org.link.read_log_head()) + 1
    await org.gate.create(org.call, "Contact", {"LastName": "after"})
    seen: list[int] = []
    async with asyncio.timeout(120):
        while not seen or seen[-1] < last:
            woken.clear()
            taken = subscription.take(500, 1 << 20)
            seen += map(int, taken)
            if not taken:
                await woken.wait()
    await hub.close()
    assert seen == list(range(last - FEW, last + 1))


async def test_events_of_a_large_transaction_are_in_the_log_in_order_and_end_together(org: TestOrg) -> None:
    account = await make_owner(org, FEW)
    await org.gate.delete(org.call, "Account", account)
    batches: list[CommittedBatch] = []
    org.core.commits.watch(batches.append)
    before = await org.link.read_log_head()
    await org.gate.undelete(org.call, [account])
    head = await org.link.read_log_head()
    (batch,) = [batch for batch in batches if batch.events or batch.omitted]  # housekeeping commits too
    assert (batch.events, dict(batch.omitted)[TOPIC], batch.head) == ((), head, head)
    events = await read_events(org, before)
    schema = org.core.records.types.schemas[TOPIC]
    headers: list[dict[str, Any]] = [schema.decode(e.payload)["ChangeEventHeader"] for e in events]
    assert {e.transaction_last for e in events} == {head}
    assert [e.position for e in events] == list(range(head - FEW + 1, head + 1))
    assert [h["sequenceNumber"] for h in headers] == list(range(2, FEW + 2))
    assert len({i for h in headers for i in h["recordIds"]}) == FEW
    assert {(h["changeType"], h["transactionKey"]) for h in headers} == {
        ("UNDELETE", headers[0]["transactionKey"])
    }
