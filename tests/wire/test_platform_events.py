"""Platform events over the wire, by every way of publishing: in one process, over two edges and on PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest
import requests

from tests.bayeux import Dialler, Poller
from tests.postgres import PostgresServer
from tidewire.config import DEV_PASSWORD, DEV_USERNAME
from tidewire.testing import ServerProcess

_WAIT_S = 120.0
_DATA = "/services/data/v62.0"
_METADATA = "http://soap.sforce.com/2006/04/metadata"
_PARTNER = "urn:partner.soap.sforce.com"
_DEFINITION = {
    "events": {
        "Wired__e": {
            "fields": {
                "Way__c": {"type": "Text", "length": 20, "required": True},
                "Count__c": {"type": "Number", "precision": 9, "scale": 0},
                "Day__c": {"type": "Date"},
            }
        },
        "Prompt__e": {
            "publish": "immediately",
            "fields": {"Way__c": {"type": "Text", "length": 20}},
        },
    }
}


@pytest.fixture(scope="module", params=["sqlite", "edges", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of each kind, with the events of these tests."""
    options: list[str] = []
    if request.param == "edges":
        options = ["--edges", "2"]
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        options = ["--store", postgres.make_url()]
    with ServerProcess(tmp_path_factory.mktemp("events") / "data", options=options) as process:
        Caller(process).apply(_DEFINITION)
        yield process


class Caller:
    """The administrator's calls."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self.token = server.login()

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> requests.Response:
        data = {"data": body} if isinstance(body, str | bytes) else {"json": body}
        named = {"Authorization": f"Bearer {self.token}"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        return requests.request(method, self._server.http + path, headers=named, timeout=_WAIT_S, **data)

    def rest(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.send(method, f"{_DATA}/{path}", body)
        assert answer.status_code < 400, answer.text
        return answer.json() if answer.content else None

    def apply(self, document: Any) -> None:
        answer = self.send("POST", "/services/tidewire/v1/apply", document)
        assert answer.status_code == 200, answer.text

    def soap(self, path: str, namespace: str, content: str, header: str = "") -> ElementTree.Element:
        envelope = (
            '<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"'
            ' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">'
            f'<e:Header><SessionHeader xmlns="{namespace}"><sessionId>{self.token}</sessionId></SessionHeader>'
            f"{header}</e:Header><e:Body>{content}</e:Body></e:Envelope>"
        )
        answer = self.send("POST", path, envelope, Content_Type="text/xml", SOAPAction='""')
        assert answer.status_code == 200, answer.text
        return ElementTree.fromstring(answer.content)

    def publish_by_soap(self, *events: str) -> list[tuple[str, str]]:
        """For each event, given as its elements, the status code and message that it was answered with."""
        given = "".join(f"<sObjects><type>Wired__e</type>{event}</sObjects>" for event in events)
        content = f'<create xmlns="{_PARTNER}">{given}</create>'
        root = self.soap("/services/Soap/u/62.0", _PARTNER, content)
        errors = root.iter(f"{{{_PARTNER}}}errors")
        return [
            (e.findtext(f"{{{_PARTNER}}}statusCode", ""), e.findtext(f"{{{_PARTNER}}}message", ""))
            for e in errors
        ]

    def publish_by_bulk(self, csv: str) -> dict[str, Any]:
        job = self.rest(
            "POST", "jobs/ingest", {"object": "Wired__e", "operation": "insert", "lineEnding": "LF"}
        )
        path = f"{_DATA}/jobs/ingest/{job['id']}"
        assert self.send("PUT", f"{path}/batches", csv, Content_Type="text/csv").status_code == 201
        self.rest("PATCH", f"jobs/ingest/{job['id']}", {"state": "UploadComplete"})
        deadline = time.monotonic() + _WAIT_S
        while True:
            state: dict[str, Any] = self.rest("GET", f"jobs/ingest/{job['id']}")
            if state["state"] in ("JobComplete", "Failed"):
                return state
            assert time.monotonic() < deadline, state


def listen(site: ServerProcess, dial: Dialler, token: str, *channels: str) -> Poller:
    poller = Poller(dial.plain(site), token)
    poller.open(*channels)
    return poller


def take(poller: Poller, count: int) -> list[dict[str, Any]]:
    """The data of so many events."""
    seen: list[dict[str, Any]] = []
    while len(seen) < count:
        seen += [event["data"] for event in poller.poll()]
    return seen


def test_every_way_of_publishing_reaches_a_subscriber_with_its_uuid(
    site: ServerProcess, dial: Dialler
) -> None:
    caller = Caller(site)
    poller = listen(site, dial, caller.token, "/event/Wired__e")
    uuids = []
    answer = caller.rest("POST", "sobjects/Wired__e", {"Way__c": "rest", "Day__c": "2024-02-29"})
    assert answer["success"]
    uuids.append(answer["errors"][0]["message"])
    row = {"attributes": {"type": "Wired__e"}, "Way__c": "collection", "Count__c": 3}
    (result,) = caller.rest("POST", "composite/sobjects", {"records": [row]})
    uuids.append(result["errors"][0]["message"])
    inner = {
        "method": "POST",
        "url": f"{_DATA}/sobjects/Wired__e",
        "referenceId": "a",
        "body": {"Way__c": "composite"},
    }
    answer = caller.rest("POST", "composite", {"compositeRequest": [inner], "allOrNone": True})
    uuids.append(answer["compositeResponse"][0]["body"]["errors"][0]["message"])
    ((code, uuid),) = caller.publish_by_soap("<Way__c>soap</Way__c><Count__c>4</Count__c>")
    assert code == "OPERATION_ENQUEUED"
    uuids.append(uuid)
    told = take(poller, 4)
    assert [t["event"]["EventUuid"] for t in told] == uuids
    assert [t["payload"]["Way__c"] for t in told] == ["rest", "collection", "composite", "soap"]
    assert [t["payload"]["Count__c"] for t in told] == [None, 3.0, None, 4.0]
    assert told[0]["payload"]["Day__c"] == "2024-02-29"
    state = caller.publish_by_bulk("Way__c,Count__c\nbulk,5\n,6\nmore,7\n")
    assert (state["state"], state["numberRecordsProcessed"], state["numberRecordsFailed"]) == (
        "JobComplete",
        3,
        1,
    )
    assert [t["payload"]["Way__c"] for t in take(poller, 2)] == ["bulk", "more"]


def test_refused_events_are_told_by_each_protocol_in_its_own_way(site: ServerProcess) -> None:
    caller = Caller(site)
    for body, code in (
        ({}, "REQUIRED_FIELD_MISSING"),
        ({"Way__c": "x" * 21}, "STRING_TOO_LONG"),
        ({"Way__c": "x", "Count__c": "many"}, "JSON_PARSER_ERROR"),
        ({"Way__c": "x", "Nope__c": 1}, "INVALID_FIELD"),
    ):
        answer = caller.send("POST", f"{_DATA}/sobjects/Wired__e", body)
        assert (answer.status_code, answer.json()[0]["errorCode"]) == (400, code)
    results = caller.publish_by_soap(
        "", "<Way__c>fits</Way__c>", "<Way__c>x</Way__c><Count__c>many</Count__c>"
    )
    assert [code for code, _ in results] == [
        "REQUIRED_FIELD_MISSING",
        "OPERATION_ENQUEUED",
        "INVALID_TYPE_ON_FIELD_IN_RECORD",
    ]


def test_composite_that_fails_publishes_only_what_is_published_immediately(
    site: ServerProcess, dial: Dialler
) -> None:
    caller = Caller(site)
    poller = listen(site, dial, caller.token, "/event/Wired__e", "/event/Prompt__e")
    url = f"{_DATA}/sobjects"
    requests_ = [
        {
            "method": "POST",
            "url": f"{url}/Wired__e",
            "referenceId": "a",
            "body": {"Way__c": "never"},
        },
        {"method": "POST", "url": f"{url}/Prompt__e", "referenceId": "b", "body": {"Way__c": "at once"}},
        {"method": "POST", "url": f"{url}/Account", "referenceId": "c", "body": {}},
    ]
    caller.rest("POST", "composite", {"compositeRequest": requests_, "allOrNone": True})
    caller.rest("POST", "sobjects/Wired__e", {"Way__c": "last"})
    told = sorted(take(poller, 2), key=lambda data: int(data["event"]["replayId"]))
    assert [each["payload"]["Way__c"] for each in told] == ["at once", "last"]


def test_event_made_by_tooling_and_metadata_is_published_and_described(site: ServerProcess) -> None:
    caller = Caller(site)
    metadata = {"label": "Made", "pluralLabel": "Mades", "eventType": "HighVolume"}
    metadata |= {"publishBehavior": "PublishImmediately"}
    made = caller.rest("POST", "tooling/sobjects/CustomObject", {"FullName": "Made__e", "Metadata": metadata})
    field = {"label": "Text", "type": "Text", "length": 20}
    caller.rest("POST", "tooling/sobjects/CustomField", {"FullName": "Made__e.Text__c", "Metadata": field})
    read = caller.rest("GET", f"tooling/sobjects/CustomObject/{made['id']}")
    assert (read["FullName"], read["Metadata"]["publishBehavior"]) == ("Made__e", "PublishImmediately")
    assert caller.rest("POST", "sobjects/Made__e", {"Text__c": "x"})["success"]
    old = caller.rest("GET", "sobjects/Made__e/eventSchema?payloadFormat=COMPACT")
    rename = (
        f'<renameMetadata xmlns="{_METADATA}"><type>CustomField</type>'
        "<oldFullName>Made__e.Text__c</oldFullName><newFullName>Made__e.Words__c</newFullName></renameMetadata>"
    )
    root = caller.soap("/services/Soap/m/62.0", _METADATA, rename)
    assert root.findtext(f".//{{{_METADATA}}}success") == "true"
    new = caller.rest("GET", "sobjects/Made__e/eventSchema?payloadFormat=COMPACT")
    assert [f["name"] for f in new["fields"]] == ["CreatedDate", "CreatedById", "Words__c"]
    assert caller.rest("GET", f"event/eventSchema/{old['uuid']}?payloadFormat=COMPACT") == old
    caller.rest("DELETE", f"tooling/sobjects/CustomObject/{made['id']}")
    assert caller.send("POST", f"{_DATA}/sobjects/Made__e", {"Words__c": "x"}).status_code == 404


def test_logins_and_reads_reach_a_monitor_and_nobody_else(site: ServerProcess, dial: Dialler) -> None:
    caller = Caller(site)
    caller.apply({"settings": {"monitoring_events": ["LoginEventStream", "ApiEventStream"]}})
    try:
        poller = listen(site, dial, caller.token, "/event/LoginEventStream", "/event/ApiEventStream")
        reader = site.login("reader@tidewire.local", DEV_PASSWORD)
        denied = Poller(dial.plain(site), reader)
        denied.shake_hands()
        refusal = denied.subscribe("/event/LoginEventStream")
        assert refusal["successful"] is False
        content = f'<query xmlns="{_PARTNER}"><queryString>SELECT Id FROM Organization</queryString></query>'
        caller.soap("/services/Soap/u/62.0", _PARTNER, content)
        told = {"Status" in event["payload"]: event["payload"] for event in take(poller, 2)}
        login, read = told[True], told[False]
    finally:
        caller.apply({"settings": {"monitoring_events": []}})
    assert (login["Username"], login["Status"]) == ("reader@tidewire.local", "Success")
    assert (read["Username"], read["ApiType"], read["Operation"]) == (DEV_USERNAME, "SOAP Partner", "Query")
    assert read["SourceIp"] == "127.0.0.1"
