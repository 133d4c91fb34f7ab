"""The orgs of a server: opened on use, closed when nobody has used them for a while.

Each open org has everything of its own: core, hub and front ends. Nothing below this module knows that there
are others, so what one org's callers can reach is that org. The first org is opened at the start and stays
open.

Theory of operation. A slot stands for every org known, open or not. Opening runs in a task of its own, which
those who wait share and none of them can cancel. While somebody uses an org, or has a session or a
subscription there, it stays open. Places are looked at again whenever a name or an id is asked for, and every
few seconds: an org that came is surveyed, one that went is closed at once.
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

_LOOK_EVERY_S = 2.0
_CLOSE_WAIT_S = 5.0
_REOPEN_AFTER_S = 5.0
_CURSOR_LIFE_S = 900.0  # open query cursors die with an org's core, so it outlives them


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
    uses: int = 0
    unused: asyncio.Event = field(default_factory=asyncio.Event)
    closers: set[Callable[[], None]] = field(default_factory=set)
    """Called when the org closes, for those who use it for long and can stop."""

    def is_idle(self, now_s: float, idle_s: float) -> bool:
        """Whether nobody would miss it."""
        has_clients = self.uses or (self.front is not None and self.front.is_busy)
        is_busy = has_clients or self.core.job_runner.is_busy
        limit_s = max(idle_s, _CURSOR_LIFE_S) if len(self.core.cursors) else idle_s
        return not is_busy and now_s - self.used_s > limit_s


@dataclass(eq=False, slots=True)
class _Slot:
    """An org that is known, open or not."""

    org_id: str
    settings: Settings
    client_ids: frozenset[str]
    cors_origins: tuple[str, ...] = ()
    has_jobs: bool = False  # batches wait, though nobody may come to open the org
    org: OpenOrg | None = None
    opening: asyncio.Task[OpenOrg] | None = None
    closing: asyncio.Task[None] | None = None
    failed_s: float | None = None


class Orgs:
    """All of one server's. `start` opens the first; `close` lets go of every one.

    Without `has_fronts` there is only the core of each: delivery and its front ends are in the edges.
    """

    def __init__(self, settings: Settings, clock: Clock, *, has_fronts: bool = True) -> None:
        self._settings = settings
        self._has_fronts = has_fronts
        self._clock = clock
        self._names = Usernames()
        self._slots: dict[str, _Slot] = {}
        self._stamp = 0
        self._unreadable: frozenset[str] = frozenset()
        self._look_turn = asyncio.Lock()
        self._housekeeper: asyncio.Task[None] | None = None
        self._is_closing = False
        self.first_id = ""
        self.failed = asyncio.Event()  # nothing can be written any more; a restart is the only way on

    async def start(self) -> None:
        """Open the first org and learn of the others. Raises ConfigInvalid or StoreLocked."""
        settings = self._settings
        core = await open_core(settings, self._clock)
        self.first_id = core.logins.org_id
        slot = self._slots[self.first_id] = _Slot(self.first_id, settings, frozenset())
        slot.org = await self._equip(core, slot)
        await self.look_around()
        self._housekeeper = asyncio.create_task(self._keep_house())

    async def close(self) -> None:
        """Close every org."""
        self._is_closing = True
        if self._housekeeper is not None:
            self._housekeeper.cancel()
        for slot in tuple(self._slots.values()):
            if slot.opening is not None:
                with suppress(PlatformError):
                    await slot.opening
            await self._close(slot)

    async def end_clients(self) -> None:
        """Answer what is held and end every stream, in all orgs. Later ones are told to come back."""
        self._is_closing = True
        for org in self.open_orgs:
            if org.front is not None:
                await org.front.end_clients()

    @property
    def open_orgs(self) -> list[OpenOrg]:
        """Those that are open now."""
        return [slot.org for slot in self._slots.values() if slot.org is not None]

    @property
    def known_ids(self) -> list[str]:
        """All org ids, the first org's first."""
        return list(self._slots)

    def cors_origins(self) -> tuple[str, ...]:
        """The origins that any org lists.

        A browser asks beforehand without a token, so nobody knows for which.
        """
        lists = (
            slot.cors_origins
            if slot.org is None
            else slot.org.core.records.types.settings.cors_allowed_origins
            for slot in self._slots.values()
        )
        return tuple(dict.fromkeys(origin for listed in lists for origin in listed))

    def try_known(self, token: str) -> str | None:
        """The org that a token, or a code that may be exchanged for one, claims to be of: the first if it
        claims none, None if it claims one that is not known yet.
        """
        org_id = _try_claimed(token[:16])
        if org_id is None:
            return self.first_id
        return org_id if org_id in self._slots else None

    async def find_by_token(self, token: str) -> str:
        """The org of a token, or the first if that is not here."""
        org_id = self.try_known(token)
        if org_id is None:
            await self.look_around()
            org_id = self.try_known(token)
        return org_id or self.first_id

    async def find_by_login(self, username: str, client_id: str | None = None) -> str:
        """The org in which a user signs in, through an app if there is one.

        A user of an org that does not have the app counts as unknown, and is refused as such by one that has
        it.
        """
        await self.look_around()
        owner = self._names.try_find(username) if username else None
        if client_id is None:
            return owner or self.first_id
        having = await self._with_client(client_id)
        return str(owner) if owner in having else next(iter(having), self.first_id)

    async def find_by_client(self, client_id: str, secret: str = "", *, prefers: str | None = None) -> str:
        """The org of a connected app; of several with the same id the one `prefers`, or whose secret it is."""
        await self.look_around()
        having = await self._with_client(client_id)
        if prefers in having:
            return str(prefers)
        if len(having) > 1 and secret:
            for org_id in having:
                async with self.using(org_id) as org:
                    try:
                        await org.core.oauth.check_app(client_id, secret)
                    except GrantInvalid:
                        continue
                    return org_id
        return next(iter(having), self.first_id)

    def try_open(self, org_id: str) -> OpenOrg | None:
        """The org if it is open: quicker than `using`, and good for as long as the loop is not given up."""
        slot = self._slots.get(org_id)
        if slot is None or slot.org is None:
            return None
        slot.org.used_s = self._clock.monotonic_s()
        return slot.org

    @asynccontextmanager
    async def using(self, org_id: str) -> AsyncIterator[OpenOrg]:
        """The org, opened if need be and kept open meanwhile.

        Raises StoreClosed, StoreLocked, ConfigInvalid or LogCorrupt if it cannot be had.
        """
        org = await self.enter(org_id)
        try:
            yield org
        finally:
            self.leave(org)

    async def enter(self, org_id: str) -> OpenOrg:
        """What `using` does first, for whoever is sure to `leave`."""
        slot = self._slots.get(org_id)
        org = slot.org if slot is not None else None
        if org is None:
            org = await self._ensure_open(org_id)
        org.uses += 1
        org.unused.clear()
        return org

    def leave(self, org: OpenOrg) -> None:
        """What `using` does last."""
        org.uses -= 1
        org.used_s = self._clock.monotonic_s()
        if not org.uses:
            org.unused.set()

    async def look_around(self) -> None:
        """Learn of orgs that came, and let go of those that went."""
        async with self._look_turn:
            stamp = await asyncio.to_thread(locations_stamp, self._settings)
            if stamp == self._stamp and stamp >= 0:
                return
            await self._look()
            self._stamp = stamp

    async def _look(self) -> None:
        known = frozenset(self._slots) - {self.first_id}
        came, unreadable, went = await asyncio.to_thread(_find_changes, self._settings, known)
        for org_id in unreadable - self._unreadable:
            log.warning("server.org_unreadable", extra={"org_id": org_id})
        self._unreadable = unreadable
        for inspection, settings in came:
            if inspection.org_id not in self._slots:
                self._slots[inspection.org_id] = _Slot(
                    inspection.org_id,
                    settings,
                    inspection.client_ids,
                    inspection.cors_origins,
                    inspection.has_jobs,
                )
                self._take_names(inspection.org_id, inspection.username_keys)
        for org_id in went:
            slot = self._slots.pop(org_id)
            self._names.drop_org(org_id)
            log.info("server.org_gone", extra={"org_id": org_id})
            if slot.org is not None:
                await self._close(slot)

    def _take_names(self, org_id: str, keys: frozenset[str]) -> None:
        taken = self._names.set_names(org_id, keys)
        if taken:
            log.warning("server.usernames_taken", extra={"org_id": org_id, "count": taken})

    async def _with_client(self, client_id: str) -> dict[str, None]:
        """The orgs that have an app of this id, in order."""
        having: dict[str, None] = {}
        for slot in tuple(self._slots.values()):
            if slot.org is None:
                has = client_id in slot.client_ids
            else:
                core = slot.org.core
                has = await core.records.read(lambda reader: try_read_app(reader, client_id)) is not None
            if has:
                having[slot.org_id] = None
        return having

    async def _ensure_open(self, org_id: str) -> OpenOrg:
        while True:
            slot = self._slots.get(org_id)
            if slot is not None and slot.org is not None:
                return slot.org
            if slot is None or self._is_closing:
                raise StoreClosed(UNAVAILABLE)
            if slot.closing is not None:
                await asyncio.wait([slot.closing])
                continue
            if slot.opening is None:
                slot.opening = asyncio.create_task(self._open(slot))
            await asyncio.shield(slot.opening)

    async def _open(self, slot: _Slot) -> OpenOrg:
        try:
            if slot.failed_s is not None:
                if self._clock.monotonic_s() - slot.failed_s < _REOPEN_AFTER_S:
                    raise StoreClosed("the org's store has failed; try again later")
                slot.failed_s = None
            key_file = Path(self._settings.data) / "tls" / "token-key.pem"
            try:
                core = await open_core(slot.settings, self._clock, key_file=key_file)
            except PlatformError as error:
                log.error("server.org_open_failed", extra={"org_id": slot.org_id, "code": error.code})  # noqa: TRY400
                raise
            slot.org = await self._equip(core, slot)
            counters["server.orgs_opened"] += 1
            return slot.org
        finally:
            slot.opening = None

    async def _equip(self, core: Core, slot: _Slot) -> OpenOrg:
        """Put around a core what clients meet."""
        settings, clock, is_first = slot.settings, self._clock, slot.org_id == self.first_id
        loop = asyncio.get_running_loop()
        self._take_names(slot.org_id, frozenset(await core.store.read(read_username_keys)))
        core.records.add_hook(self._names.follow(slot.org_id))
        http = CoreHttp(
            core, clock, is_dev=settings.dev, is_first=is_first, pipeline_dir=settings.pipeline_dir
        )
        link = LocalLink(core, http.answer)
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
        core.commits.watch(partial(self._note_commit, org))
        core.writer.watch_failure(partial(loop.call_soon_threadsafe, self._fail, slot, org))
        return org

    def _note_commit(self, org: OpenOrg, batch: CommittedBatch) -> None:
        if batch.events or batch.omitted:  # housekeeping commits too, and is no use
            org.used_s = self._clock.monotonic_s()

    def _fail(self, slot: _Slot, org: OpenOrg) -> None:
        """An org's writer has stopped for good. Alone, the server stops; otherwise the others go on."""
        log.error("server.org_failed", extra={"org_id": slot.org_id})
        if len(self._slots) == 1:
            self.failed.set()
        elif slot.org is org:
            slot.failed_s = self._clock.monotonic_s()
            self._begin_close(slot)

    async def replace_first(self, settings: Settings) -> None:
        """End the first org's clients and go on with the copy of it that these settings name, for test
        servers.
        """
        slot = self._slots[self.first_id]
        slot.settings = settings
        await self._close(slot)
        await self._ensure_open(self.first_id)

    async def renew_front(self) -> None:
        """End the first org's streaming clients, who may come back at once, for test servers."""
        slot = self._slots[self.first_id]
        org = slot.org
        if org is None or org.front is None:
            return
        old, link = org.front, org.link.for_edge()
        org.front = await open_front(link, slot.settings, self._clock, org.http.needs_https, is_first=True)
        await old.end_clients()
        await old.hub.close()
        org.link.close()
        org.link = link

    async def close_idle(self) -> None:
        """Close every org but the first that nobody has used for a while."""
        now_s, idle_s = self._clock.monotonic_s(), self._settings.org_idle_s
        for slot in tuple(self._slots.values()):
            org = slot.org
            if org is not None and slot.org_id != self.first_id and org.is_idle(now_s, idle_s):
                await self._close(slot)

    async def _resume_jobs(self) -> None:
        """Open every org that has a job to go on with; it closes again some time after that."""
        for slot in tuple(self._slots.values()):
            if slot.has_jobs:
                slot.has_jobs = False
                try:
                    async with self.using(slot.org_id):
                        log.info("server.jobs_resumed", extra={"org_id": slot.org_id})
                except PlatformError as error:
                    log.warning("server.jobs_not_resumed", extra={"org_id": slot.org_id, "code": error.code})

    async def _keep_house(self) -> None:
        while True:
            await self._resume_jobs()
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                async with self._look_turn:
                    await self._look()
            except (PlatformError, OSError):
                log.exception("server.places_unreadable")
            await self.close_idle()

    async def _close(self, slot: _Slot) -> None:
        self._begin_close(slot)
        if slot.closing is not None:
            await asyncio.wait([slot.closing])

    def _begin_close(self, slot: _Slot) -> None:
        org, slot.org = slot.org, None
        if org is not None:
            slot.closing = asyncio.create_task(self._shut(slot, org))

    async def _shut(self, slot: _Slot, org: OpenOrg) -> None:
        """End an org's clients, then its core. Nobody can begin to use it any more."""
        try:
            org.trimmer.cancel()
            if org.front is not None:
                await org.front.end_clients()
            for closer in tuple(org.closers):
                closer()
            if org.uses:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_CLOSE_WAIT_S):
                        await org.unused.wait()
            with suppress(PlatformError, *org.core.store.driver_errors):
                slot.client_ids = await org.core.store.read(read_client_ids)
                slot.cors_origins = org.core.records.types.settings.cors_allowed_origins
            if org.front is not None:
                await org.front.hub.close()
            await org.core.close()
            counters["server.orgs_closed"] += 1
        except Exception:
            # An org that vanished from the disk may close badly; the others must not feel it.
            log.exception("server.org_close_failed", extra={"org_id": slot.org_id})
        finally:
            slot.closing = None


@lru_cache(maxsize=256)
def _try_claimed(lead: str) -> str | None:
    """The org id in the first sixteen characters of a token or code."""
    return try_normalise_id(lead[:15]) if lead[15:] in ("!", ".") else None


def _find_changes(
    settings: Settings, known: frozenset[str]
) -> tuple[list[tuple[OrgInspection, Settings]], frozenset[str], list[str]]:
    """Orgs that are not known yet, those that cannot be read, and known ones that are gone.

    Runs off the loop.
    """
    listed = list_additional_orgs(settings)
    came, unreadable = [], set()
    for org_id in listed:
        if org_id in known:
            continue
        place = additional_org_settings(settings, org_id)
        inspection = try_inspect_org(place)
        if inspection is None or inspection.org_id != org_id:
            unreadable.add(org_id)
        else:
            came.append((inspection, place))
    return came, frozenset(unreadable), sorted(known.difference(listed))
