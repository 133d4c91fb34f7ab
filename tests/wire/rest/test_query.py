"""Queries over REST: the form of related records, groups and errors."""

from __future__ import annotations

import uuid
from urllib.parse import quote

import pytest

from tests.running import API, Json, Refused, Rest


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
