"""Queries over REST: the form of related records, groups and errors."""

from __future__ import annotations

import json
import uuid
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from tests.running import API, Json, Refused, Rest
from tidewire.testing import ServerProcess


def ask(rest: Rest, soql: str) -> Json:
    return rest.call("GET", f"{API}/query?q={quote(soql)}")


@pytest.fixture
def name(rest: Rest) -> str:
    """The unique name of an account that has two contacts."""
    name = f"Q{uuid.uuid4().hex[:12]}"
    account = rest.create("Account", {"Name": name, "AnnualRevenue": 5})
    for last in ("Zoe", "Abel"):
        rest.create("Contact", {"LastName": last, "FirstName": "X", "AccountId": account})
    return name


def test_parent_has_attributes_of_its_own(rest: Rest, name: str) -> None:
    answer = ask(rest, f"SELECT Name, Account.Name FROM Contact WHERE Account.Name = '{name}' ORDER BY Name")
    assert answer["totalSize"] == 2
    first = answer["records"][0]
    assert list(first) == ["attributes", "Name", "Account"]
    assert first["Name"] == "X Abel"
    account = first["Account"]
    assert account["attributes"]["type"] == "Account"
    assert account["attributes"]["url"].startswith(f"{API}/sobjects/Account/001")
    assert account["Name"] == name


def test_children_are_an_answer_inside_the_answer_or_null(rest: Rest, name: str) -> None:
    soql = (
        "SELECT (SELECT LastName FROM Contacts ORDER BY LastName), (SELECT Id FROM Opportunities) "
        f"FROM Account WHERE Name = '{name}'"
    )
    (record,) = ask(rest, soql)["records"]
    contacts = record["Contacts"]
    assert (contacts["totalSize"], contacts["done"]) == (2, True)
    assert [child["LastName"] for child in contacts["records"]] == ["Abel", "Zoe"]
    assert contacts["records"][0]["attributes"]["type"] == "Contact"
    assert record["Opportunities"] is None


def test_group_is_an_aggregate_result_without_url(rest: Rest, name: str) -> None:
    soql = (
        "SELECT Account.Name, COUNT(Id), MAX(CreatedDate) latest FROM Contact "
        f"WHERE Account.Name = '{name}' GROUP BY Account.Name"
    )
    answer = ask(rest, soql)
    assert (answer["totalSize"], answer["done"]) == (1, True)
    (group,) = answer["records"]
    assert list(group) == ["attributes", "Name", "expr0", "latest"]
    assert group["attributes"] == {"type": "AggregateResult"}
    assert (group["Name"], group["expr0"]) == (name, 2)
    assert group["latest"].endswith("+0000")


def test_lookup_to_several_types_names_the_type(rest: Rest, name: str) -> None:
    (account,) = ask(rest, f"SELECT Id FROM Account WHERE Name = '{name}'")["records"]
    rest.create("Task", {"Subject": name, "WhatId": account["Id"]})
    soql = f"SELECT What.Type, TYPEOF Owner WHEN User THEN LastName END FROM Task WHERE Subject = '{name}'"
    (task,) = ask(rest, soql)["records"]
    assert task["What"]["attributes"]["type"] == "Account"
    assert task["What"]["Type"] == "Account"
    assert task["Owner"]["attributes"]["type"] == "User"
    assert task["Owner"]["LastName"]


def test_presented_and_measured_values_have_their_names(rest: Rest, name: str) -> None:
    soql = (
        "SELECT FORMAT(AnnualRevenue) money, DISTANCE(BillingAddress, GEOLOCATION(1, 2), 'mi') "
        f"FROM Account WHERE Name = '{name}'"
    )
    (record,) = ask(rest, soql)["records"]
    assert (record["money"], record["expr0"]) == ("$5", None)


@pytest.mark.parametrize(
    "soql, code, place",
    [
        ("SELECT Id FROM Account ALL ROWS", "MALFORMED_QUERY", "Row:1:Column:24"),
        ("SELECT Nope.Name FROM Account", "INVALID_FIELD", "Row:1:Column:8"),
        ("SELECT Id, (SELECT Id FROM Nopes) FROM Account", "INVALID_TYPE", "Row:1:Column:28"),
        ("SELECT Name, COUNT(Id) FROM Account", "MALFORMED_QUERY", "Row:1:Column:8"),
    ],
)
def test_error_shows_its_place(rest: Rest, soql: str, code: str, place: str) -> None:
    with pytest.raises(Refused) as caught:
        ask(rest, soql)
    assert caught.value.status == 400
    assert code in str(caught.value)
    assert place in str(caught.value)


def test_purposes_are_accepted(rest: Rest, name: str) -> None:
    soql = f"SELECT Id FROM Account WHERE Name = '{name}' AND CreatedDate = LAST_N_DAYS:1 FOR VIEW"
    assert ask(rest, soql)["totalSize"] == 1


def test_children_stand_in_children_from_version_58_on(rest: Rest, name: str) -> None:
    soql = (
        "SELECT Name, (SELECT LastName, Account.Name, (SELECT Id FROM Cases) FROM Contacts "
        f"ORDER BY LastName) FROM Account WHERE Name = '{name}'"
    )
    (record,) = ask(rest, soql)["records"]
    first = record["Contacts"]["records"][0]
    assert (first["LastName"], first["Account"]["Name"], first["Cases"]) == ("Abel", name, None)
    with pytest.raises(Refused, match="aggregate relationships more than 1 level away") as caught:
        rest.call("GET", f"/services/data/v57.0/query?q={quote(soql)}")
    assert "MALFORMED_QUERY" in str(caught.value)
    assert caught.value.status == 400


def make_contacts(rest: Rest, count: int) -> str:
    account = rest.create("Account", {"Name": f"P{uuid.uuid4().hex[:12]}"})
    for first in range(0, count, 200):
        records = [
            {"attributes": {"type": "Contact"}, "LastName": f"C{number:04}", "AccountId": account}
            for number in range(first, min(first + 200, count))
        ]
        rest.call("POST", f"{API}/composite/sobjects", {"allOrNone": True, "records": records})
    return account


def get(server: ServerProcess, token: str, path: str) -> Json:
    """An answer in the smallest pages there are."""
    headers = {"Authorization": f"Bearer {token}", "Sforce-Query-Options": "batchSize=200"}
    with urlopen(Request(server.http + path, headers=headers)) as answer:
        return json.load(answer)


def test_child_page_is_followed_under_both_resources(
    server: ServerProcess, rest: Rest, dev_token: str
) -> None:
    account = make_contacts(rest, 450)
    soql = quote(
        f"SELECT Id, (SELECT LastName FROM Contacts ORDER BY LastName) FROM Account WHERE Id = '{account}'"
    )
    for resource, other in (("query", "queryAll"), ("queryAll", "query")):
        answer = get(server, dev_token, f"{API}/{resource}?q={soql}")
        assert (answer["totalSize"], answer["done"]) == (1, True)
        contacts = answer["records"][0]["Contacts"]
        assert list(contacts) == ["totalSize", "done", "nextRecordsUrl", "records"]
        assert (contacts["totalSize"], contacts["done"], len(contacts["records"])) == (450, False, 199)
        assert contacts["nextRecordsUrl"].startswith(f"{API}/{resource}/01g")
        names = [child["LastName"] for child in contacts["records"]]
        page = contacts
        while not page["done"]:
            page = get(server, dev_token, page["nextRecordsUrl"].replace(f"/{resource}/", f"/{other}/"))
            assert page["totalSize"] == 450
            names += [child["LastName"] for child in page["records"]]
        assert names == [f"C{number:04}" for number in range(450)]


@pytest.mark.parametrize("locator", ["x", "01gTW0000000001AAA", "01gTW00000zzzzzAAA-2000"])
def test_unknown_locator_is_refused(rest: Rest, locator: str) -> None:
    for resource in ("query", "queryAll"):
        with pytest.raises(Refused, match="invalid query locator") as caught:
            rest.call("GET", f"{API}/{resource}/{locator}")
        assert (caught.value.status, "INVALID_QUERY_LOCATOR" in str(caught.value)) == (400, True)


def test_explain_shows_plans_and_the_query(rest: Rest, name: str) -> None:
    soql = f"SELECT Id FROM Account WHERE Name = '{name}' AND Site = 'x'"
    answer = rest.call("GET", f"{API}/query?explain={quote(soql)}")
    assert list(answer) == ["plans", "sourceQuery"]
    assert answer["sourceQuery"] == soql
    best, scan = answer["plans"]
    assert sorted(best) == [
        "cardinality",
        "fields",
        "leadingOperationType",
        "notes",
        "relativeCost",
        "sobjectCardinality",
        "sobjectType",
    ]
    assert (best["leadingOperationType"], best["fields"], best["cardinality"]) == ("Index", ["Name"], 1)
    assert (scan["leadingOperationType"], scan["cardinality"], scan["sobjectType"]) == (
        "TableScan",
        0,
        "Account",
    )
    (note,) = best["notes"]
    assert (note["fields"], note["tableEnumOrId"]) == (["Site"], "Account")


@pytest.mark.parametrize(
    "soql, code",
    [("SELECT Nope FROM Account", "INVALID_FIELD"), ("", "MALFORMED_QUERY"), ("00Ox", "MALFORMED_QUERY")],
)
def test_explain_of_a_wrong_query_is_refused_as_the_query_is(rest: Rest, soql: str, code: str) -> None:
    with pytest.raises(Refused, match=code) as caught:
        rest.call("GET", f"{API}/query?explain={quote(soql)}")
    assert caught.value.status == 400


def columns(rest: Rest, soql: str, api: str = API) -> Json:
    return rest.call("GET", f"{api}/query?q={quote(soql)}&columns=true")


def test_columns_of_a_query_are_told_instead_of_its_rows(rest: Rest) -> None:
    answer = columns(
        rest, "SELECT Id, AnnualRevenue, Owner.Profile.Name, (SELECT LastName FROM Contacts) FROM Account"
    )
    told = answer.pop("columnMetadata")
    assert answer == {"entityName": "Account", "groupBy": False, "idSelected": True, "keyPrefix": "001"}
    record_id, revenue, owner, contacts = told
    assert record_id == {
        "aggregate": False,
        "apexType": "Id",
        "booleanType": False,
        "columnName": "Id",
        "custom": False,
        "displayName": "Id",
        "foreignKeyName": None,
        "insertable": False,
        "joinColumns": [],
        "numberType": False,
        "textType": True,
        "updatable": False,
    }
    assert (revenue["apexType"], revenue["numberType"], revenue["updatable"]) == ("Double", True, True)
    assert (owner["columnName"], owner["foreignKeyName"], owner["aggregate"]) == ("Owner", "OwnerId", False)
    (profile,) = owner["joinColumns"]
    assert [column["columnName"] for column in profile["joinColumns"]] == ["Name"]
    assert (contacts["columnName"], contacts["aggregate"]) == ("Contacts", True)
    assert [column["columnName"] for column in contacts["joinColumns"]] == ["LastName"]


def test_columns_of_groups_have_the_names_of_the_answer(rest: Rest) -> None:
    answer = columns(rest, "SELECT Name label, COUNT(Id), MAX(CreatedDate) newest FROM Account GROUP BY Name")
    told = [(c["columnName"], c["displayName"], c["aggregate"]) for c in answer["columnMetadata"]]
    assert told == [
        ("label", "Name", False),
        ("expr0", "COUNT(Id)", True),
        ("newest", "MAX(CreatedDate)", True),
    ]
    assert answer["groupBy"] is True
    assert columns(rest, "SELECT COUNT() FROM Account")["columnMetadata"] == []


def test_columns_of_a_tooling_query_are_told_too(rest: Rest) -> None:
    answer = columns(rest, "SELECT Id, DeveloperName FROM CustomField", f"{API}/tooling")
    assert [column["columnName"] for column in answer["columnMetadata"]] == ["Id", "DeveloperName"]


def test_columns_of_a_wrong_query_are_refused_as_the_query_is(rest: Rest) -> None:
    with pytest.raises(Refused, match="INVALID_FIELD"):
        columns(rest, "SELECT Nope FROM Account")
