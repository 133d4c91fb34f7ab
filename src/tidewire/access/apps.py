"""Connected apps: the programs that may request tokens, each with its secret, callback URLs, scopes and flows.

A secret is stored as a hash and shown once. An app without a secret is public: it must use PKCE where a browser
carries its authorization code.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn
from urllib.parse import urlsplit

from tidewire.access.credentials import Caller
from tidewire.access.grants import read_grants
from tidewire.access.passwords import hash_token, is_same_hash
from tidewire.access.scopes import API, KNOWN, REFRESH
from tidewire.access.sessions import end_sessions
from tidewire.errors import AccessDenied, DefinitionInvalid, DuplicateValue, GrantInvalid, ResourceUnknown
from tidewire.records.service import RecordService
from tidewire.records.table import try_find_by_value, try_read_row
from tidewire.storage.store import Reader, Transaction

PASSWORD, CLIENT_CREDENTIALS, JWT_BEARER = "password", "client_credentials", "jwt_bearer"
WEB_SERVER, USER_AGENT, DEVICE = "web_server", "user_agent", "device"
FLOWS = (PASSWORD, CLIENT_CREDENTIALS, JWT_BEARER, WEB_SERVER, USER_AGENT, DEVICE)

_CLIENT_ID = re.compile(r"[A-Za-z0-9._-]{1,255}")
_MAX_URLS, _MAX_URL_LENGTH = 50, 2_000
_COLUMNS = "client_id, secret_hash, label, callback_urls, scopes, flows, certificate, run_as_user_id, options"
# Schemes that a browser would execute, or resolve on its own machine.
_UNSAFE_SCHEMES = frozenset({"javascript", "data", "vbscript", "file", "about", "blob"})


@dataclass(frozen=True, slots=True)
class ConnectedApp:
    """One app. Without a `secret_hash` it is public; `is_preauthorized` skips the consent page."""

    client_id: str
    label: str
    secret_hash: str = ""
    callback_urls: tuple[str, ...] = ()
    scopes: frozenset[str] = frozenset({API, REFRESH})
    flows: frozenset[str] = frozenset({WEB_SERVER})
    certificate: str = ""
    run_as_user_id: str = ""
    is_preauthorized: bool = False
    rotates_refresh: bool = False
    requires_pkce: bool = False

    @property
    def is_public(self) -> bool:
        """Whether the app has no secret."""
        return not self.secret_hash

    def check_flow(self, flow: str) -> None:
        """Raise GrantInvalid if the app may not use this flow."""
        if flow not in self.flows:
            raise GrantInvalid("this flow is not enabled for this app", oauth_error="invalid_app_access")


def draw_client_id() -> str:
    """Generate a consumer key in the original's form."""
    return "3MVG9" + secrets.token_hex(40)


def draw_secret() -> str:
    """Generate a consumer secret."""
    return secrets.token_hex(32).upper()


def check_secret(app: ConnectedApp | None, client_secret: str) -> ConnectedApp:
    """Return the app if the secret is right; a public app has none. Raises GrantInvalid."""
    if app is None:
        raise GrantInvalid("client identifier invalid", oauth_error="invalid_client_id")
    if app.is_public or not is_same_hash(app.secret_hash, hash_token(client_secret)):
        raise GrantInvalid("invalid client credentials", oauth_error="invalid_client")
    return app


def try_read_app(reader: Reader | Transaction, client_id: str) -> ConnectedApp | None:
    """Read the app with this consumer key."""
    if _CLIENT_ID.fullmatch(client_id) is None:
        return None
    rows = reader.execute(f"SELECT {_COLUMNS} FROM connected_apps WHERE client_id = ?", (client_id,))  # noqa: S608  # constant
    return _app(rows[0]) if rows else None


def read_apps(reader: Reader) -> list[ConnectedApp]:
    """Read all apps, ordered by label."""
    rows = reader.execute(f"SELECT {_COLUMNS} FROM connected_apps ORDER BY label, client_id")  # noqa: S608  # constant
    return [_app(row) for row in rows]


def store_app(tx: Transaction, app: ConnectedApp) -> None:
    """Insert an app or replace it."""
    options = {
        name: True for name in ("is_preauthorized", "rotates_refresh", "requires_pkce") if getattr(app, name)
    }
    tx.execute(
        f"INSERT INTO connected_apps ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608  # constant
        " ON CONFLICT (client_id) DO UPDATE SET secret_hash = excluded.secret_hash, label = excluded.label,"
        " callback_urls = excluded.callback_urls, scopes = excluded.scopes, flows = excluded.flows,"
        " certificate = excluded.certificate, run_as_user_id = excluded.run_as_user_id,"
        " options = excluded.options",
        (
            app.client_id,
            app.secret_hash,
            app.label,
            json.dumps(app.callback_urls),
            json.dumps(sorted(app.scopes)),
            json.dumps(sorted(app.flows)),
            app.certificate,
            app.run_as_user_id,
            json.dumps(options),
        ),
    )


def rotate_secret(tx: Transaction, client_id: str) -> str | None:
    """Replace an app's secret and return the new one; None if there is no such app."""
    app = try_read_app(tx, client_id)
    if app is None:
        return None
    secret = draw_secret()
    store_app(tx, replace(app, secret_hash=hash_token(secret)))
    return secret


def delete_app(tx: Transaction, client_id: str) -> bool:
    """Delete an app with all its tokens; return whether it existed."""
    if try_read_app(tx, client_id) is None:
        return False
    for statement in (
        "DELETE FROM connected_apps WHERE client_id = ?",
        "DELETE FROM app_approvals WHERE client_id = ?",
        "DELETE FROM refresh_tokens WHERE client_id = ?",
        "DELETE FROM authorization_codes WHERE client_id = ?",
        "DELETE FROM device_codes WHERE client_id = ?",
    ):
        tx.execute(statement, (client_id,))
    end_sessions(tx, "client_id", client_id)
    return True


def check_app(app: ConnectedApp) -> None:
    """Raise DefinitionInvalid for an app that could not work or would be unsafe."""
    if _CLIENT_ID.fullmatch(app.client_id) is None:
        _reject("client_id", "1 to 255 letters, digits, dots, dashes and underscores")
    if not 1 <= len(app.label) <= 80:
        _reject("label", "1 to 80 characters")
    _check_known("scopes", app.scopes, KNOWN)
    _check_known("flows", app.flows, FLOWS)
    if not app.scopes:
        _reject("scopes", "at least one")
    if len(app.callback_urls) > _MAX_URLS:
        _reject("callback_urls", f"at most {_MAX_URLS}")
    for url in app.callback_urls:
        check_callback_url(url)
    if app.flows & {WEB_SERVER, USER_AGENT} and not app.callback_urls:
        _reject("callback_urls", "the flows web_server and user_agent need one")
    if app.certificate:
        # Imported on first use: it takes megabytes, and few servers need it.
        from tidewire.access.signed_tokens import load_public_key

        load_public_key(app.certificate)
    elif JWT_BEARER in app.flows:
        _reject("certificate", "the flow jwt_bearer needs one")
    if CLIENT_CREDENTIALS in app.flows and (app.is_public or not app.run_as_user_id):
        _reject("run_as", "the flow client_credentials needs a secret and a user to run as")
    if app.is_public and app.flows & {PASSWORD}:
        _reject("flows", "the flow password needs a secret")


def check_callback_url(url: str) -> None:
    """Raise DefinitionInvalid for a URL that a browser must not be redirected to."""
    try:
        parts = urlsplit(url)
    except ValueError:
        _reject("callback_urls", f"{url[:80]} is not a URL")
    if len(url) > _MAX_URL_LENGTH or not url.isascii() or any(c <= " " or c == "\x7f" for c in url):
        _reject("callback_urls", f"{url[:80]} is not a URL")
    if not parts.scheme or parts.scheme.lower() in _UNSAFE_SCHEMES or parts.fragment or url.endswith("#"):
        _reject("callback_urls", f"{url[:80]} must have a safe scheme and no fragment")
    if parts.scheme.lower() in ("http", "https") and not parts.hostname:
        _reject("callback_urls", f"{url[:80]} has no host")


class AppAdmin:
    """Manages the connected apps of one org. Every call needs the permission Customize Application."""

    def __init__(self, records: RecordService) -> None:
        self._records = records

    async def entries(self, call: Caller) -> list[ConnectedApp]:
        """Return all apps."""
        await self._check(call)
        return await self._records.read(read_apps)

    async def find(self, call: Caller, client_id: str) -> ConnectedApp:
        """Return one app. Raises ResourceUnknown."""
        await self._check(call)
        app = await self._records.read(lambda reader: try_read_app(reader, client_id))
        if app is None:
            raise _unknown()
        return app

    async def create(
        self, call: Caller, app: ConnectedApp, *, run_as: str = "", is_public: bool = False
    ) -> tuple[str, str]:
        """Create an app; return its consumer key, generated unless given, and its secret, which is shown only once.

        `run_as` is the user name for client credentials. Raises DefinitionInvalid or DuplicateValue.
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
                raise DuplicateValue("an app with this client id already exists", fields=["client_id"])
            store_app(tx, made)

        await self._records.write_plain(work)
        return made.client_id, secret

    async def rotate_secret(self, call: Caller, client_id: str) -> str:
        """Replace an app's secret and return the new one. The old one stops working at once."""
        await self._check(call)
        secret = await self._records.write_plain(lambda tx: rotate_secret(tx, client_id))
        if secret is None:
            raise _unknown()
        return secret

    async def delete(self, call: Caller, client_id: str) -> None:
        """Delete an app and end all its sessions."""
        await self._check(call)
        if not await self._records.write_plain(lambda tx: delete_app(tx, client_id)):
            raise _unknown()

    async def usernames(self, apps: list[ConnectedApp]) -> Mapping[str, str]:
        """Return the user names of the users that apps run as, by id."""
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


def _check_known(path: str, given: Iterable[str], known: Iterable[str]) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        _reject(path, f"unknown: {', '.join(unknown)[:200]}; known are {', '.join(sorted(known))}")


def _reject(path: str, reason: str) -> NoReturn:
    raise DefinitionInvalid(f"{path}: {reason}", path=path)


def _app(row: tuple[object, ...]) -> ConnectedApp:
    client_id, secret_hash, label, urls, scopes, flows, certificate, run_as_user_id, options = (
        str(value) for value in row
    )
    flags: Mapping[str, bool] = json.loads(options)
    return ConnectedApp(
        client_id=client_id,
        label=label,
        secret_hash=secret_hash,
        callback_urls=tuple(json.loads(urls)),
        scopes=frozenset(json.loads(scopes)),
        flows=frozenset(json.loads(flows)),
        certificate=certificate,
        run_as_user_id=run_as_user_id,
        is_preauthorized=bool(flags.get("is_preauthorized")),
        rotates_refresh=bool(flags.get("rotates_refresh")),
        requires_pkce=bool(flags.get("requires_pkce")),
    )


def _unknown() -> ResourceUnknown:
    return ResourceUnknown("The requested resource does not exist")
