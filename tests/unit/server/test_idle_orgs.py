"""What further orgs owe although nobody has come to open them: their jobs, and answers to browsers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tidewire.clock import ManualClock
from tidewire.config import Settings
from tidewire.jobs import store
from tidewire.jobs.model import BatchState, JobKind, JobRequest, JobState, Operation
from tidewire.server.core import Core, open_core
from tidewire.server.org_admin import create_additional_org
from tidewire.server.org_locations import additional_org_settings
from tidewire.server.orgs import Orgs
from tidewire.server.probes import Probes
from tidewire.server.routing import OrgRouter
from tidewire.storage.store import Transaction
from tidewire.transport.http import HttpRequest

pytestmark = pytest.mark.anyio
BETA = "admin@beta.example"
ORIGIN = "https://beta.example"


@pytest.fixture
async def settings(tmp_path: Path) -> Settings:
    settings = Settings(data=str(tmp_path / "data"), dev=True, org_idle_s=300)
    await (await open_core(settings, ManualClock())).close()
    return settings


@pytest.fixture
async def beta(settings: Settings) -> str:
    """The id of a second org, which has a query waiting and lists an origin."""
    clock = ManualClock()
    org_id, password = await create_additional_org(settings, clock, "Beta", BETA)
    core = await open_core(additional_org_settings(settings, org_id), clock)
    admin = (await core.logins.login(BETA, password, "test")).principal
    request = JobRequest(JobKind.QUERY, Operation.QUERY, "User", 60, "test", query="SELECT Id FROM User")

    def work(tx: Transaction) -> None:
        job = store.insert_job(tx, request, JobState.UPLOAD_COMPLETE, admin.user_id, clock.now_ms())
        store.insert_batch(tx, job.job_id, BatchState.QUEUED, 0, clock.now_ms())
        types = core.records.types
        types.change_settings(tx, replace(types.settings, cors_allowed_origins=(ORIGIN,)))

    await core.job_runner.wait_idle()
    await core.records.write_plain(work)
    await core.close()
    return org_id


@pytest.fixture
async def orgs(settings: Settings, beta: str) -> AsyncIterator[Orgs]:
    running = Orgs(settings, ManualClock())
    await running.start()
    yield running
    await running.close()


async def core_of(orgs: Orgs, org_id: str) -> Core:
    """The core of an org once somebody else has opened it."""
    async with asyncio.timeout(120):
        while True:
            for org in orgs.open_orgs:
                if org.org_id == org_id:
                    return org.core
            await asyncio.sleep(0)


async def test_job_of_an_unused_org_resumes_at_the_start(orgs: Orgs, beta: str) -> None:
    core = await core_of(orgs, beta)
    await core.job_runner.wait_idle()
    jobs = await core.records.read(lambda reader: store.list_jobs(reader, [JobKind.QUERY], None, 0, 10))
    assert [job.state for job in jobs] == [JobState.JOB_COMPLETE]


@pytest.mark.parametrize("origin, status", [(ORIGIN, 204), ("https://other.example", 401)])
async def test_preflight_is_answered_by_what_any_org_lists(orgs: Orgs, origin: str, status: int) -> None:
    headers = {"origin": origin, "access-control-request-method": "GET"}
    request = HttpRequest("OPTIONS", "/services/data/v60.0/limits", headers)
    probes = Probes(Settings(), orgs, ManualClock(), list, str)
    response = await OrgRouter(orgs, probes).answer(request)
    assert response.status == status
    told = dict(response.headers).get("Access-Control-Allow-Origin")
    assert told == (origin if status == 204 else None)
