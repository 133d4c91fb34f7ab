"""Passwords and security tokens: set, reset and unlocked by their user or by who manages users."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
from tidewire.access.user_logins import note_password, unlock
from tidewire.clock import Clock
from tidewire.errors import AccessDenied, RecordNotFound
from tidewire.ids import normalise_id
from tidewire.records.service import RecordService
from tidewire.records.table import read_rows
from tidewire.storage.store import Reader, Transaction


class Caller(Protocol):
    """An API call, as far as it matters here: who makes it."""

    @property
    def principal(self) -> Principal: ...


class Credentials:
    """What the users of one org sign in with."""

    def __init__(self, records: RecordService, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    async def set_password(self, call: Caller, user_id: str, new_password: str) -> None:
        """Give a user a new password and end their sessions, except the one that makes this call.

        Needs Manage Users for anybody but oneself. Raises AccessDenied, RecordNotFound or PasswordInvalid.
        """
        user_id = normalise_id(user_id)
        await self._check(call.principal, user_id, allows_self=True)
        check_new_password(new_password)
        await self._store_password(call.principal, user_id, new_password)

    async def reset_password(self, call: Caller, user_id: str) -> str:
        """Give a user a password drawn at random; returns it. Needs Manage Users, also for oneself."""
        user_id = normalise_id(user_id)
        await self._check(call.principal, user_id)
        password = draw_password()
        await self._store_password(call.principal, user_id, password)
        return password

    async def reset_security_token(self, call: Caller, user_id: str) -> str:
        """Give a user a security token; returns it, and only now. From now on it is needed away from trusted
        addresses.
        """
        user_id = normalise_id(user_id)
        await self._check(call.principal, user_id, allows_self=True)
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
        """Let a user sign in without a security token again. Needs Manage Users."""
        user_id = normalise_id(user_id)
        await self._check(call.principal, user_id)
        await self._records.write_plain(
            lambda tx: tx.execute("DELETE FROM security_tokens WHERE user_id = ?", (user_id,))
        )

    async def unlock(self, call: Caller, user_id: str) -> None:
        """Let a user who failed too often try again at once. Needs Manage Users."""
        user_id = normalise_id(user_id)
        username = await self._check(call.principal, user_id)
        catalog, now_ms = self._records.types.catalog, self._clock.now_ms()
        await self._records.write_plain(lambda tx: unlock(tx, catalog, user_id, username, now_ms))

    async def check_manager(self, call: Caller) -> None:
        """Raises AccessDenied unless the caller may manage users."""
        catalog = self._records.types.catalog
        grants = await self._records.read(lambda reader: read_grants(reader, catalog, call.principal.user_id))
        if not grants.has("ManageUsers"):
            raise AccessDenied("this needs the permission Manage Users")

    async def _check(self, principal: Principal, user_id: str, *, allows_self: bool = False) -> str:
        """The name of the user to be changed, if the caller may."""
        catalog = self._records.types.catalog
        is_self = allows_self and user_id == principal.user_id

        def work(reader: Reader) -> tuple[bool, str | None]:
            may = is_self or read_grants(reader, catalog, principal.user_id).has("ManageUsers")
            found = read_rows(reader, catalog.object("User"), "Id", [user_id])
            return may, str(found[0]["Username"]) if found else None

        may, username = await self._records.read(work)
        if not may:
            raise AccessDenied("this needs the permission Manage Users")
        if username is None:
            raise RecordNotFound("The requested resource does not exist", record_id=user_id)
        return username

    async def _store_password(self, principal: Principal, user_id: str, password: str) -> None:
        stored = await asyncio.to_thread(hash_password, password)
        username = await self._records.read(self._username(user_id))
        catalog, now_ms = self._records.types.catalog, self._clock.now_ms()

        def work(tx: Transaction) -> None:
            tx.execute(
                "INSERT INTO passwords (user_id, hash) VALUES (?, ?)"
                " ON CONFLICT (user_id) DO UPDATE SET hash = excluded.hash",
                (user_id, stored),
            )
            unlock(tx, catalog, user_id, username, now_ms)
            note_password(tx, catalog, user_id, now_ms)
            end_sessions(tx, "user_id", user_id, spare=principal.session_id)

        await self._records.write_plain(work)

    def _username(self, user_id: str) -> Callable[[Reader], str]:
        user = self._records.types.catalog.object("User")
        return lambda reader: str(read_rows(reader, user, "Id", [user_id])[0]["Username"])
