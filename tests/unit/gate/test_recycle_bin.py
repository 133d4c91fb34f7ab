"""The recycle bin, merges, conversions and upserts as one user may use them."""

from __future__ import annotations

import pytest

from tests.orgs import TestOrg
from tidewire.crm.leads import Conversion
from tidewire.errors import AccessDenied, IdMalformed, PlatformError, RecordNotFound, UndeleteRefused
from tidewire.gate.requests import Call
from tidewire.ids import make_id


def kinds(results: list[str | PlatformError]) -> list[object]:
    return [type(r) if isinstance(r, PlatformError) else r for r in results]


async def test_undelete_answers_for_each_id(org: TestOrg) -> None:
    gone, alive = await org.make_account(), await org.make_account()
    await org.gate.delete(org.call, "Account", gone)
    asked = [gone[:15], alive, "nonsense", make_id("001", 999), make_id("zzz", 1)]
    results = await org.gate.undelete(org.call, asked)
    assert kinds(results) == [gone, UndeleteRefused, IdMalformed, RecordNotFound, RecordNotFound]
    rows = await org.gate.query(org.admin, f"SELECT Id FROM Account WHERE Id = '{gone}'")
    assert len(rows.rows) == 1


async def test_purged_record_is_gone_for_queries_over_everything(org: TestOrg) -> None:
    account = await org.make_account()
    await org.gate.delete(org.call, "Account", account)
    soql = f"SELECT Id FROM Account WHERE Id = '{account}'"
    assert len((await org.gate.query(org.admin, soql, include_deleted=True)).rows) == 1
    assert await org.gate.purge(org.call, [account]) == [account]
    assert (await org.gate.query(org.admin, soql, include_deleted=True)).rows == []


async def test_purge_and_undelete_are_rejected_with_read_access_only(org: TestOrg) -> None:
    account, other = await org.make_account(), await org.make_account()
    reader = Call(org.reader, "com/test")
    with pytest.raises(PlatformError):
        await org.gate.merge(reader, "Account", account, [other], {})
    with pytest.raises(PlatformError):
        await org.gate.upsert(reader, "Account", "Id", account, {"Name": "X"})
    await org.gate.delete(org.call, "Account", account)
    (result,) = await org.gate.undelete(reader, [account])
    assert isinstance(result, PlatformError)


async def test_upsert_by_a_user_without_create_leaves_nothing(org: TestOrg) -> None:
    with pytest.raises(AccessDenied):
        await org.gate.upsert(Call(org.reader, "com/test"), "Account", "Id", None, {"Name": "X"})
    assert (await org.gate.query(org.admin, "SELECT Id FROM Account WHERE Name = 'X'")).rows == []
    account, is_new = await org.gate.upsert(org.call, "Account", "Id", None, {"Name": "X"})
    assert is_new
    assert await org.gate.upsert(org.call, "Account", "Id", account[:15], {"Name": "Y"}) == (account, False)


async def test_merge_and_conversion_take_ids_of_either_length(org: TestOrg) -> None:
    account, other = await org.make_account(), await org.make_account()
    merged = await org.gate.merge(org.call, "Account", account[:15], [other[:15]], {"Name": "One"})
    assert (merged.record_id, merged.merged_ids) == (account, (other,))
    lead = await org.gate.create(org.call, "Lead", {"LastName": "L", "Company": "C"})
    conversion = Conversion(lead_id=lead[:15], converted_status="Closed - Converted", account_id=account[:15])
    made = await org.gate.convert_lead(org.call, conversion)
    assert (made.lead_id, made.account_id) == (lead, account)
