"""Login sessions: what a token stands for, from its start to its end.

A session is durable: a client that signed in before a crash goes on after it. Only the hash of its token is
stored. Sessions in use are kept in memory, the one used longest ago goes first; how recently a session was used is
written back every few minutes. A session ends by a commit, which every front end learns of.
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
_TOUCH_EVERY_MS = 300_000
_PURGE_AT_ONCE = 1_000
_COLUMNS = "session_id, user_id, kind, client_id, scopes, peer, grant_id, started_ms, used_ms"


@dataclass(frozen=True, slots=True)
class Origin:
    """How a session came about: by which protocol, through which app, from where, and what it may do."""

    kind: str
    peer: str
    scopes: frozenset[str]
    client_id: str = ""
    grant_id: str = ""


@dataclass(frozen=True, slots=True)
class SessionEntry:
    """One session as an administrator sees it."""

    session_id: str
    user_id: str
    username: str
    origin: Origin
    started_ms: int
    used_ms: int


@dataclass(slots=True)
class _Live:
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
    """Told of logins and logouts inside their transactions."""

    def note_login(
        self, tx: Transaction, principal: Principal, origin: Origin, refusal: PlatformError | None
    ) -> None:
        """A session starts, or is refused to the user."""

    def note_logout(self, tx: Transaction, principal: Principal, peer: str) -> None:
        """A user ends a session of theirs."""


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
        self._live: OrderedDict[str, _Live] = OrderedDict()
        self._hashes: dict[str, str] = {}
        self._ends = 0
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
        """Start a session; returns its token, which nobody will ever see again.

        `check` runs in the transaction that stores the session. What it returns is raised, once whatever else
        it wrote is durable, and there is no session.
        """
        token = draw_token(self._org_id)
        token_hash = hash_token(token)
        principal = Principal(self._org_id, user_id, username, str(uuid.uuid4()))
        now_ms = self._clock.now_ms()

        def work(tx: Transaction) -> PlatformError | None:
            refusal = check(tx)
            if self.watcher is not None:
                self.watcher.note_login(tx, principal, origin, refusal)
            if refusal is None:
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
            return refusal

        # Known before it is durable, and to nobody: a commit that ends it then finds it here.
        self._remember(token_hash, _Live(principal, origin, now_ms, now_ms, now_ms))
        try:
            refusal = await self._records.write_plain(work)
        except BaseException:
            self._drop(token_hash)
            raise
        if refusal is not None:
            self._drop(token_hash)
            raise refusal
        return token, principal

    async def authenticate(self, token: str) -> Principal:
        """The user behind a token that may use the data APIs. Raises SessionInvalid."""
        live = await self._find(token)
        if not opens_api(live.origin.scopes):
            raise SessionInvalid("This session is not valid for use with the API", needed_scope="api")
        return live.principal

    async def identify(self, token: str) -> SessionEntry:
        """The session behind a token, whatever it may be used for. Raises SessionInvalid."""
        return (await self._find(token)).entry()

    async def peek(self, token: str) -> SessionEntry:
        """The session behind a token, without counting as a use of it. Raises SessionInvalid."""
        return (await self._find(token, is_use=False)).entry()

    def touch(self, session_ids: Iterable[str]) -> None:
        """Count as used: an open stream keeps its session from expiring."""
        now_ms = self._clock.now_ms()
        for session_id in session_ids:
            token_hash = self._hashes.get(session_id)
            live = self._live.get(token_hash) if token_hash else None
            if live is None:
                self._store_use(session_id, now_ms)
            else:
                self._use(live, now_ms)

    async def entries(self, user_id: str = "") -> list[SessionEntry]:
        """The sessions that have not expired, newest first."""
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
            live = self._live.get(self._hashes.get(entry.session_id, ""))
            current = live.entry() if live is not None else entry
            if current.used_ms >= oldest_ms:
                fresh.append(current)
        return fresh

    async def revoke(self, session_id: str) -> bool:
        """End one session at once, open streams included; returns whether there was one."""
        return bool(await self._records.write_plain(lambda tx: end_sessions(tx, "session_id", session_id)))

    async def log_out(self, session_id: str) -> bool:
        """End a session on its user's own behalf; returns whether there was one."""

        def work(tx: Transaction) -> bool:
            self._note_logouts(tx, "session_id", session_id)
            return bool(end_sessions(tx, "session_id", session_id))

        return await self._records.write_plain(work)

    def log_out_grant(self, tx: Transaction, grant_id: str) -> None:
        """End the sessions of one authorization on the user's own behalf, as part of a transaction."""
        self._note_logouts(tx, "grant_id", grant_id)
        end_sessions(tx, "grant_id", grant_id)

    def _note_logouts(self, tx: Transaction, column: str, value: str) -> None:
        """Tell of sessions that are about to end; those that have expired are over already."""
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
            live = self._live.get(self._hashes.get(entry.session_id, ""))  # the loop may move it meanwhile
            used_ms = entry.used_ms if live is None else max(live.used_ms, entry.used_ms)
            found = try_read_row(tx, user, entry.user_id)
            if used_ms >= oldest_ms and found is not None:
                principal = Principal(self._org_id, entry.user_id, str(found["Username"]), entry.session_id)
                self.watcher.note_logout(tx, principal, entry.origin.peer)

    async def purge(self) -> None:
        """Remove expired sessions from the store, a bounded number at a time."""
        before_ms = self._clock.now_ms() - self._seconds_valid() * 1000 - _TOUCH_EVERY_MS
        # What memory knows of recent use may not be in the store yet.
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
                    _write_use(tx, session_id, used_ms[session_id])
            return len(rows)

        while await self._records.write_plain(work) == _PURGE_AT_ONCE:
            continue

    def forget(self, session_ids: tuple[str, ...]) -> None:
        """Drop ended sessions from memory. Called on the loop after the commit that ended them."""
        self._ends += 1
        for session_id in session_ids:
            token_hash = self._hashes.get(session_id)
            if token_hash is not None:
                self._drop(token_hash)

    async def _find(self, token: str, *, is_use: bool = True) -> _Live:
        token_hash = hash_token(token)
        live = self._live.get(token_hash)
        while live is None:
            ends = self._ends
            live = await self._records.read(lambda reader: self._read(reader, token_hash))
            if live is None:
                break
            if ends == self._ends:
                self._remember(token_hash, live)
            else:
                live = None  # it may have ended while it was being read
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
        if now_ms - live.stored_ms > min(_TOUCH_EVERY_MS, self._seconds_valid() * 250):
            live.stored_ms = now_ms
            self._store_use(live.principal.session_id, now_ms)

    def _remember(self, token_hash: str, live: _Live) -> None:
        self._live[token_hash] = live
        self._hashes[live.principal.session_id] = token_hash
        while len(self._live) > self._max_live:
            oldest_hash, oldest = next(iter(self._live.items()))
            self._drop(oldest_hash)
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
            task.exception()  # a lost touch costs at most an earlier expiry; the writer has logged it


_ENDABLE = {
    "session_id": "session_id = ?",
    "user_id": "user_id = ?",
    "grant_id": "grant_id = ? AND grant_id <> ''",
    "client_id": "client_id = ? AND client_id <> ''",
}


def end_sessions(tx: Transaction, column: str, value: str, *, spare: str = "") -> int:
    """End the sessions with this `session_id`, `user_id`, `grant_id` or `client_id`, as part of a transaction.

    The session with the id `spare` goes on. Returns how many ended.
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
