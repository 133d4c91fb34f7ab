"""Killing the server under load: nothing acknowledged is lost, in part there, or seen twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.trial import Trial
from tests.running import Rest
from tidewire.errors import InternalError
from tidewire.testing import ServerProcess

pytestmark = [pytest.mark.crash, pytest.mark.slow]


@pytest.mark.timeout(900)
def test_server_killed_at_random_moments_keeps_every_promise(
    fresh_server: ServerProcess, kills: int, seed: int
) -> None:
    trial = Trial(fresh_server, seed)
    for _ in range(kills):
        assert trial.round(trial.kill_at_random) == []
    assert trial.ledger.acknowledged > 10 * kills


@pytest.mark.timeout(900)
def test_server_killed_during_checkpoints_keeps_every_promise(
    fresh_server: ServerProcess, kills: int, seed: int
) -> None:
    trial = Trial(fresh_server, seed)
    for _ in range(kills):
        assert trial.round(trial.kill_at_checkpoint) == []
    assert trial.checkpoints_hit == kills


@pytest.mark.timeout(900)
@pytest.mark.parametrize("point", ["writer.before_commit", "writer.after_commit", "writer.before_ack"])
def test_server_dying_at_a_named_point_keeps_every_promise(
    fresh_server: ServerProcess, seed: int, point: str
) -> None:
    trial = Trial(fresh_server, seed)

    def die_at_point() -> None:
        fresh_server.wait_crashed()
        fresh_server.env.pop("TIDEWIRE_CRASH_AT")

    for _ in range(2):
        # A restart arms the point; the number is past the commits of a start-up and inside the load.
        fresh_server.env["TIDEWIRE_CRASH_AT"] = f"{point}:{trial.rng.randrange(20, 60)}"
        fresh_server.restart()
        assert trial.round(die_at_point) == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", ["writer.before_commit", "writer.after_commit"])
def test_first_start_that_dies_at_a_commit_leaves_a_directory_that_starts(tmp_path: Path, point: str) -> None:
    deaths = 0
    for commit in (1, 2, 3):
        server = ServerProcess(tmp_path / str(commit) / "data")
        server.env["TIDEWIRE_CRASH_AT"] = f"{point}:{commit}"
        try:
            server.start()
        except InternalError:
            deaths += 1
        del server.env["TIDEWIRE_CRASH_AT"]
        with server.restart():
            rest = Rest(server.http, server.login())
            record_id = rest.create("Account", {"Name": "after all"})
            assert [row["Id"] for row in rest.query("SELECT Id FROM Account")] == [record_id]
            rest.close()
    assert deaths, "no start-up commits through the writer"


def test_server_stopped_politely_exits_with_zero_and_keeps_its_records(
    fresh_server: ServerProcess, seed: int
) -> None:
    trial = Trial(fresh_server, seed)
    assert trial.round(fresh_server.stop) == []
