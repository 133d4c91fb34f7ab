"""Time zones as tables say what the tz database says, and days begin when clocks there do."""

from __future__ import annotations

import sqlite3
from datetime import UTC as UTC_TIME
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewire.soql.zones import DAY_MS, UTC, load_zone

EPOCH = datetime(1970, 1, 1, tzinfo=UTC_TIME)
NAMES = (
    "GMT",
    "America/Los_Angeles",
    "America/St_Johns",
    "Asia/Kathmandu",
    "Asia/Beirut",
    "Africa/Casablanca",
    "Pacific/Apia",
    "America/Sao_Paulo",
)


def epoch_ms(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


@settings(deadline=None)
@given(
    st.sampled_from(NAMES),
    st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2099, 12, 31)),  # noqa: DTZ001  hypothesis adds it
)
def test_clocks_of_a_table_and_of_its_sql_are_those_of_the_zone(name: str, moment: datetime) -> None:
    aware = moment.replace(tzinfo=UTC_TIME)
    offset = aware.astimezone(ZoneInfo(name)).utcoffset()
    assert offset is not None
    zone = load_zone(name)
    at_ms = epoch_ms(aware)
    assert zone.offset_at(at_ms) == offset // timedelta(milliseconds=1)
    store = sqlite3.connect(":memory:")
    text = f"SELECT {zone.render_local('at_ms')} FROM (SELECT ? AS at_ms)"
    ((local_ms,),) = store.execute(text, (at_ms,)).fetchall()
    store.close()
    assert local_ms == zone.local_ms(at_ms) == at_ms + zone.offset_at(at_ms)


@pytest.mark.parametrize(
    "name, day, start",
    [
        ("GMT", "2024-03-10", "2024-03-10T00:00:00Z"),
        ("America/Los_Angeles", "2024-03-10", "2024-03-10T08:00:00Z"),
        ("America/Los_Angeles", "2024-03-11", "2024-03-11T07:00:00Z"),
        ("America/Los_Angeles", "2024-11-03", "2024-11-03T07:00:00Z"),
        ("America/Los_Angeles", "2024-11-04", "2024-11-04T08:00:00Z"),
        ("Asia/Kathmandu", "2024-01-01", "2023-12-31T18:15:00Z"),
        # Clocks skip from midnight to one o'clock.
        ("Asia/Beirut", "2022-03-27", "2022-03-26T22:00:00Z"),
        # Clocks go back at midnight, so the day before has an hour more.
        ("America/Sao_Paulo", "2019-02-17", "2019-02-17T03:00:00Z"),
        # A day that no clock showed: the island moved over the date line.
        ("Pacific/Apia", "2011-12-30", "2011-12-30T10:00:00Z"),
        ("Pacific/Apia", "2011-12-31", "2011-12-30T10:00:00Z"),
    ],
)
def test_day_begins_when_clocks_first_show_it(name: str, day: str, start: str) -> None:
    number = epoch_ms(datetime.fromisoformat(f"{day}T00:00:00+00:00")) // DAY_MS
    assert load_zone(name).day_start(number) == epoch_ms(datetime.fromisoformat(start))


@pytest.mark.parametrize("name", ["", "Nowhere/Atall", "../../etc/passwd", "America", "\0"])
def test_unknown_zone_is_utc(name: str) -> None:
    assert load_zone(name) is UTC
