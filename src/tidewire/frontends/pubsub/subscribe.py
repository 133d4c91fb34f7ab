"""Subscribe: deliver a topic's events from a replay position, as many as the client requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tidewire.clock import Clock
from tidewire.delivery.hub import EARLIEST, LATEST, Hub, Replay, after, at_time, nearest
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

_FORM = wire.PubSubForm()

Request = TypeVar("Request", pb.FetchRequest, pb.ManagedFetchRequest)


@dataclass(frozen=True, slots=True)
class Subscriber:
    """Answers Subscribe for one org, and serves the streams of ManagedSubscribe."""

    hub: Hub
    callers: Callers
    deliverer: Deliverer
    clock: Clock
    settings: PubSubSettings

    async def subscribe(self, call: Call, caller: Caller, requests: Requests) -> None:
        """Serve one call until it ends."""
        async with self.callers.stream(call, caller) as stream:
            session = SubscribeSession(self.settings, caller.headers, self.clock.monotonic_s())
            request = await self.read_first(pb.FetchRequest, stream, requests)
            if request is None:
                return
            call.topic = request.topic_name
            start = session.start(request)
            fail_point("pubsub.Subscribe", call.topic)
            render = partial(wire.render_fetch_response, call.rpc_id)
            flow = Flow(call, stream, session.control, render, session.control.wait_s)
            replay = _replay(start, caller.headers)
            await self.serve(flow, start.topic, replay, requests, pb.FetchRequest, session.receive)

    async def read_first(self, kind: type[Request], stream: OpenStream, requests: Requests) -> Request | None:
        """Return the first request of a stream, or None if it ended or timed out. Raises the stream's error."""
        reading = asyncio.ensure_future(anext(requests, None))
        ending = asyncio.create_task(stream.wake.wait())
        try:
            await asyncio.wait(
                {reading, ending}, timeout=self.settings.idle_close_s, return_when=asyncio.FIRST_COMPLETED
            )
            if reading.done():
                body = reading.result()
                return None if body is None else self._parse(kind, body)
            if stream.error is not None:
                raise stream.error
            return None
        finally:
            reading.cancel()
            ending.cancel()

    async def serve(
        self,
        flow: Flow,
        topic: str,
        replay: Replay,
        requests: Requests,
        kind: type[Request],
        receive: Callable[[Request], None],
    ) -> None:
        """Subscribe and deliver until the call ends. Later requests, of type `kind`, are passed to `receive`."""
        stream, caller = flow.stream, flow.stream.caller
        flow.subscription = await self.hub.subscribe(
            caller.principal, topic, API_VERSION, replay, _FORM, stream.wake.set
        )
        flow.reading = asyncio.create_task(self._read(flow, requests, kind, receive))
        flow.reading.add_done_callback(lambda task: wake_on_end(task, stream.wake))
        counters["pubsub.subscriptions_opened"] += 1
        try:
            # A login that ended during the call above could not end this subscription, which did not exist yet.
            await self.callers.check(caller)
            await self.deliverer.check_topic(caller.principal, topic)
            await self.deliverer.count_usage(stream, flow.subscription)
            await self.deliverer.deliver(flow)
        finally:
            flow.subscription.close()
            flow.reading.cancel()

    async def _read(
        self, flow: Flow, requests: Requests, kind: type[Request], receive: Callable[[Request], None]
    ) -> None:
        async for body in requests:
            request = self._parse(kind, body)
            if request.auth_refresh:
                await self.callers.refresh(flow.stream.caller, request.auth_refresh)
                flow.subscription.principal = flow.stream.caller.principal
            receive(request)
            flow.stream.wake.set()
        flow.control.half_close()

    def _parse(self, kind: type[Request], body: bytes) -> Request:
        rules.check_size(body, self.settings)
        return wire.parse_message(kind, body)


def _replay(start: Start, headers: CallHeaders) -> Replay:
    if start.preset == pb.CUSTOM:
        return nearest(start.position) if headers.replays_nearest else after(start.position)
    if headers.from_ms is not None:
        return at_time(headers.from_ms)
    return EARLIEST if start.preset == pb.EARLIEST else LATEST
