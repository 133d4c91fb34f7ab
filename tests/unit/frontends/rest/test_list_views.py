"""The one list view of each object, for those who may see its records."""

from __future__ import annotations

import pytest

from tests.orgs import TestOrg
from tests.unit.frontends.rest.data_caller import Caller

pytestmark = pytest.mark.anyio

PATH = "sobjects/Account/listviews"


async def view_id(caller: Caller) -> str:
    _, listed = await caller.send("GET", PATH)
    return str(listed["listviews"][0]["id"])


async def test_description_holds_the_query_that_reads_the_list(org: TestOrg) -> None:
    caller = Caller(org)
    for name in ("B", "A"):
        await org.make_account(name)
    _, described = await caller.send("GET", f"{PATH}/{await view_id(caller)}/describe")
    _, found = await caller.send("GET", "query?q=" + described["query"].replace(" ", "+"))
    assert [record["Name"] for record in found["records"]] == ["A", "B"]
    assert [column["fieldNameOrPath"] for column in described["columns"] if not column["hidden"]] == ["Name"]


async def test_list_comes_in_pages(org: TestOrg) -> None:
    caller = Caller(org)
    for name in ("C", "A", "B"):
        await org.make_account(name)
    own = await view_id(caller)
    _, first = await caller.send("GET", f"{PATH}/{own}/results?limit=2")
    _, rest = await caller.send("GET", f"{PATH}/{own}/results?limit=2&offset=2")
    names = [r["columns"][0]["value"] for page in (first, rest) for r in page["records"]]
    assert (names, first["done"], rest["done"]) == (["A", "B", "C"], False, True)


@pytest.mark.parametrize("query", ["limit=0", "limit=2001", "limit=x", "offset=-1", "offset=99999"])
async def test_page_out_of_range_is_rejected(org: TestOrg, query: str) -> None:
    caller = Caller(org)
    status, answer = await caller.send("GET", f"{PATH}/{await view_id(caller)}/results?{query}")
    assert (status, answer[0]["errorCode"]) == (400, "INVALID_PARAMETER")


async def test_list_of_others_does_not_exist(org: TestOrg) -> None:
    caller, reader = Caller(org), Caller(org, org.reader)
    assert (await reader.send("GET", "sobjects/Opportunity/listviews"))[0] == 404
    own = await view_id(caller)
    assert (await caller.send("GET", f"sobjects/Contact/listviews/{own}/results"))[0] == 404
    assert (await caller.send("GET", f"{PATH}/nonsense/describe"))[0] == 404
    assert (await reader.send("GET", f"{PATH}/{own}/results"))[0] == 200
