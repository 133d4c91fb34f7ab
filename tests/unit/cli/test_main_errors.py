"""What a command says when it cannot do what it was asked: one line, what to do next, and no stack."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidewire.cli.main import find_hint
from tidewire.errors import ConfigInvalid


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidewire.cli", *arguments],
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("command", ["serve", "init", "demo"])
def test_directory_that_cannot_be_made_is_told_in_one_line_with_a_hint(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = run(command, "--data", str(tmp_path / "file" / "data"))
    assert told.returncode == 2
    assert told.stdout == ""
    assert told.stderr.startswith("error: ")
    assert "Traceback" not in told.stderr
    assert "doctor" in told.stderr or "--data" in told.stderr


def test_port_that_is_taken_is_answered_with_the_flag_that_chooses_another() -> None:
    refusal = ConfigInvalid("cannot listen on 127.0.0.1:1", setting="grpc_tls")
    assert "--grpc-tls HOST:PORT" in find_hint(refusal)
    assert "doctor" in find_hint(refusal)
    assert find_hint(ConfigInvalid("something else", setting="grpc_tls")) == ""


@pytest.mark.parametrize("channel", ["/topic/Accounts", "/u/Broadcast"])
def test_channel_that_the_pubsub_api_lacks_is_answered_with_the_protocol_that_has_it(
    channel: str,
) -> None:
    told = run("subscribe", channel, "--protocol", "pubsub", "--url", "http://127.0.0.1:1")
    assert told.returncode == 2
    assert "--protocol cometd" in told.stderr


def test_file_that_describes_no_org_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    path.write_text("- one\n- two\n")
    told = run("apply", "-f", str(path), "--url", "http://127.0.0.1:1")
    assert told.returncode == 1
    assert "is not an org definition" in told.stderr


def test_server_that_is_away_is_told_without_the_words_of_a_library() -> None:
    told = run("query", "SELECT Id FROM Account", "--url", "http://127.0.0.1:1")
    assert told.returncode == 2
    assert "Connection refused" in told.stderr
    assert "urlopen" not in told.stderr
    assert "hint: is the server running?" in told.stderr
