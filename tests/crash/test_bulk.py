"""A server that is killed in the middle of a bulk job: every row happens once, and its event with it."""

from __future__ import annotations

import time
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.running import API, Json, Rest, call_metadata, read_topic
from tidewire.testing import ServerProcess

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = 3_000
END_TIMEOUT_S = 150.0
OBJECT = "BulkCrash__c"
DEFINITION = {"objects": {OBJECT: {"name": {"type": "Text"}, "capture": True}}}


def start_job(server: ServerProcess, rest: Rest, token: str) -> str:
    job = rest.call("POST", f"{API}/jobs/ingest", {"object": OBJECT, "operation": "insert"})
    data = b"Name\n" + b"".join(b"row %d\n" % number for number in range(ROWS))
    connection = HTTPConnection(urlsplit(server.http).netloc, timeout=120)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "text/csv"}
    connection.request("PUT", f"/{job['contentUrl']}", data, headers)
    assert connection.getresponse().status == 201
    connection.close()
    rest.call("PATCH", f"{API}/jobs/ingest/{job['id']}", {"state": "UploadComplete"})
    return str(job["id"])


def wait_for_end(rest: Rest, job_id: str) -> Json:
    deadline = time.monotonic() + END_TIMEOUT_S
    while time.monotonic() < deadline:
        job = rest.call("GET", f"{API}/jobs/ingest/{job_id}")
        if job["state"] in ("JobComplete", "Failed", "Aborted"):
            return job
    raise AssertionError("the job does not end")


@pytest.mark.parametrize("point", ["jobs.chunk_done:4", "writer.before_commit:27"])
def test_job_killed_between_or_inside_chunks_writes_every_row_once(tmp_path: Path, point: str) -> None:
    with ServerProcess(tmp_path / "data") as server:
        rest = Rest(server.http, server.login())
        rest.call("POST", "/services/tidewire/v1/apply", DEFINITION)
        rest.close()
        server.kill()
        server.env["TIDEWIRE_CRASH_AT"] = point
        server.restart()
        token = server.login()
        rest = Rest(server.http, token)
        job_id = start_job(server, rest, token)
        rest.close()
        server.wait_crashed(END_TIMEOUT_S)
        del server.env["TIDEWIRE_CRASH_AT"]
        server.restart()
        rest = Rest(server.http, server.login())
        job = wait_for_end(rest, job_id)
        names = [record["Name"] for record in rest.query(f"SELECT Name FROM {OBJECT}")]
        rest.create(OBJECT, {"Name": "last"})
        rest.close()
        metadata = call_metadata(server.login(), server.http, server.org_id)
        events = read_topic(
            server.grpc,
            metadata,
            "/data/BulkCrash__ChangeEvent",
            lambda event: event.payload["Name"] == "last",
        )
    wanted = sorted(f"row {number}" for number in range(ROWS))
    assert (job["state"], job["numberRecordsProcessed"], job["numberRecordsFailed"]) == (
        "JobComplete",
        ROWS,
        0,
    )
    assert sorted(names) == wanted
    assert sorted(event.payload["Name"] for event in events[:-1]) == wanted
