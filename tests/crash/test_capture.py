"""Change data capture when the server dies: a copy kept by events alone still equals the records.

The writers do all that makes events of every kind: merged ones, gaps, differences, cascades, conversions of leads. The
example that keeps the copy outlives the server too.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.powercut import PowerCut
from tests.running import Rest
from tests.wire.replica import Replica, find_differences
from tests.wire.replication_load import ADMIN, Org, Writer, definition
from tidewire.testing import ServerProcess

pytestmark = [pytest.mark.crash, pytest.mark.slow]

WRITERS = 4
_BETWEEN_DEATHS = 80  # operations


def check_agreement(
    server: ServerProcess, copy: Path, seed: int, deaths: int, die: Callable[[], None]
) -> None:
    """Let the server die under load again and again, then hold the copy against the records."""
    rest = Rest(server.http, server.login())
    rest.call("POST", f"{ADMIN}/apply", definition())
    rest.close()
    org = Org(server)
    dice = random.Random(seed)
    total = _BETWEEN_DEATHS * (deaths + 1)
    writers = [Writer(org, dice.randrange(1 << 30), total, outlives=True) for _ in range(WRITERS)]
    replica = Replica(server, copy)
    try:
        for writer in writers:
            writer.start()
        for number in range(deaths):
            org.wait_done(_BETWEEN_DEATHS * (number + 1))
            # A moment within a request rather than right after an answer.
            threading.Event().wait(dice.uniform(0, 0.05))
            die()
            server.restart()
            org.note_back()
        for writer in writers:
            writer.join()
        assert [writer.failure for writer in writers] == [None] * WRITERS
        last = rest.create("Account", {"Name": "last"})
        assert find_differences(rest, replica.wait_for("Account", last)) == []
    finally:
        replica.close()
        rest.close()


@pytest.mark.timeout(1800)
def test_copy_by_events_equals_the_records_after_kills_at_random_moments(
    fresh_server: ServerProcess, tmp_path: Path, kills: int, seed: int
) -> None:
    check_agreement(fresh_server, tmp_path / "copy.db", seed, kills, fresh_server.kill)


@pytest.mark.timeout(1800)
def test_copy_by_events_equals_the_records_after_power_cuts(tmp_path: Path, kills: int, seed: int) -> None:
    data = tmp_path / "data"
    power = PowerCut(data, tmp_path / "scratch")
    rng = random.Random(seed)
    with ServerProcess(data, env=power.env(keep_percent=0, seed=seed)) as server:

        def lose_power() -> None:
            server.kill()
            assert power.counts().syncs > 0
            power.cut()
            server.env.update(power.env(rng.choice([0, 0, 30, 70]), rng.randrange(1 << 30)))

        check_agreement(server, tmp_path / "copy.db", seed, kills, lose_power)
