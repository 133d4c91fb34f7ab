"""Logins: checks a password or another proof, starts a login session, and reads the user's own data.

A failed login takes the same time and gives the same message whatever was wrong. All conditions are checked again in
the transaction that starts the session, so that a lock, a new password or a deactivation cannot race with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network

from tidewire.access.credentials import Caller, Credentials
from tidewire.access.grants import read_grants
from tidewire.access.passwords import check_new_password, is_password, split_security_token
from tidewire.access.principal import Principal
from tidewire.access.scopes import API, FULL, WEB, opens_api
from tidewire.access.sessions import Origin, Sessions
from tidewire.access.user_logins import (
    is_frozen,
    is_locked,
    note_ended_locks,
    note_failure,
    note_lock,
    purge_failures,
    unlock,
)
from tidewire.clock import Clock
from tidewire.errors import GrantInvalid, LoginFailed, PasswordInvalid, PlatformError, SessionInvalid
from tidewire.events import Value
from tidewire.ids import try_normalise_id
from tidewire.records.service import RecordService
from tidewire.records.table import read_rows, try_find_by_value, try_read_row, update_row
from tidewire.schema.standard.people import has_person_accounts
from tidewire.storage.store import Reader, Transaction

_LOGIN_FAILED = "Invalid username, password, security token; or user locked out."
_TOKEN_NEEDED = (
    _LOGIN_FAILED + " Are you at a new location? Outside of the trusted networks,"
    " add your security token to the end of your password."
)
_API_DISABLED = "API is not enabled for this Organization or Partner"
_EVERYTHING = frozenset({API, FULL, WEB})


@dataclass(frozen=True, slots=True)
class LoginResult:
    """A new session with its token, which exists nowhere else."""

    token: str
    principal: Principal
    seconds_valid: int


@dataclass(frozen=True, slots=True)
class UserInfo:
    """A user's data as login responses and identity resources return it."""

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
    has_person_accounts: bool = False
    nickname: str = ""
    mobile_phone: str = ""
    street: str = ""
    city: str = ""
    state: str = ""
    country: str = ""
    postal_code: str = ""
    modified_ms: int = 0


@dataclass(frozen=True, slots=True)
class _Candidate:
    """The stored data of a user name, read before the password is checked; empty for an unknown name."""

    user_id: str = ""
    username: str = ""
    password_hash: str | None = None
    token_hash: str = ""
    has_api: bool = False


class Logins:
    """One org's logins."""

    def __init__(
        self, records: RecordService, clock: Clock, org_id: str, org_name: str, *, idle_timeout_s: int = 7200
    ) -> None:
        self._records = records
        self._clock = clock
        self._org_name = org_name
        self._idle_timeout_s = idle_timeout_s
        self.org_id = org_id
        self.sessions = Sessions(records, clock, org_id, lambda: self.seconds_valid)
        self.credentials = Credentials(records, clock)

    @property
    def seconds_valid(self) -> int:
        """How long a session lives without use: the org's setting, or else the server's."""
        return self._records.types.settings.session_timeout_s or self._idle_timeout_s

    async def login(
        self,
        username: str,
        password: str,
        peer: str,
        *,
        kind: str = "SOAP",
        client_id: str = "",
        scopes: frozenset[str] = _EVERYTHING,
        org_id: str = "",
    ) -> LoginResult:
        """Start a session. Raises LoginFailed, with the same text and timing whatever was wrong.

        An `org_id` other than this org's fails too. Two reasons are reported to callers with the right password: the
        detail `exception_code` is then `LOGIN_MUST_USE_SECURITY_TOKEN` or `API_DISABLED_FOR_ORG`.
        """
        found = await self._records.read(lambda reader: self._find(reader, username))
        typed, has_token = split_security_token(password, found.token_hash)
        is_match = await asyncio.to_thread(is_password, found.password_hash, typed)
        lacks_token = bool(found.token_hash) and not has_token and not self._is_trusted(peer)
        lacks_api = opens_api(scopes) and not found.has_api
        catalog = self._records.types.catalog
        is_here = not org_id or try_normalise_id(org_id) == self.org_id

        def check(tx: Transaction) -> PlatformError | None:
            now_ms = self._clock.now_ms()
            if is_locked(tx, username, now_ms):
                return LoginFailed(_LOGIN_FAILED, login_status="User locked out")
            is_right = is_match and is_here and self._is_current(tx, found)
            if not is_right or lacks_token:
                note_failure(tx, username, self._records.types.settings, now_ms)
                if found.user_id:
                    note_lock(tx, catalog, found.user_id, found.username, now_ms)
                if not is_right:
                    status = "Login not allowed" if is_match else "Invalid Password"
                    return LoginFailed(_LOGIN_FAILED, login_status=status)
                return LoginFailed(_TOKEN_NEEDED, exception_code="LOGIN_MUST_USE_SECURITY_TOKEN")
            if lacks_api:
                return LoginFailed(_API_DISABLED, exception_code="API_DISABLED_FOR_ORG")
            unlock(tx, catalog, found.user_id, found.username, now_ms)
            self._note_login(tx, found.user_id, now_ms)
            return None

        origin = Origin(kind, peer, scopes, client_id)
        token, principal = await self.sessions.start(found.user_id, found.username, origin, check)
        return LoginResult(token, principal, self.seconds_valid)

    async def start_session(
        self,
        user_id: str,
        origin: Origin,
        check: Callable[[Transaction], PlatformError | None],
    ) -> LoginResult:
        """Start a session for a user who was authenticated in another way. Raises GrantInvalid.

        `check` runs in the session's transaction and may return an error, as in `Sessions.start`.
        """
        user, has_api = await self._records.read(lambda reader: self._read_user(reader, user_id))
        if user is None or not user["IsActive"]:
            raise GrantInvalid("user is inactive", oauth_error="inactive_user")
        if opens_api(origin.scopes) and not has_api:
            raise GrantInvalid(_API_DISABLED, oauth_error="invalid_app_access")

        def check_all(tx: Transaction) -> PlatformError | None:
            row = try_read_row(tx, self._records.types.catalog.object("User"), user_id)
            if row is None or not row["IsActive"] or is_frozen(tx, self._records.types.catalog, user_id):
                return GrantInvalid("user is inactive", oauth_error="inactive_user")
            error = check(tx)
            if error is None:
                self._note_login(tx, user_id, self._clock.now_ms())
            return error

        token, principal = await self.sessions.start(user_id, str(user["Username"]), origin, check_all)
        return LoginResult(token, principal, self.seconds_valid)

    async def change_own_password(self, call: Caller, old_password: str, new_password: str) -> None:
        """Set the caller's password if the old one is right. Raises PasswordInvalid.

        A wrong old password counts as a failed login.
        """
        principal = call.principal
        check_new_password(new_password)
        found = await self._records.read(lambda reader: self._find(reader, principal.username))
        is_match = await asyncio.to_thread(is_password, found.password_hash, old_password)

        def check(tx: Transaction) -> bool:
            now_ms = self._clock.now_ms()
            if is_locked(tx, found.username, now_ms):
                return False
            if not is_match:
                note_failure(tx, found.username, self._records.types.settings, now_ms)
                note_lock(tx, self._records.types.catalog, found.user_id, found.username, now_ms)
            return is_match

        if not await self._records.write_plain(check):
            raise PasswordInvalid("Your old password is invalid", is_old=True)
        await self.credentials.set_password(call, principal.user_id, new_password)

    async def user_info(self, principal: Principal) -> UserInfo:
        """Return the signed-in user's data. Raises SessionInvalid if the user no longer exists."""
        info = await self.try_user_info(principal.user_id)
        if info is None:
            raise SessionInvalid("Session expired or invalid")
        return info

    async def try_user_info(self, user_id: str) -> UserInfo | None:
        """Return any user's data. The caller checks that it may be shown."""
        user = self._records.types.catalog.object("User")
        row = await self._records.read(lambda reader: try_read_row(reader, user, user_id))
        if row is None:
            return None

        def text(name: str) -> str:
            return str(row.get(name) or "")

        return UserInfo(
            user_id=user_id,
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
            has_person_accounts=has_person_accounts(self._records.types.catalog.object("Account")),
            nickname=text("CommunityNickname"),
            mobile_phone=text("MobilePhone"),
            street=text("Street"),
            city=text("City"),
            state=text("State"),
            country=text("Country"),
            postal_code=text("PostalCode"),
            modified_ms=int(row["LastModifiedDate"] or 0),
        )

    async def purge(self) -> None:
        """Delete expired sessions and old failure counts."""
        await self.sessions.purge()
        settings, now_ms = self._records.types.settings, self._clock.now_ms()

        def work(tx: Transaction) -> None:
            purge_failures(tx, settings, now_ms)
            note_ended_locks(tx, self._records.types.catalog, now_ms)

        await self._records.write_plain(work)

    async def try_find_user(self, username: str) -> str | None:
        """Return the id of the user with this name."""
        return (await self._records.read(lambda reader: self._find(reader, username))).user_id or None

    def _find(self, reader: Reader, username: str) -> _Candidate:
        if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in username):
            return _Candidate()  # no database can hold such a name
        user = self._records.types.catalog.object("User")
        user_id = try_find_by_value(reader, user, user.by_name["username"], username)
        if user_id is None:
            return _Candidate()
        row, has_api = self._read_user(reader, user_id)
        if row is None:
            return _Candidate()
        password = reader.execute("SELECT hash FROM passwords WHERE user_id = ?", (user_id,))
        token = reader.execute("SELECT token_hash FROM security_tokens WHERE user_id = ?", (user_id,))
        return _Candidate(
            user_id,
            str(row["Username"]),
            password[0][0] if password else None,
            token[0][0] if token else "",
            has_api,
        )

    def _read_user(self, reader: Reader, user_id: str) -> tuple[dict[str, Value] | None, bool]:
        """Return a user's row, and whether the user may use the APIs."""
        catalog = self._records.types.catalog
        rows = read_rows(reader, catalog.object("User"), "Id", [user_id])
        if not rows:
            return None, False
        is_on = self._records.types.settings.api_enabled
        return rows[0], is_on and read_grants(reader, catalog, user_id).has("ApiEnabled")

    def _is_current(self, tx: Transaction, found: _Candidate) -> bool:
        """Whether the user is active, not frozen, and still has the password that was checked."""
        catalog = self._records.types.catalog
        row = try_read_row(tx, catalog.object("User"), found.user_id)
        if row is None or not row["IsActive"] or is_frozen(tx, catalog, found.user_id):
            return False
        stored = tx.execute("SELECT hash FROM passwords WHERE user_id = ?", (found.user_id,))
        return bool(stored == [(found.password_hash,)])

    def _note_login(self, tx: Transaction, user_id: str, now_ms: int) -> None:
        # Written past the unit of work on purpose: a login is not a change that subscribers are notified of.
        user = self._records.types.catalog.object("User")
        update_row(tx, user, user_id, {"LastLoginDate": now_ms - now_ms % 1000})

    def _is_trusted(self, peer: str) -> bool:
        try:
            address = ip_address(peer)
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in ip_network(block) for block in self._records.types.settings.trusted_ip_ranges)
