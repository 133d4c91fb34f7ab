"""Recurring events and invitees over REST."""

from __future__ import annotations

import pytest
import requests

from tidewire.testing import ServerProcess

V = "/services/data/v59.0"
START = "2030-01-07T09:00:00.000Z"


@pytest.fixture
def api(dev_token: str) -> requests.Session:
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {dev_token}"
    return session


def test_recurring_event_is_posted_queried_and_deleted_as_a_whole(
    server: ServerProcess, api: requests.Session
) -> None:
    body = {
        "Subject": "Planning",
        "StartDateTime": START,
        "DurationInMinutes": 60,
        "Recurrence2PatternText": "RRULE:FREQ=WEEKLY;INTERVAL=1;BYDAY=MO;COUNT=3",
        "Recurrence2PatternTimeZone": "Europe/Paris",
    }
    posted = api.post(f"{server.http}{V}/sobjects/Event", json=body, timeout=120)
    assert posted.status_code == 201, posted.text
    event = f"{server.http}{V}/sobjects/Event/{posted.json()['id']}"
    series = api.get(event, timeout=120).json()
    assert (series["GroupEventType"], series["IsRecurrence2"]) == ("3", True)
    soql = (
        "SELECT StartDateTime, EndDateTime FROM Event WHERE GroupEventType = '0'"
        f" AND ActivityRecurrence2Id = '{series['ActivityRecurrence2Id']}' ORDER BY StartDateTime"
    )
    found = api.get(f"{server.http}{V}/query", params={"q": soql}, timeout=120).json()
    assert [row["StartDateTime"][:16] for row in found["records"]] == [
        "2030-01-07T09:00",
        "2030-01-14T09:00",
        "2030-01-21T09:00",
    ]
    assert api.delete(event, timeout=120).status_code == 204
    assert api.get(f"{server.http}{V}/query", params={"q": soql}, timeout=120).json()["totalSize"] == 0


def test_event_with_too_many_occurrences_is_refused_with_its_field(
    server: ServerProcess, api: requests.Session
) -> None:
    body = {
        "StartDateTime": START,
        "DurationInMinutes": 60,
        "Recurrence2PatternText": "RRULE:FREQ=DAILY;COUNT=1001",
    }
    answer = api.post(f"{server.http}{V}/sobjects/Event", json=body, timeout=120)
    assert answer.status_code == 400
    (error,) = answer.json()
    assert (error["errorCode"], error["fields"]) == ("NUMBER_OUTSIDE_VALID_RANGE", ["Recurrence2PatternText"])


def test_event_with_times_in_conflict_is_refused_with_its_fields(
    server: ServerProcess, api: requests.Session
) -> None:
    body = {"StartDateTime": START, "EndDateTime": START, "DurationInMinutes": 60}
    answer = api.post(f"{server.http}{V}/sobjects/Event", json=body, timeout=120)
    assert answer.status_code == 400
    (error,) = answer.json()
    assert error["errorCode"] == "FIELD_INTEGRITY_EXCEPTION"
    assert error["fields"] == ["DurationInMinutes", "EndDateTime"]
