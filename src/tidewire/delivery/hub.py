"""The hub: wakes subscriptions after each commit, and reads pages of the log for those that lag.

Theory of operation. The core sends every committed batch, in order. `_arrive` queues a batch only while a
schema that it needs is missing; `_admit` puts its events into the ring and wakes the subscriptions that read
one of its topics. A subscription then takes what it wants from the ring, or asks for a page of the log with
`fill`.

Cost: work per commit grows with the interested subscriptions, not with all of them. Fairness: live
subscriptions read from memory; those behind get one page (500 rows or 256 kB) per turn, and two pages are
read at a time. Memory: besides the ring and the encoded events, the pages that slow readers have not taken
share a budget; the oldest is dropped first and read again when its reader returns.

Permissions: events of the log beyond `head`, the last admitted commit, are not delivered yet, because the
commits in between may revoke permissions or add topics to a channel.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass

from tidewire.access.principal import Principal
from tidewire.delivery.forms import EncodedEvents, WireForm
from tidewire.delivery.link import HubLink
from tidewire.delivery.ring import EventRing
from tidewire.delivery.shared_view import SharedView, SharedViews
from tidewire.delivery.sharing_filter import drop_unshared
from tidewire.delivery.subscription import Subscription
from tidewire.delivery.usage import REPORT_EVERY_S, EdgeUsage
from tidewire.errors import InternalError, PlatformError, ReplayIdExpired, ReplayIdInvalid, SessionInvalid
from tidewire.eventlog.log import LogPage
from tidewire.events import CommittedBatch, Event
from tidewire.matching.channel_values import ChannelGrant
from tidewire.schema.codec import EventSchema, compiled_schema

log = logging.getLogger(__name__)

PAGE_EVENTS = 500
PAGE_BYTES = 256 * 1024
_CONCURRENT_PAGES = 2
_SCHEMA_RETRY_S = 0.2
# Sharing can change without a notification to edges, so a page that the sharing filter has passed must
# expire.
_VISIBILITY_CACHE_S = 1.0
_MAX_ENDED = 10_000
_TOUCH_EVERY_S = 15.0  # well below the shortest session timeout that an org can set


@dataclass(frozen=True, slots=True)
class Replay:
    """Where a subscription starts. For the kind "time", `position` is a time in milliseconds."""

    kind: str
    position: int = 0


LATEST = Replay("latest")
EARLIEST = Replay("earliest")


def after(position: int) -> Replay:
    """Start strictly after `position`."""
    return Replay("after", position)


def nearest(position: int) -> Replay:
    """Start strictly after `position`, or at the oldest retained event if that is newer."""
    return Replay("nearest", position)


def at_time(time_ms: int) -> Replay:
    """Start with the first retained event at or after `time_ms`."""
    return Replay("time", time_ms)


class Hub:
    """One per org and edge. Call `start` before use and `close` at the end. All calls belong on the loop."""

    def __init__(
        self,
        link: HubLink,
        *,
        ring_bytes: int = 64 << 20,
        encoded_bytes: int = 32 << 20,
        pages_bytes: int = 32 << 20,
        visibility_cache_s: float = _VISIBILITY_CACHE_S,
    ) -> None:
        self._link = link
        self._ring_bytes = ring_bytes
        self._encoded = EncodedEvents(encoded_bytes)
        self._pages_bytes = pages_bytes
        self._visibility_cache_s = visibility_cache_s
        self._unread_bytes = 0
        # Upper bounds of the sizes of pages not taken yet, oldest first: dicts keep insertion order.
        self._unread_pages: dict[Subscription, int] = {}
        # Login sessions that ended recently. `subscribe` awaits the core, and the session may end meanwhile.
        self._ended_sessions: dict[str, None] = {}
        self._schemas: dict[str, EventSchema] = {}
        self._views = SharedViews()
        self._by_topic: dict[str, set[Subscription]] = {}
        self._all: set[Subscription] = set()
        self._generation = 0  # the newest access generation seen; grants of an older one are stale
        self._tasks: set[asyncio.Task[None]] = set()
        self._page_slots = asyncio.Semaphore(_CONCURRENT_PAGES)
        self._pending: deque[CommittedBatch] = deque()  # batches not admitted yet, oldest first
        self._is_started = False
        self._session_watchers: list[Callable[[str], None]] = []
        self._session_sources: list[Callable[[], Iterable[str]]] = []
        self._unwatch: Callable[[], None] | None = None
        self.usage = EdgeUsage(link)
        self.head = 0
        self.ring = EventRing(ring_bytes, 0)

    async def start(self) -> None:
        """Start following commits."""
        self._unwatch = self._link.watch_commits(self._arrive)
        # Read the head only after watching, or a commit in between would be missed. It is then both below the
        # head and pending, and `_admit` skips it. Until `_is_started` is set, batches queue up.
        self.head = await self._link.read_log_head()
        self.ring = EventRing(self._ring_bytes, self.head)
        self._is_started = True
        self._spawn(self._admit_pending())
        self._spawn(self._touch_forever())
        self._spawn(self._report_forever())

    def hold(self) -> None:
        """Queue all further commits, for tests that want subscribers to lag."""
        self._is_started = False

    def release(self) -> None:
        """Deliver the queued commits and resume."""
        if not self._is_started:
            self._is_started = True
            self._spawn(self._admit_pending())

    async def close(self) -> None:
        """Stop following commits. Subscriptions stay open."""
        if self._unwatch is not None:
            self._unwatch()
        self.usage.report()  # the deliveries since the last report
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def subscription_count(self) -> int:
        """The number of open subscriptions."""
        return len(self._all)

    def watch_sessions(self, ended: Callable[[str], None]) -> None:
        """Call `ended(session_id)` whenever a login session ends."""
        self._session_watchers.append(ended)

    def add_session_source(self, open_sessions: Callable[[], Iterable[str]]) -> None:
        """Add a source of login sessions that have clients connected without a subscription."""
        self._session_sources.append(open_sessions)

    def touch_sessions(self) -> None:
        """Keep the login sessions of all connected clients from expiring."""
        ids = {s.principal.session_id for s in self._all}
        for source in self._session_sources:
            ids.update(source())
        if ids:
            self._link.touch_sessions(frozenset(ids))

    async def _touch_forever(self) -> None:
        while True:
            await asyncio.sleep(_TOUCH_EVERY_S)
            self.touch_sessions()

    async def _report_forever(self) -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            self.usage.report()

    async def subscribe(
        self,
        principal: Principal,
        channel: str,
        api_version: float,
        replay: Replay,
        form: WireForm,
        wake: Callable[[], None],
    ) -> Subscription:
        """Subscribe a user to a channel.

        Raises ChannelUnknown, ChannelForbidden, ChannelInvalid, ReplayIdInvalid, ReplayIdExpired or
        SessionInvalid.
        """
        grant = await self._link.open_channel(principal, channel, api_version)
        if replay.kind == "latest":
            # A client that has seen a commit acknowledged and then subscribes to the tip must not get it. The
            # commit may still be pending here, so the tip is the newest batch that has arrived, admitted or
            # not.
            position = self._pending[-1].head if self._pending else self.head
        else:
            bounds = await self._link.read_log_bounds(grant.family)
            if replay.kind == "earliest":
                position = bounds.trimmed_through
            elif replay.kind == "time":
                found = await self._link.find_position_at(grant.family, replay.position)
                position = max(found, bounds.trimmed_through)
            elif replay.kind == "nearest" and replay.position < bounds.trimmed_through:
                position = bounds.trimmed_through
            else:
                position = replay.position
                if position < bounds.trimmed_through:
                    raise ReplayIdExpired(
                        f"replay id {position} is older than the retained events",
                        replay_id=position,
                        earliest=bounds.trimmed_through,
                    )
                if not await self._link.is_position_known(position):
                    raise ReplayIdInvalid(f"replay id {position} was never issued", replay_id=position)
        # From here on without an await: a session that ends now finds the subscription in `_all`.
        if principal.session_id in self._ended_sessions:
            raise SessionInvalid("Session expired or invalid")
        subscription = Subscription(self, principal, grant, api_version, position, form, wake)
        self._all.add(subscription)
        self._index(subscription)
        # Older: rights changed while the grant was on its way. Newer: the grant overtook its batch, and all
        # others are stale already.
        if grant.generation != self._generation:
            self._apply_generation(max(grant.generation, self._generation))
        try:
            await self.usage.generic_subscribers.add(grant, principal.user_id)
        except BaseException:
            subscription.close()
            raise
        return subscription

    def forget(self, subscription: Subscription) -> None:
        """Remove a closed subscription. Called by the subscription."""
        self._all.discard(subscription)
        self._uncount_page(subscription)
        self._unindex(subscription, subscription.grant.topics)
        self.usage.generic_subscribers.remove(subscription.grant, subscription.principal.user_id)

    def wake_later(self, subscription: Subscription) -> None:
        """Wake a subscription in the next turn of the loop. Called by the subscription."""
        asyncio.get_running_loop().call_soon(subscription.wake)

    def encode_run(self, events: Sequence[Event], view: SharedView, *, is_shared: bool) -> list[bytes]:
        """Encode events for a view. Their schemas were loaded when the events were admitted."""
        if is_shared:
            return self._encoded.encode_run(events, view.keys, view.form, self._schemas)
        # Enriched events differ per channel and moment under the same position, so they must not enter the
        # cache.
        keys, schemas, encode = view.keys, self._schemas, view.form.encode
        return [
            encode(event, key[1], key[2], schemas.get(event.schema_id)) if key is not None else b""
            for event, key in [(event, keys.get(event.topic)) for event in events]
        ]

    def view(self, grant: ChannelGrant, form: WireForm) -> SharedView:
        """Return the state that all subscriptions with this grant and form share."""
        return self._views.view(grant, form)

    def fill(self, subscription: Subscription) -> None:
        """Read one page for a subscription that the ring cannot serve, then wake it. Idempotent."""
        if not subscription.is_filling:
            subscription.is_filling = True
            self._spawn(self._fill_page(subscription))

    async def schema(self, schema_id: str) -> EventSchema:
        """Return a schema by id, from memory or from the core."""
        found = self._schemas.get(schema_id)
        if found is None:
            found = compiled_schema(await self._link.schema_json(schema_id))
            self._schemas[schema_id] = found
        return found

    def _index(self, subscription: Subscription) -> None:
        for topic in subscription.grant.topics:
            self._by_topic.setdefault(topic, set()).add(subscription)

    def _unindex(self, subscription: Subscription, topics: frozenset[str]) -> None:
        for topic in topics:
            readers = self._by_topic.get(topic)
            if readers is not None:
                readers.discard(subscription)
                if not readers:
                    del self._by_topic[topic]

    def _arrive(self, batch: CommittedBatch) -> None:
        """Called on the loop after each commit, before its writers are answered.

        Synchronous for nearly all batches, so a client that learns of its write finds the event delivered.
        Only a missing schema delays a batch, and those behind it.
        """
        if not self._is_started or self._pending:
            self._pending.append(batch)  # never overtake: batches are admitted in commit order
        elif self._schemas.keys() >= {event.schema_id for event in batch.events} - {""}:
            self._admit(batch)
        else:
            self._pending.append(batch)
            self._spawn(self._admit_pending())

    async def _admit_pending(self) -> None:
        while (batch := self._next_pending()) is not None:
            try:
                await self._load_schemas(batch.events)
            except PlatformError as error:
                # No event may be skipped: the batch, and all behind it, wait until the schema can be loaded.
                log.warning("delivery.schema_load_failed", extra={"code": error.code})
                await asyncio.sleep(_SCHEMA_RETRY_S)
                continue
            # Two of these tasks run if `release` is called while a schema is loading: the other may have been
            # faster.
            if self._next_pending() is batch:
                self._admit(self._pending.popleft())

    def _next_pending(self) -> CommittedBatch | None:
        return self._pending[0] if self._pending and self._is_started else None

    def _admit(self, batch: CommittedBatch) -> None:
        events = batch.events
        if events and events[0].position <= self.head:  # committed while the hub started, see `start`
            events = tuple(e for e in events if e.position > self.head)
        self.usage.commit_latency.add_commit(batch)
        touched = self.ring.append(events) | self.ring.mark_omitted(batch.omitted)
        self.head = max(self.head, batch.head)
        # Before anybody wakes: a subscription whose rights changed with this very commit must not deliver its
        # events under the old grant.
        if batch.access_generation > self._generation:
            self._apply_generation(batch.access_generation)
        for session_id in batch.ended_sessions:
            self._end_session(session_id)
        interested: set[Subscription] = set()  # a subscription that reads several topics wakes once
        for topic in touched:
            interested |= self._by_topic.get(topic, set())
        for subscription in interested:
            subscription.wake()

    def _apply_generation(self, generation: int) -> None:
        self._generation = generation
        for subscription in self._all:
            if subscription.grant.generation < generation and not subscription.is_stale:
                subscription.is_stale = True  # it delivers nothing until its grant is renewed
                self._spawn(self._renew_grant(subscription))

    def _end_session(self, session_id: str) -> None:
        self._ended_sessions[session_id] = None
        if len(self._ended_sessions) > _MAX_ENDED:
            del self._ended_sessions[next(iter(self._ended_sessions))]
        for subscription in [s for s in self._all if s.principal.session_id == session_id]:
            subscription.end(SessionInvalid("Session expired or invalid"))
        for watcher in self._session_watchers:
            watcher(session_id)

    async def _renew_grant(self, subscription: Subscription) -> None:
        grant = subscription.grant
        try:
            # Permissions may change again while the new grant is on its way.
            while grant.generation < self._generation:
                grant = await self._link.renew_channel(
                    subscription.principal, grant, subscription.api_version
                )
        except PlatformError as error:
            subscription.end(error)
            return
        except Exception:  # a subscription that is never woken again must not look alive
            log.exception("delivery.regrant_failed")
            subscription.end(InternalError("internal error"))
            return
        # Topics that were revoked leave the index, new ones enter it.
        self._unindex(subscription, subscription.grant.topics - grant.topics)
        subscription.renew_grant(grant)
        if not subscription.is_closed:
            self._index(subscription)
            subscription.wake()

    async def _fill_page(self, subscription: Subscription) -> None:
        grant = subscription.grant
        try:
            page = await self._next_page(grant, subscription.position)
            if page.through > self.head:  # the log is ahead of us, see the module's docstring
                page = LogPage(tuple(e for e in page.events if e.position <= self.head), self.head)
            # As late as possible: visibility is checked against the state just before delivery.
            if grant.sharing_filtered:
                events = await drop_unshared(self._link, subscription.principal, grant, page.events)
                page = LogPage(events, page.through)
            if grant.enriched:
                page = await self._link.enrich_page(grant, page)
            await self._load_schemas(page.events)
        except PlatformError as error:
            subscription.is_filling = False
            subscription.end(error)
            return
        except Exception:  # as above
            log.exception("delivery.fill_failed")
            subscription.is_filling = False
            subscription.end(InternalError("internal error"))
            return
        subscription.is_filling = False
        # The grant may have changed during the awaits above; a page of the older one may lack topics, or show
        # too much. It is dropped, and the wake below makes the subscription ask again.
        if subscription.grant is grant and not (subscription.is_stale or subscription.is_closed):
            subscription.offer_page(page.events, page.through)
            self._count_page(subscription, sum(len(event.payload) for event in page.events))
            if grant.sharing_filtered:
                asyncio.get_running_loop().call_later(
                    self._visibility_cache_s, subscription.drop_page, page.through
                )
        subscription.wake()

    def _count_page(self, subscription: Subscription, size_bytes: int) -> None:
        """Count an unread page against the budget, and drop the oldest ones beyond it."""
        self._uncount_page(subscription)
        self._unread_pages[subscription] = size_bytes
        self._unread_bytes += size_bytes
        # Never the last one: a reader whose page alone exceeds the budget would make no progress.
        while self._unread_bytes > self._pages_bytes and len(self._unread_pages) > 1:
            oldest = next(iter(self._unread_pages))
            self._uncount_page(oldest)
            oldest.drop_page()

    def _uncount_page(self, subscription: Subscription) -> None:
        self._unread_bytes -= self._unread_pages.pop(subscription, 0)

    async def _next_page(self, grant: ChannelGrant, position: int) -> LogPage:
        if self.ring.covers(grant.topics, position):
            events = tuple(self.ring.read_after(grant.topics, position, PAGE_EVENTS))
            # A full page may end before the head; anything less means that nothing is left up to the head.
            return LogPage(events, events[-1].position if len(events) == PAGE_EVENTS else self.head)
        # A thousand clients that resume at once queue here, not in the readers of the core.
        async with self._page_slots:
            return await self._link.read_log(grant.family, grant.topics, position, PAGE_EVENTS, PAGE_BYTES)

    async def _load_schemas(self, events: tuple[Event, ...]) -> None:
        for schema_id in {event.schema_id for event in events}.difference(self._schemas):
            if schema_id:
                await self.schema(schema_id)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("delivery.task_failed", exc_info=error)
