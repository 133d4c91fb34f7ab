"""Bulk jobs on every kind of store: written, read back and deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orgs import open_org
from tests.postgres import PostgresServer
from tests.stores import STORES
from tidewire.jobs.model import JobKind, JobRequest, JobState, Operation

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("kind", STORES)
async def test_job_runs_to_its_end_on_every_store(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = "sqlite"
    if kind == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        store = server.make_url()
    async with open_org(tmp_path / "org", store=store) as org:
        jobs = org.core.jobs
        job = await jobs.create(org.admin, JobRequest(JobKind.INGEST, Operation.INSERT, "Account", 60, ""))
        data = b"Name,NumberOfEmployees\n" + b"".join(b"n%d,%d\n" % (n, n) for n in range(450)) + b"bad,x\n"
        await jobs.upload(job, iter((data,)))
        await jobs.close(job)
        soql = "SELECT Name FROM Account ORDER BY NumberOfEmployees"
        await org.core.job_runner.wait_idle()
        (batch,) = await jobs.batches(job)
        asked = JobRequest(JobKind.QUERY, Operation.QUERY, "", 60, "", query=soql)
        found = await jobs.create(org.admin, asked)
        await org.core.job_runner.wait_idle()
        (result,) = await jobs.batches(found)
        names = [row[1] for some in [r async for r in jobs.iter_result(result, 0, 999)] for row in some]
        ended = await jobs.find(org.admin, job.job_id, JobKind.INGEST)
        await jobs.delete(ended)
        listed = await jobs.list_jobs(org.admin, list(JobKind), 0, 10)
    assert (ended.state, batch.rows_done, batch.rows_failed) == (JobState.JOB_COMPLETE, 451, 1)
    assert names == [f"n{n}" for n in range(450)]
    assert [each.job_id for each, _ in listed] == [found.job_id]
