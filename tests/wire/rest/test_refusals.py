"""What the listener refuses by itself is told in the form that the clients of each API read."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest

from tidewire.testing import ServerProcess

V = "/services/data/v59.0"
FAULT = "{http://schemas.xmlsoap.org/soap/envelope/}Body/{http://schemas.xmlsoap.org/soap/envelope/}Fault"
ASYNC = "{http://www.force.com/2009/06/asyncapi/dataload}"


def ask(
    server: ServerProcess, *lines: str, body: bytes = b"", is_ended: bool = False
) -> tuple[int, str, bytes]:
    """Status, content type and body of the answer to these bytes, after which the server hangs up."""
    at = urlsplit(server.http)
    # Less than the 120 s after which the server would close an idle connection anyway.
    with socket.create_connection((at.hostname or "", at.port or 0), timeout=60) as connection:
        connection.sendall("\r\n".join((*lines, "Host: x", "", "")).encode("latin-1") + body)
        if is_ended:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    head, _, told = answer.partition(b"\r\n\r\n")
    status_line, *headers = head.decode("latin-1").split("\r\n")
    named = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in headers)}
    assert named["connection"] == "close"
    return int(status_line.split()[1]), named["content-type"], told


@pytest.mark.parametrize(
    "lines, body, status, code",
    [
        (("Content-Encoding: gzip", "Content-Length: 2"), b"{}", 400, "INVALID_REQUEST"),
        (("Content-Encoding: br", "Content-Length: 2"), b"{}", 415, "UNSUPPORTED_MEDIA_TYPE"),
        (("Content-Length: 99999999999",), b"", 413, "REQUEST_ENTITY_TOO_LARGE"),
        (("X: " + "x" * 40_000,), b"", 431, "REQUEST_HEADER_FIELDS_TOO_LARGE"),
        (("Transfer-Encoding: chunked",), b"zz\r\n", 400, "INVALID_REQUEST"),
        (("Expect: miracles", "Content-Length: 2"), b"{}", 417, "EXPECTATION_FAILED"),
        (("Content-Length: 2", "Content-Length: 3"), b"{}", 400, "INVALID_REQUEST"),
    ],
)
def test_rest_request_refused_by_the_listener_is_told_so_in_an_error_array(
    server: ServerProcess, lines: tuple[str, ...], body: bytes, status: int, code: str
) -> None:
    found, content_type, told = ask(server, f"POST {V}/sobjects/Account HTTP/1.1", *lines, body=body)
    assert (found, content_type) == (status, "application/json;charset=UTF-8")
    (error,) = json.loads(told)
    assert error["errorCode"] == code
    assert error["message"]


def test_rest_request_that_ends_within_its_body_is_told_so(server: ServerProcess) -> None:
    lines = (f"POST {V}/sobjects/Account HTTP/1.1", "Content-Length: 40")
    status, _, told = ask(server, *lines, body=b'{"Name":', is_ended=True)
    assert (status, json.loads(told)[0]["errorCode"]) == (400, "INVALID_REQUEST")


def test_rest_caller_of_xml_is_refused_in_xml(server: ServerProcess) -> None:
    lines = (f"POST {V}/sobjects/Account HTTP/1.1", "Accept: application/xml", "Content-Length: 99999999999")
    status, content_type, told = ask(server, *lines)
    assert (status, content_type) == (413, "application/xml;charset=UTF-8")
    assert ElementTree.fromstring(told).findtext("Error/errorCode") == "REQUEST_ENTITY_TOO_LARGE"


@pytest.mark.parametrize(
    "lines, body, status",
    [
        (("Content-Length: 99999999999",), b"", 413),
        (("Content-Encoding: gzip", "Content-Length: 2"), b"{}", 400),
        (("Transfer-Encoding: chunked",), b"zz\r\n", 400),
        (("X: " + "x" * 40_000,), b"", 431),
    ],
)
@pytest.mark.parametrize("letter", ["u", "c", "m"])
def test_soap_request_refused_by_the_listener_is_told_so_in_a_fault(
    server: ServerProcess, letter: str, lines: tuple[str, ...], body: bytes, status: int
) -> None:
    found, content_type, told = ask(server, f"POST /services/Soap/{letter}/59.0 HTTP/1.1", *lines, body=body)
    assert (found, content_type) == (status, "text/xml;charset=UTF-8")
    fault = ElementTree.fromstring(told).find(FAULT)
    assert fault is not None
    assert fault.findtext("faultcode") == "soapenv:Client"
    assert fault.findtext("faultstring")


def test_older_bulk_request_refused_by_the_listener_is_told_so_in_its_own_form(server: ServerProcess) -> None:
    line, large = "POST /services/async/59.0/job HTTP/1.1", "Content-Length: 99999999999"
    _, content_type, told = ask(server, line, large)
    assert content_type == "application/xml"
    assert ElementTree.fromstring(told).findtext(f"{ASYNC}exceptionCode") == "ClientInputError"
    _, content_type, told = ask(server, line, large, "Content-Type: application/json")
    assert (content_type, json.loads(told)["exceptionCode"]) == ("application/json", "ClientInputError")


def test_oauth_request_refused_by_the_listener_is_told_so_in_its_own_form(server: ServerProcess) -> None:
    status, _, told = ask(server, "POST /services/oauth2/token HTTP/1.1", "Content-Length: 99999999999")
    assert (status, json.loads(told)["error"]) == (413, "invalid_request")


@pytest.mark.parametrize("path", ["/cometd/59.0", "/nowhere"])
def test_request_that_is_no_apis_is_refused_in_a_line_of_text(server: ServerProcess, path: str) -> None:
    _, content_type, told = ask(server, f"POST {path} HTTP/1.1", "Content-Length: 99999999999")
    assert content_type == "text/plain;charset=UTF-8"
    assert told in (b"Maximum Request Size Exceeded\n", b"Request body too large\n")
