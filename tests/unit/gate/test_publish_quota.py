"""The hourly quota of published events holds exactly on every path, and rolled back events give theirs back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.orgs import TestOrg
from tests.published import kept_events
from tests.unit.frontends.rest.data_caller import Caller
from tests.unit.frontends.soap.caller import sign_in
from tests.unit.jobs.test_jobs import INSERT, run
from tidewire.delivery.allocations import Allocations, find_allocation
from tidewire.errors import LimitExceeded, OutcomeUnknown, PlatformError, WriteConflict
from tidewire.gate.gate import Gate
from tidewire.gate.publish_quota import Charge, Reservation
from tidewire.gate.shared_transaction import run_in_transaction
from tidewire.matching.channel_values import PublishDraft
from tidewire.storage.store import Transaction

pytestmark = pytest.mark.anyio

FIELDS: dict[str, Any] = {"Code__c": {"type": "Text", "length": 5}}
EVENTS = {
    "Late__e": {"fields": FIELDS},
    "Prompt__e": {"fields": FIELDS, "publish": "immediately"},
    "Old__e": {"fields": FIELDS, "volume": "standard"},
}
TEXT = "The org's hourly allocation of published platform events is used up"
COLLECTIONS = "composite/sobjects"


def row(entity: str = "Late__e", **values: object) -> dict[str, object]:
    return {"attributes": {"type": entity}, **values}


async def limit(org: TestOrg, events: int) -> int:
    """Allow so many events in this hour, and return the head of the log."""
    await org.apply(events=EVENTS)
    enterprise = find_allocation("enterprise")
    assert enterprise is not None
    org.core.allocations.limits = replace(enterprise, published_events=events)
    return await org.link.read_log_head()


async def published(org: TestOrg, head: int) -> int:
    return len(await kept_events(org, "Late__e", head)) + len(await kept_events(org, "Prompt__e", head))


def left(org: TestOrg) -> int:
    """How many more events could be published now."""
    charge = org.core.allocations.reserve(1_000)
    org.core.allocations.release(charge)
    return charge.events


async def test_collection_publishes_exactly_what_is_left(org: TestOrg) -> None:
    head = await limit(org, 1)
    _, results = await Caller(org).send("POST", COLLECTIONS, {"records": [row()] * 200})
    assert [r["success"] for r in results] == [True] + [False] * 199
    assert {(r["errors"][0]["statusCode"], r["errors"][0]["message"]) for r in results[1:]} == {
        ("LIMIT_EXCEEDED", TEXT)
    }
    assert await published(org, head) == 1


async def test_collection_with_records_publishes_exactly_what_is_left(org: TestOrg) -> None:
    head = await limit(org, 1)
    records = [row("Account", Name="A"), *[row()] * 199]
    _, results = await Caller(org).send("POST", COLLECTIONS, {"records": records})
    assert [r["success"] for r in results] == [True, True] + [False] * 198
    assert {r["errors"][0]["statusCode"] for r in results[2:]} == {"LIMIT_EXCEEDED"}
    assert (await published(org, head), left(org)) == (1, 0)


async def test_rolled_back_collection_gives_its_events_back(org: TestOrg) -> None:
    head = await limit(org, 3)
    records = [row(), row("Account"), row()]
    _, results = await Caller(org).send("POST", COLLECTIONS, {"allOrNone": True, "records": records})
    assert not any(r["success"] for r in results)
    assert (await published(org, head), left(org)) == (0, 3)


def subrequest(number: int, entity: str, **body: object) -> dict[str, object]:
    path = f"/services/data/v60.0/sobjects/{entity}"
    return {"method": "POST", "url": path, "referenceId": f"r{number}", "body": body}


async def test_composite_beyond_the_quota_publishes_nothing_and_gives_all_back(org: TestOrg) -> None:
    head = await limit(org, 2)
    requests = [subrequest(n, "Late__e") for n in range(3)]
    _, answer = await Caller(org).send("POST", "composite", {"allOrNone": True, "compositeRequest": requests})
    codes = [part["body"][0]["errorCode"] for part in answer["compositeResponse"]]
    assert codes == ["PROCESSING_HALTED", "PROCESSING_HALTED", "LIMIT_EXCEEDED"]
    assert (await published(org, head), left(org)) == (0, 2)


async def test_composite_within_the_quota_uses_it_up(org: TestOrg) -> None:
    head = await limit(org, 2)
    requests = [subrequest(n, "Late__e") for n in range(2)]
    _, answer = await Caller(org).send("POST", "composite", {"allOrNone": True, "compositeRequest": requests})
    assert [part["httpStatusCode"] for part in answer["compositeResponse"]] == [201, 201]
    assert (await published(org, head), left(org)) == (2, 0)


async def test_events_that_survive_a_rollback_count(org: TestOrg) -> None:
    head = await limit(org, 5)
    requests = [subrequest(0, "Prompt__e"), subrequest(1, "Late__e"), subrequest(2, "Account")]
    _, answer = await Caller(org).send("POST", "composite", {"allOrNone": True, "compositeRequest": requests})
    assert answer["compositeResponse"][2]["httpStatusCode"] == 400
    assert (await published(org, head), left(org)) == (1, 4)


async def test_tree_beyond_the_quota_gives_all_back(org: TestOrg) -> None:
    head = await limit(org, 2)
    records = [{"attributes": {"type": "Late__e", "referenceId": f"r{n}"}} for n in range(3)]
    _, answer = await Caller(org).send("POST", "composite/tree/Late__e", {"records": records})
    assert answer["hasErrors"]
    assert await published(org, head) + left(org) == 2


async def test_soap_create_publishes_exactly_what_is_left(org: TestOrg) -> None:
    head = await limit(org, 1)
    caller = await sign_in(org)
    record = "<sObjects><type>Account</type><Name>A</Name></sObjects>"
    results = await caller.call("create", record + "<sObjects><type>Late__e</type></sObjects>" * 5)
    assert [r.findtext("success") for r in results] == ["true", "true"] + ["false"] * 4
    assert {r.findtext("errors/statusCode") for r in results[2:]} == {"REQUEST_LIMIT_EXCEEDED"}
    assert await published(org, head) == 1


async def test_bulk_job_publishes_exactly_what_is_left(org: TestOrg) -> None:
    head = await limit(org, 2)
    rows = "Code__c\na\ntoolong\nb\nc\nd\n"
    _, batch, outcomes = await run(org, replace(INSERT, entity="Late__e"), rows)
    assert (batch.rows_done, batch.rows_failed) == (5, 3)
    assert [o.code for o in outcomes] == ["", "text_too_long", "", LimitExceeded.code, LimitExceeded.code]
    assert (await published(org, head), left(org)) == (2, 0)


def drafts(org: TestOrg, count: int) -> list[PublishDraft]:
    schema = org.gate.latest_schema("Late__e")
    payload = schema.encode({"CreatedDate": 1, "CreatedById": "005"})
    return [PublishDraft(schema.schema_id, payload, f"e{n}") for n in range(count)]


async def test_grpc_and_rest_side_by_side_publish_exactly_what_is_left(org: TestOrg) -> None:
    head = await limit(org, 50)
    caller = Caller(org)
    mixed = {"records": [row("Account", Name="A"), *[row()] * 9]}
    grpc = [org.link.publish(org.admin, "/event/Late__e", drafts(org, 7)) for _ in range(6)]
    rest = [caller.send("POST", COLLECTIONS, mixed) for _ in range(6)]
    outcomes, answers = await asyncio.gather(asyncio.gather(*grpc), asyncio.gather(*rest))
    by_grpc = sum(7 - len(each.rejected) for each in outcomes)
    by_rest = sum(r["success"] for _, results in answers for r in results) - 6
    assert by_grpc + by_rest == 50
    assert (await published(org, head), left(org)) == (50, 0)


async def test_invalid_grpc_event_does_not_use_the_quota(org: TestOrg) -> None:
    await limit(org, 2)
    bad, *good = drafts(org, 4)
    submitted = [bad._replace(payload=b"\xff"), *good]
    outcomes = await org.link.publish(org.admin, "/event/Late__e", submitted)
    codes = dict(outcomes.rejected)
    assert sorted(codes) == [0, 3]
    assert codes[3].code == LimitExceeded.code
    assert codes[3].message.startswith("LIMIT_EXCEEDED: ")


async def test_standard_volume_events_do_not_count(org: TestOrg) -> None:
    await limit(org, 0)
    await org.gate.publisher.publish(org.call, "Old__e", {})
    with pytest.raises(LimitExceeded):
        await org.gate.publisher.publish(org.call, "Late__e", {})


async def test_write_that_fails_gives_its_event_back(org: TestOrg, monkeypatch: pytest.MonkeyPatch) -> None:
    await limit(org, 1)

    def fail(tx: Transaction, *arguments: object) -> None:
        raise WriteConflict("no")

    with monkeypatch.context() as patch:
        patch.setattr(org.core.log, "append", fail)
        with pytest.raises(WriteConflict):
            await org.gate.publisher.publish(org.call, "Late__e", {})
    await org.gate.publisher.publish(org.call, "Late__e", {})
    assert left(org) == 0


async def test_shared_transaction_inside_another_is_released_with_it(org: TestOrg) -> None:
    head = await limit(org, 3)

    async def publish(gate: Gate) -> None:
        await gate.publisher.publish(org.call, "Late__e", {})

    async def outer(gate: Gate) -> None:
        await publish(gate)
        await run_in_transaction(gate, org.call, publish, lambda _: True)

    await run_in_transaction(org.gate, org.call, outer, lambda _: False)
    assert (await published(org, head), left(org)) == (0, 3)
    await run_in_transaction(org.gate, org.call, outer, lambda _: True)
    assert (await published(org, head), left(org)) == (2, 1)


async def test_quota_of_a_new_hour_is_full_and_takes_nothing_back_from_the_last(org: TestOrg) -> None:
    await limit(org, 2)
    reserved = Reservation(org.core.allocations)
    assert reserved.reserve(5) == 2
    org.clock.advance(3600)
    assert left(org) == 2
    reserved.release()
    assert left(org) == 2


async def test_events_published_before_a_restart_count(org: TestOrg) -> None:
    await limit(org, 10)
    for _ in range(3):
        await org.gate.publisher.publish(org.call, "Late__e", {})
    await org.core.allocations.flush()
    again = Allocations(org.core.records, org.clock, {}, "enterprise")
    await again.load()
    assert again.reserve(1_000_000).events == 250_000 - 3


@pytest.mark.parametrize("edition, hourly", [("enterprise", 250_000), ("developer", 50_000), ("", None)])
async def test_quota_follows_the_edition(org: TestOrg, edition: str, hourly: int | None) -> None:
    quota = Allocations(org.core.records, org.clock, {}, edition)
    hour = org.clock.now_ms() // 3_600_000
    assert quota.reserve(1_000_000) == Charge(hour, hourly or 1_000_000)


@pytest.mark.parametrize(
    "error, remaining", [(WriteConflict("rolled back"), 3), (OutcomeUnknown("no answer"), 1)]
)
async def test_quota_is_given_back_only_if_the_write_was_rolled_back(
    org: TestOrg, error: PlatformError, remaining: int
) -> None:
    await limit(org, 3)
    reservation = Reservation(org.core.allocations)
    assert reservation.reserve(2) == 2
    with pytest.raises(type(error)), reservation:
        raise error
    assert left(org) == remaining
