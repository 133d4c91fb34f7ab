"""`tidewire login`, `logout` and `profiles` against a live server, and commands that use a profile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.oauth import reads_data
from tidewire.cli.main import cli
from tidewire.cli.profiles import load_profiles, save_profile
from tidewire.config import DEV_USERNAME
from tidewire.errors import ConfigInvalid, LoginFailed, SessionInvalid
from tidewire.testing import READER_USERNAME, ServerProcess

COUNT = ["query", "SELECT COUNT() FROM User"]


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration directory of the test's own."""
    monkeypatch.setenv("TIDEWIRE_CONFIG_DIR", str(tmp_path / "conf"))
    return tmp_path / "conf"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def sign_in(server: ServerProcess, *arguments: str) -> Result:
    done = run("login", "--url", server.http, *arguments)
    assert done.exit_code == 0, done.output
    return done


def test_login_keeps_a_profile_that_other_commands_use(server: ServerProcess, directory: Path) -> None:
    told = sign_in(server)
    assert DEV_USERNAME in told.output
    assert (directory / "profiles.json").stat().st_mode & 0o777 == 0o600
    assert run(*COUNT).output.strip().isdecimal()
    (row,) = json.loads(run("profiles", "--json").output)
    assert (row["name"], row["url"], row["org_id"]) == ("default", server.http, server.org_id)
    assert "password" not in row
    assert "token" not in row


def test_session_of_a_profile_is_used_and_renewed_when_it_has_ended(server: ServerProcess) -> None:
    sign_in(server)
    first = load_profiles()["default"].token
    assert run(*COUNT).exit_code == 0
    assert load_profiles()["default"].token == first
    kept = load_profiles()["default"]
    save_profile("default", type(kept)(**{**_values(kept), "token": "00Dgone!gone"}))
    assert run(*COUNT).exit_code == 0
    assert load_profiles()["default"].token not in (first, "00Dgone!gone")


def _values(profile: object) -> dict[str, str]:
    return {name: getattr(profile, name) for name in profile.__slots__}  # type: ignore[attr-defined]


def test_named_profile_is_another_user(server: ServerProcess) -> None:
    sign_in(server)
    sign_in(server, "--profile", "reader", "--username", READER_USERNAME, "--password", "tidewire")
    who = ["get", "User", load_profiles()["reader"].user_id, "--fields", "Username", "--json"]
    assert json.loads(run(*who, "--profile", "reader").output)["Username"] == READER_USERNAME
    lines = run("profiles").output.splitlines()
    assert [line.split()[0] for line in lines] == ["name", "default", "reader"]


def test_logout_ends_the_session_and_forgets_the_profile(server: ServerProcess) -> None:
    sign_in(server)
    access = load_profiles()["default"].token
    assert reads_data(server, access).status_code == 200
    assert run("logout").exit_code == 0
    assert reads_data(server, access).status_code == 401
    assert load_profiles() == {}
    gone = run("logout")
    assert gone.exit_code == 1
    assert "no profile default" in gone.output


def test_profile_without_a_password_ends_with_its_session(server: ServerProcess, directory: Path) -> None:
    sign_in(server, "--no-password")
    assert '"password": ""' in (directory / "profiles.json").read_text()
    assert run(*COUNT).exit_code == 0
    kept = load_profiles()["default"]
    save_profile("default", type(kept)(**{**_values(kept), "token": "00Dgone!gone"}))
    assert isinstance(run(*COUNT).exception, SessionInvalid)


def test_token_alone_signs_in_and_learns_the_org(server: ServerProcess) -> None:
    sign_in(server, "--token", server.login())
    kept = load_profiles()["default"]
    assert (kept.org_id, kept.password) == (server.org_id, "")
    assert run(*COUNT).exit_code == 0


def test_server_without_the_usual_app_is_asked_by_soap(server: ServerProcess) -> None:
    form = ["--url", server.http, "--client-secret", "wrong"]
    assert run("login", *form).exit_code == 0  # the app refuses, the user is let in by SOAP
    named = run("login", *form, "--client-id", "tidewire-dev")
    assert isinstance(named.exception, LoginFailed)
    assert named.exception.details["reason"] == "invalid_client"


def test_wrong_password_keeps_no_profile(server: ServerProcess) -> None:
    refused = run("login", "--url", server.http, "--password", "wrong")
    assert isinstance(refused.exception, LoginFailed)
    assert load_profiles() == {}


def test_password_that_nobody_can_be_asked_for_is_a_usage_error(server: ServerProcess) -> None:
    refused = run("login", "--url", server.http, "--username", "ann@example.org")
    assert (refused.exit_code, "--password" in refused.output) == (2, True)


def test_https_profile_keeps_its_certificate(server: ServerProcess) -> None:
    done = run("login", "--url", server.https, "--ca", str(server.ca_path))
    assert done.exit_code == 0, done.output
    assert run(*COUNT).exit_code == 0


def test_configuration_directory_that_cannot_be_made_is_explained(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TIDEWIRE_CONFIG_DIR", str(tmp_path / "file" / "conf"))
    refused = run("login", "--url", server.http)
    assert isinstance(refused.exception, ConfigInvalid)
    assert "TIDEWIRE_CONFIG_DIR" in refused.exception.message
