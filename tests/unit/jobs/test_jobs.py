"""Bulk jobs against a real core: writes, rejections, and what each user may see."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.orgs import TestOrg, open_org
from tests.published import bodies
from tidewire.clock import ManualClock
from tidewire.errors import FieldUnknown, JobInvalid, JobStateInvalid, ResourceUnknown
from tidewire.events import Family, Value
from tidewire.jobs.model import (
    Batch,
    BatchState,
    Job,
    JobKind,
    JobRequest,
    JobState,
    Operation,
    Outcome,
)
from tidewire.jobs.service import KEPT_MS

pytestmark = pytest.mark.anyio

INSERT = JobRequest(JobKind.INGEST, Operation.INSERT, "Account", 60, "com/test")


async def run(org: TestOrg, request: JobRequest, data: str | bytes) -> tuple[Job, Batch, list[Outcome]]:
    """Carry a job through; the job and its batch as they ended, and what became of each row."""
    jobs = org.core.jobs
    job = await jobs.create(org.admin, request)
    raw = data if isinstance(data, bytes) else data.encode()
    await jobs.upload(job, iter((raw,)))
    await jobs.close(job)
    await org.core.job_runner.wait_idle()
    job = await jobs.find(org.admin, job.job_id, JobKind.INGEST)
    (batch,) = await jobs.batches(job)
    return job, batch, [o async for some in jobs.iter_outcomes(batch) for o in some]


async def query(org: TestOrg, soql: str) -> list[list[Value]]:
    rows = await org.gate.query(org.admin, soql)
    return [[row[field.name] for field in rows.columns] for row in rows.rows]  # type: ignore[misc]


async def test_insert_writes_rows_and_reports_each_outcome(org: TestOrg) -> None:
    job, batch, outcomes = await run(
        org, INSERT, "Name,NumberOfEmployees,Phone\nAcme,5,\nBad,many,\n,1,\nBolt,#N/A,123\n"
    )
    assert (job.state, batch.rows_done, batch.rows_failed) == (JobState.JOB_COMPLETE, 4, 2)
    assert [o.code for o in outcomes] == ["", "value_malformed", "required_field_missing", ""]
    assert [o.is_new for o in outcomes] == [True, False, False, True]
    found = await query(org, "SELECT Name, NumberOfEmployees, Phone FROM Account ORDER BY Name")
    assert found == [["Acme", 5, None], ["Bolt", None, "123"]]


async def test_update_ignores_empty_cells_and_clears_marked_ones(org: TestOrg) -> None:
    first = await org.make_account("One", Phone="1", Fax="1")
    job, _, outcomes = await run(
        org,
        replace(INSERT, operation=Operation.UPDATE),
        f"Id,Name,Phone,Fax\n{first},Uno,,#N/A\n,x,,\n001000000000000AAA,y,,\nnonsense,z,,\n",
    )
    assert job.state is JobState.JOB_COMPLETE
    assert [o.code for o in outcomes] == ["", "id_malformed", "record_not_found", "id_malformed"]
    assert await query(org, "SELECT Name, Phone, Fax FROM Account") == [["Uno", "1", None]]


async def test_upsert_of_one_key_twice_in_a_chunk_is_refused(org: TestOrg) -> None:
    await org.apply(objects={"Account": {"fields": {"Key__c": {"type": "Number", "external_id": True}}}})
    request = replace(INSERT, operation=Operation.UPSERT, external_id="Key__c")
    rows = ["Name,Key__c", "a,1", "b,2", "c,1.0", *(f"n,{number}" for number in range(10, 210)), "later,2"]
    _, batch, outcomes = await run(org, request, "\n".join(rows) + "\n")
    assert (batch.rows_done, batch.rows_failed) == (204, 2)
    assert [o.code for o in outcomes[:3]] == ["duplicate_value", "", "duplicate_value"]
    assert await query(org, "SELECT Name FROM Account WHERE Key__c < 10") == [["later"]]


async def test_upsert_finds_records_and_their_parents_by_external_ids(org: TestOrg) -> None:
    key = {"type": "Text", "length": 20, "external_id": True, "unique": True}
    await org.apply(
        objects={"Account": {"fields": {"Key__c": key}}, "Contact": {"fields": {"Number__c": key}}}
    )
    account = await org.make_account("Acme", Key__c="A")
    request = replace(INSERT, entity="contact", operation=Operation.UPSERT, external_id="number__C")
    data = "Number__c,LastName,Account.Key__c\n1,Ada,A\n2,Bob,\n3,Cy,missing\n"
    _, _, outcomes = await run(org, request, data)
    assert [(o.is_new, o.code) for o in outcomes] == [(True, ""), (True, ""), (False, "field_unknown")]
    _, _, outcomes = await run(org, request, "Number__c,LastName,Account.Key__c\n1,Eve,#N/A\n,x,\n")
    assert [(o.is_new, o.code) for o in outcomes] == [(False, ""), (False, "required_field_missing")]
    assert await query(org, "SELECT LastName, AccountId FROM Contact ORDER BY LastName") == [
        ["Bob", None],
        ["Eve", None],
    ]
    assert account


async def test_delete_fills_the_bin_and_hard_delete_does_not(org: TestOrg) -> None:
    kept, gone = await org.make_account("Kept"), await org.make_account("Gone")
    _, _, soft = await run(org, replace(INSERT, operation=Operation.DELETE), f"Id\n{kept}\n")
    _, _, hard = await run(org, replace(INSERT, operation=Operation.HARD_DELETE), f"id\n{gone}\n")
    assert [o.code for o in soft + hard] == ["", ""]
    rows = await org.gate.query(org.admin, "SELECT Name FROM Account", include_deleted=True)
    assert [row["Name"] for row in rows.rows] == ["Kept"]


@pytest.mark.parametrize(
    "operation, data, message",
    [
        (Operation.INSERT, "Name,Nope\nx,y\n", "InvalidBatch : Field name not found : Nope"),
        (Operation.INSERT, "Name,Parent.Nope\nx,y\n", "InvalidBatch : Field name not found : Parent.Nope"),
        (Operation.INSERT, "Name,Nope.Name\nx,y\n", "InvalidBatch : Field name not found : Nope.Name"),
        (Operation.INSERT, "Name,name\nx,y\n", "InvalidBatch : Field name found twice : name"),
        (Operation.DELETE, "Id,Name\nx,y\n", "InvalidBatch : delete batch must contain only ids"),
        (Operation.INSERT, 'Name\nok\n"open\n', "InvalidBatch : Failed to parse CSV"),
        (Operation.INSERT, b"Name\nok\n\xff\n", "InvalidBatch : Failed to parse CSV: the data is not UTF-8"),
        (Operation.INSERT, "Name\r\nx\r\n", "ClientInputError : LineEnding is invalid"),
        (Operation.INSERT, "", "InvalidBatch : Records not found"),
    ],
)
async def test_invalid_upload_fails_the_job_and_writes_nothing(
    org: TestOrg, operation: Operation, data: str | bytes, message: str
) -> None:
    job, batch, outcomes = await run(org, replace(INSERT, operation=operation), data)
    assert job.state is JobState.FAILED
    assert job.error.startswith(message)
    assert (batch.state, outcomes) == (BatchState.FAILED, [])
    assert await query(org, "SELECT Name FROM Account") == []


async def test_row_with_too_few_values_fails_alone(org: TestOrg) -> None:
    _, _, outcomes = await run(org, INSERT, "Name,Phone\nAcme\nBolt,1\n")
    assert [o.code for o in outcomes] == ["body_malformed", ""]


async def test_job_makes_change_events_and_no_notifications(org: TestOrg) -> None:
    topic = {"Name": "Accounts", "Query": "SELECT Id, Name FROM Account", "ApiVersion": 60.0}
    pushed = await org.gate.create(org.call, "PushTopic", topic)
    head = await org.link.read_log_head()
    await run(org, INSERT, "Name\nAcme\n")

    async def seen(family: Family, topics: frozenset[str]) -> int:
        return len((await org.link.read_log(family, topics, head, 100, 1 << 20)).events)

    assert await seen(Family.CHANGE, frozenset({"AccountChangeEvent"})) == 1
    assert await seen(Family.PUSH_TOPIC, frozenset({pushed})) == 0
    await org.make_account("Bolt")
    assert await seen(Family.PUSH_TOPIC, frozenset({pushed})) == 1


async def test_chunks_of_a_long_job_are_separate_transactions(org: TestOrg) -> None:
    before = org.core.writer.progress.commit_number
    _, batch, _ = await run(org, INSERT, "Name\n" + "x\n" * 450)
    assert batch.rows_done == 450
    assert org.core.writer.progress.commit_number - before == 3


async def test_abort_leaves_what_is_done_and_processes_no_more(org: TestOrg) -> None:
    jobs = org.core.jobs
    job = await jobs.create(org.admin, INSERT)
    await jobs.upload(job, iter((b"Name\n" + b"x\n" * 30_000,)))
    await jobs.close(job)
    while not (await jobs.batches(job))[0].rows_done:
        pass
    aborted = await jobs.abort(job)
    (at_abort,) = await jobs.batches(job)
    await org.core.job_runner.wait_idle()
    (batch,) = await jobs.batches(job)
    assert aborted.state is JobState.ABORTED
    assert (batch.state, batch.rows_done) == (BatchState.NOT_PROCESSED, at_abort.rows_done)
    rows = await org.gate.query(org.admin, "SELECT COUNT() FROM Account")
    assert 0 < batch.rows_done < 30_000
    assert rows.count == batch.rows_done


async def test_states_refuse_what_they_do_not_allow(org: TestOrg) -> None:
    jobs = org.core.jobs
    job = await jobs.create(org.admin, INSERT)
    with pytest.raises(JobStateInvalid, match="no data"):
        await jobs.close(job)
    with pytest.raises(JobStateInvalid, match="Open"):
        await jobs.delete(job)
    await jobs.upload(job, iter((b"Name\nx\n",)))
    with pytest.raises(JobStateInvalid, match="multiple contents"):
        await jobs.upload(job, iter((b"Name\nx\n",)))
    await jobs.close(job)
    await org.core.job_runner.wait_idle()
    with pytest.raises(JobStateInvalid, match="JobComplete"):
        await jobs.close(job)
    with pytest.raises(JobStateInvalid, match="already Completed"):
        await jobs.abort(job)
    await jobs.delete(job)
    with pytest.raises(ResourceUnknown):
        await jobs.find(org.admin, job.job_id, JobKind.INGEST)


async def test_broken_upload_leaves_an_open_job_without_data(org: TestOrg) -> None:
    def broken() -> list[bytes]:
        raise JobInvalid("broken", reason="Test")

    jobs = org.core.jobs
    job = await jobs.create(org.admin, INSERT)
    with pytest.raises(JobInvalid):
        await jobs.upload(job, (block for block in (b"Name\n", b"", broken())))  # type: ignore[misc]
    assert await jobs.batches(job) == []
    await jobs.upload(job, iter((b"Name\nx\n",)))
    assert len(await jobs.batches(job)) == 1


async def test_jobs_of_others_do_not_exist_for_a_plain_user(org: TestOrg) -> None:
    jobs = org.core.jobs
    job = await jobs.create(org.admin, INSERT)
    with pytest.raises(ResourceUnknown):
        await jobs.find(org.reader, job.job_id, JobKind.INGEST)
    assert await jobs.list_jobs(org.reader, [JobKind.INGEST], 0, 10) == []
    assert [found.job_id for found, _ in await jobs.list_jobs(org.admin, [JobKind.INGEST], 0, 10)] == [
        job.job_id
    ]


async def test_rights_are_those_of_the_jobs_owner(org: TestOrg) -> None:
    jobs = org.core.jobs
    with pytest.raises(JobInvalid, match="Entity 'Opportunity' is not supported"):
        await jobs.create(org.reader, replace(INSERT, entity="Opportunity"))
    with pytest.raises(JobInvalid, match="permission"):
        await jobs.create(org.reader, replace(INSERT, operation=Operation.HARD_DELETE))
    account = await org.make_account("Acme")
    job = await jobs.create(org.reader, replace(INSERT, operation=Operation.DELETE))
    await jobs.upload(job, iter((f"Id\n{account}\n".encode(),)))
    await jobs.close(job)
    await org.core.job_runner.wait_idle()
    (batch,) = await jobs.batches(job)
    (outcomes,) = [o async for o in jobs.iter_outcomes(batch)]
    assert [o.code for o in outcomes] == ["access_denied"]


async def test_job_of_a_user_who_is_no_longer_active_fails(org: TestOrg) -> None:
    jobs = org.core.jobs
    job = await jobs.create(org.reader, replace(INSERT, operation=Operation.DELETE))
    await jobs.upload(job, iter((b"Id\nx\n",)))
    await org.gate.update(org.call, "User", org.reader.user_id, {"IsActive": False})
    await jobs.close(job)
    await org.core.job_runner.wait_idle()
    failed = await jobs.find(org.admin, job.job_id, JobKind.INGEST)
    assert (failed.state, failed.error.split(" : ")[0]) == (JobState.FAILED, "InvalidUser")


async def test_query_keeps_its_result_in_order(org: TestOrg) -> None:
    for number in range(5):
        await org.make_account(f"A{number}", NumberOfEmployees=number)
    soql = "SELECT Name, NumberOfEmployees, Owner.Name, Parent.Name FROM Account ORDER BY Name"
    jobs = org.core.jobs
    job = await jobs.create(org.admin, JobRequest(JobKind.QUERY, Operation.QUERY, "", 60, "", query=soql))
    await org.core.job_runner.wait_idle()
    (batch,) = await jobs.batches(job)
    assert [column.path for column in batch.columns] == [
        "Name",
        "NumberOfEmployees",
        "Owner.Name",
        "Parent.Name",
        "Owner",
        "Parent",
    ]
    owner = f"User/{org.admin.user_id}"
    rows = [row[1:] for some in [r async for r in jobs.iter_result(batch, 1, 3)] for row in some]
    assert rows == [[f"A{n}", n, "Ada Admin", None, owner, None] for n in (1, 2, 3)]


async def test_query_has_the_columns_of_every_type_that_a_parent_may_be(org: TestOrg) -> None:
    case = {"Subject": "s", "OwnerId": org.admin.user_id}
    await org.gate.create(org.call, "Case", case)
    soql = "SELECT Owner.Name, Owner.Username, Subject FROM Case"
    jobs = org.core.jobs
    job = await jobs.create(org.admin, JobRequest(JobKind.QUERY, Operation.QUERY, "", 60, "", query=soql))
    await org.core.job_runner.wait_idle()
    (batch,) = await jobs.batches(job)
    (rows,) = [some async for some in jobs.iter_result(batch, 0, 1)]
    columns = [column.path for column in batch.columns if not column.is_parent]
    assert columns == ["Owner.Name", "Owner.Username", "Subject"]
    assert rows[0][1:4] == ["Ada Admin", org.admin.username, "s"]


@pytest.mark.parametrize(
    "soql",
    [
        "SELECT COUNT() FROM Account",
        "SELECT COUNT(Id) FROM Account",
        "SELECT Name FROM Account LIMIT 1 OFFSET 1",
        "SELECT Name, (SELECT LastName FROM Contacts) FROM Account",
        "SELECT BillingAddress FROM Account",
        "SELECT TYPEOF Owner WHEN User THEN Name END FROM Case",
    ],
)
async def test_query_that_flat_rows_cannot_hold_is_refused(org: TestOrg, soql: str) -> None:
    asked = JobRequest(JobKind.QUERY, Operation.QUERY, "", 60, "", query=soql)
    with pytest.raises(JobInvalid):
        await org.core.jobs.create(org.admin, asked)


async def test_query_for_a_field_that_is_hidden_is_refused(org: TestOrg) -> None:
    asked = JobRequest(JobKind.QUERY, Operation.QUERY, "", 60, "", query="SELECT AnnualRevenue FROM Account")
    with pytest.raises(FieldUnknown):
        await org.core.jobs.create(org.reader, asked)


async def test_job_goes_on_after_a_restart_where_it_was(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("restart")
    async with open_org(directory) as org:
        job = await org.core.jobs.create(org.admin, INSERT)
        await org.core.jobs.upload(job, iter((b"Name\n" + b"".join(b"n%d\n" % n for n in range(9_000)),)))
        await org.core.jobs.close(job)
        while not (await org.core.jobs.batches(job))[0].rows_done:
            pass
    async with open_org(directory) as org:
        await org.core.job_runner.wait_idle()
        (batch,) = await org.core.jobs.batches(job)
        names = await query(org, "SELECT Name FROM Account")
    assert (batch.state, batch.rows_done) == (BatchState.COMPLETED, 9_000)
    assert sorted(str(name) for (name,) in names) == sorted(f"n{n}" for n in range(9_000))


async def test_old_jobs_are_removed_with_their_data(tmp_path_factory: pytest.TempPathFactory) -> None:
    clock = ManualClock()
    async with open_org(tmp_path_factory.mktemp("old"), clock) as org:
        await run(org, INSERT, "Name\nx\n")
        clock.advance(KEPT_MS / 1000 + 1)
        await org.core.jobs.purge()
        left = await org.core.records.read(
            lambda reader: [
                reader.execute(f"SELECT COUNT(*) FROM {table}")[0][0]
                for table in ("bulk_jobs", "bulk_batches", "bulk_parts", "bulk_results")
            ]
        )
    assert left == [0, 0, 0, 0]


async def test_long_rows_are_taken_a_few_at_a_time(org: TestOrg) -> None:
    job = await org.core.jobs.create(org.admin, INSERT)
    row = b"x," + b"y" * 100_000 + b"\n"
    await org.core.jobs.upload(job, iter((b"Name,Description\n" + row * 100,)))
    (batch,) = await org.core.jobs.batches(job)
    slices = [len(rows) async for rows in org.core.jobs.iter_input(job, batch)]
    assert sum(slices) == 101
    assert max(slices) < 50


async def test_insert_of_a_platform_event_publishes_a_row_each(org: TestOrg) -> None:
    fields = {
        "Code__c": {"type": "Text", "length": 5, "required": True},
        "Done__c": {"type": "Checkbox"},
        "On__c": {"type": "Date"},
    }
    await org.apply(events={"Bulky__e": {"fields": fields}})
    head = await org.link.read_log_head()
    job, batch, outcomes = await run(
        org,
        replace(INSERT, entity="bulky__E"),
        "Code__c,Done__c,On__c\na,1,\ntoolong,,\n,0,\nb,yes,2024-02-03\nc,,soon\n",
    )
    assert (job.state, job.request.entity) == (JobState.JOB_COMPLETE, "Bulky__e")
    assert (batch.rows_done, batch.rows_failed) == (5, 3)
    assert [o.code for o in outcomes] == [
        "",
        "text_too_long",
        "required_field_missing",
        "",
        "value_malformed",
    ]
    told = await bodies(org, "Bulky__e", head)
    assert [(b["Code__c"], b["Done__c"]) for b in told] == [("a", True), ("b", True)]
    assert [o.record_id[:3] for o in outcomes if not o.code] == [outcomes[0].record_id[:3]] * 2


@pytest.mark.parametrize("operation", [Operation.UPDATE, Operation.DELETE, Operation.UPSERT])
async def test_job_that_would_change_platform_events_is_refused(org: TestOrg, operation: Operation) -> None:
    with pytest.raises(JobInvalid, match="not supported by the Bulk API"):
        await org.core.jobs.create(org.admin, replace(INSERT, entity="Order_Event__e", operation=operation))


async def test_job_for_an_event_that_the_user_may_not_publish_is_refused(org: TestOrg) -> None:
    with pytest.raises(JobInvalid, match="not supported by the Bulk API"):
        await org.core.jobs.create(org.reader, replace(INSERT, entity="Order_Event__e"))


async def test_bulk_query_is_told_to_those_who_monitor(org: TestOrg) -> None:
    record_id = await org.make_account("A")
    await org.apply(settings={"monitoring_events": ["ApiEventStream"]})
    head = await org.link.read_log_head()
    request = JobRequest(JobKind.QUERY, Operation.QUERY, "", 60, "com/test", query="SELECT Id FROM Account")
    await org.core.jobs.create(org.admin, request)
    await org.core.job_runner.wait_idle()
    (told,) = await bodies(org, "ApiEventStream", head)
    assert (told["ApiType"], told["RowsReturned"], told["QueriedEntities"]) == ("Bulk", 1.0, "Account")
    assert record_id in told["Records"]
