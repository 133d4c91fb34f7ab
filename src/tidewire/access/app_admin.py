"""Connected apps as their administrators see them: listed, made, given another secret, removed.

All of it needs Customize Application.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidewire.access.apps import (
    ConnectedApp,
    check_app,
    delete_app,
    draw_client_id,
    draw_secret,
    read_apps,
    rotate_secret,
    store_app,
    try_read_app,
)
from tidewire.access.credentials import Caller
from tidewire.access.grants import read_grants
from tidewire.access.passwords import hash_token
from tidewire.errors import AccessDenied, DefinitionInvalid, DuplicateValue, ResourceUnknown
from tidewire.records.service import RecordService
from tidewire.records.table import try_find_by_value, try_read_row
from tidewire.storage.store import Reader, Transaction


class AppAdmin:
    """The connected apps of one org."""

    def __init__(self, records: RecordService) -> None:
        self._records = records

    async def entries(self, call: Caller) -> list[ConnectedApp]:
        """Every app."""
        await self._check(call)
        return await self._records.read(read_apps)

    async def find(self, call: Caller, client_id: str) -> ConnectedApp:
        """One app. Raises ResourceUnknown."""
        await self._check(call)
        app = await self._records.read(lambda reader: try_read_app(reader, client_id))
        if app is None:
            raise _unknown()
        return app

    async def create(
        self, call: Caller, app: ConnectedApp, *, run_as: str = "", is_public: bool = False
    ) -> tuple[str, str]:
        """Make an app; returns its consumer key, drawn if it has none yet, and its secret, shown only now.

        `run_as` is the name of the user for client credentials. Raises DefinitionInvalid or DuplicateValue.
        """
        await self._check(call)
        secret = "" if is_public else draw_secret()
        user_id = await self._records.read(lambda reader: self._find_user(reader, run_as)) if run_as else ""
        made = replace(
            app,
            client_id=app.client_id or draw_client_id(),
            secret_hash=hash_token(secret) if secret else "",
            run_as_user_id=user_id,
        )
        check_app(made)

        def work(tx: Transaction) -> None:
            if try_read_app(tx, made.client_id) is not None:
                raise DuplicateValue("there is an app with this client id", fields=["client_id"])
            store_app(tx, made)

        await self._records.write_plain(work)
        return made.client_id, secret

    async def rotate_secret(self, call: Caller, client_id: str) -> str:
        """Give an app another secret; returns it. The old one is of no use from now on."""
        await self._check(call)
        secret = await self._records.write_plain(lambda tx: rotate_secret(tx, client_id))
        if secret is None:
            raise _unknown()
        return secret

    async def delete(self, call: Caller, client_id: str) -> None:
        """Remove an app, and end every session that it began."""
        await self._check(call)
        if not await self._records.write_plain(lambda tx: delete_app(tx, client_id)):
            raise _unknown()

    async def usernames(self, apps: list[ConnectedApp]) -> Mapping[str, str]:
        """The names of the users that apps run as, by id."""
        user = self._records.types.catalog.object("User")
        ids = {app.run_as_user_id for app in apps if app.run_as_user_id}

        def work(reader: Reader) -> dict[str, str]:
            rows = [try_read_row(reader, user, user_id) for user_id in sorted(ids)]
            return {str(row["Id"]): str(row["Username"]) for row in rows if row is not None}

        return await self._records.read(work)

    async def _check(self, call: Caller) -> None:
        catalog, user_id = self._records.types.catalog, call.principal.user_id
        grants = await self._records.read(lambda reader: read_grants(reader, catalog, user_id))
        if not grants.has("CustomizeApplication"):
            raise AccessDenied("this needs the permission Customize Application")

    def _find_user(self, reader: Reader, username: str) -> str:
        user = self._records.types.catalog.object("User")
        user_id = try_find_by_value(reader, user, user.by_name["username"], username)
        if user_id is None:
            raise DefinitionInvalid(f"run_as: there is no user {username[:80]}", path="run_as")
        return user_id


def _unknown() -> ResourceUnknown:
    return ResourceUnknown("The requested resource does not exist")
