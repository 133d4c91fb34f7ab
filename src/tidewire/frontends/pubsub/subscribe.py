"""Subscribe: deliver a topic's events from a replay position, as many as the client requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from tidewire.clock import Clock
from tidewire.delivery.hub import EARLIEST, LATEST, Hub, Replay, after, at_time, nearest
from tidewire.delivery.subscription import Subscription
from tidewire.faults import fail_point
from tidewire.frontends.pubsub import request_rules as rules
from tidewire.frontends.pubsub import wire
from tidewire.frontends.pubsub.calls import Call, Caller, Callers, OpenStream, Requests, wake_on_end
from tidewire.frontends.pubsub.deliver import API_VERSION, Deliverer, Flow
from tidewire.frontends.pubsub.headers import CallHeaders
from tidewire.frontends.pubsub.session import Start, SubscribeSession
from tidewire.frontends.pubsub.settings import PubSubSettings
from tidewire.schema.proto import pubsub_pb2 as pb
from tidewire.telemetry import counters

FORM = wire.PubSubForm()


class Subscriber:
    """Answers Subscribe for one org."""

    def __init__(
        self, hub: Hub, callers: Callers, deliverer: Deliverer, clock: Clock, settings: PubSubSettings
    ) -> None:
        self._hub = hub
        self._callers = callers
        self._deliverer = deliverer
        self._clock = clock
        self._settings = settings

    async def subscribe(self, call: Call, caller: Caller, requests: Requests) -> None:
        """Serve one call until it ends."""
        async with self._callers.stream(call, caller) as stream:
            session = SubscribeSession(self._settings, caller.headers, self._clock.monotonic_s())
            body = await first_request(stream, requests, self._settings.idle_close_s)
            if body is None:
                return
            request = self._parse(body)
            call.topic = request.topic_name
            start = session.start(request)
            fail_point("pubsub.Subscribe", call.topic)
            replay = _replay(start, caller.headers)
            subscription = await self._hub.subscribe(
                caller.principal, start.topic, API_VERSION, replay, FORM, stream.wake.set
            )
            reading = asyncio.create_task(self._read(requests, session, stream, subscription))
            reading.add_done_callback(lambda task: wake_on_end(task, stream.wake))
            counters["pubsub.subscriptions_opened"] += 1
            try:
                # A login that ended during the call above could not end this subscription, which did not exist yet.
                await self._callers.check(caller)
                await self._deliverer.check_topic(caller.principal, start.topic)
                await self._deliverer.count_usage(stream, subscription)
                render = partial(_render, call)
                await self._deliverer.deliver(
                    Flow(
                        call,
                        stream,
                        session.control,
                        subscription,
                        reading,
                        render,
                        session.control.wait_s,
                        _no_tasks,
                    )
                )
            finally:
                subscription.close()
                reading.cancel()

    async def _read(
        self, requests: Requests, session: SubscribeSession, stream: OpenStream, subscription: Subscription
    ) -> None:
        async for body in requests:
            request = self._parse(body)
            if request.auth_refresh:
                await self._callers.refresh(stream.caller, request.auth_refresh)
                subscription.principal = stream.caller.principal
            session.receive(request)
            stream.wake.set()
        session.control.half_close()

    def _parse(self, body: bytes) -> pb.FetchRequest:
        rules.check_size(body, self._settings)
        return wire.parse_message(pb.FetchRequest, body)


async def first_request(stream: OpenStream, requests: Requests, timeout_s: float) -> bytes | None:
    """Return the first request of a stream, or None if it ended or timed out. Raises the stream's error."""
    reading = asyncio.ensure_future(anext(requests, None))
    ending = asyncio.create_task(stream.wake.wait())
    try:
        await asyncio.wait({reading, ending}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            return reading.result()
        if stream.error is not None:
            raise stream.error
        return None
    finally:
        reading.cancel()
        ending.cancel()


def _render(call: Call, events: Sequence[bytes], reached: int, pending: int) -> bytes:
    return wire.render_fetch_response(events, reached, call.rpc_id, pending)


async def _no_tasks() -> None:
    """No-op: Subscribe has no work besides events."""


def _replay(start: Start, headers: CallHeaders) -> Replay:
    if start.preset == pb.CUSTOM:
        return nearest(start.position) if headers.replays_nearest else after(start.position)
    if headers.from_ms is not None:
        return at_time(headers.from_ms)
    return EARLIEST if start.preset == pb.EARLIEST else LATEST
