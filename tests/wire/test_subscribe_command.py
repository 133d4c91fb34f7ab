"""`tidewire subscribe` against a live server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.running import Rest
from tidewire.testing import ServerProcess

pytestmark = pytest.mark.timeout(180)  # each test starts a program of its own

TOPIC = "/topic/SubscribeCommand"


@pytest.fixture(scope="session")
def topic(server: ServerProcess) -> str:
    """A push topic with two events in it. Of the whole run, as the server is: a worker may come back to this module."""
    rest = Rest(server.http, server.login())
    query = "SELECT Id, Name FROM Account WHERE Name LIKE 'subscribe %'"
    rest.create("PushTopic", {"Name": "SubscribeCommand", "Query": query, "ApiVersion": 62.0})
    for name in ("subscribe one", "subscribe two \x1b[2J"):
        rest.create("Account", {"Name": name})
    rest.close()
    return TOPIC


@contextmanager
def subscribing(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command, subscribed."""
    command = [sys.executable, "-m", "tidewire.cli", "subscribe", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as running:
        try:
            assert running.stderr is not None
            told = running.stderr.readline()
            assert told.startswith("subscribed to "), told
            yield running
        finally:
            running.kill()


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def subscribe(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidewire.cli", "subscribe", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False, env=environment())


def test_replay_of_all_events_prints_each_message_as_one_json_line(server: ServerProcess, topic: str) -> None:
    done = subscribe(topic, "--replay", "-2", "--count", "2", "--json", "--url", server.http)
    assert (done.returncode, done.stderr) == (0, f"subscribed to {topic}\n")
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    assert [m["data"]["sobject"]["Name"].split()[1] for m in messages] == ["one", "two"]
    assert {m["channel"] for m in messages} == {topic}
    after = str(messages[0]["data"]["event"]["replayId"])
    again = subscribe(topic, "--replay", after, "--count", "1", "--json", "--url", server.http)
    assert again.stdout.splitlines() == done.stdout.splitlines()[1:]


def test_text_form_shows_the_id_the_channel_and_nothing_that_moves_the_cursor(
    server: ServerProcess, topic: str
) -> None:
    done = subscribe(topic, "--replay", "-2", "--count", "2", "--url", server.http)
    first, second = done.stdout.splitlines()
    replay_id, channel, kind, *_ = first.split()
    assert (replay_id.isdecimal(), channel, kind) == (True, topic, "created")
    assert "subscribe one" in first
    assert second.isprintable()


def test_https_with_the_servers_certificate_works(server: ServerProcess, topic: str) -> None:
    options = ["--url", server.https, "--ca", str(server.ca_path), "--replay", "-2", "--count", "1"]
    done = subscribe(topic, *options)
    assert done.returncode == 0, done.stderr
    assert "subscribe one" in done.stdout


def test_old_version_gives_the_old_form(server: ServerProcess, topic: str, rest: Rest) -> None:
    with subscribing(
        topic, "--api-version", "36.0", "--count", "1", "--json", "--url", server.http
    ) as running:
        rest.create("Account", {"Name": "subscribe old"})
        output, _ = running.communicate(timeout=90)
    event = json.loads(output)["data"]["event"]
    assert "replayId" not in event
    assert event["createdDate"].endswith("+0000")


@pytest.mark.parametrize(
    "arguments, code, told",
    [
        (["/topic/NoSuchTopic"], 2, "[channel_unknown]"),
        ([TOPIC, "--replay", "12"], 2, "[replay_id_invalid]"),
        ([TOPIC, "--password", "wrong"], 2, "[login_failed]"),
        ([TOPIC, "--replay", "-3"], 2, "-3 is not in the range"),
        ([TOPIC, "--api-version", "new"], 2, "not an API version such as 67.0"),
        ([TOPIC, "--api-version", "22.0"], 2, "Unsupported API version"),
        ([], 2, "Missing argument"),
    ],
)
def test_what_cannot_work_is_refused_at_once_in_one_line(
    server: ServerProcess, topic: str, arguments: list[str], code: int, told: str
) -> None:
    done = subscribe(*arguments, "--url", server.http)
    assert done.returncode == code
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_server_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    done = subscribe(TOPIC, "--url", "http://127.0.0.1:1")
    assert done.returncode == 2
    assert "[server_unreachable]" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_command_without_an_error(server: ServerProcess, topic: str, number: int) -> None:
    with subscribing(topic, "--url", server.http) as running:
        running.send_signal(number)
        _, told = running.communicate(timeout=90)
    assert running.returncode == 0
    assert told == ""


def test_signal_ends_the_command_over_grpc_without_an_error(server: ServerProcess) -> None:
    over = ["--protocol", "pubsub", "--endpoint", server.grpc, "--url", server.http]
    with subscribing("/data/AccountChangeEvent", *over) as running:
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=90)
    assert (running.returncode, told) == (0, "")


def test_reader_that_leaves_ends_the_command_without_an_error(
    server: ServerProcess, topic: str, rest: Rest
) -> None:
    with subscribing(topic, "--url", server.http) as running:
        assert running.stdout is not None
        running.stdout.close()
        rest.create("Account", {"Name": "subscribe left"})
        running.wait(timeout=90)
        assert running.stderr is not None
        assert running.stderr.read() == ""
    assert running.returncode == 0


def test_server_killed_and_started_again_is_found_again(fresh_server: ServerProcess) -> None:
    rest = Rest(fresh_server.http, fresh_server.login())
    query = "SELECT Id, Name FROM Account"
    rest.create("PushTopic", {"Name": "Again", "Query": query, "ApiVersion": 62.0})
    with subscribing(
        "/topic/Again", "--replay", "-2", "--count", "2", "--json", "--url", fresh_server.http
    ) as running:
        assert running.stdout is not None
        rest.create("Account", {"Name": "before"})
        first = running.stdout.readline()
        fresh_server.kill()
        fresh_server.start()
        rest.close()
        rest.create("Account", {"Name": "after"})
        second = running.stdout.readline()
        running.wait(timeout=90)
    rest.close()
    assert [json.loads(line)["data"]["sobject"]["Name"] for line in (first, second)] == ["before", "after"]
    assert running.returncode == 0
