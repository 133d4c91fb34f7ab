"""The sign-in flags that commands share, and the connection that results from them.

Flags and environment win over the profile of `tidewire login`, which wins over the well-known login of development
mode. A profile's password and session are only ever sent to the profile's own server, for its own user: another
--url or --username does not use them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from tidewire.cli.profiles import USUAL_PROFILE, Profile, load_profiles, save_profile
from tidewire.client.login import Credentials, Login, login
from tidewire.client.rest import USUAL_VERSION, RestClient
from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_PASSWORD, DEV_USERNAME
from tidewire.errors import ConfigInvalid, LoginFailed, ServerUnreachable, SessionInvalid

ADMIN_PATH = "/services/tidewire/v1"
USUAL_URL = "http://localhost:8080"
_UNKNOWN_APP = ("invalid_client_id", "invalid_client")
_PUBLIC_ENDPOINT = "api.pubsub.salesforce.com:7443"
_CONNECT_S = 5.0

_OPTIONS = (
    ("url", f"the server's HTTP address (default {USUAL_URL})"),
    ("username", "the user to sign in as"),
    ("password", "the user's password"),
    ("client-id", "the connected app's client id; empty signs in by SOAP"),
    ("client-secret", "the connected app's secret"),
    ("token", "use this access token instead of signing in"),
    ("ca", "file with the CA certificate to trust for HTTPS and gRPC, see `tidewire ca`"),
)


@dataclass(frozen=True, slots=True)
class Connection:
    """A server and a login. `session` is one saved by an earlier command; a new one is saved in `profile`.

    `can_use_soap` is set if no connected app was named: a server that lacks the default one is signed in to by SOAP.
    """

    credentials: Credentials
    ca: str = ""
    profile: str = ""
    session: Login | None = field(default=None, repr=False)
    can_use_soap: bool = False
    saved_endpoint: str = ""

    @property
    def tls_ca(self) -> bytes | None:
        """The CA certificate to trust besides the system's. Raises ConfigInvalid if it cannot be read."""
        if not self.ca:
            return None
        try:
            return Path(self.ca).read_bytes()
        except OSError as error:
            raise ConfigInvalid(f"{self.ca} cannot be read: {error.strerror}", setting="ca") from error

    def signing_in(self) -> Callable[[], Login]:
        """Return a function that returns the saved session first, and a new one on each later call."""
        first = [self.session] if self.session is not None else []
        return lambda: first.pop() if first else self.sign_in()

    def sign_in(self) -> Login:
        """Start a session and save it in the profile. Raises LoginFailed, or SessionInvalid without a password."""
        credentials = self.credentials
        if not credentials.password:
            raise SessionInvalid("the session has expired, and no password is saved to renew it")
        try:
            session = login(credentials, self.tls_ca)
        except LoginFailed as error:
            if not self.can_use_soap or error.details.get("reason") not in _UNKNOWN_APP:
                raise
            session = login(replace(credentials, client_id="", client_secret=""), self.tls_ca)
        if self.profile:
            self._save(session)
        return session

    def signing_in_with_org(self) -> Callable[[], Login]:
        """Like `signing_in`, but with the org id, which calls of the Pub/Sub API send."""
        sign_in = self.signing_in()

        def complete() -> Login:
            session = sign_in()
            if session.org_id:
                return session
            user = RestClient(session, self.tls_ca).call("GET", "/services/oauth2/userinfo")
            return replace(session, org_id=str(user["organization_id"]), user_id=str(user["user_id"]))

        return complete

    def rest(self, api_version: str = USUAL_VERSION) -> RestClient:
        """Sign in and return a REST client."""
        sign_in = self.signing_in()
        return RestClient(sign_in(), self.tls_ca, api_version=api_version, renew=sign_in)

    def endpoint(self, given: str = "") -> tuple[str, bytes | None]:
        """Return the Pub/Sub API's address, and the CA certificates to trust there; None for a plain connection.

        The default is the usual port on the server's host.
        """
        parts = urlsplit(self.credentials.login_url)
        host = parts.hostname or "localhost"
        is_public = host.endswith(".salesforce.com")
        is_tls = parts.scheme == "https" or bool(self.ca)
        shown = f"[{host}]" if ":" in host else host
        usual = _PUBLIC_ENDPOINT if is_public else f"{shown}:7443" if is_tls else f"{shown}:7011"
        return given or self.saved_endpoint or usual, (self.tls_ca or b"") if is_tls else None

    async def reach_pubsub(self, given: str = "") -> tuple[str, bytes | None]:
        """Return what `endpoint` does once the address accepts connections. Raises ServerUnreachable.

        Called before a gRPC channel is opened, which would retry silently.
        """
        import asyncio  # slow to load, and most commands do without

        address, roots = self.endpoint(given)
        host, _, port = address.rpartition(":")
        if not port.isdecimal() or not host:
            raise click.BadParameter(f"{address!r} is not HOST:PORT", param_hint="--endpoint")
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except (OSError, TimeoutError) as error:
            raise ServerUnreachable(
                f"cannot reach the Pub/Sub API at {address}: {error}; set another address with --endpoint",
                address=address,
            ) from error
        writer.close()
        return address, roots

    def _save(self, session: Login) -> None:
        saved = load_profiles().get(self.profile)
        if saved is not None:
            values = {"token": session.token, "instance_url": session.instance_url}
            save_profile(
                self.profile, replace(saved, **values, org_id=session.org_id, user_id=session.user_id)
            )


def sign_in_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the sign-in flags; those not given are None."""
    for name, help_text in reversed(_OPTIONS):
        variable = "TIDEWIRE_" + name.upper().replace("-", "_")
        kind = click.Path(exists=True, dir_okay=False) if name == "ca" else click.STRING
        command = click.option("--" + name, type=kind, default=None, envvar=variable, help=help_text)(command)
    return command


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the sign-in flags and `--profile`, and pass them as one `connection` argument."""
    named = click.option(
        "--profile",
        "profile_name",
        envvar="TIDEWIRE_PROFILE",
        default=None,
        help=f"profile of `tidewire login` to use (default {USUAL_PROFILE})",
    )
    return named(connection_options_without_profile(command))


def connection_options_without_profile(command: Callable[..., Any]) -> Callable[..., Any]:
    """Like `connection_options`, for a command with its own `--profile`; TIDEWIRE_PROFILE still applies."""

    @wraps(command)
    def with_connection(profile_name: str | None = None, **others: Any) -> Any:
        given = {name.replace("-", "_"): others.pop(name.replace("-", "_")) for name, _ in _OPTIONS}
        return command(connection=resolve(profile_name, **given), **others)

    return sign_in_options(with_connection)


def credentials_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Like `connection_options`, but pass only the `credentials`."""

    @wraps(command)
    def with_credentials(connection: Connection, **others: Any) -> Any:
        return command(credentials=connection.credentials, **others)

    return connection_options(with_credentials)


def endpoint_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--endpoint`."""
    return click.option(
        "--endpoint",
        envvar="TIDEWIRE_ENDPOINT",
        default="",
        metavar="HOST:PORT",
        help="address of the Pub/Sub API (default: the server's host, port 7011, or 7443 with TLS)",
    )(command)


def version_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--api-version`."""
    return click.option(
        "--api-version",
        default=USUAL_VERSION,
        show_default=True,
        callback=lambda _ctx, _param, value: check_version(value),
        help="API version; it decides the format of responses and messages",
    )(command)


def check_version(text: str) -> str:
    """Return a valid API version such as 67.0. Raises click.BadParameter."""
    number, dot, rest = text.partition(".")
    if not (number.isascii() and number.isdecimal() and dot and rest == "0"):
        raise click.BadParameter(
            f"{text!r} is not an API version such as {USUAL_VERSION}", param_hint="--api-version"
        )
    return text


def resolve(profile_name: str | None, **given: str | None) -> Connection:
    """Combine flags, environment and profile into a connection. Raises ConfigInvalid."""
    # Commands with their own --profile have no flag for it.
    profile_name = profile_name or os.environ.get("TIDEWIRE_PROFILE")
    profiles = load_profiles()
    name = profile_name or USUAL_PROFILE
    if profile_name and profile_name not in profiles:
        raise ConfigInvalid(
            f"no profile {profile_name}; create it with `tidewire login --profile {profile_name}`",
            setting="profile",
        )
    saved = profiles.get(name)
    if saved is not None and not profile_name and _is_other_server(saved, given):
        saved = None
    return from_flags(given) if saved is None else _from_profile(name, saved, given)


def _is_other_server(saved: Profile, given: Mapping[str, str | None]) -> bool:
    url = given["url"]
    return url is not None and url.rstrip("/") != saved.url.rstrip("/")


def from_flags(given: Mapping[str, str | None]) -> Connection:
    """Combine flags and environment into a connection, without a profile."""
    url = given["url"] or USUAL_URL
    token = given["token"] or ""
    app = given["client_id"]
    secret = given["client_secret"]
    credentials = Credentials(
        url,
        given["username"] or DEV_USERNAME,
        (given["password"] or "")
        if token
        else DEV_PASSWORD
        if given["password"] is None
        else given["password"],
        DEV_CLIENT_ID if app is None else app,
        DEV_CLIENT_SECRET if secret is None else secret,
    )
    session = Login(token, url.rstrip("/"), "", "") if token else None
    return Connection(credentials, given["ca"] or "", session=session, can_use_soap=app is None)


def _from_profile(name: str, saved: Profile, given: Mapping[str, str | None]) -> Connection:
    if _is_other_server(saved, given):
        raise ConfigInvalid(
            f"profile {name} belongs to {saved.url}; omit --url, or create another with `tidewire login`",
            setting="url",
        )
    is_other = given["username"] is not None and given["username"] != saved.username
    if is_other and given["password"] is None and not given["token"]:
        raise ConfigInvalid(
            f"profile {name} belongs to {saved.username}; pass --password for {given['username']}",
            setting="password",
        )
    values = {key: value for key, value in given.items() if value is not None}
    app = values.get("client_id", saved.client_id)
    credentials = Credentials(
        saved.url,
        values.get("username", saved.username),
        values.get("password", "" if is_other else saved.password),
        app,
        values.get("client_secret", saved.client_secret if app == saved.client_id else ""),
    )
    session = None
    if given["token"]:
        session = Login(given["token"], saved.instance_url or saved.url, saved.org_id, "")
    elif saved.token and not is_other and given["password"] is None:
        session = Login(saved.token, saved.instance_url, saved.org_id, saved.user_id)
    return Connection(
        credentials,
        values.get("ca", saved.ca),
        # The session of another user must not be saved in this profile.
        profile="" if is_other or given["token"] else name,
        session=session,
        can_use_soap="client_id" not in values,
        saved_endpoint=saved.endpoint,
    )
