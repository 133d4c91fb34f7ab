"""Every error code of the guide's table, met by a client: status, code and trailers, with and without edges.

What a healthy server never does is asked of it by `TIDEWIRE_FAIL_AT`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import ModuleType
from typing import Any

import grpc
import pytest

from tests.running import Rest
from tests.wire.pubsub.conftest import Feed, Peer
from tidewire.testing import READER_USERNAME, ServerProcess

pytestmark = pytest.mark.timeout(300)  # a server with edges may take long to start

ACCOUNTS = "/data/AccountChangeEvent"
EVENT = "/event/Coded__e"
BROKEN = "/data/ContactChangeEvent"  # its deliveries fail, see below
FAULTS = {
    "pubsub.GetTopic@/event/Unlicensed__e": "internal/service.tenant.license",
    "pubsub.GetTopic@/event/Away__e": "store_closed",
    "pubsub.GetSchema@away": "store_closed",
    "pubsub.Subscribe@/event/Stopping__e": "store_closed",
    "pubsub.Subscribe@/event/Overflow__e": "slow_consumer",
    "pubsub.Subscribe@/event/Bug__e": "internal",
    f"pubsub.deliver@{BROKEN}": "internal/subscription.fetch.replay.repeated",
}
CLIENTS = 20  # of the edition


@pytest.fixture(scope="module", params=["0", "2"], ids=["one process", "edges"])
def coded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server of the smallest edition that fails where it is told to, and is soon tired of waiting."""
    with make_server(tmp_path_factory, request.param) as process:
        yield process


@contextmanager
def make_server(tmp_path_factory: pytest.TempPathFactory, edges: str) -> Iterator[ServerProcess]:
    options = ["--edition", "free", "--pubsub-publish-idle-close-s", "5", "--edges", edges]
    env = {"TIDEWIRE_FAIL_AT": ";".join(f"{point}={code}" for point, code in FAULTS.items())}
    data = tmp_path_factory.mktemp("coded") / "data"
    with ServerProcess(data, options=options, env=env, ready_timeout_s=120.0) as process:
        rest = Rest(process.http, process.login())
        fields = {"Text__c": {"type": "Text", "label": "Text"}}
        definition = {"events": {"Coded__e": {"label": "Coded", "fields": fields}}}
        rest.call("POST", "/services/tidewire/v1/apply", definition)
        rest.close()
        yield process


@pytest.fixture
def user(stubs: tuple[ModuleType, ModuleType], coded: ServerProcess) -> Iterator[Peer]:
    """The administrator's connection."""
    with grpc.insecure_channel(coded.grpc) as channel:
        yield Peer(stubs, channel, coded, coded.login())


class PublishFeed(Feed):
    """One PublishStream call."""

    def send(self, request: Any) -> PublishFeed:
        """Send a PublishRequest."""
        requests: SimpleQueue[Any] = self._requests
        requests.put(request)
        return self


Refusal = tuple[str, str, dict[str, str]]


def unary(rpc: str, message: str, **fields: Any) -> Callable[[Peer], Refusal]:
    return lambda peer: peer.refused(rpc, getattr(peer.pb, message)(**fields))


def without(header: str, value: str = "") -> Callable[[Peer], Refusal]:
    def run(peer: Peer) -> Refusal:
        metadata = list({**dict(peer.metadata), header: value}.items())
        return peer.refused("GetTopic", peer.pb.TopicRequest(topic_name=ACCOUNTS), metadata)

    return run


def fetched(*requests: tuple[int, dict[str, Any]], topic: str = ACCOUNTS) -> Callable[[Peer], Refusal]:
    def run(peer: Peer) -> Refusal:
        with peer.feed() as feed:
            for number, (count, fields) in enumerate(requests):
                feed.ask(count, **({"topic_name": topic} if number == 0 else {}) | fields)
            return feed.refusal()

    return run


def streamed(*changes: dict[str, Any]) -> Callable[[Peer], Refusal]:
    """A publish stream whose first requests are good but for these changes; then silence."""

    def run(peer: Peer) -> Refusal:
        schema_id = peer.call("GetTopic", peer.pb.TopicRequest(topic_name=EVENT)).schema_id
        payload = peer.encode(schema_id, {"CreatedDate": 1, "CreatedById": "005000000000000"})
        event = peer.pb.ProducerEvent(schema_id=schema_id, payload=payload)
        with PublishFeed(peer.pb, peer.stub.PublishStream, peer.metadata) as feed:
            for change in changes:
                feed.send(peer.pb.PublishRequest(**{"topic_name": EVENT, "events": [event]} | change))
            return feed.refusal()

    return run


def too_large(peer: Peer) -> Refusal:
    event = peer.pb.ProducerEvent(schema_id="s", payload=b"x" * (1 << 20))
    return peer.refused("Publish", peer.pb.PublishRequest(topic_name=EVENT, events=[event] * 5))


CODES: dict[str, tuple[str, Callable[[Peer], Refusal]]] = {
    "service.unavailable": ("UNAVAILABLE", fetched((1, {}), topic="/event/Stopping__e")),
    "service.auth.error": ("UNAUTHENTICATED", without("accesstoken", "00D!wrong")),
    "service.auth.headers.invalid": ("UNAUTHENTICATED", without("tenantid")),
    "service.auth.refresh.invalid": ("UNAUTHENTICATED", fetched((1, {}), (1, {"auth_refresh": "no token"}))),
    "service.protection.triggered": ("RESOURCE_EXHAUSTED", too_large),
    "service.tenant.license": (
        "PERMISSION_DENIED",
        unary("GetTopic", "TopicRequest", topic_name="/event/Unlicensed__e"),
    ),
    "schema.meta.permission": ("NOT_FOUND", unary("GetSchema", "SchemaRequest", schema_id="nope")),
    "schema.api.unavailable": ("UNAVAILABLE", unary("GetSchema", "SchemaRequest", schema_id="away")),
    "schema.validation.failed": ("INVALID_ARGUMENT", unary("GetSchema", "SchemaRequest", schema_id=" ")),
    "topic.meta.permission": ("NOT_FOUND", unary("GetTopic", "TopicRequest", topic_name="/event/X__e")),
    "topic.api.unavailable": ("UNAVAILABLE", unary("GetTopic", "TopicRequest", topic_name="/event/Away__e")),
    "topic.validation.empty": ("INVALID_ARGUMENT", unary("GetTopic", "TopicRequest")),
    "publish.event.count.invalid": ("INVALID_ARGUMENT", streamed({}, {"events": []})),
    "publish.topic.mismatch": ("INVALID_ARGUMENT", streamed({}, {"topic_name": "/event/Other__e"})),
    "publish.auth.refresh.invalid": ("INVALID_ARGUMENT", streamed({"auth_refresh": "token"})),
    "publish.topic.validation.empty": ("INVALID_ARGUMENT", streamed({"topic_name": ""})),
    "publish.stream.sweeper.timeout": ("DEADLINE_EXCEEDED", streamed({})),
    "subscription.fetch.requested.events.invalid": ("INVALID_ARGUMENT", fetched((0, {}))),
    "subscription.fetch.topic.mismatch": (
        "INVALID_ARGUMENT",
        fetched((1, {}), (1, {"topic_name": "/data/ContactChangeEvent"})),
    ),
    "subscription.fetch.replayid.validation.failed": (
        "INVALID_ARGUMENT",
        fetched((1, {"replay_preset": 2})),
    ),
    "subscription.fetch.replayid.corrupted": (
        "INVALID_ARGUMENT",
        fetched((1, {"replay_preset": 2, "replay_id": b"\xff" * 10})),
    ),
    "subscription.fetch.overflow": ("RESOURCE_EXHAUSTED", fetched((1, {}), topic="/event/Overflow__e")),
    "subscription.internal.error": ("INTERNAL", fetched((1, {}), topic="/event/Bug__e")),
}


@pytest.mark.parametrize("code", CODES)
def test_code_comes_with_its_status_and_trailers(user: Peer, code: str) -> None:
    status, provoke = CODES[code]
    got_status, got_code, trailers = provoke(user)
    assert (got_status, got_code) == (status, code)
    assert trailers["rpc-id"]
    assert trailers["type"] in {"GetTopic", "GetSchema", "Publish", "PublishStream", "Subscribe"}
    cause = trailers["internal-cause"]
    assert cause
    assert "\n" not in cause
    assert "Traceback" not in cause


def test_user_who_may_not_read_a_topic_cannot_subscribe(
    stubs: tuple[ModuleType, ModuleType], coded: ServerProcess
) -> None:
    with grpc.insecure_channel(coded.grpc) as channel:
        reader = Peer(stubs, channel, coded, coded.login(READER_USERNAME))
        with reader.feed() as feed:
            feed.ask(1, topic_name="/data/OpportunityChangeEvent")
            assert feed.refusal()[:2] == ("PERMISSION_DENIED", "subscription.topic.cannot.subscribe")


def test_event_older_than_the_one_before_ends_the_stream(user: Peer, coded: ServerProcess) -> None:
    rest = Rest(coded.http, coded.login())
    with user.feed() as feed:
        feed.ask(1, topic_name=BROKEN, replay_preset=user.pb.EARLIEST)
        rest.create("Contact", {"LastName": "Disorder"})
        assert feed.refusal()[:2] == ("INTERNAL", "subscription.fetch.replay.repeated")
    rest.close()


def test_client_beyond_the_allocation_is_refused_until_another_has_gone(
    user: Peer, coded: ServerProcess
) -> None:
    feeds = [user.latest(ACCOUNTS, 1) for _ in range(CLIENTS)]
    with user.feed() as late:
        late.ask(1, topic_name=ACCOUNTS)
        assert late.refusal()[:2] == ("RESOURCE_EXHAUSTED", "concurrent.client.limit.exceeded")
    for feed in feeds:
        feed.half_close()
    rest = Rest(coded.http, coded.login())
    rest.create("Account", {"Name": "Farewell"})
    rest.close()
    for feed in feeds:
        assert sum(len(response.events) for response in feed.call) == 1
    user.latest(ACCOUNTS, 1).call.cancel()


@pytest.mark.parametrize("edges", ["0", "2"])
def test_subscriber_beyond_the_delivery_allocation_is_ended(
    stubs: tuple[ModuleType, ModuleType], tmp_path_factory: pytest.TempPathFactory, edges: str
) -> None:
    # A server of its own: whoever uses up the allocation uses it up for all.
    with (
        make_server(tmp_path_factory, edges) as server,
        grpc.insecure_channel(server.grpc) as channel,
        pytest.raises(grpc.RpcError) as ended,
    ):
        _publish_and_read(Peer(stubs, channel, server, server.login()))
    error: Any = ended.value
    trailers = dict(error.trailing_metadata())
    assert trailers["error-code"].endswith("subscription.limit.exceeded")
    assert error.details().startswith("You have exceeded the event delivery limit for your org.")


def _publish_and_read(user: Peer) -> None:
    """Publish what the edition lets one org deliver in a day, and read until that ends."""
    schema_id = user.call("GetTopic", user.pb.TopicRequest(topic_name=EVENT)).schema_id
    payload = user.encode(schema_id, {"CreatedDate": 1, "CreatedById": "005000000000000"})
    events = [user.pb.ProducerEvent(schema_id=schema_id, payload=payload)] * 200
    with user.feed(("tidewire-max-requested", "10000")) as feed:
        feed.ask(10_000, topic_name=EVENT, replay_preset=user.pb.EARLIEST)
        for _ in range(55):
            user.call("Publish", user.pb.PublishRequest(topic_name=EVENT, events=events))
        while True:
            feed.next()
            feed.ask(200)
            user.publish(EVENT, 1)
