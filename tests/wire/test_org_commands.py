"""`tidewire org`, and the commands that name an org, beside a running server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner

from tests.two_orgs import API, soap_login
from tidewire.cli.main import cli
from tidewire.errors import ConfigInvalid
from tidewire.testing import ServerProcess


def run(*arguments: str) -> str:
    """What a command printed. Raises the PlatformError that it ended with."""
    result = CliRunner().invoke(cli, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def create(server: ServerProcess, name: str = "Beta", username: str = "admin@beta.example") -> Any:
    return json.loads(
        run("org", "create", "--data", str(server.data), "--name", name, "--username", username, "--json")
    )


def count_accounts(server: ServerProcess, token: str) -> int:
    answer = requests.get(
        f"{server.http}{API}/query?q=SELECT+COUNT()+FROM+Account",
        headers={"Authorization": f"Bearer {token}"},
        timeout=120,
    )
    assert answer.status_code == 200, answer.text
    return int(answer.json()["totalSize"])


def make_account(server: ServerProcess, token: str) -> None:
    answer = requests.post(
        f"{server.http}{API}/sobjects/Account",
        json={"Name": "One"},
        headers={"Authorization": f"Bearer {token}"},
        timeout=120,
    )
    assert answer.status_code == 201, answer.text


def test_org_made_while_the_server_runs_works_at_once_and_after_a_restart(
    fresh_server: ServerProcess,
) -> None:
    made = create(fresh_server)
    token = soap_login(fresh_server, made["username"], made["password"])
    make_account(fresh_server, token)
    assert count_accounts(fresh_server, fresh_server.login()) == 0
    fresh_server.restart()
    assert fresh_server.org_id != made["org_id"]
    assert count_accounts(fresh_server, token) == 1


def test_list_and_show_tell_of_every_org(fresh_server: ServerProcess) -> None:
    made = create(fresh_server, name="Beta \x1b[2J")
    data = str(fresh_server.data)
    rows = json.loads(run("org", "list", "--data", data, "--json"))
    assert [(row["org_id"], row["is_first"], row["users"]) for row in rows] == [
        (fresh_server.org_id, True, 2),
        (made["org_id"], False, 1),
    ]
    shown = run("org", "show", made["org_id"][:15], "--data", data)
    assert made["org_id"] in shown
    assert "\x1b" not in shown
    with pytest.raises(ConfigInvalid):
        run("org", "show", "00DTW0000000001", "--data", data)


def test_remove_asks_for_yes_and_then_ends_the_org_under_a_running_server(
    fresh_server: ServerProcess,
) -> None:
    made = create(fresh_server)
    data = str(fresh_server.data)
    token = soap_login(fresh_server, made["username"], made["password"])
    refused = CliRunner().invoke(cli, ["org", "remove", made["org_id"], "--data", data])
    assert refused.exit_code == 1
    assert "--yes" in refused.output
    assert count_accounts(fresh_server, token) == 0
    run("org", "remove", made["org_id"], "--data", data, "--yes")
    answer = requests.get(
        f"{fresh_server.http}{API}/limits", headers={"Authorization": f"Bearer {token}"}, timeout=120
    )
    assert answer.status_code == 401
    assert count_accounts(fresh_server, fresh_server.login()) == 0
    assert list((fresh_server.data / "orgs").iterdir()) == []
    again = create(fresh_server)  # the user name is free again
    assert again["org_id"] != made["org_id"]


def test_backup_and_restore_of_one_org_leave_the_others_alone(
    fresh_server: ServerProcess, tmp_path: Path
) -> None:
    made = create(fresh_server)
    data, file = str(fresh_server.data), str(tmp_path / "beta.backup")
    token = soap_login(fresh_server, made["username"], made["password"])
    make_account(fresh_server, token)
    assert made["org_id"] in run("backup", "--data", data, "--org", made["org_id"], "--to", file)
    with pytest.raises(ConfigInvalid, match="already exists"):
        run("restore", file, "--data", data, "--org", made["org_id"])
    with pytest.raises(ConfigInvalid, match="is a backup of the org"):
        run("restore", file, "--data", data, "--org", fresh_server.org_id)
    run("org", "remove", made["org_id"], "--data", data, "--yes")
    assert made["org_id"] in run("restore", file, "--data", data, "--org", made["org_id"])
    fresh = soap_login(fresh_server, made["username"], made["password"])
    assert count_accounts(fresh_server, fresh) == 1
    assert count_accounts(fresh_server, fresh_server.login()) == 0


def test_upgrade_names_every_org_or_the_one_that_is_asked_for(fresh_server: ServerProcess) -> None:
    made = create(fresh_server)
    data, first = str(fresh_server.data), fresh_server.org_id
    fresh_server.stop()
    output = run("upgrade", "--data", data)
    assert f"org {first} was up to date" in output
    assert f"org {made['org_id']} was up to date" in output
    assert first not in run("upgrade", "--data", data, "--org", made["org_id"])
    with pytest.raises(ConfigInvalid):
        run("upgrade", "--data", data, "--org", "00DTW0000000001")
