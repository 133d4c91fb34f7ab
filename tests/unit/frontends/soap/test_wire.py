"""SOAP envelopes, read and written."""

from __future__ import annotations

from xml.etree.ElementTree import fromstring

import pytest

from tidewire.errors import BodyMalformed, BodyTooLarge, ResourceUnknown, VersionUnsupported
from tidewire.frontends.soap.wire import (
    ENTERPRISE,
    MAX_BODY_BYTES,
    METADATA,
    PARTNER,
    Endpoint,
    parse_dialect,
    parse_endpoint,
    parse_request,
    render_answer,
    render_elements,
    render_fault,
)

SOAP = "http://schemas.xmlsoap.org/soap/envelope/"
ORG = "00DTW0000000001MAA"


def envelope(body: str, header: str = "", soap: str = SOAP) -> bytes:
    return (
        f'<e:Envelope xmlns:e="{soap}" xmlns:n="urn:partner.soap.sforce.com">{header}'
        f"<e:Body>{body}</e:Body></e:Envelope>"
    ).encode()


@pytest.mark.parametrize(
    "path",
    [
        "/services/Soap/u/59.0",
        "/services/Soap/u/59.0/",
        f"/services/Soap/u/59.0/{ORG}",
        f"/services/Soap/u/59.0/{ORG[:15]}/",
    ],
)
def test_path_with_or_without_org_and_slash_names_the_version(path: str) -> None:
    endpoint = parse_endpoint(path)
    assert (endpoint.dialect, endpoint.version) == (PARTNER, 59)
    assert bool(endpoint.org_id) == (ORG[:15] in path)


def test_letter_chooses_the_dialect() -> None:
    assert parse_endpoint("/services/Soap/c/44.0").dialect is ENTERPRISE
    assert parse_endpoint("/services/Soap/m/44.0/deployRequest/x").dialect is METADATA
    for path in ("/services/Soap/T/59.0", "/services/Soap", "/services/Soap/u/59.0/a/b", "/x"):
        with pytest.raises(ResourceUnknown):
            parse_dialect(path)


@pytest.mark.parametrize(
    "path",
    [
        "/services/Soap/u",
        "/services/Soap/u/",
        "/services/Soap/u/19.0",
        "/services/Soap/u/68.0",
        "/services/Soap/u/x",
    ],
)
def test_missing_or_unsupported_version_is_rejected(path: str) -> None:
    with pytest.raises(VersionUnsupported, match="Invalid Api version specified on URL"):
        parse_endpoint(path)


def test_endpoint_urls_end_in_the_short_org_id() -> None:
    endpoint = Endpoint(PARTNER, 59)
    assert endpoint.url("https://h:1", ORG) == f"https://h:1/services/Soap/u/59.0/{ORG[:15]}"
    assert endpoint.metadata_url("https://h:1", ORG) == f"https://h:1/services/Soap/m/59.0/{ORG[:15]}"


@pytest.mark.parametrize(
    "body",
    [
        envelope("<n:login><n:username>a@b</n:username><n:password>p&amp;&lt;</n:password></n:login>"),
        envelope(
            '\n  <login xmlns="urn:partner.soap.sforce.com">\n <username> a@b\n</username>'
            "<password><![CDATA[p&<]]></password></login>\n"
        ),
        b"<?xml version='1.0' encoding='utf-8' ?>"
        + envelope("<n:login><n:username>a@b</n:username><n:password>p&#38;&#60;</n:password></n:login>"),
    ],
)
def test_login_is_read_whatever_prefixes_and_escapes_it_uses(body: bytes) -> None:
    request = parse_request(body, PARTNER)
    assert request.operation == "login"
    assert (request.text("username"), request.text("password")) == ("a@b", "p&<")


def test_headers_are_read() -> None:
    header = (
        "<e:Header><n:CallOptions><n:client>Loader</n:client></n:CallOptions>"
        "<n:SessionHeader><n:sessionId>00D!x</n:sessionId></n:SessionHeader></e:Header>"
    )
    request = parse_request(envelope("<n:logout/>", header), PARTNER)
    assert (request.operation, request.session_id, request.client) == ("logout", "00D!x", "Loader")


def test_request_never_shows_its_secrets() -> None:
    header = "<e:Header><n:SessionHeader><n:sessionId>00D!x</n:sessionId></n:SessionHeader></e:Header>"
    request = parse_request(envelope("<n:login><n:password>pw7</n:password></n:login>", header), PARTNER)
    assert "pw7" not in repr(request)
    assert "00D!x" not in repr(request)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not xml",
        b"<a>",
        b"<a/>",
        envelope("<n:login/>", soap="http://www.w3.org/2003/05/soap-envelope"),
        envelope(""),
        envelope("<n:logout/><n:logout/>"),
        b'<?xml version="1.0" encoding="no-such"?><a/>',
        b'<?xml version="1.0" encoding="utf-7"?>' + envelope("<n:logout/>"),
        b'<?xml version="1.0" encoding="iso-8859-1"?>' + envelope("<n:logout/>"),
        b"\xef\xbb\xbf<?xml version='1.0' encoding='utf-16'?>" + envelope("<n:logout/>"),
        envelope("<n:logout/>").decode().encode("utf-16"),
        envelope("<n:logout/>").decode().encode("utf-16-be"),
        envelope("<n:logout/>") + b"trailing",
        envelope("<n:logout>&undefined;</n:logout>"),
        envelope("<n:logout>" + "<a>" * 40 + "</a>" * 40 + "</n:logout>"),
        b"\xff\xff\xff",
    ],
)
def test_body_other_than_an_envelope_is_rejected(body: bytes) -> None:
    with pytest.raises(BodyMalformed):
        parse_request(body, PARTNER)


@pytest.mark.parametrize(
    "prolog",
    [
        '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE x [<!ENTITY a "b"><!ENTITY c "&a;&a;&a;">]>',
        '<!DOCTYPE x SYSTEM "http://localhost/x.dtd">',
    ],
)
def test_document_type_and_entities_are_rejected(prolog: str) -> None:
    with pytest.raises(BodyMalformed, match="DTD and entity declarations are not allowed"):
        parse_request(prolog.encode() + envelope("<n:logout/>"), PARTNER)


def test_operation_of_another_namespace_is_rejected() -> None:
    with pytest.raises(ResourceUnknown, match="No operation available for request"):
        parse_request(envelope("<n:logout/>"), ENTERPRISE)


def test_body_over_the_limit_is_rejected() -> None:
    with pytest.raises(BodyTooLarge):
        parse_request(b" " * (MAX_BODY_BYTES + 1), PARTNER)


def test_request_of_too_many_elements_is_rejected() -> None:
    body = envelope("<n:logout>" + "<a/>" * 100_000 + "</n:logout>")
    with pytest.raises(BodyTooLarge):
        parse_request(body, PARTNER)


def test_arguments_are_found_in_any_namespace_and_nil_ones_are_absent() -> None:
    inner = (
        '<n:delete xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:x="urn:other">'
        '<x:ids x:odd="1">a</x:ids><n:ids>b</n:ids><ids xsi:nil="true">c</ids></n:delete>'
    )
    request = parse_request(envelope(inner), PARTNER)
    assert request.texts("ids") == ["a", "b"]
    assert request.text("absent") == ""


def test_header_of_another_namespace_is_ignored() -> None:
    header = (
        '<e:Header><SessionHeader xmlns="urn:other"><sessionId>x</sessionId></SessionHeader>'
        "<n:AllOrNoneHeader><n:allOrNone>1</n:allOrNone></n:AllOrNoneHeader></e:Header>"
    )
    request = parse_request(envelope("<n:logout/>", header), PARTNER)
    assert request.session_id == ""
    assert request.flag("AllOrNoneHeader", "allOrNone", default=False)
    assert not request.flag("Absent", "allOrNone", default=False)


def test_elements_are_escaped_and_nil_is_marked() -> None:
    text = render_elements(
        (("a", "<&>"), ("b", True), ("c", 7), ("d", None), ("e", "x\x00\x0b\ud800y"), ("f", ""))
    )
    assert text == (
        '<a>&lt;&amp;&gt;</a><b>true</b><c>7</c><d xsi:nil="true"/><e>x\ufffd\ufffd\ufffdy</e><f></f>'
    )


def test_answer_has_no_header_and_the_api_as_default_namespace() -> None:
    assert render_answer(PARTNER, "logout", "") == (
        b'<?xml version="1.0" encoding="UTF-8"?><soapenv:Envelope'
        b' xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns="urn:partner.soap.sforce.com"'
        b' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body><logoutResponse></logoutResponse>'
        b"</soapenv:Body></soapenv:Envelope>"
    )


def test_answer_with_usage_has_a_header_and_records_their_own_namespace() -> None:
    root = fromstring(render_answer(ENTERPRISE, "query", "<sf:Id>1</sf:Id>", (3, 9)))
    assert [element.text for element in root[0][0][0]] == ["3", "9", "API REQUESTS"]
    assert root[1][0][0].tag == "{urn:sobject.enterprise.soap.sforce.com}Id"


def test_fault_is_well_formed_whatever_the_message_holds() -> None:
    root = fromstring(render_fault(ENTERPRISE, "X", "a <b> & \x00", "LoginFault"))
    assert root.findtext(".//faultstring") == "X: a <b> & \ufffd"
    assert root.findtext(".//{urn:fault.enterprise.soap.sforce.com}exceptionMessage") == "a <b> & \ufffd"
