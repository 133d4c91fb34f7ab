"""`tidewire completion`: the script for bash, run by bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidewire.cli.main import cli


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH with `tidewire` on it."""
    program = tmp_path / "tidewire"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tidewire.cli "$@"\n')
    program.chmod(0o755)
    return f"{tmp_path}{os.pathsep}{os.environ['PATH']}"


def complete(path: str, *words: str) -> list[str]:
    """What bash offers for the last word."""
    script = """
        eval "$(tidewire completion bash)"
        COMP_WORDS=("$@")
        COMP_CWORD=$(($# - 1))
        _tidewire_completion tidewire
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    bash = shutil.which("bash")
    assert bash is not None
    told = subprocess.run(
        [bash, "-c", script, "bash", "tidewire", *words],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert told.stderr == ""
    return told.stdout.split()


def test_bash_completes_commands_flags_and_choices(path: str) -> None:
    assert complete(path, "qu") == ["query"]
    assert complete(path, "user", "un") == ["unfreeze", "unlock"]
    assert complete(path, "subscribe", "--pro") == ["--protocol", "--profile"]
    assert complete(path, "subscribe", "--protocol", "") == ["cometd", "pubsub"]


@pytest.mark.parametrize(
    "shell, word", [("bash", "complete -o"), ("zsh", "#compdef tidewire"), ("fish", "complete --")]
)
def test_each_shell_has_a_script(shell: str, word: str) -> None:
    told = CliRunner().invoke(cli, ["completion", shell])
    assert told.exit_code == 0
    assert word in told.output
    assert "_TIDEWIRE_COMPLETE" in told.output


def test_other_shell_is_refused() -> None:
    assert CliRunner().invoke(cli, ["completion", "cmd"]).exit_code == 2
