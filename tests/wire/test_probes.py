"""What watches over a server: health, readiness, metrics and traces, with and without edge processes."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
import requests

from tests.collectors import Collector, running_collector
from tests.edges import Client, edges_of, until
from tests.running import Rest, call_metadata
from tidewire.schema.codec import EventSchema
from tidewire.schema.proto import pubsub_pb2 as pb
from tidewire.testing import ServerProcess

_SAMPLE = re.compile(r"([a-z_]+)(\{[^}]*\})? (-?[0-9.]+(?:e-?\d+)?)")
_TRACEPARENT = "00-{}-00f067aa0ba902b7-01"


def get(server: ServerProcess, path: str, **headers: str) -> requests.Response:
    return requests.get(server.http + path, headers=headers, timeout=60)


def samples(server: ServerProcess) -> dict[str, float]:
    """Every sample by its name and labels; each line must have the form."""
    response = get(server, "/metrics")
    assert response.status_code == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    found = {}
    for line in response.text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP|TYPE) [a-z_]+ .+", line), line
            continue
        match = _SAMPLE.fullmatch(line)
        assert match is not None, line
        found[match[1] + (match[2] or "")] = float(match[3])
    return found


class Watched:
    """A server under way, with a collector that it sends its traces to."""

    def __init__(self, server: ServerProcess, collector: Collector, edges: int) -> None:
        self.server = server
        self.collector = collector
        self.edges = edges


@pytest.fixture(scope="module", params=[0, 1], ids=["one-process", "edge"])
def watched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    data = tmp_path_factory.mktemp("watched") / "data"
    with running_collector() as collector:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "harbour"}
        with ServerProcess(data, options=["--edges", str(request.param)], env=env) as server:
            yield Watched(server, collector, request.param)


def test_server_that_serves_is_healthy_and_ready(server: ServerProcess) -> None:
    for path in ("/healthz", "/readyz"):
        response = get(server, path)
        assert (response.status_code, response.json()["ok"]) == (200, True)
    assert requests.post(server.http + "/healthz", timeout=60).status_code == 405


def test_metrics_name_no_user_client_channel_or_token(
    server: ServerProcess, rest: Rest, dev_token: str
) -> None:
    client = Client(server, dev_token)
    client.open()
    rest.create("Account", {"Name": "Unspoken Metrics"})
    text = get(server, "/metrics").text
    for secret in ("Unspoken", "@tidewire", dev_token, client.client_id, "AccountChangeEvent"):
        assert secret not in text


def test_metrics_tell_rates_sessions_lag_log_allocations_queue_and_latencies(watched: Watched) -> None:
    server = watched.server
    token = server.login()
    client = Client(server, token)
    client.open()
    with closing(Rest(server.http, token)) as rest:
        rest.create("Account", {"Name": "Measured"})
    assert client.next_events()

    def is_told() -> bool:
        told = samples(server)
        return (
            # Clients of other tests may not have ended yet.
            told.get('tidewire_sessions{protocol="bayeux"}', 0) >= 1
            and told.get('tidewire_subscriptions{protocol="bayeux",family="change"}', 0) >= 1
            and told.get("tidewire_bayeux_events_delivered_total", 0) >= 1
        )

    until(is_told)
    told = samples(server)
    assert told["tidewire_ready"] == 1
    assert told["tidewire_edges"] == told["tidewire_edges_wanted"] == watched.edges
    assert told["tidewire_rest_requests_received_total"] >= 1
    assert 'tidewire_subscription_lag_max{protocol="bayeux",family="change"}' in told
    assert told['tidewire_log_events{family="change"}'] >= 1
    assert told['tidewire_log_payload_bytes{family="change"}'] > 0
    assert told['tidewire_log_retention_hours{family="change"}'] == 72
    assert told['tidewire_allocation_remaining{name="DailyApiRequests"}'] > 0
    assert told["tidewire_writer_queue"] >= 0
    assert told['tidewire_request_seconds_count{frontend="rest"}'] >= 1
    assert told["tidewire_writer_commit_seconds_count"] >= 1


def test_histogram_buckets_rise_to_the_count(server: ServerProcess) -> None:
    server.login()
    told = samples(server)
    buckets = [
        value
        for name, value in told.items()
        if name.startswith('tidewire_request_seconds_bucket{frontend="rest"')
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == told['tidewire_request_seconds_count{frontend="rest"}'] > 0


def test_change_is_traced_from_request_over_commit_to_delivery(watched: Watched) -> None:
    server, collector = watched.server, watched.collector
    token = server.login()
    client = Client(server, token)
    client.open()
    has_ended = threading.Event()

    def listen() -> None:
        while not has_ended.is_set():
            client.connect()

    listening = threading.Thread(target=listen)
    listening.start()
    trace_ids: list[str] = []
    delivered: list[dict[str, object]] = []

    def is_delivered() -> bool:
        # A change that comes between two polls waits for the next one, which no span is made of.
        trace_ids.append(f"{len(trace_ids) + 1:032x}")
        headers = {
            "Authorization": f"Bearer {token}",
            "traceparent": _TRACEPARENT.format(trace_ids[-1]),
        }
        url = f"{server.http}/services/data/v62.0/sobjects/Account"
        assert requests.post(url, json={"Name": "Traced"}, headers=headers, timeout=60).status_code == 201
        try:
            found = collector.wait_for(
                lambda span: span["name"] == "deliver bayeux" and span["traceId"] in trace_ids, 5.0
            )
        except AssertionError:
            return False
        delivered.append(found)
        return True

    try:
        until(is_delivered)
    finally:
        has_ended.set()
        with closing(Rest(server.http, token)) as rest:
            rest.create("Account", {"Name": "Last"})  # ends the poll that is held
        listening.join()
    (delivery,) = delivered
    commit = collector.wait_for(lambda span: span["spanId"] == delivery["parentSpanId"])
    request = collector.wait_for(lambda span: span["spanId"] == commit["parentSpanId"])
    assert (commit["name"], request["name"]) == ("commit", "rest request")
    assert request["parentSpanId"] == "00f067aa0ba902b7"
    assert {span["traceId"] for span in (commit, request)} == {delivery["traceId"]}
    assert int(commit["startTimeUnixNano"]) <= int(commit["endTimeUnixNano"])
    assert request["resource"] == {"service.name": "harbour", "tidewire.process": "core"}
    process = delivery["resource"]
    assert process == {"service.name": "harbour", "tidewire.process": "edge" if watched.edges else "core"}
    assert set(collector.paths) == {"/v1/traces"}


def test_publish_over_grpc_is_traced_to_its_commit(watched: Watched) -> None:
    server, collector = watched.server, watched.collector
    token = server.login()
    document = {"events": {"Traced_Event__e": {"label": "Traced", "plural": "Traced", "fields": {}}}}
    with closing(Rest(server.http, token)) as rest:
        rest.call("POST", "/services/tidewire/v1/apply", document)
    trace_id = f"{0xABC:032x}"
    metadata = [
        *call_metadata(token, server.http, server.org_id),
        ("traceparent", _TRACEPARENT.format(trace_id)),
    ]
    with grpc.insecure_channel(server.grpc) as channel:

        def call(rpc: str, request: Any, answer: Any, kind: str = "unary_unary") -> Any:
            make = getattr(channel, kind)(
                f"/eventbus.v1.PubSub/{rpc}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=answer.FromString,
            )
            return make(request, metadata=metadata, timeout=60)

        topic = call("GetTopic", pb.TopicRequest(topic_name="/event/Traced_Event__e"), pb.TopicInfo)
        schema = call("GetSchema", pb.SchemaRequest(schema_id=topic.schema_id), pb.SchemaInfo)
        values = {"CreatedDate": 1, "CreatedById": "005000000000001AAA"}
        event = pb.ProducerEvent(
            schema_id=topic.schema_id, payload=EventSchema(schema.schema_json).encode(values)
        )
        request = pb.PublishRequest(topic_name=topic.topic_name, events=[event, event])
        assert len(call("Publish", request, pb.PublishResponse).results) == 2
        (streamed,) = call("PublishStream", iter([request]), pb.PublishResponse, "stream_stream")
        assert len(streamed.results) == 2
    for rpc in ("Publish", "PublishStream"):
        method = {"key": "rpc.method", "value": {"stringValue": rpc}}
        publish = collector.wait_for(lambda span, method=method: method in span["attributes"])  # type: ignore[misc]
        assert (publish["name"], publish["traceId"]) == ("pubsub publish", trace_id)
        assert publish["parentSpanId"] == "00f067aa0ba902b7"
        assert {"key": "tidewire.events", "value": {"intValue": "2"}} in publish["attributes"]
        assert publish["resource"]["tidewire.process"] == ("edge" if watched.edges else "core")
        commit = collector.wait_for(
            lambda span, parent=publish["spanId"]: span["parentSpanId"] == parent  # type: ignore[misc]
        )
        assert (commit["name"], commit["traceId"]) == ("commit", trace_id)
        assert commit["resource"]["tidewire.process"] == "core"


def test_server_whose_edge_is_gone_is_not_ready_until_another_is_up(watched: Watched) -> None:
    if not watched.edges:
        assert get(watched.server, "/readyz").status_code == 200
        return
    lost = "tidewire_server_edges_lost_total"
    before = samples(watched.server).get(lost, 0)
    (edge,) = edges_of(watched.server)
    os.kill(edge, signal.SIGKILL)
    until(lambda: samples(watched.server).get(lost, 0) > before)
    until(lambda: bool(get(watched.server, "/readyz").json()["ok"]))


def test_metrics_with_a_token_are_for_its_bearer_only_and_logs_may_be_text(tmp_path: Path) -> None:
    options = ["--metrics-token", "sesame", "--log-format", "text", "--org-idle-s", "1"]
    with ServerProcess(tmp_path / "data", options=options, env={"TIDEWIRE_LOG_LEVEL": "DEBUG"}) as server:
        assert get(server, "/metrics").status_code == 401
        assert get(server, "/metrics", Authorization="Bearer other").status_code == 401
        assert get(server, "/metrics", Authorization="Bearer sesame").status_code == 200
    lines = server.stderr_path.read_text().splitlines()
    assert lines
    assert all(not line.startswith("{") for line in lines)


def test_log_format_of_another_name_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(Exception, match="log_format must be one of json, text"),
        ServerProcess(tmp_path / "data", options=["--log-format", "xml"]),
    ):
        pass
