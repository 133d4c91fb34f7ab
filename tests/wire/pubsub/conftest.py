"""A foreign Pub/Sub client for the live tests: stubs made from the proto file as any user would make them."""

from __future__ import annotations

import importlib
import io
import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType
from typing import Any, Self

import fastavro
import grpc
import pytest
from grpc_tools import protoc

from tests.lasting_loop import LASTING
from tests.running import Rest
from tidewire.testing import READER_USERNAME, ServerProcess

PROTO = Path(__file__).parents[3] / "proto"
CALL_TIMEOUT_S = 120.0
_numbers = itertools.count()


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """asyncio, on loops that outlive a gRPC call's late events."""
    return LASTING


class Feed:
    """One Subscribe call. Leaving the context cancels it."""

    def __init__(self, pb: Any, method: Any, metadata: list[tuple[str, str]]) -> None:
        self._pb = pb
        self._requests: SimpleQueue[Any] = SimpleQueue()
        self.call = method(iter(self._requests.get, None), metadata=metadata, timeout=CALL_TIMEOUT_S)

    def ask(self, count: int, **fields: Any) -> Feed:
        """Send a FetchRequest."""
        self._requests.put(self._pb.FetchRequest(num_requested=count, **fields))
        return self

    def half_close(self) -> None:
        """Say that no request will follow."""
        self._requests.put(None)

    def next(self) -> Any:
        """The next FetchResponse."""
        return next(self.call)

    def events(self, count: int) -> list[Any]:
        """The next `count` events, over as many responses as it takes."""
        found: list[Any] = []
        while len(found) < count:
            found += self.next().events
        return found

    def refusal(self) -> tuple[str, str, dict[str, str]]:
        """Read to the end, which must be a failure: its status, its code without prefix, all trailers."""
        try:
            for _ in self.call:
                pass
        except grpc.RpcError:
            trailers = dict(self.call.trailing_metadata())
            code = trailers["error-code"].removeprefix("sfdc.platform.eventbus.grpc.")
            return self.call.code().name, code, trailers
        raise AssertionError("the call ended with OK")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._requests.put(None)
        self.call.cancel()


class ManagedFeed(Feed):
    """One ManagedSubscribe call."""

    def ask(self, count: int, **fields: Any) -> ManagedFeed:
        """Send a ManagedFetchRequest."""
        self._requests.put(self._pb.ManagedFetchRequest(num_requested=count, **fields))
        return self

    def commit(self, replay_id: bytes, request_id: str = "c1", count: int = 0) -> Any:
        """Commit a replay id; returns the answer to it, over as many responses as it takes."""
        wanted = self._pb.CommitReplayRequest(commit_request_id=request_id, replay_id=replay_id)
        self.ask(count, commit_replay_id_request=wanted)
        while True:
            response = self.next()
            assert len(response.latest_replay_id) == 10
            if response.HasField("commit_response"):
                return response.commit_response


class Peer:
    """A user's connection: raw stubs, headers, and Avro by the schemas that the server names."""

    def __init__(
        self, stubs: tuple[ModuleType, ModuleType], channel: grpc.Channel, server: ServerProcess, token: str
    ):
        self.pb: Any = stubs[0]
        self.stub = stubs[1].PubSubStub(channel)
        self.channel = channel
        self.metadata = [("accesstoken", token), ("instanceurl", server.https), ("tenantid", server.org_id)]
        self.token = token
        self._schemas: dict[str, Any] = {}

    def call(self, rpc: str, request: Any, metadata: list[tuple[str, str]] | None = None) -> Any:
        """One unary call."""
        return getattr(self.stub, rpc)(
            request, metadata=self.metadata if metadata is None else metadata, timeout=CALL_TIMEOUT_S
        )

    def refused(
        self, rpc: str, request: Any, metadata: list[tuple[str, str]] | None = None
    ) -> tuple[str, str, dict[str, str]]:
        """One unary call that must fail: its status, its code without prefix, all trailers."""
        with pytest.raises(grpc.RpcError) as caught:
            self.call(rpc, request, metadata)
        error: Any = caught.value
        trailers = dict(error.trailing_metadata())
        code = trailers["error-code"].removeprefix("sfdc.platform.eventbus.grpc.")
        return error.code().name, code, {**trailers, "text": error.details()}

    def feed(self, *extra: tuple[str, str]) -> Feed:
        """A Subscribe call that has sent nothing yet."""
        return Feed(self.pb, self.stub.Subscribe, [*self.metadata, *extra])

    def managed(self, *extra: tuple[str, str]) -> ManagedFeed:
        """A ManagedSubscribe call that has sent nothing yet."""
        return ManagedFeed(self.pb, self.stub.ManagedSubscribe, [*self.metadata, *extra])

    def publish(self, topic: str, *numbers: int) -> list[Any]:
        """Publish events that differ in CreatedDate; returns the results."""
        schema_id = self.call("GetTopic", self.pb.TopicRequest(topic_name=topic)).schema_id
        events = [
            self.pb.ProducerEvent(
                schema_id=schema_id,
                payload=self.encode(schema_id, {"CreatedDate": number, "CreatedById": "005000000000000"}),
            )
            for number in numbers
        ]
        response = self.call("Publish", self.pb.PublishRequest(topic_name=topic, events=events))
        return list(response.results)

    def latest(self, topic: str, count: int = 100, *extra: tuple[str, str]) -> Feed:
        """A subscription at the tip, known to be open: its first sign of life has been read."""
        feed = self.feed(("tidewire-keepalive-ms", "50"), *extra).ask(count, topic_name=topic)
        assert not feed.next().events
        return feed

    def decode(self, event: Any) -> Any:
        """A ConsumerEvent's payload."""
        schema_id = event.event.schema_id
        if schema_id not in self._schemas:
            info = self.call("GetSchema", self.pb.SchemaRequest(schema_id=schema_id))
            self._schemas[schema_id] = fastavro.parse_schema(json.loads(info.schema_json))
        return fastavro.schemaless_reader(io.BytesIO(event.event.payload), self._schemas[schema_id], None)

    def encode(self, schema_id: str, value: dict[str, Any]) -> bytes:
        """An event's payload by a schema of the server."""
        info = self.call("GetSchema", self.pb.SchemaRequest(schema_id=schema_id))
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(info.schema_json)), value)
        return out.getvalue()


def position(replay_id: bytes) -> int:
    """The number in a replay id."""
    assert len(replay_id) == 10
    assert replay_id[8:] == b"\0\0"
    return int.from_bytes(replay_id[:8], "big")


@pytest.fixture(scope="session")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModuleType, ModuleType]:
    """Messages and stubs in the default descriptor pool, as published stubs would be."""
    made = tmp_path_factory.mktemp("stubs")
    arguments = ["protoc", f"--proto_path={PROTO}", f"--python_out={made}", f"--grpc_python_out={made}"]
    assert protoc.main([*arguments, "pubsub_api.proto"]) == 0
    sys.path.insert(0, str(made))
    try:
        return importlib.import_module("pubsub_api_pb2"), importlib.import_module("pubsub_api_pb2_grpc")
    finally:
        sys.path.remove(str(made))


@pytest.fixture
def peer(stubs: tuple[ModuleType, ModuleType], server: ServerProcess, dev_token: str) -> Iterator[Peer]:
    """The administrator's connection."""
    with grpc.insecure_channel(server.grpc) as channel:
        yield Peer(stubs, channel, server, dev_token)


@pytest.fixture
def reader(stubs: tuple[ModuleType, ModuleType], server: ServerProcess) -> Iterator[Peer]:
    """The connection of the user who may not see every field."""
    with grpc.insecure_channel(server.grpc) as channel:
        yield Peer(stubs, channel, server, server.login(READER_USERNAME))


@pytest.fixture(scope="session")
def edged_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server whose streams are served by two edge processes."""
    data = tmp_path_factory.mktemp("edged") / "data"
    with ServerProcess(data, options=["--edges", "2"], ready_timeout_s=120.0) as process:
        yield process


@pytest.fixture(params=["one process", "edges"])
def host(request: pytest.FixtureRequest) -> ServerProcess:
    """A server of either build."""
    found: ServerProcess = request.getfixturevalue(
        "server" if request.param == "one process" else "edged_server"
    )
    return found


@pytest.fixture
def admin(stubs: tuple[ModuleType, ModuleType], host: ServerProcess) -> Iterator[Peer]:
    """The administrator's connection to `host`."""
    with grpc.insecure_channel(host.grpc) as channel:
        yield Peer(stubs, channel, host, host.login())


@pytest.fixture
def setup(host: ServerProcess) -> Iterator[Rest]:
    """The administrator's REST calls to `host`."""
    rest = Rest(host.http, host.login())
    yield rest
    rest.close()


@pytest.fixture
def fresh_event(setup: Rest) -> str:
    """The topic of a platform event that nobody else uses."""
    name = f"Fresh_{next(_numbers)}_{os.getpid()}__e"
    fields = {"Text__c": {"type": "Text", "label": "Text"}}
    setup.call(
        "POST", "/services/tidewire/v1/apply", {"events": {name: {"label": "Fresh", "fields": fields}}}
    )
    return f"/event/{name}"


@pytest.fixture
def platform_event() -> str:
    """The platform event of the development org; tests may have added others, some that cannot be published."""
    return "Order_Event__e"


def create_accounts(rest: Rest, count: int, **fields: Any) -> list[str]:
    """So many new accounts, each in a transaction of its own; their ids."""
    return [
        rest.create("Account", {"Name": f"Pub/Sub account {next(_numbers)}", **fields}) for _ in range(count)
    ]
