"""ManagedSubscribe: a subscription whose position the server stores.

The client names it, requests events and commits positions. The core stores the position and lets one client at a time
hold the subscription; see `delivery/managed_positions.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tidewire.delivery.hub import EARLIEST, LATEST, Replay, after
from tidewire.delivery.link import ManagedSubscriptions
from tidewire.delivery.link_values import ManagedStart
from tidewire.errors import ChannelForbidden, ManagedUnknown, PlatformError
from tidewire.frontends.pubsub import wire
from tidewire.frontends.pubsub.calls import Call, Caller, OpenStream, Requests
from tidewire.frontends.pubsub.deliver import Flow
from tidewire.frontends.pubsub.session import Commit, ManagedSession
from tidewire.frontends.pubsub.subscribe import Subscriber
from tidewire.schema.proto import pubsub_pb2 as pb
from tidewire.telemetry import counters

_NOTHING_GIVEN = "The commit has no replay ID"
_NO_FORM = "The replay ID can't be committed: it has a form that no replay ID has"


@dataclass(frozen=True, slots=True)
class ManagedSubscriber:
    """Answers ManagedSubscribe for one org."""

    link: ManagedSubscriptions
    subscriber: Subscriber

    async def subscribe(self, call: Call, caller: Caller, requests: Requests) -> None:
        """Serve one call until it ends."""
        settings, clock = self.subscriber.settings, self.subscriber.clock
        async with self.subscriber.callers.stream(call, caller) as stream:
            session = ManagedSession(settings, caller.headers, clock.monotonic_s())
            request = await self.subscriber.read_first(pb.ManagedFetchRequest, stream, requests)
            if request is None:
                return
            subscription_id, name = session.start(request, clock.now_ms())
            call.topic = subscription_id or name
            holder = stream.client_id
            try:
                start = await self.link.open_managed(caller.principal, subscription_id, name, holder)
            except BaseException as error:
                # A cancelled call may or may not have reached the core, so release in any case.
                self.link.release_managed("", holder)
                if subscription_id and isinstance(error, ManagedUnknown):
                    error.details["wire_code"] = "managed.subscription.subscription.id.not.found"
                raise
            try:
                session.bind(start.subscription_id, start.name)
                call.topic = start.topic
                await self._serve(call, stream, requests, session, start)
            finally:
                self.link.release_managed(start.subscription_id, holder)

    async def _serve(
        self,
        call: Call,
        stream: OpenStream,
        requests: Requests,
        session: ManagedSession,
        start: ManagedStart,
    ) -> None:
        clock = self.subscriber.clock

        def receive(request: pb.ManagedFetchRequest) -> None:
            session.receive(request, clock.now_ms(), clock.monotonic_s())

        render = partial(wire.render_managed_response, call.rpc_id, None)
        run_tasks = partial(self._run_tasks, session, start)
        flow = Flow(call, stream, session.control, render, session.wait_s, run_tasks, start.name)
        await self.subscriber.serve(
            flow, start.topic, _replay(start), requests, pb.ManagedFetchRequest, receive
        )

    async def _run_tasks(self, session: ManagedSession, start: ManagedStart, flow: Flow) -> None:
        """Answer commits; check the subscription again when the org's access generation has changed."""
        session.check_commits(self.subscriber.clock.monotonic_s())
        generation = flow.subscription.grant.generation
        if generation != flow.generation:
            await self._check_managed(flow.stream, start)
            flow.generation = generation
        for commit in session.take_commits():
            problem = await self._commit(flow.stream, start, commit)
            response = pb.CommitReplayResponse(
                commit_request_id=commit.request_id,
                replay_id=commit.replay_id,
                process_time=commit.received_ms,
                error=pb.Error(code=pb.COMMIT, msg=problem) if problem else None,
            )
            reached, pending = flow.subscription.position, session.control.pending
            answer = wire.render_managed_response(flow.call.rpc_id, response, (), reached, pending)
            await flow.call.context.write(answer)

    async def _commit(self, stream: OpenStream, start: ManagedStart, commit: Commit) -> str:
        """Store a commit; return why it failed, or an empty text. Raises ChannelForbidden."""
        if commit.position is None:
            return _NO_FORM if commit.replay_id else _NOTHING_GIVEN
        try:
            await self.link.commit_managed(
                stream.caller.principal, start.subscription_id, stream.client_id, commit.position
            )
        except ChannelForbidden:
            raise
        except PlatformError as error:
            return error.message if not error.retryable else "The commit can't be stored now"
        counters["pubsub.positions_committed"] += 1
        return ""

    async def _check_managed(self, stream: OpenStream, start: ManagedStart) -> None:
        """Raise if the subscription was stopped or deleted, or this user may no longer read it."""
        try:
            await self.link.check_managed(stream.caller.principal, start.subscription_id, stream.client_id)
        except ManagedUnknown as error:
            error.details["wire_code"] = "managed.subscription.config.deleted"
            raise


def _replay(start: ManagedStart) -> Replay:
    if start.position >= 0:
        return after(start.position)
    return EARLIEST if start.is_from_earliest else LATEST
