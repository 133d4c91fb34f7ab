"""Flags that every command shares that signs in to a server, and the connection they amount to.

Flags and environment come first, then the profile of `tidewire login`, then the well-known login of development mode.
What a profile keeps belongs together: its password and session go to its own server and for its own user only, so
naming another server or user leaves them aside.
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
from tidewire.errors import ConfigInvalid, LoginFailed, SessionInvalid

USUAL_URL = "http://localhost:8080"
_UNKNOWN_APP = ("invalid_client_id", "invalid_client")
_PUBLIC_ENDPOINT = "api.pubsub.salesforce.com:7443"

_OPTIONS = (
    ("url", f"where the server answers HTTP; {USUAL_URL} if nothing else is known"),
    ("username", "who to sign in as"),
    ("password", "the user's password"),
    ("client-id", "the connected app; empty signs in by SOAP"),
    ("client-secret", "the connected app's secret"),
    ("token", "an access token to use instead of signing in"),
    ("ca", "a file with the certificate to trust for https and gRPC, see `tidewire ca`"),
)


@dataclass(frozen=True, slots=True)
class Connection:
    """A server and who asks it. `session` is one that an earlier command left; `profile` is where to keep another.

    `can_use_soap` is set if nobody named a connected app: servers without the usual one are asked by SOAP.
    """

    credentials: Credentials
    ca: str = ""
    profile: str = ""
    session: Login | None = field(default=None, repr=False)
    can_use_soap: bool = False
    kept_endpoint: str = ""

    @property
    def tls_ca(self) -> bytes | None:
        """The certificate to trust beside the usual ones. Raises ConfigInvalid if it cannot be read."""
        if not self.ca:
            return None
        try:
            return Path(self.ca).read_bytes()
        except OSError as error:
            raise ConfigInvalid(f"{self.ca} cannot be read: {error.strerror}", setting="ca") from error

    def signing_in(self) -> Callable[[], Login]:
        """What clients call to sign in: at first the session at hand, then a new one each time."""
        first = [self.session] if self.session is not None else []
        return lambda: first.pop() if first else self.sign_in()

    def sign_in(self) -> Login:
        """A new session, kept in the profile. Raises LoginFailed, or SessionInvalid if only a session was given."""
        credentials = self.credentials
        if not credentials.password:
            raise SessionInvalid("the session has ended, and there is no password to begin another with")
        try:
            made = login(credentials, self.tls_ca)
        except LoginFailed as error:
            if not self.can_use_soap or error.details.get("reason") not in _UNKNOWN_APP:
                raise
            made = login(replace(credentials, client_id="", client_secret=""), self.tls_ca)
        if self.profile:
            self._keep(made)
        return made

    def signing_in_with_org(self) -> Callable[[], Login]:
        """The same for the Pub/Sub API, whose calls name the org: a token alone does not tell it."""
        sign_in = self.signing_in()

        def complete() -> Login:
            made = sign_in()
            if made.org_id:
                return made
            told = RestClient(made, self.tls_ca).call("GET", "/services/oauth2/userinfo")
            return replace(made, org_id=str(told["organization_id"]), user_id=str(told["user_id"]))

        return complete

    def rest(self, api_version: str = USUAL_VERSION) -> RestClient:
        """A REST client, signed in."""
        sign_in = self.signing_in()
        return RestClient(sign_in(), self.tls_ca, api_version=api_version, renew=sign_in)

    def endpoint(self, given: str = "") -> tuple[str, bytes | None]:
        """Where the Pub/Sub API is, and the roots to trust there; None for a plain connection.

        If it is not named, it is looked for at the usual port of the server's host.
        """
        parts = urlsplit(self.credentials.login_url)
        host = parts.hostname or "localhost"
        is_public = host.endswith(".salesforce.com")
        is_tls = parts.scheme == "https" or bool(self.ca)
        shown = f"[{host}]" if ":" in host else host
        usual = _PUBLIC_ENDPOINT if is_public else f"{shown}:7443" if is_tls else f"{shown}:7011"
        return given or self.kept_endpoint or usual, (self.tls_ca or b"") if is_tls else None

    def _keep(self, made: Login) -> None:
        kept = load_profiles().get(self.profile)
        if kept is not None:
            session = {"token": made.token, "instance_url": made.instance_url}
            save_profile(self.profile, replace(kept, **session, org_id=made.org_id, user_id=made.user_id))


def sign_in_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the sign-in flags as they are, None where one is not given."""
    for name, help_text in reversed(_OPTIONS):
        variable = "TIDEWIRE_" + name.upper().replace("-", "_")
        kind = click.Path(exists=True, dir_okay=False) if name == "ca" else click.STRING
        command = click.option("--" + name, type=kind, default=None, envvar=variable, help=help_text)(command)
    return command


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the sign-in flags and `--profile`, and hands them over as one `connection` argument."""
    named = click.option(
        "--profile",
        "profile_name",
        envvar="TIDEWIRE_PROFILE",
        default=None,
        help=f"which profile of `tidewire login` to use; {USUAL_PROFILE} if there is one",
    )
    return named(connection_options_without_profile(command))


def connection_options_without_profile(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a command that has another `--profile`; TIDEWIRE_PROFILE chooses one all the same."""

    @wraps(command)
    def with_connection(profile_name: str | None = None, **others: Any) -> Any:
        given = {name.replace("-", "_"): others.pop(name.replace("-", "_")) for name, _ in _OPTIONS}
        return command(connection=resolve(profile_name, **given), **others)

    return sign_in_options(with_connection)


def credentials_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the same flags for a command that only needs to know how to sign in, as a `credentials` argument."""

    @wraps(command)
    def with_credentials(connection: Connection, **others: Any) -> Any:
        return command(credentials=connection.credentials, **others)

    return connection_options(with_credentials)


def endpoint_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--endpoint`."""
    return click.option(
        "--endpoint",
        envvar="TIDEWIRE_ENDPOINT",
        default="",
        metavar="HOST:PORT",
        help="the Pub/Sub API; the server's host and port 7011, or 7443 with TLS, if left out",
    )(command)


def version_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--api-version`."""
    return click.option(
        "--api-version",
        default=USUAL_VERSION,
        show_default=True,
        callback=lambda _ctx, _param, value: check_version(value),
        help="the version in the address; it decides what answers and messages look like",
    )(command)


def check_version(text: str) -> str:
    """A version as it stands in an address. Raises click.BadParameter."""
    number, dot, rest = text.partition(".")
    if not (number.isascii() and number.isdecimal() and dot and rest == "0"):
        raise click.BadParameter(f"{text!r} is not of the form {USUAL_VERSION}", param_hint="--api-version")
    return text


def resolve(profile_name: str | None, **given: str | None) -> Connection:
    """The connection that flags, environment and profile amount to. Raises ConfigInvalid."""
    # Commands with a --profile of their own have no flag for it.
    profile_name = profile_name or os.environ.get("TIDEWIRE_PROFILE")
    profiles = load_profiles()
    name = profile_name or USUAL_PROFILE
    if profile_name and profile_name not in profiles:
        raise ConfigInvalid(
            f"there is no profile {profile_name}; make it with `tidewire login --profile {profile_name}`",
            setting="profile",
        )
    kept = profiles.get(name)
    if kept is not None and not profile_name and _is_elsewhere(kept, given):
        kept = None
    return from_flags(given) if kept is None else _from_profile(name, kept, given)


def _is_elsewhere(kept: Profile, given: Mapping[str, str | None]) -> bool:
    url = given["url"]
    return url is not None and url.rstrip("/") != kept.url.rstrip("/")


def from_flags(given: Mapping[str, str | None]) -> Connection:
    """The connection that flags and environment amount to without a profile."""
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


def _from_profile(name: str, kept: Profile, given: Mapping[str, str | None]) -> Connection:
    if _is_elsewhere(kept, given):
        raise ConfigInvalid(
            f"profile {name} is for {kept.url}; leave out --url, or make another with `tidewire login`",
            setting="url",
        )
    is_other = given["username"] is not None and given["username"] != kept.username
    if is_other and given["password"] is None and not given["token"]:
        raise ConfigInvalid(
            f"profile {name} is for {kept.username}; give the --password of {given['username']}",
            setting="password",
        )
    values = {key: value for key, value in given.items() if value is not None}
    app = values.get("client_id", kept.client_id)
    credentials = Credentials(
        kept.url,
        values.get("username", kept.username),
        values.get("password", "" if is_other else kept.password),
        app,
        values.get("client_secret", kept.client_secret if app == kept.client_id else ""),
    )
    session = None
    if given["token"]:
        session = Login(given["token"], kept.instance_url or kept.url, kept.org_id, "")
    elif kept.token and not is_other and given["password"] is None:
        session = Login(kept.token, kept.instance_url, kept.org_id, kept.user_id)
    return Connection(
        credentials,
        values.get("ca", kept.ca),
        # A session of somebody else does not belong into this profile.
        profile="" if is_other or given["token"] else name,
        session=session,
        can_use_soap="client_id" not in values,
        kept_endpoint=kept.endpoint,
    )
