"""Positions of managed subscriptions, on every store: kept over restarts, given up when they can no longer be read."""

from __future__ import annotations

import pytest

from tests.orgs import TestOrg, open_org
from tests.postgres import PostgresServer
from tests.stores import STORES
from tidewire.access.managed import ManagedPositions
from tidewire.clock import ManualClock
from tidewire.delivery.link import PublishDraft
from tidewire.errors import (
    ManagedActive,
    ManagedStopped,
    ManagedUnknown,
    ReplayIdExpired,
    ReplayIdInvalid,
)
from tidewire.events import Family

TOPIC = "/event/Tide__e"
DEFINITION = {
    "events": {"Tide__e": {"label": "Tide", "fields": {"A__c": {"type": "Text"}}}},
    "managed_subscriptions": {
        "Mine": {"label": "Mine", "topic": TOPIC, "default_replay": "LATEST", "error_replay": "EARLIEST"}
    },
}


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest) -> str:
    """The address of an empty store."""
    if request.param == "sqlite":
        return "sqlite"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.make_url()


async def publish(org: TestOrg) -> int:
    schema = org.gate.latest_schema("Tide__e")
    draft = PublishDraft(schema.schema_id, schema.encode({"CreatedDate": 1, "CreatedById": "005"}), "")
    (outcome,) = await org.link.publish(org.admin, TOPIC, [draft])
    return outcome.position


async def test_position_is_there_again_after_a_restart(
    tmp_path_factory: pytest.TempPathFactory, place: str
) -> None:
    directory, clock = tmp_path_factory.mktemp("org"), ManualClock()
    async with open_org(directory, clock, store=place) as org:
        await org.apply(**DEFINITION)
        start = await org.link.open_managed(org.admin, "", "mine", "one")
        assert (start.name, start.topic, start.position, start.is_from_earliest) == ("Mine", TOPIC, -1, False)
        first, second = await publish(org), await publish(org)
        for position in (second, first):
            await org.link.commit_managed(start.subscription_id, "one", position)
    async with open_org(directory, clock, store=place) as org:
        again = await org.link.open_managed(org.admin, start.subscription_id, "", "two")
        assert again.position == first


async def test_position_that_expired_is_refused_once_and_then_given_up(
    tmp_path_factory: pytest.TempPathFactory, place: str
) -> None:
    clock = ManualClock()
    async with open_org(tmp_path_factory.mktemp("org"), clock, store=place) as org:
        await org.apply(**DEFINITION)
        start = await org.link.open_managed(org.admin, "", "Mine", "one")
        await org.link.commit_managed(start.subscription_id, "one", await publish(org))
        await publish(org)
        org.link.release_managed(start.subscription_id, "one")
        clock.advance(100 * 3600)
        await org.core.records.write_plain(
            lambda tx: org.core.log.trim(tx, Family.PLATFORM, clock.now_ms() - 3_600_000), solo=True
        )
        with pytest.raises(ReplayIdExpired):
            await org.link.open_managed(org.admin, "", "Mine", "two")
        for holder in ("three", "four"):
            again = await org.link.open_managed(org.admin, "", "Mine", holder)
            assert (again.position, again.is_from_earliest) == (-1, True)
            org.link.release_managed(start.subscription_id, holder)
        await org.link.open_managed(org.admin, "", "Mine", "five")
        kept = await publish(org)
        await org.link.commit_managed(start.subscription_id, "five", kept)
        assert await org.core.managed.positions() == {"Mine": kept}


async def test_subscription_has_one_reader_at_a_time_over_all_edges(org: TestOrg) -> None:
    await org.apply(**DEFINITION)
    edge, other = org.link.for_edge(), org.link.for_edge()
    start = await edge.open_managed(org.admin, "", "Mine", "one")
    with pytest.raises(ManagedActive):
        await other.open_managed(org.admin, "", "Mine", "one")
    with pytest.raises(ManagedActive):
        await other.commit_managed(start.subscription_id, "two", await publish(org))
    edge.close()
    await other.open_managed(org.admin, "", "Mine", "two")


async def test_subscription_that_is_stopped_or_gone_is_refused(org: TestOrg) -> None:
    await org.apply(**DEFINITION)
    start = await org.link.open_managed(org.admin, "", "Mine", "one")
    await org.apply(managed_subscriptions={"Mine": {"label": "Mine", "state": "STOP"}})
    with pytest.raises(ManagedStopped):
        await org.link.confirm_managed(start.subscription_id, "one")
    await org.apply(remove={"managed_subscriptions": ["Mine"]})
    with pytest.raises(ManagedUnknown):
        await org.link.confirm_managed(start.subscription_id, "one")


async def test_commit_of_a_position_that_was_never_given_out_is_refused(org: TestOrg) -> None:
    await org.apply(**DEFINITION)
    start = await org.link.open_managed(org.admin, "", "Mine", "one")
    head = await org.link.log_head()
    with pytest.raises(ReplayIdInvalid):
        await org.link.commit_managed(start.subscription_id, "one", head + 1)
    assert await ManagedPositions(org.core.records, org.core.log).positions() == {}
