"""A Pub/Sub server that follows a script, for tests of the asynchronous client.

It is a plain grpc.aio server, so these tests see what the client itself sends and how it takes answers that our own
server does not give. Every Subscribe, ManagedSubscribe or PublishStream call takes the next act of its script.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from tidewire.client.login import Login
from tidewire.client.pubsub import PubSubClient
from tidewire.client.pubsub_messages import render_replay_id
from tidewire.schema.codec import EventSchema
from tidewire.schema.proto import pubsub_pb2 as pb

PREFIX = "sfdc.platform.eventbus.grpc."
SCHEMA_JSON = json.dumps(
    {
        "type": "record",
        "name": "Order_Event__e",
        "namespace": "com.sforce.eventbus",
        "fields": [
            {"name": "CreatedDate", "type": "long"},
            {"name": "CreatedById", "type": "string"},
            {"name": "Number__c", "type": ["null", "string"], "default": None},
        ],
    }
)
SCHEMA = EventSchema(SCHEMA_JSON)

Act = Callable[[Any, Any], Awaitable[None]]


def consumed(number: int, schema: EventSchema = SCHEMA, **fields: Any) -> pb.ConsumerEvent:
    """An event of the scripted log."""
    values = fields or {"CreatedDate": number, "CreatedById": "005", "Number__c": str(number)}
    return pb.ConsumerEvent(
        event=pb.ProducerEvent(id=f"e{number}", schema_id=schema.schema_id, payload=schema.encode(values)),
        replay_id=render_replay_id(number),
    )


def fetched(numbers: Sequence[int], pending: int, latest: int = 0) -> pb.FetchResponse:
    """A response with these events."""
    return pb.FetchResponse(
        events=[consumed(number) for number in numbers],
        latest_replay_id=render_replay_id(latest or max(numbers, default=0)),
        pending_num_requested=pending,
    )


async def fail(context: Any, status: str, code: str = "") -> None:
    """End a call as a server of the protocol does."""
    trailers = (("error-code", PREFIX + code),) if code else ()
    await context.abort(grpc.StatusCode[status], "what the server said", trailers)


@dataclass(slots=True)
class Script:
    """What each call meets, and what was asked so far."""

    subscribes: list[Act] = field(default_factory=list)
    managed: list[Act] = field(default_factory=list)
    publishes: list[Act] = field(default_factory=list)
    schemas: dict[str, str] = field(default_factory=lambda: {SCHEMA.schema_id: SCHEMA_JSON})
    schema_calls: list[str] = field(default_factory=list)
    published: list[pb.PublishRequest] = field(default_factory=list)
    metadata: list[dict[str, str]] = field(default_factory=list)
    refused_tokens: set[str] = field(default_factory=set)
    logins: int = 0

    def sign_in(self) -> Login:
        """Another token with every login."""
        self.logins += 1
        return Login(f"token {self.logins}", "https://x", "00D", "005000000000001AAA")

    async def _admit(self, context: Any) -> None:
        self.metadata.append(dict(context.invocation_metadata()))
        if self.metadata[-1]["accesstoken"] in self.refused_tokens:
            await fail(context, "UNAUTHENTICATED", "service.auth.error")

    async def get_topic(self, request: pb.TopicRequest, context: Any) -> pb.TopicInfo:
        await self._admit(context)
        is_event = request.topic_name.startswith("/event/")
        return pb.TopicInfo(
            topic_name=request.topic_name,
            can_publish=is_event,
            can_subscribe=True,
            schema_id=SCHEMA.schema_id,
        )

    async def get_schema(self, request: pb.SchemaRequest, context: Any) -> pb.SchemaInfo:
        await self._admit(context)
        self.schema_calls.append(request.schema_id)
        if request.schema_id not in self.schemas:
            await fail(context, "NOT_FOUND", "schema.meta.permission")
        return pb.SchemaInfo(schema_json=self.schemas[request.schema_id], schema_id=request.schema_id)

    async def publish(self, request: pb.PublishRequest, context: Any) -> pb.PublishResponse:
        await self._admit(context)
        self.published.append(request)
        return answer(request)

    def performing(self, acts: list[Act]) -> Act:
        """A handler that plays the next act. A call too many fails in a way that is not tried again."""

        async def handle(requests: Any, context: Any) -> None:
            await self._admit(context)
            if not acts:
                await fail(context, "FAILED_PRECONDITION")
            await acts.pop(0)(requests, context)

        return handle


_positions = itertools.count(1)


def answer(request: pb.PublishRequest) -> pb.PublishResponse:
    """Every event accepted."""
    return pb.PublishResponse(
        results=[
            pb.PublishResult(replay_id=render_replay_id(next(_positions)), correlation_key=event.id)
            for event in request.events
        ]
    )


@asynccontextmanager
async def scripted(script: Script, sign_in: Callable[[], Login] | None = None) -> AsyncIterator[PubSubClient]:
    """The server, and a client of it that hardly waits before it comes back."""
    unary, streams = grpc.unary_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
    kinds: dict[str, tuple[Any, Any, Any]] = {
        "GetTopic": (unary, script.get_topic, pb.TopicRequest),
        "GetSchema": (unary, script.get_schema, pb.SchemaRequest),
        "Publish": (unary, script.publish, pb.PublishRequest),
        "PublishStream": (streams, script.performing(script.publishes), pb.PublishRequest),
        "Subscribe": (streams, script.performing(script.subscribes), pb.FetchRequest),
        "ManagedSubscribe": (streams, script.performing(script.managed), pb.ManagedFetchRequest),
    }
    # Or the system may give the same port to a server of another test, and share its callers out.
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                "eventbus.v1.PubSub",
                {
                    name: kind(method, request.FromString, lambda message: message.SerializeToString())
                    for name, (kind, method, request) in kinds.items()
                },
            ),
        )
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with PubSubClient(
            f"127.0.0.1:{port}",
            sign_in or script.sign_in,
            tls_ca=None,
            timeout_s=120,
            min_pause_s=0.001,
            max_pause_s=0.01,
        ) as client:
            yield client
    finally:
        # It waits for every act to end.
        async with asyncio.timeout(60):
            await server.stop(None)
