"""Signing in by SOAP against a live server."""

from __future__ import annotations

from xml.etree.ElementTree import Element, fromstring

import pytest
import requests

from tests.oauth import PASSWORD, Admin
from tidewire.config import DEV_PASSWORD, DEV_USERNAME
from tidewire.testing import ServerProcess

NAMESPACES = {"u": "urn:partner.soap.sforce.com", "c": "urn:enterprise.soap.sforce.com"}


def call(
    server: ServerProcess, path: str, operation: str, header: str = "", letter: str = "u"
) -> requests.Response:
    namespace = NAMESPACES[letter]
    body = (
        '<env:Envelope xmlns:env="http://schemas.xmlsoap.org/soap/envelope/">'
        f'<env:Header>{header}</env:Header><env:Body><{operation} xmlns="{namespace}">'
    )
    if operation == "login":
        body += f"<username>{DEV_USERNAME}</username><password>{DEV_PASSWORD}</password>"
    body += f"</{operation}></env:Body></env:Envelope>"
    headers = {"Content-Type": "text/xml", "SOAPAction": '""'}
    return requests.post(f"{server.http}{path}", data=body.encode(), headers=headers, timeout=120)


def session_header(token: str) -> str:
    return f'<SessionHeader xmlns="{NAMESPACES["u"]}"><sessionId>{token}</sessionId></SessionHeader>'


def result_of(answer: requests.Response) -> Element:
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == "text/xml;charset=UTF-8"
    return fromstring(answer.content)[-1][0][0]  # envelope, body, response, result


def fault_code(answer: requests.Response) -> str:
    assert answer.status_code == 500, answer.text
    return fromstring(answer.content).findtext(".//faultcode") or ""


@pytest.mark.parametrize(
    "path", ["/services/Soap/u/59.0", "/services/Soap/u/43.0/", "/services/Soap/u/59.0/00D"]
)
def test_login_gives_a_working_session(server: ServerProcess, path: str) -> None:
    result = result_of(call(server, path, "login"))
    server_url, token = result[3].text or "", result[4].text or ""
    assert server_url.startswith(f"{server.http}/services/Soap/u/")
    assert server_url.endswith(server.org_id[:15])
    assert token.startswith(server.org_id[:15] + "!")
    assert result[6][8].text == server.org_id
    assert result[6][20].text == DEV_USERNAME
    headers = {"Authorization": f"Bearer {token}"}
    assert requests.get(f"{server.http}/services/data/v59.0", headers=headers, timeout=120).status_code == 200


def test_enterprise_login_answers_in_its_own_namespace(server: ServerProcess) -> None:
    result = result_of(call(server, "/services/Soap/c/59.0", "login", letter="c"))
    assert result[4].tag == "{urn:enterprise.soap.sforce.com}sessionId"
    assert "/services/Soap/c/59.0/" in (result[3].text or "")


def test_wrong_password_is_a_login_fault(server: ServerProcess) -> None:
    body = (
        '<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body>'
        f'<login xmlns="{NAMESPACES["u"]}"><username>{DEV_USERNAME}</username>'
        "<password>wrong</password></login>"
        "</e:Body></e:Envelope>"
    )
    answer = requests.post(f"{server.http}/services/Soap/u/59.0", data=body, timeout=120)
    assert fault_code(answer) == "sf:INVALID_LOGIN"
    assert "<sf:exceptionCode>INVALID_LOGIN</sf:exceptionCode>" in answer.text


def test_get_user_info_needs_a_session_and_tells_the_user(server: ServerProcess, dev_token: str) -> None:
    path = "/services/Soap/u/59.0"
    assert fault_code(call(server, path, "getUserInfo")) == "sf:INVALID_SESSION_ID"
    result = result_of(call(server, path, "getUserInfo", session_header(dev_token)))
    assert result[20].text == DEV_USERNAME
    assert len(result) == 24


def test_logout_ends_the_session(server: ServerProcess) -> None:
    path = "/services/Soap/u/59.0"
    token = server.login()
    assert call(server, path, "logout", session_header(token)).status_code == 200
    assert fault_code(call(server, path, "logout", session_header(token))) == "sf:INVALID_SESSION_ID"


@pytest.mark.parametrize(
    "path", ["/services/Soap/u", "/services/Soap/u/", "/services/Soap/u/9.0", "/services/Soap/u/99.0"]
)
def test_unsupported_version_is_a_fault(server: ServerProcess, path: str) -> None:
    assert fault_code(call(server, path, "login")) == "sf:UNSUPPORTED_API_VERSION"


def test_unknown_operation_is_named_in_the_fault(server: ServerProcess) -> None:
    answer = call(server, "/services/Soap/u/59.0", "doMagic")
    assert fault_code(answer) == "soapenv:Client"
    assert "No operation available for request {urn:partner.soap.sforce.com}doMagic" in answer.text


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"junk",
        b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/hostname">]><x>&e;</x>',
        b'<!DOCTYPE l [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]><l>&b;</l>',
    ],
)
def test_dangerous_or_malformed_xml_is_a_fault(server: ServerProcess, body: bytes) -> None:
    answer = requests.post(f"{server.http}/services/Soap/u/59.0", data=body, timeout=120)
    assert fault_code(answer) == "soapenv:Client"


def test_chunked_login_is_read(server: ServerProcess) -> None:
    pieces = (
        b'<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body>',
        f'<login xmlns="{NAMESPACES["u"]}"><username>{DEV_USERNAME}</username>'.encode(),
        f"<password>{DEV_PASSWORD}</password></login></e:Body></e:Envelope>".encode(),
    )
    answer = requests.post(f"{server.http}/services/Soap/u/50.0", data=iter(pieces), timeout=120)
    assert result_of(answer)[4].text


def test_get_is_not_a_soap_call(server: ServerProcess) -> None:
    answer = requests.get(f"{server.http}/services/Soap/u/59.0", timeout=120)
    assert answer.status_code == 405
    assert answer.headers["Allow"] == "POST"


def login_as(server: ServerProcess, username: str, password: str) -> requests.Response:
    body = (
        '<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body>'
        f'<login xmlns="{NAMESPACES["u"]}"><username>{username}</username><password>{password}</password></login>'
        "</e:Body></e:Envelope>"
    )
    return requests.post(f"{server.http}/services/Soap/u/59.0", data=body, timeout=120)


def test_missing_security_token_has_its_own_fault(server: ServerProcess) -> None:
    admin = Admin(server)
    name = admin.make_user()
    path = f"/services/tidewire/v1/users/{admin.user_id(name)}/security-token"
    token = admin.call("POST", path).json()["security_token"]
    assert fault_code(login_as(server, name, PASSWORD)) == "sf:LOGIN_MUST_USE_SECURITY_TOKEN"
    assert fault_code(login_as(server, name, "wrong")) == "sf:INVALID_LOGIN"
    assert result_of(login_as(server, name, PASSWORD + token))[4].text


def test_user_without_api_enabled_has_its_own_fault(server: ServerProcess) -> None:
    admin = Admin(server)
    admin.apply(profiles={"No_API": {"permissions": []}})
    name = admin.make_user(profile="No_API")
    assert fault_code(login_as(server, name, PASSWORD)) == "sf:API_DISABLED_FOR_ORG"


def test_locked_user_gets_the_same_answer_as_for_a_wrong_password(server: ServerProcess) -> None:
    name = Admin(server).make_user()
    wrong = [login_as(server, name, "wrong") for _ in range(10)]
    locked = login_as(server, name, PASSWORD)
    assert fault_code(locked) == "sf:INVALID_LOGIN"
    assert locked.content == wrong[0].content == login_as(server, "nobody@example.org", "x").content


@pytest.mark.parametrize("is_own", [True, False])
def test_login_scope_must_name_the_org_of_the_user(server: ServerProcess, is_own: bool) -> None:
    org_id = server.org_id[:15] if is_own else "00D000000000062EAA"
    header = (
        f'<LoginScopeHeader xmlns="{NAMESPACES["u"]}"><organizationId>{org_id}</organizationId>'
        "</LoginScopeHeader>"
    )
    answer = call(server, "/services/Soap/u/59.0", "login", header)
    if is_own:
        assert result_of(answer)[6][8].text == server.org_id
    else:
        assert fault_code(answer) == "sf:INVALID_LOGIN"


def test_wsdl_is_fetched_over_http(server: ServerProcess, dev_token: str) -> None:
    answer = requests.get(f"{server.http}/services/wsdl/partner", timeout=120)
    assert answer.headers["Content-Type"] == "text/xml;charset=UTF-8"
    assert f'location="{server.http}/services/Soap/u/67.0"' in answer.text
    own = requests.get(f"{server.http}/soap/wsdl.jsp?type=*", cookies={"sid": dev_token}, timeout=120)
    assert 'complexType name="Account"' in own.text
    assert requests.get(f"{server.http}/services/wsdl/enterprise", timeout=120).status_code == 401
