"""Publish and PublishStream.

A publish stream is read ahead of its responses. While one batch commits, arriving requests are collected into the next
batch, so a client that does not wait for responses gets few large commits. Events keep their order. The queue is
bounded: when it is full the stream is not read, and gRPC's flow control slows the client.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice

from tidewire.access.principal import Principal
from tidewire.delivery.link import Topics
from tidewire.errors import BodyTooLarge, ProtocolViolation
from tidewire.faults import fail_point
from tidewire.frontends.pubsub import request_rules as rules
from tidewire.frontends.pubsub import wire
from tidewire.frontends.pubsub.calls import Call, Caller, Callers, OpenStream, Requests, wake_on_end
from tidewire.frontends.pubsub.settings import PubSubSettings
from tidewire.ids import random_uuid
from tidewire.matching.channel_values import PublishDraft, PublishOutcomes, Rejection
from tidewire.schema.proto import pubsub_pb2 as pb
from tidewire.telemetry import counters
from tidewire.tracing import begin_request, end_request

_BATCH_EVENTS = 2000
_BATCH_BYTES = 4 << 20


class Publisher:
    """Answers Publish and PublishStream for one org."""

    def __init__(self, link: Topics, callers: Callers, settings: PubSubSettings) -> None:
        self._link = link
        self._callers = callers
        self._settings = settings

    async def publish(self, call: Call, caller: Caller, body: bytes) -> bytes:
        """Publish one request and return its response."""
        rules.check_size(body, self._settings)
        request = wire.parse_message(pb.PublishRequest, body)
        call.topic = request.topic_name
        rules.check_first_publish(request)
        rules.check_publish(request)
        fail_point("pubsub.Publish", call.topic)
        (response,) = await self._publish_all(call, caller.principal, [request])
        return response

    async def publish_stream(self, call: Call, caller: Caller, requests: Requests) -> None:
        """Serve a stream: one response per request, in order."""
        async with self._callers.stream(call, caller) as stream:
            queue = _Queue(self._settings)
            reading = asyncio.create_task(self._read(call, stream, requests, queue))
            reading.add_done_callback(lambda task: wake_on_end(task, stream.wake))
            try:
                await self._answer(call, stream, queue, reading)
            finally:
                reading.cancel()

    async def _read(self, call: Call, stream: OpenStream, requests: Requests, queue: _Queue) -> None:
        is_first = True
        while True:
            await queue.has_room.wait()
            try:
                async with asyncio.timeout(self._settings.publish_idle_close_s):
                    body = await anext(requests, None)
            except TimeoutError:
                raise ProtocolViolation(
                    "The publish stream was idle for too long", wire_code="publish.stream.sweeper.timeout"
                ) from None
            if body is None:
                return
            rules.check_size(body, self._settings)
            request = wire.parse_message(pb.PublishRequest, body)
            if is_first:
                rules.check_first_publish(request)
            elif request.auth_refresh:
                await self._callers.refresh(stream.caller, request.auth_refresh)
            call.topic = request.topic_name = rules.check_publish_topic(request.topic_name, call.topic)
            rules.check_publish(request)
            fail_point("pubsub.PublishStream", call.topic)
            is_first = False
            queue.put(request, len(body))
            stream.wake.set()

    async def _answer(
        self, call: Call, stream: OpenStream, queue: _Queue, reading: asyncio.Task[None]
    ) -> None:
        """Publish queued requests until the call ends. Requests before a bad one are answered first."""
        while True:
            stream.wake.clear()
            if stream.error is not None:
                raise stream.error
            requests = queue.take()
            if requests:
                await self._callers.check(stream.caller)
                for response in await self._publish_all(call, stream.caller.principal, requests):
                    await call.context.write(response)
            elif reading.done():
                reading.result()
                return
            else:
                await stream.wake.wait()

    async def _publish_all(
        self, call: Call, principal: Principal, requests: Sequence[pb.PublishRequest]
    ) -> list[bytes]:
        """Publish the events of some requests in one commit; return a response for each request."""
        new = tuple.__new__  # half the cost of calling the class, paid for every event
        drafts = [
            new(PublishDraft, (event.schema_id, event.payload, event.id))
            for request in requests
            for event in request.events
        ]
        outcomes = await self._publish_traced(call, principal, drafts)
        rejected = dict(outcomes.rejected)
        event_uuids = iter(enumerate(outcomes.event_uuids))
        position = outcomes.first
        responses: list[bytes] = []
        for request in requests:
            results: list[bytes] = []
            before = position
            for place, event_uuid in islice(event_uuids, len(request.events)):
                if place in rejected:
                    rejection = rejected[place]
                    results.append(wire.render_rejected(event_uuid, rejection.message or rejection.code))
                else:
                    results.append(wire.render_published(event_uuid, position))
                    position += 1
            counters["pubsub.events_published"] += position - before
            schema_id = outcomes.schema_id if position > before else ""
            responses.append(
                wire.render_publish_response(results, schema_id or request.events[0].schema_id, call.rpc_id)
            )
        return responses

    async def _publish_traced(
        self, call: Call, principal: Principal, drafts: list[PublishDraft]
    ) -> PublishOutcomes:
        span = begin_request(call.traceparent)
        if span is None:
            return await self._publish_allowed(principal, call.topic, drafts)
        is_answered = False
        try:
            outcomes = await self._publish_allowed(principal, call.topic, drafts)
            is_answered = True
            return outcomes
        finally:
            attributes: dict[str, str | int] = {"rpc.system": "grpc", "rpc.method": call.rpc}
            attributes["tidewire.events"] = len(drafts)
            end_request(span, "pubsub publish", attributes, is_error=not is_answered)

    async def _publish_allowed(
        self, principal: Principal, topic: str, drafts: list[PublishDraft]
    ) -> PublishOutcomes:
        """Publish the events within the size limit and reject the others."""
        limit_bytes = self._settings.max_event_bytes
        large = {place for place, draft in enumerate(drafts) if _size(draft) > limit_bytes}
        if not large:
            return await self._link.publish(principal, topic, drafts)
        places = [place for place in range(len(drafts)) if place not in large]
        outcomes = await self._link.publish(principal, topic, [drafts[place] for place in places])
        rejected = {places[place]: rejection for place, rejection in outcomes.rejected}
        event_uuids = [draft.event_uuid or random_uuid() for draft in drafts]
        for place, event_uuid in zip(places, outcomes.event_uuids, strict=True):
            event_uuids[place] = event_uuid
        for place in large:
            size_bytes = _size(drafts[place])
            text = f"The event has {size_bytes} bytes; the limit is {limit_bytes}"
            rejected[place] = Rejection(BodyTooLarge.code, text)
        return PublishOutcomes(
            tuple(event_uuids), outcomes.first, tuple(rejected.items()), outcomes.schema_id
        )


class _Queue:
    """Requests read but not yet published. Bounded: `has_room` is set while another request may be read."""

    def __init__(self, settings: PubSubSettings) -> None:
        self._settings = settings
        self._waiting: deque[tuple[pb.PublishRequest, int]] = deque()
        self._size_bytes = 0
        self.has_room = asyncio.Event()
        self.has_room.set()

    def put(self, request: pb.PublishRequest, size_bytes: int) -> None:
        """Add a request."""
        self._waiting.append((request, size_bytes))
        self._size_bytes += size_bytes
        if (
            len(self._waiting) >= self._settings.queued_requests
            or self._size_bytes >= self._settings.queued_bytes
        ):
            self.has_room.clear()

    def take(self) -> list[pb.PublishRequest]:
        """Remove and return the oldest requests, as many as fit one commit."""
        taken: list[pb.PublishRequest] = []
        events = size_bytes = 0
        while self._waiting:
            request, request_bytes = self._waiting[0]
            is_over = events + len(request.events) > _BATCH_EVENTS
            if taken and (is_over or size_bytes + request_bytes > _BATCH_BYTES):
                break
            self._waiting.popleft()
            taken.append(request)
            events += len(request.events)
            size_bytes += request_bytes
        self._size_bytes -= size_bytes
        if taken:
            self.has_room.set()
        return taken


def _size(draft: PublishDraft) -> int:
    """Return the size of an event in the log."""
    return len(draft.payload) + len(draft.event_uuid)
