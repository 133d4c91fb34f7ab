"""The writing side of a subscription: events as they become ready, signs of life in between.

A stream is two tasks: one reads requests into its demand, the other writes whenever it is woken by the hub, by new
demand or by time. What a stream cannot send it does not fetch: `write` waits for the peer's flow control.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.delivery.link import CoreLink
from tidewire.delivery.link_values import StreamState
from tidewire.delivery.subscription import Subscription
from tidewire.delivery.usage import EdgeUsage
from tidewire.errors import ChannelForbidden, InternalError
from tidewire.faults import fail_point
from tidewire.frontends.pubsub.calls import Call, OpenStream
from tidewire.frontends.pubsub.pace import Due, Pace
from tidewire.frontends.pubsub.settings import PubSubSettings
from tidewire.telemetry import counters

API_VERSION = 66.0  # the protocol carries no version; channels are opened as by a client of today
_LIMIT_EVERY_S = 1.0


@dataclass(slots=True, eq=False)
class Flow:
    """One open subscription. `render` makes a response of encoded events, the position reached and the demand left;
    `attend` is called in every turn for what a protocol has besides events, and `wait_s` says for how long there is
    nothing by time. `managed` is the name of its managed subscription, if it has one.
    """

    call: Call
    stream: OpenStream
    pace: Pace
    subscription: Subscription
    reading: asyncio.Task[None]
    render: Callable[[Sequence[bytes], int, int], bytes]
    wait_s: Callable[[float], float]
    attend: Callable[[], Awaitable[None]]
    managed: str = ""


class Deliverer:
    """Writes the flows of one org."""

    def __init__(self, link: CoreLink, usage: EdgeUsage, clock: Clock, settings: PubSubSettings) -> None:
        self._link = link
        self._usage = usage
        self._clock = clock
        self._settings = settings
        self._flows: set[Flow] = set()

    async def check_topic(self, principal: Principal, topic: str) -> None:
        """Raises ChannelForbidden for events that other protocols carry and this one does not."""
        if not (await self._link.describe_topic(principal, topic)).can_subscribe:
            raise ChannelForbidden(f"{topic} cannot be subscribed to by the Pub/Sub API", channel=topic)

    async def count_usage(self, stream: OpenStream, subscription: Subscription) -> None:
        """Count what the subscription delivers against the org's allocation. Raises LimitExceeded."""
        grant = subscription.grant
        subscription.usage_counter = await self._usage.admit(
            stream.client_id, grant.channel, grant.family, is_durable=True
        )

    async def deliver(self, flow: Flow) -> None:
        """Write until the call ends. Returns to complete it with OK; raises to fail it."""
        self._flows.add(flow)
        try:
            await self._deliver(flow)
        finally:
            self._flows.discard(flow)

    def states(self) -> tuple[StreamState, ...]:
        """Return how far each open stream is."""
        return tuple(
            StreamState(
                flow.stream.client_id,
                flow.stream.caller.principal.username,
                flow.call.topic,
                flow.managed,
                flow.subscription.reached(),
                flow.pace.pending,
            )
            for flow in self._flows
        )

    async def _deliver(self, flow: Flow) -> None:
        stream, pace, subscription = flow.stream, flow.pace, flow.subscription
        checked_s = self._clock.monotonic_s()
        sent_through = -1
        while True:
            stream.wake.clear()
            if (error := stream.error or subscription.error or pace.error) is not None:
                raise error
            if flow.reading.done():
                flow.reading.result()
            await flow.attend()
            events = (
                subscription.take(pace.pending, self._settings.max_response_bytes) if pace.pending else []
            )
            reached = subscription.reached()
            if reached < sent_through:
                raise InternalError(
                    "events out of order", wire_code="subscription.fetch.replay.repeated"
                )  # never seen; a client that was told otherwise could not go on
            now_s = self._clock.monotonic_s()
            due = Due.KEEPALIVE if events else pace.due(reached, now_s)
            if due is Due.END:
                if stream.wake.is_set():
                    continue  # what came while this turn waited, a commit perhaps, has its turn first
                return
            if due is Due.KEEPALIVE:
                fail_point("pubsub.deliver", flow.call.topic)
                if events and now_s >= checked_s + _LIMIT_EVERY_S:
                    checked_s = now_s
                    await self._check_limit(flow)
                pace.note_sent(len(events), reached, now_s)
                counters["pubsub.events_sent"] += len(events)
                sent_through = reached
                await flow.call.context.write(flow.render(events, reached, pace.pending))
                if events:
                    self._usage.commit_latency.observe_delivery("pubsub", reached)
                continue
            # Time wakes it like anything else does: for every wait, a timeout would cost several times as much.
            timer = asyncio.get_running_loop().call_later(flow.wait_s(now_s), stream.wake.set)
            try:
                await stream.wake.wait()
            finally:
                timer.cancel()

    async def _check_limit(self, flow: Flow) -> None:
        grant = flow.subscription.grant
        await self._link.admit_subscription(flow.stream.client_id, grant.channel, grant.family, True)
