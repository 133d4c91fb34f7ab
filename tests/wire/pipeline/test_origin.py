"""A lake and the server it is filled from: another org, channel or log is refused before anything is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.pipeline.archive_lake import settings_for
from tests.running import Rest
from tidewire.cli.main import cli
from tidewire.clock import SystemClock
from tidewire.errors import ConfigInvalid, PlatformError, ReplayIdInvalid, SessionInvalid
from tidewire.pipeline.lake.lease import hold_lease
from tidewire.pipeline.lake.tables import Lake, append_files, open_table
from tidewire.pipeline.source.bus import Bus
from tidewire.pipeline.source.log_origin import FILE, check_origin, load_origin
from tidewire.testing import ServerProcess


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    (tmp_path / "lake").mkdir()
    return Lake(str(tmp_path / "lake"))


@pytest.fixture
def bus(server: ServerProcess) -> Iterator[Bus]:
    settings = settings_for(server)
    made = Bus(settings, SystemClock())
    yield made
    made.close()


def note(lake: Lake, **changed: str) -> None:
    """Change what the lake knows of its origin."""
    path = Path(lake.path) / FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def begin_at(lake: Lake, position: int) -> None:
    append_files(open_table(lake, "bronze"), [], position, epoch=1)


def test_first_run_notes_the_origin_and_the_next_one_agrees(
    lake: Lake, bus: Bus, server: ServerProcess, rest: Rest
) -> None:
    check_origin(lake, bus)
    first = load_origin(lake)
    assert first.org_id == server.org_id
    assert first.topic == "/data/ChangeEvents"
    assert first.incarnation
    begin_at(lake, rest.call("GET", "/services/tidewire/v1/status")["head"])
    check_origin(lake, bus)
    assert load_origin(lake) == first
    note(lake, org_id=first.org_id[:15])
    check_origin(lake, bus)
    assert load_origin(lake) == first


@pytest.mark.parametrize(
    "changed, error, words",
    [
        ({"org_id": "00D000000000009EAA"}, ConfigInvalid, "is a copy of org 00D000000000009EAA"),
        ({"topic": "/data/AccountChangeEvent"}, ConfigInvalid, "keeps the channel /data/AccountChangeEvent"),
        ({"incarnation": "12345"}, ReplayIdInvalid, "a copy of incarnation 12345"),
    ],
)
def test_lake_of_another_origin_is_rejected(
    lake: Lake, bus: Bus, changed: dict[str, str], error: type[PlatformError], words: str
) -> None:
    check_origin(lake, bus)
    note(lake, **changed)
    before = (Path(lake.path) / FILE).read_text()
    with pytest.raises(error, match=words):
        check_origin(lake, bus)
    assert (Path(lake.path) / FILE).read_text() == before


def test_position_that_the_server_has_never_assigned_is_rejected(lake: Lake, bus: Bus, rest: Rest) -> None:
    check_origin(lake, bus)
    begin_at(lake, rest.call("GET", "/services/tidewire/v1/status")["head"] + 10**9)
    with pytest.raises(ReplayIdInvalid, match="has never assigned"):
        check_origin(lake, bus)


def arguments(server: ServerProcess, lake: Lake, *words: str) -> list[str]:
    return ["pipeline", *words, "--lake", lake.path, "--url", server.http, "--endpoint", server.grpc]


@pytest.mark.parametrize("command", ["snapshot", "reconcile", "audit", "usage"])
def test_command_on_a_lake_of_another_server_writes_nothing(
    lake: Lake, bus: Bus, server: ServerProcess, command: str
) -> None:
    check_origin(lake, bus)
    note(lake, org_id="00D000000000009EAA")
    done = CliRunner().invoke(cli, arguments(server, lake, command))
    assert isinstance(done.exception, ConfigInvalid)
    assert sorted(path.name for path in Path(lake.path).iterdir()) == ["_lease", FILE]


def test_command_with_nothing_but_a_token_copies_the_records(
    lake: Lake, server: ServerProcess, rest: Rest, dev_token: str, tmp_path: Path
) -> None:
    account = rest.create("Account", {"Name": "By token"})
    env = {"TIDEWIRE_CONFIG_DIR": str(tmp_path / "config")}
    given = arguments(server, lake, "snapshot", "Account")
    done = CliRunner().invoke(cli, [*given, "--token", dev_token, "--json"], env=env, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"]["Account"] >= 1
    shown = CliRunner().invoke(
        cli,
        ["pipeline", "history", "Account", account, "--lake", lake.path, "--json"],
        catch_exceptions=False,
    )
    assert [row["change_type"] for row in json.loads(shown.stdout)] == ["READ"]
    wrong = CliRunner().invoke(cli, [*given, "--token", "00Dnobody"], env=env)
    assert isinstance(wrong.exception, SessionInvalid)


def test_command_on_a_lake_that_another_driver_holds_is_rejected(lake: Lake, server: ServerProcess) -> None:
    with hold_lease(lake.path):
        done = CliRunner().invoke(cli, arguments(server, lake, "snapshot"))
    assert isinstance(done.exception, PlatformError)
    assert done.exception.code == "store_locked"


@pytest.mark.parametrize(
    "words, told",
    [
        (["status", "--lake", "/nowhere/lake"], "there is no lake in /nowhere/lake"),
        (["compact", "--lake", "/nowhere/lake"], "there is no lake in /nowhere/lake"),
        (["retry", "--lake", "/nowhere/lake"], "there is no lake in /nowhere/lake"),
        (["run", "--master", "loca[2]"], "is not a Spark master"),
        (["run", "--conf", "executor.memory=1g"], "is not a Spark setting"),
        (["run", "--max-rows", "0"], "--max-rows"),
        (["run", "--readable-hours", "nan"], "0 or more"),
        (["run", "--keep-bronze-days", "-1"], "0 or more"),
        (["run", "--tls-ca", "/nowhere/ca.pem"], "/nowhere/ca.pem"),
    ],
)
def test_bad_option_is_rejected_with_what_is_wrong(words: list[str], told: str) -> None:
    done = CliRunner().invoke(cli, ["pipeline", *words])
    assert done.exit_code != 0
    assert told in done.output + (done.exception.message if isinstance(done.exception, PlatformError) else "")


def test_bus_of_a_token_is_not_asked_to_sign_in_again(lake: Lake, bus: Bus, dev_token: str) -> None:
    by_token = replace(bus.settings, username="", password="", token=dev_token)
    other = Bus(by_token, SystemClock())
    try:
        check_origin(lake, other)
    finally:
        other.close()
    assert load_origin(lake).incarnation
