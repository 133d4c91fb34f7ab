"""OAuth 2.0 without HTTP: every grant by which an app gets a token for a user, and revocation.

Each grant first validates its input, then starts a login session. One-time codes and assertions are marked as used in
the session's own transaction. Every rejection is a GrantInvalid whose detail `oauth_error` is the protocol's error
code.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from tidewire.access import apps, authorizations, device_flow
from tidewire.access.apps import AppAdmin, ConnectedApp, check_secret, try_read_app
from tidewire.access.authorizations import Authorization
from tidewire.access.logins import LoginResult, Logins
from tidewire.access.scopes import REFRESH, granted_scopes, parse_scopes, still_allowed
from tidewire.access.sessions import Origin, SessionEntry
from tidewire.clock import Clock
from tidewire.errors import GrantInvalid, LoginFailed, PlatformError, SessionInvalid
from tidewire.records.service import RecordService
from tidewire.storage.store import Transaction

if TYPE_CHECKING:
    from tidewire.access.signed_tokens import Assertion, SigningKey

KIND = "OAuth"
# Many clients name the original service as the audience, whichever host they call.
_USUAL_AUDIENCES = ("https://login.salesforce.com", "https://test.salesforce.com")
_TOKEN_PATH = "/services/oauth2/token"  # noqa: S105  # a path
_UNUSABLE_CODE = "expired authorization code"
_UNUSABLE_REFRESH = "expired access/refresh token"


@dataclass(frozen=True, slots=True)
class Issued:
    """A new access token and what is returned with it."""

    login: LoginResult
    client_id: str
    scopes: frozenset[str]
    refresh_token: str = field(default="", repr=False)
    nonce: str = ""


class OAuth:
    """One org's authorization server."""

    def __init__(
        self,
        records: RecordService,
        logins: Logins,
        clock: Clock,
        key_file: Path,
        audiences: Iterable[str] = (),
    ) -> None:
        self._records = records
        self._logins = logins
        self._clock = clock
        self._key_file = key_file
        self._key: SigningKey | None = None
        self._key_lock = asyncio.Lock()
        self.apps = AppAdmin(records)
        self._audiences = frozenset(a.rstrip("/") for a in audiences)

    async def signing_key(self) -> SigningKey:
        """Return the key that signs id tokens; created on first use."""
        async with self._key_lock:
            if self._key is None:
                await _load_signed_tokens()
                from tidewire.access.signed_tokens import ensure_signing_key

                self._key = await asyncio.to_thread(ensure_signing_key, self._key_file)
        return self._key

    def audiences(self, base_url: str) -> frozenset[str]:
        """Return the accepted audiences of assertions: the configured ones, or else the host that the client used.

        Either scheme is accepted: behind a proxy ours differs from the client's.
        """
        if self._audiences:
            return self._audiences
        host = base_url.partition("://")[2]
        own = [f"{scheme}://{host}{path}" for scheme in ("http", "https") for path in ("", _TOKEN_PATH)]
        return frozenset({*own, *_USUAL_AUDIENCES})

    async def find_app(self, client_id: str) -> ConnectedApp:
        """Return the app with this consumer key. Raises GrantInvalid."""
        app = await self._records.read(lambda reader: try_read_app(reader, client_id))
        if app is None:
            raise GrantInvalid("client identifier invalid", oauth_error="invalid_client_id")
        return app

    async def check_app(self, client_id: str, secret: str) -> ConnectedApp:
        """Return the app if the secret is right; a public app needs none. Raises GrantInvalid."""
        app = await self.find_app(client_id)
        return app if app.is_public and not secret else check_secret(app, secret)

    async def grant_for_password(
        self, client_id: str, secret: str, username: str, password: str, peer: str
    ) -> Issued:
        """Run the password flow. Raises GrantInvalid or LoginFailed."""
        app = check_secret(await self.find_app(client_id), secret)
        app.check_flow(apps.PASSWORD)
        scopes = app.scopes - {REFRESH}
        login = await self._logins.login(
            username, password, peer, kind=KIND, client_id=client_id, scopes=scopes
        )
        return Issued(login, client_id, scopes)

    async def grant_for_credentials(self, client_id: str, secret: str, requested: str, peer: str) -> Issued:
        """Run the client credentials flow: the app acts as its run-as user."""
        app = check_secret(await self.find_app(client_id), secret)
        if apps.CLIENT_CREDENTIALS not in app.flows or not app.run_as_user_id:
            raise GrantInvalid("no client credentials user enabled", oauth_error="invalid_grant")
        scopes = granted_scopes(requested, app.scopes - {REFRESH})
        return await self._start(app, app.run_as_user_id, scopes, peer)

    async def grant_for_assertion(
        self, text: str, audiences: frozenset[str], requested: str, peer: str
    ) -> Issued:
        """Run the JWT bearer flow: the app signs that it acts for a user who approved it."""
        assertion = await read_assertion(text)
        app = await self.find_app(assertion.issuer)
        app.check_flow(apps.JWT_BEARER)
        if not app.certificate:
            raise GrantInvalid("invalid client credentials", oauth_error="invalid_client")
        from tidewire.access.signed_tokens import load_public_key, verify_assertion

        now_ms = self._clock.now_ms()
        verify_assertion(assertion, load_public_key(app.certificate), audiences, now_ms / 1000)
        user_id = await self._logins.try_find_user(assertion.subject)
        allowed = None if user_id is None else await self._allowed(app, user_id)
        if user_id is None or allowed is None:
            raise GrantInvalid("user hasn't approved this consumer", oauth_error="invalid_grant")
        scopes = granted_scopes(requested, allowed - {REFRESH})
        expires_ms = round(assertion.expires_s * 1000)

        def use(tx: Transaction) -> PlatformError | None:
            if authorizations.use_assertion(tx, assertion.digest(), expires_ms, now_ms):
                return None
            return GrantInvalid("invalid assertion: it was used before", oauth_error="invalid_grant")

        return await self._start(app, user_id, scopes, peer, use)

    async def has_approved(self, app: ConnectedApp, user_id: str, scopes: frozenset[str]) -> bool:
        """Whether the user has already approved these scopes."""
        if app.is_preauthorized:
            return True
        known = await self._records.read(
            lambda reader: authorizations.read_approved(reader, app.client_id, user_id)
        )
        return known is not None and scopes <= known

    async def approve(self, app: ConnectedApp, user_id: str, scopes: frozenset[str]) -> None:
        """Store that the user approved these scopes for the app."""
        now_ms = self._clock.now_ms()
        await self._records.write_plain(
            lambda tx: authorizations.approve(tx, app.client_id, user_id, scopes, now_ms)
        )

    async def give_code(
        self,
        app: ConnectedApp,
        user_id: str,
        scopes: frozenset[str],
        redirect_uri: str,
        *,
        challenge: str,
        nonce: str,
    ) -> str:
        """Issue a code that the app can exchange for tokens."""
        code = authorizations.draw_code(self._logins.org_id)
        authorization = Authorization(
            app.client_id, user_id, scopes, str(uuid.uuid4()), redirect_uri, challenge, nonce
        )
        now_ms = self._clock.now_ms()
        await self._records.write_plain(lambda tx: authorizations.store_code(tx, code, authorization, now_ms))
        return code

    async def grant_for_code(
        self, client_id: str, secret: str, code: str, redirect_uri: str, verifier: str, peer: str
    ) -> Issued:
        """Finish the web server flow: exchange a code for tokens."""
        app = await self.check_app(client_id, secret)
        now_ms = self._clock.now_ms()
        found = await self._records.read(lambda reader: authorizations.try_read_code(reader, code))
        if found is None or found.authorization.client_id != client_id:
            raise GrantInvalid("invalid authorization code", oauth_error="invalid_grant")
        authorization = found.authorization
        if found.is_used:
            await self._records.write_plain(
                lambda tx: authorizations.revoke_grant(tx, authorization.grant_id)
            )
        if found.is_used or found.expires_ms <= now_ms:
            raise GrantInvalid(_UNUSABLE_CODE, oauth_error="invalid_grant")
        if redirect_uri != authorization.redirect_uri:
            raise GrantInvalid("redirect_uri must match configuration", oauth_error="redirect_uri_mismatch")
        is_verified = authorizations.is_verifier(authorization.challenge, verifier)
        if (authorization.challenge or verifier) and not is_verified:
            raise GrantInvalid("invalid code verifier", oauth_error="invalid_grant")

        def use(tx: Transaction) -> PlatformError | None:
            if authorizations.use_code(tx, code, now_ms):
                return None
            return GrantInvalid(_UNUSABLE_CODE, oauth_error="invalid_grant")

        return await self._start_refreshable(app, authorization, peer, use)

    async def grant_directly(
        self, app: ConnectedApp, user_id: str, scopes: frozenset[str], peer: str, nonce: str = ""
    ) -> Issued:
        """Run the user-agent flow: return tokens through the browser. A refresh token needs its scope."""
        authorization = Authorization(app.client_id, user_id, scopes, str(uuid.uuid4()), nonce=nonce)
        return await self._start_refreshable(app, authorization, peer)

    async def grant_for_refresh(
        self, client_id: str, secret: str, token: str, requested: str, peer: str
    ) -> Issued:
        """Issue an access token for a refresh token, which is replaced if the app rotates them."""
        app = await self.check_app(client_id, secret)
        found = await self._records.read(lambda reader: authorizations.try_read_refresh(reader, token))
        if found is None or found[0].client_id != client_id:
            raise GrantInvalid(_UNUSABLE_REFRESH, oauth_error="invalid_grant")
        authorization = found[0]
        # A scope that was taken from the app since then is not granted again.
        has = still_allowed(granted_scopes(requested, authorization.scopes), app.scopes)
        if found[1]:
            await self._records.write_plain(
                lambda tx: authorizations.revoke_grant(tx, authorization.grant_id)
            )
            raise GrantInvalid(_UNUSABLE_REFRESH, oauth_error="invalid_grant")
        successor = authorizations.draw_code(self._logins.org_id) if app.rotates_refresh else ""
        now_ms = self._clock.now_ms()

        def use(tx: Transaction) -> PlatformError | None:
            if authorizations.use_refresh(tx, token, successor, now_ms):
                return None
            return GrantInvalid(_UNUSABLE_REFRESH, oauth_error="invalid_grant")

        narrowed = Authorization(client_id, authorization.user_id, has, authorization.grant_id)
        return await self._start_granted(app, narrowed, successor, peer, use)

    async def begin_device(self, client_id: str, requested: str) -> tuple[str, str]:
        """Start the device flow: return the device's code and the user's code."""
        app = await self.find_app(client_id)
        app.check_flow(apps.DEVICE)
        scopes = granted_scopes(requested, app.scopes)
        now_ms = self._clock.now_ms()
        return await self._records.write_plain(
            lambda tx: device_flow.begin_device(tx, self._logins.org_id, app.client_id, scopes, now_ms)
        )

    async def try_find_device(self, user_code: str) -> tuple[ConnectedApp, frozenset[str]] | None:
        """Return the app and scopes of a user code."""
        now_ms = self._clock.now_ms()
        found = await self._records.read(
            lambda reader: device_flow.try_read_by_user_code(reader, user_code, now_ms)
        )
        return None if found is None else (await self.find_app(found.client_id), found.scopes)

    async def answer_device(self, user_code: str, user_id: str, *, allows: bool) -> bool:
        """Store the user's answer to a device; return whether the request was still pending."""
        now_ms = self._clock.now_ms()
        answer = device_flow.APPROVED if allows else device_flow.DENIED
        return await self._records.write_plain(
            lambda tx: device_flow.answer_device(tx, user_code, user_id, answer, now_ms)
        )

    async def grant_for_device(self, client_id: str, secret: str, code: str, peer: str) -> Issued:
        """Finish the device flow. The device polls this until the user has answered."""
        app = await self.find_app(client_id)
        if secret:
            check_secret(app, secret)
        now_ms = self._clock.now_ms()
        found, is_early = await self._records.write_plain(
            lambda tx: device_flow.poll_device(tx, code, now_ms)
        )
        if found is None or found.client_id != client_id or found.expires_ms <= now_ms:
            raise GrantInvalid("invalid device code", oauth_error="invalid_grant")
        if is_early:
            raise GrantInvalid("polling too quickly", oauth_error="slow_down")
        if found.answer == device_flow.DENIED:
            raise GrantInvalid("end-user denied authorization", oauth_error="access_denied")
        if found.answer == device_flow.PENDING:
            raise GrantInvalid("authorization pending", oauth_error="authorization_pending")
        authorization = Authorization(client_id, found.user_id, found.scopes, str(uuid.uuid4()))

        def use(tx: Transaction) -> PlatformError | None:
            if device_flow.take_device(tx, code):
                return None
            return GrantInvalid("invalid device code", oauth_error="invalid_grant")

        return await self._start_refreshable(app, authorization, peer, use)

    async def revoke(self, token: str) -> bool:
        """Revoke a token; a refresh token also ends its sessions. Return False for an unknown token."""
        found = await self._records.read(lambda reader: authorizations.try_read_refresh(reader, token))
        if found is not None:
            grant_id = found[0].grant_id

            def work(tx: Transaction) -> None:
                self._logins.sessions.log_out_grant(tx, grant_id)
                authorizations.revoke_grant(tx, grant_id)

            await self._records.write_plain(work)
            return True
        try:
            entry = await self._logins.sessions.peek(token)
        except SessionInvalid:
            return False
        return await self._logins.sessions.log_out(entry.session_id)

    async def inspect(self, app: ConnectedApp, token: str) -> SessionEntry | Authorization | None:
        """Return the session or authorization of a token; None if it is invalid or belongs to another app."""
        try:
            entry = await self._logins.sessions.peek(token)
        except SessionInvalid:
            found = await self._records.read(lambda reader: authorizations.try_read_refresh(reader, token))
            if found is None or found[1] or found[0].client_id != app.client_id:
                return None
            return found[0]
        return entry if entry.origin.client_id == app.client_id else None

    async def sign_in(self, username: str, password: str, peer: str) -> LoginResult:
        """Start a session for the login pages only. Raises LoginFailed."""
        return await self._logins.login(username, password, peer, kind="UI", scopes=parse_scopes("web"))

    async def try_browser_user(self, token: str) -> SessionEntry | None:
        """Return the session of the user who is signed in to the login pages; None if nobody is."""
        try:
            entry = await self._logins.sessions.identify(token)
        except SessionInvalid:
            return None
        # A token that an app got does not sign in a browser: only sessions from the login page count.
        return entry if entry.origin.kind == "UI" else None

    async def _allowed(self, app: ConnectedApp, user_id: str) -> frozenset[str] | None:
        """Return the scopes that the user, or an administrator for all users, approved; None without approval."""
        if app.is_preauthorized:
            return app.scopes
        approved = await self._records.read(
            lambda reader: authorizations.read_approved(reader, app.client_id, user_id)
        )
        return None if approved is None else still_allowed(approved, app.scopes)

    async def _start_refreshable(
        self,
        app: ConnectedApp,
        authorization: Authorization,
        peer: str,
        check: Callable[[Transaction], PlatformError | None] = lambda tx: None,
    ) -> Issued:
        refresh = authorizations.draw_code(self._logins.org_id) if REFRESH in authorization.scopes else ""
        now_ms = self._clock.now_ms()

        def use(tx: Transaction) -> PlatformError | None:
            error = check(tx)
            if error is None and refresh:
                authorizations.store_refresh(tx, refresh, authorization, now_ms)
            return error

        return await self._start_granted(app, authorization, refresh, peer, use)

    async def _start_granted(
        self,
        app: ConnectedApp,
        authorization: Authorization,
        refresh: str,
        peer: str,
        check: Callable[[Transaction], PlatformError | None],
    ) -> Issued:
        scopes = authorization.scopes
        origin = Origin(KIND, peer, scopes - {REFRESH}, app.client_id, authorization.grant_id)
        login = await self._logins.start_session(authorization.user_id, origin, check)
        return Issued(login, app.client_id, scopes, refresh, authorization.nonce)

    async def _start(
        self,
        app: ConnectedApp,
        user_id: str,
        scopes: frozenset[str],
        peer: str,
        check: Callable[[Transaction], PlatformError | None] = lambda tx: None,
    ) -> Issued:
        return await self._start_granted(
            app, Authorization(app.client_id, user_id, scopes, ""), "", peer, check
        )


def oauth_error_of(error: GrantInvalid | LoginFailed) -> tuple[str, str]:
    """Return OAuth's error code and description. A failed login does not say what was wrong."""
    if isinstance(error, GrantInvalid):
        return str(error.details.get("oauth_error", "invalid_grant")), error.message
    if error.details.get("exception_code") == "API_DISABLED_FOR_ORG":
        return "invalid_app_access", error.message
    return "invalid_grant", "authentication failure"


async def read_assertion(text: str) -> Assertion:
    """Parse a JWT assertion without verifying it. Raises GrantInvalid."""
    await _load_signed_tokens()
    from tidewire.access.signed_tokens import parse_assertion

    return parse_assertion(text)


async def _load_signed_tokens() -> None:
    """Import the JWT libraries on first use: few servers need their megabytes, and importing would block the loop."""
    await asyncio.to_thread(import_module, "tidewire.access.signed_tokens")
