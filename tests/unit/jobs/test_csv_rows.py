"""CSV parsing from blocks of any size, and rejection of malformed files."""

from __future__ import annotations

import pytest

from tidewire.errors import JobInvalid
from tidewire.jobs.csv_rows import iter_csv, render_csv
from tidewire.jobs.model import DELIMITERS, LINE_ENDINGS

ROWS = [
    ["Name", "Notes"],
    ['a "quoted" one', "two\nlines"],
    ["comma, and ` ^ | ;\t", ""],
    ["ünïcödé", "#N/A"],
]


def parse(
    data: bytes, delimiter: str = "COMMA", line_ending: str = "LF", size: int = 1 << 16
) -> list[list[str]]:
    blocks = [data[start : start + size] for start in range(0, len(data), size)]
    return list(iter_csv(blocks, delimiter, line_ending))


@pytest.mark.parametrize("delimiter", DELIMITERS)
@pytest.mark.parametrize("line_ending", LINE_ENDINGS)
def test_rows_survive_every_delimiter_and_line_ending(delimiter: str, line_ending: str) -> None:
    data = render_csv(ROWS, delimiter, line_ending)
    assert parse(data, delimiter, line_ending) == ROWS


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_rows_cut_anywhere_are_whole(size: int) -> None:
    data = render_csv(ROWS, "COMMA", "LF")
    assert parse(data, size=size) == ROWS


def test_byte_order_mark_and_empty_lines_are_skipped() -> None:
    assert parse(b"\xef\xbb\xbfName\n\nx\n\n") == [["Name"], ["x"]]


def test_last_line_without_end_counts() -> None:
    assert parse(b"Name\nx") == [["Name"], ["x"]]


@pytest.mark.parametrize(
    "data, message",
    [
        (b'Name\n"open\n', "unexpected end of data"),
        (b'Name\n"a"b\n', "expected after"),
        (b"Name\n\xff\xfe\n", "not UTF-8"),
        (b"Name\na\0b\n", "null character"),
        (b"Name\n" + b"x" * 131_073, "field limit"),
        (b"Name\n" + b"x," * 5_001, "more than 5000 columns"),
        (b"Name\n" + b"x" * 1_600_001, "characters"),
    ],
)
def test_malformed_data_is_refused_with_the_reason(data: bytes, message: str) -> None:
    with pytest.raises(JobInvalid, match=message) as refused:
        parse(data)
    assert refused.value.details["reason"] == "InvalidBatch"


@pytest.mark.parametrize("data, setting", [(b"Name\r\nx\r\n", "LF"), (b"Name\nx\n", "CRLF")])
def test_other_line_ending_than_announced_is_refused(data: bytes, setting: str) -> None:
    with pytest.raises(JobInvalid, match=f"LineEnding setting is {setting}"):
        parse(data, line_ending=setting)
