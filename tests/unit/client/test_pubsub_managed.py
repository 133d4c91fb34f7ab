"""Managed subscriptions of the asynchronous client against a scripted server: commits and resuming."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from tests.unit.client.pubsub_script import Script, consumed, fail, scripted
from tidewire.client.pubsub_messages import render_replay_id, replay_number
from tidewire.errors import (
    BodyMalformed,
    ManagedActive,
    ManagedStopped,
    ManagedUnknown,
    PlatformError,
    ProtocolViolation,
    ReplayIdInvalid,
    RequestRefused,
    TopicUnknown,
)
from tidewire.schema.proto import pubsub_pb2 as pb

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


def sent(numbers: Sequence[int], pending: int = 90) -> pb.ManagedFetchResponse:
    """A response with these events."""
    return pb.ManagedFetchResponse(
        events=[consumed(number) for number in numbers],
        latest_replay_id=render_replay_id(max(numbers, default=0)),
        pending_num_requested=pending,
    )


def confirmed(request: pb.ManagedFetchRequest, error: str = "") -> pb.ManagedFetchResponse:
    """The answer to a commit."""
    commit = request.commit_replay_id_request
    response = pb.CommitReplayResponse(commit_request_id=commit.commit_request_id, replay_id=commit.replay_id)
    if error:
        response.error.code = pb.COMMIT
        response.error.msg = error
    return pb.ManagedFetchResponse(commit_response=response, pending_num_requested=90)


async def take(subscription: Any, count: int) -> list[int]:
    return [replay_number((await anext(subscription)).replay_id) for _ in range(count)]


@pytest.mark.parametrize(
    "name, is_id",
    [("18xSB0000000001", True), ("18xSB0000000001YAA", True), ("Orders", False), ("18x", False)],
)
async def test_first_request_names_the_subscription_by_id_or_developer_name(name: str, is_id: bool) -> None:
    firsts: list[pb.ManagedFetchRequest] = []

    async def act(requests: Any, context: Any) -> None:
        firsts.append(await anext(requests))
        await context.write(sent([1]))
        async for _ in requests:
            pass

    async with scripted(Script(managed=[act])) as client, client.subscribe_managed(name) as subscription:
        assert await take(subscription, 1) == [1]
    assert (firsts[0].subscription_id, firsts[0].developer_name) == ((name, "") if is_id else ("", name))
    assert firsts[0].num_requested == 100


async def test_commit_waits_for_a_confirmation_that_may_cover_several() -> None:
    asked: list[pb.ManagedFetchRequest] = []

    async def act(requests: Any, context: Any) -> None:
        await anext(requests)
        await context.write(sent([1, 2, 3]))
        asked.extend([await anext(requests), await anext(requests)])
        await context.write(confirmed(asked[1]))
        async for _ in requests:
            pass

    async with scripted(Script(managed=[act])) as client, client.subscribe_managed("Orders") as subscription:
        events = [await anext(subscription) for _ in range(3)]
        await asyncio.gather(*[subscription.commit(event.replay_id) for event in events[:2]])
    assert [request.commit_replay_id_request.replay_id for request in asked] == [
        render_replay_id(1),
        render_replay_id(2),
    ]
    assert [request.num_requested for request in asked] == [0, 0]


async def test_rejected_commit_raises_and_the_stream_continues() -> None:
    async def act(requests: Any, context: Any) -> None:
        await anext(requests)
        await context.write(sent([1]))
        await context.write(confirmed(await anext(requests), error="too late"))
        await context.write(sent([2]))
        async for _ in requests:
            pass

    async with scripted(Script(managed=[act])) as client, client.subscribe_managed("Orders") as subscription:
        event = await anext(subscription)
        with pytest.raises(RequestRefused, match="too late"):
            await subscription.commit(event.replay_id)
        assert await take(subscription, 1) == [2]


async def test_broken_call_repeats_open_commits_and_skips_repeated_events() -> None:
    again: list[pb.ManagedFetchRequest] = []

    async def breaking(requests: Any, context: Any) -> None:
        await anext(requests)
        await context.write(sent([1, 2]))
        await anext(requests)
        await fail(context, "UNAVAILABLE")

    async def serving(requests: Any, context: Any) -> None:
        await anext(requests)
        await context.write(sent([1, 2, 3]))
        again.append(await anext(requests))
        await context.write(confirmed(again[0]))
        async for _ in requests:
            pass

    script = Script(managed=[breaking, serving])
    async with scripted(script) as client, client.subscribe_managed("Orders") as subscription:
        events = [await anext(subscription) for _ in range(2)]
        await subscription.commit(events[1].replay_id)
        assert await take(subscription, 1) == [3]
        assert subscription.calls == 2
    assert again[0].commit_replay_id_request.replay_id == render_replay_id(2)


async def test_broken_call_repeats_only_the_highest_of_its_open_commits() -> None:
    again: list[int] = []

    async def breaking(requests: Any, context: Any) -> None:
        await anext(requests)
        await context.write(sent([5, 7]))
        await anext(requests)
        await anext(requests)
        await fail(context, "UNAVAILABLE")

    async def serving(requests: Any, context: Any) -> None:
        await anext(requests)
        async for request in requests:
            again.append(replay_number(request.commit_replay_id_request.replay_id))
            await context.write(confirmed(request, error="" if again[-1] == 7 else "later ones are stored"))

    script = Script(managed=[breaking, serving])
    async with scripted(script) as client, client.subscribe_managed("Orders") as subscription:
        events = [await anext(subscription) for _ in range(2)]
        await asyncio.gather(*[subscription.commit(event.replay_id) for event in reversed(events)])
    assert again == [7]


@pytest.mark.parametrize(
    "asked, error, repeated, refused",
    [([1, 2, 9], "never given out", 2, [False, False, True]), ([7, 5], "", 7, [False, False])],
)
async def test_commit_above_a_confirmed_position_is_sent_again(
    asked: list[int], error: str, repeated: int, refused: list[bool]
) -> None:
    again: list[int] = []

    async def act(requests: Any, context: Any) -> None:
        await anext(requests)
        await context.write(sent([]))
        commits = [await anext(requests) for _ in asked]
        await context.write(confirmed(commits[-1], error=error))
        async for request in requests:
            again.append(replay_number(request.commit_replay_id_request.replay_id))
            await context.write(confirmed(request))

    async with scripted(Script(managed=[act])) as client, client.subscribe_managed("Orders") as subscription:
        outcomes = await asyncio.gather(
            *[subscription.commit(render_replay_id(number)) for number in asked], return_exceptions=True
        )
    assert again == [repeated]
    assert [isinstance(outcome, RequestRefused) for outcome in outcomes] == refused


async def test_commit_reopens_an_ended_call_when_the_queue_is_full() -> None:
    has_ended = asyncio.Event()

    async def ending(requests: Any, context: Any) -> None:
        await anext(requests)
        await context.write(sent([1, 2], pending=0))
        await anext(requests)
        await context.write(sent([3], pending=0))
        has_ended.set()

    async def serving(requests: Any, context: Any) -> None:
        await anext(requests)
        await context.write(confirmed(await anext(requests)))
        async for _ in requests:
            pass

    script = Script(managed=[ending, serving])
    async with (
        scripted(script) as client,
        client.subscribe_managed("Orders", max_requested=2) as subscription,
    ):
        event = await anext(subscription)
        await has_ended.wait()
        await client.get_topic("/event/Order_Event__e")  # answered after the call's end has gone out
        async with asyncio.timeout(60):
            await subscription.commit(event.replay_id)
        assert subscription.calls == 2
        assert await take(subscription, 2) == [2, 3]


async def test_lost_position_is_retried_once_for_the_servers_error_recovery() -> None:
    async def lost(requests: Any, context: Any) -> None:
        await anext(requests)
        await fail(context, "INVALID_ARGUMENT", "subscription.fetch.replayid.corrupted")

    async def serving(requests: Any, context: Any) -> None:
        await anext(requests)
        await context.write(sent([7]))
        async for _ in requests:
            pass

    script = Script(managed=[lost, serving])
    async with scripted(script) as client, client.subscribe_managed("Orders") as subscription:
        assert await take(subscription, 1) == [7]
    script = Script(managed=[lost, lost])
    async with scripted(script) as client, client.subscribe_managed("Orders") as subscription:
        with pytest.raises(ReplayIdInvalid):
            await anext(subscription)


async def test_managed_subscription_retries_when_the_server_still_sees_its_old_call() -> None:
    async def breaking(requests: Any, context: Any) -> None:
        await anext(requests)
        await context.write(sent([1]))
        await fail(context, "UNAVAILABLE")

    async def taken(requests: Any, context: Any) -> None:
        await anext(requests)
        trailers = (("tidewire-code", ManagedActive.code),)
        await context.abort(grpc.StatusCode.ALREADY_EXISTS, "another client", trailers)

    async def serving(requests: Any, context: Any) -> None:
        await anext(requests)
        await context.write(sent([1, 2]))
        async for _ in requests:
            pass

    script = Script(managed=[breaking, taken, taken, serving])
    async with scripted(script) as client, client.subscribe_managed("Orders") as subscription:
        assert await take(subscription, 2) == [1, 2]
    script = Script(managed=[taken])
    async with scripted(script) as client, client.subscribe_managed("Orders") as subscription:
        with pytest.raises(ManagedActive):
            await anext(subscription)


async def test_commit_fails_at_once_on_a_failed_or_closed_subscription() -> None:
    async def refusing(requests: Any, context: Any) -> None:
        await anext(requests)
        await fail(context, "NOT_FOUND")

    async with scripted(Script(managed=[refusing])) as client:
        subscription = client.subscribe_managed("Orders")
        with pytest.raises(TopicUnknown):
            await subscription.commit(render_replay_id(1))
        with pytest.raises(TopicUnknown):
            await subscription.commit(render_replay_id(1))

    async def silent(requests: Any, context: Any) -> None:
        async for _ in requests:
            pass

    async with scripted(Script(managed=[silent])) as client:
        subscription = client.subscribe_managed("Orders")
        waiting = asyncio.create_task(subscription.commit(render_replay_id(1)))
        await asyncio.sleep(0)
        await subscription.close()
        with pytest.raises(ProtocolViolation):
            await waiting


@pytest.mark.parametrize(
    "status, code, expected",
    [
        ("ALREADY_EXISTS", "already.active", ManagedActive),
        ("FAILED_PRECONDITION", "config.stopped", ManagedStopped),
        ("NOT_FOUND", "config.deleted", ManagedUnknown),
        ("NOT_FOUND", "developer.name.not.found", ManagedUnknown),
        ("NOT_FOUND", "subscription.id.not.found", ManagedUnknown),
        ("INVALID_ARGUMENT", "fetch.request.invalid", BodyMalformed),
    ],
)
async def test_rejection_by_a_foreign_server_is_mapped_and_not_retried(
    status: str, code: str, expected: type[PlatformError]
) -> None:
    async def refusing(requests: Any, context: Any) -> None:
        await anext(requests)
        await fail(context, status, f"managed.subscription.{code}")

    async with (
        scripted(Script(managed=[refusing])) as client,
        client.subscribe_managed("Orders") as subscription,
    ):
        with pytest.raises(expected):
            await anext(subscription)
        assert subscription.calls == 1
