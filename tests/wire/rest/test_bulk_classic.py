"""The older Bulk API over the wire, in its three formats."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element, fromstring

import pytest

from tests.running import Json, Rest
from tidewire.testing import ServerProcess

TIMEOUT_S = 120.0
OBJECT = "ClassicThing__c"
ASYNC = "/services/async/52.0"
NS = "{http://www.force.com/2009/06/asyncapi/dataload}"
XML_HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?><{0} xmlns="http://www.force.com/2009/06/asyncapi/dataload">'
)


class Wire:
    """Requests with the session in the header that this API has for it."""

    def __init__(self, server: ServerProcess, token: str) -> None:
        self._connection = HTTPConnection(urlsplit(server.http).netloc, timeout=TIMEOUT_S)
        self._token = token

    def close(self) -> None:
        self._connection.close()

    def send(self, method: str, path: str, body: str | None, media_type: str) -> tuple[int, str, bytes]:
        headers = {"X-SFDC-Session": self._token}
        if media_type:
            headers["Content-Type"] = media_type
        data = None if body is None else body.encode()
        self._connection.request(method, ASYNC + path, data, headers)
        response = self._connection.getresponse()
        return response.status, response.getheader("Content-Type") or "", response.read()

    def json(self, method: str, path: str, value: Json = None, *, raw: str | None = None) -> Json:
        body = raw if raw is not None else None if value is None else json.dumps(value)
        status, content_type, answer = self.send(method, path, body, "application/json")
        assert status in (200, 201), answer
        assert content_type.startswith("application/json")
        return json.loads(answer)

    def xml(
        self, method: str, path: str, body: str | None = None, media_type: str = "application/xml"
    ) -> Element:
        status, content_type, answer = self.send(method, path, body, media_type if body else "")
        assert status in (200, 201), answer
        assert content_type.startswith("application/xml")
        return fromstring(answer)

    def wait(self, job: str, batch: str) -> Json:
        """The batch once it is over."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            headers = {"X-SFDC-Session": self._token, "Accept": "application/json"}
            self._connection.request("GET", f"{ASYNC}/job/{job}/batch/{batch}", headers=headers)
            info = json.loads(self._connection.getresponse().read())
            if info["state"] in ("Completed", "Failed", "NotProcessed"):
                return info
        raise AssertionError("the batch does not end")


@pytest.fixture
def wire(server: ServerProcess, rest: Rest) -> Iterator[Wire]:
    fields = {"Day__c": {"type": "Date"}, "Flag__c": {"type": "Checkbox"}, "Size__c": {"type": "Number"}}
    definition = {"objects": {OBJECT: {"name": {"type": "Text"}, "fields": fields}}}
    rest.call("POST", "/services/tidewire/v1/apply", definition)
    with closing(Wire(server, server.login())) as opened:
        yield opened


def child(element: Element, name: str) -> str:
    return element.findtext(NS + name) or ""


def test_json_batch_is_answered_row_by_row(wire: Wire) -> None:
    asked = {"operation": "insert", "object": OBJECT, "contentType": "JSON", "concurrencyMode": 1}
    job = wire.json("POST", "/job", asked)
    assert (job["state"], job["concurrencyMode"], job["apiVersion"]) == ("Open", "Serial", 52.0)
    rows = [{"Name": "a", "Flag__c": True, "Size__c": 1}, {"Name": "b", "Size__c": "many"}]
    batch = wire.json("POST", f"/job/{job['id']}/batch", rows)
    assert (batch["jobId"], batch["state"]) == (job["id"], "Queued")
    info = wire.wait(job["id"], batch["id"])
    assert (info["state"], info["numberRecordsProcessed"], info["numberRecordsFailed"]) == ("Completed", 2, 1)
    good, bad = wire.json("GET", f"/job/{job['id']}/batch/{batch['id']}/result")
    assert (good["success"], good["created"], good["errors"]) == (True, True, [])
    assert (bad["success"], bad["id"], bad["errors"][0]["statusCode"]) == (
        False,
        None,
        "INVALID_TYPE_ON_FIELD_IN_RECORD",
    )
    assert wire.json("GET", f"/job/{job['id']}/batch/{batch['id']}/request") == rows
    for path in ("", "/batch", f"/batch/{batch['id']}"):  # asked without a word about the format
        status, content_type, answer = wire.send("GET", f"/job/{job['id']}{path}", None, "")
        assert (status, content_type.split(";")[0], answer[:1]) == (200, "application/json", b"{")
    closed = wire.json("POST", f"/job/{job['id']}", {"state": "Closed"})
    assert (closed["state"], closed["numberBatchesCompleted"], closed["numberRecordsFailed"]) == (
        "Closed",
        1,
        1,
    )


def test_csv_batch_in_an_xml_job_is_answered_as_csv(wire: Wire) -> None:
    body = XML_HEAD.format("jobInfo") + (
        f"<operation>insert</operation><object>{OBJECT}</object><contentType>CSV</contentType></jobInfo>"
    )
    job = child(wire.xml("POST", "/job", body), "id")
    batch = child(wire.xml("POST", f"/job/{job}/batch", "Name,Day__c\nc,2024-02-29\n", "text/csv"), "id")
    assert wire.wait(job, batch)["state"] == "Completed"
    status, content_type, answer = wire.send("GET", f"/job/{job}/batch/{batch}/result", None, "")
    assert (status, content_type) == (200, "text/csv")
    header, row = answer.decode().splitlines()
    assert header == '"Id","Success","Created","Error"'
    assert row.endswith('","true","true",""')
    listed = wire.xml("GET", f"/job/{job}/batch")
    assert [child(info, "id") for info in listed] == [batch]


def test_csv_batch_with_windows_line_ends_is_read(wire: Wire) -> None:
    job = wire.json("POST", "/job", {"operation": "insert", "object": OBJECT, "contentType": "CSV"})["id"]
    rows = 'Name,Day__c\r\n"two\r\nlines",2024-02-29\r\nplain,\r\n'
    batch = child(wire.xml("POST", f"/job/{job}/batch", rows, "text/csv"), "id")
    info = wire.wait(job, batch)
    assert (info["state"], info["numberRecordsProcessed"], info["numberRecordsFailed"]) == ("Completed", 2, 0)


def test_batches_of_a_csv_job_are_told_in_xml_whatever_the_type_of_no_body(wire: Wire) -> None:
    asked = {"operation": "queryAll", "object": OBJECT, "contentType": "CSV"}
    job = wire.json("POST", "/job", asked)["id"]
    batch = child(wire.xml("POST", f"/job/{job}/batch", f"SELECT Id FROM {OBJECT}", "text/csv"), "id")
    _, content_type, listed = wire.send("GET", f"/job/{job}/batch", None, "application/json")
    assert (content_type, [child(info, "id") for info in fromstring(listed)]) == ("application/xml", [batch])
    status, content_type, refused = wire.send("GET", "/job/750000000000001AAA", None, "application/json")
    assert (status, content_type, json.loads(refused)["exceptionCode"]) == (
        400,
        "application/json",
        "InvalidJob",
    )


def test_info_of_a_json_job_names_its_type_alone(wire: Wire) -> None:
    body = json.dumps({"operation": "insert", "object": OBJECT, "contentType": "JSON"})
    _, content_type, _ = wire.send("POST", "/job", body, "application/json; charset=UTF-8")
    assert content_type == "application/json"  # salesforce-bulk compares the whole header


def test_parent_that_is_not_there_is_null_in_json(wire: Wire, rest: Rest) -> None:
    name = f"orphan {time.time_ns()}"
    parent = rest.create("Account", {"Name": f"{name} parent"})
    rest.create("Account", {"Name": name})
    rest.create("Account", {"Name": name, "ParentId": parent})
    job = wire.json("POST", "/job", {"operation": "query", "object": "Account", "contentType": "JSON"})["id"]
    soql = f"SELECT Parent.Phone, Parent.Owner.IsActive FROM Account WHERE Name = '{name}' ORDER BY ParentId"
    batch = wire.json("POST", f"/job/{job}/batch", raw=soql)["id"]
    assert wire.wait(job, batch)["state"] == "Completed"
    (result,) = wire.json("GET", f"/job/{job}/batch/{batch}/result")
    alone, below = wire.json("GET", f"/job/{job}/batch/{batch}/result/{result}")
    assert alone["Parent"] is None
    assert (below["Parent"]["attributes"]["type"], below["Parent"]["Phone"]) == ("Account", None)
    assert below["Parent"]["Owner"]["IsActive"] is True


def test_xml_batch_is_answered_as_xml(wire: Wire) -> None:
    body = XML_HEAD.format("jobInfo") + f"<operation>insert</operation><object>{OBJECT}</object></jobInfo>"
    job = child(wire.xml("POST", "/job", body), "id")
    rows = XML_HEAD.format("sObjects") + (
        "<sObject><Name>x &amp; y</Name></sObject>"
        "<sObject><Size__c>1</Size__c><Day__c>never</Day__c></sObject></sObjects>"
    )
    batch = child(wire.xml("POST", f"/job/{job}/batch", rows), "id")
    assert wire.wait(job, batch)["state"] == "Completed"
    good, bad = wire.xml("GET", f"/job/{job}/batch/{batch}/result")
    assert (child(good, "success"), child(good, "created")) == ("true", "true")
    assert child(bad, "success") == "false"
    assert bad.findtext(f"{NS}errors/{NS}statusCode") == "INVALID_TYPE_ON_FIELD_IN_RECORD"


@pytest.mark.parametrize("content_type", ["CSV", "JSON", "XML"])
def test_query_batch_has_one_result_in_the_jobs_format(wire: Wire, rest: Rest, content_type: str) -> None:
    name = f"query {content_type}"
    record = rest.create(OBJECT, {"Name": name, "Day__c": "2024-02-29", "Flag__c": True, "Size__c": 2})
    asked = {"operation": "query", "object": OBJECT, "contentType": content_type}
    job = wire.json("POST", "/job", asked)["id"]
    soql = f"SELECT Id, Name, Day__c, Flag__c, Size__c, Owner.Name FROM {OBJECT} WHERE Name = '{name}'"
    batch = wire.json("POST", f"/job/{job}/batch", raw=soql)["id"]
    assert wire.wait(job, batch)["state"] == "Completed"
    _, _, answer = wire.send("GET", f"/job/{job}/batch/{batch}/result", None, "")
    is_json = content_type == "JSON"
    (result,) = json.loads(answer) if is_json else [str(e.text) for e in fromstring(answer)]
    assert result.startswith("752")
    _, _, answer = wire.send("GET", f"/job/{job}/batch/{batch}/result/{result}", None, "")
    if content_type == "CSV":
        row = answer.decode().splitlines()[1]
        assert row == f'"{record}","{name}","2024-02-29","true","2.0","Ada Admin"'
    elif is_json:
        (found,) = json.loads(answer)
        assert found["attributes"] == {
            "type": OBJECT,
            "url": f"/services/data/v52.0/sobjects/{OBJECT}/{record}",
        }
        assert (found["Day__c"], found["Flag__c"], found["Size__c"]) == (1709164800000, True, 2.0)
        owner = rest.query(f"SELECT OwnerId FROM {OBJECT} WHERE Id = '{record}'")[0]["OwnerId"]
        url = f"/services/data/v52.0/sobjects/User/{owner}"
        assert found["Owner"] == {"attributes": {"type": "User", "url": url}, "Name": "Ada Admin"}
    else:
        (found,) = fromstring(answer)
        assert [child(found, n) for n in ("type", "Id", "Day__c", "Flag__c")] == [
            OBJECT,
            record,
            "2024-02-29",
            "true",
        ]
        assert [found.findtext(f"{NS}Owner/{NS}{n}") for n in ("type", "Name")] == ["User", "Ada Admin"]


def test_query_that_is_wrong_fails_its_batch_with_the_reason(wire: Wire) -> None:
    job = wire.json("POST", "/job", {"operation": "query", "object": OBJECT, "contentType": "JSON"})["id"]
    batch = wire.json("POST", f"/job/{job}/batch", raw=f"SELECT Nope FROM {OBJECT}")["id"]
    info = wire.wait(job, batch)
    assert info["state"] == "Failed"
    assert info["stateMessage"].startswith("InvalidBatch : Failed to process query: ")
    status, _, answer = wire.send("GET", f"/job/{job}/batch/{batch}/result", None, "application/json")
    assert (status, json.loads(answer)["exceptionCode"]) == (400, "InvalidBatch")


def test_aborted_job_takes_no_more_batches(wire: Wire) -> None:
    job = wire.json("POST", "/job", {"operation": "insert", "object": OBJECT, "contentType": "JSON"})["id"]
    assert wire.json("POST", f"/job/{job}", {"state": "Aborted"})["state"] == "Aborted"
    status, _, answer = wire.send("POST", f"/job/{job}/batch", "[]", "application/json")
    assert (status, json.loads(answer)["exceptionCode"]) == (400, "InvalidJobState")


@pytest.mark.parametrize(
    "method, path, body, code",
    [
        ("POST", "/job", "{}", "InvalidJob"),
        ("POST", "/job", "nonsense", "ClientInputError"),
        ("POST", "/job", '{"operation": "insert", "object": "Nope__c"}', "InvalidEntity"),
        ("POST", "/job", '{"operation": "dance", "object": "Account"}', "InvalidOperation"),
        ("GET", "/job/750000000000000AAA", None, "InvalidJob"),
        ("GET", "/nonsense", None, "InvalidUrl"),
        ("DELETE", "/job", None, "MethodNotAllowed"),
    ],
)
def test_bad_request_is_refused_in_json(
    wire: Wire, method: str, path: str, body: str | None, code: str
) -> None:
    status, _, answer = wire.send(method, path, body, "application/json")
    error = json.loads(answer)
    assert (status, error["exceptionCode"]) == (400, code)
    assert set(error) == {"exceptionCode", "exceptionMessage"}


def test_bad_session_is_refused_in_xml_as_clients_look_for_it(server: ServerProcess) -> None:
    with closing(Wire(server, "00Dnonsense")) as stranger:
        status, content_type, answer = stranger.send("GET", "/job/750000000000000AAA", None, "")
    assert (status, content_type) == (400, "application/xml")
    assert b"<exceptionCode>InvalidSessionId</exceptionCode>" in answer


def test_transformation_spec_turns_foreign_columns_into_fields(wire: Wire, rest: Rest) -> None:
    asked = {"operation": "insert", "object": OBJECT, "contentType": "CSV"}
    job = wire.json("POST", "/job", asked)["id"]
    spec = (
        "Salesforce Field,Csv Header,Value,Hint\n"
        "Name,Called,,\nDay__c,When,,dd.MM.yyyy\nFlag__c,Okay,,^(aye|yes)$\nSize__c,,7,\n"
    )
    status, _, answer = wire.send("POST", f"/job/{job}/spec", spec, "text/csv")
    assert (status, answer) == (200, b"")
    data = "When,Called,Noise,Okay\n29.02.2024,transformed,x,aye\n"
    batch = child(wire.xml("POST", f"/job/{job}/batch", data, "text/csv"), "id")
    assert wire.wait(job, batch)["state"] == "Completed"
    (row,) = rest.query(f"SELECT Day__c, Flag__c, Size__c FROM {OBJECT} WHERE Name = 'transformed'")
    assert (row["Day__c"], row["Flag__c"], row["Size__c"]) == ("2024-02-29", True, 7.0)
    status, _, answer = wire.send("POST", f"/job/{job}/spec", spec, "text/csv")
    assert (status, child(fromstring(answer), "exceptionCode")) == (400, "InvalidJobState")


def test_transformation_spec_that_makes_no_sense_is_refused(wire: Wire) -> None:
    job = wire.json("POST", "/job", {"operation": "insert", "object": OBJECT, "contentType": "CSV"})["id"]
    status, _, answer = wire.send("POST", f"/job/{job}/spec", "a,b\n1,2\n", "text/csv")
    assert (status, child(fromstring(answer), "exceptionCode")) == (400, "ClientInputError")
    job = wire.json("POST", "/job", {"operation": "insert", "object": OBJECT, "contentType": "JSON"})["id"]
    status, _, answer = wire.send("POST", f"/job/{job}/spec", "a,b\n1,2\n", "text/csv")
    assert (status, child(fromstring(answer), "exceptionCode")) == (400, "InvalidJob")


def test_zipped_batches_and_jobs_are_refused(wire: Wire) -> None:
    body = json.dumps({"operation": "insert", "object": OBJECT, "contentType": "ZIP_CSV"})
    status, _, answer = wire.send("POST", "/job", body, "application/json")
    assert (status, json.loads(answer)["exceptionCode"]) == (400, "InvalidJob")
    job = wire.json("POST", "/job", {"operation": "insert", "object": OBJECT, "contentType": "CSV"})["id"]
    status, _, answer = wire.send("POST", f"/job/{job}/batch", "PK", "zip/csv")
    assert (status, child(fromstring(answer), "exceptionCode")) == (400, "FeatureNotEnabled")
