"""What subscribers share, and that nobody gets another's by it."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace

from tests.orgs import TestOrg
from tidewire.delivery.hub import LATEST, Hub, after
from tidewire.delivery.shared_view import Run, SharedViews
from tidewire.delivery.subscription import Subscription
from tidewire.events import Event, Family
from tidewire.matching.channel_values import ChannelGrant
from tidewire.schema.codec import EventSchema

ACCOUNTS = "/data/AccountChangeEvent"
_ROOM = (100, 1 << 20)


class NumberForm:
    """Spells an event as its position and what is hidden of it, padded to a size."""

    def __init__(self, size_bytes: int = 0) -> None:
        self.name = f"number {size_bytes}"
        self.size_bytes = size_bytes

    def encode(self, event: Event, channel: str, hidden: frozenset[str], schema: EventSchema | None) -> bytes:
        return f"{event.position} {'Phone' in hidden}".encode().ljust(self.size_bytes)


def grant(**changes: object) -> ChannelGrant:
    made = ChannelGrant(ACCOUNTS, Family.CHANGE, frozenset({"AccountChangeEvent"}), (), 1)
    return replace(made, **changes)  # type: ignore[arg-type]


async def open_two(hub: Hub, org: TestOrg, size_bytes: int = 0) -> list[Subscription]:
    forms = (NumberForm(size_bytes), NumberForm(size_bytes))
    return [await hub.subscribe(org.admin, ACCOUNTS, 60.0, LATEST, form, lambda: None) for form in forms]


async def tell(hub: Hub, org: TestOrg, name: str) -> None:
    """Make an account, and wait until the hub has taken in its event: it may have to load a schema."""
    woken = asyncio.Event()
    probe = await hub.subscribe(org.admin, ACCOUNTS, 60.0, LATEST, NumberForm(), woken.set)
    await org.make_account(name)
    async with asyncio.timeout(120):
        await woken.wait()
    probe.close()


def numbers(taken: list[bytes]) -> list[int]:
    return [int(one.split()[0]) for one in taken]


def test_equal_grants_and_forms_share_one_view_while_it_is_used() -> None:
    views = SharedViews()
    one = views.view(grant(), NumberForm())
    assert views.view(grant(), NumberForm()) is one
    assert views.view(grant(generation=2), NumberForm()) is not one
    assert views.view(grant(), NumberForm(9)) is not one
    del one
    gc.collect()
    assert len(views) == 0


def test_run_of_events_for_some_users_only_is_not_kept() -> None:
    views = SharedViews()
    run = Run(1, 2, (b"x",), 1)
    for own in (grant(family=Family.GENERIC), grant(sharing_filtered=(("AccountChangeEvent", "Account"),))):
        view = views.view(own, NumberForm())
        view.offer(run)
        assert view.run is None
    view = views.view(grant(), NumberForm())
    view.offer(run)
    assert view.run is run


async def test_second_reader_at_the_same_position_gets_the_very_same_bytes(org: TestOrg, hub: Hub) -> None:
    one, two = await open_two(hub, org)
    await tell(hub, org, "told")
    first, second = one.take(*_ROOM), two.take(*_ROOM)
    assert first == second != []
    assert first is not second  # each owner adds its own replies
    assert one.position == two.position == hub.head
    assert one.take(*_ROOM) == two.take(*_ROOM) == []


async def test_readers_at_other_positions_and_after_later_commits_miss_and_repeat_nothing(
    org: TestOrg, hub: Hub
) -> None:
    one, two = await open_two(hub, org)
    await tell(hub, org, "first")
    first = numbers(one.take(*_ROOM))
    await tell(hub, org, "second")
    second = numbers(one.take(*_ROOM))
    assert numbers(two.take(*_ROOM)) == first + second
    late = await hub.subscribe(org.admin, ACCOUNTS, 60.0, after(first[-1]), NumberForm(), lambda: None)
    assert numbers(late.take(*_ROOM)) == second


async def test_reader_with_less_room_gets_no_more_than_fits(org: TestOrg, hub: Hub) -> None:
    one, two = await open_two(hub, org)
    for name in ("a", "b", "c"):
        await tell(hub, org, name)
    told = numbers(one.take(*_ROOM))
    assert len(told) == 3
    assert numbers(two.take(2, 1 << 20)) == told[:2]
    assert numbers(two.take(*_ROOM)) == told[2:]


async def test_reader_with_other_rights_gets_its_own_form(org: TestOrg, hub: Hub) -> None:
    admin = await hub.subscribe(org.admin, ACCOUNTS, 60.0, LATEST, NumberForm(), lambda: None)
    reader = await hub.subscribe(org.reader, ACCOUNTS, 60.0, LATEST, NumberForm(), lambda: None)
    await tell(hub, org, "told")
    assert [one.split()[1] for one in admin.take(*_ROOM)] == [b"False"]
    assert [one.split()[1] for one in reader.take(*_ROOM)] == [b"True"]


async def test_large_run_is_not_kept_but_reaches_all(org: TestOrg, hub: Hub) -> None:
    one, two = await open_two(hub, org, 10_000)
    await tell(hub, org, "told")
    first = one.take(*_ROOM)
    assert len(first[0]) == 10_000
    assert hub.view(one.grant, NumberForm(10_000)).run is None
    assert two.take(*_ROOM) == first
