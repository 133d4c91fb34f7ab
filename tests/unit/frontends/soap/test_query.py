"""The calls that read records."""

from __future__ import annotations

import pytest

from tests.orgs import READER, TestOrg
from tests.unit.frontends.soap.caller import XSI, children, sign_in
from tidewire.frontends.soap.wire import ENTERPRISE
from tidewire.gate.requests import Write


def soql(text: str) -> str:
    return f"<queryString>{text}</queryString>"


async def test_record_has_type_and_id_first_and_the_id_again_where_it_was_selected(org: TestOrg) -> None:
    caller = await sign_in(org)
    record_id = await org.make_account("A &amp; B", AnnualRevenue=5)
    (result,) = await caller.call("query", soql("SELECT Name, Id, AnnualRevenue, Phone FROM Account"))
    assert children(result) == ["done", "queryLocator", "records", "size"]
    record = result[2]
    assert record.get(XSI + "type") == "sf:sObject"
    assert children(record) == ["type", "Id", "Name", "Id", "AnnualRevenue", "Phone"]
    assert [child.text for child in record] == [
        "Account",
        record_id,
        "A &amp; B",
        record_id,
        "5.0",
        None,
    ]
    assert record[5].get(XSI + "nil") == "true"


async def test_unselected_id_is_nil(org: TestOrg) -> None:
    caller = await sign_in(org)
    await org.make_account()
    (result,) = await caller.call("query", soql("SELECT Name FROM Account"))
    assert result[2][1].get(XSI + "nil") == "true"


async def test_enterprise_record_names_its_type_in_an_attribute(org: TestOrg) -> None:
    caller = await sign_in(org, ENTERPRISE)
    record_id = await org.make_account()
    (result,) = await caller.call("query", soql("SELECT Name, Id FROM Account"))
    assert result[2].get(XSI + "type") == "sf:Account"
    assert [(child.tag, child.text) for child in result[2]] == [("Id", record_id), ("Name", "Acme")]


async def test_parents_and_children_stand_inside_their_record(org: TestOrg) -> None:
    caller = await sign_in(org)
    record_id = await org.make_account(BillingCity="Kiel", BillingLatitude=1)
    await org.gate.create(org.call, "Contact", {"LastName": "C", "AccountId": record_id})
    await org.gate.create(org.call, "Contact", {"LastName": "Alone"})
    (result,) = await caller.call(
        "query", soql("SELECT BillingAddress, (SELECT LastName FROM Contacts) FROM Account")
    )
    address, contacts = result[2][2], result[2][3]
    assert address.get(XSI + "type") == "address"
    assert children(address)[:3] == ["latitude", "longitude", "city"]
    assert contacts.get(XSI + "type") == "QueryResult"
    assert contacts.findtext("records/LastName") == "C"
    assert contacts.findtext("size") == "1"
    (result,) = await caller.call(
        "query", soql("SELECT LastName, Account.Name FROM Contact ORDER BY LastName")
    )
    alone, owned = result[2][3], result[3][3]
    assert alone.get(XSI + "nil") == "true"
    assert (owned.tag, owned.findtext("type"), owned.findtext("Name")) == ("Account", "Account", "Acme")


async def test_groups_carry_the_types_of_their_values(org: TestOrg) -> None:
    caller = await sign_in(org)
    await org.make_account()
    (result,) = await caller.call("query", soql("SELECT Name, COUNT(Id) FROM Account GROUP BY Name"))
    group = result[2]
    assert group.findtext("type") == "AggregateResult"
    assert [(child.tag, child.get(XSI + "type"), child.text) for child in group[2:]] == [
        ("Name", "xsd:string", "Acme"),
        ("expr0", "xsd:int", "1"),
    ]


async def test_count_answers_its_size_and_no_records(org: TestOrg) -> None:
    caller = await sign_in(org)
    await org.make_account()
    (result,) = await caller.call("query", soql("SELECT COUNT() FROM Account"))
    assert children(result) == ["done", "queryLocator", "size"]
    assert result.findtext("size") == "1"


async def test_pages_follow_each_other_by_locator(org: TestOrg) -> None:
    caller = await sign_in(org)
    for start in (0, 200):
        writes = [Write("Account", None, {"Name": f"A{n:03}"}) for n in range(start, start + 200)]
        await org.gate.write_together(org.call, writes, all_or_none=True)
    header = "<QueryOptions><batchSize>250</batchSize></QueryOptions>"
    (first,) = await caller.call("query", soql("SELECT Name FROM Account ORDER BY Name"), header)
    assert (first.findtext("done"), first.findtext("size")) == ("false", "400")
    locator = first.findtext("queryLocator") or ""
    (second,) = await caller.call("queryMore", f"<queryLocator>{locator}</queryLocator>")
    names = [e.text for page in (first, second) for e in page.iterfind("records/Name")]
    assert names == [f"A{n:03}" for n in range(400)]
    assert second.findtext("done") == "true"
    other = await sign_in(org)
    fault = await other.fault("queryMore", f"<queryLocator>{locator}</queryLocator>")
    assert fault == ("sf:INVALID_QUERY_LOCATOR", "INVALID_QUERY_LOCATOR: invalid query locator")


async def test_query_all_finds_deleted_records(org: TestOrg) -> None:
    caller = await sign_in(org)
    record_id = await org.make_account()
    await org.gate.delete(org.call, "Account", record_id)
    sizes = [
        (await caller.call(operation, soql("SELECT Id FROM Account")))[0].findtext("size")
        for operation in ("query", "queryAll")
    ]
    assert sizes == ["0", "1"]


@pytest.mark.parametrize(
    "text, expected, place",
    [
        ("SELECT Nope FROM Account", "INVALID_FIELD", ("1", "8")),
        ("SELECT Id FROM Nope", "INVALID_TYPE", ("1", "16")),
        ("SELECT Id FROM Account LIMIT x", "MALFORMED_QUERY", ("1", "30")),
        ("", "MALFORMED_QUERY", ("1", "1")),
    ],
)
async def test_wrong_query_is_a_fault_that_knows_its_place(
    org: TestOrg, text: str, expected: str, place: tuple[str, str]
) -> None:
    caller = await sign_in(org)
    body = (await caller.post("query", soql(text))).body.decode()
    assert f"<faultcode>sf:{expected}</faultcode>" in body
    assert f"<sf:row>{place[0]}</sf:row><sf:column>{place[1]}</sf:column>" in body


async def test_search_wraps_each_record(org: TestOrg) -> None:
    caller = await sign_in(org)
    await org.make_account("Findable")
    (result,) = await caller.call(
        "search", "<searchString>FIND {Findable} RETURNING Account(Name)</searchString>"
    )
    assert children(result) == ["queryId", "searchRecords"]
    assert result.findtext("searchRecords/record/Name") == "Findable"
    wrong = await caller.fault("search", "<searchString>FIND x</searchString>")
    assert wrong[0] == "sf:MALFORMED_SEARCH"


async def test_retrieve_keeps_the_order_and_shows_gaps(org: TestOrg) -> None:
    caller = await sign_in(org)
    first, second = await org.make_account("1"), await org.make_account("2")
    gone = await org.make_account("3")
    await org.gate.delete(org.call, "Account", gone)
    ids = "".join(f"<ids>{i}</ids>" for i in (second[:15], gone, first, second))
    arguments = f"<fieldList>name , Id</fieldList><sObjectType>account</sObjectType>{ids}"
    results = await caller.call("retrieve", arguments)
    assert [row.findtext("Name") for row in results] == ["2", None, "1", "2"]
    assert results[1].get(XSI + "nil") == "true"


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ("<fieldList>Id FROM User</fieldList><sObjectType>Account</sObjectType>", "sf:INVALID_FIELD"),
        ("<fieldList>Phone</fieldList><sObjectType>Account</sObjectType>", "sf:INVALID_FIELD"),
        ("<fieldList>Id</fieldList><sObjectType>Opportunity</sObjectType>", "sf:INVALID_TYPE"),
        (
            "<fieldList>Id</fieldList><sObjectType>Account</sObjectType><ids>') OR Id != ('</ids>",
            "sf:MALFORMED_ID",
        ),
        (
            "<fieldList>Id</fieldList><sObjectType>Account</sObjectType>" + "<ids>x</ids>" * 2001,
            "sf:EXCEEDED_ID_LIMIT",
        ),
    ],
)
async def test_retrieve_shows_nothing_that_the_reader_may_not_see(
    org: TestOrg, arguments: str, expected: str
) -> None:
    caller = await sign_in(org, username=READER)
    assert (await caller.fault("retrieve", arguments))[0] == expected
