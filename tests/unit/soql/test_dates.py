"""Ranges relative to a day, and the parts of a moment."""

from __future__ import annotations

import re
import sqlite3
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewire.soql.dates import (
    COUNTED_DATES,
    DATE_FUNCTIONS,
    RELATIVE_DATES,
    Calendar,
    part_of,
    relative_range,
    render_part,
)
from tidewire.soql.zones import DAY_MS, load_zone

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


def test_every_date_literal_is_in_the_round_trip_cases() -> None:
    cases = set(re.findall(r"\w+", (Path(__file__).parents[2] / "soql/identity.soql").read_text()))
    assert (RELATIVE_DATES | COUNTED_DATES) - cases == set()


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


def moments(name: str, calendar: Calendar, now: str, *, of_days: bool = False) -> list[str]:
    now_ms = (datetime.fromisoformat(now) - EPOCH) // timedelta(milliseconds=1)
    found = relative_range(name, None, now_ms, calendar, of_days=of_days)
    return [(EPOCH + timedelta(milliseconds=ms)).strftime("%Y-%m-%dT%H:%M") for ms in found]


def test_today_is_the_day_that_clocks_of_the_zone_show() -> None:
    calendar = Calendar(load_zone("America/Los_Angeles"))
    # Three in the morning in Greenwich is still the evening before.
    evening = "2024-07-02T03:00:00+00:00"
    assert moments("TODAY", calendar, evening) == ["2024-07-01T07:00", "2024-07-02T07:00"]
    assert moments("TODAY", calendar, evening, of_days=True) == ["2024-07-01T00:00", "2024-07-02T00:00"]


@pytest.mark.parametrize(
    "now, start, end",
    [
        ("2024-03-10T20:00:00+00:00", "2024-03-10T08:00", "2024-03-11T07:00"),
        ("2024-11-03T20:00:00+00:00", "2024-11-03T07:00", "2024-11-04T08:00"),
    ],
)
def test_day_on_which_clocks_change_has_an_hour_less_or_more(now: str, start: str, end: str) -> None:
    assert moments("TODAY", Calendar(load_zone("America/Los_Angeles")), now) == [start, end]


def test_month_over_a_change_of_clocks_begins_and_ends_at_midnight() -> None:
    calendar = Calendar(load_zone("America/Los_Angeles"))
    assert moments("THIS_MONTH", calendar, "2024-03-20T00:00:00+00:00") == [
        "2024-03-01T08:00",
        "2024-04-01T07:00",
    ]


@pytest.mark.parametrize(
    "name, start, end",
    [
        ("THIS_FISCAL_YEAR", "1999-10-01", "2000-10-01"),
        ("LAST_FISCAL_YEAR", "1998-10-01", "1999-10-01"),
        ("THIS_FISCAL_QUARTER", "2000-01-01", "2000-04-01"),
        ("NEXT_FISCAL_QUARTER", "2000-04-01", "2000-07-01"),
        ("THIS_YEAR", "2000-01-01", "2001-01-01"),
    ],
)
def test_fiscal_range_begins_with_the_fiscal_month(name: str, start: str, end: str) -> None:
    found = moments(name, Calendar(fiscal_month=10), "2000-02-29T12:00:00+00:00")
    assert found == [f"{start}T00:00", f"{end}T00:00"]


@pytest.mark.parametrize(
    "first, by_start, day, year, quarter, month",
    [
        (1, False, "2024-01-31", 2024, 1, 1),
        (1, True, "2024-12-31", 2024, 4, 12),
        (4, False, "2024-03-31", 2024, 4, 12),
        (4, False, "2024-04-01", 2025, 1, 1),
        (4, True, "2024-03-31", 2023, 4, 12),
        (4, True, "2024-04-01", 2024, 1, 1),
        (12, False, "2024-12-01", 2025, 1, 1),
        (12, False, "2024-11-30", 2024, 4, 12),
    ],
)
def test_fiscal_parts_follow_the_first_month_and_the_naming(
    first: int, by_start: bool, day: str, year: int, quarter: int, month: int
) -> None:
    calendar = Calendar(fiscal_month=first, is_named_by_start=by_start)
    at_ms = (datetime.fromisoformat(f"{day}T12:00:00+00:00") - EPOCH) // timedelta(milliseconds=1)
    names = ("FISCAL_YEAR", "FISCAL_QUARTER", "FISCAL_MONTH")
    assert tuple(part_of(name, at_ms, calendar) for name in names) == (year, quarter, month)


@pytest.mark.timeout(600)
@settings(deadline=None, max_examples=30)
@given(
    st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2099, 12, 30)),  # noqa: DTZ001  hypothesis adds it
    st.sampled_from(["America/St_Johns", "Asia/Kathmandu", "Pacific/Apia", "Europe/Berlin"]),
    st.integers(1, 12),
    st.booleans(),
)
def test_parts_in_a_zone_are_those_that_its_clocks_show(
    moment: datetime, name: str, fiscal_month: int, by_start: bool
) -> None:
    aware = moment.replace(tzinfo=UTC)
    at_ms = (aware - EPOCH) // timedelta(milliseconds=1)
    local = aware.astimezone(ZoneInfo(name))
    calendar = Calendar(load_zone(name), fiscal_month, by_start)
    assert part_of("HOUR_IN_DAY", at_ms, calendar) == local.hour
    assert part_of("DAY_IN_YEAR", at_ms, calendar) == local.timetuple().tm_yday
    assert part_of("FISCAL_MONTH", at_ms, calendar) == (local.month - fiscal_month) % 12 + 1
    names = sorted(DATE_FUNCTIONS)
    listed = ", ".join(render_part(each, "at_ms", calendar) for each in names)
    store = sqlite3.connect(":memory:")
    (row,) = store.execute(f"SELECT {listed} FROM (SELECT ? AS at_ms)", (at_ms,)).fetchall()
    (nulls,) = store.execute(f"SELECT {listed} FROM (SELECT NULL AS at_ms)").fetchall()
    store.close()
    assert list(row) == [part_of(each, at_ms, calendar) for each in names]
    assert set(nulls) == {None}
    assert "%" not in listed
