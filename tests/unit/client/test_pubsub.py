"""The asynchronous client against a scripted foreign server: resuming, demand, schemas, publishing and logins."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.unit.client.pubsub_script import (
    SCHEMA,
    Act,
    Script,
    answer,
    consumed,
    fail,
    fetched,
    scripted,
)
from tidewire.client.login import Login
from tidewire.client.pubsub import PubSubClient
from tidewire.client.pubsub_messages import DecodedEvent, read_failure, render_replay_id, replay_number
from tidewire.client.pubsub_subscription import Subscription
from tidewire.errors import (
    AccessDenied,
    BodyMalformed,
    DemandInvalid,
    FieldUnknown,
    LoginFailed,
    PayloadInvalid,
    PlatformError,
    ProtocolViolation,
    ReplayIdExpired,
    ReplayIdInvalid,
    RequestRefused,
    SchemaUnknown,
    ServerUnreachable,
    SessionInvalid,
    TopicUnknown,
)
from tidewire.schema.bitmap import encode_bitmap
from tidewire.schema.codec import EventSchema
from tidewire.schema.proto import pubsub_pb2 as pb

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

TOPIC = "/event/Order_Event__e"


async def take(subscription: Any, count: int) -> list[int]:
    """The next events, by their numbers."""
    return [replay_number((await anext(subscription)).replay_id) for _ in range(count)]


def sending(*responses: pb.FetchResponse, then: tuple[str, str] | None, firsts: list[pb.FetchRequest]) -> Act:
    """A call that answers its first request with these, then fails, or stays open if `then` is None."""

    async def act(requests: Any, context: Any) -> None:
        firsts.append(await anext(requests))
        for response in responses:
            await context.write(response)
        if then is not None:
            await fail(context, *then)
        async for _ in requests:
            pass

    return act


@pytest.mark.parametrize(
    "ending",
    [
        ("UNAVAILABLE", ""),
        ("UNAVAILABLE", "service.unavailable"),
        ("INTERNAL", "subscription.internal.error"),
        ("INTERNAL", "subscription.fetch.replay.repeated"),
        ("RESOURCE_EXHAUSTED", "service.protection.triggered"),
        ("RESOURCE_EXHAUSTED", "concurrent.client.limit.exceeded"),
        ("RESOURCE_EXHAUSTED", "subscription.limit.exceeded"),
        ("RESOURCE_EXHAUSTED", "subscription.fetch.overflow"),
        ("CANCELLED", ""),
    ],
    ids=str,
)
async def test_subscription_resumes_after_the_last_event_when_a_call_fails(ending: tuple[str, str]) -> None:
    firsts: list[pb.FetchRequest] = []
    script = Script(
        [
            sending(fetched([3, 5], 98), then=ending, firsts=firsts),
            sending(fetched([8], 99), then=None, firsts=firsts),
        ]
    )
    async with scripted(script) as client, client.subscribe(TOPIC, "earliest") as subscription:
        assert await take(subscription, 3) == [3, 5, 8]
        assert subscription.calls == 2
        assert subscription.last_replay_id == render_replay_id(8)
    assert [(first.topic_name, first.replay_preset) for first in firsts] == [
        (TOPIC, pb.EARLIEST),
        (TOPIC, pb.CUSTOM),
    ]
    assert firsts[1].replay_id == render_replay_id(5)


async def test_subscription_resumes_when_the_server_ends_its_call_with_ok() -> None:
    firsts: list[pb.FetchRequest] = []

    async def ending(requests: Any, context: Any) -> None:
        firsts.append(await anext(requests))
        await context.write(fetched([3], 99))

    script = Script([ending, sending(fetched([4], 99), then=None, firsts=firsts)])
    async with scripted(script) as client, client.subscribe(TOPIC, 2) as subscription:
        assert await take(subscription, 2) == [3, 4]
    assert [first.replay_id for first in firsts] == [render_replay_id(2), render_replay_id(3)]


async def test_subscription_resumes_after_a_keepalive_received_with_demand_left() -> None:
    firsts: list[pb.FetchRequest] = []
    script = Script(
        [
            sending(fetched([], 100, latest=7), then=("UNAVAILABLE", ""), firsts=firsts),
            sending(fetched([9], 99), then=None, firsts=firsts),
        ]
    )
    async with scripted(script) as client, client.subscribe(TOPIC) as subscription:
        assert await take(subscription, 1) == [9]
    assert firsts[0].replay_preset == pb.LATEST
    assert firsts[1].replay_id == render_replay_id(7)


async def test_subscription_keeps_a_replay_id_of_any_form_as_it_is() -> None:
    firsts: list[pb.FetchRequest] = []
    odd = b"\0\1\2\3\4\5\6\7\x08\x09"
    event = consumed(1)
    event.replay_id = odd
    response = pb.FetchResponse(events=[event], latest_replay_id=odd, pending_num_requested=9)
    script = Script(
        [
            sending(response, then=("UNAVAILABLE", ""), firsts=firsts),
            sending(fetched([2], 99), then=None, firsts=firsts),
        ]
    )
    async with scripted(script) as client, client.subscribe(TOPIC, b"any bytes") as subscription:
        assert (await anext(subscription)).replay_id == odd
        await anext(subscription)
    assert [first.replay_id for first in firsts] == [b"any bytes", odd]


async def test_subscription_demand_never_exceeds_the_room_in_its_queue() -> None:
    asked: list[int] = []
    has_asked_again = asyncio.Event()

    async def act(requests: Any, context: Any) -> None:
        asked.append((await anext(requests)).num_requested)
        await context.write(fetched(range(1, 11), 0))
        asked.append((await anext(requests)).num_requested)
        has_asked_again.set()
        await context.write(fetched(range(11, 16), 0))
        async for _ in requests:
            pass

    async with (
        scripted(Script([act])) as client,
        client.subscribe(TOPIC, "earliest", max_requested=10) as subscription,
    ):
        assert await take(subscription, 4) == [1, 2, 3, 4]
        assert not has_asked_again.is_set()
        assert await take(subscription, 11) == list(range(5, 16))
    assert asked == [10, 5]


async def test_subscription_keeps_to_the_demand_that_a_server_grants() -> None:
    asked: list[int] = []

    async def act(requests: Any, context: Any) -> None:
        asked.append((await anext(requests)).num_requested)
        await context.write(fetched(range(1, 41), 60))
        await context.write(fetched(range(41, 101), 0))
        asked.extend([(await anext(requests)).num_requested for _ in range(2)])
        await context.write(fetched([101], 99))
        async for _ in requests:
            pass

    script = Script([act])
    async with (
        scripted(script) as client,
        client.subscribe(TOPIC, "earliest", max_requested=5_000, keepalive_ms=50) as subscription,
    ):
        assert await take(subscription, 101) == list(range(1, 102))
    assert asked == [5_000, 50, 50]
    assert script.metadata[0]["tidewire-max-requested"] == "5000"
    assert script.metadata[0]["tidewire-keepalive-ms"] == "50"


async def test_subscription_from_a_time_names_it_until_it_has_a_replay_id() -> None:
    firsts: list[pb.FetchRequest] = []
    script = Script(
        [
            sending(fetched([3], 99), then=("UNAVAILABLE", ""), firsts=firsts),
            sending(fetched([4], 99), then=None, firsts=firsts),
        ]
    )
    async with scripted(script) as client, client.subscribe(TOPIC, from_ms=17) as subscription:
        await take(subscription, 2)
    calls = [seen for seen in script.metadata if "tidewire-replay-from-ms" in seen]
    assert [seen["tidewire-replay-from-ms"] for seen in calls] == ["17"]


@pytest.mark.parametrize(
    "status, code, expected",
    [
        ("NOT_FOUND", "", TopicUnknown),
        ("NOT_FOUND", "topic.not.found", TopicUnknown),
        ("UNIMPLEMENTED", "", RequestRefused),
        ("PERMISSION_DENIED", "subscription.topic.cannot.subscribe", AccessDenied),
        ("PERMISSION_DENIED", "topic.meta.permission", AccessDenied),
        ("PERMISSION_DENIED", "service.tenant.license", AccessDenied),
        ("INVALID_ARGUMENT", "topic.validation.empty", BodyMalformed),
        ("INVALID_ARGUMENT", "subscription.fetch.topic.mismatch", BodyMalformed),
        ("INVALID_ARGUMENT", "subscription.fetch.requested.events.invalid", DemandInvalid),
        ("INVALID_ARGUMENT", "subscription.fetch.replayid.validation.failed", ReplayIdInvalid),
        ("INVALID_ARGUMENT", "subscription.fetch.replayid.corrupted", ReplayIdInvalid),
    ],
)
async def test_subscription_raises_a_final_error_after_queued_events(
    status: str, code: str, expected: type[PlatformError]
) -> None:
    script = Script([sending(fetched([3], 99), then=(status, code), firsts=[])])
    async with scripted(script) as client, client.subscribe(TOPIC, 2) as subscription:
        assert await take(subscription, 1) == [3]
        for _ in range(2):
            with pytest.raises(expected):
                await anext(subscription)


async def test_subscription_after_an_expired_id_starts_at_its_fallback() -> None:
    firsts: list[pb.FetchRequest] = []
    corrupted = ("INVALID_ARGUMENT", "subscription.fetch.replayid.corrupted")
    script = Script(
        [
            sending(then=corrupted, firsts=firsts),
            sending(fetched([30], 99), then=None, firsts=firsts),
        ]
    )
    async with (
        scripted(script) as client,
        client.subscribe(TOPIC, 2, when_expired="earliest") as subscription,
    ):
        assert await take(subscription, 1) == [30]
    assert [first.replay_preset for first in firsts] == [pb.CUSTOM, pb.EARLIEST]


async def test_subscription_that_is_closed_ends_its_iteration() -> None:
    script = Script([sending(fetched([3], 99), then=None, firsts=[])])
    async with scripted(script) as client:
        subscription = client.subscribe(TOPIC)
        assert await take(subscription, 1) == [3]
        waiting = asyncio.create_task(collect(subscription))
        await asyncio.sleep(0)
        await subscription.close()
        assert await waiting == []


async def collect(subscription: Subscription) -> list[DecodedEvent]:
    return [event async for event in subscription]


@pytest.mark.parametrize("number", [-1, 2**63])
async def test_subscribe_rejects_an_invalid_replay_number_at_once(number: int) -> None:
    async with scripted(Script()) as client:
        with pytest.raises(ReplayIdInvalid):
            client.subscribe(TOPIC, number)


def test_expired_replay_id_comes_with_the_oldest_that_is_kept() -> None:
    trailers = [("tidewire-code", ReplayIdExpired.code), ("tidewire-earliest-replay-id", "77")]
    assert read_failure("INVALID_ARGUMENT", "too old", trailers).details["earliest"] == "77"


async def test_client_that_is_closed_says_so() -> None:
    async with scripted(Script()) as client:
        stream = client.publish_stream(TOPIC)
        assert (await client.publish(TOPIC, [{}]))[0].replay_id
        await client.close()
        for asking in (client.get_topic(TOPIC), client.publish(TOPIC, [{}]), stream.publish([{}])):
            with pytest.raises(ProtocolViolation, match="closed"):
                await asking
        with pytest.raises(ProtocolViolation, match="closed"):
            await anext(client.subscribe(TOPIC))


async def test_subscription_for_nothing_is_refused_at_once() -> None:
    async with scripted(Script()) as client:
        with pytest.raises(DemandInvalid):
            client.subscribe(TOPIC, max_requested=0)


async def test_rejected_token_is_replaced_by_one_login_and_the_stream_continues() -> None:
    script = Script([sending(fetched([3], 99), then=None, firsts=[])], refused_tokens={"token 1"})
    async with scripted(script) as client, client.subscribe(TOPIC) as subscription:
        assert await take(subscription, 1) == [3]
        assert (await client.get_topic(TOPIC)).can_publish
    assert script.logins == 2


async def test_token_that_is_refused_again_after_a_login_is_an_error() -> None:
    script = Script(refused_tokens={"token 1", "token 2"})
    async with scripted(script) as client:
        with pytest.raises(SessionInvalid):
            await client.get_topic(TOPIC)
        script.refused_tokens |= {"token 3"}
        with pytest.raises(SessionInvalid):
            await anext(client.subscribe(TOPIC))


async def test_client_raises_a_rejected_login() -> None:
    def refuse() -> Any:
        raise LoginFailed("no")

    with pytest.raises(LoginFailed):
        async with PubSubClient("127.0.0.1:1", refuse, tls_ca=None):
            pass


async def test_login_is_retried_while_the_server_is_unreachable() -> None:
    script = Script([sending(fetched([3], 99), then=None, firsts=[])])
    outages = 3

    def sign_in() -> Login:
        nonlocal outages
        if outages:
            outages -= 1
            raise ServerUnreachable("not now")
        return script.sign_in()

    async with scripted(script, sign_in) as client:
        assert outages == 0
        script.refused_tokens, outages = {"token 1"}, 2
        async with client.subscribe(TOPIC) as subscription:
            assert await take(subscription, 1) == [3]
    assert script.logins == 2


async def test_schema_is_fetched_once_for_concurrent_callers() -> None:
    script = Script([sending(fetched(range(1, 50), 51), then=None, firsts=[])])
    async with scripted(script) as client, client.subscribe(TOPIC) as subscription:
        found = await asyncio.gather(*[client.get_schema(SCHEMA.schema_id) for _ in range(5)])
        await take(subscription, 49)
    assert script.schema_calls == [SCHEMA.schema_id]
    assert all(schema is found[0] for schema in found)


async def test_unknown_schema_is_fetched_again() -> None:
    script = Script(schemas={})
    async with scripted(script) as client:
        with pytest.raises(SchemaUnknown):
            await client.get_schema(SCHEMA.schema_id)
        script.schemas[SCHEMA.schema_id] = SCHEMA.json
        assert (await client.get_schema(SCHEMA.schema_id)).name == "Order_Event__e"


async def test_event_that_does_not_fit_its_schema_is_named() -> None:
    response = fetched([3, 4], 98)
    response.events[1].event.payload = b"\xff"
    script = Script([sending(response, then=None, firsts=[])])
    async with scripted(script) as client, client.subscribe(TOPIC) as subscription:
        assert await take(subscription, 1) == [3]
        with pytest.raises(PayloadInvalid) as caught:
            await anext(subscription)
    assert caught.value.details["replay_id"] == render_replay_id(4)


def change_schema() -> EventSchema:
    """A small change event: a header with bitmaps, a plain field and a compound one."""
    texts = {"type": "array", "items": "string"}
    lists = [{"name": name, "type": texts} for name in ("nulledFields", "diffFields", "changedFields")]
    header = {"type": "record", "name": "ChangeEventHeader", "fields": lists}
    address = {
        "type": "record",
        "name": "Address",
        "fields": [{"name": n, "type": ["null", "string"], "default": None} for n in ("Street", "City")],
    }
    fields = [
        {"name": "ChangeEventHeader", "type": header},
        {"name": "Phone", "type": ["null", "string"], "default": None},
        {"name": "BillingAddress", "type": ["null", address], "default": None},
    ]
    return EventSchema(
        json.dumps({"type": "record", "name": "AccountChangeEvent", "namespace": "x", "fields": fields})
    )


async def test_change_event_tells_its_field_lists_by_name() -> None:
    schema = change_schema()
    header = {
        "nulledFields": encode_bitmap(schema, ["Phone"]),
        "diffFields": [],
        "changedFields": encode_bitmap(schema, ["Phone", "BillingAddress.City"]),
    }
    event = consumed(1, schema, ChangeEventHeader=header, BillingAddress={"City": "Graz"})
    script = Script([sending(pb.FetchResponse(events=[event]), then=None, firsts=[])])
    script.schemas[schema.schema_id] = schema.json
    async with scripted(script) as client, client.subscribe("/data/AccountChangeEvent") as subscription:
        found = await anext(subscription)
    assert found.changed_fields == ["Phone", "BillingAddress.City"]
    assert found.nulled_fields == ["Phone"]
    assert found.diff_fields == []
    assert found.fields["BillingAddress"] == {"Street": None, "City": "Graz"}


async def test_publish_fills_in_system_fields_and_returns_each_result() -> None:
    script = Script()
    async with scripted(script) as client:
        results = await client.publish(
            TOPIC, [{"Number__c": "1"}, {"Number__c": "2", "CreatedById": "other"}]
        )
        assert await client.publish(TOPIC, []) == []
    sent = [SCHEMA.decode(event.payload) for event in script.published[0].events]
    assert [(event["Number__c"], event["CreatedById"]) for event in sent] == [
        ("1", "005000000000001AAA"),
        ("2", "other"),
    ]
    assert sent[0]["CreatedDate"] > 1_600_000_000_000
    assert [result.event_id for result in results] == [event.id for event in script.published[0].events]
    assert len({result.event_id for result in results}) == 2
    assert all(result.replay_id for result in results)


@pytest.mark.parametrize(
    "topic, event, expected",
    [
        (TOPIC, {"Nope__c": "1"}, FieldUnknown),
        (TOPIC, {"Number__c": 1}, PayloadInvalid),
        ("/data/AccountChangeEvent", {"Number__c": "1"}, AccessDenied),
    ],
)
async def test_publish_of_what_does_not_fit_sends_nothing(
    topic: str, event: dict[str, Any], expected: type[PlatformError]
) -> None:
    script = Script()
    async with scripted(script) as client:
        with pytest.raises(expected):
            await client.publish(topic, [{"Number__c": "fits"}, event])
    assert script.published == []


async def test_publish_stream_matches_responses_to_requests_in_flight() -> None:
    given: dict[str, int] = {}

    async def reversing(requests: Any, context: Any) -> None:
        waiting = [await anext(requests) for _ in range(5)]
        for request in reversed(waiting):
            response = answer(request)
            number = SCHEMA.decode(request.events[0].payload)["Number__c"]
            given[number] = replay_number(response.results[0].replay_id)
            await context.write(response)
        async for _ in requests:
            pass

    script = Script(publishes=[reversing])
    async with scripted(script) as client, client.publish_stream(TOPIC) as stream:
        results = await asyncio.gather(*[stream.publish([{"Number__c": str(n)}]) for n in range(5)])
    assert [result[0].replay_id for result in results] == [given[str(n)] for n in range(5)]


async def test_publish_stream_that_ended_is_opened_again_by_the_next_request() -> None:
    async def once(requests: Any, context: Any) -> None:
        await context.write(answer(await anext(requests)))

    script = Script(publishes=[once, once])
    async with scripted(script) as client, client.publish_stream(TOPIC) as stream:
        assert (await stream.publish([{"Number__c": "1"}]))[0].replay_id
        await until_opened_again(stream)


async def until_opened_again(stream: Any) -> None:
    """Publish until it works: the end of the first call may not have come yet when the next request is made."""
    for _ in range(2):
        try:
            assert (await stream.publish([{"Number__c": "2"}]))[0].replay_id
        except ServerUnreachable:
            continue
        return
    raise AssertionError("the stream was not opened again")


async def test_publish_stream_without_an_event_asks_for_nothing() -> None:
    async with scripted(Script()) as client, client.publish_stream(TOPIC) as stream:
        assert await stream.publish([]) == []


async def test_publish_stream_matches_responses_without_ids_in_order() -> None:
    async def serving(requests: Any, context: Any) -> None:
        for request in [await anext(requests), await anext(requests)]:
            response = answer(request)
            for result in response.results:
                result.ClearField("correlation_key")
            await context.write(response)

    async with scripted(Script(publishes=[serving])) as client, client.publish_stream(TOPIC) as stream:
        first, second = await asyncio.gather(stream.publish([{}]), stream.publish([{}, {}]))
    assert (len(first), len(second)) == (1, 2)


async def test_script_without_an_act_left_refuses_the_call_for_good() -> None:
    async with scripted(Script()) as client, client.subscribe(TOPIC) as subscription:
        async with asyncio.timeout(60):
            with pytest.raises(RequestRefused):
                await anext(subscription)
        assert subscription.calls == 1


async def test_broken_publish_stream_raises_a_retryable_error() -> None:
    async def breaking(requests: Any, context: Any) -> None:
        await anext(requests)
        await fail(context, "UNAVAILABLE")

    async with scripted(Script(publishes=[breaking])) as client, client.publish_stream(TOPIC) as stream:
        with pytest.raises(ServerUnreachable) as caught:
            await stream.publish([{"Number__c": "1"}])
    assert caught.value.retryable


async def test_publish_stream_with_a_refused_token_signs_in_and_publishes() -> None:
    async def serving(requests: Any, context: Any) -> None:
        async for request in requests:
            await context.write(answer(request))

    script = Script(publishes=[serving])
    async with scripted(script) as client, client.publish_stream(TOPIC) as stream:
        await client.get_topic(TOPIC)
        await client.get_schema(SCHEMA.schema_id)
        script.refused_tokens = {"token 1"}
        assert (await stream.publish([{"Number__c": "1"}]))[0].replay_id
    assert script.logins == 2
