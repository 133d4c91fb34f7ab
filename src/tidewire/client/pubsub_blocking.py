"""A blocking Pub/Sub client: topics, schemas, publishing, and a stream of events with flow control.

For threads, such as those of Spark tasks; programs with an event loop use `tidewire.client.pubsub`. Works with any
server of the protocol. A client is one HTTP/2 connection that threads may share; an EventStream belongs to the thread
that iterates over it, but any thread may close it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeVar

import grpc

from tidewire.client.pubsub_messages import (
    CHANNEL_OPTIONS,
    SERVICE,
    USUAL_MAX_REQUESTED,
    Fetched,
    Published,
    Topic,
    login_metadata,
    read_fetched,
    read_results,
    read_rpc_error,
    read_topic_info,
    render_replay_id,
    subscribe_metadata,
)
from tidewire.errors import DemandInvalid
from tidewire.schema.proto import pubsub_pb2 as pb

Message = TypeVar("Message")


class EventStream:
    """The responses of one Subscribe call. Ends when the server ends the call with OK, or when closed.

    Demand is topped up as responses arrive, so at most `max_requested` events are in flight.
    """

    def __init__(
        self,
        open_call: Callable[[Iterator[pb.FetchRequest]], Any],
        first: pb.FetchRequest,
        forget: Callable[[EventStream], None],
    ) -> None:
        self._forget = forget
        self._max_requested = first.num_requested
        self._demand = first.num_requested
        self._has_response = False
        self._is_closed = False
        self._requests: queue.SimpleQueue[pb.FetchRequest | None] = queue.SimpleQueue()
        self._requests.put(first)
        self._call = open_call(iter(self._requests.get, None))

    def __iter__(self) -> EventStream:
        return self

    def __next__(self) -> Fetched:
        """Wait for the next response. Raises a PlatformError if the call fails."""
        try:
            response = next(self._call)
        except grpc.RpcError as error:
            if self._is_closed:
                raise StopIteration from None
            self.close()
            raise read_rpc_error(error) from error
        except StopIteration:
            self.close()
            raise
        self._top_up(response)
        return read_fetched(response)

    def _top_up(self, response: pb.FetchResponse) -> None:
        self._demand -= len(response.events)
        if not self._has_response:
            # Only one request was sent so far, so this response shows the most that the server grants.
            self._has_response = True
            granted = response.pending_num_requested + len(response.events)
            self._max_requested = max(1, min(self._max_requested, granted))
            self._demand = response.pending_num_requested
        if self._demand * 2 <= self._max_requested:
            missing = self._max_requested - self._demand
            self._demand = self._max_requested
            self._requests.put(pb.FetchRequest(num_requested=missing))

    def close(self) -> None:
        """End the call, from any thread; the iterating thread then sees the end of the stream. Idempotent."""
        self._is_closed = True
        self._requests.put(None)
        self._call.cancel()
        self._forget(self)

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class BlockingPubSubClient:
    """A connection to a Pub/Sub endpoint (`host:port`) as one user of one org.

    `tls_ca` holds the PEM roots to trust; empty bytes mean the usual public ones, None means plain text.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        token: str,
        org_id: str,
        instance_url: str,
        tls_ca: bytes | None,
        timeout_s: float = 30.0,
    ) -> None:
        self._endpoint = endpoint
        if tls_ca is None:
            self._channel = grpc.insecure_channel(endpoint, CHANNEL_OPTIONS)
        else:
            credentials = grpc.ssl_channel_credentials(tls_ca or None)
            self._channel = grpc.secure_channel(endpoint, credentials, CHANNEL_OPTIONS)
        self._metadata = login_metadata(token, instance_url, org_id)
        self._timeout_s = timeout_s
        self._streams: set[EventStream] = set()
        self._lock = threading.Lock()

    def get_topic(self, topic: str) -> Topic:
        """Return a topic's description. Raises TopicUnknown or AccessDenied."""
        info = self._call("GetTopic", pb.TopicRequest(topic_name=topic), pb.TopicInfo.FromString)
        return read_topic_info(info)

    def get_schema(self, schema_id: str) -> str:
        """Return the Avro schema of an id as JSON text. Raises SchemaUnknown."""
        request = pb.SchemaRequest(schema_id=schema_id)
        return self._call("GetSchema", request, pb.SchemaInfo.FromString).schema_json

    def publish(self, topic: str, events: Sequence[tuple[str, bytes, str]]) -> list[Published]:
        """Publish (schema id, payload, event id) triples; an empty event id lets the server choose one.

        Returns the result of each event, in order, once all accepted ones are durable.
        """
        request = pb.PublishRequest(
            topic_name=topic,
            events=[pb.ProducerEvent(id=i, schema_id=s, payload=p) for s, p, i in events],
        )
        response = self._call("Publish", request, pb.PublishResponse.FromString)
        return read_results(response)

    def subscribe(
        self,
        topic: str,
        replay: Literal["latest", "earliest"] | int,
        *,
        max_requested: int = USUAL_MAX_REQUESTED,
        keepalive_ms: int | None = None,
    ) -> EventStream:
        """Open a stream that starts at the tip, at the oldest retained event, or strictly after a replay id.

        Does not block: a rejection by the server is raised from the first `next`.
        """
        if max_requested < 1:
            raise DemandInvalid(f"max_requested must be at least 1, not {max_requested}")
        first = pb.FetchRequest(topic_name=topic, num_requested=max_requested)
        if isinstance(replay, int):
            first.replay_preset = pb.CUSTOM
            first.replay_id = render_replay_id(replay)
        elif replay == "earliest":
            first.replay_preset = pb.EARLIEST
        metadata = [*self._metadata, *subscribe_metadata(max_requested, keepalive_ms)]
        method = self._channel.stream_stream(
            SERVICE + "Subscribe", pb.FetchRequest.SerializeToString, pb.FetchResponse.FromString
        )
        stream = EventStream(lambda requests: method(requests, metadata=metadata), first, self._forget)
        with self._lock:
            self._streams.add(stream)
        return stream

    def close(self) -> None:
        """End every stream and the connection. Idempotent."""
        with self._lock:
            streams = tuple(self._streams)
        for stream in streams:
            stream.close()
        self._channel.close()

    def __enter__(self) -> BlockingPubSubClient:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _forget(self, stream: EventStream) -> None:
        with self._lock:
            self._streams.discard(stream)

    def _call(self, name: str, request: Any, parse: Callable[[bytes], Message]) -> Message:
        method = self._channel.unary_unary(SERVICE + name, type(request).SerializeToString, parse)
        try:
            response: Message = method(request, metadata=self._metadata, timeout=self._timeout_s)
        except grpc.RpcError as error:
            raise read_rpc_error(error, self._endpoint) from error
        return response
