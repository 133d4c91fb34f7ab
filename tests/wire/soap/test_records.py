"""Records by SOAP against a live server, as clients send them."""

from __future__ import annotations

from xml.etree.ElementTree import Element, fromstring

import requests

from tests.running import Rest
from tidewire.testing import ServerProcess

PARTNER = "urn:partner.soap.sforce.com"


def call(server: ServerProcess, token: str, operation: str, arguments: str) -> list[Element]:
    """The results of a call in the form of jsforce: arguments in a namespace of their own making."""
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/">'
        f'<soapenv:Header xmlns="{PARTNER}"><SessionHeader><sessionId>{token}</sessionId></SessionHeader>'
        f'</soapenv:Header><soapenv:Body xmlns="{PARTNER}">'
        f'<{operation} xmlns:ns1="sobject.partner.soap.sforce.com">{arguments}</{operation}>'
        "</soapenv:Body></soapenv:Envelope>"
    )
    answer = requests.post(
        f"{server.http}/services/Soap/u/59.0",
        data=body.encode(),
        headers={"Content-Type": "text/xml", "SOAPAction": '""'},
        timeout=120,
    )
    assert answer.status_code == 200, answer.text
    response = fromstring(answer.content)[-1][0]
    for element in response.iter():
        element.tag = element.tag.rpartition("}")[2]
    return list(response)


def test_record_lives_and_dies_by_soap_and_rest_sees_it(
    server: ServerProcess, dev_token: str, rest: Rest
) -> None:
    record = "<ns1:sObjects><type>Account</type><Name>Soap &amp; Water</Name></ns1:sObjects>"
    (made,) = call(server, dev_token, "create", record)
    record_id = made.findtext("id") or ""
    where = f"SELECT Name FROM Account WHERE Id = '{record_id}'"
    assert [row["Name"] for row in rest.query(where)] == ["Soap & Water"]
    ids = f"<ns1:ids>{record_id}</ns1:ids>"
    call(server, dev_token, "delete", ids)
    assert rest.query(where) == []
    call(server, dev_token, "undelete", ids)
    assert len(rest.query(where)) == 1


def test_locator_of_soap_goes_on_where_its_page_ended(server: ServerProcess, dev_token: str) -> None:
    for start in (0, 200):
        records = "".join(
            f"<sObjects><type>Contact</type><LastName>Paged</LastName><Title>{n:03}</Title></sObjects>"
            for n in range(start, start + 200)
        )
        results = call(server, dev_token, "create", records)
        assert {result.findtext("success") for result in results} == {"true"}
    soql = "SELECT Title FROM Contact WHERE LastName = 'Paged' ORDER BY Title"
    (page,) = call(server, dev_token, "query", f"<queryString>{soql}</queryString>")
    titles = [element.text for element in page.iterfind("records/Title")]
    while page.findtext("done") == "false":
        locator = page.findtext("queryLocator")
        (page,) = call(server, dev_token, "queryMore", f"<queryLocator>{locator}</queryLocator>")
        titles += [element.text for element in page.iterfind("records/Title")]
    assert titles == [f"{n:03}" for n in range(400)]


def test_lead_is_converted_by_soap(server: ServerProcess, dev_token: str, rest: Rest) -> None:
    lead = rest.create("Lead", {"LastName": "Converted", "Company": "By Soap"})
    convert = (
        f"<leadConverts><leadId>{lead}</leadId><convertedStatus>Closed - Converted</convertedStatus>"
        "</leadConverts>"
    )
    (result,) = call(server, dev_token, "convertLead", convert)
    assert result.findtext("success") == "true"
    (row,) = rest.query(f"SELECT ConvertedAccountId FROM Lead WHERE Id = '{lead}'")
    assert row["ConvertedAccountId"] == result.findtext("accountId")
