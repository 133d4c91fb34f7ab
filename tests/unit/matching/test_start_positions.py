"""Where a channel begins to show a kind of event: where it got the member, and behind what an earlier type left."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.orgs import TestOrg, open_org
from tidewire.delivery.hub import EARLIEST, Hub, Replay, after
from tidewire.frontends.bayeux.forms import bayeux_form
from tidewire.matching.log_ranges import LogRanges
from tidewire.schema.channels import Selection, parse_selection, render_selection

pytestmark = pytest.mark.anyio
SALES = "/data/Sales__chn"


async def select(org: TestOrg, channel: str, event: str, kind: str = "data") -> None:
    await org.apply(
        channels={channel: {"label": channel, "kind": kind}},
        channel_members={f"{channel}_{event}".replace("__", "_"): {"channel": channel, "event": event}},
    )


async def read(org: TestOrg, hub: Hub, channel: str, replay: Replay = EARLIEST) -> list[dict[str, Any]]:
    """The payloads that somebody who subscribes now is sent, up to the head of the log."""
    reader = await hub.subscribe(org.admin, channel, 59.0, replay, bayeux_form(59.0), lambda: None)
    seen: list[bytes] = []
    head = await org.link.read_log_head()  # the hub may still wait for a schema
    async with asyncio.timeout(120):
        while reader.position < head:
            taken = reader.take(100, 1 << 20)
            seen += taken
            if not taken:
                await asyncio.sleep(0.001)  # what the channel does not show wakes nobody
    reader.close()
    return [orjson.loads(message)["data"]["payload"] for message in seen]


def ids_of(payloads: list[dict[str, Any]]) -> list[str]:
    return [record_id for payload in payloads for record_id in payload["ChangeEventHeader"]["recordIds"]]


async def test_new_member_shows_nothing_from_before_it_was_made(org: TestOrg, hub: Hub) -> None:
    first = await org.make_account("first")
    await select(org, "Sales__chn", "AccountChangeEvent")
    second = await org.make_account("second")
    assert ids_of(await read(org, hub, SALES)) == [second]
    assert ids_of(await read(org, hub, "/data/ChangeEvents")) == [first, second]
    assert ids_of(await read(org, hub, "/data/AccountChangeEvent")) == [first, second]


async def test_range_of_the_log_begins_with_its_member_too(org: TestOrg) -> None:
    await org.make_account("first")
    await select(org, "Sales__chn", "AccountChangeEvent")
    await org.make_account("second")
    ranges = LogRanges(org.gate, org.core.log, org.core.capture)
    start = await ranges.start(org.admin, SALES, 0)
    on_channel = await ranges.read_page(org.admin, SALES, start, start.after, 10)
    on_all = await ranges.read_page(org.admin, "/data/ChangeEvents", start, start.after, 10)
    assert (len(on_all.events), on_channel.events) == (2, on_all.events[1:])


async def test_open_subscription_gets_no_events_from_before_a_new_member(org: TestOrg, hub: Hub) -> None:
    await select(org, "Sales__chn", "LeadChangeEvent")
    start = hub.head
    await org.make_account("first")
    await select(org, "Sales__chn", "AccountChangeEvent")
    second = await org.make_account("second")
    assert ids_of(await read(org, hub, SALES, after(start))) == [second]


async def test_member_that_is_added_again_shows_its_old_events(org: TestOrg, hub: Hub) -> None:
    await select(org, "Sales__chn", "AccountChangeEvent")
    first = await org.make_account("first")
    await org.apply(remove={"channel_members": ["Sales_chn_AccountChangeEvent"]})
    assert ids_of(await read(org, hub, SALES)) == []
    await select(org, "Sales__chn", "AccountChangeEvent")
    assert ids_of(await read(org, hub, SALES)) == [first]


async def test_recreated_channel_starts_empty(org: TestOrg, hub: Hub) -> None:
    await select(org, "Sales__chn", "AccountChangeEvent")
    await org.make_account("first")
    await org.apply(remove={"channels": ["Sales__chn"]})
    await select(org, "Sales__chn", "AccountChangeEvent")
    second = await org.make_account("second")
    assert ids_of(await read(org, hub, SALES)) == [second]


async def test_entity_of_a_removed_channel_starts_empty_on_another(org: TestOrg, hub: Hub) -> None:
    await select(org, "Old__chn", "LeadChangeEvent")
    await org.gate.create(org.call, "Lead", {"LastName": "first", "Company": "C"})
    await org.apply(remove={"channels": ["Old__chn"]})
    await select(org, "Sales__chn", "LeadChangeEvent")
    second = await org.gate.create(org.call, "Lead", {"LastName": "second", "Company": "C"})
    assert ids_of(await read(org, hub, SALES)) == [second]


async def test_platform_events_from_before_a_member_are_not_on_its_channel(org: TestOrg, hub: Hub) -> None:
    await org.apply(events={"Placed__e": {"fields": {"City__c": {"type": "Text", "length": 40}}}})
    await org.gate.publisher.publish(org.call, "Placed__e", {"City__c": "Kiel"})
    await select(org, "Placed__chn", "Placed__e", "event")
    await org.gate.publisher.publish(org.call, "Placed__e", {"City__c": "Ulm"})
    assert [p["City__c"] for p in await read(org, hub, "/event/Placed__chn")] == ["Ulm"]
    assert [p["City__c"] for p in await read(org, hub, "/event/Placed__e")] == ["Kiel", "Ulm"]


@pytest.mark.parametrize("from_memory", [True, False])
async def test_object_of_a_removed_ones_name_shows_none_of_its_events(
    org: TestOrg, hub: Hub, from_memory: bool
) -> None:
    start = after(hub.head) if from_memory else EARLIEST
    fields = {"Secret__c": {"type": "Text", "length": 40}}
    await org.apply(objects={"Thing__c": {"fields": fields, "capture": True}})
    await org.gate.create(org.call, "Thing__c", {"Secret__c": "s"})
    await org.apply(remove={"objects": ["Thing__c"]})
    await org.apply(objects={"Thing__c": {"capture": True}})
    new = await org.gate.create(org.call, "Thing__c", {})
    assert ids_of(await read(org, hub, "/data/Thing__ChangeEvent", start)) == [new]
    assert ids_of(await read(org, hub, "/data/ChangeEvents", start)) == [new]


async def test_platform_event_of_a_removed_ones_name_shows_none_of_its_events(org: TestOrg, hub: Hub) -> None:
    start = after(hub.head)
    city = {"fields": {"City__c": {"type": "Text", "length": 40}}}
    await org.apply(events={"Placed__e": city})
    await org.gate.publisher.publish(org.call, "Placed__e", {"City__c": "Kiel"})
    await org.apply(remove={"events": ["Placed__e"]})
    await org.apply(events={"Placed__e": city})
    await org.gate.publisher.publish(org.call, "Placed__e", {"City__c": "Ulm"})
    assert [p["City__c"] for p in await read(org, hub, "/event/Placed__e", start)] == ["Ulm"]


async def test_start_positions_survive_a_restart(tmp_path: Path) -> None:
    async with open_org(tmp_path / "org") as org:
        await org.make_account("first")
        await select(org, "Sales__chn", "AccountChangeEvent")
        second = await org.make_account("second")
    async with open_org(tmp_path / "org") as org:
        hub = Hub(org.link)
        await hub.start()
        assert ids_of(await read(org, hub, SALES)) == [second]
        await hub.close()


def test_selection_stored_without_start_positions_shows_everything() -> None:
    stored = '{"channels": [], "members": [{"full_name": "A", "channel": "ChangeEvents",'
    stored += ' "event": "AccountChangeEvent", "enriched": [], "filter_text": ""}]}'
    selection = parse_selection(stored)
    again = selection.without_member("A").with_standard(["Account"]).with_start_positions(7)
    assert again.shown_after("ChangeEvents", "AccountChangeEvent") == 0
    assert parse_selection(render_selection(again)) == again


def test_start_positions_of_deleted_events_are_bounded() -> None:
    selection = Selection()
    for number in range(1100):
        selection = selection.with_ended_events([f"E{number}__e"], number)
    assert len(selection.start_positions) == 1000
    assert selection.shown_after("", "E1099__e") == 1099
