"""Topics, schemas, publishing and refusals, live."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import grpc
import pytest

from tests.wire.pubsub.conftest import Peer, position
from tidewire.client.pubsub_blocking import BlockingPubSubClient
from tidewire.errors import ReplayIdInvalid, SessionInvalid, TopicUnknown
from tidewire.testing import ServerProcess

ACCOUNTS = "/data/AccountChangeEvent"


def payload(peer: Peer, schema_id: str, number: int) -> bytes:
    return peer.encode(schema_id, {"CreatedDate": number, "CreatedById": "005000000000000"})


def producer_events(peer: Peer, schema_id: str, count: int) -> list[Any]:
    return [
        peer.pb.ProducerEvent(id=f"event-{n}", schema_id=schema_id, payload=payload(peer, schema_id, n))
        for n in range(count)
    ]


def test_topic_of_change_events_can_only_be_read(peer: Peer, server: ServerProcess) -> None:
    info = peer.call("GetTopic", peer.pb.TopicRequest(topic_name=ACCOUNTS))
    assert (info.topic_name, info.can_publish, info.can_subscribe) == (ACCOUNTS, False, True)
    assert info.tenant_guid == f"CORE/prod/{server.org_id}"
    assert len(info.schema_id) == 22
    assert info.rpc_id


def test_topic_of_many_schemas_names_none(peer: Peer) -> None:
    assert peer.call("GetTopic", peer.pb.TopicRequest(topic_name="/data/ChangeEvents")).schema_id == ""


def test_schema_of_a_topic_is_avro_and_answers_to_its_id(peer: Peer) -> None:
    schema_id = peer.call("GetTopic", peer.pb.TopicRequest(topic_name=ACCOUNTS)).schema_id
    info = peer.call("GetSchema", peer.pb.SchemaRequest(schema_id=schema_id))
    assert info.schema_id == schema_id
    schema = json.loads(info.schema_json)
    assert (schema["name"], schema["namespace"]) == ("AccountChangeEvent", "com.sforce.eventbus")
    fastavro.parse_schema(schema)


@pytest.mark.parametrize(
    "rpc, message, fields, status, code",
    [
        ("GetTopic", "TopicRequest", {}, "INVALID_ARGUMENT", "topic.validation.empty"),
        ("GetTopic", "TopicRequest", {"topic_name": "/event/X__e"}, "NOT_FOUND", "topic.meta.permission"),
        ("GetSchema", "SchemaRequest", {}, "INVALID_ARGUMENT", "schema.validation.failed"),
        ("GetSchema", "SchemaRequest", {"schema_id": "nope"}, "NOT_FOUND", "schema.meta.permission"),
        ("Publish", "PublishRequest", {}, "INVALID_ARGUMENT", "publish.topic.validation.empty"),
    ],
)
def test_request_that_is_wrong_is_refused(
    peer: Peer, rpc: str, message: str, fields: dict[str, str], status: str, code: str
) -> None:
    got_status, got_code, trailers = peer.refused(rpc, getattr(peer.pb, message)(**fields))
    assert (got_status, got_code) == (status, code)
    assert trailers["type"] == rpc
    assert trailers["text"].endswith(f"rpcId: {trailers['rpc-id']}")


def test_unknown_topic_is_answered_in_the_documented_words(peer: Peer, server: ServerProcess) -> None:
    _, _, trailers = peer.refused("GetTopic", peer.pb.TopicRequest(topic_name="/event/X__e"))
    assert trailers["text"].startswith(
        f"The topic information for org CORE/prod/{server.org_id} and topic /event/X__e not found."
    )


@pytest.mark.parametrize(
    "changes, code",
    [
        ({"accesstoken": "00D!wrong"}, "service.auth.error"),
        ({"tenantid": "00D000000000001"}, "service.auth.error"),
        ({"accesstoken": ""}, "service.auth.headers.invalid"),
        ({"instanceurl": ""}, "service.auth.headers.invalid"),
        ({"tenantid": "not an org"}, "service.auth.headers.invalid"),
    ],
)
def test_caller_without_valid_headers_is_unauthenticated(
    peer: Peer, changes: dict[str, str], code: str
) -> None:
    metadata = list({**dict(peer.metadata), **changes}.items())
    request = peer.pb.TopicRequest(topic_name=ACCOUNTS)
    assert peer.refused("GetTopic", request, metadata)[:2] == ("UNAUTHENTICATED", code)


@pytest.mark.parametrize("form", ["core/my/{}", "CORE/prod/{}"])
def test_caller_with_headers_of_the_first_generation_is_served(
    peer: Peer, server: ServerProcess, form: str
) -> None:
    metadata = [
        ("x-sfdc-api-session-token", peer.token),
        ("x-sfdc-instance-url", server.https),
        ("x-sfdc-tenant-id", form.format(server.org_id)),
    ]
    assert peer.call("GetTopic", peer.pb.TopicRequest(topic_name=ACCOUNTS), metadata).can_subscribe


def test_caller_with_a_short_org_id_is_served(peer: Peer, server: ServerProcess) -> None:
    metadata = list({**dict(peer.metadata), "tenantid": server.org_id[:15]}.items())
    assert peer.call("GetTopic", peer.pb.TopicRequest(topic_name=ACCOUNTS), metadata).can_subscribe


def test_trace_id_of_the_caller_comes_back(peer: Peer) -> None:
    metadata = [*peer.metadata, ("x-client-trace-id", "trace-7")]
    _, _, trailers = peer.refused("GetTopic", peer.pb.TopicRequest(topic_name="/event/X__e"), metadata)
    assert trailers["x-client-trace-id"] == "trace-7"


def test_published_events_reach_subscribers_in_order(peer: Peer, platform_event: str) -> None:
    topic = f"/event/{platform_event}"
    info = peer.call("GetTopic", peer.pb.TopicRequest(topic_name=topic))
    assert info.can_publish
    events = producer_events(peer, info.schema_id, 5)
    with peer.latest(topic) as feed:
        response = peer.call("Publish", peer.pb.PublishRequest(topic_name=topic, events=events))
        got = feed.events(5)
    assert [result.correlation_key for result in response.results] == [event.id for event in events]
    assert [event.replay_id for event in got] == [result.replay_id for result in response.results]
    assert [event.event.id for event in got] == [event.id for event in events]
    assert [peer.decode(event)["CreatedDate"] for event in got] == [0, 1, 2, 3, 4]


def test_published_events_that_are_refused_do_not_take_others_along(peer: Peer, platform_event: str) -> None:
    topic = f"/event/{platform_event}"
    schema_id = peer.call("GetTopic", peer.pb.TopicRequest(topic_name=topic)).schema_id
    first, last = producer_events(peer, schema_id, 2)
    broken = peer.pb.ProducerEvent(id="broken", schema_id=schema_id, payload=b"\xff")
    oversized = peer.pb.ProducerEvent(id="large", schema_id=schema_id, payload=b"x" * ((1 << 20) + 1))
    request = peer.pb.PublishRequest(topic_name=topic, events=[first, broken, oversized, last])
    results = peer.call("Publish", request).results
    assert [result.correlation_key for result in results] == [first.id, "broken", "large", last.id]
    assert [bool(result.replay_id) for result in results] == [True, False, False, True]
    assert [result.error.code for result in results[1:3]] == [peer.pb.PUBLISH, peer.pb.PUBLISH]
    assert all(result.error.msg for result in results[1:3])
    assert position(results[0].replay_id) < position(results[3].replay_id)


def test_publish_request_over_the_limit_is_refused_as_a_whole(peer: Peer, platform_event: str) -> None:
    event = peer.pb.ProducerEvent(schema_id="s", payload=b"x" * (1 << 20))
    request = peer.pb.PublishRequest(topic_name=f"/event/{platform_event}", events=[event] * 5)
    status, _, trailers = peer.refused("Publish", request)
    assert (status, trailers["tidewire-code"]) == ("RESOURCE_EXHAUSTED", "body_too_large")


def test_publish_without_events_is_refused(peer: Peer, platform_event: str) -> None:
    request = peer.pb.PublishRequest(topic_name=f"/event/{platform_event}")
    assert peer.refused("Publish", request)[:2] == ("INVALID_ARGUMENT", "publish.event.count.invalid")


def test_publish_to_change_events_is_refused(peer: Peer) -> None:
    request = peer.pb.PublishRequest(topic_name=ACCOUNTS, events=[peer.pb.ProducerEvent(payload=b"x")])
    assert peer.refused("Publish", request)[0] in {"PERMISSION_DENIED", "NOT_FOUND"}


def test_publish_stream_answers_each_request_and_keeps_its_topic(peer: Peer, platform_event: str) -> None:
    topic = f"/event/{platform_event}"
    schema_id = peer.call("GetTopic", peer.pb.TopicRequest(topic_name=topic)).schema_id
    one, two, three = producer_events(peer, schema_id, 3)
    requests = [
        peer.pb.PublishRequest(topic_name=topic, events=[one, two]),
        peer.pb.PublishRequest(events=[three]),
        peer.pb.PublishRequest(topic_name="/event/Other__e", events=[three]),
    ]
    call = peer.stub.PublishStream(iter(requests), metadata=peer.metadata, timeout=120)
    assert [len(next(call).results), len(next(call).results)] == [2, 1]
    with pytest.raises(grpc.RpcError):
        next(call)
    assert call.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert dict(call.trailing_metadata())["error-code"].endswith("publish.topic.mismatch")


def test_own_client_over_tls_reads_and_names_errors(server: ServerProcess, dev_token: str) -> None:
    with BlockingPubSubClient(
        server.grpc_tls,
        token=dev_token,
        org_id=server.org_id,
        instance_url=server.https,
        tls_ca=server.ca_path.read_bytes(),
    ) as client:
        assert client.get_topic(ACCOUNTS).can_subscribe
        with client.subscribe(ACCOUNTS, "latest", keepalive_ms=50) as stream:
            fetched = next(stream)
        assert (fetched.events, fetched.pending) == ([], 100)
        with client.subscribe(ACCOUNTS, fetched.latest_replay_id, keepalive_ms=50) as stream:
            assert next(stream).latest_replay_id >= fetched.latest_replay_id
        with pytest.raises(TopicUnknown):
            client.get_topic("/event/X__e")
        with pytest.raises(ReplayIdInvalid):
            next(client.subscribe(ACCOUNTS, 2**53 - 1))


def test_own_client_with_a_bad_token_is_told_so(server: ServerProcess) -> None:
    with (
        BlockingPubSubClient(
            server.grpc, token="nonsense", org_id=server.org_id, instance_url=server.http, tls_ca=None
        ) as client,
        pytest.raises(SessionInvalid),
    ):
        client.get_topic(ACCOUNTS)
