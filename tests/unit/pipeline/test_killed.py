"""Apply killed by SIGKILL at each of its crash points, as often as there are passes, then run to the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.histories import History, write_bronze
from tests.pipeline.verdict import assert_history_complete, assert_replicas_true_at_every_batch
from tidewire.pipeline.control import open_dirty
from tidewire.pipeline.tables import Lake

ROOT = Path(__file__).parents[3]


def run_applying(lake: Lake, crash_at: str, max_rows: int) -> int:
    environment = {**os.environ, "TIDEWIRE_CRASH_AT": crash_at, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    command = [sys.executable, "-m", "tests.pipeline.applying", lake.path, str(max_rows)]
    return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


@pytest.mark.timeout(180)
def test_apply_killed_at_every_crash_point_leaves_exact_tables(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    history = History()
    strangers: set[str] = set()
    for i in range(8):
        account = history.create("Account", {"Name": f"a{i}", "Phone": "1"})
        history.create("Contact", {"Name.LastName": "Lee"})
        history.commit(hidden=i % 2)
        history.update("Account", [account], {"Phone": None})
        history.commit()
        stranger = history.new_id("Account")
        strangers.add(stranger)
        history.add("Account", "UPDATE", [stranger], {"Phone": "1"}, changed=["Phone"])
        history.commit()
    write_bronze(lake, history.events, history.position)
    # With other limits each time, so that a batch cut short by a crash comes again in another shape.
    kills = [
        ("pipeline.apply.after_history", 9),
        ("pipeline.apply.after_control", 7),
        ("pipeline.apply.after_history:3", 4),
        ("pipeline.apply.after_control:2", 12),
        ("pipeline.apply.before_manifest", 6),
    ]
    for crash_at, max_rows in kills:
        assert run_applying(lake, crash_at, max_rows) == -signal.SIGKILL
    assert run_applying(lake, "", 5) == 0
    assert_history_complete(lake, history)
    assert_replicas_true_at_every_batch(lake, history)
    assert set(open_dirty(lake)["Account"]) == strangers
