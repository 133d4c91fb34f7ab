"""Usage by hour and by day: stored once, updated when the server's value changes."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.orgs import TestOrg
from tests.unit.frontends.rest.data_caller import Caller
from tidewire.clock import ManualClock
from tidewire.delivery.link_values import Delivered
from tidewire.events import Family
from tidewire.pipeline.lake.files import read_rows
from tidewire.pipeline.lake.tables import Lake, try_open_table
from tidewire.pipeline.status.usage import read_daily, read_hourly, roll_up

EPOCH = 1
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MIDNIGHT_MS = 19_700 * DAY_MS
PUBLISHED, DELIVERED = "CHANGE_EVENTS_PUBLISHED", "CHANGE_EVENTS_DELIVERED"


class Answers:
    """A server that gives these answers to the status resource and to queries."""

    def __init__(self, status: Any = None, metrics: Any = None) -> None:
        self.status = status
        self.metrics = metrics

    def try_ask(self, path: str) -> Any:
        return self.status if path.endswith("/status") else self.metrics


def hours(*told: tuple[int, str, int]) -> dict[str, Any]:
    return {"usage": [{"hour_ms": at, "name": name, "value": value} for at, name, value in told]}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def count_rows(lake: Lake, name: str) -> int:
    table = try_open_table(lake, name)
    return read_rows(table).num_rows if table is not None else 0


def test_full_hours_are_taken_over_once_and_the_running_one_is_not(lake: Lake) -> None:
    clock = ManualClock(MIDNIGHT_MS + 2 * HOUR_MS + 1)
    told = hours((MIDNIGHT_MS, PUBLISHED, 5), (MIDNIGHT_MS + HOUR_MS, PUBLISHED, 7))
    told["usage"].append({"hour_ms": MIDNIGHT_MS + 2 * HOUR_MS, "name": PUBLISHED, "value": 1})
    assert roll_up(lake, EPOCH, Answers(told), clock) == 2
    assert roll_up(lake, EPOCH, Answers(told), clock) == 0
    assert read_hourly(lake) == {(MIDNIGHT_MS, PUBLISHED): 5, (MIDNIGHT_MS + HOUR_MS, PUBLISHED): 7}
    assert count_rows(lake, "usage/hourly") == 2
    assert read_daily(lake) == {}


def test_hour_whose_count_has_grown_has_its_newest_value(lake: Lake) -> None:
    clock = ManualClock(MIDNIGHT_MS + 2 * HOUR_MS)
    roll_up(lake, EPOCH, Answers(hours((MIDNIGHT_MS, DELIVERED, 5))), clock)
    clock.advance(1)
    assert roll_up(lake, EPOCH, Answers(hours((MIDNIGHT_MS, DELIVERED, 6))), clock) == 1
    assert read_hourly(lake) == {(MIDNIGHT_MS, DELIVERED): 6}


def test_days_that_are_over_are_summed_and_the_first_may_be_left_out(lake: Lake) -> None:
    clock = ManualClock(MIDNIGHT_MS + 2 * DAY_MS + HOUR_MS)
    told = hours(
        (MIDNIGHT_MS + 5 * HOUR_MS, PUBLISHED, 1),  # counting began in the middle of this day
        (MIDNIGHT_MS + DAY_MS, PUBLISHED, 10),
        (MIDNIGHT_MS + DAY_MS + HOUR_MS, PUBLISHED, 20),
        (MIDNIGHT_MS + 2 * DAY_MS, PUBLISHED, 40),
    )
    roll_up(lake, EPOCH, Answers(told), clock)
    assert read_daily(lake) == {(MIDNIGHT_MS + DAY_MS, PUBLISHED): 30}


def test_server_that_is_not_ours_gives_its_days(lake: Lake) -> None:
    window = {"Name": PUBLISHED, "Value": 9}
    window |= {"StartDate": "2023-12-09T05:00:00.000+0000", "EndDate": "2023-12-10T05:00:00.000+0000"}
    day = {"Name": PUBLISHED, "Value": 4}
    day |= {"StartDate": "2023-12-09T00:00:00.000+0000", "EndDate": "2023-12-10T00:00:00.000+0000"}
    answers = Answers(None, {"records": [window, day]})
    assert roll_up(lake, EPOCH, answers, ManualClock()) == 1
    assert read_daily(lake) == {(MIDNIGHT_MS, PUBLISHED): 4}
    assert read_hourly(lake) == {}


@pytest.mark.parametrize(
    "status, metrics",
    [
        (None, None),
        ([], "no"),
        ({"usage": 3}, {"records": [{"Name": 1}]}),
        ({"usage": [None, {"hour_ms": "x"}]}, {"records": []}),
        (hours((1, PUBLISHED, 5)), {}),
    ],
)
def test_answers_that_make_no_sense_are_left_out(lake: Lake, status: Any, metrics: Any) -> None:
    assert roll_up(lake, EPOCH, Answers(status, metrics), ManualClock()) == 0


async def test_hours_and_days_of_a_real_org_equal_a_recount(lake: Lake, org: TestOrg) -> None:
    await org.apply(events={"Few__e": {"fields": {}}}, capture=["Account"])
    chance = random.Random(5)
    recount: Counter[tuple[int, str]] = Counter()
    org.clock.advance((DAY_MS - org.clock.now_ms() % DAY_MS) / 1000)
    first_ms = org.clock.now_ms()
    for _ in range(60):
        hour_ms = org.clock.now_ms() // HOUR_MS * HOUR_MS
        for _ in range(chance.choice([0, 0, 1, 3])):
            await org.make_account()
            await org.gate.publisher.publish(org.call, "Few__e", {})
            # Two subscribed clients are two deliveries.
            org.core.allocations.count_delivered([Delivered(chance.random() < 0.5, Family.CHANGE, 2)])
            for name, count in ((PUBLISHED, 1), (DELIVERED, 2), ("PLATFORM_EVENTS_PUBLISHED", 1)):
                recount[hour_ms, name] += count
        org.clock.advance(3600)
        await org.core.allocations.flush()
        if chance.random() < 0.2:
            await roll_up_from(org, lake)
    await roll_up_from(org, lake)
    assert read_hourly(lake) == recount
    days: Counter[tuple[int, str]] = Counter()
    for (hour_ms, name), value in recount.items():
        days[hour_ms // DAY_MS * DAY_MS, name] += value
    assert read_daily(lake) == {
        key: value for key, value in days.items() if key[0] + DAY_MS <= org.clock.now_ms()
    }
    assert {day_ms for day_ms, _ in read_daily(lake)} == {first_ms, first_ms + DAY_MS}
    assert await roll_up_from(org, lake) == 0


async def roll_up_from(org: TestOrg, lake: Lake) -> int:
    """Take over what the org tells by its two resources."""
    query = "SELECT+Name,StartDate,EndDate,Value+FROM+PlatformEventUsageMetric"
    _, metrics = await Caller(org).send("GET", f"query?q={query}")
    status = {"usage": [asdict(each) for each in org.core.allocations.hourly_usage()]}
    return roll_up(lake, EPOCH, Answers(status, metrics), org.clock)


def test_hour_without_use_is_not_written_and_one_that_lost_its_use_is(lake: Lake) -> None:
    clock = ManualClock(MIDNIGHT_MS + HOUR_MS)
    assert roll_up(lake, EPOCH, Answers(hours((MIDNIGHT_MS, PUBLISHED, 0))), clock) == 0
    assert roll_up(lake, EPOCH, Answers(hours((MIDNIGHT_MS, PUBLISHED, 3))), clock) == 1
    clock.advance(1)
    assert roll_up(lake, EPOCH, Answers(hours((MIDNIGHT_MS, PUBLISHED, 0))), clock) == 1
    assert read_hourly(lake) == {(MIDNIGHT_MS, PUBLISHED): 0}
