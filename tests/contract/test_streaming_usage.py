"""What the store keeps of streaming, on every store: hours of usage, and clients that outlive a restart."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.orgs import TestOrg, open_org
from tests.postgres import PostgresServer
from tests.stores import STORES
from tidewire.clock import ManualClock
from tidewire.delivery.allocations import Allocations
from tidewire.delivery.durable_clients import DurableClients
from tidewire.delivery.link_values import Delivered, DurableClient
from tidewire.errors import InternalError
from tidewire.events import Family


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest) -> str:
    """The address of an empty store."""
    if request.param == "sqlite":
        return "sqlite"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.make_url()


def _client(position: int, batch: int = -1) -> DurableClient:
    return DurableClient("client", "user", 62.0, True, "browser", batch, (("/topic/A", position),))


async def test_usage_is_there_again_after_a_restart(
    tmp_path_factory: pytest.TempPathFactory, place: str
) -> None:
    directory, clock = tmp_path_factory.mktemp("org"), ManualClock()
    async with open_org(directory, clock, store=place) as org:
        org.core.allocations.count_delivered([Delivered(True, Family.PUSH_TOPIC, 3)])
        await org.core.allocations.flush()
        org.core.allocations.count_delivered([Delivered(True, Family.PUSH_TOPIC, 4)])
    async with open_org(directory, clock, store=place) as org:
        assert org.core.allocations.used_events(Family.PUSH_TOPIC, is_durable=True) == 7
        clock.advance(24 * 3600)
        fresh = Allocations(org.core.records, clock, {})
        await fresh.load()
        assert fresh.used_events(Family.PUSH_TOPIC, is_durable=True) == 0


async def test_hours_older_than_a_month_are_dropped(
    tmp_path_factory: pytest.TempPathFactory, place: str
) -> None:
    clock = ManualClock()
    async with open_org(tmp_path_factory.mktemp("org"), clock, store=place) as org:
        counted = org.core.allocations
        counted.count_delivered([Delivered(True, Family.CHANGE, 5)])
        await counted.flush()
        clock.advance(31 * 86_400)
        counted.count_delivered([Delivered(True, Family.CHANGE, 1)])
        await counted.flush()
        rows = await org.core.records.read(lambda reader: reader.execute("SELECT events FROM event_usage"))
        assert rows == [(1,)]


async def test_usage_is_told_for_the_last_day_and_each_full_day_while_it_is_kept(
    tmp_path_factory: pytest.TempPathFactory, place: str
) -> None:
    directory, clock = tmp_path_factory.mktemp("org"), ManualClock()
    clock.advance(86_400 - clock.now_ms() // 1000 % 86_400 + 11 * 3600 + 1380)  # 11:23 of some day
    midnight = clock.now_ms() // 86_400_000 * 24
    async with open_org(directory, clock, store=place) as org:
        counted = org.core.allocations
        counted.count_delivered([Delivered(True, Family.CHANGE, 5), Delivered(False, Family.CHANGE, 2)])
        counted.count_delivered([Delivered(True, Family.PUSH_TOPIC, 3)])
        assert await _told(org) == []  # the hour is not over
        clock.advance(3600)
        counted.count_delivered([Delivered(True, Family.CHANGE, 100)])
        assert await _told(org) == [("CHANGE_EVENTS_DELIVERED", midnight - 12, midnight + 12, 7)]
        clock.advance(24 * 3600)
    async with open_org(directory, clock, store=place) as org:
        day = ("CHANGE_EVENTS_DELIVERED", midnight, midnight + 24, 107)
        assert await _told(org) == [day, ("CHANGE_EVENTS_DELIVERED", midnight + 12, midnight + 36, 100)]
        clock.advance(40 * 86_400)
        assert await _told(org) == [day]
        clock.advance(6 * 86_400)
        assert await _told(org) == []


async def _told(org: TestOrg) -> list[tuple[object, ...]]:
    await org.core.allocations.flush()
    soql = "SELECT Name, StartDate, EndDate, Value FROM PlatformEventUsageMetric ORDER BY StartDate"
    hour_ms = 3_600_000
    return [
        (r["Name"], int(str(r["StartDate"])) // hour_ms, int(str(r["EndDate"])) // hour_ms, r["Value"])
        for r in (await org.gate.query(org.admin, soql)).rows
    ]


async def test_kept_client_is_found_where_it_was_last(
    tmp_path_factory: pytest.TempPathFactory, place: str
) -> None:
    directory, clock = tmp_path_factory.mktemp("org"), ManualClock()
    async with open_org(directory, clock, store=place) as org:
        await org.core.durable_clients.store(_client(5))
        org.core.durable_clients.note((_client(9, batch=2),))
        assert await org.core.durable_clients.try_find("client") == _client(9, batch=2)
    async with open_org(directory, clock, store=place) as org:
        kept = org.core.durable_clients
        assert await kept.try_find("client") == _client(9, batch=2)
        assert await kept.try_find("other") is None
        kept.forget("client")
        assert await kept.try_find("client") is None
        await kept.flush()
        kept.note((_client(11),))
        await kept.flush()
        assert await DurableClients(org.core.records, clock).try_find("client") is None


async def test_flush_that_fails_does_not_undo_what_was_stored_meanwhile(
    tmp_path_factory: pytest.TempPathFactory, place: str
) -> None:
    clock = ManualClock()
    async with open_org(tmp_path_factory.mktemp("org"), clock, store=place) as org:
        kept = DurableClients(org.core.records, clock)
        await kept.store(_client(5))
        newer = replace(_client(5), channels=(("/topic/A", 5), ("/topic/B", 7)))
        unstorable = replace(_client(5), client_id="other", browser=b"")  # type: ignore[arg-type]  # no JSON
        kept.note((_client(5), unstorable))
        failed, _ = await asyncio.gather(kept.flush(), kept.store(newer), return_exceptions=True)
        assert isinstance(failed, InternalError)
        kept.forget(unstorable.client_id)
        assert await kept.try_find("client") == newer
        await kept.flush()
        assert await DurableClients(org.core.records, clock).try_find("client") == newer


async def test_client_that_nobody_came_back_for_is_dropped_after_a_day(
    tmp_path_factory: pytest.TempPathFactory, place: str
) -> None:
    clock = ManualClock()
    async with open_org(tmp_path_factory.mktemp("org"), clock, store=place) as org:
        await org.core.durable_clients.store(_client(5))
        clock.advance(86_401)
        assert await org.core.durable_clients.try_find("client") is None
        await org.core.durable_clients.purge()
        rows = await org.core.records.read(lambda reader: reader.execute("SELECT * FROM kept_clients"))
        assert rows == []
