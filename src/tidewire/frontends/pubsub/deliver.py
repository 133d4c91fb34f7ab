"""Deliver events and keepalives on a subscription stream.

A stream is two tasks. One reads requests into its demand; the other writes when the hub, new demand or a timer wakes
it. A stream fetches only what it can send: `write` waits for the peer's flow control, so a slow client costs no memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.delivery.link import CoreLink
from tidewire.delivery.link_values import StreamState
from tidewire.delivery.subscription import Subscription
from tidewire.delivery.usage import EdgeUsage
from tidewire.errors import ChannelForbidden, InternalError
from tidewire.faults import fail_point
from tidewire.frontends.pubsub.calls import Call, OpenStream
from tidewire.frontends.pubsub.flow_control import Due, FlowControl
from tidewire.frontends.pubsub.settings import PubSubSettings
from tidewire.telemetry import counters

API_VERSION = 66.0  # the protocol carries no version; channels open as for a current client
_LIMIT_EVERY_S = 1.0


@dataclass(slots=True, eq=False)
class Flow:
    """One open subscription.

    `render` builds a response from encoded events, the position reached and the remaining demand. `wait_s` returns the
    time until the next timer. `run_tasks`, if any, runs in every turn for work besides events, such as commits.
    `managed` names its managed subscription, if any. `generation` is that of the access rights that `run_tasks` checked
    last. `subscription` and `reading`, the task that reads requests, are set when the subscription is open.
    """

    call: Call
    stream: OpenStream
    control: FlowControl
    render: Callable[[Sequence[bytes], int, int], bytes]
    wait_s: Callable[[float], float]
    run_tasks: Callable[[Flow], Awaitable[None]] | None = None
    managed: str = ""
    generation: int = -1
    subscription: Subscription = field(init=False)
    reading: asyncio.Task[None] = field(init=False)


class Deliverer:
    """Delivers the subscriptions of one org."""

    def __init__(self, link: CoreLink, usage: EdgeUsage, clock: Clock, settings: PubSubSettings) -> None:
        self._link = link
        self._usage = usage
        self._clock = clock
        self._settings = settings
        self._flows: set[Flow] = set()

    async def check_topic(self, principal: Principal, topic: str) -> None:
        """Raise ChannelForbidden for events that only other protocols carry."""
        if not (await self._link.describe_topic(principal, topic)).can_subscribe:
            raise ChannelForbidden(f"{topic} cannot be subscribed to by the Pub/Sub API", channel=topic)

    async def count_usage(self, stream: OpenStream, subscription: Subscription) -> None:
        """Count what the subscription delivers against the org's allocation. Raises LimitExceeded."""
        grant = subscription.grant
        subscription.usage_counter = await self._usage.admit(
            stream.client_id, grant.channel, grant.family, is_durable=True
        )

    async def deliver(self, flow: Flow) -> None:
        """Write until the call ends. Returns to end it with OK, raises to fail it."""
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
                flow.control.pending,
                "pubsub",
            )
            for flow in self._flows
        )

    async def _deliver(self, flow: Flow) -> None:
        stream, control, subscription = flow.stream, flow.control, flow.subscription
        checked_s = self._clock.monotonic_s()
        sent_through = -1
        while True:
            stream.wake.clear()
            if (error := stream.error or subscription.error or control.error) is not None:
                raise error
            if flow.reading.done():
                flow.reading.result()
            if flow.run_tasks is not None:
                await flow.run_tasks(flow)
            events = (
                subscription.take(control.pending, self._settings.max_response_bytes)
                if control.pending
                else []
            )
            reached = subscription.reached()
            if reached < sent_through:
                # Guards an invariant: going backwards would make the client's stored replay id useless.
                raise InternalError("events out of order", wire_code="subscription.fetch.replay.repeated")
            now_s = self._clock.monotonic_s()
            due = Due.KEEPALIVE if events else control.due(reached, now_s)
            if due is Due.END:
                if stream.wake.is_set():
                    continue  # handle what arrived during this turn, such as a commit, before ending
                return
            if due is Due.KEEPALIVE:
                fail_point("pubsub.deliver", flow.call.topic)
                if events and now_s >= checked_s + _LIMIT_EVERY_S:
                    checked_s = now_s
                    await self._check_limit(flow)
                control.record_sent(len(events), reached, now_s)
                counters["pubsub.events_sent"] += len(events)
                sent_through = reached
                await flow.call.context.write(flow.render(events, reached, control.pending))
                if events:
                    self._usage.commit_latency.observe_delivery("pubsub", reached)
                continue
            # A timer sets the same event as other wake-ups; asyncio.timeout around every wait costs several times more.
            timer = asyncio.get_running_loop().call_later(flow.wait_s(now_s), stream.wake.set)
            try:
                await stream.wake.wait()
            finally:
                timer.cancel()

    async def _check_limit(self, flow: Flow) -> None:
        grant = flow.subscription.grant
        await self._link.admit_subscription(flow.stream.client_id, grant.channel, grant.family, True)
