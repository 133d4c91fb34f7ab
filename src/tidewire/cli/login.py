"""`tidewire login`, `logout` and `profiles`: save a server and login for the other commands."""

from __future__ import annotations

import ssl
import sys
import urllib.parse
import urllib.request
from contextlib import suppress
from dataclasses import replace

import click

from tidewire.cli.client_options import USUAL_URL, Connection, endpoint_option, from_flags, sign_in_options
from tidewire.cli.output import examples, json_option, show, show_table
from tidewire.cli.profiles import USUAL_PROFILE, Profile, load_profiles, remove_profile, save_profile
from tidewire.client.login import Credentials, Login
from tidewire.config import DEV_USERNAME

_NAME = click.option(
    "--profile",
    "name",
    envvar="TIDEWIRE_PROFILE",
    default=USUAL_PROFILE,
    show_default=True,
    help="name of the profile",
)
_REVOKE_S = 10.0


@click.command(
    epilog=examples(
        "tidewire login",
        "tidewire login --url https://localhost:8443 --ca data/server/tls/ca.pem --username ann@example.org",
        "tidewire login --profile work --url https://login.salesforce.com --username ann@example.com",
        'tidewire login --url https://example.my.salesforce.com --token "$ACCESS_TOKEN"',
    )
)
@_NAME
@click.option("--no-password", is_flag=True, help="save the session only; sign in again when it expires")
@endpoint_option
@json_option
@sign_in_options
def login(name: str, no_password: bool, endpoint: str, as_json: bool, **given: str | None) -> None:
    """Sign in and save the login as a profile.

    Without flags, signs in to a development server on this machine with its well-known login. Prompts for the
    password if it is not given. Only you can read the profile file.
    """
    connection = _connection(given)
    signed_in = connection.signing_in_with_org()() if given["token"] else connection.sign_in()
    saved = _profile(connection, signed_in, endpoint)
    path = save_profile(name, replace(saved, password="", client_secret="") if no_password else saved)
    result = {
        "profile": name,
        "url": saved.url,
        "username": saved.username,
        "org_id": saved.org_id,
        "file": str(path),
    }
    use = "" if name == USUAL_PROFILE else f" --profile {name}"
    user = saved.username or signed_in.user_id
    text = (
        f"signed in to {saved.instance_url} as {user}, org {saved.org_id}\n"
        f"profile {name} saved in {path}; try: tidewire channels{use}"
    )
    show(result, as_json=as_json, text=text)


def _connection(given: dict[str, str | None]) -> Connection:
    """Build the connection of the flags; prompt for the password of a user other than the development one."""
    if given["password"] is None and not given["token"] and given["username"] not in (None, DEV_USERNAME):
        if not sys.stdin.isatty():
            raise click.UsageError("no password: pass --password or set TIDEWIRE_PASSWORD")
        given = given | {
            "password": click.prompt(f"Password of {given['username']}", hide_input=True, err=True)
        }
    return from_flags(given)


def _profile(connection: Connection, signed_in: Login, endpoint: str) -> Profile:
    credentials: Credentials = connection.credentials
    has_password = bool(credentials.password)
    return Profile(
        url=credentials.login_url.rstrip("/"),
        username=credentials.username if has_password else "",
        password=credentials.password,
        client_id=credentials.client_id if has_password else "",
        client_secret=credentials.client_secret if has_password else "",
        ca=connection.ca,
        endpoint=endpoint,
        token=signed_in.token,
        instance_url=signed_in.instance_url,
        org_id=signed_in.org_id,
        user_id=signed_in.user_id,
    )


@click.command(epilog=examples("tidewire logout", "tidewire logout --profile work"))
@_NAME
@click.option("--all", "is_all", is_flag=True, help="all profiles")
def logout(name: str, is_all: bool) -> None:
    """End a profile's session and delete the profile."""
    profiles = load_profiles()
    if is_all:
        chosen = list(profiles)
    elif name in profiles:
        chosen = [name]
    else:
        raise click.ClickException(f"no profile {name}; `tidewire profiles` lists them")
    for each in chosen:
        _revoke(profiles[each])
        remove_profile(each)
        click.echo(f"profile {each} deleted")


@click.command(epilog=examples("tidewire profiles", "tidewire profiles --json"))
@json_option
def profiles(as_json: bool) -> None:
    """List saved profiles, without their secrets."""
    rows = [
        {
            "name": name,
            "url": saved.url,
            "username": saved.username,
            "org_id": saved.org_id,
            "endpoint": saved.endpoint,
            "can_renew": bool(saved.password),
        }
        for name, saved in sorted(load_profiles().items())
    ]
    if not rows and not as_json:
        click.echo(f"no profiles; commands use {USUAL_URL}. Create one with `tidewire login`.")
        return
    show_table(rows, ("name", "url", "username", "org_id", "endpoint", "can_renew"), as_json=as_json)


def _revoke(saved: Profile) -> None:
    """Revoke the session at its server, if the server is reachable."""
    if not saved.token:
        return
    body = urllib.parse.urlencode({"token": saved.token}).encode()
    request = urllib.request.Request(saved.instance_url + "/services/oauth2/revoke", body)  # noqa: S310  # from a login
    context = None
    if saved.instance_url.startswith("https"):
        context = ssl.create_default_context(cafile=saved.ca or None)
    # The server may be down, or the session may have expired.
    with suppress(OSError), urllib.request.urlopen(request, timeout=_REVOKE_S, context=context):  # noqa: S310
        pass
