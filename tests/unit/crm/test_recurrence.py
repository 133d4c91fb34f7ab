"""Recurrence rules: their texts, the classic fields, and the days they name."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.crm.plain_recurrence import expand_plainly
from tidewire.crm.patterns import classic_rule, parse_rule
from tidewire.crm.recurrence import MAX_OCCURRENCES, expand, expand_moments, find_zone
from tidewire.errors import NumberOutOfRange, RequiredFieldMissing, ValueMalformed

WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")


def moment(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def days(text: str, start: str) -> list[str]:
    found = expand(parse_rule(text), datetime.fromisoformat(start))
    return [f"{day:%Y-%m-%d}" for day in found]


@pytest.mark.parametrize(
    "text, start, expected",
    [
        ("RRULE:FREQ=DAILY;COUNT=3", "2024-02-28", ["2024-02-28", "2024-02-29", "2024-03-01"]),
        ("FREQ=DAILY;INTERVAL=10;UNTIL=20240125", "2024-01-05", ["2024-01-05", "2024-01-15", "2024-01-25"]),
        ("FREQ=DAILY;BYDAY=SA,SU;COUNT=2", "2024-01-01", ["2024-01-06", "2024-01-07"]),
        (
            "RRULE:FREQ=WEEKLY; INTERVAL=1; BYDAY=MO; COUNT=3",
            "2019-08-12",
            ["2019-08-12", "2019-08-19", "2019-08-26"],
        ),
        # The two examples by which RFC 5545 shows what the first day of the week changes.
        (
            "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=MO",
            "1997-08-05",
            ["1997-08-05", "1997-08-10", "1997-08-19", "1997-08-24"],
        ),
        (
            "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=SU",
            "1997-08-05",
            ["1997-08-05", "1997-08-17", "1997-08-19", "1997-08-31"],
        ),
        ("FREQ=MONTHLY;COUNT=3", "2024-01-31", ["2024-01-31", "2024-03-31", "2024-05-31"]),
        ("FREQ=MONTHLY;BYMONTHDAY=-1;COUNT=3", "2024-01-01", ["2024-01-31", "2024-02-29", "2024-03-31"]),
        ("FREQ=MONTHLY;BYDAY=2TU;COUNT=2", "2024-01-01", ["2024-01-09", "2024-02-13"]),
        ("FREQ=MONTHLY;BYDAY=-1FR;COUNT=2", "2024-01-01", ["2024-01-26", "2024-02-23"]),
        ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;COUNT=2", "2024-03-01", ["2024-03-29", "2024-04-30"]),
        ("FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13;COUNT=2", "2024-01-01", ["2024-09-13", "2024-12-13"]),
        ("FREQ=YEARLY;COUNT=2", "2024-02-29", ["2024-02-29", "2028-02-29"]),
        ("FREQ=YEARLY;BYMONTH=11;BYDAY=4TH;COUNT=2", "2024-01-01", ["2024-11-28", "2025-11-27"]),
        ("FREQ=YEARLY;BYDAY=20MO;COUNT=1", "1997-05-19", ["1997-05-19"]),
        ("FREQ=YEARLY;BYDAY=2FR;BYMONTHDAY=13;COUNT=1", "2024-01-01", ["2034-01-13"]),
        (
            "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=-1;INTERVAL=2;COUNT=2",
            "2024-01-01",
            ["2024-02-29", "2026-02-28"],
        ),
        ("FREQ=YEARLY;BYDAY=-1MO;COUNT=2", "2024-01-01", ["2024-12-30", "2025-12-29"]),
    ],
)
def test_rule_expands_to_the_days_it_names(text: str, start: str, expected: list[str]) -> None:
    assert days(text, start) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "RRULE:",
        "FREQ=HOURLY;COUNT=2",
        "FREQ=DAILY",
        "FREQ=DAILY;COUNT=2;UNTIL=20300101",
        "FREQ=DAILY;COUNT=0",
        "FREQ=DAILY;COUNT=x",
        "FREQ=DAILY;COUNT=2;COUNT=3",
        "FREQ=DAILY;COUNT=2;INTERVAL=1000",
        "FREQ=DAILY;COUNT=2;BYHOUR=3",
        "FREQ=DAILY;UNTIL=20300231",
        "FREQ=DAILY;UNTIL=soon",
        "FREQ=DAILY;UNTIL=99991231",
        "FREQ=WEEKLY;COUNT=2;BYDAY=XX",
        "FREQ=WEEKLY;COUNT=2;BYDAY=1MO",
        "FREQ=WEEKLY;COUNT=2;BYMONTHDAY=1",
        "FREQ=WEEKLY;COUNT=2;WKST=XX",
        "FREQ=MONTHLY;COUNT=2;BYDAY=0MO",
        "FREQ=MONTHLY;COUNT=2;BYMONTHDAY=0",
        "FREQ=MONTHLY;COUNT=2;BYMONTHDAY=32",
        "FREQ=YEARLY;COUNT=2;BYMONTH=-1",
        "FREQ=MONTHLY;COUNT=2;BYSETPOS=1",
        "FREQ=DAILY;COUNT=2\nFREQ=DAILY;COUNT=2",
        "FREQ=DAILY;COUNT=2\nEXRULE:FREQ=DAILY;COUNT=2",
        "FREQ=DAILY;COUNT=2\nEXDATE:",
        "FREQ=DAILY;COUNT=2\nEXDATE:soon",
        "FREQ=DAILY;COUNT=2\nEXDATE=20300101",
        "FREQ=DAILY;COUNT=2\nEXDATE;VALUE=PERIOD:20300101",
        "FREQ=DAILY;COUNT=2\nEXDATE;TZID=Mars/Base:20300101T000000",
        "EXDATE:20300101",
    ],
)
def test_malformed_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueMalformed) as refused:
        parse_rule(text)
    assert refused.value.details["fields"] == ["Recurrence2PatternText"]


def test_rule_that_names_no_day_is_refused() -> None:
    with pytest.raises(ValueMalformed):
        days("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30;COUNT=1", "2024-01-01")
    with pytest.raises(ValueMalformed):
        days("FREQ=DAILY;UNTIL=20231231", "2024-01-01")


def test_rule_with_too_many_occurrences_is_refused() -> None:
    assert len(days(f"FREQ=DAILY;COUNT={MAX_OCCURRENCES}", "2024-01-01")) == MAX_OCCURRENCES
    with pytest.raises(NumberOutOfRange):
        days(f"FREQ=DAILY;COUNT={MAX_OCCURRENCES + 1}", "2024-01-01")
    with pytest.raises(NumberOutOfRange):
        days("FREQ=DAILY;UNTIL=20400101", "2024-01-01")


def test_series_in_a_zone_keeps_its_wall_time_over_a_clock_change() -> None:
    zone = ZoneInfo("America/New_York")
    found = expand_moments(parse_rule("FREQ=DAILY;COUNT=2"), moment("2024-03-09T14:00"), zone)
    assert found == [moment("2024-03-09T14:00"), moment("2024-03-10T13:00")]


def test_weekday_is_that_of_the_zone_and_not_of_utc() -> None:
    monday_in_tokyo = moment("2024-01-07T23:00")
    found = expand_moments(
        parse_rule("FREQ=WEEKLY;BYDAY=MO;COUNT=1"), monday_in_tokyo, ZoneInfo("Asia/Tokyo")
    )
    assert found == [monday_in_tokyo]


@pytest.mark.parametrize("until, count", [("20240103T140000Z", 3), ("20240103T135959Z", 2), ("20240103", 3)])
def test_until_is_inclusive_and_a_moment_in_utc_if_it_says_so(until: str, count: int) -> None:
    rule = parse_rule(f"FREQ=DAILY;UNTIL={until}")
    assert len(expand_moments(rule, moment("2024-01-01T14:00"), ZoneInfo("America/New_York"))) == count


@pytest.mark.parametrize(
    "lines, expected",
    [
        ("EXDATE:20240103T140000Z", ["01-02", "01-04"]),
        ("EXDATE:20240103T090000", ["01-02", "01-04"]),
        ("EXDATE;TZID=Europe/Paris:20240103T150000", ["01-02", "01-04"]),
        ("EXDATE;VALUE=DATE:20240102,20240104", ["01-03"]),
        ("exdate:20240103T140001Z", ["01-02", "01-03", "01-04"]),
        ("RDATE;VALUE=DATE:20240110", ["01-02", "01-03", "01-04", "01-10"]),
        ("RDATE:20240103T140000Z,20231231T120000Z", ["12-31", "01-02", "01-03", "01-04"]),
        ("RDATE:20240110\nEXDATE:20240110,20240102", ["01-03", "01-04"]),
    ],
)
def test_days_are_left_out_and_added_by_name(lines: str, expected: list[str]) -> None:
    rule = parse_rule(f"RRULE:FREQ=DAILY;COUNT=3\n{lines}")
    found = expand_moments(rule, moment("2024-01-02T14:00"), ZoneInfo("America/New_York"))
    assert [f"{datetime.fromtimestamp(ms / 1000, UTC):%m-%d}" for ms in found] == expected


def test_series_with_every_day_left_out_is_refused() -> None:
    with pytest.raises(ValueMalformed):
        days("FREQ=DAILY;COUNT=2\nEXDATE:20240101,20240102", "2024-01-01")


def test_days_added_count_towards_the_most_a_series_may_have() -> None:
    with pytest.raises(NumberOutOfRange):
        days(f"FREQ=DAILY;COUNT={MAX_OCCURRENCES}\nRDATE:20400101", "2024-01-01")


def test_time_that_the_clocks_skip_is_an_hour_later_on_that_day_only() -> None:
    found = expand_moments(
        parse_rule("FREQ=DAILY;COUNT=3"), moment("2024-03-09T07:30"), ZoneInfo("America/New_York")
    )
    assert found == [moment("2024-03-09T07:30"), moment("2024-03-10T07:30"), moment("2024-03-11T06:30")]


@pytest.mark.parametrize("name", ["Mars/Base", "../etc/passwd", "America", "a" * 300, "\0"])
def test_unknown_time_zone_is_refused(name: str) -> None:
    with pytest.raises(ValueMalformed):
        find_zone(name, "Recurrence2PatternTimeZone")


@pytest.mark.parametrize(
    "fields, expected",
    [
        ({"RecurrenceType": "RecursDaily", "RecurrenceInterval": 12}, ["01-01", "01-13", "01-25"]),
        (
            {"RecurrenceType": "RecursWeekly", "RecurrenceInterval": 2, "RecurrenceDayOfWeekMask": 1 | 64},
            ["01-06", "01-07", "01-20", "01-21"],
        ),
        ({"RecurrenceType": "RecursMonthly", "RecurrenceInterval": 1, "RecurrenceDayOfMonth": 31}, ["01-31"]),
        (
            {
                "RecurrenceType": "RecursMonthlyNth",
                "RecurrenceInterval": 1,
                "RecurrenceInstance": "Last",
                "RecurrenceDayOfWeekMask": 62,
            },
            ["01-31"],
        ),
        (
            {"RecurrenceType": "RecursYearly", "RecurrenceDayOfMonth": 5, "RecurrenceMonthOfYear": "January"},
            ["01-05"],
        ),
        (
            {
                "RecurrenceType": "RecursYearlyNth",
                "RecurrenceInstance": "Third",
                "RecurrenceDayOfWeekMask": 2,
                "RecurrenceMonthOfYear": "January",
            },
            ["01-15"],
        ),
    ],
)
def test_classic_fields_expand_to_the_days_they_name(
    fields: dict[str, str | int], expected: list[str]
) -> None:
    rule = classic_rule({**fields, "RecurrenceEndDateOnly": moment("2024-01-31")})
    found = expand(rule, datetime.fromisoformat("2024-01-01"))
    assert [f"{day:%m-%d}" for day in found] == expected


def test_every_weekday_leaves_out_saturday_and_sunday() -> None:
    rule = classic_rule(
        {"RecurrenceType": "RecursEveryWeekday", "RecurrenceEndDateOnly": moment("2024-01-31")}
    )
    found = expand(rule, datetime.fromisoformat("2024-01-01"))
    assert len(found) == 23
    assert {day.weekday() for day in found} == {0, 1, 2, 3, 4}


def test_classic_fields_that_the_type_needs_are_required() -> None:
    with pytest.raises(RequiredFieldMissing) as refused:
        classic_rule({"RecurrenceType": "RecursWeekly", "RecurrenceInterval": 1})
    assert refused.value.details["fields"] == ["RecurrenceDayOfWeekMask", "RecurrenceEndDateOnly"]
    with pytest.raises(RequiredFieldMissing):
        classic_rule({"RecurrenceEndDateOnly": 0})
    with pytest.raises(NumberOutOfRange):
        classic_rule({"RecurrenceType": "RecursDaily", "RecurrenceInterval": 0, "RecurrenceEndDateOnly": 0})


@given(
    freq=st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]),
    interval=st.integers(1, 30),
    count=st.integers(1, 40) | st.none(),
    by_day=st.sets(st.sampled_from(WEEKDAYS)),
    start=st.datetimes(datetime(1950, 1, 1), datetime(2100, 1, 1)),  # noqa: DTZ001  # wall time
    span_days=st.integers(0, 900),
)
def test_expansion_is_sorted_distinct_and_within_its_end(
    freq: str, interval: int, count: int | None, by_day: set[str], start: datetime, span_days: int
) -> None:
    start = start.replace(microsecond=0)
    last = start + timedelta(days=span_days)
    end = f"COUNT={count}" if count is not None else f"UNTIL={last:%Y%m%dT%H%M%S}"
    chosen = f";BYDAY={','.join(by_day)}" if by_day else ""
    rule = parse_rule(f"FREQ={freq};INTERVAL={interval};{end}{chosen}")
    try:
        found = expand(rule, start)
    except ValueMalformed:
        assert by_day  # without days of the week, the start is an occurrence
        return
    assert found == sorted(set(found))
    assert found[0] >= start
    assert all(day.time() == start.time() for day in found)
    assert all(WEEKDAYS[day.weekday()] in by_day for day in found) or not by_day
    assert len(found) <= (count or MAX_OCCURRENCES)
    assert count is not None or found[-1] <= last


@given(st.text(alphabet="FREQ=DAILYWKMONTHCU;BS:0123456789,-+ ", max_size=60))
def test_any_text_is_a_rule_or_refused_by_name(text: str) -> None:
    with suppress(ValueMalformed):
        assert parse_rule(text).interval > 0


@st.composite
def rule_texts(draw: st.DrawFn) -> str:
    """Rules of any kind without an end, also such as never match."""
    freq = draw(st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]))
    parts = [
        f"FREQ={freq}",
        f"INTERVAL={draw(st.integers(1, 40))}",
        f"WKST={draw(st.sampled_from(WEEKDAYS))}",
    ]
    by_day = sorted(draw(st.sets(st.sampled_from(WEEKDAYS), max_size=3)))
    if by_day and freq in ("MONTHLY", "YEARLY"):
        ordinals = st.just("") | st.sampled_from([1, 2, 4, 5, 6, 20, 53, -1, -5, -53]).map(str)
        by_day = [draw(ordinals) + day for day in by_day]
    by_month_day = draw(st.sets(st.sampled_from([1, 5, 13, 28, 29, 30, 31, -1, -5, -31]), max_size=3))
    by_month = draw(st.sets(st.integers(1, 12), max_size=4))
    chosen = [("BYDAY", by_day), ("BYMONTH", by_month)]
    if freq != "WEEKLY":
        chosen.append(("BYMONTHDAY", by_month_day))
    if any(values for _, values in chosen):
        places = st.sampled_from([1, 2, 3, 10, 366, -1, -2, -40])
        chosen.append(("BYSETPOS", draw(st.sets(places, max_size=2))))
    parts += [f"{name}={','.join(map(str, values))}" for name, values in chosen if values]
    return ";".join(parts)


@given(
    text=rule_texts(),
    start=st.datetimes(datetime(1900, 1, 1), datetime(9000, 1, 1)),  # noqa: DTZ001  # wall time
    count=st.integers(1, 12),
    skipped_days=st.sets(st.integers(0, 60), max_size=3),
)
def test_expansion_is_that_of_another_implementation(
    text: str, start: datetime, count: int, skipped_days: set[int]
) -> None:
    start = start.replace(microsecond=start.microsecond // 1000 * 1000)
    skipped = {(start + timedelta(days=n)).date() for n in skipped_days}
    rule = parse_rule("\n".join([f"{text};COUNT={count}", *(f"EXDATE:{each:%Y%m%d}" for each in skipped)]))
    try:
        found = expand(rule, start)
    except ValueMalformed:
        found = []

    assert found == [each for each in expand_plainly(rule, start) if each.date() not in skipped]


@pytest.mark.parametrize(
    "text",
    [
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30;COUNT=1",
        "FREQ=DAILY;INTERVAL=7;BYDAY=TU;COUNT=1",
        "FREQ=WEEKLY;BYDAY=WE;BYSETPOS=-2;COUNT=1",
        "FREQ=MONTHLY;BYDAY=20MO;COUNT=1",
        "FREQ=MONTHLY;BYDAY=1MO;BYMONTHDAY=31;COUNT=1",
        "FREQ=YEARLY;BYMONTH=4;BYMONTHDAY=31;COUNT=1",
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYSETPOS=2;COUNT=1",
    ],
)
def test_rule_that_never_matches_is_rejected_within_a_bound(text: str) -> None:
    began = time.process_time()
    with pytest.raises(ValueMalformed):
        days(text, "1900-01-01")
    assert time.process_time() - began < 2  # to the end of year 9999 it would take ten times as long


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Paris", "Australia/Lord_Howe", "Asia/Kolkata"])
@given(start=st.datetimes(datetime(2000, 1, 1, 4), datetime(2035, 1, 1)), interval=st.integers(1, 40))  # noqa: DTZ001
@example(start=datetime(2024, 3, 9, 12), interval=1)  # noqa: DTZ001  # the day before New York's clocks change
def test_occurrences_keep_their_time_of_day_in_the_zone(zone: str, start: datetime, interval: int) -> None:
    # At noon no zone changes its clocks.
    start = start.replace(hour=12, microsecond=0)
    info = ZoneInfo(zone)
    start_ms = int(start.replace(tzinfo=info).timestamp() * 1000)
    found = expand_moments(parse_rule(f"FREQ=DAILY;INTERVAL={interval};COUNT=30"), start_ms, info)
    local = [datetime.fromtimestamp(ms / 1000, info) for ms in found]
    assert [each.replace(tzinfo=None) for each in local] == [
        start + timedelta(days=interval * n) for n in range(30)
    ]
