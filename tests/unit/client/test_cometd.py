"""The CometD client against a scripted server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.client.bayeux_script import (
    BayeuxScript,
    DropConnection,
    Message,
    event,
    refusal,
    reply,
    running_script,
)
from tidewire.client.cometd import CometdClient
from tidewire.client.login import Login
from tidewire.errors import (
    ChannelUnknown,
    InternalError,
    LimitExceeded,
    LoginFailed,
    ProtocolViolation,
    ReplayIdInvalid,
    ServerUnreachable,
    SessionInvalid,
)

TOPIC = "/topic/T"
UNKNOWN = "400::The channel you requested to subscribe to does not exist {/topic/T}"
EXPIRED = "400::The replayId {7} you provided was invalid. Please provide a valid ID"


@pytest.fixture
async def script() -> AsyncIterator[BayeuxScript]:
    async with running_script() as running:
        yield running


def client_of(script: BayeuxScript, **options: Any) -> CometdClient:
    return CometdClient(script.sign_in, min_pause_s=0.001, max_pause_s=0.01, **options)


def connects(script: BayeuxScript, *answers: list[Message]) -> None:
    """Answer the first connect at once, the next ones as given, and hold the rest."""

    async def answer(number: int) -> list[Message] | None:
        # Not before the test has subscribed: an event of a channel that nobody asked for is none.
        if number > 1:
            await script.wait_sent("/meta/subscribe", 1)
        every = [[reply()], *answers]
        return every[number - 1] if number <= len(every) else None

    script.on_connect = answer


def replays(script: BayeuxScript) -> list[Any]:
    return [message.get("ext", {}).get("replay") for message in script.sent("/meta/subscribe")]


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_events_are_received_in_order_over_several_connects(
    script: BayeuxScript, is_chunked: bool
) -> None:
    script.is_chunked = is_chunked
    connects(script, [event(1), event(2), reply()], [reply()], [reply(), event(3)])
    async with client_of(script) as client:
        await client.subscribe(TOPIC, -2)
        received = [await client.receive() for _ in range(3)]
    assert [(e.channel, e.replay_id, e.data["sobject"]["Id"]) for e in received] == [
        (TOPIC, 1, "1"),
        (TOPIC, 2, "2"),
        (TOPIC, 3, "3"),
    ]
    assert replays(script) == [{TOPIC: -2}]
    assert set(script.tokens) == {"bearer token 1"}
    assert script.sent("/meta/disconnect")[0]["clientId"] == "c1"


async def test_cookies_are_sent_back(script: BayeuxScript) -> None:
    async with client_of(script):
        await script.wait_sent("/meta/connect", 2)
    assert script.cookies[0] == ""
    assert set(script.cookies[1:]) == {"bayeux_browser=b1"}


async def test_unknown_client_does_a_new_handshake_and_resumes(
    script: BayeuxScript,
) -> None:
    advice = {"reconnect": "handshake", "interval": 0}
    connects(
        script, [event(7), reply()], [refusal("403::Unknown client", advice=advice)], [event(8), reply()]
    )
    async with client_of(script) as client:
        await client.subscribe(TOPIC, -2)
        assert [(await client.receive()).replay_id for _ in range(2)] == [7, 8]
        assert client.handshakes == 2
    assert replays(script) == [{TOPIC: -2}, {TOPIC: 7}]
    assert script.logins == 1
    assert {m["clientId"] for m in script.sent("/meta/disconnect")} == {"c1", "c2"}


async def test_invalid_login_signs_in_again_and_resumes(script: BayeuxScript) -> None:
    refused = refusal("401::Authentication invalid", advice={"reconnect": "none", "interval": 0})
    connects(script, [event(7), reply()], [refused], [event(8), reply()])
    async with client_of(script) as client:
        await client.subscribe(TOPIC)
        assert [(await client.receive()).replay_id for _ in range(2)] == [7, 8]
    assert script.logins == 2
    assert script.tokens[-1] == "bearer token 2"
    assert replays(script)[-1] == {TOPIC: 7}


async def test_client_ends_when_a_new_login_is_rejected(script: BayeuxScript) -> None:
    script.refusals["/meta/handshake"] = {
        "channel": "/meta/handshake",
        "successful": False,
        "error": "403::Handshake denied",
        "advice": {"reconnect": "none"},
        "ext": {"sfdc": {"failureReason": "401::Authentication invalid"}},
    }
    with pytest.raises(SessionInvalid, match="Authentication invalid"):
        async with client_of(script):
            pytest.fail("no session can be open")
    assert script.logins == 1


async def test_handshake_refused_for_another_reason_ends_the_client_with_it(script: BayeuxScript) -> None:
    script.refusals["/meta/handshake"] = {
        "channel": "/meta/handshake",
        "successful": False,
        "error": "403::Handshake denied",
        "ext": {"sfdc": {"failureReason": "403::Organization concurrent user limit exceeded"}},
    }
    with pytest.raises(LimitExceeded, match="concurrent user limit"):
        async with client_of(script):
            pytest.fail("no session can be open")


async def test_lost_connection_opens_another_session_instead_of_polling_on(script: BayeuxScript) -> None:
    # What the lost answer held is unknown: the same session would go on behind it.
    async def answer(number: int) -> list[Message] | None:
        if number > 1:
            await script.wait_sent("/meta/subscribe", 1)
        if number == 3:
            raise DropConnection
        return {1: [reply()], 2: [event(7), reply()], 4: [event(8), reply()]}.get(number)

    script.on_connect = answer
    async with client_of(script) as client:
        await client.subscribe(TOPIC, -2)
        assert [(await client.receive()).replay_id for _ in range(2)] == [7, 8]
    assert script.handshakes == 2
    assert replays(script) == [{TOPIC: -2}, {TOPIC: 7}]


async def test_rejected_subscription_raises_and_is_not_retried(script: BayeuxScript) -> None:
    script.refusals[TOPIC] = {
        "channel": "/meta/subscribe",
        "subscription": TOPIC,
        "successful": False,
        "error": UNKNOWN,
    }
    connects(script, [refusal("403::Unknown client", advice={"reconnect": "handshake"})])
    async with client_of(script) as client:
        with pytest.raises(ChannelUnknown, match="does not exist"):
            await client.subscribe(TOPIC)
        await script.wait_sent("/meta/handshake", 2)
        await client.subscribe("/topic/Other")
    assert [m["subscription"] for m in script.sent("/meta/subscribe")] == [TOPIC, "/topic/Other"]


async def test_client_ends_after_queued_events_when_a_subscription_cannot_resume(
    script: BayeuxScript,
) -> None:
    async def answer(number: int) -> list[Message] | None:
        if number == 1:
            return [reply()]
        await script.wait_sent("/meta/subscribe", 1)
        script.refusals[TOPIC] = {
            "channel": "/meta/subscribe",
            "subscription": TOPIC,
            "successful": False,
            "error": EXPIRED,
        }
        return [event(7), refusal("403::Unknown client", advice={"reconnect": "handshake"})]

    script.on_connect = answer
    async with client_of(script) as client:
        await client.subscribe(TOPIC, -2)
        assert (await client.receive()).replay_id == 7
        for _ in range(2):
            with pytest.raises(ReplayIdInvalid):
                await client.receive()
        with pytest.raises(ReplayIdInvalid):
            await client.subscribe("/topic/Other")


async def test_full_queue_stops_polling_until_there_is_room(script: BayeuxScript) -> None:
    connects(script, [*map(event, range(1, 6)), reply()], [event(6), reply()])
    async with client_of(script, max_queued=2) as client:
        await client.subscribe(TOPIC, -2)
        assert (await client.receive()).replay_id == 1
        for _ in range(200):
            await asyncio.sleep(0)
        assert script.connects == 2
        assert [(await client.receive()).replay_id for _ in range(5)] == [2, 3, 4, 5, 6]


async def test_versions_without_replay_ask_for_none(script: BayeuxScript) -> None:
    connects(script, [{"channel": TOPIC, "data": {"sobject": {}, "event": {"type": "created"}}}, reply()])
    async with client_of(script, api_version="36.0") as client:
        await client.subscribe(TOPIC, -2)
        assert (await client.receive()).replay_id is None
    assert replays(script) == [None]


async def test_filter_is_part_of_the_channel_but_not_of_the_replay_map(script: BayeuxScript) -> None:
    filtered = TOPIC + "?Status__c='Open'"
    connects(script, [event(7, filtered), refusal("403::Unknown client", advice={"reconnect": "handshake"})])
    async with client_of(script) as client:
        await client.subscribe(filtered, -2)
        assert (await client.receive()).channel == filtered
        await script.wait_sent("/meta/subscribe", 2)
    assert replays(script) == [{TOPIC: -2}, {TOPIC: 7}]


async def test_unsubscribed_channel_is_neither_received_nor_resumed(script: BayeuxScript) -> None:
    async def answer(number: int) -> list[Message] | None:
        if number == 2:
            await script.wait_sent("/meta/unsubscribe", 1)
            return [event(7), event(8, "/topic/Other"), reply()]
        if number == 3:
            return [refusal("403::Unknown client", advice={"reconnect": "handshake"})]
        return [reply()] if number == 1 else None

    script.on_connect = answer
    async with client_of(script) as client:
        await client.subscribe(TOPIC)
        await client.subscribe("/topic/Other")
        await client.unsubscribe(TOPIC)
        assert (await client.receive()).channel == "/topic/Other"
        await script.wait_sent("/meta/subscribe", 3)
    assert replays(script)[2] == {"/topic/Other": 8}


async def test_closed_client_ends_its_iteration_and_refuses_more(script: BayeuxScript) -> None:
    async with client_of(script) as client:
        waiting = asyncio.create_task(anext(client))
        await script.wait_sent("/meta/connect", 2)
    with pytest.raises(StopAsyncIteration):
        await waiting
    assert [received async for received in client] == []
    with pytest.raises(ProtocolViolation):
        await client.receive()
    with pytest.raises(ProtocolViolation):
        await client.subscribe(TOPIC)


@pytest.mark.parametrize(
    "error, expected", [(LoginFailed("no"), LoginFailed), (ValueError("x"), InternalError)]
)
async def test_sign_in_that_fails_ends_the_client(error: Exception, expected: type[Exception]) -> None:
    def sign_in() -> Login:
        raise error

    with pytest.raises(expected):
        async with CometdClient(sign_in):
            pytest.fail("no session can be open")


async def test_unreachable_server_is_retried(script: BayeuxScript) -> None:
    tries = 0

    def sign_in() -> Login:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise ServerUnreachable("nobody there")
        return script.sign_in()

    async with CometdClient(sign_in, min_pause_s=0.001, max_pause_s=0.01) as client:
        assert client.handshakes == 1
    assert tries == 4
