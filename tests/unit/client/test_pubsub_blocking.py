"""The blocking client against a scripted foreign server: flow control, ends of streams, and errors.

The peer is a plain gRPC server that follows a script, so these tests see what the client itself sends and how
it takes answers that our own server does not give.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from tidewire.client.pubsub_blocking import BlockingPubSubClient
from tidewire.client.pubsub_messages import Received
from tidewire.errors import (
    AccessDenied,
    AuthHeaderInvalid,
    DemandInvalid,
    InternalError,
    LimitExceeded,
    PlatformError,
    ReplayIdExpired,
    ReplayIdInvalid,
    SchemaUnknown,
    ServerUnreachable,
    SessionInvalid,
    StoreClosed,
    TopicUnknown,
)
from tidewire.frontends.pubsub.wire_errors import render_failure
from tidewire.schema.proto import pubsub_pb2 as pb

PREFIX = "sfdc.platform.eventbus.grpc."
Script = Callable[[Iterator[pb.FetchRequest], Any], Iterator[pb.FetchResponse]]


def replay_id(position: int) -> bytes:
    return position.to_bytes(8, "big") + b"\0\0"


def response(count: int, pending: int, latest: int = 0) -> pb.FetchResponse:
    events = [
        pb.ConsumerEvent(
            event=pb.ProducerEvent(id=f"e{n}", schema_id="s", payload=b"p"), replay_id=replay_id(n)
        )
        for n in range(count)
    ]
    return pb.FetchResponse(events=events, latest_replay_id=replay_id(latest), pending_num_requested=pending)


@contextmanager
def peer(**methods: Any) -> Iterator[BlockingPubSubClient]:
    """A server that answers these methods, and a client of it."""
    kinds: dict[str, tuple[Any, Any, Any]] = {
        "GetTopic": (grpc.unary_unary_rpc_method_handler, pb.TopicRequest, pb.TopicInfo),
        "GetSchema": (grpc.unary_unary_rpc_method_handler, pb.SchemaRequest, pb.SchemaInfo),
        "Publish": (grpc.unary_unary_rpc_method_handler, pb.PublishRequest, pb.PublishResponse),
        "Subscribe": (grpc.stream_stream_rpc_method_handler, pb.FetchRequest, pb.FetchResponse),
    }
    handlers = {
        name: kinds[name][0](answer, kinds[name][1].FromString, kinds[name][2].SerializeToString)
        for name, answer in methods.items()
    }
    # Or the system may give the same port to a server of another test, and share its callers out.
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("eventbus.v1.PubSub", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with BlockingPubSubClient(
            f"127.0.0.1:{port}", token="tok", org_id="00D", instance_url="https://x", tls_ca=None
        ) as client:
            yield client
    finally:
        server.stop(None).wait()


def failing(status: grpc.StatusCode, *trailers: tuple[str, str]) -> Callable[[Any, Any], Any]:
    def answer(_: Any, context: Any) -> Any:
        context.set_trailing_metadata(trailers)
        context.abort(status, "what the server said")

    return answer


@pytest.mark.parametrize("maker, tls_ca", [("insecure_channel", None), ("secure_channel", b"")])
def test_connection_finds_out_a_peer_that_vanished(
    monkeypatch: pytest.MonkeyPatch, maker: str, tls_ca: bytes | None
) -> None:
    make, options = getattr(grpc, maker), {}

    def note_options(*args: Any) -> grpc.Channel:
        options.update(args[-1])
        return make(*args)

    monkeypatch.setattr(grpc, maker, note_options)
    BlockingPubSubClient(
        "127.0.0.1:1", token="tok", org_id="00D", instance_url="https://x", tls_ca=tls_ca
    ).close()
    assert options["grpc.keepalive_time_ms"] + options["grpc.keepalive_timeout_ms"] <= 90_000
    assert options["grpc.http2.max_pings_without_data"] == 0


def test_topic_schema_and_publish_carry_headers_and_values() -> None:
    seen: list[dict[str, str]] = []

    def get_topic(request: pb.TopicRequest, context: Any) -> pb.TopicInfo:
        seen.append(dict(context.invocation_metadata()))
        return pb.TopicInfo(topic_name=request.topic_name, can_publish=True, schema_id="s")

    def publish(request: pb.PublishRequest, _: Any) -> pb.PublishResponse:
        ok, bad = request.events
        return pb.PublishResponse(
            results=[
                pb.PublishResult(replay_id=replay_id(9), correlation_key=ok.id),
                pb.PublishResult(error=pb.Error(code=pb.PUBLISH, msg="no"), correlation_key=bad.id),
            ]
        )

    with peer(
        GetTopic=get_topic,
        GetSchema=lambda request, _: pb.SchemaInfo(schema_json="{}" + request.schema_id),
        Publish=publish,
    ) as client:
        topic = client.get_topic("/event/A__e")
        assert (topic.name, topic.can_publish, topic.can_subscribe) == ("/event/A__e", True, False)
        assert client.get_schema("s") == "{}s"
        results = client.publish("/event/A__e", [("s", b"1", "a"), ("s", b"2", "b")])
    assert [(r.event_id, r.replay_id, r.error) for r in results] == [("a", 9, ""), ("b", None, "no")]
    assert seen[0]["accesstoken"] == "tok"
    assert (seen[0]["tenantid"], seen[0]["instanceurl"]) == ("00D", "https://x")


@pytest.mark.parametrize(
    "replay, preset, sent_id",
    [("latest", pb.LATEST, b""), ("earliest", pb.EARLIEST, b""), (258, pb.CUSTOM, b"\0" * 6 + b"\1\2\0\0")],
)
def test_subscribe_names_its_starting_point(replay: Any, preset: int, sent_id: bytes) -> None:
    first: list[pb.FetchRequest] = []

    def subscribe(requests: Iterator[pb.FetchRequest], _: Any) -> Iterator[pb.FetchResponse]:
        first.append(next(requests))
        yield response(0, 100, latest=5)

    with peer(Subscribe=subscribe) as client, client.subscribe("/event/A__e", replay) as stream:
        assert next(stream).latest_replay_id == 5
    assert (first[0].topic_name, first[0].replay_preset, first[0].replay_id) == (
        "/event/A__e",
        preset,
        sent_id,
    )


def test_subscribe_yields_events_and_keepalives() -> None:
    def subscribe(requests: Iterator[pb.FetchRequest], _: Any) -> Iterator[pb.FetchResponse]:
        next(requests)
        answer = response(1, 99, latest=4)
        answer.events[0].event.headers.add(key="k", value=b"v")
        yield answer
        yield response(0, 99, latest=6)

    with peer(Subscribe=subscribe) as client:
        fetched = list(client.subscribe("/event/A__e", "latest"))
    assert fetched[0].events == [Received(0, "e0", "s", b"p", {"k": b"v"})]
    assert [(len(f.events), f.latest_replay_id, f.pending) for f in fetched] == [(1, 4, 99), (0, 6, 99)]


def test_subscribe_tops_demand_up_without_exceeding_it() -> None:
    asked: list[int] = []

    def subscribe(requests: Iterator[pb.FetchRequest], _: Any) -> Iterator[pb.FetchResponse]:
        owed = 0
        for _round in range(6):
            asked.append(next(requests).num_requested)
            owed += asked[-1]
            assert owed <= 10
            # A sign of life that crosses the client's next request must not make it ask twice.
            yield response(3, owed - 3)
            yield response(0, owed - 3)
            yield response(owed - 5, 2)
            owed = 2

    with peer(Subscribe=subscribe) as client:
        delivered = sum(len(f.events) for f in client.subscribe("/event/A__e", "latest", max_requested=10))
    assert asked == [10, 8, 8, 8, 8, 8]
    assert delivered == 8 * 6


def test_subscribe_keeps_to_the_demand_that_a_server_grants() -> None:
    asked: list[tuple[int, str]] = []

    def subscribe(requests: Iterator[pb.FetchRequest], context: Any) -> Iterator[pb.FetchResponse]:
        lifted = dict(context.invocation_metadata())["tidewire-max-requested"]
        asked.append((next(requests).num_requested, lifted))
        yield response(40, 60)
        yield response(60, 0)
        asked.append((next(requests).num_requested, lifted))
        yield response(0, 100)

    with peer(Subscribe=subscribe) as client:
        assert len(list(client.subscribe("/event/A__e", "latest", max_requested=5_000))) == 3
    assert asked == [(5_000, "5000"), (100, "5000")]


def test_subscribe_for_nothing_is_refused_at_once() -> None:
    with peer() as client, pytest.raises(DemandInvalid):
        client.subscribe("/event/A__e", "latest", max_requested=0)


@pytest.mark.parametrize("closes_client", [True, False])
def test_close_from_another_thread_ends_a_waiting_stream(closes_client: bool) -> None:
    is_waiting = threading.Event()

    def subscribe(requests: Iterator[pb.FetchRequest], _: Any) -> Iterator[pb.FetchResponse]:
        next(requests)
        yield response(0, 100)
        is_waiting.set()
        for _request in requests:
            pass

    with peer(Subscribe=subscribe) as client:
        stream = client.subscribe("/event/A__e", "latest")
        next(stream)

        def close() -> None:
            is_waiting.wait(120)
            (client if closes_client else stream).close()

        closer = threading.Thread(target=close)
        closer.start()
        assert list(stream) == []
        closer.join()


@pytest.mark.parametrize(
    "status, code, expected",
    [
        ("INVALID_ARGUMENT", "subscription.fetch.replayid.corrupted", ReplayIdInvalid),
        ("INVALID_ARGUMENT", "subscription.fetch.replayid.validation.failed", ReplayIdInvalid),
        ("UNAUTHENTICATED", "service.auth.error", SessionInvalid),
        ("UNAUTHENTICATED", "service.auth.headers.invalid", AuthHeaderInvalid),
        ("NOT_FOUND", "", TopicUnknown),
        ("NOT_FOUND", "schema.meta.permission", SchemaUnknown),
        ("PERMISSION_DENIED", "topic.meta.permission", AccessDenied),
        ("INTERNAL", "service.unavailable", ServerUnreachable),
        ("UNAVAILABLE", "", ServerUnreachable),
        ("RESOURCE_EXHAUSTED", "", LimitExceeded),
        ("DATA_LOSS", "", InternalError),
    ],
)
def test_failure_of_a_foreign_server_is_named(status: str, code: str, expected: type[PlatformError]) -> None:
    trailers = [("error-code", PREFIX + code), ("rpc-id", "r")] if code else []
    with (
        peer(GetTopic=failing(grpc.StatusCode[status], *trailers)) as client,
        pytest.raises(PlatformError, match="what the server said") as caught,
    ):
        client.get_topic("/event/A__e")
    assert type(caught.value) is expected
    assert caught.value.details["status"] == status


@pytest.mark.parametrize(
    "error",
    [
        ReplayIdExpired("old", earliest=3),
        ReplayIdInvalid("never"),
        SessionInvalid("gone"),
        StoreClosed("bye"),
    ],
    ids=lambda error: error.code,
)
def test_failure_of_our_server_maps_to_the_same_error(error: PlatformError) -> None:
    failure = render_failure(error, rpc="Subscribe", rpc_id="r", tenant="t", topic="/event/A__e")

    def subscribe(requests: Iterator[pb.FetchRequest], context: Any) -> Iterator[pb.FetchResponse]:
        next(requests)
        yield response(0, 100)
        context.set_trailing_metadata(failure.trailers)
        context.abort(grpc.StatusCode[failure.status], failure.text)

    with peer(Subscribe=subscribe) as client, client.subscribe("/event/A__e", "latest") as stream:
        next(stream)
        with pytest.raises(type(error)) as caught:
            next(stream)
    assert caught.value.retryable is error.retryable


def test_unreachable_server_is_retryable() -> None:
    # Nothing listens on port 1 of the loopback address.
    with (
        BlockingPubSubClient("127.0.0.1:1", token="t", org_id="o", instance_url="u", tls_ca=None) as client,
        pytest.raises(ServerUnreachable) as caught,
    ):
        client.get_topic("/event/A__e")
    assert caught.value.retryable
