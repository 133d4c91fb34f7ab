"""The hub: knows who reads what, wakes them after each commit, and fetches what memory no longer holds.

Runs on the edge's loop. Work per commit grows with the subscriptions that are interested, not with all of
them. Fairness: live subscriptions are served from memory; those behind take one page (500 rows or 256 kB) per
turn, two pages being read at a time at most. Bounds: beside the ring and the encoded events, the pages that
slow readers have not taken yet share a budget; the oldest is forgotten first, and read again when its reader
comes back.

What the log holds beyond the last commit that was admitted here is left there: the commits in between may
take permissions away or add topics to a channel.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass

from tidewire.access.principal import Principal
from tidewire.delivery.forms import EncodedEvents, WireForm
from tidewire.delivery.link import ChannelGrant, CoreLink
from tidewire.delivery.ring import EventRing
from tidewire.delivery.shared_view import SharedView, SharedViews
from tidewire.delivery.sharing_filter import drop_unshared
from tidewire.delivery.subscription import Subscription
from tidewire.delivery.usage import REPORT_EVERY_S, EdgeUsage
from tidewire.errors import InternalError, PlatformError, ReplayIdExpired, ReplayIdInvalid, SessionInvalid
from tidewire.eventlog.log import LogPage
from tidewire.events import CommittedBatch, Event
from tidewire.schema.codec import EventSchema, compiled_schema

log = logging.getLogger(__name__)

PAGE_EVENTS = 500
PAGE_BYTES = 256 * 1024
_PAGES_AT_A_TIME = 2
_SCHEMA_RETRY_S = 0.2
_VISIBILITY_CACHE_S = (
    1.0  # sharing can change without a notification, so results of the sharing filter expire
)
_ENDED_KEPT = 10_000
_TOUCH_EVERY_S = 15.0  # well below the shortest idle time that an org can choose


@dataclass(frozen=True, slots=True)
class Replay:
    """Where a subscription starts: at the tip, at the oldest kept event, after a position, or at a time,
    which stands in place of the position.
    """

    kind: str
    position: int = 0


LATEST = Replay("latest")
EARLIEST = Replay("earliest")


def after(position: int) -> Replay:
    """Start strictly after `position`."""
    return Replay("after", position)


def nearest(position: int) -> Replay:
    """Start strictly after `position`, or at the oldest kept event if that is newer."""
    return Replay("nearest", position)


def at_time(time_ms: int) -> Replay:
    """Start with the first kept event from that time on."""
    return Replay("time", time_ms)


class Hub:
    """One per edge. `start` before use, `close` at the end."""

    def __init__(
        self,
        link: CoreLink,
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
        self._sifted_for_s = visibility_cache_s
        self._held_bytes = 0
        self._held: dict[Subscription, int] = {}  # sizes of pages, at most, oldest first
        self._ended: dict[str, None] = {}  # login sessions that ended of late, for those who are subscribing
        self._schemas: dict[str, EventSchema] = {}
        self._views = SharedViews()
        self._by_topic: dict[str, set[Subscription]] = {}
        self._all: set[Subscription] = set()
        self._generation = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._page_turns = asyncio.Semaphore(_PAGES_AT_A_TIME)
        self._waiting: deque[CommittedBatch] = deque()  # batches behind one whose schema is being fetched
        self._is_started = False
        self._session_watchers: list[Callable[[str], None]] = []
        self._session_sources: list[Callable[[], Iterable[str]]] = []
        self._unwatch: Callable[[], None] | None = None
        self.usage = EdgeUsage(link)
        self.head = 0
        self.ring = EventRing(ring_bytes, 0)

    async def start(self) -> None:
        """Begin to follow commits."""
        self._unwatch = self._link.watch_commits(self._arrive)
        # Asked after watching: what commits in between is both below this head and waiting, and is skipped.
        self.head = await self._link.read_log_head()
        self.ring = EventRing(self._ring_bytes, self.head)
        self._is_started = True
        self._spawn(self._admit_waiting())
        self._spawn(self._touch_forever())
        self._spawn(self._report_forever())

    def hold(self) -> None:
        """Let what commits from now on wait, for a test that wants its subscribers behind."""
        self._is_started = False

    def release(self) -> None:
        """Deliver what waited, and what follows."""
        if not self._is_started:
            self._is_started = True
            self._spawn(self._admit_waiting())

    async def close(self) -> None:
        """Stop following; ends no subscription by itself."""
        if self._unwatch is not None:
            self._unwatch()
        self.usage.report()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def subscription_count(self) -> int:
        """How many subscriptions are open."""
        return len(self._all)

    def watch_sessions(self, ended: Callable[[str], None]) -> None:
        """Call `ended(session_id)` whenever a login session ends."""
        self._session_watchers.append(ended)

    def add_session_source(self, open_sessions: Callable[[], Iterable[str]]) -> None:
        """Ask here too which login sessions have clients connected."""
        self._session_sources.append(open_sessions)

    def touch_sessions(self) -> None:
        """Keep the login sessions of everybody connected from expiring."""
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
        """Open a channel for a user.

        Raises ChannelUnknown, ChannelForbidden, ChannelInvalid, ReplayIdInvalid, ReplayIdExpired or
        SessionInvalid.
        """
        grant = await self._link.open_channel(principal, channel, api_version)
        if replay.kind == "latest":
            # Whoever was told of a commit and subscribes to the tip after that must not see it again.
            position = self._waiting[-1].head if self._waiting else self.head
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
                        f"replay id {position} is older than the log keeps",
                        replay_id=position,
                        earliest=bounds.trimmed_through,
                    )
                if not await self._link.is_position_known(position):
                    raise ReplayIdInvalid(f"replay id {position} was never given out", replay_id=position)
        if principal.session_id in self._ended:
            raise SessionInvalid("Session expired or invalid")
        subscription = Subscription(self, principal, grant, api_version, position, form, wake)
        self._all.add(subscription)
        self._index(subscription)
        if grant.generation != self._generation:
            self._note_generation(max(grant.generation, self._generation))
        try:
            await self.usage.generic_subscribers.add(grant, principal.user_id)
        except BaseException:
            subscription.close()
            raise
        return subscription

    def forget(self, subscription: Subscription) -> None:
        """Drop a closed subscription. Called by the subscription itself."""
        self._all.discard(subscription)
        self._unhold(subscription)
        self._unindex(subscription, subscription.grant.topics)
        self.usage.generic_subscribers.remove(subscription.grant, subscription.principal.user_id)

    def wake_later(self, subscription: Subscription) -> None:
        """Wake a subscription after the others have had their turn. Called by the subscription itself."""
        asyncio.get_running_loop().call_soon(subscription.wake)

    def encode_run(self, events: Sequence[Event], view: SharedView, *, is_shared: bool) -> list[bytes]:
        """The bytes of each event for a view; their schemas were loaded when they were admitted."""
        if is_shared:
            return self._encoded.encode_run(events, view.keys, view.form, self._schemas)
        keys, schemas, encode = view.keys, self._schemas, view.form.encode
        return [
            encode(event, key[1], key[2], schemas.get(event.schema_id)) if key is not None else b""
            for event, key in [(event, keys.get(event.topic)) for event in events]
        ]

    def view(self, grant: ChannelGrant, form: WireForm) -> SharedView:
        """What all subscriptions of this grant and form share."""
        return self._views.view(grant, form)

    def fill(self, subscription: Subscription) -> None:
        """Read one page for a subscription that memory cannot serve, then wake it."""
        if not subscription.is_filling:
            subscription.is_filling = True
            self._spawn(self._fill(subscription))

    async def schema(self, schema_id: str) -> EventSchema:
        """A schema by id, from memory or from core."""
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

        Only a schema that is not known yet makes a batch, and what follows it, wait.
        """
        if not self._is_started or self._waiting:
            self._waiting.append(batch)
        elif self._schemas.keys() >= {event.schema_id for event in batch.events} - {""}:
            self._admit(batch)
        else:
            self._waiting.append(batch)
            self._spawn(self._admit_waiting())

    async def _admit_waiting(self) -> None:
        while (batch := self._next_waiting()) is not None:
            try:
                await self._load_schemas(batch.events)
            except PlatformError as error:
                # Nothing may be skipped: the batch, and every subscriber, waits until the schema can be had.
                log.warning("delivery.schema_load_failed", extra={"code": error.code})
                await asyncio.sleep(_SCHEMA_RETRY_S)
                continue
            # Two of these run if a hold ends while a schema is fetched: the other one may have had its turn.
            if self._next_waiting() is batch:
                self._admit(self._waiting.popleft())

    def _next_waiting(self) -> CommittedBatch | None:
        return self._waiting[0] if self._waiting and self._is_started else None

    def _admit(self, batch: CommittedBatch) -> None:
        events = batch.events
        if events and events[0].position <= self.head:
            events = tuple(e for e in events if e.position > self.head)
        self.usage.commit_latency.add_commit(batch)
        touched = self.ring.append(events) | self.ring.leave_out(batch.omitted)
        self.head = max(self.head, batch.head)
        if batch.access_generation > self._generation:
            self._note_generation(batch.access_generation)
        for session_id in batch.ended_sessions:
            self._end_session(session_id)
        interested: set[Subscription] = set()
        for topic in touched:
            interested |= self._by_topic.get(topic, set())
        for subscription in interested:
            subscription.wake()

    def _note_generation(self, generation: int) -> None:
        self._generation = generation
        for subscription in self._all:
            if subscription.grant.generation < generation and not subscription.is_stale:
                subscription.is_stale = True
                self._spawn(self._regrant(subscription))

    def _end_session(self, session_id: str) -> None:
        self._ended[session_id] = None
        if len(self._ended) > _ENDED_KEPT:
            del self._ended[next(iter(self._ended))]
        for subscription in [s for s in self._all if s.principal.session_id == session_id]:
            subscription.end(SessionInvalid("Session expired or invalid"))
        for watcher in self._session_watchers:
            watcher(session_id)

    async def _regrant(self, subscription: Subscription) -> None:
        grant = subscription.grant
        try:
            # While the answer is on its way, permissions may change again.
            while grant.generation < self._generation:
                grant = await self._link.renew_channel(
                    subscription.principal, grant, subscription.api_version
                )
        except PlatformError as error:
            subscription.end(error)
            return
        except Exception:  # a subscription that nobody wakes again must not look alive
            log.exception("delivery.regrant_failed")
            subscription.end(InternalError("internal error"))
            return
        self._unindex(subscription, subscription.grant.topics - grant.topics)
        subscription.regrant(grant)
        if not subscription.is_closed:
            self._index(subscription)
            subscription.wake()

    async def _fill(self, subscription: Subscription) -> None:
        grant = subscription.grant
        try:
            page = await self._next_page(grant, subscription.position)
            if page.through > self.head:
                page = LogPage(tuple(e for e in page.events if e.position <= self.head), self.head)
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
        # A page for an older grant may lack topics that the newer one covers.
        if subscription.grant is grant and not (subscription.is_stale or subscription.is_closed):
            subscription.offer_page(page.events, page.through)
            self._hold(subscription, sum(len(event.payload) for event in page.events))
            if grant.sharing_filtered:
                asyncio.get_running_loop().call_later(
                    self._sifted_for_s, subscription.drop_page, page.through
                )
        subscription.wake()

    def _hold(self, subscription: Subscription, size_bytes: int) -> None:
        """Count a page that its reader has yet to take, and forget the oldest ones past the budget."""
        self._unhold(subscription)
        self._held[subscription] = size_bytes
        self._held_bytes += size_bytes
        while self._held_bytes > self._pages_bytes and len(self._held) > 1:
            oldest = next(iter(self._held))
            self._unhold(oldest)
            oldest.drop_page()

    def _unhold(self, subscription: Subscription) -> None:
        self._held_bytes -= self._held.pop(subscription, 0)

    async def _next_page(self, grant: ChannelGrant, position: int) -> LogPage:
        if self.ring.covers(grant.topics, position):
            events = tuple(self.ring.read_after(grant.topics, position, PAGE_EVENTS))
            return LogPage(events, events[-1].position if len(events) == PAGE_EVENTS else self.head)
        async with self._page_turns:
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
