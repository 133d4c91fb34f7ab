"""Push topics through REST, against a live server: fields, limits and every refusal that clients know."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tidewire.testing import ServerProcess

V = "/services/data/v59.0"
TOPICS = f"{V}/sobjects/PushTopic"


class Topics(requests.Session):
    """REST calls as the administrator."""

    def __init__(self, server: ServerProcess, token: str) -> None:
        super().__init__()
        self.base = server.http
        self.headers["Authorization"] = f"Bearer {token}"

    def go(self, method: str, path: str, **options: Any) -> requests.Response:
        return self.request(method, self.base + path, timeout=120, **options)

    def make(self, query: str, path: str = TOPICS, **values: object) -> requests.Response:
        body = {"Name": unique(), "Query": query, "ApiVersion": 59.0, **values}
        return self.go("POST", path, json=body)


def unique() -> str:
    return f"T{uuid.uuid4().hex[:20]}"


@pytest.fixture
def topics(server: ServerProcess, dev_token: str) -> Iterator[Topics]:
    with Topics(server, dev_token) as session:
        yield session


@pytest.mark.parametrize(
    "query, message",
    [
        (
            "SELECT Id, Name FROM Account WHERE Id IN (SELECT AccountId FROM Contact WHERE Title = 'CEO')",
            "semi/anti join sub-selects are not supported",
        ),
        ("SELECT Id, AVG(AnnualRevenue) FROM Account", "Aggregate queries are not supported"),
        ("SELECT Id, Industry, Count(Name) FROM Account", "Aggregate queries are not supported"),
        ("SELECT Id, Name FROM Contact LIMIT 10", "'LIMIT' is not allowed"),
        ("SELECT Id, Contact.Account.Name FROM Contact", "relationships are not supported"),
        ("SELECT Id, Name FROM Account ORDER BY Name", "'ORDER BY' clause is not allowed"),
        ("SELECT Id, AccountId FROM Contact GROUP BY AccountId", "Aggregate queries are not supported"),
        ("SELECT Id FROM Account WHERE NOT Name = 'Salesforce.com'", "'NOT' is not supported"),
        ("SELECT Id, Name FROM Account WHERE City = 'New York' OFFSET 10", "'OFFSET' clause is not allowed"),
        (
            "SELECT TYPEOF Owner WHEN User THEN LastName ELSE Name END FROM Case",
            "'TYPEOF' clause is not allowed",
        ),
    ],
)
def test_unsupported_query_is_refused_in_the_guides_words(topics: Topics, query: str, message: str) -> None:
    answer = topics.make(query)
    assert answer.status_code == 400
    assert answer.json() == [{"message": message, "errorCode": "INVALID_FIELD", "fields": ["Query"]}]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT Id, Name FROM Account WHERE NumberOfEmployees > 1000",
        "SELECT Id, Name FROM Campaign WHERE Status = 'Planned'",
        "SELECT Id, Subject FROM Case WHERE Status = 'Working' AND IsEscalated = TRUE",
        "SELECT Id, Name, Email FROM Contact;",
        "SELECT Id, Company FROM Lead WHERE Industry = 'Computer Services'",
        "SELECT Id, Name, Amount FROM Opportunity WHERE CloseDate < 2011-06-14",
        "SELECT Id, Subject, IsClosed, Status FROM Task WHERE isClosed = TRUE",
        "SELECT Id FROM Account WHERE Name NOT IN ('a', 'b')",
        "SELECT Id, Name FROM Opportunity WHERE CloseDate = NEXT_N_DAYS:30",
    ],
)
def test_guides_examples_are_accepted(topics: Topics, query: str) -> None:
    answer = topics.make(query)
    assert answer.status_code == 201, answer.text


def test_unknown_object_in_the_query_is_told_of_the_query(topics: Topics) -> None:
    answer = topics.make("SELECT Id, Name FROM NoSuchThing__c")
    (error,) = answer.json()
    assert (answer.status_code, error["errorCode"], error["fields"]) == (400, "INVALID_FIELD", ["Query"])
    assert "sObject type 'NoSuchThing__c' is not supported" in error["message"]


def test_describe_has_the_properties_of_the_reference(topics: Topics) -> None:
    described = {
        name: {f["name"]: f for f in topics.go("GET", f"{V}/sobjects/{name}/describe").json()["fields"]}
        for name in ("PushTopic", "StreamingChannel")
    }
    push_topic = described["PushTopic"]
    for name in ("ApiVersion", "Description", "NotifyForFields", "Query"):
        field = push_topic[name]
        assert all(field[word] for word in ("createable", "filterable", "sortable", "updateable"))
        assert field["groupable"] is False
    for name in ("Id", "IsActive", "IsDeleted", "Name"):
        assert push_topic[name]["groupable"] is True
    operations = push_topic["NotifyForOperations"]
    assert (operations["createable"], operations["updateable"], operations["groupable"]) == (False,) * 3
    assert described["StreamingChannel"]["Name"]["idLookup"] is True
    assert described["StreamingChannel"]["Description"]["groupable"] is True


def test_new_topic_has_the_documented_defaults(topics: Topics) -> None:
    made = topics.make("SELECT Id, Name FROM Account").json()["id"]
    row = topics.go("GET", f"{TOPICS}/{made}").json()
    assert row["IsActive"] is True
    assert row["NotifyForFields"] == "Referenced"
    assert row["NotifyForOperations"] == "All"
    assert all(row[f"NotifyForOperation{word}"] for word in ("Create", "Update", "Delete", "Undelete"))


@pytest.mark.parametrize(
    "values, code",
    [
        ({"Name": "N" * 26}, "STRING_TOO_LONG"),
        ({"Description": "d" * 401}, "STRING_TOO_LONG"),
        ({"Query": "SELECT Id, Name FROM Account WHERE Name = '" + "x" * 1300 + "'"}, "STRING_TOO_LONG"),
        ({"ApiVersion": 20.0}, "INVALID_FIELD"),
        ({"ApiVersion": 68.0}, "INVALID_FIELD"),
        ({"ApiVersion": None}, "REQUIRED_FIELD_MISSING"),
        ({"NotifyForFields": "Some"}, "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST"),
        ({"NotifyForFields": "Where"}, "INVALID_FIELD"),
        ({"NotifyForOperations": "All"}, "INVALID_FIELD_FOR_INSERT_UPDATE"),
    ],
)
def test_wrong_value_is_refused(topics: Topics, values: dict[str, object], code: str) -> None:
    body = {"Name": unique(), "Query": "SELECT Id, Name FROM Account", "ApiVersion": 59.0, **values}
    answer = topics.go("POST", TOPICS, json=body)
    assert (answer.status_code, answer.json()[0]["errorCode"]) == (400, code)


def test_name_is_unique_among_living_topics(topics: Topics) -> None:
    name = unique()
    made = topics.make("SELECT Id, Name FROM Account", Name=name).json()["id"]
    again = topics.make("SELECT Id, Name FROM Account", Name=name.upper())
    assert again.json()[0]["errorCode"] == "DUPLICATE_VALUE"
    assert topics.go("DELETE", f"{TOPICS}/{made}").status_code == 204
    assert topics.make("SELECT Id, Name FROM Account", Name=name).status_code == 201


def test_version_28_sets_operations(topics: Topics) -> None:
    path = TOPICS.replace("v59.0", "v28.0")
    made = topics.make("SELECT Id, Name FROM Account", path, NotifyForOperations="Create").json()["id"]
    row = topics.go("GET", f"{TOPICS}/{made}").json()
    assert (row["NotifyForOperationCreate"], row["NotifyForOperationUpdate"]) == (True, False)
    changed = topics.go("PATCH", f"{path}/{made}", json={"NotifyForOperations": "Update"})
    assert changed.status_code == 204
    assert topics.go("GET", f"{TOPICS}/{made}").json()["NotifyForOperations"] == "Update"
