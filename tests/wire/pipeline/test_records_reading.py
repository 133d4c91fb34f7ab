"""Records as the pipeline reads them: the same columns and values as their events have, and a fence that
holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.pipeline.archive_lake import settings_for
from tests.running import Rest, call_metadata, read_topic
from tidewire.errors import ObjectUnknown
from tidewire.pipeline.lake.columns import component_column
from tidewire.pipeline.source.records_reader import RecordsReader
from tidewire.testing import ServerProcess

PLACES = "RecordsPlace__c"


@pytest.fixture
def reader(server: ServerProcess) -> Iterator[RecordsReader]:
    made = RecordsReader(settings_for(server))
    yield made
    made.close()


@pytest.fixture
def places(rest: Rest) -> str:
    fields = {
        "Spot__c": {"type": "Location", "scale": 4},
        "Opens__c": {"type": "Time"},
        "Since__c": {"type": "Date"},
        "Seen__c": {"type": "DateTime"},
        "Seats__c": {"type": "Number", "precision": 9, "scale": 2},
        "Open__c": {"type": "Checkbox"},
        "Notes__c": {"type": "LongTextArea", "length": 5000},
        "Kinds__c": {"type": "MultiselectPicklist", "values": ["a", "b", "c"]},
    }
    place = {"label": "Place", "plural": "Places", "capture": True, "fields": fields}
    document = {"objects": {PLACES: place}}
    rest.call("POST", "/services/tidewire/v1/apply", document)
    return PLACES


def flat_event(event: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in event.items():
        if isinstance(value, dict) and name != "ChangeEventHeader":
            flat |= {component_column(name, part): v for part, v in value.items() if v is not None}
        elif isinstance(value, list):
            flat[name] = ";".join(value)
        elif value is not None and name != "ChangeEventHeader":
            flat[name] = value
    return flat


def created_row(server: ServerProcess, rest: Rest, entity: str, record_id: str) -> dict[str, Any]:
    (org,) = rest.query("SELECT Id FROM Organization")
    metadata = call_metadata(server.login(), server.http, org["Id"])
    topic = f"/data/{entity[:-1] if entity.endswith('__c') else entity}ChangeEvent"
    events = read_topic(server.grpc, metadata, topic, lambda e: record_id in e.header["recordIds"])
    return {"Id": record_id} | flat_event(events[-1].payload)


@pytest.mark.parametrize(
    "entity, fields",
    [
        (
            "Account",
            {"Name": "Read & Co", "BillingCity": "Bonn", "BillingLatitude": 50.7, "AnnualRevenue": 3},
        ),
        (
            "Contact",
            {"FirstName": "Ada", "LastName": "Read", "Birthdate": "1815-12-10", "MailingCity": "Ely"},
        ),
        (
            "Opportunity",
            {"Name": "Read", "StageName": "Prospecting", "CloseDate": "2031-05-06", "Amount": 12.5},
        ),
    ],
)
def test_row_read_of_a_new_record_equals_its_create_event(
    server: ServerProcess, rest: Rest, reader: RecordsReader, entity: str, fields: dict[str, Any]
) -> None:
    record_id = rest.create(entity, fields)
    page = reader.read_ids(entity, [record_id])
    (row,) = page.rows
    assert {name: value for name, value in row.items() if value is not None} == created_row(
        server, rest, entity, record_id
    )
    assert page.fence == page.settled
    assert page.fence is not None


def test_row_read_of_a_custom_object_equals_its_create_event(
    server: ServerProcess, rest: Rest, reader: RecordsReader, places: str
) -> None:
    fields = {
        "Name": "Quay",
        "Spot__Latitude__s": 1.25,
        "Spot__Longitude__s": -3.5,
        "Opens__c": "08:30:15.250Z",
        "Since__c": "1969-12-31",
        "Seen__c": "2031-01-02T03:04:05.000+0000",
        "Seats__c": 12.25,
        "Open__c": True,
        "Notes__c": "one\ntwo",
        "Kinds__c": "a;c",
    }
    record_id = rest.create(places, fields)
    (row,) = reader.read_ids(places, [record_id]).rows
    event = created_row(server, rest, places, record_id)
    assert {name: value for name, value in row.items() if value is not None} == event
    assert (event["Opens__c"], event["Since__c"], event["Spot__c_Latitude"]) == (
        30_615_250,
        -86_400_000,
        1.25,
    )
    assert places in reader.entities()


def test_records_that_are_not_there_are_missing_and_the_fence_is_past_their_events(
    rest: Rest, reader: RecordsReader
) -> None:
    kept, gone = (rest.create("Account", {"Name": f"Missing {i}"}) for i in range(2))
    before = reader.read_ids("Account", [kept, gone])
    rest.delete("Account", gone)
    page = reader.read_ids("Account", [gone, kept, "001000000000999AAA", "not an id"])
    assert [row["Id"] for row in page.rows] == [kept]
    assert set(page.missing) == {gone, "001000000000999AAA", "not an id"}
    assert before.fence is not None
    assert page.fence is not None
    assert page.fence > before.fence


def test_ranges_read_in_small_pages_make_up_all_records_once(
    rest: Rest, reader: RecordsReader, places: str
) -> None:
    made = {rest.create(places, {"Name": f"Range {i}"}) for i in range(25)}
    lo, seen = "", []
    while True:
        page = reader.read_range(places, lo, "", 7)
        seen += [str(row["Id"]) for row in page.rows]
        assert len(page.rows) <= 7
        if not page.through:
            break
        lo = page.through
    assert seen == sorted(seen)
    assert made <= set(seen)
    assert len(seen) == len(set(seen)) == reader.count(places)
    assert reader.bounds(places) == (seen[0], seen[-1])
    assert reader.count(places, seen[2], seen[5]) == 3
    part = reader.read_range(places, seen[2], seen[5], 100)
    assert [row["Id"] for row in part.rows] == seen[3:6]
    assert part.through == seen[5]


@pytest.mark.parametrize("name", ["NoSuchThing", "Account WHERE Id != null", "", "Account'"])
def test_object_that_does_not_exist_is_rejected(reader: RecordsReader, name: str) -> None:
    with pytest.raises(ObjectUnknown):
        reader.read_ids(name, ["001000000000001AAA"])


def test_bound_that_is_no_id_is_rejected(reader: RecordsReader) -> None:
    with pytest.raises(ObjectUnknown):
        reader.read_range("Account", "001' OR Name != '", "", 5)


def test_channel_of_one_object_has_that_entity(server: ServerProcess) -> None:
    made = RecordsReader(settings_for(server, "/data/ContactChangeEvent"))
    assert made.entities() == ["Contact"]


def test_rows_of_every_kind_of_object_equal_their_create_events(fresh_server: ServerProcess) -> None:
    made: dict[str, dict[str, Any]] = {
        "Lead": {"LastName": "Read", "Company": "Read", "Street": "1 Way\n2nd", "NumberOfEmployees": 4},
        "Case": {"Subject": "Read", "Origin": "Phone"},
        "Campaign": {"Name": "Read", "StartDate": "2031-01-02", "BudgetedCost": 10.25, "IsActive": True},
        "Task": {"Subject": "Read", "ActivityDate": "2031-01-02", "Priority": "High"},
        "Event": {
            "Subject": "Read",
            "StartDateTime": "2031-01-02T03:04:05.000Z",
            "EndDateTime": "2031-01-02T04:04:05.000Z",
        },
        "Product2": {"Name": "Read", "IsActive": True},
        "User": {
            "Username": "read@tidewire.local",
            "LastName": "Read",
            "Email": "read@example.com",
            "Alias": "read",
            "TimeZoneSidKey": "GMT",
            "LocaleSidKey": "en_US",
            "EmailEncodingKey": "UTF-8",
            "LanguageLocaleKey": "en_US",
        },
    }
    rest = Rest(fresh_server.http, fresh_server.login())
    rest.call("POST", "/services/tidewire/v1/apply", {"capture": list(made)})
    (profile, *_) = rest.query("SELECT Id FROM Profile")
    reader = RecordsReader(settings_for(fresh_server))
    assert set(made) <= set(reader.entities())
    for entity, fields in made.items():
        record_id = rest.create(entity, fields | ({"ProfileId": profile["Id"]} if entity == "User" else {}))
        (row,) = reader.read_ids(entity, [record_id]).rows
        event = created_row(fresh_server, rest, entity, record_id)
        assert {name: value for name, value in row.items() if value is not None} == event, entity
    reader.close()
    rest.close()
