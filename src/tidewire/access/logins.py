"""Logins: from a password to a session token, and from a token back to a user.

A login session is durable: a client that signed in before a crash goes on after it. The token itself is never
stored. `authenticate` answers from memory;
how recently a session was used is written back only every few minutes.
"""

from __future__ import annotations

import asyncio
import hmac
import uuid
from dataclasses import dataclass

from tidewire.access.passwords import draw_token, hash_token, is_password
from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.errors import GrantInvalid, LoginFailed, SessionInvalid
from tidewire.events import Value
from tidewire.records.service import RecordService
from tidewire.records.table import read_rows, try_find_by_value
from tidewire.storage.store import Reader, Transaction

_TOUCH_EVERY_MS = 300_000
_LOGIN_FAILED = "Invalid username, password, security token; or user locked out."


@dataclass(frozen=True, slots=True)
class LoginResult:
    """A fresh login: the only moment at which the token is known to us."""

    token: str
    principal: Principal
    seconds_valid: int


@dataclass(frozen=True, slots=True)
class UserInfo:
    """What login answers tell about the user."""

    user_id: str
    username: str
    full_name: str
    first_name: str
    last_name: str
    email: str
    profile_id: str
    role_id: str
    language: str
    locale: str
    time_zone: str
    user_type: str
    is_active: bool
    org_id: str
    org_name: str


@dataclass(slots=True)
class _Live:
    principal: Principal
    used_ms: int
    stored_ms: int


class Logins:
    """One org's logins."""

    def __init__(
        self, records: RecordService, clock: Clock, org_id: str, org_name: str, *, idle_timeout_s: int = 7200
    ) -> None:
        self._records = records
        self._clock = clock
        self._org_name = org_name
        self._idle_timeout_s = idle_timeout_s
        self._live: dict[str, _Live] = {}
        self._background: set[asyncio.Future[None]] = set()
        self.org_id = org_id

    @property
    def seconds_valid(self) -> int:
        """How long a session lives without use: what the org says, or else the server."""
        return self._records.types.settings.session_timeout_s or self._idle_timeout_s

    async def login(self, username: str, password: str, peer: str) -> LoginResult:
        """Start a session. Raises LoginFailed, in the same time and words whatever was wrong."""
        user, stored = await self._records.read(lambda reader: self._find_user(reader, username))
        fits = await asyncio.to_thread(is_password, stored, password)
        if user is None or not fits or not user["IsActive"]:
            raise LoginFailed(_LOGIN_FAILED)
        token = draw_token(self.org_id)
        principal = Principal(self.org_id, str(user["Id"]), str(user["Username"]), str(uuid.uuid4()))
        now_ms = self._clock.now_ms()
        token_hash = hash_token(token)

        def store(tx: Transaction) -> None:
            tx.execute(
                "INSERT INTO login_sessions (session_id, token_hash, user_id, started_ms, used_ms)"
                " VALUES (?, ?, ?, ?, ?)",
                (principal.session_id, token_hash, principal.user_id, now_ms, now_ms),
            )

        await self._records.write_plain(store)
        self._live[token_hash] = _Live(principal, now_ms, now_ms)
        return LoginResult(token, principal, self.seconds_valid)

    async def authenticate(self, token: str) -> Principal:
        """The user behind a token. Raises SessionInvalid."""
        token_hash = hash_token(token)
        live = self._live.get(token_hash)
        if live is None:
            live = await self._records.read(lambda reader: self._find_session(reader, token_hash))
            if live is not None:
                self._live[token_hash] = live
        now_ms = self._clock.now_ms()
        if live is None or now_ms - live.used_ms > self.seconds_valid * 1000:
            self._live.pop(token_hash, None)
            raise SessionInvalid("Session expired or invalid")
        live.used_ms = now_ms
        if now_ms - live.stored_ms > _TOUCH_EVERY_MS:
            live.stored_ms = now_ms
            self._touch(live.principal.session_id, now_ms)
        return live.principal

    async def check_client(self, client_id: str, client_secret: str) -> None:
        """Whether a connected app is who it says. Raises GrantInvalid."""
        rows = await self._records.read(
            lambda reader: reader.execute(
                "SELECT secret_hash FROM connected_apps WHERE client_id = ?", (client_id,)
            )
        )
        if not rows:
            raise GrantInvalid("client identifier invalid", oauth_error="invalid_client_id")
        if not hmac.compare_digest(rows[0][0], hash_token(client_secret)):
            raise GrantInvalid("invalid client credentials", oauth_error="invalid_client")

    async def logout(self, principal: Principal) -> None:
        """End a session at once, open streams included."""
        await self._records.write_plain(lambda tx: end_sessions(tx, "session_id", principal.session_id))

    async def user_info(self, principal: Principal) -> UserInfo:
        """The signed-in user's own data."""
        user = self._records.types.catalog.object("User")
        (row,) = await self._records.read(lambda reader: read_rows(reader, user, "Id", [principal.user_id]))

        def text(name: str) -> str:
            return str(row.get(name) or "")

        return UserInfo(
            user_id=principal.user_id,
            username=text("Username"),
            full_name=f"{text('FirstName')} {text('LastName')}".strip(),
            first_name=text("FirstName"),
            last_name=text("LastName"),
            email=text("Email"),
            profile_id=text("ProfileId"),
            role_id=text("UserRoleId"),
            language=text("LanguageLocaleKey") or "en_US",
            locale=text("LocaleSidKey") or "en_US",
            time_zone=text("TimeZoneSidKey") or "GMT",
            user_type=text("UserType") or "Standard",
            is_active=bool(row["IsActive"]),
            org_id=self.org_id,
            org_name=self._org_name,
        )

    def forget_sessions(self, session_ids: tuple[str, ...]) -> None:
        """Drop ended sessions from memory. Called on the loop after the commit that ended them."""
        ended = set(session_ids)
        for token_hash in [h for h, live in self._live.items() if live.principal.session_id in ended]:
            del self._live[token_hash]

    def _find_user(self, reader: Reader, username: str) -> tuple[dict[str, Value] | None, str | None]:
        user = self._records.types.catalog.object("User")
        user_id = try_find_by_value(reader, user, user.by_name["username"], username)
        if user_id is None:
            return None, None
        (row,) = read_rows(reader, user, "Id", [user_id])
        stored = reader.execute("SELECT hash FROM passwords WHERE user_id = ?", (user_id,))
        return row, stored[0][0] if stored else None

    def _find_session(self, reader: Reader, token_hash: str) -> _Live | None:
        rows = reader.execute(
            "SELECT session_id, user_id, used_ms FROM login_sessions WHERE token_hash = ?", (token_hash,)
        )
        if not rows:
            return None
        session_id, user_id, used_ms = rows[0]
        user = self._records.types.catalog.object("User")
        found = read_rows(reader, user, "Id", [user_id])
        if not found or not found[0]["IsActive"]:
            return None
        return _Live(Principal(self.org_id, user_id, str(found[0]["Username"]), session_id), used_ms, used_ms)

    def _touch(self, session_id: str, now_ms: int) -> None:
        def store(tx: Transaction) -> None:
            tx.execute("UPDATE login_sessions SET used_ms = ? WHERE session_id = ?", (now_ms, session_id))

        task = asyncio.ensure_future(self._records.write_plain(store))
        self._background.add(task)
        task.add_done_callback(self._touched)

    def _touched(self, task: asyncio.Future[None]) -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # a lost touch costs at most an earlier expiry; the writer has logged it


def end_sessions(tx: Transaction, column: str, value: str) -> None:
    """End the sessions with this `session_id` or `user_id`, as part of a transaction."""
    where = {"session_id": "session_id = ?", "user_id": "user_id = ?"}[column]
    rows = tx.execute(f"SELECT session_id FROM login_sessions WHERE {where}", (value,))  # noqa: S608  # one of two constants
    tx.execute(f"DELETE FROM login_sessions WHERE {where}", (value,))  # noqa: S608
    tx.ended_sessions.extend(session_id for (session_id,) in rows)
