"""The orgs of a server: opened on use, closed when idle.

Each open org has its own core, hub and front ends. Nothing below this module knows that there are others, so
callers of one org cannot reach another. The first org is opened at the start and stays open.

Theory of operation. There is a slot for every known org, open or not. A slot is closed, opening, open or
closing:

    closed  --_ensure_open-->  opening  --_open-->  open  --_begin_close-->  closing  --_shut_down-->  closed

Opening and closing are tasks: all callers that need the org wait for the same task, and none of them can
cancel it. An org stays open while it is in use, or has a session, a subscription or a running job. The
locations of orgs are read again whenever a name or an id is looked up, and every few seconds: a new org gets
a slot, a removed one is closed at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

from tidewire.access.apps import try_read_app
from tidewire.clock import Clock
from tidewire.config import Settings
from tidewire.errors import GrantInvalid, PlatformError, StoreClosed
from tidewire.events import CommittedBatch
from tidewire.ids import try_normalise_id
from tidewire.server.core import Core, open_core
from tidewire.server.core_http import CoreHttp
from tidewire.server.front_ends import UNAVAILABLE
from tidewire.server.link import LocalLink
from tidewire.server.org_front import OrgFront, open_front
from tidewire.server.org_locations import (
    OrgInspection,
    additional_org_settings,
    list_additional_orgs,
    locations_stamp,
    read_client_ids,
    try_inspect_org,
)
from tidewire.server.usernames import Usernames, read_username_keys
from tidewire.telemetry import counters

log = logging.getLogger(__name__)

_REFRESH_EVERY_S = 2.0
_CLOSE_WAIT_S = 5.0
_REOPEN_AFTER_S = 5.0  # after a failure of its store
_CURSOR_LIFE_S = (
    900.0  # query cursors are lost when an org closes, so it stays open at least this long for them
)


@dataclass(eq=False, slots=True)
class OpenOrg:
    """One org while it is open."""

    org_id: str
    core: Core
    http: CoreHttp
    link: LocalLink
    front: OrgFront | None
    trimmer: asyncio.Task[None]
    used_s: float
    uses: int = 0  # requests and streams under way; 0 sets `unused`
    unused: asyncio.Event = field(default_factory=asyncio.Event)
    closers: set[Callable[[], None]] = field(default_factory=set)
    """Called when the org closes, so that long-running users of it can stop."""

    def is_idle(self, now_s: float, idle_s: float) -> bool:
        """Whether it can be closed."""
        has_clients = self.uses or (self.front is not None and self.front.is_busy)
        is_busy = has_clients or self.core.job_runner.is_busy
        limit_s = max(idle_s, _CURSOR_LIFE_S) if len(self.core.cursors) else idle_s
        return not is_busy and now_s - self.used_s > limit_s


@dataclass(eq=False, slots=True)
class _Slot:
    """A known org, open or not."""

    org_id: str
    settings: Settings
    # What requests need to know while the org is closed.
    client_ids: frozenset[str]
    cors_origins: tuple[str, ...] = ()
    has_jobs: bool = False  # unfinished batches, which must run although no request opens the org
    org: OpenOrg | None = None
    opening: asyncio.Task[OpenOrg] | None = None
    closing: asyncio.Task[None] | None = None
    failed_s: float | None = None


class Orgs:
    """All orgs of one server. `start` opens the first one; `close` closes all. Implements `OrgDirectory`.

    Without `has_fronts` each org has only its core: hubs and their front ends are in the edges.
    """

    def __init__(self, settings: Settings, clock: Clock, *, has_fronts: bool = True) -> None:
        self._settings = settings
        self._has_fronts = has_fronts
        self._clock = clock
        self._names = Usernames()
        self._slots: dict[str, _Slot] = {}
        self._stamp = 0
        self._unreadable: frozenset[str] = frozenset()
        self._refreshing = asyncio.Lock()
        self._maintenance: asyncio.Task[None] | None = None
        self._is_closing = False
        self.first_id = ""
        self.failed = asyncio.Event()  # the only org cannot write any more; only a restart helps

    async def start(self) -> None:
        """Open the first org and find the others. Raises ConfigInvalid or StoreLocked."""
        settings = self._settings
        core = await open_core(settings, self._clock)
        self.first_id = core.logins.org_id
        slot = self._slots[self.first_id] = _Slot(self.first_id, settings, frozenset())
        slot.org = await self._make_open_org(core, slot)
        await self.refresh()
        self._maintenance = asyncio.create_task(self._maintain())

    async def close(self) -> None:
        """Close all orgs."""
        self._is_closing = True
        if self._maintenance is not None:
            self._maintenance.cancel()
        for slot in tuple(self._slots.values()):
            if slot.opening is not None:
                with suppress(PlatformError):
                    await slot.opening
            await self._close(slot)

    async def end_clients(self) -> None:
        """Answer all held requests and end all streams, in all orgs. Later clients are told to retry."""
        self._is_closing = True
        for org in self.open_orgs:
            if org.front is not None:
                await org.front.end_clients()

    @property
    def open_orgs(self) -> list[OpenOrg]:
        """The open orgs."""
        return [slot.org for slot in self._slots.values() if slot.org is not None]

    @property
    def known_ids(self) -> list[str]:
        """The ids of all orgs, beginning with the first org."""
        return list(self._slots)

    def cors_origins(self) -> tuple[str, ...]:
        """Return the CORS origins that any org allows.

        A browser's preflight carries no token, so its org is unknown.
        """
        lists = (
            slot.cors_origins
            if slot.org is None
            else slot.org.core.records.types.settings.cors_allowed_origins
            for slot in self._slots.values()
        )
        return tuple(dict.fromkeys(origin for listed in lists for origin in listed))

    def try_known(self, token: str) -> str | None:
        """Return the org that a token names: the first if it names none, None if it is unknown."""
        org_id = _try_claimed(token[:16])
        if org_id is None:
            return self.first_id
        return org_id if org_id in self._slots else None

    async def find_by_token(self, token: str) -> str:
        """See `OrgDirectory`."""
        org_id = self.try_known(token)
        if org_id is None:
            await self.refresh()
            org_id = self.try_known(token)
        return org_id or self.first_id

    async def find_by_login(self, username: str, client_id: str | None = None) -> str:
        """See `OrgDirectory`.

        A user whose org does not have the app counts as unknown, and is rejected by an org that has it.
        """
        await self.refresh()
        owner = self._names.try_find(username) if username else None
        if client_id is None:
            return owner or self.first_id
        candidates = await self._orgs_with_client(client_id)
        return str(owner) if owner in candidates else next(iter(candidates), self.first_id)

    async def find_by_client(self, client_id: str, secret: str = "", *, prefers: str | None = None) -> str:
        """See `OrgDirectory`."""
        await self.refresh()
        candidates = await self._orgs_with_client(client_id)
        if prefers in candidates:
            return str(prefers)
        if len(candidates) > 1 and secret:
            # Orgs choose the ids of their apps themselves, so only the secret tells equal ids apart.
            for org_id in candidates:
                async with self.using(org_id) as org:
                    try:
                        await org.core.oauth.check_app(client_id, secret)
                    except GrantInvalid:
                        continue
                    return org_id
        return next(iter(candidates), self.first_id)

    def try_open(self, org_id: str) -> OpenOrg | None:
        """Return the org if it is open. Faster than `using`, but valid only until the next await."""
        slot = self._slots.get(org_id)
        if slot is None or slot.org is None:
            return None
        slot.org.used_s = self._clock.monotonic_s()
        return slot.org

    @asynccontextmanager
    async def using(self, org_id: str) -> AsyncIterator[OpenOrg]:
        """Return the org, opened if necessary, and keep it open meanwhile.

        Raises StoreClosed, StoreLocked, ConfigInvalid or LogCorrupt if it is unavailable.
        """
        org = await self.enter(org_id)
        try:
            yield org
        finally:
            self.leave(org)

    async def enter(self, org_id: str) -> OpenOrg:
        """The first half of `using`; the caller must call `leave`. Cheaper on the path of every request."""
        slot = self._slots.get(org_id)
        org = slot.org if slot is not None else None
        if org is None:
            org = await self._ensure_open(org_id)
        # No await since the org was found open: it cannot begin to close in between.
        org.uses += 1
        org.unused.clear()
        return org

    def leave(self, org: OpenOrg) -> None:
        """The second half of `using`."""
        org.uses -= 1
        org.used_s = self._clock.monotonic_s()
        if not org.uses:
            org.unused.set()

    async def refresh(self) -> None:
        """Add orgs that are new on disk, and close those that were removed."""
        # One at a time: both would add the same org, and one would lose its state.
        async with self._refreshing:
            # The stamp is read before the locations: an org that appears in between is found by the next
            # refresh.
            stamp = await asyncio.to_thread(locations_stamp, self._settings)
            if stamp == self._stamp and stamp >= 0:
                return
            await self._refresh()
            self._stamp = stamp

    async def _refresh(self) -> None:
        known = frozenset(self._slots) - {self.first_id}
        added, unreadable, removed = await asyncio.to_thread(_find_changes, self._settings, known)
        for org_id in unreadable - self._unreadable:  # logged once, not every few seconds
            log.warning("server.org_unreadable", extra={"org_id": org_id})
        self._unreadable = unreadable
        for inspection, settings in added:
            if inspection.org_id not in self._slots:
                self._slots[inspection.org_id] = _Slot(
                    inspection.org_id,
                    settings,
                    inspection.client_ids,
                    inspection.cors_origins,
                    inspection.has_jobs,
                )
                self._set_names(inspection.org_id, inspection.username_keys)
        for org_id in removed:
            slot = self._slots.pop(org_id)
            self._names.drop_org(org_id)
            log.info("server.org_gone", extra={"org_id": org_id})
            if slot.org is not None:
                await self._close(slot)

    def _set_names(self, org_id: str, keys: frozenset[str]) -> None:
        taken = self._names.set_names(org_id, keys)
        if taken:
            log.warning("server.usernames_taken", extra={"org_id": org_id, "count": taken})

    async def _orgs_with_client(self, client_id: str) -> dict[str, None]:
        """Return the orgs that have an app with this id, in order."""
        candidates: dict[str, None] = {}
        for slot in tuple(self._slots.values()):
            if slot.org is None:
                has = (
                    client_id in slot.client_ids
                )  # as of when it was closed; only its own core could change them
            else:
                core = slot.org.core
                has = await core.records.read(lambda reader: try_read_app(reader, client_id)) is not None
            if has:
                candidates[slot.org_id] = None
        return candidates

    async def _ensure_open(self, org_id: str) -> OpenOrg:
        while True:
            slot = self._slots.get(org_id)
            if slot is not None and slot.org is not None:
                return slot.org
            if slot is None or self._is_closing:
                raise StoreClosed(UNAVAILABLE)
            if slot.closing is not None:
                # Two cores on one store would fight for its lock. `wait` does not raise what the task raised.
                await asyncio.wait([slot.closing])
                continue
            if slot.opening is None:
                slot.opening = asyncio.create_task(self._open(slot))
            # Shielded: the caller may be cancelled, but others wait for the same org. The loop then looks
            # again, because the org may have failed or closed before this task runs.
            await asyncio.shield(slot.opening)

    async def _open(self, slot: _Slot) -> OpenOrg:
        try:
            if slot.failed_s is not None:
                # A full or broken disk fails again at once: callers must not make us reopen in a tight loop.
                if self._clock.monotonic_s() - slot.failed_s < _REOPEN_AFTER_S:
                    raise StoreClosed("The org's store has failed; retry in a few seconds")
                slot.failed_s = None
            key_file = Path(self._settings.data) / "tls" / "token-key.pem"
            try:
                core = await open_core(slot.settings, self._clock, key_file=key_file)
            except PlatformError as error:
                log.error("server.org_open_failed", extra={"org_id": slot.org_id, "code": error.code})  # noqa: TRY400
                raise
            slot.org = await self._make_open_org(core, slot)
            counters["server.orgs_opened"] += 1
            return slot.org
        finally:
            slot.opening = None

    async def _make_open_org(self, core: Core, slot: _Slot) -> OpenOrg:
        """Open front ends for a core."""
        settings, clock, is_first = slot.settings, self._clock, slot.org_id == self.first_id
        loop = asyncio.get_running_loop()
        self._set_names(slot.org_id, frozenset(await core.store.read(read_username_keys)))
        core.records.add_hook(self._names.follow(slot.org_id))
        http = CoreHttp(
            core, clock, is_dev=settings.dev, is_first=is_first, pipeline_dir=settings.pipeline_dir
        )
        link = LocalLink(core)
        front = None
        if self._has_fronts:
            front = await open_front(link, settings, clock, http.needs_https, is_first=is_first)
        org = OpenOrg(
            slot.org_id,
            core,
            http,
            link,
            front,
            asyncio.create_task(core.trim_forever(clock)),
            clock.monotonic_s(),
        )
        core.commits.watch(partial(self._mark_used, org))
        core.writer.watch_failure(partial(loop.call_soon_threadsafe, self._fail, slot, org))
        return org

    def _mark_used(self, org: OpenOrg, batch: CommittedBatch) -> None:
        if batch.events or batch.omitted:  # maintenance commits too, and must not keep the org open
            org.used_s = self._clock.monotonic_s()

    def _fail(self, slot: _Slot, org: OpenOrg) -> None:
        """Handle a writer that has stopped for good: close the org, or stop the server if it is the only one."""
        log.error("server.org_failed", extra={"org_id": slot.org_id})
        if len(self._slots) == 1:
            self.failed.set()
        elif slot.org is org:  # otherwise it has been closed and reopened meanwhile
            slot.failed_s = self._clock.monotonic_s()
            self._begin_close(slot)

    async def replace_first(self, settings: Settings) -> None:
        """Replace the first org by the copy that these settings name, for test servers."""
        slot = self._slots[self.first_id]
        slot.settings = settings
        await self._close(slot)
        await self._ensure_open(self.first_id)

    async def renew_front(self) -> None:
        """End the first org's streaming clients, which may reconnect at once, for test servers."""
        slot = self._slots[self.first_id]
        org = slot.org
        if org is None or org.front is None:
            return
        old, link = org.front, LocalLink(org.core)
        org.front = await open_front(link, slot.settings, self._clock, org.http.needs_https, is_first=True)
        await old.end_clients()
        await old.hub.close()
        org.link.close()
        org.link = link

    async def close_idle(self) -> None:
        """Close idle orgs, except the first."""
        now_s, idle_s = self._clock.monotonic_s(), self._settings.org_idle_s
        for slot in tuple(self._slots.values()):
            org = slot.org
            if org is not None and slot.org_id != self.first_id and org.is_idle(now_s, idle_s):
                await self._close(slot)

    async def _resume_jobs(self) -> None:
        """Open every org with an unfinished job, which resumes it; the org closes again when idle."""
        for slot in tuple(self._slots.values()):
            if slot.has_jobs:
                slot.has_jobs = False
                try:
                    async with self.using(slot.org_id):
                        log.info("server.jobs_resumed", extra={"org_id": slot.org_id})
                except PlatformError as error:
                    log.warning("server.jobs_not_resumed", extra={"org_id": slot.org_id, "code": error.code})

    async def _maintain(self) -> None:
        while True:
            await self._resume_jobs()
            await asyncio.sleep(_REFRESH_EVERY_S)
            try:
                async with self._refreshing:
                    await self._refresh()
            except (PlatformError, OSError):
                log.exception("server.places_unreadable")  # the data directory may be back in a moment
            await self.close_idle()

    async def _close(self, slot: _Slot) -> None:
        self._begin_close(slot)
        if slot.closing is not None:
            await asyncio.wait([slot.closing])

    def _begin_close(self, slot: _Slot) -> None:
        org, slot.org = slot.org, None
        if org is not None:
            slot.closing = asyncio.create_task(self._shut_down(slot, org))

    async def _shut_down(self, slot: _Slot, org: OpenOrg) -> None:
        """End an org's clients, then its core. `slot.org` is None already, so nobody can start using it."""
        try:
            org.trimmer.cancel()
            # Held polls and streams first: each of them counts as a use, and would wait for hours.
            if org.front is not None:
                await org.front.end_clients()
            for closer in tuple(org.closers):
                closer()
            if org.uses:
                with suppress(
                    TimeoutError
                ):  # requests under way get their answer; a stuck one fails with the store
                    async with asyncio.timeout(_CLOSE_WAIT_S):
                        await org.unused.wait()
            # Requests for the closed org are still routed by these. The store may be gone, then they stay as
            # they were.
            with suppress(PlatformError, *org.core.store.driver_errors):
                slot.client_ids = await org.core.store.read(read_client_ids)
                slot.cors_origins = org.core.records.types.settings.cors_allowed_origins
            # The hub before the core: its last report is a write.
            if org.front is not None:
                await org.front.hub.close()
            await org.core.close()
            counters["server.orgs_closed"] += 1
        except Exception:
            # An org whose files were deleted may fail to close; the others must not be affected.
            log.exception("server.org_close_failed", extra={"org_id": slot.org_id})
        finally:
            slot.closing = None


@lru_cache(maxsize=256)
def _try_claimed(lead: str) -> str | None:
    """Return the org id in the first 16 characters of a token or code."""
    return try_normalise_id(lead[:15]) if lead[15:] in ("!", ".") else None


def _find_changes(
    settings: Settings, known: frozenset[str]
) -> tuple[list[tuple[OrgInspection, Settings]], frozenset[str], list[str]]:
    """Find orgs that are new, unreadable or removed. Blocks: call it off the loop."""
    listed = list_additional_orgs(settings)
    added, unreadable = [], set()
    for org_id in listed:
        if org_id in known:
            continue
        location = additional_org_settings(settings, org_id)
        inspection = try_inspect_org(location)
        if inspection is None or inspection.org_id != org_id:
            unreadable.add(org_id)
        else:
            added.append((inspection, location))
    return added, frozenset(unreadable), sorted(known.difference(listed))
