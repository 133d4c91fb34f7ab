"""The WSDL: complete, well-formed, and true of what the server answers."""

from __future__ import annotations

from xml.etree.ElementTree import Element, fromstring

import pytest

from tests.orgs import READER, TestOrg
from tests.unit.frontends.soap.caller import sign_in
from tidewire.config import DEV_PASSWORD, DEV_USERNAME
from tidewire.frontends.soap.serve import OPERATIONS, SoapApp
from tidewire.frontends.soap.wire import ENTERPRISE, PARTNER, Dialect
from tidewire.frontends.soap.wire_errors import SOAP_ERRORS
from tidewire.frontends.soap.wsdl.document import RecordShape, render_wsdl
from tidewire.frontends.soap.wsdl.shapes import CALLS, FAULTS, HEADERS, TYPES, render_word
from tidewire.transport.http import HttpRequest, HttpResponse

XSD = "{http://www.w3.org/2001/XMLSchema}"
WSDL = "{http://schemas.xmlsoap.org/wsdl/}"
SOAP = "{http://schemas.xmlsoap.org/wsdl/soap/}"


def schema(document: Element, namespace: str) -> Element:
    return next(s for s in document.iter(f"{XSD}schema") if s.get("targetNamespace") == namespace)


async def fetch(
    org: TestOrg, target: str, headers: dict[str, str] | None = None, method: str = "GET"
) -> HttpResponse:
    app = SoapApp(org.core.gate, org.core.logins, org.core.cursors, org.clock)
    return await app.handle(HttpRequest(method, target, {"host": "example.org", **(headers or {})}))


async def token(org: TestOrg, username: str = DEV_USERNAME) -> str:
    return (await org.core.logins.login(username, DEV_PASSWORD, "test")).token


def test_every_call_and_fault_of_the_server_is_declared() -> None:
    assert CALLS.keys() == OPERATIONS.keys() | {"login"}
    assert {row.fault_type for row in SOAP_ERRORS.values() if row.fault_type} <= FAULTS.keys()
    assert {h for shape in CALLS.values() for h in shape.headers.split()} <= HEADERS.keys()
    assert {f for shape in CALLS.values() for f in shape.faults.split()} <= FAULTS.keys()


@pytest.mark.parametrize("dialect", [PARTNER, ENTERPRISE])
def test_every_type_that_is_named_is_declared(dialect: Dialect) -> None:
    records = [RecordShape("Account", ("Name?~", "Owner:ens:sObject?~"))]
    document = fromstring(render_wsdl(dialect, "http://example.org/?a&b", records))
    declared = {
        f"{prefix}:{kind.get('name')}"
        for prefix, namespace in (
            ("tns", dialect.namespace),
            ("ens", dialect.object_namespace),
            ("fns", dialect.fault_namespace),
        )
        for kind in schema(document, namespace)
        if kind.tag in (f"{XSD}complexType", f"{XSD}simpleType")
    }
    named = {e.get("type") for e in document.iter(f"{XSD}element") if e.get("type")}
    named |= {e.get("base") for e in document.iter(f"{XSD}extension")}
    assert {name for name in named if name and not name.startswith("xsd:")} <= declared
    address = document.find(f".//{SOAP}address")
    assert address is not None
    assert address.get("location") == "http://example.org/?a&b"
    messages = {message.get("name") for message in document.findall(f"{WSDL}message")}
    used = {
        str(each.get("message")).removeprefix("tns:")
        for each in document.iter()
        if each.get("message") is not None
    }
    assert used <= messages


def test_render_word_raises_for_text_outside_the_notation() -> None:
    assert render_word("a:int*~") == (
        '<element name="a" type="xsd:int" minOccurs="0" maxOccurs="unbounded" nillable="true"/>'
    )
    with pytest.raises(ValueError, match="not a word"):
        render_word("a b")


@pytest.mark.parametrize(
    "call, arguments, kind",
    [
        ("describeSObject", "<sObjectType>Account</sObjectType>", "DescribeSObjectResult"),
        ("describeSObject", "<sObjectType>AccountChangeEvent</sObjectType>", "DescribeSObjectResult"),
        ("describeSObject", "<sObjectType>Order_Event__e</sObjectType>", "DescribeSObjectResult"),
        ("describeGlobal", "", "DescribeGlobalResult"),
        ("describeLayout", "<sObjectType>Case</sObjectType>", "DescribeLayoutResult"),
        ("describeCompactLayouts", "<sObjectType>Case</sObjectType>", "DescribeCompactLayoutsResult"),
        ("describeSearchLayouts", "<sObjectType>Case</sObjectType>", "DescribeSearchLayoutResult"),
        ("describeTabs", "", "DescribeTabSetResult"),
        ("describeGlobalTheme", "", "DescribeGlobalTheme"),
        ("getUserInfo", "", "GetUserInfoResult"),
        ("create", "<sObjects><sf:type>Account</sf:type></sObjects>", "SaveResult"),
        ("query", "<queryString>SELECT Id FROM User</queryString>", "QueryResult"),
    ],
)
async def test_answer_has_the_elements_of_its_type_in_order(
    org: TestOrg, call: str, arguments: str, kind: str
) -> None:
    caller = await sign_in(org)
    for result in await caller.call(call, arguments):
        check_shape(result, kind)


def check_shape(element: Element, kind: str) -> None:
    words = {word.rstrip("~?*+").partition(":")[0]: word for word in TYPES[kind].split()}
    names = [child.tag for child in element]
    order = list(words)
    assert set(names) <= words.keys(), f"{kind}: {set(names) - words.keys()}"
    assert names == sorted(names, key=order.index), kind
    assert [n for n, word in words.items() if word.rstrip("~")[-1] not in "?*" and n not in names] == [], kind
    for child in element:
        inner = words[child.tag].rstrip("~?*+").partition(":")[2]
        if inner in TYPES:
            check_shape(child, inner)


async def test_partner_wsdl_is_for_everybody_and_names_the_host(org: TestOrg) -> None:
    for target in ("/services/wsdl/partner", "/soap/wsdl.jsp", "/services/Soap/u/67.0?wsdl"):
        answer = await fetch(org, target)
        assert (answer.status, answer.content_type) == (200, "text/xml;charset=UTF-8")
        assert b'location="http://example.org/services/Soap/u/67.0"' in answer.body
    assert b"/services/Soap/u/59.0" in (await fetch(org, "/services/Soap/u/59.0/?WSDL")).body


async def test_enterprise_wsdl_needs_a_session_wherever_it_is_given(org: TestOrg) -> None:
    own = await token(org)
    for target in ("/services/wsdl/enterprise", "/soap/wsdl.jsp?type=*", "/services/Soap/c/67.0?wsdl"):
        refused = await fetch(org, target)
        assert refused.status == 401
        assert b"INVALID_SESSION_ID" in refused.body
        assert (await fetch(org, target, {"authorization": f"OAuth {own}"})).status == 200
        assert (await fetch(org, target, {"cookie": f"a=b; sid={own}"})).status == 200
    assert (await fetch(org, f"/services/wsdl/enterprise?oauth_token={own}")).status == 200


async def test_enterprise_wsdl_shows_what_its_reader_may_see(org: TestOrg) -> None:
    await org.apply(
        objects={"Box__c": {"fields": {"Owner_Account__c": {"type": "Lookup", "references": "Account"}}}}
    )
    for username, sees_all in ((DEV_USERNAME, True), (READER, False)):
        headers = {"authorization": f"Bearer {await token(org, username)}"}
        document = fromstring((await fetch(org, "/services/wsdl/enterprise", headers)).body)
        types = {kind.get("name"): kind for kind in schema(document, ENTERPRISE.object_namespace)}
        fields = {e.get("name"): e.get("type") for e in types["Account"].iter(f"{XSD}element")}
        assert fields["Name"] == "xsd:string"
        assert ("Phone" in fields) is sees_all
        assert ("Opportunity" in types) is sees_all
        assert ("Opportunities" in fields) is sees_all
        assert list(fields) == sorted(fields, key=str)
        if sees_all:
            assert fields["BillingAddress"] == "tns:address"
            assert fields["Contacts"] == "tns:QueryResult"
            box = {e.get("name"): e.get("type") for e in types["Box__c"].iter(f"{XSD}element")}
            assert box["Owner_Account__c"] == "tns:ID"
            assert box["Owner_Account__r"] == "ens:Account"


@pytest.mark.parametrize(
    "target, method, status",
    [
        ("/services/wsdl/metadata", "GET", 404),
        ("/services/wsdl/", "GET", 404),
        ("/services/Soap/m/59.0?wsdl", "GET", 404),
        ("/services/wsdl/partner", "POST", 405),
        ("/services/Soap/u/12.0?wsdl", "GET", 500),
    ],
)
async def test_unknown_wsdl_path_is_rejected(org: TestOrg, target: str, method: str, status: int) -> None:
    answer = await fetch(org, target, method=method)
    assert answer.status == status
    assert answer.headers == ((("Allow", "GET, HEAD"),) if status == 405 else ())
