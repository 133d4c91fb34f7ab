from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewire.soql.literals import try_date_ms, try_datetime_ms, try_time_ms


@pytest.mark.parametrize(
    "text, expected",
    [
        ("1970-01-01", 0),
        ("2024-02-29", 1_709_164_800_000),
        ("0001-01-01", -62_135_596_800_000),
        ("9999-12-31", 253_402_214_400_000),
        ("2023-02-29", None),
        ("2024-13-01", None),
        ("0000-01-01", None),
        ("24-01-01", None),
    ],
)
def test_date_is_midnight_utc_or_none(text: str, expected: int | None) -> None:
    assert try_date_ms(text) == expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:01.5Z", 1_500),
        ("1970-01-01T00:00:00.123456789Z", 123),
        ("1970-01-01t01:00:00+01:00", 0),
        ("1970-01-01T00:00:00-0130", 5_400_000),
        ("0001-01-01T00:00:00+23:59", -62_135_683_140_000),
        ("1970-01-01T00:00:00", None),
        ("1970-01-01T00:00Z", None),
        ("1970-01-01T24:00:00Z", None),
        ("1970-01-01T00:60:00Z", None),
        ("1970-01-01T00:00:60Z", None),
        ("1970-01-01T00:00:00+24:00", None),
        ("1970-01-01T00:00:00+00:60", None),
        ("1970-02-30T00:00:00Z", None),
        ("1970-01-01", None),
        ("1970-01-01T", None),
        ("1970-01-01T+01:00", None),
    ],
)
def test_datetime_is_an_instant_or_none(text: str, expected: int | None) -> None:
    assert try_datetime_ms(text) == expected


@pytest.mark.parametrize(
    "text, expected",
    [("00:00:00Z", 0), ("12:30:00.250Z", 45_000_250), ("24:00:00Z", None), ("12:30:00", None), ("", None)],
)
def test_time_is_milliseconds_since_midnight_or_none(text: str, expected: int | None) -> None:
    assert try_time_ms(text) == expected


@settings(deadline=None)
@given(
    st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)),  # noqa: DTZ001  hypothesis adds it
    st.integers(-14 * 60, 14 * 60),
)
def test_datetime_with_any_offset_is_the_instant_that_python_reads(moment: datetime, offset_min: int) -> None:
    aware = moment.replace(tzinfo=timezone(timedelta(minutes=offset_min)))
    expected = (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert try_datetime_ms(aware.isoformat(timespec="milliseconds")) == expected
