"""The core of one org: its writer, records, capture and access, opened and closed together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from tidewire.access.logins import Logins
from tidewire.access.oauth import OAuth
from tidewire.access.user_logins import ensure_user_logins
from tidewire.capture.generic import CHANNEL_OBJECT
from tidewire.capture.stage import CaptureStage
from tidewire.capture.topic_rules import topic_limit
from tidewire.clock import Clock
from tidewire.config import Settings
from tidewire.crm.rules import RULES
from tidewire.delivery.allocations import Allocations, find_allocation
from tidewire.delivery.durable_clients import DurableClients
from tidewire.delivery.managed_positions import ManagedPositions
from tidewire.delivery.open_streams import OpenStreams
from tidewire.errors import ConfigInvalid, PlatformError
from tidewire.eventlog.backends import make_event_log
from tidewire.eventlog.log import EventLog, first_position_at
from tidewire.events import CommittedBatch, Family
from tidewire.gate.gate import Gate
from tidewire.gate.query_cursors import QueryCursors
from tidewire.gate.query_pages import CursorState
from tidewire.gate.recent_items import purge_recent_items
from tidewire.jobs.runner import JobRunner
from tidewire.jobs.service import BulkJobs
from tidewire.matching.channel_policy import ChannelPolicy
from tidewire.matching.generic import GenericStreaming
from tidewire.records.recycle_bin import purge_expired
from tidewire.records.service import RecordService
from tidewire.records.types import Types
from tidewire.schema.channels import EDITION_LIMITS, NO_LIMITS
from tidewire.server.backup import load_postgres
from tidewire.server.bootstrap import DEV_LOGIN, NewOrg, OrgIdentity, create_org, try_read_identity
from tidewire.server.front_ends import client_limits
from tidewire.storage.sqlite import SqliteStore
from tidewire.storage.store import Progress, Store, Transaction
from tidewire.storage.writer import GroupWriter

log = logging.getLogger(__name__)
_TRIM_EVERY_S = 600.0
_FLUSH_EVERY_S = 1.0


@dataclass(eq=False, kw_only=True)
class Core:
    """Made by `open_core`. All of it lives on one loop, the writer thread and the reader threads."""

    store: Store
    writer: GroupWriter
    records: RecordService
    log: EventLog
    capture: CaptureStage
    gate: Gate
    logins: Logins
    oauth: OAuth
    cursors: QueryCursors[CursorState]
    commits: CommitFeed
    jobs: BulkJobs
    job_runner: JobRunner
    generic: GenericStreaming
    allocations: Allocations
    durable_clients: DurableClients
    kept_hours: Mapping[Family, float]

    def __post_init__(self) -> None:
        self.managed = ManagedPositions(self.records, self.log)
        self.channel_policy = ChannelPolicy(self.gate, self.log, self.capture, self.generic)
        self.streams = OpenStreams(self.gate, self.log, self.managed, self.allocations, self.kept_hours)
        background = (
            self.job_runner.run_forever(),
            self.gate.recent_items.flush_forever(self.records),
            self._flush_forever(),
            self.durable_clients.flush_forever(),
        )
        self._tasks = [asyncio.create_task(work) for work in background]

    async def trim_forever(self, clock: Clock) -> None:
        """Call `trim` every few minutes until cancelled."""
        while True:
            await self.trim(clock)
            await asyncio.sleep(_TRIM_EVERY_S)

    async def trim(self, clock: Clock) -> None:
        """Delete expired events, recycled records, recent items, logins, jobs and durable clients."""
        now_ms = clock.now_ms()
        write = self.records.write_plain
        for family, kept_h in self.kept_hours.items():
            if kept_h > 0:
                before_ms = now_ms - round(kept_h * 3_600_000)
                trim = partial(self.log.trim, family=family, before_ms=before_ms)
                await self._try("eventlog.trim_failed", partial(write, trim, exclusive=True))
        await self._empty_old_bin(clock)
        purge_items = partial(purge_recent_items, now_ms=now_ms)
        await self._try("access.purge_failed", partial(write, purge_items, exclusive=True))
        await self._try("access.purge_failed", self.logins.purge)
        await self._try("jobs.purge_failed", self.jobs.purge)
        await self._try("access.purge_failed", self.durable_clients.purge)

    async def _try(self, failure: str, work: Callable[[], Awaitable[object]]) -> None:
        """Run maintenance work; a failure is logged, and the next round tries again."""
        try:
            await work()
        except PlatformError as error:
            log.warning(failure, extra={"code": error.code})

    async def _flush_forever(self) -> None:
        """Flush the usage counts every second until cancelled."""
        while True:
            await asyncio.sleep(_FLUSH_EVERY_S)
            await self._flush(self.allocations.flush)

    async def _flush(self, flush: Callable[[], Awaitable[None]]) -> None:
        # The org's files may have been moved away; its store must still be closed after this.
        try:
            await flush()
        except PlatformError as error:
            log.warning("access.flush_failed", extra={"code": error.code})
        except self.store.driver_errors as error:
            log.warning("access.flush_failed", extra={"code": type(error).__name__})

    async def _empty_old_bin(self, clock: Clock) -> None:
        """Purge expired records from the recycle bin, in bounded transactions."""
        types = self.records.types
        gone = 1
        while gone:
            try:
                gone = await self.records.write_plain(
                    lambda tx: purge_expired(tx, types.catalog, clock.now_ms()), exclusive=True
                )
            except PlatformError as error:
                log.warning("records.purge_failed", extra={"code": error.code})
                return

    async def close(self) -> None:
        """Finish queued writes and close the store. Jobs resume at the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self._flush(self.allocations.flush)
        await self._flush(self.durable_clients.flush)
        await self._flush(partial(self.gate.recent_items.flush, self.records))
        await asyncio.to_thread(self.writer.stop)
        await asyncio.to_thread(self.store.close)


class CommitFeed:
    """Passes committed batches from the writer thread to the watchers on the loop, in commit order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watchers: list[Callable[[CommittedBatch], None]] = []

    def watch(self, deliver: Callable[[CommittedBatch], None]) -> Callable[[], None]:
        """Call `deliver` on the loop after each commit; returns a function that stops it."""
        self._watchers.append(deliver)
        return lambda: self._watchers.remove(deliver)

    def on_commit(self, transactions: list[Transaction], progress: Progress) -> None:
        """Called by the writer on its thread after each commit."""
        batch = CommittedBatch(
            events=tuple(chain.from_iterable(tx.events for tx in transactions)),
            head=progress.next_position - 1,
            access_generation=progress.access_generation,
            ended_sessions=tuple(s for tx in transactions for s in tx.ended_sessions),
            omitted=tuple(left for tx in transactions for left in tx.omitted.items()),
            traces=tuple((tx.events[-1].position, tx.trace) for tx in transactions if tx.trace and tx.events),
        )
        self._loop.call_soon_threadsafe(self._deliver, batch)

    def _deliver(self, batch: CommittedBatch) -> None:
        for deliver in tuple(self._watchers):
            deliver(batch)


async def open_core(
    settings: Settings, clock: Clock, *, new: NewOrg | None = None, key_file: Path | None = None
) -> Core:
    """Open a store, and create its org if it has none.

    The new org is `new`, or has the development login in development mode. Raises ConfigInvalid if there is
    neither, or if `new` is given for a store that has an org. `key_file` signs id tokens; by default it is in
    the data directory.
    """
    first_position = settings.first_replay_id or first_position_at(clock.now_ms())
    store = await asyncio.to_thread(_open_store, settings, first_position)
    try:
        key_file = key_file or Path(settings.data) / "tls" / "token-key.pem"
        return await _open(store, settings, clock, new, key_file)
    except BaseException:
        store.close()
        raise


def _open_store(settings: Settings, first_position: int) -> Store:
    if settings.store == "sqlite":
        return SqliteStore(Path(settings.data) / "org.db", first_position)
    if not settings.store.startswith(("postgresql://", "postgres://")):
        raise ConfigInvalid("store must be sqlite or postgresql://...", setting="store")
    load_postgres()
    # Imported here: the driver is an extra that servers on SQLite do not need.
    from tidewire.storage.postgres import PostgresStore

    return PostgresStore(settings.store, first_position)


async def _open(store: Store, settings: Settings, clock: Clock, new: NewOrg | None, key_file: Path) -> Core:
    allocation = find_allocation(settings.edition)
    event_log = make_event_log()
    types = Types(event_log, RULES, NO_LIMITS if allocation is None else EDITION_LIMITS)
    commits = CommitFeed(asyncio.get_running_loop())
    writer = GroupWriter(store, commits.on_commit)
    stored_or_new = _stored_or_new(await store.read(try_read_identity), new, settings)
    await store.read(types.load)
    writer.start()
    records = RecordService(store, writer, types, clock)
    gate = Gate(records, event_log, clock, lambda: writer.progress.access_generation)
    capture = CaptureStage(
        event_log,
        types,
        max_topics=topic_limit(settings.edition),
        max_channels=None if allocation is None else allocation.channels,
        has_pilot_objects=settings.push_topic_pilot,
    )
    records.add_hook(gate.on_changes)
    records.add_hook(capture.on_changes)
    records.add_conversion_hook(capture.on_conversion)
    records.add_row_rule("PushTopic", capture.check_push_topic)
    records.add_row_rule(CHANNEL_OBJECT, capture.check_channel)
    identity = await _ensure_org(stored_or_new, records, clock, is_dev=settings.dev)
    await store.read(capture.load)
    logins = Logins(records, clock, identity.org_id, identity.name, idle_timeout_s=settings.session_timeout_s)
    logins.sessions.watcher = gate.monitor
    audiences = [a.strip() for a in settings.jwt_audience.split(",") if a.strip()]
    oauth = OAuth(records, logins, clock, key_file, audiences)
    cursors: QueryCursors[CursorState] = QueryCursors(clock)

    def end_sessions(batch: CommittedBatch) -> None:
        if not batch.ended_sessions:
            return
        logins.sessions.forget(batch.ended_sessions)
        for session_id in batch.ended_sessions:
            cursors.drop_session(session_id)

    commits.watch(end_sessions)
    allocations = Allocations(records, clock, client_limits(settings), settings.edition)
    await allocations.load()
    commits.watch(allocations.on_commit)
    gate.usage.quota = allocations
    job_runner = JobRunner(gate, clock, identity.org_id)
    jobs = BulkJobs(gate, clock, job_runner)
    return Core(
        store=store,
        writer=writer,
        records=records,
        log=event_log,
        capture=capture,
        gate=gate,
        logins=logins,
        oauth=oauth,
        cursors=cursors,
        commits=commits,
        jobs=jobs,
        job_runner=job_runner,
        generic=GenericStreaming(capture.channels, event_log, clock),
        allocations=allocations,
        durable_clients=DurableClients(records, clock),
        kept_hours={
            Family.PUSH_TOPIC: settings.retain_push_h,
            Family.GENERIC: settings.retain_push_h,
            Family.PLATFORM: settings.retain_bus_h,
            Family.CHANGE: settings.retain_bus_h,
        },
    )


def _stored_or_new(held: OrgIdentity | None, new: NewOrg | None, settings: Settings) -> OrgIdentity | NewOrg:
    """Return the org in the store, or the parameters of the one to create. Raises ConfigInvalid."""
    location = settings.data if settings.store == "sqlite" else "this schema of the store"
    if held is not None:
        if new is not None:
            raise ConfigInvalid(f"{location} already contains an org", setting="data")
        return held
    if new is not None:
        return new
    if not settings.dev:
        raise ConfigInvalid(
            f"{location} holds no org yet; run `tidewire init` first, or serve with --dev", setting="data"
        )
    return NewOrg(*DEV_LOGIN)


async def _ensure_org(
    org: OrgIdentity | NewOrg, records: RecordService, clock: Clock, *, is_dev: bool
) -> OrgIdentity:
    """Create the org, or upgrade an existing one to this release."""
    if isinstance(org, NewOrg):
        return await create_org(records, org, is_dev=is_dev)
    types = records.types

    def upgrade(tx: Transaction) -> None:
        types.ensure_stored(tx)
        ensure_user_logins(tx, types.catalog, clock.now_ms())

    await records.write_plain(upgrade, exclusive=True)
    return org
