"""Receipts of tasks: what is rendered is parsed again, and missing rows are noticed."""

from __future__ import annotations

import pytest

from tidewire.errors import LogCorrupt
from tidewire.pipeline.lake.files import DataFile
from tidewire.pipeline.lake.receipts import parse_receipts, render_receipts
from tidewire.pipeline.lake.spans import Span


def test_receipts_of_several_tasks_are_parsed_as_one_batch() -> None:
    late, early = DataFile("b", 9, 2, 7, 8, "Account", 5), DataFile("a", 9, 1, 6, 6, "Account", 5)
    tasks = [
        render_receipts([late], [Span(6, 9)], {"schemas": {"s": 7}}),
        render_receipts([early, None], [Span(5, 6)], {"schemas": {}}),
    ]
    receipts = parse_receipts(row for task in tasks for row in task.to_pylist())
    assert receipts.files == (early, late)
    assert receipts.span == Span(5, 9)
    assert receipts.details == ({"schemas": {"s": 7}},)


def test_receipts_whose_spans_leave_a_hole_are_rejected() -> None:
    task = render_receipts([], [Span(0, 5), Span(7, 9)], {})
    with pytest.raises(LogCorrupt):
        parse_receipts(task.to_pylist())
