"""Passwords and security tokens: set, reset and unlocked by the user or by an administrator."""

from __future__ import annotations

import asyncio
from typing import Protocol

from tidewire.access.grants import read_grants
from tidewire.access.passwords import (
    check_new_password,
    draw_password,
    draw_security_token,
    hash_password,
    hash_token,
)
from tidewire.access.principal import Principal
from tidewire.access.sessions import end_sessions
from tidewire.access.user_logins import store_password, unlock
from tidewire.clock import Clock
from tidewire.errors import AccessDenied, RecordNotFound
from tidewire.ids import normalise_id
from tidewire.records.service import RecordService
from tidewire.records.table import read_rows
from tidewire.storage.store import Reader, Transaction


class Caller(Protocol):
    """An API call with its user."""

    @property
    def principal(self) -> Principal: ...


class Credentials:
    """Manages the credentials of one org's users."""

    def __init__(self, records: RecordService, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    async def set_password(self, call: Caller, user_id: str, new_password: str) -> None:
        """Set a user's password and end their sessions, except the one that makes this call.

        Needs Manage Users for other users. Raises AccessDenied, RecordNotFound or PasswordInvalid.
        """
        user_id, username = await self._check(call.principal, user_id, allows_self=True)
        check_new_password(new_password)
        await self._store_password(call.principal, user_id, username, new_password)

    async def reset_password(self, call: Caller, user_id: str) -> str:
        """Set a random password and return it. Needs Manage Users, also for the caller's own user."""
        user_id, username = await self._check(call.principal, user_id)
        password = draw_password()
        await self._store_password(call.principal, user_id, username, password)
        return password

    async def reset_security_token(self, call: Caller, user_id: str) -> str:
        """Set a new security token and return it; it is shown only once.

        From now on logins from addresses that are not trusted need it.
        """
        user_id, _ = await self._check(call.principal, user_id, allows_self=True)
        token = draw_security_token()
        await self._records.write_plain(
            lambda tx: tx.execute(
                "INSERT INTO security_tokens (user_id, token_hash) VALUES (?, ?)"
                " ON CONFLICT (user_id) DO UPDATE SET token_hash = excluded.token_hash",
                (user_id, hash_token(token)),
            )
        )
        return token

    async def drop_security_token(self, call: Caller, user_id: str) -> None:
        """Delete a user's security token, so that logins no longer need one. Needs Manage Users."""
        user_id, _ = await self._check(call.principal, user_id)
        await self._records.write_plain(
            lambda tx: tx.execute("DELETE FROM security_tokens WHERE user_id = ?", (user_id,))
        )

    async def unlock(self, call: Caller, user_id: str) -> None:
        """Unlock a user who is locked out after failed logins. Needs Manage Users."""
        user_id, username = await self._check(call.principal, user_id)
        catalog, now_ms = self._records.types.catalog, self._clock.now_ms()
        await self._records.write_plain(lambda tx: unlock(tx, catalog, user_id, username, now_ms))

    async def check_manager(self, call: Caller) -> None:
        """Raise AccessDenied unless the caller may manage users."""
        catalog = self._records.types.catalog
        grants = await self._records.read(lambda reader: read_grants(reader, catalog, call.principal.user_id))
        if not grants.has("ManageUsers"):
            raise AccessDenied("this needs the permission Manage Users")

    async def _check(
        self, principal: Principal, user_id: str, *, allows_self: bool = False
    ) -> tuple[str, str]:
        """Return the 18-character id and the name of the user to change. Raises AccessDenied or RecordNotFound."""
        catalog, user_id = self._records.types.catalog, normalise_id(user_id)
        is_self = allows_self and user_id == principal.user_id

        def work(reader: Reader) -> tuple[bool, str | None]:
            is_allowed = is_self or read_grants(reader, catalog, principal.user_id).has("ManageUsers")
            found = read_rows(reader, catalog.object("User"), "Id", [user_id])
            return is_allowed, str(found[0]["Username"]) if found else None

        is_allowed, username = await self._records.read(work)
        if not is_allowed:
            raise AccessDenied("this needs the permission Manage Users")
        if username is None:
            raise RecordNotFound("The requested resource does not exist", record_id=user_id)
        return user_id, username

    async def _store_password(self, principal: Principal, user_id: str, username: str, password: str) -> None:
        stored = await asyncio.to_thread(hash_password, password)
        catalog, now_ms = self._records.types.catalog, self._clock.now_ms()

        def work(tx: Transaction) -> None:
            store_password(tx, catalog, user_id, stored, now_ms)
            unlock(tx, catalog, user_id, username, now_ms)
            end_sessions(tx, "user_id", user_id, spare=principal.session_id)

        await self._records.write_plain(work)
