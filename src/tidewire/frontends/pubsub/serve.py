"""Pub/Sub calls and their tasks. All rules of the protocol are in `session` and `wire`, the sockets in `listener`.

Messages cross grpc.aio as bytes, so an encoded event is copied but never parsed or built again. A Subscribe
call is two tasks: one reads requests into the session's demand, the other writes whenever it is woken by the
hub, by new demand or by time. What a stream cannot send it does not fetch: `write` waits for the peer's flow
control.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc

from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.delivery.hub import EARLIEST, LATEST, Hub, Replay, after
from tidewire.delivery.link import CoreLink, PublishDraft, PublishOutcome
from tidewire.delivery.subscription import Subscription
from tidewire.errors import (
    AccessDenied,
    BodyTooLarge,
    InternalError,
    MethodNotAllowed,
    PlatformError,
    ProtocolViolation,
    SchemaUnknown,
    SessionInvalid,
    StoreClosed,
    TopicUnknown,
)
from tidewire.frontends.pubsub import session as rules
from tidewire.frontends.pubsub import wire
from tidewire.frontends.pubsub.session import CallHeaders, Due, PubSubSettings, Start, SubscribeSession
from tidewire.frontends.pubsub.wire_errors import render_failure
from tidewire.schema.proto import pubsub_pb2 as pb
from tidewire.telemetry import counters

log = logging.getLogger(__name__)

API_VERSION = 66.0  # the protocol carries no version; channels are opened as by a client of today
_FORM = wire.PubSubForm()

Requests = AsyncIterator[bytes]


@dataclass(slots=True)
class _Call:
    """One RPC while it runs: what a failure needs to know."""

    rpc: str
    rpc_id: str
    context: Any
    topic: str = ""
    tenant: str = ""  # as the call names it: a refusal must not tell which orgs there are
    trailers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Caller:
    """Who makes a call, and what its metadata asks for."""

    principal: Principal
    headers: CallHeaders


class PubSubApp:
    """The Pub/Sub calls of one org. Made after the hub, closed before it."""

    def __init__(self, link: CoreLink, hub: Hub, clock: Clock, settings: PubSubSettings) -> None:
        self._link = link
        self._hub = hub
        self._clock = clock
        self._settings = settings
        self._closing = asyncio.Event()
        self._wakes: set[asyncio.Event] = set()
        self._answers: dict[str, Callable[[_Call, _Caller, Any], Awaitable[bytes | None]]] = {
            "GetTopic": self._get_topic,
            "GetSchema": self._get_schema,
            "Publish": self._publish,
            "PublishStream": self._publish_stream,
            "Subscribe": self._subscribe,
            "ManagedSubscribe": self._managed_subscribe,
        }

    def end_streams(self) -> None:
        """End every stream with a retryable status; later ones end at once."""
        self._closing.set()
        for wake in tuple(self._wakes):
            wake.set()

    async def answer_call(self, rpc: str, request: Any, context: Any) -> bytes | None:
        """Answer a call of the listener, or abort it."""
        call = _Call(rpc, str(uuid.uuid4()), context)
        counters["pubsub.calls_received"] += 1
        try:
            return await self._answers[rpc](call, await self._admit(call), request)
        except PlatformError as error:
            reason = error
        except grpc.aio.InternalError:
            return None  # the peer left in the middle of a write; there is nobody to tell
        except Exception as error:
            log.exception("pubsub.call_failed", extra={"rpc": rpc, "rpc_id": call.rpc_id})
            reason = InternalError(type(error).__name__)
        await self._abort(call, reason)
        return None

    async def _admit(self, call: _Call) -> _Caller:
        headers = rules.parse_headers(call.context.invocation_metadata() or ())
        if headers.trace_id:
            call.trailers = (("x-client-trace-id", headers.trace_id),)
            call.context.set_trailing_metadata(call.trailers)
        call.tenant = f"CORE/prod/{headers.org_id}"
        return _Caller(await self._authenticate(headers), headers)

    async def _authenticate(self, headers: CallHeaders) -> Principal:
        principal = await self._link.authenticate(headers.token)
        if principal.org_id != headers.org_id:
            raise SessionInvalid("The token is not of the org that the metadata header tenantid names")
        return principal

    async def _abort(self, call: _Call, error: PlatformError) -> None:
        counters["pubsub.calls_failed"] += 1
        failure = render_failure(
            error, rpc=call.rpc, rpc_id=call.rpc_id, tenant=call.tenant, topic=call.topic
        )
        trailers = (*failure.trailers, *call.trailers)
        with contextlib.suppress(grpc.aio.InternalError):  # the peer may have left in the meantime
            await call.context.abort(grpc.StatusCode[failure.status], failure.text, trailers)

    def _parse(self, kind: type[wire.Message], body: bytes) -> wire.Message:
        rules.check_size(body, self._settings)
        return wire.parse_message(kind, body)

    async def _get_topic(self, call: _Call, caller: _Caller, body: bytes) -> bytes:
        request = self._parse(pb.TopicRequest, body)
        call.topic = request.topic_name
        rules.check_topic(request.topic_name, "topic.validation.empty")
        topic = await self._link.describe_topic(caller.principal, request.topic_name)
        return wire.render_topic_info(topic, call.tenant, call.rpc_id)

    async def _get_schema(self, call: _Call, caller: _Caller, body: bytes) -> bytes:
        schema_id = self._parse(pb.SchemaRequest, body).schema_id
        if not schema_id.strip():
            raise SchemaUnknown("The schema ID can't be blank", wire_code="schema.validation.failed")
        schema_json = await self._link.schema_json(schema_id)
        topic = rules.topic_of_schema(schema_json)
        with contextlib.suppress(TopicUnknown):  # what is gone has nobody to keep it from
            try:
                await self._link.describe_topic(caller.principal, topic)
            except AccessDenied as error:
                raise SchemaUnknown("There is no such schema", schema_id=schema_id[:64]) from error
        return wire.render_schema_info(schema_json, schema_id, call.rpc_id)

    async def _publish(self, call: _Call, caller: _Caller, body: bytes) -> bytes:
        request = self._parse(pb.PublishRequest, body)
        call.topic = request.topic_name
        return await self._publish_events(call, caller.principal, request)

    async def _publish_stream(self, call: _Call, caller: _Caller, requests: Requests) -> None:
        """One response per request, in order. A login that ends is noticed at the next request."""
        while True:
            try:
                body = await self._next(requests, self._settings.publish_idle_close_s)
            except TimeoutError:
                raise ProtocolViolation(
                    "The publish stream was idle for too long", wire_code="publish.stream.sweeper.timeout"
                ) from None
            if body is None:
                return
            request = self._parse(pb.PublishRequest, body)
            principal = await self._authenticate(caller.headers)
            call.topic = request.topic_name = rules.check_publish_topic(request.topic_name, call.topic)
            await call.context.write(await self._publish_events(call, principal, request))

    async def _next(self, requests: Requests, timeout_s: float) -> bytes | None:
        """The next request, None after the last. Raises TimeoutError, or StoreClosed at the server's end."""
        reading = asyncio.ensure_future(anext(requests, None))
        closing = asyncio.create_task(self._closing.wait())
        try:
            await asyncio.wait({reading, closing}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                return reading.result()
            if closing.done():
                raise StoreClosed("the server is stopping")
            raise TimeoutError
        finally:
            reading.cancel()
            closing.cancel()

    async def _publish_events(self, call: _Call, principal: Principal, request: pb.PublishRequest) -> bytes:
        rules.check_publish(request)
        limit = self._settings.max_event_bytes
        fitting = [event for event in request.events if len(event.payload) <= limit]
        drafts = [PublishDraft(event.schema_id, event.payload, event.id) for event in fitting]
        published = iter(await self._link.publish(principal, request.topic_name, drafts))
        outcomes = [
            next(published) if len(event.payload) <= limit else _oversized(event, limit)
            for event in request.events
        ]
        counters["pubsub.events_published"] += sum(1 for outcome in outcomes if not outcome.error_code)
        return wire.render_publish_response(outcomes, request.events[0].schema_id, call.rpc_id)

    async def _managed_subscribe(self, call: _Call, caller: _Caller, requests: Requests) -> None:
        raise MethodNotAllowed("ManagedSubscribe is not offered here; use Subscribe and keep the replay id")

    async def _subscribe(self, call: _Call, caller: _Caller, requests: Requests) -> None:
        session = SubscribeSession(self._settings, caller.headers, self._clock.monotonic_s())
        try:
            body = await self._next(requests, self._settings.idle_close_s)
        except TimeoutError:
            return
        if body is None:
            return
        request = self._parse(pb.FetchRequest, body)
        call.topic = request.topic_name
        start = session.start(request)
        wake = asyncio.Event()
        subscription = await self._hub.subscribe(
            caller.principal, start.topic, API_VERSION, _replay(start), _FORM, wake.set
        )
        reading = asyncio.create_task(self._read_requests(requests, session, wake))
        reading.add_done_callback(lambda task: _note_end(task, wake))
        self._wakes.add(wake)
        counters["pubsub.subscriptions_opened"] += 1
        try:
            # A login that ended while the channel was being opened had no subscription yet to end.
            await self._authenticate(caller.headers)
            await self._deliver(call, session, subscription, reading, wake)
        finally:
            self._wakes.discard(wake)
            subscription.close()
            reading.cancel()

    async def _read_requests(
        self, requests: Requests, session: SubscribeSession, wake: asyncio.Event
    ) -> None:
        async for body in requests:
            session.receive(self._parse(pb.FetchRequest, body))
            wake.set()
        session.half_close()

    async def _deliver(
        self,
        call: _Call,
        session: SubscribeSession,
        subscription: Subscription,
        reading: asyncio.Task[None],
        wake: asyncio.Event,
    ) -> None:
        """Write until the call ends. Returns to complete it with OK; raises to fail it."""
        while True:
            wake.clear()
            if self._closing.is_set():
                raise StoreClosed("the server is stopping")
            if (error := subscription.error or session.error) is not None:
                raise error
            if reading.done():
                reading.result()
            events = (
                subscription.take(session.pending, self._settings.max_response_bytes)
                if session.pending
                else []
            )
            reached = subscription.reached()
            now_s = self._clock.monotonic_s()
            due = Due.KEEPALIVE if events else session.due(reached, now_s)
            if due is Due.END:
                return
            if due is Due.KEEPALIVE:
                session.note_sent(len(events), reached, now_s)
                counters["pubsub.events_sent"] += len(events)
                await call.context.write(
                    wire.render_fetch_response(events, reached, call.rpc_id, session.pending)
                )
                continue
            try:
                async with asyncio.timeout(session.wait_s(now_s)):
                    await wake.wait()
            except TimeoutError:
                continue


def _note_end(reading: asyncio.Task[None], wake: asyncio.Event) -> None:
    if not reading.cancelled():
        reading.exception()  # looked at here, because the writing side may have ended for another reason
    wake.set()


def _replay(start: Start) -> Replay:
    if start.preset == pb.CUSTOM:
        return after(start.position)
    return EARLIEST if start.preset == pb.EARLIEST else LATEST


def _oversized(event: pb.ProducerEvent, limit_bytes: int) -> PublishOutcome:
    text = f"The event has {len(event.payload)} bytes; the limit is {limit_bytes}"
    return PublishOutcome(event.id or str(uuid.uuid4()), 0, BodyTooLarge.code, text)
