"""The SOAP fault table: complete, and its bytes pinned."""

from __future__ import annotations

from xml.etree.ElementTree import fromstring

import pytest

from tidewire import errors
from tidewire.errors import PlatformError, leaf_errors
from tidewire.frontends.soap.wire import ENTERPRISE, METADATA, PARTNER
from tidewire.frontends.soap.wire_errors import SOAP_ERRORS, render_error, render_row_error

OPEN = (
    b'<?xml version="1.0" encoding="UTF-8"?><soapenv:Envelope'
    b' xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns:sf="urn:fault.partner.soap.sforce.com"'
    b' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body><soapenv:Fault>'
)
CLOSE = b"</soapenv:Fault></soapenv:Body></soapenv:Envelope>"


def test_table_has_a_row_for_every_leaf_and_no_other() -> None:
    assert set(SOAP_ERRORS) == set(leaf_errors())


@pytest.mark.parametrize(
    "error, fault",
    [
        (
            errors.LoginFailed("unknown user"),
            b"<faultcode>sf:INVALID_LOGIN</faultcode><faultstring>INVALID_LOGIN: Invalid username, password,"
            b" security token; or user locked out.</faultstring><detail>"
            b'<sf:LoginFault xsi:type="sf:LoginFault"><sf:exceptionCode>INVALID_LOGIN</sf:exceptionCode>'
            b"<sf:exceptionMessage>Invalid username, password, security token; or user locked out."
            b"</sf:exceptionMessage></sf:LoginFault></detail>",
        ),
        (
            errors.VersionUnsupported("v1"),
            b"<faultcode>sf:UNSUPPORTED_API_VERSION</faultcode><faultstring>UNSUPPORTED_API_VERSION: Invalid"
            b" Api version specified on URL</faultstring><detail>"
            b'<sf:UnexpectedErrorFault xsi:type="sf:UnexpectedErrorFault">'
            b"<sf:exceptionCode>UNSUPPORTED_API_VERSION</sf:exceptionCode><sf:exceptionMessage>Invalid"
            b" Api version specified on URL</sf:exceptionMessage></sf:UnexpectedErrorFault></detail>",
        ),
        (
            errors.BodyMalformed("The request is not well-formed XML"),
            b"<faultcode>soapenv:Client</faultcode>"
            b"<faultstring>The request is not well-formed XML</faultstring>",
        ),
    ],
)
def test_error_is_answered_with_these_bytes(error: PlatformError, fault: bytes) -> None:
    response = render_error(PARTNER, error)
    assert response.body == OPEN + fault + CLOSE
    assert (response.status, response.content_type) == (500, "text/xml;charset=UTF-8")


def test_fault_of_the_metadata_api_has_no_detail() -> None:
    body = render_error(METADATA, errors.SessionInvalid("gone")).body
    assert b' xmlns:sf="http://soap.sforce.com/2006/04/metadata"' in body
    assert (
        b"<soapenv:Fault><faultcode>sf:INVALID_SESSION_ID</faultcode><faultstring>INVALID_SESSION_ID: "
        in body
    )
    assert b"</faultstring></soapenv:Fault>" in body


def test_public_reason_of_a_failed_login_becomes_the_code() -> None:
    error = errors.LoginFailed("add your token", exception_code="LOGIN_MUST_USE_SECURITY_TOKEN")
    body = render_error(PARTNER, error).body
    assert b"<sf:exceptionCode>LOGIN_MUST_USE_SECURITY_TOKEN</sf:exceptionCode>" in body
    assert b"add your token" in body


def test_only_query_errors_have_row_and_column() -> None:
    known = render_error(PARTNER, errors.SoqlSyntaxError("x", row=2, column=7)).body
    assert b"<sf:row>2</sf:row><sf:column>7</sf:column></sf:MalformedQueryFault>" in known
    outside = render_error(PARTNER, errors.FieldUnknown("x", field="Y")).body
    assert b"<sf:row>-1</sf:row><sf:column>-1</sf:column></sf:InvalidFieldFault>" in outside
    assert b"<sf:row>" not in render_error(PARTNER, errors.LocatorInvalid("x")).body


@pytest.mark.parametrize("leaf", leaf_errors())
def test_error_of_one_record_is_well_formed_and_has_a_code(leaf: type[PlatformError]) -> None:
    element = fromstring(render_row_error(leaf("a <b>", fields=["F"])))
    assert [child.tag for child in element] == ["fields", "message", "statusCode"]
    assert element.findtext("statusCode")


def test_invalid_session_has_the_code_on_which_clients_sign_in_again() -> None:
    body = render_error(PARTNER, errors.SessionInvalid("gone")).body
    assert b"<faultcode>sf:INVALID_SESSION_ID</faultcode>" in body


def test_enterprise_fault_has_its_own_namespace() -> None:
    body = render_error(ENTERPRISE, errors.LoginFailed("x")).body
    assert b'xmlns:sf="urn:fault.enterprise.soap.sforce.com"' in body


@pytest.mark.parametrize("leaf", [leaf for leaf in leaf_errors() if issubclass(leaf, errors.StorageError)])
def test_storage_error_hides_the_disk(leaf: type[PlatformError]) -> None:
    assert b"secret" not in render_error(PARTNER, leaf("/var/lib/secret")).body


def test_wrong_method_names_the_right_one() -> None:
    response = render_error(PARTNER, errors.MethodNotAllowed("x", allowed=("POST",)))
    assert response.status == 405
    assert ("Allow", "POST") in response.headers
