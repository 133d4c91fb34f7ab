"""Ranges relative to a day, and the parts of a moment."""

from __future__ import annotations

import sqlite3
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewire.soql.condition_parser import COUNTED_DATES, RELATIVE_DATES
from tidewire.soql.dates import DATE_FUNCTIONS, DAY_MS, part_of, relative_range, render_part

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOON_MS = 951_825_600_000  # 29 February 2000, a Tuesday, at noon


@pytest.mark.parametrize(
    "name, count, first, end",
    [
        ("TODAY", None, "2000-02-29", "2000-03-01"),
        ("YESTERDAY", None, "2000-02-28", "2000-02-29"),
        ("TOMORROW", None, "2000-03-01", "2000-03-02"),
        ("LAST_WEEK", None, "2000-02-20", "2000-02-27"),
        ("THIS_WEEK", None, "2000-02-27", "2000-03-05"),
        ("NEXT_WEEK", None, "2000-03-05", "2000-03-12"),
        ("LAST_MONTH", None, "2000-01-01", "2000-02-01"),
        ("THIS_MONTH", None, "2000-02-01", "2000-03-01"),
        ("NEXT_QUARTER", None, "2000-04-01", "2000-07-01"),
        ("LAST_QUARTER", None, "1999-10-01", "2000-01-01"),
        ("THIS_YEAR", None, "2000-01-01", "2001-01-01"),
        ("LAST_FISCAL_YEAR", None, "1999-01-01", "2000-01-01"),
        ("NEXT_FISCAL_QUARTER", None, "2000-04-01", "2000-07-01"),
        ("LAST_90_DAYS", None, "1999-12-01", "2000-03-01"),
        ("NEXT_90_DAYS", None, "2000-03-01", "2000-05-30"),
        ("LAST_N_DAYS", 2, "2000-02-27", "2000-03-01"),
        ("NEXT_N_DAYS", 2, "2000-03-01", "2000-03-03"),
        ("N_DAYS_AGO", 2, "2000-02-27", "2000-02-28"),
        ("LAST_N_WEEKS", 2, "2000-02-13", "2000-02-27"),
        ("N_WEEKS_AGO", 1, "2000-02-20", "2000-02-27"),
        ("LAST_N_MONTHS", 3, "1999-11-01", "2000-02-01"),
        ("NEXT_N_MONTHS", 2, "2000-03-01", "2000-05-01"),
        ("N_MONTHS_AGO", 3, "1999-11-01", "1999-12-01"),
        ("N_QUARTERS_AGO", 5, "1998-10-01", "1999-01-01"),
        ("NEXT_N_FISCAL_YEARS", 2, "2001-01-01", "2003-01-01"),
        ("N_YEARS_AGO", 4_000_000, "0001-01-01", "0001-01-01"),
    ],
)
def test_relative_range_is_whole_days(name: str, count: int | None, first: str, end: str) -> None:
    found = relative_range(name, count, NOON_MS)
    days = [date.fromordinal(ms // DAY_MS + date(1970, 1, 1).toordinal()).isoformat() for ms in found]
    assert days == [first, end]
    assert all(ms % DAY_MS == 0 for ms in found)


def test_every_range_ends_after_it_starts_and_fits_a_database() -> None:
    for name in RELATIVE_DATES:
        start, end = relative_range(name, None, NOON_MS)
        assert start < end
    for name in COUNTED_DATES:
        start, end = relative_range(name, 2**31 - 1, NOON_MS)
        assert start <= end
        assert max(abs(start), abs(end)) < 2**63


@settings(deadline=None)
@given(st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31)))  # noqa: DTZ001  hypothesis adds it
def test_parts_in_python_and_in_sql_are_those_of_the_calendar(moment: datetime) -> None:
    aware = moment.replace(tzinfo=UTC)
    epoch_ms = (aware - EPOCH) // timedelta(milliseconds=1)
    day_in_year = aware.timetuple().tm_yday
    expected = {
        "CALENDAR_YEAR": aware.year,
        "CALENDAR_QUARTER": (aware.month + 2) // 3,
        "CALENDAR_MONTH": aware.month,
        "FISCAL_YEAR": aware.year,
        "FISCAL_QUARTER": (aware.month + 2) // 3,
        "FISCAL_MONTH": aware.month,
        "DAY_IN_YEAR": day_in_year,
        "DAY_IN_MONTH": aware.day,
        "DAY_IN_WEEK": aware.isoweekday() % 7 + 1,
        "WEEK_IN_YEAR": (day_in_year - 1) // 7 + 1,
        "WEEK_IN_MONTH": (aware.day - 1) // 7 + 1,
        "HOUR_IN_DAY": aware.hour,
        "DAY_ONLY": epoch_ms // DAY_MS * DAY_MS,
    }
    names = sorted(DATE_FUNCTIONS)
    assert {name: part_of(name, epoch_ms) for name in names} == expected
    store = sqlite3.connect(":memory:")
    listed = ", ".join(render_part(name, "at_ms") for name in names)
    (row,) = store.execute(f"SELECT {listed} FROM (SELECT ? AS at_ms)", (epoch_ms,)).fetchall()
    store.close()
    assert dict(zip(names, row, strict=True)) == expected
    assert "%" not in listed
