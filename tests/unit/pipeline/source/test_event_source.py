"""Planning of the bus source: offsets, options, and spans divided into partitions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from tests.pipeline.histories import History, write_bronze
from tidewire.errors import ConfigInvalid, LogCorrupt, ReplayIdExpired
from tidewire.pipeline.driver.run import parse_failure
from tidewire.pipeline.lake.spans import Span, check_continues, join_spans
from tidewire.pipeline.lake.tables import Lake
from tidewire.pipeline.source.bus import BusSettings
from tidewire.pipeline.source.event_source import (
    ReadSettings,
    TidewireSource,
    TidewireStreamReader,
    parse_read_settings,
)
from tidewire.pipeline.source.offsets import Offset, parse_offset, render_offset
from tidewire.pipeline.source.plans import divide_span


@given(st.integers(0, 2**53), st.text())
def test_offset_round_trips(position: int, incarnation: str) -> None:
    assert parse_offset(render_offset(position, incarnation)) == Offset(position, incarnation)


def test_offset_of_the_first_version_is_read() -> None:
    assert parse_offset({"v": 1, "replay": "7"}) == Offset(7)


@pytest.mark.parametrize(
    "offset", [{"v": 3, "replay": "1"}, {}, {"v": 2}, {"v": 2, "replay": "x"}, {"v": 1, "replay": "-1"}]
)
def test_offset_that_cannot_be_read_is_rejected(offset: dict[str, object]) -> None:
    with pytest.raises(ConfigInvalid, match=r"the checkpoint holds an (invalid )?offset"):
        parse_offset(offset)


def test_reader_reports_an_empty_offset_when_the_end_of_the_log_is_unknown() -> None:
    reader = TidewireStreamReader(BusSettings("localhost:1", "/data/ChangeEvents"), ReadSettings())
    with pytest.raises(ConfigInvalid):
        parse_offset(reader.reportLatestOffset())


@pytest.mark.parametrize(
    "text, starting",
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("17", 17),
        ("2023-11-14T22:13:20", "@1700000000000"),
        ("2023-11-14T23:13:20+01:00", "@1700000000000"),
    ],
)
def test_starting_is_a_word_a_replay_id_or_a_time(text: str, starting: int | str) -> None:
    assert parse_read_settings({"starting": text}).starting == starting


@given(st.lists(st.integers(11, 200)), st.integers(1, 20))
def test_partitions_make_up_the_span_and_keep_equal_positions_together(
    positions: list[int], rows: int
) -> None:
    positions.sort()
    span = Span(10, 205)
    parts = divide_span(span, positions, rows, None)
    assert join_spans(part.span for part in parts) == span
    for part in parts:
        inside = [p for p in positions if part.span.after < p <= part.span.through]
        assert part.last_row == (inside[-1] if inside else None)
        assert len(set(inside)) <= rows


def test_spans_with_a_hole_are_rejected() -> None:
    with pytest.raises(LogCorrupt, match="up to 5 and then from 6"):
        join_spans([Span(6, 9), Span(1, 5)])


def test_no_spans_join_to_nothing() -> None:
    assert join_spans([]) is None


def test_span_that_overlaps_the_table_continues_it() -> None:
    check_continues(Span(3, 9), 5, "bronze")
    check_continues(Span(3, 9), None, "bronze")
    with pytest.raises(LogCorrupt, match="bronze ends at position 2"):
        check_continues(Span(3, 9), 2, "bronze")


@pytest.mark.parametrize(
    "options",
    [
        {"starting": "yesterday"},
        {"starting": str(1 << 63)},
        {"starting": "9" * 5000},
        {"max_rows": "-1"},
        {"settle_s": "inf"},
        {"marks": "1"},
    ],
)
def test_read_option_that_is_invalid_is_rejected(options: dict[str, str]) -> None:
    with pytest.raises(ConfigInvalid):
        parse_read_settings(options)


def test_source_refuses_an_option_that_it_does_not_have() -> None:
    server = {"endpoint": "h:1", "topic": "/t", "token": "t", "org_id": "o"}
    for misspelt in ("max_row", "entity"):
        source = TidewireSource({**server, misspelt: "7"})
        for reader in (source.reader, source.streamReader):
            with pytest.raises(ConfigInvalid, match=f"no option '{misspelt}'"):
                reader(StructType())
    assert TidewireSource({**server, "Max_Rows": "7"}).reader(StructType()) is not None


def test_archive_that_is_not_there_is_rejected(tmp_path: Path) -> None:
    settings = BusSettings("h:1", "/t", token="t", org_id="o", export="off")
    reader = TidewireStreamReader(settings, ReadSettings(archive=str(tmp_path / "none")))
    with pytest.raises(ConfigInvalid, match="there is no lake at"):
        reader.initialOffset()


@pytest.mark.parametrize(
    "org_id, topic, words",
    [
        ("00D000000000001EAA", "/t", "archive of org 00D0"),
        ("", "/other", "archive of the channel /other, not of /t"),
    ],
)
def test_archive_of_another_org_or_channel_is_rejected(
    tmp_path: Path, org_id: str, topic: str, words: str
) -> None:
    kept = {"org_id": org_id, "topic": topic, "incarnation": ""}
    tmp_path.joinpath("_origin.json").write_text(json.dumps(kept))
    settings = BusSettings("h:1", "/t", token="t", org_id="00D000000000002EAA", export="off")
    reader = TidewireStreamReader(settings, ReadSettings(archive=str(tmp_path)))
    with pytest.raises(ConfigInvalid, match=words):
        reader.initialOffset()


def test_archive_that_another_pipeline_has_written_is_rejected(tmp_path: Path) -> None:
    history = History()
    history.create("Account", {"Name": "archived"})
    history.commit()
    write_bronze(Lake(str(tmp_path)), history.events, history.position)
    settings = BusSettings("h:1", "/data/ChangeEvents", token="t", org_id="o", export="off")
    wrong = TidewireStreamReader(settings, ReadSettings(archive=str(tmp_path), archive_pipeline="mian"))
    with pytest.raises(ConfigInvalid, match="no pipeline called mian"):
        wrong.initialOffset()
    right = TidewireStreamReader(settings, ReadSettings(archive=str(tmp_path), starting="earliest"))
    assert parse_offset(right.initialOffset()).position == history.events[0].replay_id - 1


def test_failure_of_a_query_is_our_own_error_if_the_stack_ends_in_one() -> None:
    text = "[PYTHON_ERROR]\nTraceback\ntidewire.errors.ReplayIdExpired: gone since noon\n SQLSTATE: 38000"
    error = parse_failure("archive", text)
    assert isinstance(error, ReplayIdExpired)
    assert error.message == "the query archive failed: gone since noon"
    assert parse_failure("archive", "\nboom").code == "internal"
