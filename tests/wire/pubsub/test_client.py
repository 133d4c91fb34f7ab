"""The asynchronous client against a live server: the whole way from published fields to decoded ones."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from tests.oauth import Admin
from tests.running import API, Rest
from tidewire.client.login import Credentials, Login, login
from tidewire.client.pubsub import PubSubClient
from tidewire.client.pubsub_messages import replay_number
from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_PASSWORD, DEV_USERNAME
from tidewire.errors import ManagedActive, PlatformError, ReplayIdInvalid, TopicUnknown
from tidewire.testing import ServerProcess

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

_numbers = itertools.count()


@pytest.fixture
def topic(server: ServerProcess) -> str:
    """A platform event of this test's own."""
    name = f"Client_Event_{next(_numbers)}__e"
    fields = {"Number__c": {"type": "Number"}, "Text__c": {"type": "Text", "length": 80}}
    Admin(server).apply(events={name: {"label": "Client event", "fields": fields}})
    return f"/event/{name}"


@pytest.fixture
def sign_in(server: ServerProcess) -> Callable[[], Login]:
    credentials = Credentials(server.http, DEV_USERNAME, DEV_PASSWORD, DEV_CLIENT_ID, DEV_CLIENT_SECRET)
    return partial(login, credentials)


@pytest.fixture
async def client(server: ServerProcess, sign_in: Callable[[], Login]) -> AsyncIterator[PubSubClient]:
    """A client over TLS."""
    roots = server.ca_path.read_bytes()
    async with PubSubClient(server.grpc_tls, sign_in, tls_ca=roots, max_pause_s=0.5) as opened:
        yield opened


async def numbers_of(subscription: Any, count: int) -> list[float]:
    return [(await anext(subscription)).fields["Number__c"] for _ in range(count)]


async def test_events_published_by_call_and_by_stream_are_read_in_order_and_resumed(
    client: PubSubClient, topic: str
) -> None:
    results = await client.publish(topic, [{"Number__c": float(n), "Text__c": "Ünï"} for n in range(3)])
    async with client.publish_stream(topic) as stream:
        more = [await stream.publish([{"Number__c": float(n)}]) for n in range(3, 150)]
    ids = [result.replay_id for result in results] + [result[0].replay_id for result in more]
    async with client.subscribe(topic, "earliest") as subscription:
        first = await anext(subscription)
        assert (first.event_id, first.fields["Text__c"]) == (results[0].event_id, "Ünï")
        assert replay_number(first.replay_id) == ids[0]
        assert await numbers_of(subscription, 149) == [float(n) for n in range(1, 150)]
    async with client.subscribe(topic, ids[147] or 0) as subscription:
        assert await numbers_of(subscription, 2) == [148.0, 149.0]


async def test_requests_under_way_on_one_stream_are_all_answered(client: PubSubClient, topic: str) -> None:
    async with client.publish_stream(topic, max_in_flight=8) as stream:
        requests = [[{"Number__c": float(n)}, {"Number__c": n + 0.5}] for n in range(40)]
        results = await asyncio.gather(*[stream.publish(request) for request in requests])
    ids = [result.replay_id for request in results for result in request]
    assert all(ids)
    assert len(set(ids)) == 80
    async with client.subscribe(topic, "earliest") as subscription:
        seen = {replay_number((await anext(subscription)).replay_id) for _ in range(80)}
    assert seen == set(ids)


async def test_change_event_tells_what_was_changed(client: PubSubClient, rest: Rest) -> None:
    record_id = rest.create("Account", {"Name": "Client account", "Phone": "1", "BillingCity": "Graz"})
    rest.update("Account", record_id, {"Phone": None, "BillingCity": "Linz"})
    async with client.subscribe("/data/AccountChangeEvent", "earliest", max_requested=1_000) as subscription:
        async for event in subscription:
            header = event.fields["ChangeEventHeader"]
            if header["recordIds"] == [record_id] and header["changeType"] == "UPDATE":
                break
    assert set(event.changed_fields) >= {"Phone", "BillingAddress.City", "LastModifiedDate"}
    assert event.nulled_fields == ["Phone"]
    assert event.fields["BillingAddress"]["City"] == "Linz"


async def test_subscription_from_a_time_begins_there(client: PubSubClient, topic: str) -> None:
    await client.publish(topic, [{"Number__c": 1.0}])
    async with client.subscribe(topic, from_ms=1) as subscription:
        assert await numbers_of(subscription, 1) == [1.0]


@pytest.mark.parametrize(
    "topic_name, replay, expected",
    [
        ("/event/Nothing_Of_This_Name__e", "latest", TopicUnknown),
        ("/event/Order_Event__e", b"not a replay id", ReplayIdInvalid),
        ("/event/Order_Event__e", (1 << 62), ReplayIdInvalid),
    ],
)
async def test_refusal_of_a_subscription_is_named(
    client: PubSubClient, topic_name: str, replay: Any, expected: type[PlatformError]
) -> None:
    with pytest.raises(expected):
        await anext(client.subscribe(topic_name, replay))


async def test_revoked_login_is_replaced_while_a_subscription_waits(
    server: ServerProcess, topic: str, sign_in: Callable[[], Login]
) -> None:
    logins: list[Login] = []

    def noted_sign_in() -> Login:
        logins.append(sign_in())
        return logins[-1]

    async with (
        PubSubClient(server.grpc, noted_sign_in, tls_ca=None, max_pause_s=0.5) as client,
        client.subscribe(topic, "earliest") as subscription,
    ):
        await client.publish(topic, [{"Number__c": 1.0}])
        assert await numbers_of(subscription, 1) == [1.0]
        Admin(server).call("POST", f"/services/oauth2/revoke?token={logins[0].token}").raise_for_status()
        await client.publish(topic, [{"Number__c": 2.0}])
        assert await numbers_of(subscription, 1) == [2.0]
    assert len(logins) == 2


async def test_managed_subscription_goes_on_after_its_commit(
    server: ServerProcess, client: PubSubClient, topic: str
) -> None:
    name = f"Client_Managed_{next(_numbers)}"
    metadata = {
        "label": name,
        "topicName": topic,
        "defaultReplay": "EARLIEST",
        "errorRecoveryReplay": "EARLIEST",
        "state": "RUN",
    }
    body = {"FullName": name, "Metadata": metadata}
    made = Admin(server).call("POST", f"{API}/tooling/sobjects/ManagedEventSubscription", body)
    assert made.status_code == 201, made.text
    await client.publish(topic, [{"Number__c": float(n)} for n in range(6)])
    async with client.subscribe_managed(name) as subscription:
        events = [await anext(subscription) for _ in range(4)]
        await subscription.commit(events[1].replay_id)
        await subscription.commit(events[2].replay_id)
    assert await take_over(client, made.json()["id"], 3) == [3.0, 4.0, 5.0]


async def take_over(client: PubSubClient, name: str, count: int) -> list[float]:
    """The first events of a call, which may come before the one before it has been noticed to be over."""
    while True:
        async with client.subscribe_managed(name) as subscription:
            with suppress(ManagedActive):
                return await numbers_of(subscription, count)
