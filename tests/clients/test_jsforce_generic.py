"""Generic streaming with jsforce, unmodified: channels made, watched, pushed to and replayed."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.clients.watcher import run_walk
from tidewire.config import DEV_PASSWORD, DEV_USERNAME
from tidewire.testing import ServerProcess

pytestmark = pytest.mark.clients

WALK_LIMIT_S = 120


@pytest.fixture(scope="module", params=["36.0", "59.0"])
def steps(request: pytest.FixtureRequest, server: ServerProcess) -> dict[str, Any]:
    """What jsforce got back, by step."""
    version: str = request.param
    channel = f"/u/jsforce/C{uuid.uuid4().hex[:10]}"
    arguments = [server.http, DEV_USERNAME, DEV_PASSWORD, channel, version]
    found = run_walk("jsforce_generic.mjs", arguments, WALK_LIMIT_S)
    return found | {"version": version}


@pytest.mark.timeout(WALK_LIMIT_S + 30)
def test_walk_comes_to_its_end(steps: dict[str, Any]) -> None:
    assert steps["made"]["success"] is True
    assert steps["end"] is True


def test_push_tells_who_was_there(steps: dict[str, Any]) -> None:
    assert steps["early"] == {"fanoutCount": 0, "userOnlineStatus": {}}
    assert steps["one"] == {"fanoutCount": -1, "userOnlineStatus": {}}
    mine, other, everybody = steps["many"]
    assert (mine["fanoutCount"], list(mine["userOnlineStatus"].values())) == (1, [True])
    assert other == {"fanoutCount": 0, "userOnlineStatus": {"005000000000001AAA": False}}
    assert everybody["fanoutCount"] == -1


def test_live_subscriber_gets_what_is_meant_for_it(steps: dict[str, Any]) -> None:
    assert [message["payload"] for message in steps["live"]] == ["hello", "for me", "for all"]
    assert all(message["event"]["replayId"] for message in steps["live"])


def test_replay_begins_where_it_is_told(steps: dict[str, Any]) -> None:
    replayed = {
        step: [m["payload"] for m in steps[step]] for step in ("replayed", "resumed") if step in steps
    }
    if steps["version"] == "36.0":
        assert replayed == {}
    else:
        everything = ["early", "hello", "for me", "for all"]
        assert replayed == {"replayed": everything, "resumed": everything[2:]}


def test_channel_is_made_by_its_first_subscriber(steps: dict[str, Any]) -> None:
    assert steps["dynamic push"] == {"fanoutCount": -1, "userOnlineStatus": {}}
    assert [message["payload"] for message in steps["dynamic"]] == ["made"]
