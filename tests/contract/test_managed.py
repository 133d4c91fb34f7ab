"""Positions of managed subscriptions, on every store: kept over restarts, given up when they can no longer be read."""

from __future__ import annotations

import pytest

from tests.orgs import TestOrg, open_org
from tests.postgres import PostgresServer
from tests.stores import STORES
from tidewire.clock import ManualClock
from tidewire.delivery.managed_positions import ManagedPositions
from tidewire.errors import (
    ChannelForbidden,
    ManagedActive,
    ManagedStopped,
    ManagedUnknown,
    ReplayIdExpired,
    ReplayIdInvalid,
)
from tidewire.events import Family
from tidewire.matching.channel_values import PublishDraft
from tidewire.server.link import LocalLink

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
    outcomes = await org.link.publish(org.admin, TOPIC, [draft])
    return outcomes.first


async def test_position_is_there_again_after_a_restart(
    tmp_path_factory: pytest.TempPathFactory, place: str
) -> None:
    directory, clock = tmp_path_factory.mktemp("org"), ManualClock()
    async with open_org(directory, clock, store=place) as org:
        await org.apply(**DEFINITION)
        start = await org.link.open_managed(org.admin, "", "mine", "one")
        assert (start.name, start.topic, start.position, start.is_from_earliest) == ("Mine", TOPIC, -1, False)
        first, second = await publish(org), await publish(org)
        for position in (first, second, second):
            await org.link.commit_managed(org.admin, start.subscription_id, "one", position)
    async with open_org(directory, clock, store=place) as org:
        again = await org.link.open_managed(org.admin, start.subscription_id, "", "two")
        assert again.position == second
        with pytest.raises(ReplayIdInvalid, match="later"):
            await org.link.commit_managed(org.admin, start.subscription_id, "two", first)
        assert await org.core.managed.positions() == {"Mine": second}


async def test_position_that_expired_is_refused_once_and_then_given_up(
    tmp_path_factory: pytest.TempPathFactory, place: str
) -> None:
    clock = ManualClock()
    async with open_org(tmp_path_factory.mktemp("org"), clock, store=place) as org:
        await org.apply(**DEFINITION)
        start = await org.link.open_managed(org.admin, "", "Mine", "one")
        await org.link.commit_managed(org.admin, start.subscription_id, "one", await publish(org))
        await publish(org)
        org.link.release_managed(start.subscription_id, "one")
        clock.advance(100 * 3600)
        await org.core.records.write_plain(
            lambda tx: org.core.log.trim(tx, Family.PLATFORM, clock.now_ms() - 3_600_000), exclusive=True
        )
        with pytest.raises(ReplayIdExpired):
            await org.link.open_managed(org.admin, "", "Mine", "two")
        for holder in ("three", "four"):
            again = await org.link.open_managed(org.admin, "", "Mine", holder)
            assert (again.position, again.is_from_earliest) == (-1, True)
            org.link.release_managed(start.subscription_id, holder)
        await org.link.open_managed(org.admin, "", "Mine", "five")
        kept = await publish(org)
        await org.link.commit_managed(org.admin, start.subscription_id, "five", kept)
        assert await org.core.managed.positions() == {"Mine": kept}


async def test_subscription_has_one_reader_at_a_time_over_all_edges(org: TestOrg) -> None:
    await org.apply(**DEFINITION)
    edge, other = LocalLink(org.core), LocalLink(org.core)
    start = await edge.open_managed(org.admin, "", "Mine", "one")
    with pytest.raises(ManagedActive):
        await other.open_managed(org.admin, "", "Mine", "one")
    with pytest.raises(ManagedActive):
        await other.commit_managed(org.admin, start.subscription_id, "two", await publish(org))
    edge.close()
    await other.open_managed(org.admin, "", "Mine", "two")


async def test_subscription_that_is_stopped_or_gone_is_refused(org: TestOrg) -> None:
    await org.apply(**DEFINITION)
    start = await org.link.open_managed(org.admin, "", "Mine", "one")
    await org.apply(managed_subscriptions={"Mine": {"label": "Mine", "state": "STOP"}})
    with pytest.raises(ManagedStopped):
        await org.link.check_managed(org.admin, start.subscription_id, "one")
    await org.apply(remove={"managed_subscriptions": ["Mine"]})
    with pytest.raises(ManagedUnknown):
        await org.link.check_managed(org.admin, start.subscription_id, "one")


async def test_commit_of_a_position_that_was_never_given_out_is_refused(org: TestOrg) -> None:
    await org.apply(**DEFINITION)
    start = await org.link.open_managed(org.admin, "", "Mine", "one")
    head = await org.link.read_log_head()
    with pytest.raises(ReplayIdInvalid):
        await org.link.commit_managed(org.admin, start.subscription_id, "one", head + 1)
    assert await ManagedPositions(org.core.records, org.core.log).positions() == {}


CHANNELS = {
    "channels": {
        "Tides__chn": {"label": "Tides", "kind": "event"},
        "Deals__chn": {"label": "Deals", "kind": "data"},
    },
    "channel_members": {
        "Tides": {"channel": "Tides__chn", "event": "Tide__e"},
        "Deals": {"channel": "Deals__chn", "event": "OpportunityChangeEvent"},
    },
}


@pytest.mark.parametrize(
    "topic", [TOPIC, "/event/Tides__chn", "/data/Deals__chn", "/data/OpportunityChangeEvent"]
)
async def test_subscription_is_not_held_by_who_may_read_nothing_of_it(org: TestOrg, topic: str) -> None:
    await org.apply(capture=["Account", "Opportunity"], events=DEFINITION["events"], **CHANNELS)
    await org.apply(managed_subscriptions={"Mine": {"label": "Mine", "topic": topic}})
    with pytest.raises(ChannelForbidden):
        await org.link.open_managed(org.reader, "", "Mine", "one")
    assert not org.core.managed.is_read("Mine")
    assert (await org.link.open_managed(org.admin, "", "Mine", "two")).topic == topic


async def test_position_that_expired_is_not_given_up_for_who_may_not_read(org: TestOrg) -> None:
    await org.apply(**DEFINITION)
    start = await org.link.open_managed(org.admin, "", "Mine", "one")
    kept = await publish(org)
    await org.link.commit_managed(org.admin, start.subscription_id, "one", kept)
    await publish(org)
    org.link.release_managed(start.subscription_id, "one")
    org.clock.advance(100 * 3600)
    await org.core.records.write_plain(
        lambda tx: org.core.log.trim(tx, Family.PLATFORM, org.clock.now_ms() - 3_600_000), exclusive=True
    )
    with pytest.raises(ChannelForbidden):
        await org.link.open_managed(org.reader, "", "Mine", "two")
    assert await org.core.managed.positions() == {"Mine": kept}


async def test_reader_whose_rights_are_taken_away_cannot_move_the_position(org: TestOrg) -> None:
    await org.apply(managed_subscriptions={"Mine": {"label": "Mine", "topic": "/data/ChangeEvents"}})
    start = await org.link.open_managed(org.reader, "", "Mine", "one")
    await org.make_account()
    first = await org.link.read_log_head()
    await org.link.commit_managed(org.reader, start.subscription_id, "one", first)
    await org.apply(permission_sets={"Account_Reader": {"permissions": ["ApiEnabled"]}})
    await org.make_account()
    for ask in (
        org.link.commit_managed(org.reader, start.subscription_id, "one", await org.link.read_log_head()),
        org.link.check_managed(org.reader, start.subscription_id, "one"),
    ):
        with pytest.raises(ChannelForbidden):
            await ask
    assert await org.core.managed.positions() == {"Mine": first}


async def test_channel_without_members_is_held_by_who_views_all_data_only(org: TestOrg) -> None:
    await org.apply(channels={"Deals__chn": {"label": "Deals", "kind": "data"}})
    await org.apply(managed_subscriptions={"Mine": {"label": "Mine", "topic": "/data/Deals__chn"}})
    with pytest.raises(ChannelForbidden):
        await org.link.open_managed(org.reader, "", "Mine", "one")
    await org.link.open_managed(org.admin, "", "Mine", "two")
