"""Apply killed by SIGKILL at each of its crash points, as often as there are passes, then run to the end."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.histories import History, write_bronze
from tests.pipeline.verdict import assert_history_complete, assert_replicas_true_at_every_batch
from tidewire.pipeline.lake.control import open_dirty
from tidewire.pipeline.lake.tables import Lake

ROOT = Path(__file__).parents[3]


def run_applying(lake: Lake, crash_at: str, max_rows: int, *, file_bytes: int | None = None) -> int:
    """Apply in a process of its own, perhaps one that can write no file of more than so many bytes."""
    environment = {**os.environ, "TIDEWIRE_CRASH_AT": crash_at, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # under the limit a compiled file would be cut off and kept
    limit = resource.RLIM_INFINITY if file_bytes is None else file_bytes
    program = (
        f"import resource, runpy; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); "
        "runpy.run_module('tests.pipeline.apply_lake', run_name='__main__', alter_sys=True)"
    )
    command = [sys.executable, "-c", program, lake.path, str(max_rows)]
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


@pytest.mark.timeout(180)
def test_apply_whose_files_cannot_be_written_fails_and_continues_when_they_can(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    history = History()
    for i in range(12):
        account = history.create("Account", {"Name": f"a{i}", "Phone": "1"})
        history.create("Contact", {"Name.LastName": "Lee"})
        history.commit()
        history.update("Account", [account], {"Phone": "2"})
        history.commit()
    write_bronze(lake, history.events, history.position)
    # Too little for a data file, for a table's first commit, and for what follows it.
    for file_bytes in (400, 1_500, 4_000):
        assert run_applying(lake, "", 6, file_bytes=file_bytes) > 0
    assert run_applying(lake, "", 5) == 0
    assert_history_complete(lake, history)
    assert_replicas_true_at_every_batch(lake, history)
