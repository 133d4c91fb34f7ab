"""Killing a server whose org is in PostgreSQL: the same promises, and the lock goes to whoever comes next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.trial import Trial
from tests.postgres import PostgresServer
from tidewire.errors import InternalError
from tidewire.testing import ServerProcess

pytestmark = [pytest.mark.crash, pytest.mark.slow]

KILLS = 2


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.make_url()


@pytest.fixture
def fresh_server(tmp_path: Path, url: str) -> Iterator[ServerProcess]:
    """A server of this test's own, on an empty schema."""
    with ServerProcess(tmp_path / "data", options=("--store", url)) as process:
        yield process


@pytest.mark.timeout(900)
def test_server_killed_at_random_moments_keeps_every_promise(fresh_server: ServerProcess, seed: int) -> None:
    trial = Trial(fresh_server, seed)
    for _ in range(KILLS):
        assert trial.round(trial.kill_at_random) == []
    assert trial.ledger.acknowledged > 10 * KILLS
    assert not (fresh_server.data / "org.db").exists()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("point", ["writer.before_commit", "writer.after_commit", "writer.before_ack"])
def test_server_dying_at_a_named_point_keeps_every_promise(
    fresh_server: ServerProcess, seed: int, point: str
) -> None:
    trial = Trial(fresh_server, seed)
    # A restart arms the point; the number is past the commits of a start-up and inside the load.
    fresh_server.env["TIDEWIRE_CRASH_AT"] = f"{point}:{trial.rng.randrange(20, 60)}"
    fresh_server.restart()

    def die_at_point() -> None:
        fresh_server.wait_crashed()
        del fresh_server.env["TIDEWIRE_CRASH_AT"]

    assert trial.round(die_at_point) == []


@pytest.mark.timeout(900)
def test_second_server_on_the_same_org_is_refused_and_the_first_goes_on(
    fresh_server: ServerProcess, tmp_path: Path, url: str, seed: int
) -> None:
    second = ServerProcess(tmp_path / "second", options=("--store", url))
    with pytest.raises(InternalError, match="store_locked"):
        second.start()
    trial = Trial(fresh_server, seed)
    assert trial.round(fresh_server.stop) == []
