"""Paths that follow a relationship from a record."""

from __future__ import annotations

import uuid

import pytest

from tests.running import API, Refused, Rest


@pytest.fixture
def account(rest: Rest) -> str:
    """The id of an account that has two contacts."""
    account = rest.create("Account", {"Name": f"R{uuid.uuid4().hex[:12]}", "Phone": "1"})
    for last in ("Zoe", "Abel"):
        rest.create("Contact", {"LastName": last, "AccountId": account})
    return account


def test_lookup_leads_to_its_record(rest: Rest, account: str) -> None:
    contact = rest.create("Contact", {"LastName": "Child", "AccountId": account})
    whole = rest.call("GET", f"{API}/sobjects/Contact/{contact}/account")
    assert (whole["attributes"]["type"], whole["Id"], whole["Phone"]) == ("Account", account, "1")
    some = rest.call("GET", f"{API}/sobjects/Contact/{contact}/Account?fields=phone")
    assert list(some) == ["attributes", "Phone", "Id"]


def test_lookup_to_several_types_leads_to_the_one_it_names(rest: Rest, account: str) -> None:
    task = rest.create("Task", {"Subject": "S", "WhatId": account})
    assert rest.call("GET", f"{API}/sobjects/Task/{task}/What?fields=Name")["attributes"]["type"] == "Account"


def test_child_relationship_leads_to_a_query_result(rest: Rest, account: str) -> None:
    answer = rest.call("GET", f"{API}/sobjects/Account/{account}/Contacts?fields=LastName,lastname")
    assert (answer["totalSize"], answer["done"]) == (2, True)
    assert sorted(record["LastName"] for record in answer["records"]) == ["Abel", "Zoe"]
    assert list(answer["records"][0]) == ["attributes", "LastName"]
    whole = rest.call("GET", f"{API}/sobjects/Account/{account}/contacts")
    assert {"AccountId", "MailingAddress"} <= set(whole["records"][0])
    assert rest.call("GET", f"{API}/sobjects/Account/{account}/Cases")["records"] == []


@pytest.mark.parametrize(
    "path, status, code",
    [
        ("Account/{}/Nothings", 404, "NOT_FOUND"),
        ("Account/{}/Parent", 404, "NOT_FOUND"),
        ("Nothing/{}/Contacts", 404, "NOT_FOUND"),
        ("Account/nothing/Contacts", 404, "NOT_FOUND"),
        ("Account/001TW00000zzzzzAAA/Contacts", 404, "NOT_FOUND"),
        ("Account/{}/Contacts?fields=Id,Nope", 400, "INVALID_FIELD"),
        ("Account/{}/Owner?fields=Nope", 400, "INVALID_FIELD"),
    ],
)
def test_path_that_leads_nowhere_is_refused(
    rest: Rest, account: str, path: str, status: int, code: str
) -> None:
    with pytest.raises(Refused, match=code) as caught:
        rest.call("GET", f"{API}/sobjects/{path.format(account)}")
    assert caught.value.status == status


def test_field_behind_a_relationship_is_read_alone(rest: Rest, account: str) -> None:
    contact = rest.create("Contact", {"LastName": "Child", "AccountId": account})
    found = rest.call("GET", f"{API}/sobjects/Contact/{contact}/Account/phone")
    assert (list(found), found["Phone"]) == (["attributes", "Phone", "Id"], "1")
    found = rest.call("GET", f"{API}/sobjects/Account/{account}/Contacts/LastName")
    assert sorted(record["LastName"] for record in found["records"]) == ["Abel", "Child", "Zoe"]
    with pytest.raises(Refused, match="NOT_FOUND"):
        rest.call("GET", f"{API}/sobjects/Contact/{contact}/Account/Nope")
