"""zeep, unmodified: makes a client of the WSDL that the server gives, and uses it."""

from __future__ import annotations

import uuid
from importlib import import_module
from typing import Any

import pytest
import requests

from tidewire.config import DEV_PASSWORD, DEV_USERNAME
from tidewire.testing import READER_USERNAME, ServerProcess

pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]

zeep: Any = import_module("zeep")  # it has no types, and neither has what it parses with
etree: Any = import_module("lxml.etree")
PARTNER_OBJECTS = "urn:sobject.partner.soap.sforce.com"
ENTERPRISE_OBJECTS = "urn:sobject.enterprise.soap.sforce.com"


class Api:
    """A client made of a WSDL, signed in through it."""

    def __init__(self, server: ServerProcess, page: str, api: str, username: str = DEV_USERNAME) -> None:
        session = requests.Session()
        if api == "enterprise":
            session.headers["Authorization"] = f"Bearer {server.login(username)}"
        self.client = zeep.Client(server.http + page, transport=zeep.Transport(session=session))
        signed_in = self.client.service.login(username, DEV_PASSWORD)
        self._headers = {"SessionHeader": {"sessionId": signed_in.sessionId}}
        self._service = self.client.create_service(
            f"{{urn:{api}.soap.sforce.com}}SoapBinding", signed_in.serverUrl
        )

    def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        """The result of one call."""
        headers = {**self._headers, **named.pop("headers", {})}
        return self._service[name](*arguments, **named, _soapheaders=headers).body.result


@pytest.fixture(scope="module")
def partner(server: ServerProcess) -> Api:
    """The partner API."""
    return Api(server, "/services/wsdl/partner", "partner")


@pytest.fixture(scope="module")
def enterprise(server: ServerProcess) -> Api:
    """The enterprise API."""
    return Api(server, "/services/wsdl/enterprise", "enterprise")


@pytest.fixture
def mark() -> str:
    """A word that stands in no other record."""
    return "Z" + uuid.uuid4().hex[:10]


def record(api: Api, entity: str, **fields: str) -> Any:
    """A record of the partner API, whose fields its WSDL leaves open."""
    elements = []
    for name, value in fields.items():
        element = etree.Element(f"{{{PARTNER_OBJECTS}}}{name}")
        element.text = value
        elements.append(element)
    made = api.client.get_type(f"{{{PARTNER_OBJECTS}}}sObject")
    return made(type=entity, Id=zeep.xsd.SkipValue, _value_1=elements)


def test_partner_client_creates_and_queries(partner: Api, mark: str) -> None:
    saved, refused = partner.call(
        "create", [record(partner, "Account", Name=mark), record(partner, "Account", Phone="1")]
    )
    assert (saved.success, refused.success) == (True, False)
    assert refused.errors[0].statusCode == "REQUIRED_FIELD_MISSING"
    found = partner.call("query", f"SELECT Id, Name FROM Account WHERE Name = '{mark}'")
    assert (found.done, found.size, found.records[0].Id) == (True, 1, saved.id)
    assert [element.text for element in found.records[0]["_value_1"]] == [saved.id, mark]


def test_partner_client_takes_headers(partner: Api, mark: str) -> None:
    results = partner.call(
        "create",
        [record(partner, "Account", Name=mark), record(partner, "Account", Phone="1")],
        headers={"AllOrNoneHeader": {"allOrNone": True}, "CallOptions": {"client": "zeep"}},
    )
    codes = [result.errors[0].statusCode for result in results]
    assert codes == ["ALL_OR_NONE_OPERATION_ROLLED_BACK", "REQUIRED_FIELD_MISSING"]


def test_partner_client_reads_every_describe(partner: Api) -> None:
    described = partner.call("describeSObject", "Account")
    assert {"Id", "Name", "BillingAddress"} <= {field.name for field in described.fields}
    assert {"Account", "Contact"} <= {entry.name for entry in partner.call("describeGlobal").sobjects}
    assert len(partner.call("describeSObjects", ["Account", "User", "Task"])) == 3
    assert partner.call("describeLayout", "Account").layouts[0].detailLayoutSections[0].rows > 20
    assert partner.call("describeCompactLayouts", "Account").compactLayouts[0].name == "SYSTEM"
    assert [each.name for each in partner.call("describePrimaryCompactLayouts", ["Lead"])] == ["SYSTEM"]
    assert partner.call("describeSearchLayouts", ["Account"])[0].searchColumns[0].name == "Name"
    assert partner.call("describeTabs")[0].tabs
    assert partner.call("describeAllTabs")
    assert partner.call("describeGlobalTheme")["global"].sobjects
    assert "Account" in [scope.name for scope in partner.call("describeSearchScopeOrder")]


def test_partner_client_is_told_what_is_wrong(partner: Api) -> None:
    with pytest.raises(zeep.exceptions.Fault, match="MALFORMED_QUERY"):
        partner.call("query", "SELECT FROM Account")
    with pytest.raises(zeep.exceptions.Fault, match="AppMenuType"):
        partner.call("describeAppMenu", "Nope")


def test_enterprise_client_has_the_fields_of_the_org(enterprise: Api, mark: str) -> None:
    account = enterprise.client.get_type(f"{{{ENTERPRISE_OBJECTS}}}Account")
    contact = enterprise.client.get_type(f"{{{ENTERPRISE_OBJECTS}}}Contact")
    (saved,) = enterprise.call("create", [account(Name=mark, NumberOfEmployees=5, BillingCity="Kiel")])
    enterprise.call("create", [contact(LastName=mark, AccountId=saved.id)])
    soql = (
        "SELECT Name, NumberOfEmployees, CreatedDate, BillingAddress, Owner.Name, Id,"
        f" (SELECT LastName FROM Contacts) FROM Account WHERE Name = '{mark}'"
    )
    (found,) = enterprise.call("query", soql).records
    assert (found.Id, found.Name, found.NumberOfEmployees) == (saved.id, mark, 5)
    assert (found.BillingAddress.city, found.Owner.Name) == ("Kiel", "Ada Admin")
    assert found.CreatedDate.tzinfo is not None
    assert [child.LastName for child in found.Contacts.records] == [mark]


def test_enterprise_wsdl_leaves_out_what_the_caller_may_not_read(server: ServerProcess) -> None:
    api = Api(server, "/soap/wsdl.jsp?type=*", "enterprise", READER_USERNAME)
    account = api.client.get_type(f"{{{ENTERPRISE_OBJECTS}}}Account")
    names = {name for name, _ in account.elements}
    assert "Name" in names
    assert not names & {"Phone", "AnnualRevenue"}
    with pytest.raises(zeep.exceptions.LookupError):
        api.client.get_type(f"{{{ENTERPRISE_OBJECTS}}}Opportunity")
