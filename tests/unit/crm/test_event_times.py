"""When an event is: fields that agree, or are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.crm.activity_org import moment
from tidewire.crm.event_times import MAX_DURATION_MINUTES, align_times
from tidewire.errors import FieldsInconsistent, RequiredFieldMissing
from tidewire.events import Value
from tidewire.schema.values import DAY_MS

NINE = moment("2023-11-20T09:00")
TEN = moment("2023-11-20T10:00")
DAY = moment("2023-11-20")


def aligned(**values: Value) -> dict[str, Value]:
    return align_times(values, [name for name, value in values.items() if value is not None])


@pytest.mark.parametrize(
    "values",
    [
        {"StartDateTime": NINE, "DurationInMinutes": 60},
        {"ActivityDateTime": NINE, "DurationInMinutes": 60},
        {"StartDateTime": NINE, "EndDateTime": TEN},
        {"StartDateTime": NINE, "ActivityDateTime": NINE, "EndDateTime": TEN, "DurationInMinutes": 60},
        {"StartDateTime": NINE, "ActivityDate": DAY, "DurationInMinutes": 60},
        {"StartDateTime": NINE, "ActivityDate": DAY - DAY_MS, "DurationInMinutes": 60},
    ],
)
def test_fields_that_say_the_same_are_completed(values: dict[str, Value]) -> None:
    assert aligned(**values) == {
        "StartDateTime": NINE,
        "ActivityDateTime": NINE,
        "ActivityDate": DAY,
        "DurationInMinutes": 60,
        "EndDateTime": TEN,
        "EndDate": DAY,
    }


@pytest.mark.parametrize(
    "values, fields",
    [
        ({"StartDateTime": NINE, "ActivityDateTime": TEN}, ["StartDateTime", "ActivityDateTime"]),
        ({"StartDateTime": NINE, "ActivityDate": DAY + 2 * DAY_MS}, ["ActivityDate", "StartDateTime"]),
        (
            {"StartDateTime": DAY, "ActivityDate": DAY + DAY_MS, "IsAllDayEvent": True},
            ["ActivityDate", "StartDateTime"],
        ),
        (
            {"StartDateTime": NINE, "EndDateTime": TEN, "DurationInMinutes": 30},
            ["DurationInMinutes", "EndDateTime"],
        ),
        ({"StartDateTime": TEN, "EndDateTime": NINE}, ["EndDateTime"]),
        ({"StartDateTime": NINE, "DurationInMinutes": -1}, ["EndDateTime"]),
        ({"StartDateTime": NINE, "DurationInMinutes": MAX_DURATION_MINUTES + 1}, ["DurationInMinutes"]),
        (
            {"StartDateTime": DAY, "EndDateTime": DAY + 14 * DAY_MS, "IsAllDayEvent": True},
            ["DurationInMinutes"],
        ),
    ],
)
def test_fields_that_contradict_each_other_are_refused(values: dict[str, Value], fields: list[str]) -> None:
    with pytest.raises(FieldsInconsistent) as refused:
        aligned(**{"DurationInMinutes": None, **values})
    assert refused.value.details["fields"] == fields


@pytest.mark.parametrize(
    "values, missing",
    [
        ({"DurationInMinutes": 60}, "ActivityDateTime"),
        ({"ActivityDate": DAY, "DurationInMinutes": 60}, "ActivityDateTime"),
        ({"IsAllDayEvent": True}, "ActivityDate"),
        ({"StartDateTime": NINE}, "DurationInMinutes"),
    ],
)
def test_event_without_start_or_end_is_refused(values: dict[str, Value], missing: str) -> None:
    with pytest.raises(RequiredFieldMissing) as refused:
        aligned(**values)
    assert refused.value.details["fields"] == [missing]


def test_start_set_to_null_is_refused() -> None:
    row = aligned(StartDateTime=NINE, DurationInMinutes=60)
    with pytest.raises(RequiredFieldMissing):
        align_times(row | {"StartDateTime": None}, ["StartDateTime"])


def test_new_day_of_a_timed_event_keeps_its_time() -> None:
    row = aligned(StartDateTime=NINE, DurationInMinutes=60) | {"ActivityDate": DAY + 3 * DAY_MS}
    moved = align_times(row, ["ActivityDate"])
    assert (moved["StartDateTime"], moved["EndDateTime"]) == (NINE + 3 * DAY_MS, TEN + 3 * DAY_MS)


@pytest.mark.parametrize("minutes, days", [(0, 1), (60, 1), (1440, 1), (1441, 2), (2880, 2)])
def test_all_day_event_lasts_whole_days(minutes: int, days: int) -> None:
    row = aligned(StartDateTime=NINE, DurationInMinutes=minutes, IsAllDayEvent=True)
    assert (row["StartDateTime"], row["DurationInMinutes"]) == (DAY, days * 1440)
    assert row["EndDateTime"] == DAY + (days - 1) * DAY_MS


@given(
    start_minute=st.integers(0, 60_000_000),
    minutes=st.integers(0, MAX_DURATION_MINUTES),
    is_all_day=st.booleans(),
)
def test_aligned_times_stay_as_they_are(start_minute: int, minutes: int, is_all_day: bool) -> None:
    row = aligned(StartDateTime=start_minute * 60_000, DurationInMinutes=minutes, IsAllDayEvent=is_all_day)
    row["IsAllDayEvent"] = is_all_day
    for name in ("StartDateTime", "ActivityDateTime", "ActivityDate", "DurationInMinutes", "EndDateTime"):
        assert align_times(row, [name]).items() <= row.items()
