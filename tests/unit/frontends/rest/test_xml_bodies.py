"""XML answers and bodies."""

from __future__ import annotations

import json
from xml.etree.ElementTree import fromstring

import pytest

from tests.orgs import TestOrg
from tests.unit.frontends.rest.caller import Caller, header, sign_in
from tidewire.errors import BodyMalformed, BodyTooLarge, PlatformError
from tidewire.frontends.rest.xml_bodies import parse_body, render_xml, wants_xml
from tidewire.transport.http import HttpRequest

XML = "application/xml"


def body(content: str | bytes, content_type: str = XML) -> HttpRequest:
    raw = content if isinstance(content, bytes) else content.encode()
    return HttpRequest("POST", "/", {"content-type": content_type}, raw)


@pytest.mark.parametrize(
    "accept, is_xml",
    [
        ("", False),
        ("*/*", False),
        ("application/json", False),
        ("application/xml", True),
        ("text/xml", True),
        ("application/xml, application/json", True),
        ("application/json, application/xml", False),
        ("application/xml;q=0.5, application/json", False),
        ("application/xml;q=0, */*;q=0.1", False),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", True),
    ],
)
def test_form_follows_the_accept_header(accept: str, is_xml: bool) -> None:
    assert wants_xml(HttpRequest("GET", "/", {"accept": accept})) is is_xml


def test_record_is_an_element_of_its_type() -> None:
    record: dict[str, object] = {
        "attributes": {"type": "Account", "url": '/a"b'},
        "Name": "<R&D>\x01",
        "Fax": None,
        "Active__c": True,
        "errors": [],
    }
    text = render_xml(record, "Result").decode()
    assert text == (
        '<?xml version="1.0" encoding="UTF-8"?><Account type="Account" url=\'/a"b\''
        ' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><Name>&lt;R&amp;D&gt;\ufffd</Name>'
        '<Fax xsi:nil="true"/><Active__c>true</Active__c></Account>'
    )


def test_names_that_no_element_can_have_become_attributes() -> None:
    tree = fromstring(render_xml({"a b": 1, "x><y": [2, 3]}, "Result"))
    assert [(e.tag, e.get("name"), e.text) for e in tree] == [
        ("entry", "a b", "1"),
        ("entry", "x><y", "2"),
        ("entry", "x><y", "3"),
    ]


def test_body_becomes_fields() -> None:
    text = (
        '<?xml version="1.0"?><sObject xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" type="Contact">'
        '<LastName>L &amp; M</LastName><Fax xsi:nil="true"/><Account><Key__c>k</Key__c></Account>'
        "<ids>1</ids><ids>2</ids><ids>3</ids></sObject>"
    )
    assert parse_body(body("\ufeff" + text, "text/xml; charset=UTF-8")) == {
        "attributes": {"type": "Contact"},
        "LastName": "L & M",
        "Fax": None,
        "Account": {"Key__c": "k"},
        "ids": ["1", "2", "3"],
    }
    assert parse_body(body("<Account/>")) == {}


@pytest.mark.parametrize(
    "content, error",
    [
        ("", BodyMalformed),
        ("<a>", BodyMalformed),
        ("<a>text</a>", BodyMalformed),
        ('<!DOCTYPE a [<!ENTITY e "x">]><a>&e;</a>', BodyMalformed),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', BodyMalformed),
        ('<?xml version="1.0" encoding="utf-7"?><a/>', BodyMalformed),
        ("<a><b>x</b></a>".encode("utf-16"), BodyMalformed),
        ("<a>" * 65 + "</a>" * 65, BodyMalformed),
        ("<a>" + "<b/>" * 100_000 + "</a>", BodyTooLarge),
    ],
)
def test_bad_body_is_rejected(content: str | bytes, error: type[PlatformError]) -> None:
    with pytest.raises(error):
        parse_body(body(content))


@pytest.fixture
async def caller(org: TestOrg) -> Caller:
    return await sign_in(org)


async def test_record_is_created_read_and_queried_in_xml(caller: Caller) -> None:
    made = await caller.go(
        "POST",
        "/sobjects/Account.xml",
        b"<Account><Name>X</Name><NumberOfEmployees>7</NumberOfEmployees></Account>",
        content_type=XML,
    )
    assert (made.status, made.content_type) == (201, "application/xml;charset=UTF-8")
    result = fromstring(made.body)
    assert (result.tag, result.findtext("success"), result.find("errors")) == ("Result", "true", None)
    record_id = result.findtext("id")
    read = fromstring((await caller.go("GET", f"/sobjects/Account/{record_id}", accept=XML)).body)
    assert (read.tag, read.get("type"), read.findtext("NumberOfEmployees")) == ("Account", "Account", "7")
    found = fromstring((await caller.go("GET", "/query.xml?q=SELECT+Name+FROM+Account")).body)
    assert (found.tag, found.findtext("done"), found.findtext("totalSize")) == ("QueryResult", "true", "1")
    record = found.find("records")
    assert record is not None
    assert (record.get("type"), record.findtext("Name")) == ("Account", "X")


async def test_error_is_rendered_in_xml(caller: Caller) -> None:
    answer = await caller.go("GET", "/sobjects/Nope.xml")
    error = fromstring(answer.body).find("Error")
    assert error is not None
    assert (answer.status, error.findtext("errorCode")) == (404, "NOT_FOUND")
    assert header(answer, "Sforce-Limit-Info")


async def test_suffix_beats_the_accept_header(caller: Caller) -> None:
    answer = await caller.go("GET", "/limits.json", accept=XML)
    assert "DailyApiRequests" in json.loads(answer.body)
    versions = await caller.go("GET", ".xml", base="/services/data")
    assert fromstring(versions.body).findtext("Version/version") == "20.0"
