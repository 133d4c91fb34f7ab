"""`tidewire query`, `get`, `create`, `update`, `upsert`, `delete` and `describe` against a live server."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import secrets
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.running import Rest
from tidewire.cli.main import cli
from tidewire.client.login import Login
from tidewire.client.rest import RestClient
from tidewire.errors import RequestRefused
from tidewire.testing import ServerProcess


@pytest.fixture
def mark() -> str:
    return "cmd" + secrets.token_hex(4)


class Commands:
    """Commands against one server."""

    def __init__(self, server: ServerProcess) -> None:
        self._url = server.http

    def run(self, *arguments: str, input: str | None = None) -> Result:
        return CliRunner().invoke(cli, [*arguments, "--url", self._url], input=input)

    def ok(self, *arguments: str, input: str | None = None) -> str:
        done = self.run(*arguments, input=input)
        assert done.exit_code == 0, (done.output, done.exception)
        return done.stdout


@pytest.fixture
def commands(server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setenv("TIDEWIRE_CONFIG_DIR", str(tmp_path / "conf"))
    return Commands(server)


def test_record_is_made_read_changed_and_deleted(commands: Commands, mark: str) -> None:
    made = commands.ok("create", "Account", f"Name={mark}", "NumberOfEmployees=12", '{"Phone": "1"}').strip()
    shown = json.loads(
        commands.ok("get", "Account", made, "--fields", "Name,NumberOfEmployees,Phone", "--json")
    )
    assert shown == {"Name": mark, "NumberOfEmployees": 12, "Phone": "1", "Id": made}
    commands.ok("update", "Account", made, "Phone=", "NumberOfEmployees=13")
    lines = commands.ok("get", "Account", made, "--fields", "NumberOfEmployees,Phone").splitlines()
    assert lines[1].split() == ["NumberOfEmployees", "13"]
    assert lines[2].split() == ["Phone"]
    assert commands.ok("delete", "Account", made) == f"{made} deleted\n"
    gone = commands.run("get", "Account", made)
    assert isinstance(gone.exception, RequestRefused)


def test_json_flag_and_json_fields_go_together(commands: Commands, mark: str) -> None:
    told = commands.ok("create", "Account", "--json", json.dumps({"Name": mark, "NumberOfEmployees": 3}))
    made = json.loads(told)["id"]
    again = commands.ok("create", "Contact", "-", f"AccountId={made}", input=json.dumps({"LastName": mark}))
    soql = f"SELECT Account.NumberOfEmployees FROM Contact WHERE Id = '{again.strip()}'"
    assert json.loads(commands.ok("query", soql, "--json")) == [{"Account": {"NumberOfEmployees": 3}}]


def test_upsert_makes_and_then_changes_the_same_record(commands: Commands, rest: Rest, mark: str) -> None:
    fields = {"Command_Key__c": {"type": "text", "length": 40, "external_id": True, "unique": True}}
    rest.call(
        "POST",
        "/services/tidewire/v1/apply",
        {"objects": {"Command_Thing__c": {"label": "T", "fields": fields}}},
    )
    first = json.loads(commands.ok("upsert", "Command_Thing__c", f"Command_Key__c={mark}/1", "--json"))
    second = json.loads(commands.ok("upsert", "Command_Thing__c", f"Command_Key__c={mark}/1", "--json"))
    assert (first["created"], second["created"], first["id"] == second["id"]) == (True, False, True)
    found = commands.ok(
        "get", "Command_Thing__c", f"Command_Key__c/{mark}/1", "--fields", "Command_Key__c", "--json"
    )
    assert json.loads(found) == {"Command_Key__c": f"{mark}/1", "Id": first["id"]}


def test_delete_of_several_tells_what_failed_and_deletes_the_rest(commands: Commands, mark: str) -> None:
    ids = [commands.ok("create", "Account", f"Name={mark}").strip() for _ in range(2)]
    done = commands.run("delete", "Account", ids[0], ids[0], ids[1])
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [f"{each} deleted" for each in ids]
    assert f"error: {ids[0]}: ENTITY_IS_DELETED" in done.stderr


def test_query_gives_table_json_and_csv_over_all_pages(commands: Commands, rest: Rest, mark: str) -> None:
    records = [
        {
            "attributes": {"type": "Account"},
            "Name": f"{mark} {n:04}",
            "Description": 'a, "b"\nc' if n == 0 else None,
        }
        for n in range(450)
    ]
    for first in range(0, len(records), 200):
        body = {"allOrNone": True, "records": records[first : first + 200]}
        rest.call("POST", "/services/data/v62.0/composite/sobjects", body)
    soql = f"SELECT Name, Description, Owner.Username, IsDeleted FROM Account WHERE Name LIKE '{mark}%' ORDER BY Name"
    found = json.loads(commands.ok("query", soql, "--json"))
    assert [row["Name"] for row in found] == [record["Name"] for record in records]
    table = commands.ok("query", soql).splitlines()
    assert table[0].split() == ["Name", "Description", "Owner.Username", "IsDeleted"]
    assert len(table) == 451
    rows = list(csv.DictReader(io.StringIO(commands.ok("query", soql, "--csv"))))
    assert len(rows) == 450
    assert (rows[0]["Description"], rows[1]["Description"], rows[0]["IsDeleted"]) == (
        'a, "b"\nc',
        "",
        "false",
    )
    assert rows[0]["Owner.Username"] == found[0]["Owner"]["Username"]


def test_long_answer_comes_page_by_page(
    commands: Commands, rest: Rest, server: ServerProcess, mark: str
) -> None:
    for first in range(0, 2200, 200):
        records = [
            {"attributes": {"type": "Lead"}, "LastName": mark, "Company": str(first + n)} for n in range(200)
        ]
        rest.call("POST", "/services/data/v62.0/composite/sobjects", {"allOrNone": True, "records": records})
    client = RestClient(Login(server.login(), server.http, server.org_id))
    pages = list(client.iter_pages(f"SELECT Company FROM Lead WHERE LastName = '{mark}'"))
    assert len(pages) > 1
    assert {page.total for page in pages} == {2200}
    assert len({row["Company"] for page in pages for row in page.records}) == 2200
    found = json.loads(commands.ok("query", f"SELECT Company FROM Lead WHERE LastName = '{mark}'", "--json"))
    assert len(found) == 2200


def test_long_answer_shows_a_bar_to_a_terminal_only(server: ServerProcess, rest: Rest, mark: str) -> None:
    for _ in range(11):
        records = [{"attributes": {"type": "Lead"}, "LastName": mark, "Company": "x"}] * 200
        rest.call("POST", "/services/data/v62.0/composite/sobjects", {"allOrNone": True, "records": records})
    soql = f"SELECT Company FROM Lead WHERE LastName = '{mark}'"
    command = [sys.executable, "-m", "tidewire.cli", "query", soql, "--csv", "--url", server.http]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ours, theirs = pty.openpty()
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=theirs, timeout=120, check=True, env=environment
    )
    os.close(theirs)
    told = b""
    with suppress(OSError):  # how a terminal says that everybody has left
        while piece := os.read(ours, 65536):
            told += piece
    os.close(ours)
    assert b"reading" in told
    assert b"100%" in told
    assert len(done.stdout.splitlines()) == 2201


def test_query_that_only_counts_prints_the_number(commands: Commands, mark: str) -> None:
    commands.ok("create", "Account", f"Name={mark}")
    assert commands.ok("query", f"SELECT COUNT() FROM Account WHERE Name = '{mark}'") == "1\n"


def test_query_without_records_is_empty_in_every_form(commands: Commands, mark: str) -> None:
    soql = f"SELECT Id FROM Account WHERE Name = '{mark}'"
    assert [commands.ok("query", soql, "--format", form) for form in ("table", "json", "csv")] == [
        "",
        "[]\n",
        "",
    ]


def test_deleted_records_are_found_with_all(commands: Commands, mark: str) -> None:
    made = commands.ok("create", "Account", f"Name={mark}").strip()
    commands.ok("delete", "Account", made)
    soql = f"SELECT Id FROM Account WHERE Name = '{mark}'"
    assert json.loads(commands.ok("query", soql, "--json")) == []
    assert json.loads(commands.ok("query", soql, "--json", "--all")) == [{"Id": made}]


def test_query_from_a_file_and_of_the_tooling_api(commands: Commands, tmp_path: Path) -> None:
    path = tmp_path / "q.soql"
    path.write_text("SELECT SelectedEntity\nFROM PlatformEventChannelMember")
    found = json.loads(commands.ok("query", "-f", str(path), "--tooling", "--json"))
    assert "AccountChangeEvent" in {row["SelectedEntity"] for row in found}


def test_mistake_in_a_query_is_shown_at_its_place_with_what_may_be_meant(commands: Commands) -> None:
    done = commands.run("query", "SELECT Id,\n  Nmae\nFROM Account")
    assert done.exit_code == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "Error: line 2, column 3"
    assert lines[2:4] == ["    Nmae", "    ^"]
    assert lines[-1] == "Did you mean Name?"
    other = commands.run("query", "SELECT Id FROM Acount")
    assert other.stderr.splitlines()[-1].startswith("Did you mean Account")
    assert "unexpected token" in commands.run("query", "SELECT Id FRM Account").stderr


@pytest.mark.parametrize(
    "arguments, meant",
    [
        (["create", "Account", "Nmae=x"], "Name"),
        (["create", "Acount", "Name=x"], "Account"),
        (["describe", "Contct"], "Contact"),
        (["get", "User", "005TW0000000001YAA", "--fields", "Usernam"], "Username"),
    ],
)
def test_mistyped_name_is_answered_with_the_one_meant(
    commands: Commands, arguments: list[str], meant: str
) -> None:
    done = commands.run(*arguments)
    assert isinstance(done.exception, RequestRefused)
    assert f"Did you mean {meant}" in done.exception.message


def test_record_that_is_not_there_is_not_taken_for_a_mistyped_name(commands: Commands) -> None:
    done = commands.run("get", "Account", "001TW00000zzzzzYAA")
    assert isinstance(done.exception, RequestRefused)
    assert "mean" not in done.exception.message


@pytest.mark.parametrize(
    "arguments", [["query"], ["query", "SELECT Id FROM User", "-f", "-"], ["create", "Account", "x"]]
)
def test_wrong_usage_is_refused_before_anything_is_sent(commands: Commands, arguments: list[str]) -> None:
    assert commands.run(*arguments).exit_code == 2


def test_describe_lists_objects_and_fields(commands: Commands) -> None:
    assert any(line.split()[0] == "Account" for line in commands.ok("describe").splitlines())
    fields = {line.split()[0]: line for line in commands.ok("describe", "Contact").splitlines()}
    assert "reference(Account)" in fields["AccountId"]
    assert "yes" in fields["LastName"]
    assert json.loads(commands.ok("describe", "Contact", "--json"))["name"] == "Contact"
