"""`tidewire user`, `permset`, `session` and `app`: who may sign in to a running server, and through what.

They call the server as the user given, who needs Manage Users, and Customize Application for apps and for what
goes through a definition.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from tidewire.access.apps import FLOWS
from tidewire.access.passwords import draw_password
from tidewire.cli.client_options import Connection, connection_options, connection_options_without_profile
from tidewire.cli.output import examples, json_option, show, show_table
from tidewire.client.rest import RestClient

_DATA = "/services/data/v67.0/sobjects"
_ADMIN = "/services/tidewire/v1"


def _quoted(text: str) -> str:
    """A text literal of SOQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _find(client: RestClient, entity: str, field: str, value: str, word: str) -> str:
    rows = client.query(f"SELECT Id FROM {entity} WHERE {field} = {_quoted(value)}")  # noqa: S608  # SOQL, quoted
    if not rows:
        raise click.ClickException(f"there is no {word} {value}")
    return str(rows[0]["Id"])


def _user_id(client: RestClient, username: str) -> str:
    return _find(client, "User", "Username", username, "user")


def _set_id(client: RestClient, name: str) -> str:
    return _find(client, "PermissionSet", "Name", name, "permission set")


@click.group(epilog=examples("tidewire user list", "tidewire user COMMAND --help"))
def user() -> None:
    """Users: made, listed, given passwords, switched off and on."""


@user.command("create", epilog=examples("tidewire user create ann@example.org --permset Account_Reader"))
@click.argument("new_username", metavar="USERNAME")
@click.option("--first-name", default="", help="first name")
@click.option("--last-name", default="", help="last name; the part before the @ if left out")
@click.option("--email", default="", help="email address; the user name if left out")
@click.option("--profile", default="Standard User", show_default=True, help="profile")
@click.option("--permset", "permsets", multiple=True, help="a permission set to assign; may be repeated")
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
    """Make a user with a password drawn at random, which is printed once."""
    client = connection.rest()
    if client.query(f"SELECT Id FROM User WHERE Username = {_quoted(new_username)}"):  # noqa: S608  # SOQL, quoted
        raise click.ClickException(f"there is a user {new_username} already")
    password = draw_password()
    given = {"first_name": first_name, "last_name": last_name, "email": email}
    spec: dict[str, Any] = {name: value for name, value in given.items() if value}
    spec |= {"password": password, "profile": profile, "permission_sets": list(permsets)}
    client.call("POST", f"{_ADMIN}/apply", {"users": {new_username: spec}})
    made = {"username": new_username, "id": _user_id(client, new_username), "password": password}
    show(made, as_json=as_json, text=f"{new_username} is made; password, not shown again: {password}")


@user.command("list", epilog=examples("tidewire user list", "tidewire user list --json"))
@json_option
@connection_options
def list_users(as_json: bool, connection: Connection) -> None:
    """List the users."""
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
@click.argument("other_username", metavar="USERNAME")
@json_option
@connection_options
def reset_password(other_username: str, as_json: bool, connection: Connection) -> None:
    """Draw another password for a user, print it once, and end the user's sessions."""
    client = connection.rest()
    answer = client.call("POST", f"{_ADMIN}/users/{_user_id(client, other_username)}/password")
    show(answer, as_json=as_json, text=f"password, not shown again: {answer['password']}")


@user.command(
    "security-token",
    epilog=examples(
        "tidewire user security-token ann@example.org", "tidewire user security-token ann@example.org --drop"
    ),
)
@click.argument("other_username", metavar="USERNAME")
@click.option("--drop", is_flag=True, help="let the user sign in without one again")
@json_option
@connection_options
def security_token(other_username: str, drop: bool, as_json: bool, connection: Connection) -> None:
    """Draw a security token for a user and print it once.

    From then on it has to follow the password, except from the org's trusted addresses.
    """
    client = connection.rest()
    path = f"{_ADMIN}/users/{_user_id(client, other_username)}/security-token"
    if drop:
        client.call("DELETE", path)
        show({"security_token": None}, as_json=as_json, text=f"{other_username} has no security token")
        return
    answer = client.call("POST", path)
    show(answer, as_json=as_json, text=f"security token, not shown again: {answer['security_token']}")


@user.command("deactivate", epilog=examples("tidewire user deactivate ann@example.org"))
@click.argument("other_username", metavar="USERNAME")
@connection_options
def deactivate_user(other_username: str, connection: Connection) -> None:
    """Keep a user from signing in, and end the user's sessions."""
    _set_active(connection, other_username, is_active=False)


@user.command("activate", epilog=examples("tidewire user activate ann@example.org"))
@click.argument("other_username", metavar="USERNAME")
@connection_options
def activate_user(other_username: str, connection: Connection) -> None:
    """Let a user sign in again."""
    _set_active(connection, other_username, is_active=True)


def _set_active(connection: Connection, username: str, *, is_active: bool) -> None:
    client = connection.rest()
    client.call("PATCH", f"{_DATA}/User/{_user_id(client, username)}", {"IsActive": is_active})
    click.echo(f"{username} is {'active' if is_active else 'not active'}")


@user.command("freeze", epilog=examples("tidewire user freeze ann@example.org"))
@click.argument("other_username", metavar="USERNAME")
@connection_options
def freeze_user(other_username: str, connection: Connection) -> None:
    """Keep a user from signing in for a while, and end the user's sessions."""
    _set_frozen(connection, other_username, is_frozen=True)


@user.command("unfreeze", epilog=examples("tidewire user unfreeze ann@example.org"))
@click.argument("other_username", metavar="USERNAME")
@connection_options
def unfreeze_user(other_username: str, connection: Connection) -> None:
    """Let a frozen user sign in again."""
    _set_frozen(connection, other_username, is_frozen=False)


def _set_frozen(connection: Connection, username: str, *, is_frozen: bool) -> None:
    client = connection.rest()
    (row,) = client.query(f"SELECT Id FROM UserLogin WHERE UserId = '{_user_id(client, username)}'")  # noqa: S608  # SOQL, an id
    client.call("PATCH", f"{_DATA}/UserLogin/{row['Id']}", {"IsFrozen": is_frozen})
    click.echo(f"{username} is {'frozen' if is_frozen else 'not frozen'}")


@user.command("unlock", epilog=examples("tidewire user unlock ann@example.org"))
@click.argument("other_username", metavar="USERNAME")
@connection_options
def unlock_user(other_username: str, connection: Connection) -> None:
    """Let a user who failed to sign in too often try again at once."""
    client = connection.rest()
    client.call("POST", f"{_ADMIN}/users/{_user_id(client, other_username)}/unlock")
    click.echo(f"{other_username} may sign in")


@click.group(epilog=examples("tidewire permset list", "tidewire permset COMMAND --help"))
def permset() -> None:
    """Permission sets: made, listed, assigned and taken away."""


@permset.command("list", epilog=examples("tidewire permset list"))
@json_option
@connection_options
def list_permsets(as_json: bool, connection: Connection) -> None:
    """List the permission sets and who has them."""
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
@click.option("--label", default="", help="what people read; the name if left out")
@click.option("--permission", "permissions", multiple=True, help="such as ViewAllData; may be repeated")
@click.option(
    "--object", "objects", multiple=True, metavar="NAME:RIGHTS", help="such as Account:read,edit; repeatable"
)
@connection_options
def create_permset(
    name: str, label: str, permissions: tuple[str, ...], objects: tuple[str, ...], connection: Connection
) -> None:
    """Make a permission set. Field permissions are given by `tidewire apply`."""
    client = connection.rest()
    if client.query(f"SELECT Id FROM PermissionSet WHERE Name = {_quoted(name)}"):  # noqa: S608  # SOQL, quoted
        raise click.ClickException(f"there is a permission set {name} already")
    rights: dict[str, list[str]] = {}
    for text in objects:
        entity, separator, words = text.partition(":")
        if not separator or not words:
            raise click.BadParameter(f"{text!r} is not NAME:RIGHTS", param_hint="--object")
        rights[entity] = words.split(",")
    spec = {"label": label or name, "permissions": list(permissions), "objects": rights}
    client.call("POST", f"{_ADMIN}/apply", {"permission_sets": {name: spec}})
    click.echo(f"permission set {name} is made")


@permset.command("assign", epilog=examples("tidewire permset assign Account_Reader ann@example.org"))
@click.argument("name")
@click.argument("other_username", metavar="USERNAME")
@connection_options
def assign_permset(name: str, other_username: str, connection: Connection) -> None:
    """Give a permission set to a user."""
    client = connection.rest()
    values = {"PermissionSetId": _set_id(client, name), "AssigneeId": _user_id(client, other_username)}
    if _assignments(client, values):
        raise click.ClickException(f"{other_username} has {name} already")
    client.call("POST", f"{_DATA}/PermissionSetAssignment", values)
    click.echo(f"{other_username} has {name}")


@permset.command("unassign", epilog=examples("tidewire permset unassign Account_Reader ann@example.org"))
@click.argument("name")
@click.argument("other_username", metavar="USERNAME")
@connection_options
def unassign_permset(name: str, other_username: str, connection: Connection) -> None:
    """Take a permission set away from a user."""
    client = connection.rest()
    values = {"PermissionSetId": _set_id(client, name), "AssigneeId": _user_id(client, other_username)}
    found = _assignments(client, values)
    if not found:
        raise click.ClickException(f"{other_username} does not have {name}")
    for assignment_id in found:
        client.call("DELETE", f"{_DATA}/PermissionSetAssignment/{assignment_id}")
    click.echo(f"{other_username} does not have {name} any more")


def _assignments(client: RestClient, values: dict[str, str]) -> list[str]:
    where = " AND ".join(f"{name} = {_quoted(value)}" for name, value in values.items())
    rows = client.query(f"SELECT Id FROM PermissionSetAssignment WHERE {where}")  # noqa: S608  # SOQL, quoted
    return [str(row["Id"]) for row in rows]


@click.group(epilog=examples("tidewire session list", "tidewire session COMMAND --help"))
def session() -> None:
    """Login sessions: listed and ended."""


@session.command(
    "list", epilog=examples("tidewire session list", "tidewire session list --of ann@example.org --json")
)
@click.option("--of", "other_username", default="", metavar="USERNAME", help="of this user only")
@json_option
@connection_options
def list_sessions(other_username: str, as_json: bool, connection: Connection) -> None:
    """List the login sessions that have not expired, newest first."""
    suffix = f"?username={quote(other_username, safe='')}" if other_username else ""
    rows = connection.rest().call("GET", f"{_ADMIN}/sessions{suffix}")["sessions"]
    show_table(rows, ("id", "username", "kind", "app", "peer", "started", "used"), as_json=as_json)


@session.command("revoke", epilog=examples("tidewire session revoke --of ann@example.org"))
@click.argument("session_ids", metavar="ID", nargs=-1)
@click.option("--of", "other_username", default="", metavar="USERNAME", help="all sessions of this user")
@connection_options
def revoke_session(session_ids: tuple[str, ...], other_username: str, connection: Connection) -> None:
    """End login sessions at once, with their open streams."""
    client = connection.rest()
    if bool(session_ids) == bool(other_username):
        raise click.UsageError("give ids of sessions, or --of USERNAME")
    if other_username:
        path = f"{_ADMIN}/sessions?username={quote(other_username, safe='')}"
        session_ids = tuple(row["id"] for row in client.call("GET", path)["sessions"])
    for session_id in session_ids:
        client.call("DELETE", f"{_ADMIN}/sessions/{quote(session_id, safe='')}")
    click.echo(f"{len(session_ids)} ended")


@click.group(epilog=examples("tidewire app list", "tidewire app COMMAND --help"))
def app() -> None:
    """Connected apps: the programs that may ask for tokens."""


@app.command(
    "create",
    epilog=examples("tidewire app create Loader --flow client_credentials --run-as loader@example.org"),
)
@click.argument("label")
@click.option("--id", "app_id", default="", help="the client id; drawn at random if left out")
@click.option("--callback", "callbacks", multiple=True, help="a callback URL; may be repeated")
@click.option("--scope", "scopes", multiple=True, help="such as api or refresh_token; may be repeated")
@click.option("--flow", "flows", multiple=True, type=click.Choice(FLOWS), help="may be repeated")
@click.option(
    "--certificate", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="PEM, for jwt_bearer"
)
@click.option("--run-as", default="", help="the user for client_credentials")
@click.option("--public", is_flag=True, help="without a secret; needs PKCE")
@click.option("--preauthorized", is_flag=True, help="users are not asked whether they allow it")
@click.option("--rotate-refresh", is_flag=True, help="every refresh gives another refresh token")
@click.option("--require-pkce", is_flag=True, help="refuse codes without a challenge")
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
    """Make a connected app. Its secret is printed once."""
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
    answer = connection.rest().call("POST", f"{_ADMIN}/apps", body)
    text = f"client id: {answer['client_id']}"
    if "client_secret" in answer:
        text += f"\nclient secret, not shown again: {answer['client_secret']}"
    show(answer, as_json=as_json, text=text)


@app.command("list", epilog=examples("tidewire app list"))
@json_option
@connection_options
def list_apps(as_json: bool, connection: Connection) -> None:
    """List the connected apps."""
    rows = connection.rest().call("GET", f"{_ADMIN}/apps")["apps"]
    show_table(rows, ("label", "client_id", "flows", "scopes", "run_as"), as_json=as_json)


@app.command("show", epilog=examples("tidewire app show billing"))
@click.argument("app_id", metavar="CLIENT_ID")
@json_option
@connection_options
def show_app(app_id: str, as_json: bool, connection: Connection) -> None:
    """Show one connected app, without its secret."""
    answer = connection.rest().call("GET", f"{_ADMIN}/apps/{quote(app_id, safe='')}")
    rows = [{"what": name, "value": value} for name, value in answer.items()]
    if as_json:
        show(answer, as_json=True, text="")
    else:
        show_table(rows, ("what", "value"), as_json=False)


@app.command("rotate-secret", epilog=examples("tidewire app rotate-secret billing"))
@click.argument("app_id", metavar="CLIENT_ID")
@json_option
@connection_options
def rotate_secret(app_id: str, as_json: bool, connection: Connection) -> None:
    """Give an app another secret and print it once. The old one stops working."""
    answer = connection.rest().call("POST", f"{_ADMIN}/apps/{quote(app_id, safe='')}/secret")
    show(answer, as_json=as_json, text=f"client secret, not shown again: {answer['client_secret']}")


@app.command("delete", epilog=examples("tidewire app delete billing"))
@click.argument("app_id", metavar="CLIENT_ID")
@connection_options
def delete_app(app_id: str, connection: Connection) -> None:
    """Remove an app and end every session that it began."""
    connection.rest().call("DELETE", f"{_ADMIN}/apps/{quote(app_id, safe='')}")
    click.echo(f"{app_id} is removed")
