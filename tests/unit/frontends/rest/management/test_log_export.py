"""The export of the log: Arrow batches of a range, and plans that divide it."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pyarrow as pa
import pytest

from tests.orgs import READER, TestOrg
from tests.unit.frontends.rest.caller import Caller, code, header, sign_in
from tidewire.events import Family
from tidewire.matching.log_ranges import LogRanges

pytestmark = pytest.mark.anyio
LOG = "/services/tidewire/v1/log"
ACCOUNTS = "/data/AccountChangeEvent"
HOUR_MS = 3_600_000
READERS = 4  # the store's threads for reading


async def export(caller: Caller, query: str = "") -> tuple[list[dict[str, Any]], int]:
    """The rows of an export and the position that it says to have reached."""
    answer = await caller.go("GET", f"/log{query}", base="/services/tidewire/v1")
    assert answer.status == 200, answer.body
    assert answer.pieces is not None
    content = b"".join([piece async for piece in answer.pieces])
    rows: list[dict[str, Any]] = []
    through = 0
    with pa.ipc.open_stream(content) as reader:
        while True:
            try:
                found = reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                return rows, through
            rows += found.batch.to_pylist()
            through = int(found.custom_metadata[b"tidewire.through"])


async def plan(caller: Caller, query: str = "") -> Any:
    answer = await caller.go("GET", f"/log/plan{query}", base="/services/tidewire/v1")
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


async def test_export_of_a_channel_has_what_a_subscription_reads(org: TestOrg) -> None:
    admin = await sign_in(org)
    for i in range(7):
        await org.make_account(f"Export {i}")
        await org.gate.create(org.call, "Contact", {"LastName": f"Export {i}"})
    page = await org.link.read_log(Family.CHANGE, frozenset({"AccountChangeEvent"}), 0, 100, 1 << 20)
    rows, through = await export(admin, f"?topic={ACCOUNTS}")
    assert [
        (r["replay_id"], r["event_id"], r["schema_id"], r["payload"], r["transaction_last"]) for r in rows
    ] == [(e.position, e.event_uuid, e.schema_id, e.payload, e.transaction_last) for e in page.events]
    assert {row["topic"] for row in rows} == {ACCOUNTS}
    assert through == await org.link.read_log_head()


async def test_export_without_a_channel_has_every_event_in_order(org: TestOrg) -> None:
    admin = await sign_in(org)
    await org.apply(events={"Exported__e": {"label": "E", "plural": "Es", "fields": {}}})
    for _ in range(4):
        await org.make_account()
        await org.gate.publisher.publish(org.call, "Exported__e", {})
    rows, end = await export(admin)
    positions = [row["replay_id"] for row in rows]
    assert positions == sorted(positions)
    assert [row["topic"] for row in rows][-4:] == [ACCOUNTS, "/event/Exported__e"] * 2
    steps: list[dict[str, Any]] = []
    after = 0
    while after < end:
        some, after = await export(admin, f"?after={after}&limit=3")
        steps += some
    assert steps == rows
    assert (await plan(admin))["rows"] == len(rows)


async def test_export_in_steps_of_a_limit_gives_each_event_once(org: TestOrg) -> None:
    admin = await sign_in(org)
    for i in range(10):
        await org.make_account(f"Step {i}")
    whole, end = await export(admin, f"?topic={ACCOUNTS}")
    steps: list[dict[str, Any]] = []
    after = 0
    while after < end:
        rows, after = await export(admin, f"?topic={ACCOUNTS}&after={after}&limit=3")
        assert len(rows) <= 3
        steps += rows
    assert steps == whole
    middle = whole[4]["replay_id"]
    part, through = await export(admin, f"?topic={ACCOUNTS}&after={whole[1]['replay_id']}&through={middle}")
    assert part == whole[2:5]
    assert through == middle
    assert await export(admin, f"?topic={ACCOUNTS}&after={end}") == ([], end)


async def test_plan_counts_the_rows_of_its_parts(org: TestOrg) -> None:
    admin = await sign_in(org)
    for i in range(10):
        await org.make_account(f"Plan {i}")
        await org.gate.create(org.call, "Contact", {"LastName": f"Plan {i}"})
    whole, end = await export(admin, f"?topic={ACCOUNTS}")
    found = await plan(admin, f"?topic={ACCOUNTS}&rows=4")
    assert [part["rows"] for part in found["parts"]] == [4, 4, 2]
    assert found["through"] == found["head"] == found["parts"][-1]["through"] == end
    after = found["after"]
    for part in found["parts"]:
        rows, reached = await export(admin, f"?topic={ACCOUNTS}&after={after}&through={part['through']}")
        assert (len(rows), reached) == (part["rows"], part["through"])
        after = part["through"]
    limited = await plan(admin, f"?topic={ACCOUNTS}&limit=5&rows=2")
    assert limited["through"] == whole[4]["replay_id"]
    assert [part["rows"] for part in limited["parts"]] == [2, 2, 1]
    rest = await plan(admin, f"?topic={ACCOUNTS}&after={end}")
    assert (rest["parts"], rest["through"]) == ([], end)


async def test_plan_at_a_time_begins_with_the_first_event_from_then_on(org: TestOrg) -> None:
    admin = await sign_in(org)
    await org.make_account("Before")
    org.clock.advance(5.0)
    at_ms = org.clock.now_ms()
    await org.make_account("After")
    rows, _ = await export(admin, f"?topic={ACCOUNTS}")
    found = await plan(admin, f"?topic={ACCOUNTS}&at={at_ms}")
    assert found["after"] == rows[-1]["replay_id"] - 1
    assert found["rows"] == 1


async def test_export_hides_what_the_reader_may_not_see(org: TestOrg) -> None:
    reader = await sign_in(org, READER)
    await org.make_account("Hidden", Phone="555-HIDDEN")
    assert code(await reader.go("GET", "/log", base="/services/tidewire/v1")) == (
        403,
        "INSUFFICIENT_ACCESS_OR_READONLY",
    )
    await org.apply(
        permission_sets={"Exporter": {"label": "X", "permissions": ["ViewAllData", "ViewAllUsers"]}},
        users={READER: {"permission_sets": ["Exporter"]}},
    )
    rows, _ = await export(reader, f"?topic={ACCOUNTS}")
    assert rows
    assert all(b"555-HIDDEN" not in row["payload"] for row in rows)


async def test_field_hidden_while_its_page_waits_to_be_read_is_not_exported(org: TestOrg) -> None:
    exporter = {"label": "X", "permissions": ["ViewAllData", "ViewAllUsers"]}
    seen = exporter | {"fields": {"Account": {"Phone": "read"}}}
    hidden = exporter | {"fields": {"Account": {"Phone": "none"}}}
    await org.apply(permission_sets={"Exporter": seen}, users={READER: {"permission_sets": ["Exporter"]}})
    await org.make_account("Hidden", Phone="555-HIDDEN")
    ranges = LogRanges(org.gate, org.core.log, org.core.capture)
    start = await ranges.start(org.reader, ACCOUNTS, 0)
    seen_page = await ranges.read_page(org.reader, ACCOUNTS, start, start.after, 100)
    assert b"555-HIDDEN" in b"".join(event.payload for event in seen_page.events)
    go_on = threading.Event()
    async with asyncio.TaskGroup() as group:
        for _ in range(READERS):
            group.create_task(org.core.records.read(lambda reader: go_on.wait()))
        reading = group.create_task(ranges.read_page(org.reader, ACCOUNTS, start, start.after, 100))
        await org.apply(permission_sets={"Exporter": hidden})
        go_on.set()
    page = reading.result()
    assert len(page.events) == len(seen_page.events)
    assert b"555-HIDDEN" not in b"".join(event.payload for event in page.events)


@pytest.mark.parametrize(
    "query, status, error_code",
    [
        ("?after=12345", 400, "REPLAY_ID_EXPIRED"),
        ("?after=99999999999999999", 400, "INVALID_REPLAY_ID"),
        ("?after=x", 400, "INVALID_REPLAY_ID"),
        ("?after=-1", 400, "INVALID_REPLAY_ID"),
        ("?after=9223372036854775808", 400, "INVALID_REPLAY_ID"),
        ("?after=00000000000000000000099999999999999999999999", 400, "INVALID_REPLAY_ID"),
        ("?through=%C2%B2", 400, "INVALID_REPLAY_ID"),
        ("?limit=many", 400, "INVALID_REQUEST"),
        ("?topic=/data/NothingChangeEvent", 404, "NOT_FOUND"),
        ("?topic=nothing", 400, "INVALID_CHANNEL"),
        ("/plan?rows=x", 400, "INVALID_REQUEST"),
        ("/plan?at=yesterday", 400, "INVALID_REQUEST"),
        ("/other", 404, "NOT_FOUND"),
    ],
)
async def test_malformed_parameters_are_rejected(
    org: TestOrg, query: str, status: int, error_code: str
) -> None:
    admin = await sign_in(org)
    assert code(await admin.go("GET", f"/log{query}", base="/services/tidewire/v1")) == (status, error_code)


async def test_other_methods_are_rejected(org: TestOrg) -> None:
    admin = await sign_in(org)
    answer = await admin.go("POST", "/log", {}, base="/services/tidewire/v1")
    assert (answer.status, header(answer, "Allow")) == (405, "GET")


async def test_position_that_retention_has_dropped_is_expired(org: TestOrg) -> None:
    admin = await sign_in(org)
    await org.make_account("Old")
    rows, old = await export(admin, f"?topic={ACCOUNTS}")
    org.clock.advance(3 * 3600.0)
    admin = await sign_in(org)
    await org.make_account("New")
    log, now_ms = org.core.log, org.clock.now_ms()
    await org.core.records.write_plain(
        lambda tx: log.trim(tx, Family.CHANGE, now_ms - HOUR_MS), exclusive=True
    )
    answer = await admin.go(
        "GET", f"/log?after={rows[0]['replay_id'] - 1}&topic={ACCOUNTS}", base="/services/tidewire/v1"
    )
    assert code(answer) == (400, "REPLAY_ID_EXPIRED")
    kept, _ = await export(admin, f"?topic={ACCOUNTS}")
    assert [row["replay_id"] > old for row in kept] == [True]


async def test_signed_out_reader_gets_no_further_page(org: TestOrg) -> None:
    admin = await sign_in(org)
    for i in range(3):
        await org.make_account(f"Out {i}")
    answer = await admin.go("GET", "/log", base="/services/tidewire/v1")
    principal = await org.core.logins.sessions.authenticate(admin.token)
    await org.core.logins.sessions.log_out(principal.session_id)
    assert answer.pieces is not None
    with pytest.raises(Exception, match="Session expired"):
        await anext(aiter(answer.pieces))


async def test_plan_lists_incarnations_with_their_bounds(org: TestOrg) -> None:
    admin = await sign_in(org)
    await org.make_account()
    found = await plan(admin)
    (only,) = found["incarnations"]
    assert only["id"] == found["incarnation"] == f"{org.core.logins.org_id}-{only['first']}"
    assert only["last"] is None
    assert only["first"] <= found["head"]
