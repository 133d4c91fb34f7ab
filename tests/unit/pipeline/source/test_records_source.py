"""Records divided by id: ranges without gaps, and validation of options."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewire.errors import ConfigInvalid
from tidewire.ids import make_id
from tidewire.pipeline.lake.columns import Kind
from tidewire.pipeline.source.records_reader import RecordsPage
from tidewire.pipeline.source.records_source import (
    RecordsSettings,
    divide_ids,
    parse_records_settings,
    render_page,
)


@given(st.sets(st.integers(0, 10**9), min_size=1, max_size=200), st.integers(1, 50))
def test_ranges_hold_every_record_once(numbers: set[int], rows: int) -> None:
    ids = sorted(make_id("001", number) for number in numbers)
    ranges = divide_ids((ids[0], ids[-1]), len(ids), RecordsSettings("Account", rows_per_partition=rows))
    assert (ranges[0][0], ranges[-1][1]) == ("", "")
    assert all(left[1] == right[0] for left, right in pairwise(ranges))
    found = [i for after, through in ranges for i in ids if i > after and (not through or i <= through)]
    assert found == ids


def test_ranges_of_records_that_were_counted_up_are_about_equal() -> None:
    ids = [make_id("001", number) for number in range(1000, 2000)]
    ranges = divide_ids((ids[0], ids[-1]), 1000, RecordsSettings("Account", rows_per_partition=100))
    sizes = [sum(i > lo and (not hi or i <= hi) for i in ids) for lo, hi in ranges]
    assert len(sizes) == 10
    assert max(sizes) - min(sizes) <= 2


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"entity": "Account", "id_after": "x"},
        {"entity": "A", "page_rows": "-1"},
        {"entity": "A", "page_row": "1"},
    ],
)
def test_option_that_is_invalid_is_rejected(options: dict[str, str]) -> None:
    with pytest.raises(ConfigInvalid):
        parse_records_settings(options)


def test_page_has_its_fence_in_every_row_and_nulls_for_columns_that_are_gone() -> None:
    page = RecordsPage([{"Id": "a", "Amount": 1.5}, {"Id": "b", "Amount": None}], [], 7, 9)
    schema = pa.schema(
        [("Id", pa.string()), ("Amount", pa.float64()), ("Gone", pa.date32())]
        + [(name, pa.int64()) for name in ("_fence", "_settled")]
    )
    batch = render_page(page, {"Id": Kind.TEXT, "Amount": Kind.DOUBLE}, schema)
    assert batch.to_pylist() == [
        {"Id": "a", "Amount": 1.5, "Gone": None, "_fence": 7, "_settled": 9},
        {"Id": "b", "Amount": None, "Gone": None, "_fence": 7, "_settled": 9},
    ]
