"""simple-salesforce, unmodified, over HTTPS."""

from __future__ import annotations

import csv
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from requests.adapters import HTTPAdapter
from simple_salesforce.api import Salesforce
from simple_salesforce.exceptions import (
    SalesforceAuthenticationFailed,
    SalesforceExpiredSession,
    SalesforceMalformedRequest,
    SalesforceResourceNotFound,
)
from simple_salesforce.login import SalesforceLogin

from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_PASSWORD, DEV_USERNAME
from tidewire.testing import ServerProcess

pytestmark = pytest.mark.clients

BULK_ROWS = 20_000


@pytest.fixture
def tls(server: ServerProcess) -> Iterator[requests.Session]:
    """A requests session that trusts the server's private CA."""
    with requests.Session() as session:
        session.trust_env = False  # a CA bundle named in the environment would win over ours
        session.verify = str(server.ca_path)
        yield session


def log_in(server: ServerProcess, tls: requests.Session, password: str = DEV_PASSWORD) -> tuple[str, str]:
    token, host = SalesforceLogin(
        username=DEV_USERNAME, password=password, security_token="", scratch_url=server.https, session=tls
    )
    return token, host


@pytest.fixture
def salesforce(server: ServerProcess, tls: requests.Session) -> Any:
    token, host = log_in(server, tls)
    return Salesforce(instance=host, session_id=token, session=tls)


@pytest.fixture(scope="module")
def shipments(server: ServerProcess) -> str:
    """An object of this module's own, with an external id."""
    name = f"S{uuid.uuid4().hex[:8]}__c"
    fields = {
        "Key__c": {"type": "Text", "length": 40, "external_id": True, "unique": True},
        "Weight__c": {"type": "Number", "precision": 18, "scale": 0},
    }
    definition = {
        "label": "Shipment",
        "plural": "Shipments",
        "name": {"type": "AutoNumber", "format": "S-{0}"},
    }
    answer = requests.post(
        f"{server.http}/services/tidewire/v1/apply",
        json={"objects": {name: {**definition, "fields": fields}}},
        headers={"Authorization": f"Bearer {server.login()}"},
        timeout=120,
    )
    assert answer.status_code == 200, answer.text
    return name


def test_login_returns_this_host(server: ServerProcess, tls: requests.Session) -> None:
    token, host = log_in(server, tls)
    assert host == server.https.removeprefix("https://")
    assert token.startswith(server.org_id[:15])


def test_login_with_a_wrong_password_fails_with_its_code(
    server: ServerProcess, tls: requests.Session
) -> None:
    with pytest.raises(SalesforceAuthenticationFailed) as caught:
        log_in(server, tls, password="wrong")
    assert caught.value.code == "INVALID_LOGIN"


def test_record_goes_through_its_life(salesforce: Any) -> None:
    name = f"Acme {uuid.uuid4().hex}"
    created = salesforce.Account.create({"Name": name, "AnnualRevenue": 1000})
    assert created["success"] is True
    record_id = created["id"]
    assert salesforce.Account.update(record_id, {"Phone": "123"}) == 204
    record = salesforce.Account.get(record_id)
    assert (record["Name"], record["Phone"], record["AnnualRevenue"]) == (name, "123", 1000.0)
    found = salesforce.query(f"SELECT Id, Name FROM Account WHERE Name = '{name}'")
    assert (found["totalSize"], found["records"][0]["Id"]) == (1, record_id)
    assert salesforce.Account.delete(record_id) == 204
    with pytest.raises(SalesforceResourceNotFound):
        salesforce.Account.get(record_id)
    everything = salesforce.query_all(f"SELECT Id FROM Account WHERE Name = '{name}'", include_deleted=True)
    assert everything["totalSize"] == 1


def test_query_all_follows_every_page(salesforce: Any) -> None:
    mark = uuid.uuid4().hex[:12]
    for number in range(205):
        salesforce.Account.create({"Name": f"{mark} {number:03}"})
    soql = f"SELECT Name FROM Account WHERE Name LIKE '{mark}%' ORDER BY Name"
    small = {"Sforce-Query-Options": "batchSize=200"}
    names = [row["Name"] for row in salesforce.query_all_iter(soql, headers=small)]
    assert names == [f"{mark} {number:03}" for number in range(205)]


def test_descriptions_and_limits_are_read(salesforce: Any) -> None:
    listed = salesforce.describe()
    assert listed is not None
    assert "Account" in [entry["name"] for entry in listed["sobjects"]]
    described = salesforce.Account.describe()
    assert "Name" in [field["name"] for field in described["fields"]]
    assert salesforce.limits()["DailyApiRequests"]["Max"] > 0
    assert salesforce.api_usage["api-usage"].used > 0


def test_errors_carry_code_and_message(salesforce: Any) -> None:
    with pytest.raises(SalesforceMalformedRequest, match="REQUIRED_FIELD_MISSING"):
        salesforce.Account.create({"Phone": "1"})
    with pytest.raises(SalesforceMalformedRequest, match="unexpected token"):
        salesforce.query("SELECT Id FORM Account")


def test_dead_session_is_told_as_such(server: ServerProcess, tls: requests.Session) -> None:
    host = server.https.removeprefix("https://")
    with pytest.raises(SalesforceExpiredSession):
        Salesforce(instance=host, session_id="00D!dead", session=tls).query("SELECT Id FROM Account")


def test_upsert_by_external_id_creates_then_updates(salesforce: Any, shipments: str) -> None:
    key = uuid.uuid4().hex[:12]
    shipment = getattr(salesforce, shipments)
    assert shipment.upsert(f"Key__c/{key}", {"Weight__c": 1}) == 201
    assert shipment.upsert(f"Key__c/{key}", {"Weight__c": 2}) == 200
    assert shipment.get_by_custom_id("Key__c", key)["Weight__c"] == 2.0


def test_relationship_queries_nest_parents_and_children(salesforce: Any) -> None:
    mark = uuid.uuid4().hex[:12]
    account_id = salesforce.Account.create({"Name": mark})["id"]
    salesforce.Contact.create({"LastName": mark, "AccountId": account_id})
    (contact,) = salesforce.query(f"SELECT Account.Name FROM Contact WHERE LastName = '{mark}'")["records"]
    assert contact["Account"]["Name"] == mark
    soql = f"SELECT (SELECT LastName FROM Contacts) FROM Account WHERE Id = '{account_id}'"
    (account,) = salesforce.query(soql)["records"]
    assert [c["LastName"] for c in account["Contacts"]["records"]] == [mark]


def test_composite_request_uses_what_it_has_just_made(salesforce: Any) -> None:
    mark = uuid.uuid4().hex[:12]
    base = f"/services/data/v{salesforce.sf_version}"
    body = {
        "allOrNone": True,
        "compositeRequest": [
            {
                "method": "POST",
                "url": f"{base}/sobjects/Account",
                "referenceId": "account",
                "body": {"Name": mark},
            },
            {
                "method": "POST",
                "url": f"{base}/sobjects/Contact",
                "referenceId": "contact",
                "body": {"LastName": mark, "AccountId": "@{account.id}"},
            },
        ],
    }
    answers = salesforce.restful("composite", method="POST", json=body)["compositeResponse"]
    assert [answer["httpStatusCode"] for answer in answers] == [201, 201]
    (contact,) = salesforce.query(f"SELECT Account.Name FROM Contact WHERE LastName = '{mark}'")["records"]
    assert contact["Account"]["Name"] == mark


@pytest.mark.timeout(180)
def test_bulk_2_carries_twenty_thousand_rows_and_query_all_reads_them(
    salesforce: Any, shipments: str
) -> None:
    rows = [{"Key__c": f"{uuid.uuid4().hex[:10]}{n}", "Weight__c": n} for n in range(BULK_ROWS)]
    bulk = getattr(salesforce.bulk2, shipments)
    results = bulk.insert(records=[{k: str(v) for k, v in row.items()} for row in rows])
    assert sum(job["numberRecordsProcessed"] for job in results) == BULK_ROWS
    assert sum(job["numberRecordsFailed"] for job in results) == 0
    read = "".join(bulk.query(f"SELECT Key__c FROM {shipments}"))  # SOQL, of our own name
    assert len(list(csv.reader(read.splitlines()))) >= BULK_ROWS
    soql = f"SELECT Id, Weight__c FROM {shipments} WHERE Weight__c < 5000"
    found = salesforce.query_all(soql)
    assert found["totalSize"] == len(found["records"]) >= 5000


@pytest.mark.timeout(180)
def test_bulk_1_carries_twenty_thousand_rows(salesforce: Any, shipments: str) -> None:
    rows = [{"Key__c": f"{uuid.uuid4().hex[:10]}{n}", "Weight__c": n} for n in range(BULK_ROWS)]
    results = getattr(salesforce.bulk, shipments).insert(rows, batch_size=10_000, use_serial=True)
    assert len(results) == BULK_ROWS
    assert all(result["success"] for result in results)
    first = getattr(salesforce.bulk, shipments).query(
        f"SELECT Id, Key__c FROM {shipments} WHERE Key__c = '{rows[0]['Key__c']}'"
    )
    assert [row["Key__c"] for row in first] == [rows[0]["Key__c"]]


class Detour(HTTPAdapter):
    """Takes requests for the original login host to our own server, as a name server of ours would."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__()
        self._netloc = urlsplit(server.https).netloc

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        request.url = urlsplit(str(request.url))._replace(netloc=self._netloc).geturl()
        return super().send(request, *args, **kwargs)


@pytest.mark.parametrize("kind", ["token", "organization", "consumer"])
def test_every_kind_of_password_login_leads_here(
    server: ServerProcess, tls: requests.Session, kind: str
) -> None:
    tls.mount("https://login.salesforce.com", Detour(server))
    more: Any = {
        "token": {"security_token": ""},
        "organization": {"organizationId": server.org_id},
        "consumer": {"consumer_key": DEV_CLIENT_ID, "consumer_secret": DEV_CLIENT_SECRET},
    }[kind]
    salesforce: Any = Salesforce(username=DEV_USERNAME, password=DEV_PASSWORD, session=tls, **more)
    assert salesforce.is_sandbox() is False
    salesforce.session_id = "00Ddead!x"
    assert salesforce.User.describe()["name"] == "User"  # the client signs in again by itself


def test_contact_is_upserted_by_its_address(salesforce: Any) -> None:
    email = f"{uuid.uuid4().hex[:12]}@example.org"
    assert salesforce.Contact.upsert(f"Email/{email}", {"LastName": "One"}) == 201
    assert salesforce.Contact.upsert(f"Email/{email}", {"LastName": "Two"}) == 200
    assert salesforce.Contact.get_by_custom_id("Email", email)["LastName"] == "Two"


def test_bulk_1_upserts_queries_with_parents_and_deletes(salesforce: Any, shipments: str) -> None:
    key = uuid.uuid4().hex[:12]
    bulk = getattr(salesforce.bulk, shipments)
    (made,) = bulk.upsert([{"Key__c": key, "Weight__c": 1}], "Key__c")
    (again,) = bulk.upsert([{"Key__c": key, "Weight__c": 2}], "Key__c", include_detailed_results=True)
    assert (made["created"], again["created"], again["Weight__c"]) == (True, False, 2)
    (found,) = bulk.query(f"SELECT Weight__c, Owner.Username FROM {shipments} WHERE Key__c = '{key}'")
    assert (found["Weight__c"], found["Owner"]["Username"]) == (2.0, DEV_USERNAME)
    assert found["Owner"]["attributes"]["type"] == "User"
    (gone,) = bulk.delete([{"Id": made["id"]}])
    assert gone["success"] is True
    (deleted,) = bulk.query_all(f"SELECT IsDeleted FROM {shipments} WHERE Key__c = '{key}'")
    assert deleted["IsDeleted"] is True
