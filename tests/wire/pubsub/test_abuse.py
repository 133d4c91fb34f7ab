"""Clients that do not play by the rules: they get a clear answer or a bounded place, and others notice nothing."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.wire.pubsub.conftest import CALL_TIMEOUT_S, Peer
from tidewire.testing import ServerProcess

pytestmark = pytest.mark.timeout(300)  # a server with edges may take long to start

LARGE = 200_000
MIB = 1 << 20


def large_event(peer: Peer, topic: str) -> Any:
    schema_id = peer.call("GetTopic", peer.pb.TopicRequest(topic_name=topic)).schema_id
    value = {"CreatedDate": 1, "CreatedById": "005000000000000", "Text__c": "x" * LARGE}
    return peer.pb.ProducerEvent(schema_id=schema_id, payload=peer.encode(schema_id, value))


def test_subscriber_that_never_reads_does_not_hold_up_others(admin: Peer, fresh_event: str) -> None:
    lifted = ("tidewire-max-requested", "1000")
    event = large_event(admin, fresh_event)
    with admin.feed(lifted) as idle, admin.latest(fresh_event, 1000, lifted) as busy:
        idle.ask(1000, topic_name=fresh_event, replay_preset=admin.pb.EARLIEST)
        request = admin.pb.PublishRequest(topic_name=fresh_event, events=[event] * 15)
        for _ in range(10):
            admin.call("Publish", request)
        assert len(busy.events(150)) == 150
        # What the idle one was spared is still there for it.
        assert len(idle.events(150)) == 150


def test_subscriber_that_floods_requests_is_owed_no_more_than_the_cap(admin: Peer, fresh_event: str) -> None:
    with admin.latest(fresh_event) as flooding, admin.latest(fresh_event) as calm:
        for _ in range(5_000):
            flooding.ask(2_000_000_000)
        (result,) = admin.publish(fresh_event, 1)
        assert [e.replay_id for e in calm.events(1)] == [result.replay_id]
        response = flooding.next()
        while not response.events:
            response = flooding.next()
        assert response.pending_num_requested <= 100


def test_publisher_that_does_not_read_its_responses_gets_all_of_them_in_the_end(
    admin: Peer, fresh_event: str
) -> None:
    schema_id = admin.call("GetTopic", admin.pb.TopicRequest(topic_name=fresh_event)).schema_id
    payload = admin.encode(schema_id, {"CreatedDate": 1, "CreatedById": "005000000000000"})
    request = admin.pb.PublishRequest(
        topic_name=fresh_event, events=[admin.pb.ProducerEvent(schema_id=schema_id, payload=payload)]
    )
    call = admin.stub.PublishStream(iter([request] * 500), metadata=admin.metadata, timeout=CALL_TIMEOUT_S)
    assert admin.publish(fresh_event, 2)[0].replay_id
    responses = list(call)
    replay_ids = [response.results[0].replay_id for response in responses]
    assert len(replay_ids) == 500
    assert replay_ids == sorted(set(replay_ids))


def test_event_with_a_schema_of_nobody_fails_alone(admin: Peer, fresh_event: str) -> None:
    good_id = admin.call("GetTopic", admin.pb.TopicRequest(topic_name=fresh_event)).schema_id
    foreign = admin.call("GetTopic", admin.pb.TopicRequest(topic_name="/data/AccountChangeEvent")).schema_id
    payload = admin.encode(good_id, {"CreatedDate": 1, "CreatedById": "005000000000000"})
    events = [
        admin.pb.ProducerEvent(schema_id=schema_id, payload=payload)
        for schema_id in ("no-such-schema", foreign, "", good_id)
    ]
    response = admin.call("Publish", admin.pb.PublishRequest(topic_name=fresh_event, events=events))
    assert [bool(result.replay_id) for result in response.results] == [False, False, False, True]
    assert [r.error.code for r in response.results[:3]] == [admin.pb.PUBLISH] * 3


@pytest.mark.parametrize("rpc", ["GetTopic", "GetSchema", "Publish"])
def test_bytes_that_are_no_message_are_refused(admin: Peer, rpc: str) -> None:
    call = admin.channel.unary_unary(f"/eventbus.v1.PubSub/{rpc}")
    with pytest.raises(grpc.RpcError) as caught:
        call(b"\xff\xff\xff\xff", metadata=admin.metadata, timeout=CALL_TIMEOUT_S)
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "error-code" in dict(error.trailing_metadata())


@pytest.mark.parametrize("rpc", ["Subscribe", "PublishStream", "ManagedSubscribe"])
def test_stream_of_bytes_that_are_no_message_is_refused(admin: Peer, rpc: str) -> None:
    call = admin.channel.stream_stream(f"/eventbus.v1.PubSub/{rpc}")
    with pytest.raises(grpc.RpcError) as caught:
        list(call(iter([b"\xff\xff\xff\xff"]), metadata=admin.metadata, timeout=CALL_TIMEOUT_S))
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "error-code" in dict(error.trailing_metadata())


@pytest.mark.parametrize("topic", ["/topic/Invoices", "/u/Notices", "/systemTopic/Logging", "nonsense"])
def test_topic_of_another_protocol_is_not_found(admin: Peer, topic: str) -> None:
    assert admin.refused("GetTopic", admin.pb.TopicRequest(topic_name=topic))[0] == "NOT_FOUND"
    with admin.feed() as feed:
        feed.ask(1, topic_name=topic)
        assert feed.refusal()[0] == "NOT_FOUND"


def test_topic_of_great_length_is_refused_like_any_other(admin: Peer) -> None:
    topic = "/event/" + "ü" * 100_000
    assert admin.refused("GetTopic", admin.pb.TopicRequest(topic_name=topic))[:2] == (
        "NOT_FOUND",
        "topic.meta.permission",
    )


@pytest.mark.parametrize("rpc", ["Publish", "PublishStream"])
def test_request_far_over_the_limit_is_told_so(admin: Peer, rpc: str) -> None:
    call = admin.channel.stream_stream(f"/eventbus.v1.PubSub/{rpc}")
    with pytest.raises(grpc.RpcError) as caught:
        list(call(iter([b"x" * (12 * MIB)]), metadata=admin.metadata, timeout=CALL_TIMEOUT_S))
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert dict(error.trailing_metadata())["error-code"].endswith("service.protection.triggered")


def test_event_with_an_id_of_great_length_fails_alone(admin: Peer, fresh_event: str) -> None:
    schema_id = admin.call("GetTopic", admin.pb.TopicRequest(topic_name=fresh_event)).schema_id
    payload = admin.encode(schema_id, {"CreatedDate": 1, "CreatedById": "005000000000000"})
    events = [
        admin.pb.ProducerEvent(id=key, schema_id=schema_id, payload=payload) for key in ("x" * MIB, "good")
    ]
    response = admin.call("Publish", admin.pb.PublishRequest(topic_name=fresh_event, events=events))
    assert [bool(result.replay_id) for result in response.results] == [False, True]


class Watch:
    """Looks at the memory that a process has, again and again, for as long as the context lasts."""

    def __init__(self, pid: int) -> None:
        self._statm = Path(f"/proc/{pid}/statm")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.peak_bytes = self._read()

    def _read(self) -> int:
        return int(self._statm.read_text().split()[1]) * 4096

    def _run(self) -> None:
        while not self._ended.wait(0.01):
            self.peak_bytes = max(self.peak_bytes, self._read())

    def __enter__(self) -> int:
        self._thread.start()
        return self.peak_bytes

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        self._thread.join()


@pytest.mark.parametrize("is_known", [False, True], ids=["strangers", "one user"])
def test_flood_of_large_requests_takes_little_memory(
    peer: Peer, server: ServerProcess, is_known: bool
) -> None:
    publish: Any = peer.channel.unary_unary("/eventbus.v1.PubSub/Publish")
    with (watch := Watch(server.pid)) as before:
        calls = [
            publish.future(
                b"x" * (8 * MIB), metadata=peer.metadata if is_known else [], timeout=CALL_TIMEOUT_S
            )
            for _ in range(80)
        ]
        statuses = {call.exception().code() for call in calls}
    wanted = grpc.StatusCode.RESOURCE_EXHAUSTED if is_known else grpc.StatusCode.UNAUTHENTICATED
    assert statuses == {wanted}
    assert watch.peak_bytes - before < (400 if is_known else 60) * MIB
