"""What streams do besides the plain path, with and without edges: tokens, older schemas, replay by time, many requests
at once, compression, and what gRPC tools ask.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from queue import SimpleQueue
from typing import Any, Self

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from requests import get as http_get

from tests.running import Refused, Rest
from tests.wire.pubsub.conftest import CALL_TIMEOUT_S, Peer, position
from tidewire.frontends.pubsub.listener import SERVICE_NAMES
from tidewire.schema.proto import health_pb2, reflection_pb2
from tidewire.testing import ServerProcess

pytestmark = pytest.mark.timeout(300)  # a server with edges may take long to start

ACCOUNTS = "/data/AccountChangeEvent"


def sent(peer: Peer, topic: str, *batches: list[int], **changes: Any) -> list[Any]:
    """Send one publish request for each batch without waiting, then read all responses."""
    schema_id = peer.call("GetTopic", peer.pb.TopicRequest(topic_name=topic)).schema_id
    requests = [
        peer.pb.PublishRequest(
            topic_name=topic if number == 0 else "",
            events=[
                peer.pb.ProducerEvent(
                    schema_id=schema_id,
                    payload=peer.encode(schema_id, {"CreatedDate": n, "CreatedById": "005000000000000"}),
                )
                for n in batch
            ],
            **(changes if number else {}),
        )
        for number, batch in enumerate(batches)
    ]
    call = peer.stub.PublishStream(iter(requests), metadata=peer.metadata, timeout=CALL_TIMEOUT_S)
    return list(call)


def test_publish_stream_answers_each_of_many_requests_in_order(admin: Peer, fresh_event: str) -> None:
    batches = [[10 * number, 10 * number + 1] for number in range(150)]
    with admin.latest(fresh_event, 1000, ("tidewire-max-requested", "1000")) as feed:
        responses = sent(admin, fresh_event, *batches)
        events = feed.events(300)
    results = [result for response in responses for result in response.results]
    assert [len(response.results) for response in responses] == [2] * 150
    assert [event.replay_id for event in events] == [result.replay_id for result in results]
    assert [admin.decode(event)["CreatedDate"] for event in events] == [n for batch in batches for n in batch]


def test_publish_stream_answers_what_came_before_a_bad_request(admin: Peer, fresh_event: str) -> None:
    requests: SimpleQueue[Any] = SimpleQueue()
    schema_id = admin.call("GetTopic", admin.pb.TopicRequest(topic_name=fresh_event)).schema_id
    payload = admin.encode(schema_id, {"CreatedDate": 1, "CreatedById": "005000000000000"})
    event = admin.pb.ProducerEvent(schema_id=schema_id, payload=payload)
    for topic in (fresh_event, "", "/event/Other__e"):
        requests.put(admin.pb.PublishRequest(topic_name=topic, events=[event]))
    call = admin.stub.PublishStream(iter(requests.get, None), metadata=admin.metadata, timeout=CALL_TIMEOUT_S)
    assert all(next(call).results[0].replay_id for _ in range(2))
    with pytest.raises(grpc.RpcError):
        next(call)
    assert call.code() is grpc.StatusCode.INVALID_ARGUMENT
    requests.put(None)


def test_token_that_refreshes_a_stream_outlives_the_first(
    admin: Peer, host: ServerProcess, fresh_event: str
) -> None:
    second, other = host.login(), host.login()
    rest = Rest(host.http, other)
    with admin.latest(fresh_event, 1) as feed:
        # Requests are taken in turn: the second event, which is asked for after the refresh, tells that it is done.
        feed.ask(0, auth_refresh=second).ask(10)
        admin.publish(fresh_event, 1, 2)
        feed.events(2)
        revoke(rest, admin.token)
        results = with_token(admin, second).publish(fresh_event, 3)
        assert [e.replay_id for e in feed.events(1)] == [results[0].replay_id]
        revoke(rest, second)
        assert feed.refusal()[:2] == ("UNAUTHENTICATED", "service.auth.error")
    rest.close()


def with_token(peer: Peer, token: str) -> Peer:
    other = object.__new__(Peer)
    other.__dict__ |= peer.__dict__ | {"token": token}
    other.metadata = [(key, token if key == "accesstoken" else value) for key, value in peer.metadata]
    return other


def revoke(rest: Rest, token: str) -> None:
    rest.call("POST", f"/services/oauth2/revoke?token={token}")


def test_token_that_is_revoked_ends_a_quiet_publish_stream(admin: Peer, host: ServerProcess) -> None:
    token = host.login()
    rest = Rest(host.http, host.login())
    requests: SimpleQueue[Any] = SimpleQueue()
    metadata = [(key, token if key == "accesstoken" else value) for key, value in admin.metadata]
    call = admin.stub.PublishStream(iter(requests.get, None), metadata=metadata, timeout=CALL_TIMEOUT_S)
    topic = "/event/Order_Event__e"
    schema = admin.call("GetTopic", admin.pb.TopicRequest(topic_name=topic)).schema_id
    payload = admin.encode(schema, {"CreatedDate": 1, "CreatedById": "005000000000000"})
    event = admin.pb.ProducerEvent(schema_id=schema, payload=payload)
    requests.put(admin.pb.PublishRequest(topic_name=topic, events=[event]))
    assert next(call).results[0].replay_id
    revoke(rest, token)
    with pytest.raises(grpc.RpcError):
        next(call)
    assert call.code() is grpc.StatusCode.UNAUTHENTICATED
    requests.put(None)
    rest.close()


def test_event_of_an_older_schema_is_resolved_to_the_newest(
    admin: Peer, setup: Rest, fresh_event: str
) -> None:
    name = fresh_event.removeprefix("/event/")
    old_id = admin.call("GetTopic", admin.pb.TopicRequest(topic_name=fresh_event)).schema_id
    payload = admin.encode(old_id, {"CreatedDate": 7, "CreatedById": "005000000000000", "Text__c": "kept"})
    fields = {"Added__c": {"type": "Number", "label": "Added", "precision": 18, "scale": 0}}
    setup.call("POST", "/services/tidewire/v1/apply", {"events": {name: {"fields": fields}}})
    new_id = admin.call("GetTopic", admin.pb.TopicRequest(topic_name=fresh_event)).schema_id
    assert new_id != old_id
    event = admin.pb.ProducerEvent(schema_id=old_id, payload=payload)
    with admin.latest(fresh_event) as feed:
        response = admin.call("Publish", admin.pb.PublishRequest(topic_name=fresh_event, events=[event]))
        (got,) = feed.events(1)
    assert response.schema_id == new_id
    assert got.event.schema_id == new_id
    value = admin.decode(got)
    assert (value["CreatedDate"], value["Text__c"], value["Added__c"]) == (7, "kept", None)


def test_event_of_standard_volume_is_refused_in_the_guides_words(
    admin: Peer, setup: Rest, fresh_event: str
) -> None:
    name = fresh_event.removeprefix("/event/").removesuffix("__e") + "_Standard__e"
    topic = f"/event/{name}"
    definition = {
        "events": {name: {"label": "Old", "fields": {"A__c": {"type": "Text"}}, "volume": "standard"}}
    }
    setup.call("POST", "/services/tidewire/v1/apply", definition)
    info = admin.call("GetTopic", admin.pb.TopicRequest(topic_name=topic))
    assert (info.can_publish, info.can_subscribe) == (False, False)
    results = admin.publish(topic, 1, 2)
    text = (
        f"com.salesforce.eventbus.exceptions.PublishException: Unsupported topic [{topic}]. "
        "Standard Volume event type is not supported."
    )
    assert [(r.error.code, r.error.msg, r.replay_id) for r in results] == [(admin.pb.PUBLISH, text, b"")] * 2
    with admin.feed() as feed:
        feed.ask(1, topic_name=topic)
        assert feed.refusal()[:2] == ("PERMISSION_DENIED", "subscription.topic.cannot.subscribe")
    # Nor by way of a channel.
    channel = name.removesuffix("_Standard__e") + "__chn"
    channels = {"channels": {channel: {"label": "Old", "kind": "event"}}}
    members = {"channel_members": {channel[:-5] + "_Old": {"channel": channel, "event": name}}}
    with pytest.raises(Refused, match="invalid event"):
        setup.call("POST", "/services/tidewire/v1/apply", channels | members)


def test_replay_from_a_time_starts_with_what_came_since(admin: Peer, fresh_event: str) -> None:
    admin.publish(fresh_event, 1)
    with admin.feed(("tidewire-replay-from-ms", "1")) as feed:
        assert [admin.decode(e)["CreatedDate"] for e in feed.ask(1, topic_name=fresh_event).events(1)] == [1]
    with admin.feed(("tidewire-replay-from-ms", "999999999999999"), ("tidewire-keepalive-ms", "50")) as feed:
        assert not feed.ask(9, topic_name=fresh_event).next().events
        admin.publish(fresh_event, 2)
        assert [admin.decode(e)["CreatedDate"] for e in feed.events(1)] == [2]


def test_replay_from_a_time_and_an_id_is_refused(admin: Peer, fresh_event: str) -> None:
    (result,) = admin.publish(fresh_event, 1)
    with admin.feed(("tidewire-replay-from-ms", "1")) as feed:
        feed.ask(1, topic_name=fresh_event, replay_preset=admin.pb.CUSTOM, replay_id=result.replay_id)
        assert feed.refusal()[:2] == ("INVALID_ARGUMENT", "subscription.fetch.replayid.validation.failed")


def test_replay_id_that_is_too_old_names_the_oldest_and_gives_way_to_the_nearest(
    admin: Peer, fresh_event: str
) -> None:
    (result,) = admin.publish(fresh_event, 1)
    ancient = (1).to_bytes(8, "big")
    with admin.feed() as feed:
        feed.ask(1, topic_name=fresh_event, replay_preset=admin.pb.CUSTOM, replay_id=ancient)
        status, code, trailers = feed.refusal()
    assert (status, code) == ("INVALID_ARGUMENT", "subscription.fetch.replayid.corrupted")
    oldest: Any = trailers["tidewire-earliest-replay-id-bin"]
    assert position(oldest) == int(trailers["tidewire-earliest-replay-id"])
    with admin.feed() as feed:
        feed.ask(1, topic_name=fresh_event, replay_preset=admin.pb.CUSTOM, replay_id=oldest)
        assert [e.replay_id for e in feed.events(1)] == [result.replay_id]
    with admin.feed(("tidewire-replay-policy", "nearest")) as feed:
        feed.ask(1, topic_name=fresh_event, replay_preset=admin.pb.CUSTOM, replay_id=ancient)
        assert [e.replay_id for e in feed.events(1)] == [result.replay_id]


class CountingProxy:
    """A TCP proxy for one connection that counts the bytes of either direction. Leave once the client has gone."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self.sent = self.received = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._server = socket.create_connection((host, int(port)))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        client, _ = self._listener.accept()
        with client, self._server:
            answering = threading.Thread(target=self._answer, args=(client,))
            answering.start()
            with contextlib.suppress(OSError):  # who leaves with something unread resets the connection
                while chunk := client.recv(65536):
                    self.sent += len(chunk)
                    self._server.sendall(chunk)
            with contextlib.suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)
            answering.join()

    def _answer(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the client may have gone
            while chunk := self._server.recv(65536):
                self.received += len(chunk)
                client.sendall(chunk)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._thread.join()
        self._listener.close()


def bytes_of_publishing(peer: Peer, host: ServerProcess, topic: str, is_packed: bool) -> tuple[int, int]:
    """What publishing an event of 200 kB and reading it again takes on the wire, each way."""
    pb = peer.pb
    schema_id = peer.call("GetTopic", pb.TopicRequest(topic_name=topic)).schema_id
    value = {"CreatedDate": 1, "CreatedById": "005000000000000", "Text__c": "tide " * 40_000}
    event = pb.ProducerEvent(schema_id=schema_id, payload=peer.encode(schema_id, value))
    metadata = [*peer.metadata, ("tidewire-compression", "gzip" if is_packed else "identity")]
    compression = grpc.Compression.Gzip if is_packed else grpc.Compression.NoCompression
    with CountingProxy(host.grpc) as proxy, grpc.insecure_channel(proxy.address) as channel:
        publish = channel.unary_unary(
            "/eventbus.v1.PubSub/Publish", pb.PublishRequest.SerializeToString, pb.PublishResponse.FromString
        )
        request = pb.PublishRequest(topic_name=topic, events=[event])
        answer = publish(request, metadata=metadata, timeout=CALL_TIMEOUT_S, compression=compression)
        fetch = channel.stream_stream(
            "/eventbus.v1.PubSub/Subscribe", pb.FetchRequest.SerializeToString, pb.FetchResponse.FromString
        )
        wanted = pb.FetchRequest(
            topic_name=topic, replay_preset=pb.CUSTOM, replay_id=before(answer), num_requested=1
        )
        responses = list(fetch(iter([wanted]), metadata=metadata, timeout=CALL_TIMEOUT_S))
    (got,) = [found for response in responses for found in response.events]
    assert got.event.payload == event.payload
    return proxy.sent, proxy.received


def before(answer: Any) -> bytes:
    """The replay id in front of the only event of a response."""
    return (position(answer.results[0].replay_id) - 1).to_bytes(8, "big")


def test_compression_is_taken_and_given_when_asked_for(
    admin: Peer, host: ServerProcess, fresh_event: str
) -> None:
    admin.publish(fresh_event, 1)  # so that there is something in front
    plain = bytes_of_publishing(admin, host, fresh_event, is_packed=False)
    packed = bytes_of_publishing(admin, host, fresh_event, is_packed=True)
    assert min(plain) > 200_000
    assert max(packed) < 20_000


@pytest.mark.parametrize("service", SERVICE_NAMES)
def test_older_names_of_the_service_answer_alike(admin: Peer, fresh_event: str, service: str) -> None:
    pb = admin.pb
    get = admin.channel.unary_unary(
        f"/{service}/GetTopic", pb.TopicRequest.SerializeToString, pb.TopicInfo.FromString
    )
    info = get(pb.TopicRequest(topic_name=fresh_event), metadata=admin.metadata, timeout=CALL_TIMEOUT_S)
    assert info.can_subscribe
    fetch = admin.channel.stream_stream(
        f"/{service}/Subscribe", lambda body: body, pb.FetchResponse.FromString
    )
    (result,) = admin.publish(fresh_event, 1)
    # The first stubs had a number in field 5, for how long to linger.
    body = pb.FetchRequest(topic_name=fresh_event, replay_preset=pb.EARLIEST, num_requested=1)
    responses = fetch(
        iter([body.SerializeToString() + b"\x28\x05"]), metadata=admin.metadata, timeout=CALL_TIMEOUT_S
    )
    assert [event.replay_id for response in responses for event in response.events] == [result.replay_id]


def test_health_is_told_of_the_server_and_its_services(admin: Peer) -> None:
    check = admin.channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        health_pb2.HealthCheckRequest.SerializeToString,
        health_pb2.HealthCheckResponse.FromString,
    )
    for name in ("", *SERVICE_NAMES):
        answer = check(health_pb2.HealthCheckRequest(service=name), timeout=CALL_TIMEOUT_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError, match="unknown service"):
        check(health_pb2.HealthCheckRequest(service="Nothing"), timeout=CALL_TIMEOUT_S)


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_lists_services_and_gives_their_files(admin: Peer, version: str) -> None:
    ask = admin.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="eventbus.v1.PubSub"),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="no.such.Thing"),
    ]
    listed, file, nothing = ask(iter(requests), timeout=CALL_TIMEOUT_S)
    names = {service.name for service in listed.list_services_response.service}
    assert {*SERVICE_NAMES, "grpc.health.v1.Health"} <= names
    (found,) = file.file_descriptor_response.file_descriptor_proto
    assert b"ManagedSubscribe" in found
    assert nothing.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    # A tool can make a description of every service from what it is given.
    symbols = [reflection_pb2.ServerReflectionRequest(file_containing_symbol=name) for name in names]
    pool = DescriptorPool()
    for answer in ask(iter(symbols), timeout=CALL_TIMEOUT_S):
        (found,) = answer.file_descriptor_response.file_descriptor_proto
        pool.Add(FileDescriptorProto.FromString(found))
    assert all(pool.FindServiceByName(name).methods for name in names)


def test_metrics_tell_the_lag_of_streams(admin: Peer, host: ServerProcess, fresh_event: str) -> None:
    headers = {"Authorization": f"Bearer {host.login()}"}
    with admin.latest(fresh_event):
        while True:
            answer = http_get(f"{host.http}/services/tidewire/v1/metrics", headers=headers, timeout=120)
            assert answer.status_code == 200
            lines = [line for line in answer.text.splitlines() if f'topic="{fresh_event}"' in line]
            if lines:
                break
    assert lines[0].startswith("tidewire_pubsub_stream_lag{")
