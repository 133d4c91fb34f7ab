"""Login sessions: start, lookup by token, expiry and end.

Lifetimes. A session lives until it has not been used for `seconds_valid` (an org setting, two hours by default); it has
no fixed end. It also ends by a commit: logout, revocation, a new password, a frozen or deactivated user, a deleted app.
Sessions are durable, so a client that signed in before a crash continues after it. Only the hash of a token is stored.

Memory is an LRU cache in front of the table `login_sessions`. The time of last use changes in memory with every
request and is written back every few minutes, so a crash can only make a session expire a few minutes early. Ended
sessions travel the other way: `Transaction.ended_sessions` names them, and after the commit the loop calls `forget`,
here and in every front end.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from tidewire.access.passwords import draw_token, hash_token
from tidewire.access.principal import Principal
from tidewire.access.scopes import opens_api, parse_scopes, render_scopes
from tidewire.clock import Clock
from tidewire.errors import PlatformError, SessionInvalid
from tidewire.records.service import RecordService
from tidewire.records.table import read_rows, try_read_row
from tidewire.storage.store import Reader, Transaction

MAX_LIVE = 20_000
_TOUCH_EVERY_MS = 300_000  # how often a session in use is written back
_PURGE_AT_ONCE = 1_000  # sessions per transaction, so that purging never holds up the writer for long
_COLUMNS = "session_id, user_id, kind, client_id, scopes, peer, grant_id, started_ms, used_ms"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a session comes from: protocol, address, app and authorization, and the scopes it was given."""

    kind: str
    peer: str
    scopes: frozenset[str]
    client_id: str = ""
    grant_id: str = ""


@dataclass(frozen=True, slots=True)
class SessionEntry:
    """One session as administrators see it."""

    session_id: str
    user_id: str
    username: str
    origin: Origin
    started_ms: int
    used_ms: int


@dataclass(slots=True)
class _Live:
    """A cached session. `used_ms` is the last use, `stored_ms` the last use that was written back."""

    principal: Principal
    origin: Origin
    started_ms: int
    used_ms: int
    stored_ms: int

    def entry(self) -> SessionEntry:
        principal = self.principal
        return SessionEntry(
            principal.session_id,
            principal.user_id,
            principal.username,
            self.origin,
            self.started_ms,
            self.used_ms,
        )


class SessionWatcher(Protocol):
    """Records logins and logouts, inside their transactions."""

    def note_login(
        self, tx: Transaction, principal: Principal, origin: Origin, error: PlatformError | None
    ) -> None:
        """Record a login, or a rejected one with its error."""

    def note_logout(self, tx: Transaction, principal: Principal, peer: str) -> None:
        """Record that a user ended one of their sessions."""


class Sessions:
    """One org's login sessions."""

    def __init__(
        self,
        records: RecordService,
        clock: Clock,
        org_id: str,
        seconds_valid: Callable[[], int],
        max_live: int = MAX_LIVE,
    ) -> None:
        self._records = records
        self._clock = clock
        self._org_id = org_id
        self._seconds_valid = seconds_valid
        self._max_live = max_live
        self._live: OrderedDict[str, _Live] = OrderedDict()  # by token hash, least recently used first
        self._hashes: dict[str, str] = {}  # session id to token hash, for calls that know only the id
        self._ends = 0  # counts calls of `forget`; see `_find`
        self._background: set[asyncio.Future[None]] = set()
        self.watcher: SessionWatcher | None = None

    def __len__(self) -> int:
        return len(self._live)

    async def start(
        self,
        user_id: str,
        username: str,
        origin: Origin,
        check: Callable[[Transaction], PlatformError | None],
    ) -> tuple[str, Principal]:
        """Start a session and return its token, which is not stored and cannot be shown again.

        `check` runs in the transaction that stores the session. If it returns an error, no session is stored, and the
        error is raised after the commit: what `check` wrote, such as a failure count, must be durable by then.
        """
        token = draw_token(self._org_id)
        token_hash = hash_token(token)
        principal = Principal(self._org_id, user_id, username, str(uuid.uuid4()))
        now_ms = self._clock.now_ms()

        def work(tx: Transaction) -> PlatformError | None:
            error = check(tx)
            if self.watcher is not None:
                self.watcher.note_login(tx, principal, origin, error)
            if error is None:
                tx.execute(
                    f"INSERT INTO login_sessions (token_hash, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608  # constant
                    (
                        token_hash,
                        principal.session_id,
                        user_id,
                        origin.kind,
                        origin.client_id,
                        render_scopes(origin.scopes),
                        origin.peer,
                        origin.grant_id,
                        now_ms,
                        now_ms,
                    ),
                )
            return error

        # Cached before the commit, while nobody knows the token. The other order would have a race: a commit that ends
        # the new session (the user is frozen) could call `forget` before the session is cached, and it would live on.
        self._remember(token_hash, _Live(principal, origin, now_ms, now_ms, now_ms))
        try:
            error = await self._records.write_plain(work)
        except BaseException:
            self._drop(token_hash)
            raise
        if error is not None:
            self._drop(token_hash)
            raise error
        return token, principal

    async def authenticate(self, token: str) -> Principal:
        """Return the user of a token that may use the data APIs. Raises SessionInvalid."""
        live = await self._find(token)
        if not opens_api(live.origin.scopes):
            raise SessionInvalid("This session is not valid for use with the API", needed_scope="api")
        return live.principal

    async def identify(self, token: str) -> SessionEntry:
        """Return the session of a token, whatever its scopes. Raises SessionInvalid."""
        return (await self._find(token)).entry()

    async def peek(self, token: str) -> SessionEntry:
        """Return the session of a token without extending its life. Raises SessionInvalid."""
        return (await self._find(token, is_use=False)).entry()

    def touch(self, session_ids: Iterable[str]) -> None:
        """Extend the life of sessions that have an open stream."""
        now_ms = self._clock.now_ms()
        for session_id in session_ids:
            token_hash = self._hashes.get(session_id)
            live = self._live.get(token_hash) if token_hash else None
            if live is None:
                # Not cached: evicted, or not looked up since a restart. The table is all there is to update.
                self._store_use(session_id, now_ms)
            else:
                self._use(live, now_ms)

    async def entries(self, user_id: str = "") -> list[SessionEntry]:
        """Return the sessions that have not expired, newest first; of one user unless `user_id` is empty."""
        oldest_ms = self._clock.now_ms() - self._seconds_valid() * 1000
        user = self._records.types.catalog.object("User")

        def work(reader: Reader) -> list[SessionEntry]:
            found = reader.execute(
                f"SELECT {_COLUMNS} FROM login_sessions WHERE user_id = ? OR ? = '' ORDER BY started_ms DESC",  # noqa: S608  # constant
                (user_id, user_id),
            )
            names = {
                r["Id"]: str(r["Username"]) for r in read_rows(reader, user, "Id", {r[1] for r in found})
            }
            return [_entry(row, names.get(row[1], "")) for row in found]

        entries = await self._records.read(work)
        fresh = []
        for entry in entries:
            # The cache knows later uses than the table.
            live = self._live.get(self._hashes.get(entry.session_id, ""))
            current = live.entry() if live is not None else entry
            if current.used_ms >= oldest_ms:
                fresh.append(current)
        return fresh

    async def revoke(self, session_id: str) -> bool:
        """End one session and its open streams at once; return whether it existed."""
        return bool(await self._records.write_plain(lambda tx: end_sessions(tx, "session_id", session_id)))

    async def log_out(self, session_id: str) -> bool:
        """End a session at its user's request, and record the logout; return whether it existed."""

        def work(tx: Transaction) -> bool:
            self._note_logouts(tx, "session_id", session_id)
            return bool(end_sessions(tx, "session_id", session_id))

        return await self._records.write_plain(work)

    def log_out_grant(self, tx: Transaction, grant_id: str) -> None:
        """End the sessions of one authorization at the user's request, as part of a transaction."""
        self._note_logouts(tx, "grant_id", grant_id)
        end_sessions(tx, "grant_id", grant_id)

    def _note_logouts(self, tx: Transaction, column: str, value: str) -> None:
        """Record the logout of sessions that are about to end, except those that have already expired."""
        if self.watcher is None:
            return
        oldest_ms = self._clock.now_ms() - self._seconds_valid() * 1000
        user = self._records.types.catalog.object("User")
        rows = tx.execute(
            f"SELECT {_COLUMNS} FROM login_sessions WHERE {_ENDABLE[column]} ORDER BY started_ms",  # noqa: S608  # constants
            (value,),
        )
        for row in rows:
            entry = _entry(row, "")
            # Runs on the writer thread while the loop changes the cache: two single lookups, no iteration.
            live = self._live.get(self._hashes.get(entry.session_id, ""))
            used_ms = entry.used_ms if live is None else max(live.used_ms, entry.used_ms)
            found = try_read_row(tx, user, entry.user_id)
            if used_ms >= oldest_ms and found is not None:
                principal = Principal(self._org_id, entry.user_id, str(found["Username"]), entry.session_id)
                self.watcher.note_logout(tx, principal, entry.origin.peer)

    async def purge(self) -> None:
        """Delete expired sessions from the table, a bounded number per transaction."""
        # The table may be behind by one write-back interval, so a session is purged that much after it expired.
        before_ms = self._clock.now_ms() - self._seconds_valid() * 1000 - _TOUCH_EVERY_MS
        # Copied on the loop: `work` runs on the writer thread and must not iterate over the cache.
        used_ms = {live.principal.session_id: live.used_ms for live in self._live.values()}

        def work(tx: Transaction) -> int:
            rows = tx.execute(
                "SELECT session_id FROM login_sessions WHERE used_ms < ? ORDER BY used_ms LIMIT ?",
                (before_ms, _PURGE_AT_ONCE),
            )
            for (session_id,) in rows:
                if used_ms.get(session_id, 0) < before_ms:
                    end_sessions(tx, "session_id", session_id)
                else:
                    # In use after all. Writing that down also moves it out of the next page of this loop.
                    _write_use(tx, session_id, used_ms[session_id])
            return len(rows)

        while await self._records.write_plain(work) == _PURGE_AT_ONCE:
            continue

    def forget(self, session_ids: tuple[str, ...]) -> None:
        """Drop ended sessions from the cache. Called on the loop after the commit that ended them."""
        self._ends += 1
        for session_id in session_ids:
            token_hash = self._hashes.get(session_id)
            if token_hash is not None:
                self._drop(token_hash)

    async def _find(self, token: str, *, is_use: bool = True) -> _Live:
        token_hash = hash_token(token)
        live = self._live.get(token_hash)
        while live is None:
            # A read takes a snapshot. If a session ends between the snapshot and the line below, `forget` has already
            # run and found nothing to drop; caching the row now would bring the session back to life. `_ends` shows
            # that some session ended meanwhile, and then the row is read again.
            ends = self._ends
            live = await self._records.read(lambda reader: self._read(reader, token_hash))
            if live is None:
                break
            if ends == self._ends:
                self._remember(token_hash, live)
            else:
                live = None
        now_ms = self._clock.now_ms()
        if live is None or now_ms - live.used_ms > self._seconds_valid() * 1000:
            self._drop(token_hash)
            raise SessionInvalid("Session expired or invalid")
        if is_use:
            self._live.move_to_end(token_hash)
            self._use(live, now_ms)
        return live

    def _use(self, live: _Live, now_ms: int) -> None:
        live.used_ms = now_ms
        # Written back every five minutes, or four times per lifetime if that is shorter: a session must never look
        # expired in the table while it is in use here.
        if now_ms - live.stored_ms > min(_TOUCH_EVERY_MS, self._seconds_valid() * 250):
            live.stored_ms = now_ms
            self._store_use(live.principal.session_id, now_ms)

    def _remember(self, token_hash: str, live: _Live) -> None:
        self._live[token_hash] = live
        self._hashes[live.principal.session_id] = token_hash
        while len(self._live) > self._max_live:
            oldest_hash, oldest = next(iter(self._live.items()))
            self._drop(oldest_hash)
            # Eviction must not shorten its life: the next lookup reads the time of last use from the table.
            if oldest.used_ms > oldest.stored_ms:
                self._store_use(oldest.principal.session_id, oldest.used_ms)

    def _drop(self, token_hash: str) -> None:
        live = self._live.pop(token_hash, None)
        if live is not None:
            self._hashes.pop(live.principal.session_id, None)

    def _read(self, reader: Reader, token_hash: str) -> _Live | None:
        rows = reader.execute(
            f"SELECT {_COLUMNS} FROM login_sessions WHERE token_hash = ?",  # noqa: S608  # constant
            (token_hash,),
        )
        if not rows:
            return None
        entry = _entry(rows[0], "")
        user = try_read_row(reader, self._records.types.catalog.object("User"), entry.user_id)
        # Deactivating a user ends their sessions; this also covers rows that a backup brought back.
        if user is None or not user["IsActive"]:
            return None
        principal = Principal(self._org_id, entry.user_id, str(user["Username"]), entry.session_id)
        return _Live(principal, entry.origin, entry.started_ms, entry.used_ms, entry.used_ms)

    def _store_use(self, session_id: str, now_ms: int) -> None:
        task = asyncio.ensure_future(self._records.write_plain(lambda tx: _write_use(tx, session_id, now_ms)))
        self._background.add(task)
        task.add_done_callback(self._stored)

    def _stored(self, task: asyncio.Future[None]) -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # a lost write-back only means an earlier expiry; the writer has logged the error


# Most sessions have no authorization or app: an empty value must not match all of them.
_ENDABLE = {
    "session_id": "session_id = ?",
    "user_id": "user_id = ?",
    "grant_id": "grant_id = ? AND grant_id <> ''",
    "client_id": "client_id = ? AND client_id <> ''",
}


def end_sessions(tx: Transaction, column: str, value: str, *, spare: str = "") -> int:
    """End the sessions with this `session_id`, `user_id`, `grant_id` or `client_id`, as part of a transaction.

    The session with the id `spare` is kept. Returns how many ended. Caches learn of it only after the commit, so a
    transaction that is rolled back ends nothing.
    """
    where = f"{_ENDABLE[column]} AND session_id <> ?"
    rows = tx.execute(f"SELECT session_id FROM login_sessions WHERE {where}", (value, spare))  # noqa: S608  # constants
    tx.execute(f"DELETE FROM login_sessions WHERE {where}", (value, spare))  # noqa: S608
    tx.ended_sessions.extend(session_id for (session_id,) in rows)
    return len(rows)


def _write_use(tx: Transaction, session_id: str, used_ms: int) -> None:
    tx.execute(
        "UPDATE login_sessions SET used_ms = ? WHERE session_id = ? AND used_ms < ?",
        (used_ms, session_id, used_ms),
    )


def _entry(row: tuple[object, ...], username: str) -> SessionEntry:
    session_id, user_id, kind, client_id, scopes, peer, grant_id, started_ms, used_ms = row
    origin = Origin(
        kind=str(kind),
        peer=str(peer),
        scopes=parse_scopes(str(scopes)),
        client_id=str(client_id),
        grant_id=str(grant_id),
    )
    return SessionEntry(
        str(session_id), str(user_id), username, origin, int(str(started_ms)), int(str(used_ms))
    )
