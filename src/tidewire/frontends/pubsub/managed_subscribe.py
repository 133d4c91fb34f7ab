"""ManagedSubscribe: a subscription whose position the server stores.

The client names it, requests events and commits positions. The core stores the position and lets one client at a time
hold the subscription; see `delivery/managed_positions.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from tidewire.clock import Clock
from tidewire.delivery.hub import EARLIEST, LATEST, Hub, Replay, after
from tidewire.delivery.link import ManagedSubscriptions
from tidewire.delivery.link_values import ManagedStart
from tidewire.delivery.subscription import Subscription
from tidewire.errors import ChannelForbidden, ManagedUnknown, PlatformError
from tidewire.frontends.pubsub import request_rules as rules
from tidewire.frontends.pubsub import wire
from tidewire.frontends.pubsub.calls import Call, Caller, Callers, OpenStream, Requests, wake_on_end
from tidewire.frontends.pubsub.deliver import API_VERSION, Deliverer, Flow
from tidewire.frontends.pubsub.session import Commit, ManagedSession
from tidewire.frontends.pubsub.settings import PubSubSettings
from tidewire.frontends.pubsub.subscribe import FORM, first_request
from tidewire.schema.proto import pubsub_pb2 as pb
from tidewire.telemetry import counters

_NOTHING_GIVEN = "The commit has no replay ID"
_NO_FORM = "The replay ID can't be committed: it has a form that no replay ID has"


class ManagedSubscriber:
    """Answers ManagedSubscribe for one org."""

    def __init__(
        self,
        link: ManagedSubscriptions,
        hub: Hub,
        callers: Callers,
        deliverer: Deliverer,
        clock: Clock,
        settings: PubSubSettings,
    ) -> None:
        self._link = link
        self._hub = hub
        self._callers = callers
        self._deliverer = deliverer
        self._clock = clock
        self._settings = settings

    async def subscribe(self, call: Call, caller: Caller, requests: Requests) -> None:
        """Serve one call until it ends."""
        async with self._callers.stream(call, caller) as stream:
            session = ManagedSession(self._settings, caller.headers, self._clock.monotonic_s())
            body = await first_request(stream, requests, self._settings.idle_close_s)
            if body is None:
                return
            subscription_id, name = session.start(self._parse(body), self._clock.now_ms())
            call.topic = subscription_id or name
            holder = stream.client_id
            try:
                start = await self._link.open_managed(caller.principal, subscription_id, name, holder)
            except BaseException as error:
                # A cancelled call may or may not have reached the core, so release in any case.
                self._link.release_managed("", holder)
                if subscription_id and isinstance(error, ManagedUnknown):
                    error.details["wire_code"] = "managed.subscription.subscription.id.not.found"
                raise
            try:
                session.bind(start.subscription_id, start.name)
                call.topic = start.topic
                await self._serve(call, stream, requests, session, start)
            finally:
                self._link.release_managed(start.subscription_id, holder)

    async def _serve(
        self,
        call: Call,
        stream: OpenStream,
        requests: Requests,
        session: ManagedSession,
        start: ManagedStart,
    ) -> None:
        subscription = await self._hub.subscribe(
            stream.caller.principal, start.topic, API_VERSION, _replay(start), FORM, stream.wake.set
        )
        reading = asyncio.create_task(self._read(requests, session, stream, subscription))
        reading.add_done_callback(lambda task: wake_on_end(task, stream.wake))
        counters["pubsub.subscriptions_opened"] += 1
        try:
            await self._callers.check(stream.caller)
            await self._deliverer.check_topic(stream.caller.principal, start.topic)
            await self._deliverer.count_usage(stream, subscription)
            tasks = _ManagedTasks(self, call, stream, session, subscription, start)
            render = partial(_render, call, None)
            await self._deliverer.deliver(
                Flow(
                    call,
                    stream,
                    session.control,
                    subscription,
                    reading,
                    render,
                    session.wait_s,
                    tasks.run_tasks,
                    start.name,
                )
            )
        finally:
            subscription.close()
            reading.cancel()

    async def _read(
        self, requests: Requests, session: ManagedSession, stream: OpenStream, subscription: Subscription
    ) -> None:
        async for body in requests:
            request = self._parse(body)
            if request.auth_refresh:
                await self._callers.refresh(stream.caller, request.auth_refresh)
                subscription.principal = stream.caller.principal
            session.receive(request, self._clock.now_ms(), self._clock.monotonic_s())
            stream.wake.set()
        session.control.half_close()

    def _parse(self, body: bytes) -> pb.ManagedFetchRequest:
        rules.check_size(body, self._settings)
        return wire.parse_message(pb.ManagedFetchRequest, body)

    async def commit(self, stream: OpenStream, start: ManagedStart, commit: Commit) -> str:
        """Store a commit; return why it failed, or an empty text. Raises ChannelForbidden."""
        if commit.position is None:
            return _NO_FORM if commit.replay_id else _NOTHING_GIVEN
        try:
            await self._link.commit_managed(
                stream.caller.principal, start.subscription_id, stream.client_id, commit.position
            )
        except ChannelForbidden:
            raise
        except PlatformError as error:
            return error.message if not error.retryable else "The commit can't be stored now"
        counters["pubsub.positions_committed"] += 1
        return ""

    async def check_managed(self, stream: OpenStream, start: ManagedStart) -> None:
        """Raise if the subscription was stopped or deleted, or this user may no longer read it."""
        try:
            await self._link.check_managed(stream.caller.principal, start.subscription_id, stream.client_id)
        except ManagedUnknown as error:
            error.details["wire_code"] = "managed.subscription.config.deleted"
            raise

    def now_s(self) -> float:
        """Return the monotonic time."""
        return self._clock.monotonic_s()


class _ManagedTasks:
    """Work of one managed stream besides events: commits and checks."""

    def __init__(
        self,
        owner: ManagedSubscriber,
        call: Call,
        stream: OpenStream,
        session: ManagedSession,
        subscription: Subscription,
        start: ManagedStart,
    ) -> None:
        self._owner = owner
        self._call = call
        self._stream = stream
        self._session = session
        self._subscription = subscription
        self._start = start
        self._generation = -1

    async def run_tasks(self) -> None:
        """Answer commits; check the subscription again when the org's access generation has changed."""
        self._session.check_commits(self._owner.now_s())
        generation = self._subscription.grant.generation
        if generation != self._generation:
            await self._owner.check_managed(self._stream, self._start)
            self._generation = generation
        for commit in self._session.take_commits():
            problem = await self._owner.commit(self._stream, self._start, commit)
            response = pb.CommitReplayResponse(
                commit_request_id=commit.request_id,
                replay_id=commit.replay_id,
                process_time=commit.received_ms,
                error=pb.Error(code=pb.COMMIT, msg=problem) if problem else None,
            )
            pending = self._session.control.pending
            reached = self._subscription.position
            await self._call.context.write(_render(self._call, response, (), reached, pending))


def _render(
    call: Call, commit: pb.CommitReplayResponse | None, events: Sequence[bytes], reached: int, pending: int
) -> bytes:
    return wire.render_managed_response(events, reached, call.rpc_id, pending, commit)


def _replay(start: ManagedStart) -> Replay:
    if start.position >= 0:
        return after(start.position)
    return EARLIEST if start.is_from_earliest else LATEST
