"""`tidewire user`, `permset`, `session` and `app` against a live server."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.oauth import reads_data, token
from tidewire.cli.main import cli
from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET
from tidewire.errors import LoginFailed, PlatformError, RequestRefused
from tidewire.testing import READER_USERNAME, ServerProcess

DEV_APP = {"client_id": DEV_CLIENT_ID, "client_secret": DEV_CLIENT_SECRET}


class Command:
    def __init__(self, server: ServerProcess) -> None:
        self._url = server.http

    def run(self, *arguments: str) -> str:
        result = CliRunner().invoke(cli, [*arguments, "--url", self._url])
        if isinstance(result.exception, PlatformError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.output

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json"))

    def fail(self, *arguments: str) -> str:
        result = CliRunner().invoke(cli, [*arguments, "--url", self._url])
        assert result.exit_code != 0
        return result.output


@pytest.fixture
def command(server: ServerProcess) -> Command:
    return Command(server)


@pytest.fixture
def username() -> str:
    return f"c{secrets.token_hex(6)}@example.org"


def signs_in(server: ServerProcess, username: str, password: str) -> str | None:
    answer = token(server, DEV_APP, grant_type="password", username=username, password=password)
    access: str | None = answer.json().get("access_token")
    return access


def test_user_is_made_switched_off_and_given_another_password(
    server: ServerProcess, command: Command, username: str
) -> None:
    made = command.json("user", "create", username, "--last-name", "O'Neil", "--permset", "Account_Reader")
    access = signs_in(server, username, made["password"])
    assert access
    listed = {row["username"]: row for row in command.json("user", "list")}
    assert listed[username]["id"] == made["id"]
    assert listed[username]["last_login"]
    assert "already" in command.fail("user", "create", username)
    command.run("user", "deactivate", username)
    assert reads_data(server, access).status_code == 401
    assert signs_in(server, username, made["password"]) is None
    command.run("user", "activate", username)
    fresh = command.json("user", "reset-password", username)["password"]
    assert signs_in(server, username, made["password"]) is None
    assert signs_in(server, username, fresh)


def test_locked_user_is_unlocked(server: ServerProcess, command: Command, username: str) -> None:
    password = command.json("user", "create", username)["password"]
    for _ in range(10):
        assert signs_in(server, username, "wrong") is None
    assert signs_in(server, username, password) is None
    command.run("user", "unlock", username)
    assert signs_in(server, username, password)


def test_security_token_has_to_follow_the_password(
    server: ServerProcess, command: Command, username: str
) -> None:
    password = command.json("user", "create", username)["password"]
    added = command.json("user", "security-token", username)["security_token"]
    assert signs_in(server, username, password) is None
    assert signs_in(server, username, password + added)
    command.run("user", "security-token", username, "--drop")
    assert signs_in(server, username, password)


def test_permission_set_is_made_assigned_and_taken_away(command: Command, username: str) -> None:
    name = "Set_" + secrets.token_hex(4)
    command.run("user", "create", username)
    command.run("permset", "create", name, "--permission", "ApiEnabled", "--object", "Account:read,edit")
    assert "already" in command.fail("permset", "create", name)
    command.run("permset", "assign", name, username)
    assert "already" in command.fail("permset", "assign", name, username)
    listed = {row["name"]: row for row in command.json("permset", "list")}
    assert listed[name]["users"] == [username]
    command.run("permset", "unassign", name, username)
    assert "is not assigned to" in command.fail("permset", "unassign", name, username)
    assert "no permission set" in command.fail("permset", "assign", "Nothing", username)
    assert "no user" in command.fail("permset", "assign", name, "nobody@example.org")
    with pytest.raises(RequestRefused, match="INVALID_DEFINITION"):
        command.run("permset", "create", name + "x", "--permission", "Fly")


def test_sessions_are_listed_and_ended(server: ServerProcess, command: Command, username: str) -> None:
    password = command.json("user", "create", username)["password"]
    first, second = (signs_in(server, username, password) or "" for _ in range(2))
    rows = command.json("session", "list", "--of", username)
    assert [(row["kind"], row["app"], row["peer"]) for row in rows] == [
        ("OAuth", DEV_CLIENT_ID, "127.0.0.1")
    ] * 2
    command.run("session", "revoke", rows[0]["id"])
    assert sorted(reads_data(server, t).status_code for t in (first, second)) == [200, 401]
    assert "1 session revoked" in command.run("session", "revoke", "--of", username)
    assert reads_data(server, first).status_code == reads_data(server, second).status_code == 401
    with pytest.raises(RequestRefused, match="NOT_FOUND"):
        command.run("session", "revoke", rows[0]["id"])
    assert username not in command.run("session", "list")


def test_app_is_made_shown_and_removed(server: ServerProcess, command: Command) -> None:
    made = command.json(
        "app", "create", "Loader", "--flow", "client_credentials", "--run-as", READER_USERNAME
    )
    form = {"grant_type": "client_credentials"}
    assert token(server, made, **form).status_code == 200
    shown = command.json("app", "show", made["client_id"])
    assert (shown["label"], shown["run_as"], shown["public"]) == ("Loader", READER_USERNAME, False)
    assert made["client_secret"] not in command.run("app", "show", made["client_id"])
    assert made["client_id"] in command.run("app", "list")
    fresh = command.json("app", "rotate-secret", made["client_id"])
    assert token(server, made, **form).status_code == 400
    assert token(server, fresh, **form).status_code == 200
    command.run("app", "delete", made["client_id"])
    assert token(server, fresh, **form).status_code == 400
    with pytest.raises(RequestRefused, match="NOT_FOUND"):
        command.run("app", "show", made["client_id"])


def test_wrong_certificate_and_wrong_login_are_told(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "cert.pem"
    path.write_text("nothing")
    with pytest.raises(RequestRefused, match="certificate"):
        command.run("app", "create", "Bad", "--flow", "jwt_bearer", "--certificate", str(path))
    with pytest.raises(LoginFailed):
        command.run("user", "list", "--password", "wrong", "--username", "nobody@example.org")
    with pytest.raises(RequestRefused, match="Manage Users"):
        command.run("session", "list", "--username", READER_USERNAME)
