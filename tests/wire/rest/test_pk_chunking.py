"""Queries of the older Bulk API that are cut into ranges of ids, each a batch of its own."""

from __future__ import annotations

import csv
import io
import time

import pytest
import requests

from tests.running import Json, Rest
from tidewire.testing import ServerProcess

TIMEOUT_S = 120.0
OBJECT = "ChunkedThing__c"
HEADER = "Sforce-Enable-PKChunking"


class Bulk:
    """Requests of the older API, in JSON."""

    def __init__(self, server: ServerProcess, token: str) -> None:
        self._base = server.http + "/services/async/59.0/job"
        self._headers = {"X-SFDC-Session": token, "Accept": "application/json"}

    def send(self, method: str, path: str, body: Json = None, **headers: str) -> requests.Response:
        return requests.request(
            method, self._base + path, json=body, headers=self._headers | headers, timeout=TIMEOUT_S
        )

    def make(self, chunking: str, operation: str = "query", entity: str = OBJECT) -> requests.Response:
        asked = {"operation": operation, "object": entity, "contentType": "CSV"}
        return self.send("POST", "", asked, **{HEADER: chunking})

    def add(self, job: str, soql: str) -> str:
        headers = self._headers | {"Content-Type": "text/csv"}
        url = f"{self._base}/{job}/batch"
        answer = requests.post(url, data=soql, headers=headers, timeout=TIMEOUT_S)
        assert answer.status_code == 201, answer.text
        assert answer.json()["state"] == "Queued"
        return str(answer.json()["id"])

    def ended(self, job: str) -> list[Json]:
        """The batches of a job once each of them is over."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            batches: list[Json] = self.send("GET", f"/{job}/batch").json()["batchInfo"]
            if all(each["state"] in ("Completed", "Failed", "NotProcessed") for each in batches):
                return batches
        raise AssertionError("the job does not end")

    def names(self, job: str, batch: Json) -> list[str]:
        path = f"/{job}/batch/{batch['id']}/result"
        found = [
            row["Name"]
            for result in _results(self.send("GET", path).text)
            for row in csv.DictReader(io.StringIO(self.send("GET", f"{path}/{result}").text))
        ]
        return found


def _results(text: str) -> list[str]:
    return [part.partition("</result>")[0] for part in text.split("<result>")[1:]]


@pytest.fixture
def bulk(server: ServerProcess, rest: Rest) -> Bulk:
    definition = {"objects": {OBJECT: {"name": {"type": "Text"}, "fields": {"Size__c": {"type": "Number"}}}}}
    rest.call("POST", "/services/tidewire/v1/apply", definition)
    known = rest.query(f"SELECT Id FROM {OBJECT}")
    if not known:
        rows = [{"attributes": {"type": OBJECT}, "Name": f"row {n:02}", "Size__c": n % 2} for n in range(25)]
        rest.call("POST", "/services/data/v59.0/composite/sobjects", {"records": rows})
    return Bulk(server, server.login())


def test_query_is_cut_into_batches_that_find_every_record_once(bulk: Bulk) -> None:
    job = bulk.make("chunkSize=10").json()["id"]
    original = bulk.add(job, f"SELECT Name FROM {OBJECT}")
    batches = bulk.ended(job)
    assert [each["state"] for each in batches] == ["NotProcessed", "Completed", "Completed", "Completed"]
    assert batches[0]["id"] == original
    found = [bulk.names(job, each) for each in batches[1:]]
    assert [len(names) for names in found] == [10, 10, 5]
    assert sorted(name for names in found for name in names) == [f"row {n:02}" for n in range(25)]
    request = bulk.send("GET", f"/{job}/batch/{batches[2]['id']}/request").text
    assert request.startswith(f"SELECT Name FROM {OBJECT} WHERE Id >= '")
    assert " AND Id < '" in request
    info = bulk.send("GET", f"/{job}").json()
    counts = [info[f"numberBatches{kind}"] for kind in ("Completed", "Failed", "Total")]
    assert (counts, info["numberRecordsProcessed"]) == ([3, 0, 4], 25)


def test_condition_of_the_query_holds_in_every_range(bulk: Bulk) -> None:
    job = bulk.make("TRUE").json()["id"]
    bulk.add(job, f"SELECT Name FROM {OBJECT} WHERE Size__c = 1 OR Name = 'row 00'")
    original, chunk = bulk.ended(job)
    assert original["state"] == "NotProcessed"
    assert len(bulk.names(job, chunk)) == 13


def test_ranges_begin_at_the_row_that_is_asked_for(bulk: Bulk, rest: Rest) -> None:
    ids = [row["Id"] for row in rest.query(f"SELECT Id FROM {OBJECT} ORDER BY Id")]
    job = bulk.make(f"chunkSize=3; startRow={ids[20][:15]}").json()["id"]
    bulk.add(job, f"SELECT Name FROM {OBJECT}")
    _, first, second = bulk.ended(job)
    assert [len(bulk.names(job, each)) for each in (first, second)] == [3, 2]


def test_shares_are_cut_by_the_records_that_they_open(bulk: Bulk, rest: Rest) -> None:
    for number in range(3):
        rest.create("Account", {"Name": f"chunked {number}"})
    total = len(rest.query("SELECT Id FROM Account"))
    size = total - 1
    job = bulk.make(f"chunkSize={size}; parent=Account", entity="AccountShare").json()["id"]
    bulk.add(job, "SELECT Id FROM AccountShare")
    original, *chunks = bulk.ended(job)
    assert (original["state"], [each["state"] for each in chunks]) == ("NotProcessed", ["Completed"] * 2)
    request = bulk.send("GET", f"/{job}/batch/{chunks[1]['id']}/request").text
    assert request.startswith("SELECT Id FROM AccountShare WHERE AccountId >= '001")


@pytest.mark.parametrize("clause", ["LIMIT 5", "ORDER BY Name", "WHERE Nope__c = 1"])
def test_query_that_cannot_be_cut_fails_and_leaves_nothing_to_process(bulk: Bulk, clause: str) -> None:
    job = bulk.make("chunkSize=10").json()["id"]
    bulk.add(job, f"SELECT Name FROM {OBJECT} {clause}")
    (batch,) = bulk.ended(job)
    assert batch["state"] == "Failed"
    assert batch["stateMessage"]


@pytest.mark.parametrize(
    "chunking", ["chunkSize=0", "chunkSize=250001", "chunkSize=x", "startRow=nothing", "parent=A B"]
)
def test_header_that_makes_no_sense_is_refused(bulk: Bulk, chunking: str) -> None:
    answer = bulk.make(chunking)
    assert (answer.status_code, answer.json()["exceptionCode"]) == (400, "InvalidJob")


@pytest.mark.parametrize("chunking", ["FALSE", ""])
def test_query_without_chunking_is_one_batch(bulk: Bulk, chunking: str) -> None:
    job = bulk.make(chunking).json()["id"]
    bulk.add(job, f"SELECT Name FROM {OBJECT}")
    (batch,) = bulk.ended(job)
    assert (batch["state"], batch["numberRecordsProcessed"]) == ("Completed", 25)
