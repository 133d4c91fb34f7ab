"""The list of commands: its help, mistyped names, and what every command says about itself."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tidewire.cli.main import SECTIONS, cli
from tidewire.cli.reference import main as write_reference

OTHERS = ("pipeline", "demo")  # their examples stand in the text of their help


def iter_commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from iter_commands(below, f"{path} {name}")


def test_every_command_has_help_and_examples_that_name_it() -> None:
    for path, command in iter_commands(cli, "tidewire"):
        assert command.help, path
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # two flags of one name are only warned of
            shown = command.get_help(click.Context(command, info_name=path))
        if path.split()[1:2] and path.split()[1] in OTHERS:
            continue
        assert "Example" in shown, path
        assert f"  {path} " in shown + " " or f"  {path}\n" in shown + "\n" or path == "tidewire", path


def test_every_listed_command_is_found() -> None:
    names = [name for commands in SECTIONS.values() for name, _, _ in commands]
    assert len(names) == len(set(names))
    context = click.Context(cli)
    assert all(cli.get_command(context, name) is not None for name in names)
    assert cli.get_command(context, "nonsense") is None


@pytest.mark.parametrize(
    "typed, meant",
    [("qury", "query"), ("subscibe", "subscribe"), ("logn", "login"), ("chanels", "channels")],
)
def test_mistyped_command_is_answered_with_the_one_meant(typed: str, meant: str) -> None:
    told = CliRunner().invoke(cli, [typed])
    assert told.exit_code == 2
    assert f"No such command '{typed}'. Did you mean {meant}" in told.output


def test_mistyped_subcommand_is_answered_with_the_one_meant() -> None:
    told = CliRunner().invoke(cli, ["user", "lst"])
    assert told.exit_code == 2
    assert "Did you mean" in told.output
    assert "list" in told.output


def test_help_loads_no_command() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from tidewire.cli.main import cli;"
        "shown = CliRunner().invoke(cli, ['--help']); assert 'subscribe' in shown.output, shown;"
        "print([name for name in sys.modules if name.startswith(('tidewire.server', 'tidewire.client', 'grpc'))])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert told.stdout == "[]\n"


def test_reference_is_what_the_commands_give(capsys: pytest.CaptureFixture[str]) -> None:
    assert write_reference(["--check"]) == 0, capsys.readouterr().err


def test_reference_that_is_not_current_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "command-line.md"
    monkeypatch.setattr("tidewire.cli.reference.PATH", path)
    assert write_reference(["--check"]) == 1
    assert write_reference([]) == 0
    assert write_reference(["--check"]) == 0
    path.write_text(path.read_text().replace("tidewire query", "tidewire ask"))
    assert write_reference(["--check"]) == 1


def test_bench_without_a_name_lists_the_benchmarks_of_a_checkout() -> None:
    told = CliRunner().invoke(cli, ["bench"])
    assert told.exit_code == 0
    rows = dict(line.split(maxsplit=1) for line in told.output.splitlines())
    assert {"path", "pubsub", "fanout"} <= rows.keys()
    assert all(rows.values())
