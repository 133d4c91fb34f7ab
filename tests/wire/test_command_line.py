"""The command line as a person uses it: against a live server, and its errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from tidewire.config import DEV_PASSWORD, DEV_USERNAME
from tidewire.testing import ServerProcess

ROOT = Path(__file__).resolve().parents[2]


def tidewire(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidewire.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
        env=os.environ | environment,
    )


def test_example_definition_applies_once(fresh_server: ServerProcess) -> None:
    command = ("apply", "-f", "examples/invoices.yaml", "--url", fresh_server.http)
    shown = tidewire(*command, "--dry-run")
    assert "create object Invoice_Statement__c" in shown.stdout
    assert shown.stdout.endswith("not applied (dry run)\n")
    planned = json.loads(tidewire(*command, "--dry-run", "--json").stdout)
    assert "create object Invoice_Statement__c with 4 fields" in planned["plan"]
    assert planned["is_applied"] is False
    assert "create push topic InvoiceStatementUpdates" in tidewire(*command).stdout
    assert tidewire(*command).stdout == "nothing to do\n"


def test_secret_of_a_new_app_is_printed_once_and_works(fresh_server: ServerProcess, tmp_path: Path) -> None:
    path = tmp_path / "app.yaml"
    path.write_text("connected_apps: {billing: {label: Billing}}\n")
    command = ("apply", "-f", str(path), "--url", fresh_server.http)
    first, told = tidewire(*command).stdout.splitlines()
    assert first == "create connected app billing"
    assert told.startswith("secret of billing (shown only once): ")
    assert tidewire(*command).stdout == "nothing to do\n"
    form = {
        "grant_type": "password",
        "client_id": "billing",
        "client_secret": told.rpartition(" ")[2],
        "username": DEV_USERNAME,
        "password": DEV_PASSWORD,
    }
    answer = requests.post(fresh_server.http + "/services/oauth2/token", data=form, timeout=120)
    assert answer.status_code == 200, answer.text


def test_definition_with_a_mistake_is_refused_in_one_line(server: ServerProcess, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("objekts: {}\n")
    refused = tidewire("apply", "-f", str(path), "--url", server.http)
    assert refused.returncode == 2
    assert "unknown keys: objekts" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_wrong_password_is_refused_in_one_line_and_a_hint(server: ServerProcess) -> None:
    refused = tidewire("apply", "-f", "examples/invoices.yaml", "--url", server.http, TIDEWIRE_PASSWORD="x")
    told, hint = refused.stderr.splitlines()
    assert refused.returncode == 2
    assert told == "error: the server rejected the login (invalid_grant) [login_failed]"
    assert hint.startswith("hint: check --username and --password")


def test_server_that_is_not_there_is_named() -> None:
    refused = tidewire("apply", "-f", "examples/invoices.yaml", "--url", "http://localhost:1")
    assert refused.returncode == 2
    assert "cannot reach http://localhost:1" in refused.stderr
    assert "hint: is the server running? Start one with `tidewire serve --dev`" in refused.stderr


def test_pubsub_api_that_is_not_there_is_named_when_publishing(server: ServerProcess) -> None:
    over = ("--protocol", "pubsub", "--endpoint", "localhost:1", "--url", server.http)
    refused = tidewire("publish", "/event/Order_Event__e", "Order_Number__c=command line 1", *over)
    assert refused.returncode == 2
    assert "cannot reach the Pub/Sub API at localhost:1" in refused.stderr


def test_bad_line_is_told_with_what_was_published_before(server: ServerProcess, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"Order_Number__c": "command line 2"}\n' * 2 + "bad\n")
    refused = tidewire("publish", "/event/Order_Event__e", "--lines", str(path), "--url", server.http)
    assert refused.returncode == 2
    assert refused.stderr.startswith("2 events published before the error:\n")
    assert "line 3 of the input: not JSON" in refused.stderr


def test_refused_event_is_told_with_those_of_its_request_that_were_published(
    server: ServerProcess, tmp_path: Path
) -> None:
    path = tmp_path / "events.jsonl"
    lines = [json.dumps({"City__c": text}) for text in ("a", "b" * 1_100_000, "c")]
    path.write_text("\n".join(lines))
    over = ("--protocol", "pubsub", "--endpoint", server.grpc, "--url", server.http)
    refused = tidewire("publish", "/event/Order_Event__e", "--lines", str(path), *over)
    assert refused.returncode == 1
    assert refused.stderr.startswith("2 events published before the error:\n")
    assert "event 2: " in refused.stderr


def test_authority_path_is_printed(server: ServerProcess) -> None:
    told = tidewire("ca", "--data", str(server.data))
    assert (
        requests.get(server.https + "/services/data", verify=told.stdout.strip(), timeout=120).status_code
        == 200
    )


def test_second_server_on_the_same_directory_is_refused(server: ServerProcess) -> None:
    refused = tidewire("serve", "--dev", "--data", str(server.data), "--http", "127.0.0.1:0")
    assert refused.returncode == 2
    assert "another process is using" in refused.stderr


def test_directory_without_an_org_needs_init_or_dev(tmp_path: Path) -> None:
    refused = tidewire("serve", "--data", str(tmp_path / "new"))
    assert refused.returncode == 2
    assert "tidewire init" in refused.stderr


def test_init_prints_a_password_once_that_is_not_the_development_one(tmp_path: Path) -> None:
    made = tidewire("init", "--data", str(tmp_path / "org"), "--username", "ada@example.org")
    password = made.stdout.split("password: ")[1].split("\n")[0]
    assert len(password) >= 20
    assert tidewire("init", "--data", str(tmp_path / "org")).returncode == 1
    assert password.encode() not in (tmp_path / "org" / "org.db").read_bytes()


@pytest.mark.parametrize("command", [("nonsense",), ("serve", "--nonsense"), ("bench", "nonsense")])
def test_unknown_words_are_refused(command: tuple[str, ...]) -> None:
    refused = tidewire(*command)
    assert refused.returncode in (1, 2)
    assert "Traceback" not in refused.stderr
