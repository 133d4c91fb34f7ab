"""`tidewire user`, `permset`, `session` and `app`: manage who may sign in to a running server.

The signed-in user needs Manage Users, and Customize Application for apps and for commands that apply a definition.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from tidewire.access.apps import FLOWS
from tidewire.access.passwords import draw_password
from tidewire.cli.client_options import (
    ADMIN_PATH,
    Connection,
    connection_options,
    connection_options_without_profile,
)
from tidewire.cli.output import examples, json_option, show, show_fields, show_table
from tidewire.client.rest import RestClient

_USER = click.argument("other_username", metavar="USERNAME")
_CLIENT_ID = click.argument("app_id", metavar="CLIENT_ID")


def _quoted(text: str) -> str:
    """Return a SOQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _ids(client: RestClient, entity: str, **values: str) -> list[str]:
    """Return the ids of the records that have these field values."""
    where = " AND ".join(f"{name} = {_quoted(value)}" for name, value in values.items())
    return [str(row["Id"]) for row in client.query(f"SELECT Id FROM {entity} WHERE {where}")]  # noqa: S608  # quoted


def _user_id(client: RestClient, username: str) -> str:
    found = _ids(client, "User", Username=username)
    if not found:
        raise click.ClickException(f"no user {username}; `tidewire user list` lists them")
    return found[0]


def _user_path(client: RestClient, username: str) -> str:
    return f"{ADMIN_PATH}/users/{_user_id(client, username)}"


def _app_path(app_id: str) -> str:
    return f"{ADMIN_PATH}/apps/{quote(app_id, safe='')}"


@click.group(epilog=examples("tidewire user list", "tidewire user COMMAND --help"))
def user() -> None:
    """Manage users: create, list, reset passwords, deactivate, freeze and unlock."""


@user.command("create", epilog=examples("tidewire user create ann@example.org --permset Account_Reader"))
@click.argument("new_username", metavar="USERNAME")
@click.option("--first-name", default="", help="first name")
@click.option("--last-name", default="", help="last name (default: the part of the username before the @)")
@click.option("--email", default="", help="email address (default: the username)")
@click.option("--profile", default="Standard User", show_default=True, help="profile")
@click.option("--permset", "permsets", multiple=True, help="a permission set to assign; repeatable")
@json_option
@connection_options_without_profile
def create_user(
    new_username: str,
    first_name: str,
    last_name: str,
    email: str,
    profile: str,
    permsets: tuple[str, ...],
    as_json: bool,
    connection: Connection,
) -> None:
    """Create a user with a random password, and print it once."""
    client = connection.rest()
    if _ids(client, "User", Username=new_username):
        raise click.ClickException(f"user {new_username} already exists")
    password = draw_password()
    given = {"first_name": first_name, "last_name": last_name, "email": email}
    spec: dict[str, Any] = {name: value for name, value in given.items() if value}
    spec |= {"password": password, "profile": profile, "permission_sets": list(permsets)}
    client.call("POST", f"{ADMIN_PATH}/apply", {"users": {new_username: spec}})
    created = {"username": new_username, "id": _user_id(client, new_username), "password": password}
    show(
        created, as_json=as_json, text=f"user {new_username} created; password (shown only once): {password}"
    )


@user.command("list", epilog=examples("tidewire user list", "tidewire user list --json"))
@json_option
@connection_options
def list_users(as_json: bool, connection: Connection) -> None:
    """List users."""
    rows = connection.rest().query(
        "SELECT Id, Username, LastName, IsActive, Profile.Name, LastLoginDate FROM User ORDER BY Username"
    )
    table = [
        {
            "username": row["Username"],
            "id": row["Id"],
            "active": row["IsActive"],
            "profile": (row["Profile"] or {}).get("Name"),
            "last_login": row["LastLoginDate"],
        }
        for row in rows
    ]
    show_table(table, ("username", "id", "active", "profile", "last_login"), as_json=as_json)


@user.command("reset-password", epilog=examples("tidewire user reset-password ann@example.org"))
@_USER
@json_option
@connection_options
def reset_password(other_username: str, as_json: bool, connection: Connection) -> None:
    """Set a new random password, print it once, and end the user's sessions."""
    client = connection.rest()
    answer = client.call("POST", f"{_user_path(client, other_username)}/password")
    show(answer, as_json=as_json, text=f"password (shown only once): {answer['password']}")


@user.command(
    "security-token",
    epilog=examples(
        "tidewire user security-token ann@example.org", "tidewire user security-token ann@example.org --drop"
    ),
)
@_USER
@click.option("--drop", is_flag=True, help="remove the token instead")
@json_option
@connection_options
def security_token(other_username: str, drop: bool, as_json: bool, connection: Connection) -> None:
    """Create a security token for a user and print it once.

    The user must then append it to the password, except from the org's trusted addresses.
    """
    client = connection.rest()
    path = f"{_user_path(client, other_username)}/security-token"
    if drop:
        client.call("DELETE", path)
        show({"security_token": None}, as_json=as_json, text=f"security token of {other_username} removed")
        return
    answer = client.call("POST", path)
    show(answer, as_json=as_json, text=f"security token (shown only once): {answer['security_token']}")


def _add_switch(name: str, summary: str, done: str, entity: str, values: dict[str, bool]) -> None:
    """Add a `user` command that sets a flag of a user's record in `entity`."""

    @user.command(name, help=summary, epilog=examples(f"tidewire user {name} ann@example.org"))
    @_USER
    @connection_options
    def switch(other_username: str, connection: Connection) -> None:
        client = connection.rest()
        record_id = _user_id(client, other_username)
        if entity == "UserLogin":
            (record_id,) = _ids(client, entity, UserId=record_id)
        client.update(entity, record_id, values)
        click.echo(f"user {other_username} {done}")


_add_switch(
    "deactivate",
    "Deactivate a user: block sign-in and end the user's sessions.",
    "deactivated",
    "User",
    {"IsActive": False},
)
_add_switch("activate", "Activate a deactivated user.", "activated", "User", {"IsActive": True})
_add_switch(
    "freeze",
    "Freeze a user: block sign-in for now and end the user's sessions.",
    "frozen",
    "UserLogin",
    {"IsFrozen": True},
)
_add_switch("unfreeze", "Let a frozen user sign in again.", "unfrozen", "UserLogin", {"IsFrozen": False})


@user.command("unlock", epilog=examples("tidewire user unlock ann@example.org"))
@_USER
@connection_options
def unlock_user(other_username: str, connection: Connection) -> None:
    """Unlock a user who is locked out after too many failed logins."""
    client = connection.rest()
    client.call("POST", f"{_user_path(client, other_username)}/unlock")
    click.echo(f"user {other_username} unlocked")


@click.group(epilog=examples("tidewire permset list", "tidewire permset COMMAND --help"))
def permset() -> None:
    """Manage permission sets: create, list, assign and unassign."""


@permset.command("list", epilog=examples("tidewire permset list"))
@json_option
@connection_options
def list_permsets(as_json: bool, connection: Connection) -> None:
    """List permission sets and the users who have them."""
    client = connection.rest()
    held: dict[str, list[str]] = {}
    for row in client.query("SELECT PermissionSetId, Assignee.Username FROM PermissionSetAssignment"):
        held.setdefault(row["PermissionSetId"], []).append(str((row["Assignee"] or {}).get("Username", "")))
    table = [
        {"name": row["Name"], "label": row["Label"], "id": row["Id"], "users": held.get(row["Id"], [])}
        for row in client.query("SELECT Id, Name, Label FROM PermissionSet ORDER BY Name")
    ]
    show_table(table, ("name", "label", "id", "users"), as_json=as_json)


@permset.command(
    "create",
    epilog=examples(
        "tidewire permset create Account_Editor --permission ApiEnabled --object Account:create,read,edit"
    ),
)
@click.argument("name")
@click.option("--label", default="", help="display name (default: the name)")
@click.option("--permission", "permissions", multiple=True, help="such as ViewAllData; repeatable")
@click.option(
    "--object", "objects", multiple=True, metavar="NAME:RIGHTS", help="such as Account:read,edit; repeatable"
)
@connection_options
def create_permset(
    name: str, label: str, permissions: tuple[str, ...], objects: tuple[str, ...], connection: Connection
) -> None:
    """Create a permission set. Set field permissions with `tidewire apply`."""
    client = connection.rest()
    if _ids(client, "PermissionSet", Name=name):
        raise click.ClickException(f"permission set {name} already exists")
    rights: dict[str, list[str]] = {}
    for text in objects:
        entity, separator, words = text.partition(":")
        if not separator or not words:
            raise click.BadParameter(f"{text!r} is not NAME:RIGHTS", param_hint="--object")
        rights[entity] = words.split(",")
    spec = {"label": label or name, "permissions": list(permissions), "objects": rights}
    client.call("POST", f"{ADMIN_PATH}/apply", {"permission_sets": {name: spec}})
    click.echo(f"permission set {name} created")


def _find_assignment(client: RestClient, name: str, username: str) -> tuple[dict[str, str], list[str]]:
    """Return the values of an assignment, and the ids of assignments that have them."""
    found = _ids(client, "PermissionSet", Name=name)
    if not found:
        raise click.ClickException(f"no permission set {name}; `tidewire permset list` lists them")
    values = {"PermissionSetId": found[0], "AssigneeId": _user_id(client, username)}
    return values, _ids(client, "PermissionSetAssignment", **values)


@permset.command("assign", epilog=examples("tidewire permset assign Account_Reader ann@example.org"))
@click.argument("name")
@_USER
@connection_options
def assign_permset(name: str, other_username: str, connection: Connection) -> None:
    """Assign a permission set to a user."""
    client = connection.rest()
    values, found = _find_assignment(client, name, other_username)
    if found:
        raise click.ClickException(f"{name} is already assigned to {other_username}")
    client.create("PermissionSetAssignment", values)
    click.echo(f"{name} assigned to {other_username}")


@permset.command("unassign", epilog=examples("tidewire permset unassign Account_Reader ann@example.org"))
@click.argument("name")
@_USER
@connection_options
def unassign_permset(name: str, other_username: str, connection: Connection) -> None:
    """Remove a permission set from a user."""
    client = connection.rest()
    _, found = _find_assignment(client, name, other_username)
    if not found:
        raise click.ClickException(f"{name} is not assigned to {other_username}")
    for assignment_id in found:
        client.delete("PermissionSetAssignment", assignment_id)
    click.echo(f"{name} removed from {other_username}")


@click.group(epilog=examples("tidewire session list", "tidewire session COMMAND --help"))
def session() -> None:
    """List and revoke login sessions."""


@session.command(
    "list", epilog=examples("tidewire session list", "tidewire session list --of ann@example.org --json")
)
@click.option("--of", "other_username", default="", metavar="USERNAME", help="only sessions of this user")
@json_option
@connection_options
def list_sessions(other_username: str, as_json: bool, connection: Connection) -> None:
    """List login sessions that have not expired, newest first."""
    rows = _sessions(connection.rest(), other_username)
    show_table(rows, ("id", "username", "kind", "app", "peer", "started", "used"), as_json=as_json)


@session.command("revoke", epilog=examples("tidewire session revoke --of ann@example.org"))
@click.argument("session_ids", metavar="ID", nargs=-1)
@click.option("--of", "other_username", default="", metavar="USERNAME", help="all sessions of this user")
@connection_options
def revoke_session(session_ids: tuple[str, ...], other_username: str, connection: Connection) -> None:
    """Revoke login sessions and close their open streams."""
    client = connection.rest()
    if bool(session_ids) == bool(other_username):
        raise click.UsageError("pass session ids, or --of USERNAME")
    if other_username:
        session_ids = tuple(row["id"] for row in _sessions(client, other_username))
    for session_id in session_ids:
        client.call("DELETE", f"{ADMIN_PATH}/sessions/{quote(session_id, safe='')}")
    click.echo(f"{len(session_ids)} session{'' if len(session_ids) == 1 else 's'} revoked")


def _sessions(client: RestClient, username: str) -> list[dict[str, Any]]:
    suffix = f"?username={quote(username, safe='')}" if username else ""
    sessions: list[dict[str, Any]] = client.call("GET", f"{ADMIN_PATH}/sessions{suffix}")["sessions"]
    return sessions


@click.group(epilog=examples("tidewire app list", "tidewire app COMMAND --help"))
def app() -> None:
    """Manage connected apps, the programs that may request tokens."""


@app.command(
    "create",
    epilog=examples("tidewire app create Loader --flow client_credentials --run-as loader@example.org"),
)
@click.argument("label")
@click.option("--id", "app_id", default="", help="the client id (default: random)")
@click.option("--callback", "callbacks", multiple=True, help="a callback URL; repeatable")
@click.option("--scope", "scopes", multiple=True, help="such as api or refresh_token; repeatable")
@click.option(
    "--flow", "flows", multiple=True, type=click.Choice(FLOWS), help="an OAuth flow to allow; repeatable"
)
@click.option(
    "--certificate", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="PEM, for jwt_bearer"
)
@click.option("--run-as", default="", help="the user for client_credentials")
@click.option("--public", is_flag=True, help="create it without a secret; needs PKCE")
@click.option("--preauthorized", is_flag=True, help="skip the consent page")
@click.option("--rotate-refresh", is_flag=True, help="issue a new refresh token on every refresh")
@click.option("--require-pkce", is_flag=True, help="reject authorization requests without a PKCE challenge")
@json_option
@connection_options
def create_app(
    label: str,
    app_id: str,
    callbacks: tuple[str, ...],
    scopes: tuple[str, ...],
    flows: tuple[str, ...],
    certificate: Path | None,
    run_as: str,
    public: bool,
    preauthorized: bool,
    rotate_refresh: bool,
    require_pkce: bool,
    as_json: bool,
    connection: Connection,
) -> None:
    """Create a connected app and print its secret once."""
    body = {
        "label": label,
        "client_id": app_id,
        "callback_urls": list(callbacks),
        "scopes": list(scopes),
        "flows": list(flows),
        "certificate": certificate.read_text("utf-8") if certificate else "",
        "run_as": run_as,
        "public": public,
        "preauthorized": preauthorized,
        "rotates_refresh": rotate_refresh,
        "requires_pkce": require_pkce,
    }
    answer = connection.rest().call("POST", f"{ADMIN_PATH}/apps", body)
    text = f"client id: {answer['client_id']}"
    if "client_secret" in answer:
        text += f"\nclient secret (shown only once): {answer['client_secret']}"
    show(answer, as_json=as_json, text=text)


@app.command("list", epilog=examples("tidewire app list"))
@json_option
@connection_options
def list_apps(as_json: bool, connection: Connection) -> None:
    """List connected apps."""
    rows = connection.rest().call("GET", f"{ADMIN_PATH}/apps")["apps"]
    show_table(rows, ("label", "client_id", "flows", "scopes", "run_as"), as_json=as_json)


@app.command("show", epilog=examples("tidewire app show billing"))
@_CLIENT_ID
@json_option
@connection_options
def show_app(app_id: str, as_json: bool, connection: Connection) -> None:
    """Show one connected app, without its secret."""
    show_fields(connection.rest().call("GET", _app_path(app_id)), as_json=as_json)


@app.command("rotate-secret", epilog=examples("tidewire app rotate-secret billing"))
@_CLIENT_ID
@json_option
@connection_options
def rotate_secret(app_id: str, as_json: bool, connection: Connection) -> None:
    """Replace an app's secret and print the new one once. The old one stops working."""
    answer = connection.rest().call("POST", _app_path(app_id) + "/secret")
    show(answer, as_json=as_json, text=f"client secret (shown only once): {answer['client_secret']}")


@app.command("delete", epilog=examples("tidewire app delete billing"))
@_CLIENT_ID
@connection_options
def delete_app(app_id: str, connection: Connection) -> None:
    """Delete an app and end all its sessions."""
    connection.rest().call("DELETE", _app_path(app_id))
    click.echo(f"app {app_id} deleted")
