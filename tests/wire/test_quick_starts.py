"""The guide's quick starts: the commands of docs/quick-starts.md, run just as they stand there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.running import Rest
from tidewire.testing import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]  # each command starts a program of its own

ROOT = Path(__file__).resolve().parents[2]
_WALK_LIMIT_S = 180.0
DOCUMENT = (ROOT / "docs" / "quick-starts.md").read_text()
_CREATED_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def commands_of(heading: str) -> str:
    """The shell blocks under a heading."""
    section = DOCUMENT.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return "\n".join(re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL))


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with a `tidewire` that runs this very source."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "tidewire"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tidewire.cli "$@"\n')
    program.chmod(0o755)
    return folder


def run(server: ServerProcess, programs: Path, heading: str) -> list[dict[str, Any]]:
    """Run a section; the JSON messages it printed, in order."""
    script = "set -eu\n" + commands_of("Before you begin") + "\n" + commands_of(heading)
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    places = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=ROOT,
        env={**os.environ, "PATH": path, "PYTHONPATH": places, "TIDEWIRE_URL": server.http},
        capture_output=True,
        text=True,
        timeout=_WALK_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    # Answers of REST calls end without a line feed, so a message may follow one on its line.
    found = re.findall(r'\{"channel".*$', done.stdout, re.MULTILINE)
    return [json.loads(text) for text in found]


def test_push_topic_quick_start_shows_the_four_notifications(
    fresh_server: ServerProcess, programs: Path
) -> None:
    messages = run(fresh_server, programs, "Push topics")
    assert {message["channel"] for message in messages} == {"/topic/InvoiceStatementUpdates"}
    events = [message["data"]["event"] for message in messages]
    assert [event["type"] for event in events] == ["created", "updated", "deleted", "undeleted"]
    assert all(_CREATED_DATE.fullmatch(event["createdDate"]) for event in events)
    ids = [event["replayId"] for event in events]
    assert ids == sorted(set(ids))
    created, updated, deleted, undeleted = (message["data"]["sobject"] for message in messages)
    assert created == {
        "Id": created["Id"],
        "Name": "INV-0001",
        "Status__c": "Open",
        "Description__c": "Test invoice statement",
    }
    assert len(created["Id"]) == 18
    assert updated == {**created, "Status__c": "Negotiating"}
    assert deleted == {"Id": created["Id"]}
    assert undeleted == updated


def outline(messages: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    return [(m["data"]["event"]["type"], m["data"]["sobject"].get("Name")) for m in messages]


def test_durable_push_topic_sample_replays_by_id_from_new_and_from_all(
    fresh_server: ServerProcess, programs: Path
) -> None:
    messages = run(fresh_server, programs, "Replay of push topics")
    old = [("created", "Test account"), ("updated", "Test account_UPDATED"), ("deleted", None)]
    new = [("created", "Lightning"), ("updated", "Lightning_UPDATED"), ("deleted", None)]
    everything, after_second, only_new, everything_again = (
        messages[:3],
        messages[3:4],
        messages[4:7],
        messages[7:],
    )
    assert outline(everything) == old
    assert after_second == everything[2:]
    assert outline(only_new) == new
    assert everything_again == everything + only_new
    assert everything[0]["data"]["sobject"]["Website"] is None


def test_generic_streaming_quick_start_shows_what_was_pushed(
    fresh_server: ServerProcess, programs: Path
) -> None:
    messages = run(fresh_server, programs, "Generic streaming")
    first, second, after_first, new, *everything = messages
    assert first["channel"] == "/u/notifications/ExampleUserChannel"
    assert first["data"]["payload"] == "Broadcast message to all subscribers"
    assert second["data"]["payload"] == "Another message"
    assert set(first["data"]) == {"payload", "event"}
    assert set(first["data"]["event"]) == {"createdDate", "replayId"}
    assert _CREATED_DATE.fullmatch(first["data"]["event"]["createdDate"])
    assert after_first == second
    assert new["data"]["payload"] == "A new message"
    assert everything == [first, second, new]


def test_python_example_goes_on_after_the_last_notification_it_dealt_with(
    fresh_server: ServerProcess, programs: Path, tmp_path: Path
) -> None:
    run(fresh_server, programs, "Push topics")
    rest = Rest(fresh_server.http, fresh_server.login())
    command = [sys.executable, str(ROOT / "examples" / "watch_invoices.py"), str(tmp_path / "marker")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TIDEWIRE_URL": fresh_server.http}

    def watch_until(last: str) -> list[str]:
        lines: list[str] = []
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as watching:
            assert watching.stdout is not None
            while not lines or lines[-1] != last:
                lines.append(watching.stdout.readline().split()[0])
            watching.terminate()
        return lines

    assert watch_until("undeleted") == ["created", "updated", "deleted", "undeleted"]
    rest.create("Invoice_Statement__c", {"Description__c": "another"})
    # An event that was printed but not yet noted when the program ended comes once more, and none before it.
    assert watch_until("created") in (["created"], ["undeleted", "created"])
    rest.close()
