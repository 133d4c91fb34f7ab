"""What tests do to a running server: REST calls on a kept connection, and a full read of a topic's events
over gRPC.

Deliberately free of the package's own clients and codecs, so that a mistake made alike on both sides of the
wire still shows.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from queue import SimpleQueue
from typing import Any
from urllib.parse import quote, urlsplit

import fastavro
import grpc

from tidewire.schema.proto import pubsub_pb2 as pb

API = "/services/data/v62.0"
REQUEST_TIMEOUT_S = 120.0
_KEPT_S = 60.0  # the server closes connections that nobody has used for two minutes

Json = Any


def dial(address: str) -> grpc.Channel:
    """A channel of its own to a gRPC server. Left alone, gRPC shares connections between channels, and with them the
    minutes that it waits before it dials a server again that was away."""
    return grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])


class Refused(AssertionError):
    """The server answered, and the answer was no."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status}: {body[:500]!r}")
        self.status = status
        self.body = body


class InDoubt(Exception):
    """The request may or may not have been carried out: the connection broke before the answer came."""


class Rest:
    """A REST client on one connection, for one thread. A broken connection is replaced by the next call."""

    def __init__(self, base_url: str, token: str) -> None:
        self._address = urlsplit(base_url).netloc
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._connection: HTTPConnection | None = None
        self._used_s = 0.0

    def call(self, method: str, path: str, body: Json = None) -> Json:
        """The parsed answer.

        Raises Refused for a status of 400 and above, InDoubt if no whole answer came.
        """
        try:
            if time.monotonic() - self._used_s > _KEPT_S:
                self.close()
            if self._connection is None:
                self._connection = HTTPConnection(self._address, timeout=REQUEST_TIMEOUT_S)
            payload = None if body is None else json.dumps(body)
            self._connection.request(method, path, body=payload, headers=self._headers)
            response = self._connection.getresponse()
            answer = response.read()
            self._used_s = time.monotonic()
        except (OSError, HTTPException) as error:
            self.close()
            raise InDoubt(repr(error)) from error
        if response.status >= 400:
            raise Refused(response.status, answer)
        return json.loads(answer) if answer else None

    def create(self, entity: str, fields: Json) -> str:
        """Create one record; its 18-character id."""
        return str(self.call("POST", f"{API}/sobjects/{entity}", fields)["id"])

    def update(self, entity: str, record_id: str, fields: Json) -> None:
        """Change fields of one record."""
        self.call("PATCH", f"{API}/sobjects/{entity}/{record_id}", fields)

    def delete(self, entity: str, record_id: str) -> None:
        """Put one record into the recycle bin."""
        self.call("DELETE", f"{API}/sobjects/{entity}/{record_id}")

    def query(self, soql: str) -> list[Json]:
        """Every record of the answer, over all its pages."""
        page = self.call("GET", f"{API}/query?q={quote(soql)}")
        records = list(page["records"])
        while not page["done"]:
            page = self.call("GET", page["nextRecordsUrl"])
            records += page["records"]
        return records

    def close(self) -> None:
        """Drop the connection. Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """One event as a gRPC subscriber got it. `payload` is decoded by the schema that the server names."""

    replay_id: int
    event_id: str
    payload: Json

    @property
    def header(self) -> Json:
        """The ChangeEventHeader of a change event."""
        return self.payload["ChangeEventHeader"]


def call_metadata(token: str, instance_url: str, org_id: str) -> list[tuple[str, str]]:
    """The three headers that every Pub/Sub call carries."""
    return [("accesstoken", token), ("instanceurl", instance_url), ("tenantid", org_id)]


def read_topic(
    address: str,
    metadata: list[tuple[str, str]],
    topic: str,
    is_last: Callable[[SeenEvent], bool],
    *,
    after: int | None = None,
    timeout_s: float = 120.0,
) -> list[SeenEvent]:
    """Every event of a topic from the earliest on (or after a replay id), up to and including the one for
    which `is_last` holds."""
    requests: SimpleQueue[pb.FetchRequest | None] = SimpleQueue()
    first = pb.FetchRequest(topic_name=topic, replay_preset=pb.EARLIEST, num_requested=100)
    if after is not None:
        first.replay_preset = pb.CUSTOM
        first.replay_id = after.to_bytes(8, "big")
    requests.put(first)
    seen: list[SeenEvent] = []
    with dial(address) as channel:
        schemas = _Schemas(channel, metadata)
        subscribe = channel.stream_stream(
            "/eventbus.v1.PubSub/Subscribe",
            request_serializer=pb.FetchRequest.SerializeToString,
            response_deserializer=pb.FetchResponse.FromString,
        )
        call = subscribe(iter(requests.get, None), metadata=metadata, timeout=timeout_s)
        try:
            for event in _events_of(call, requests, topic, schemas):
                seen.append(event)
                if is_last(event):
                    break
        finally:
            requests.put(None)
            call.cancel()
    return seen


def _events_of(
    call: Iterator[pb.FetchResponse],
    requests: SimpleQueue[pb.FetchRequest | None],
    topic: str,
    schemas: _Schemas,
) -> Iterator[SeenEvent]:
    for response in call:
        for consumer_event in response.events:
            event = consumer_event.event
            yield SeenEvent(
                int.from_bytes(consumer_event.replay_id[:8], "big"),
                event.id,
                schemas.decode(event.schema_id, event.payload),
            )
        if response.pending_num_requested <= 50:
            requests.put(
                pb.FetchRequest(topic_name=topic, num_requested=100 - response.pending_num_requested)
            )


class _Schemas:
    """Avro schemas by id, asked for once."""

    def __init__(self, channel: grpc.Channel, metadata: list[tuple[str, str]]) -> None:
        self._metadata = metadata
        self._known: dict[str, Json] = {}
        self._get_schema = channel.unary_unary(
            "/eventbus.v1.PubSub/GetSchema",
            request_serializer=pb.SchemaRequest.SerializeToString,
            response_deserializer=pb.SchemaInfo.FromString,
        )

    def decode(self, schema_id: str, payload: bytes) -> Json:
        schema = self._known.get(schema_id)
        if schema is None:
            info = self._get_schema(
                pb.SchemaRequest(schema_id=schema_id), metadata=self._metadata, timeout=120
            )
            schema = self._known[schema_id] = fastavro.parse_schema(json.loads(info.schema_json))
        return fastavro.schemaless_reader(io.BytesIO(payload), schema, None)
