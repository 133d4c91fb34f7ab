"""Bulk API 2.0 over the wire: the forms that clients read, byte by byte where they do."""

from __future__ import annotations

import csv
import gzip
import io
import json
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import urlsplit

import pytest

from tests.running import API, Json, Rest
from tidewire.testing import READER_USERNAME, ServerProcess

TIMEOUT_S = 120.0
OBJECT = "BulkThing__c"


class Wire:
    """Requests on one connection, with the whole answer at hand."""

    def __init__(self, server: ServerProcess, token: str) -> None:
        self._connection = HTTPConnection(urlsplit(server.http).netloc, timeout=TIMEOUT_S)
        self._token = token

    def close(self) -> None:
        self._connection.close()

    def send(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[HTTPResponse, bytes]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request(method, path, body, {"Authorization": f"Bearer {self._token}", **named})
        response = self._connection.getresponse()
        return response, response.read()

    def json(self, method: str, path: str, value: Json = None, status: int = 200) -> Json:
        body = None if value is None else json.dumps(value).encode()
        response, answer = self.send(method, path, body, Content_Type="application/json")
        assert response.status == status, answer
        return json.loads(answer) if answer else None

    def run(self, data: bytes, **asked: str) -> str:
        """Carry an ingest job through; its id."""
        job_id = str(self.json("POST", f"{API}/jobs/ingest", {"object": OBJECT, **asked})["id"])
        response, _ = self.send("PUT", f"{API}/jobs/ingest/{job_id}/batches", data, Content_Type="text/csv")
        assert response.status == 201
        self.json("PATCH", f"{API}/jobs/ingest/{job_id}", {"state": "UploadComplete"})
        self.wait(f"{API}/jobs/ingest/{job_id}")
        return job_id

    def wait(self, path: str) -> Json:
        """The job once it is over."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            job = self.json("GET", path)
            if job["state"] in ("JobComplete", "Failed", "Aborted"):
                return job
        raise AssertionError("the job does not end")

    def csv(self, path: str) -> list[list[str]]:
        response, body = self.send("GET", path)
        assert (response.status, response.getheader("Content-Type")) == (200, "text/csv;charset=UTF-8")
        return list(csv.reader(io.StringIO(body.decode(), newline="")))


@pytest.fixture
def wire(server: ServerProcess, rest: Rest) -> Iterator[Wire]:
    fields = {"Key__c": {"type": "Text", "length": 20, "external_id": True}, "Size__c": {"type": "Number"}}
    definition = {"objects": {OBJECT: {"name": {"type": "Text"}, "fields": fields}}}
    rest.call("POST", "/services/tidewire/v1/apply", definition)
    with closing(Wire(server, server.login())) as opened:
        yield opened


def test_job_is_described_as_clients_expect(wire: Wire) -> None:
    made = wire.json("POST", f"{API}/jobs/ingest", {"object": OBJECT.lower(), "operation": "insert"})
    assert made["contentUrl"] == f"services/data/v62.0/jobs/ingest/{made['id']}/batches"
    assert {
        name: made[name] for name in ("object", "state", "apiVersion", "columnDelimiter", "lineEnding")
    } == {
        "object": OBJECT,
        "state": "Open",
        "apiVersion": 62.0,
        "columnDelimiter": "COMMA",
        "lineEnding": "LF",
    }
    read = wire.json("GET", f"{API}/jobs/ingest/{made['id']}")
    assert (read["jobType"], read["numberRecordsProcessed"], read["numberRecordsFailed"]) == (
        "V2Ingest",
        0,
        0,
    )


def test_results_carry_the_rows_back_with_what_became_of_them(wire: Wire) -> None:
    data = b'Name;Size__c\r\n"semi;colon";1\r\nBad;x\r\n'
    job = wire.run(data, operation="insert", columnDelimiter="SEMICOLON", lineEnding="CRLF")
    read = wire.json("GET", f"{API}/jobs/ingest/{job}")
    assert (read["state"], read["numberRecordsProcessed"], read["numberRecordsFailed"]) == (
        "JobComplete",
        2,
        1,
    )
    _, done = wire.send("GET", f"{API}/jobs/ingest/{job}/successfulResults")
    header, row = done.decode().split("\r\n")[:2]
    assert header == '"sf__Id";"sf__Created";"Name";"Size__c"'
    assert row.endswith(';"true";"semi;colon";"1"')
    _, failed = wire.send("GET", f"{API}/jobs/ingest/{job}/failedResults")
    assert b'"";"INVALID_TYPE_ON_FIELD_IN_RECORD:' in failed
    assert b':Size__c --";"Bad";"x"' in failed
    for spelling in ("unprocessedrecords", "unprocessedRecords"):
        _, left = wire.send("GET", f"{API}/jobs/ingest/{job}/{spelling}")
        assert left == b'"Name";"Size__c"\r\n'


def test_failed_job_tells_why_and_gives_its_rows_back(wire: Wire) -> None:
    job = wire.run(b"Name,Nope__c\na,b\n", operation="insert")
    read = wire.json("GET", f"{API}/jobs/ingest/{job}")
    assert (read["state"], read["errorMessage"]) == (
        "Failed",
        "InvalidBatch : Field name not found : Nope__c",
    )
    assert wire.csv(f"{API}/jobs/ingest/{job}/unprocessedrecords") == [["Name", "Nope__c"], ["a", "b"]]
    assert wire.csv(f"{API}/jobs/ingest/{job}/successfulResults") == [["sf__Id", "sf__Created"]]


def test_gzip_is_taken_and_given(wire: Wire) -> None:
    plain = b"Name,Key__c\n" + b"".join(b"gzip %d,g\n" % n for n in range(2_000))
    made = wire.json("POST", f"{API}/jobs/ingest", {"object": OBJECT, "operation": "insert"})
    path = f"{API}/jobs/ingest/{made['id']}"
    packed = gzip.compress(plain)
    response, _ = wire.send(
        "PUT", f"{path}/batches", packed, Content_Type="text/csv", Content_Encoding="gzip"
    )
    assert response.status == 201
    wire.json("PATCH", path, {"state": "UploadComplete"})
    assert wire.wait(path)["numberRecordsProcessed"] == 2_000
    response, body = wire.send("GET", f"{path}/successfulResults", Accept_Encoding="gzip")
    assert response.getheader("Content-Encoding") == "gzip"
    assert gzip.decompress(body).count(b"\n") == 2_001


def test_gzip_that_is_broken_is_refused_and_leaves_the_job_open(wire: Wire) -> None:
    made = wire.json("POST", f"{API}/jobs/ingest", {"object": OBJECT, "operation": "insert"})
    path = f"{API}/jobs/ingest/{made['id']}"
    broken = gzip.compress(b"Name\nx\n")[:-6]
    response, _ = wire.send(
        "PUT", f"{path}/batches", broken, Content_Type="text/csv", Content_Encoding="gzip"
    )
    assert response.status == 400
    response, _ = wire.send("PUT", f"{path}/batches", b"Name\nx\n", Content_Type="text/csv")
    assert response.status == 201


def test_job_with_its_data_in_one_request_is_processed(wire: Wire) -> None:
    job = json.dumps({"object": OBJECT, "operation": "insert", "contentType": "CSV"})
    body = (
        '--B\r\nContent-Type: application/json\r\nContent-Disposition: form-data; name="job"\r\n\r\n'
        f'{job}\r\n--B\r\nContent-Type: text/csv\r\nContent-Disposition: form-data; name="content";'
        ' filename="content"\r\n\r\nName\nmulti\n\r\n--B--\r\n'
    )
    response, answer = wire.send(
        "POST", f"{API}/jobs/ingest", body.encode(), Content_Type="multipart/form-data; boundary=B"
    )
    assert response.status == 200
    made = json.loads(answer)
    assert made["state"] == "UploadComplete"
    assert wire.wait(f"{API}/jobs/ingest/{made['id']}")["numberRecordsProcessed"] == 1


@pytest.mark.parametrize(
    "asked, code",
    [
        ({"operation": "insert"}, "INVALIDJOB"),
        ({"object": "Nope__c", "operation": "insert"}, "INVALIDENTITY"),
        ({"object": OBJECT, "operation": "query"}, "INVALIDOPERATION"),
        ({"object": OBJECT, "operation": "insert", "columnDelimiter": "DOT"}, "INVALIDJOB"),
        ({"object": OBJECT, "operation": "insert", "contentType": "XML"}, "INVALIDJOB"),
        ({"object": OBJECT, "operation": "upsert", "externalIdFieldName": "Size__c"}, "INVALIDJOB"),
    ],
)
def test_job_that_cannot_be_is_refused_with_its_code(wire: Wire, asked: Json, code: str) -> None:
    (error,) = wire.json("POST", f"{API}/jobs/ingest", asked, status=400)
    assert error["errorCode"] == code


def test_wrong_state_is_refused_with_its_code(wire: Wire) -> None:
    job = wire.run(b"Name\nstate\n", operation="insert")
    (error,) = wire.json("PATCH", f"{API}/jobs/ingest/{job}", {"state": "Aborted"}, status=400)
    assert error == {
        "errorCode": "INVALIDJOBSTATE",
        "message": "Aborting already Completed Job not allowed",
    }
    wire.json("DELETE", f"{API}/jobs/ingest/{job}", status=204)
    wire.json("GET", f"{API}/jobs/ingest/{job}", status=404)


def test_job_of_another_user_is_not_found(wire: Wire, server: ServerProcess) -> None:
    made = wire.json("POST", f"{API}/jobs/ingest", {"object": OBJECT, "operation": "insert"})
    asked = (("GET", ""), ("DELETE", ""), ("GET", "/successfulResults"), ("PUT", "/batches"))
    with closing(Wire(server, server.login(READER_USERNAME))) as other:
        for method, path in asked:
            response, _ = other.send(method, f"{API}/jobs/ingest/{made['id']}{path}")
            assert response.status == 404


def test_query_result_comes_in_pages_up_to_the_literal_null(wire: Wire) -> None:
    wire.run(b"Name,Key__c\n" + b"".join(b"p%02d,page\n" % n for n in range(25)), operation="insert")
    soql = f"SELECT Name, Size__c, Owner.Name FROM {OBJECT} WHERE Key__c = 'page' ORDER BY Name"
    made = wire.json("POST", f"{API}/jobs/query", {"operation": "query", "query": soql})
    assert (made["state"], made["object"]) == ("UploadComplete", OBJECT)
    path = f"{API}/jobs/query/{made['id']}"
    assert wire.wait(path)["jobType"] == "V2Query"
    names, counts, locator = list[str](), list[str](), ""
    while locator != "null":
        response, body = wire.send("GET", f"{path}/results?maxRecords=10&locator={locator}")
        header, *rows = csv.reader(io.StringIO(body.decode()))
        assert header == ["Name", "Size__c", "Owner.Name"]
        names += [row[0] for row in rows]
        counts.append(response.getheader("Sforce-NumberOfRecords") or "")
        locator = response.getheader("Sforce-Locator") or ""
    assert (names, counts) == ([f"p{n:02}" for n in range(25)], ["10", "10", "5"])
    wire.json("GET", f"{path}/results?locator=bm9uc2Vuc2U", status=400)


def test_query_without_rows_has_a_header_and_ends(wire: Wire) -> None:
    soql = f"SELECT Name FROM {OBJECT} WHERE Name = 'nobody at all'"
    made = wire.json("POST", f"{API}/jobs/query", {"operation": "queryAll", "query": soql})
    wire.wait(f"{API}/jobs/query/{made['id']}")
    response, body = wire.send("GET", f"{API}/jobs/query/{made['id']}/results")
    assert (body, response.getheader("Sforce-Locator")) == (b'"Name"\n', "null")


def test_list_shows_jobs_of_the_kind_asked_for(wire: Wire) -> None:
    job = wire.run(b"Name\nlisted\n", operation="insert")
    listed = wire.json("GET", f"{API}/jobs/ingest?jobType=V2Ingest")
    assert listed["done"] is True
    assert listed["nextRecordsUrl"] is None
    assert job in [record["id"] for record in listed["records"]]
    assert wire.json("GET", f"{API}/jobs/ingest?jobType=Classic&queryLocator=OTk5OTk5")["records"] == []


def test_upload_over_the_limit_is_refused_before_it_is_read(wire: Wire) -> None:
    made = wire.json("POST", f"{API}/jobs/ingest", {"object": OBJECT, "operation": "insert"})
    path = f"{API}/jobs/ingest/{made['id']}/batches"
    response, _ = wire.send("PUT", path, None, Content_Type="text/csv", Content_Length=str(151 << 20))
    assert response.status == 413


def test_upload_without_a_session_or_a_job_is_refused_before_its_body_comes(wire: Wire) -> None:
    path = f"{API}/jobs/ingest/750000000000001AAA/batches"
    length = {"Content_Type": "text/csv", "Content_Length": str(100 << 20)}
    response, _ = wire.send("PUT", path, None, Authorization="Bearer no", **length)
    assert response.status == 401
    response, _ = wire.send("PUT", path, None, **length)
    assert response.status == 404
