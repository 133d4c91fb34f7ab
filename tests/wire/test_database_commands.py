"""`tidewire archive` and `tidewire database` against a live server."""

from __future__ import annotations

import json
import secrets
from typing import Any

import pytest
from click.testing import CliRunner

from tests.running import API, Refused, Rest
from tidewire.cli.main import cli
from tidewire.testing import READER_USERNAME, ServerProcess


def run(server: ServerProcess, *arguments: str) -> Any:
    result = CliRunner().invoke(cli, [*arguments, "--json", "--url", server.http])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_records_are_changed_by_condition_and_by_id(server: ServerProcess, rest: Rest) -> None:
    site = secrets.token_hex(8)
    ids = [rest.create("Account", {"Name": f"D{n}", "Site": site, "NumberOfEmployees": 5}) for n in range(2)]
    options = ("--where", f"Site = '{site}'", "--set", "Rating=Hot", "--set", "NumberOfEmployees=")
    assert run(server, "database", "update", "Account", *options) == {"ids": ids}
    rows = rest.query(f"SELECT Rating, NumberOfEmployees FROM Account WHERE Site = '{site}'")
    assert [(row["Rating"], row["NumberOfEmployees"]) for row in rows] == [("Hot", None)] * 2
    run(server, "database", "delete", "Account", "--id", ids[0])
    assert [row["Id"] for row in rest.query(f"SELECT Id FROM Account WHERE Site = '{site}'")] == ids[1:]
    run(server, "database", "undelete", "Account", "--id", ids[0])
    made = run(server, "database", "create", "Account", "--set", "Name=New", "--set", f"Site={site}x")["ids"]
    assert rest.call("GET", f"{API}/sobjects/Account/{made[0]}")["Name"] == "New"


def test_old_activities_are_archived(server: ServerProcess, rest: Rest) -> None:
    task = rest.create("Task", {"Subject": "s", "Status": "Completed", "ActivityDate": "2001-01-01"})
    assert run(server, "archive", "--before", "2001-02-01")["Task"] >= 1
    assert rest.query(f"SELECT Id FROM Task WHERE Id = '{task}'") == []


@pytest.mark.parametrize(
    "path, body",
    [
        ("database", {"operation": "merge", "entity": "Account", "ids": ["x"]}),
        ("database", {"operation": "delete", "entity": "Account"}),
        ("database", {"operation": "delete", "entity": "Account", "ids": ["001000000000000AAA"] * 2001}),
        ("database", {"operation": "update", "entity": "Account", "ids": ["001000000000000AAA"]}),
        ("database", {"operation": "create", "entity": "Account", "records": ["A"]}),
        ("database", {"operation": "delete", "entity": "PermissionSet", "ids": ["0PS000000000000AAA"]}),
        ("database", {"operation": "delete", "entity": "Account", "ids": ["x"], "more": 1}),
        ("activities/archive", {"before": "yesterday"}),
        ("activities/archive", {}),
    ],
)
def test_order_that_makes_no_sense_is_refused(rest: Rest, path: str, body: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        rest.call("POST", f"/services/tidewire/v1/{path}", body)
    assert refused.value.status == 400


def test_user_without_the_permissions_is_refused(server: ServerProcess) -> None:
    reader = Rest(server.http, server.login(READER_USERNAME))
    try:
        with pytest.raises(Refused) as refused:
            reader.call("POST", "/services/tidewire/v1/activities/archive", {"before": "2001-01-01"})
        assert refused.value.status == 403
    finally:
        reader.close()
