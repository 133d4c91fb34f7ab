"""Batches cut from bronze: whole transactions, found without reading all that waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.histories import History, write_bronze
from tidewire.pipeline.bronze_source import plan_end, read_marks
from tidewire.pipeline.spans import Span
from tidewire.pipeline.tables import Lake, try_open_table
from tidewire.pipeline.transactions import closed_through


@pytest.mark.parametrize("has_last", [True, False])
@pytest.mark.parametrize("max_rows", [1, 2, 5, 13, 1000, None])
def test_batches_planned_file_by_file_end_where_a_look_at_everything_would(
    tmp_path: Path, has_last: bool, max_rows: int | None
) -> None:
    lake, history = Lake(str(tmp_path)), History()
    for i in range(12):
        ids = [history.create("Contact", {"Name.LastName": f"n{i}-{j}"}) for j in range(1 + i % 4)]
        history.update("Contact", ids[:1], {"Name.LastName": "x"})
        history.commit(hidden=i % 2, has_last=has_last)
        if i % 3 == 2:
            floor = history.truths[i - 3][0] if i > 2 else 0
            write_bronze(lake, [e for e in history.events if e.replay_id > floor], history.position)
    bronze = try_open_table(lake, "bronze")
    assert bronze is not None
    after, known = 0, history.position
    ends = {position for position, _ in history.truths}
    while after < known:
        span = Span(after, known)
        end = plan_end(lake, bronze, span, max_rows)
        if end is None:
            assert not has_last
            break
        assert after < end <= known
        if has_last:
            assert end in ends
            assert end == closed_through(read_marks(lake, bronze, span), known, max_rows)
        after = end
