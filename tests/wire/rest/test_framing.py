"""HTTP as attackers and odd clients send it: a live server must answer or hang up, and stay alive."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
import requests

from tidewire.testing import ServerProcess

V = "/services/data/v59.0"
BOMB = gzip.compress(b" " * 40_000_000)


class Raw:
    """One connection, on which bytes are sent as they are."""

    def __init__(self, server: ServerProcess, token: str) -> None:
        at = urlsplit(server.http)
        # Less than the 120 s after which the server would close an idle connection anyway.
        self._socket = socket.create_connection((at.hostname or "", at.port or 0), timeout=60)
        self._file = self._socket.makefile("rb")
        self.token = token

    def send(self, data: bytes) -> None:
        self._socket.sendall(data.replace(b"$TOKEN", self.token.encode()))

    def answer(self, *, is_head: bool = False) -> tuple[int, dict[str, str], bytes]:
        """The next answer; a status of 0 means that the server hung up without one."""
        line = self._file.readline()
        if not line:
            return 0, {}, b""
        headers: dict[str, str] = {}
        while (header := self._file.readline()) not in (b"\r\n", b""):
            name, _, value = header.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        length = 0 if is_head else int(headers.get("content-length", 0))
        return int(line.split()[1]), headers, self._file.read(length)

    def is_closed(self) -> bool:
        """Whether the server hangs up; what it still sends is thrown away."""
        try:
            while self._file.read(65536):
                continue
        except TimeoutError:
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@pytest.fixture
def raw(server: ServerProcess, dev_token: str) -> Iterator[Raw]:
    connection = Raw(server, dev_token)
    yield connection
    connection.close()
    alive = requests.get(server.http + "/services/data", timeout=120)
    assert alive.status_code == 200


def head(line: str, *lines: str) -> bytes:
    text = "\r\n".join((line, "Host: x", "Authorization: Bearer $TOKEN", *lines))
    return f"{text}\r\n\r\n".encode("latin-1")


CREATE = f"POST {V}/sobjects/Account HTTP/1.1"
JSON = "Content-Type: application/json"
BODY = b'{"Name":"framed"}'
HIDDEN = f"GET {V}/limits HTTP/1.1\r\nHost: x\r\n\r\n".encode()


@pytest.mark.parametrize(
    "data",
    [
        head(CREATE, JSON, "Content-Length: 17", "Transfer-Encoding: chunked") + b"0\r\n\r\n" + HIDDEN,
        head(CREATE, JSON, "Transfer-Encoding: chunked", "Content-Length: 5") + b"0\r\n\r\n" + HIDDEN,
        head(CREATE, JSON, "Content-Length: 17", "Content-Length: 3") + BODY + HIDDEN,
        head(CREATE, JSON, "Content-Length: 17", "Content-Length: 17") + BODY + HIDDEN,
        head(CREATE, JSON, "Content-Length: 17, 17") + BODY + HIDDEN,
        head(CREATE, JSON, "Content-Length: +17") + BODY + HIDDEN,
        head(CREATE, JSON, "Content-Length: -1") + BODY + HIDDEN,
        head(CREATE, JSON, "Content-Length: 0x11") + BODY + HIDDEN,
        head(CREATE, JSON, "Content-Length : 17") + BODY + HIDDEN,
        head(CREATE, JSON, "Transfer-Encoding: identity") + BODY + HIDDEN,
        head(CREATE, JSON, "Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n" + HIDDEN,
        head(CREATE, JSON, "Transfer-Encoding: chunked, chunked") + b"0\r\n\r\n" + HIDDEN,
        head(CREATE, JSON, "Transfer-Encoding:\x0bchunked") + b"0\r\n\r\n" + HIDDEN,
        head(CREATE, JSON, "Transfer-Encoding: chunked") + b"zz\r\n" + HIDDEN,
        head(CREATE, JSON, "Transfer-Encoding: chunked") + b"5\r\nabcdefgh\r\n0\r\n\r\n" + HIDDEN,
        head(CREATE, JSON, "Transfer-Encoding: chunked") + b"fffffffffffffffff\r\n" + HIDDEN,
        head(f"GET {V}/limits HTTP/1.1", "X-Fold: a", " b"),
        head(f"GET {V}/limits HTTP/1.1", "X-Bare: a\rb: c"),
        head(f"GET {V}/limits HTTP/1.1", "X-Nul: a\0b"),
        head(f"GET {V}/limits HTTP/1.1", "No-Colon"),
        head(f"GET {V}/limits HTTP/1.1", ": no name"),
        head(f"GET {V}/limits HTTP/1.1", "Host: y"),
        head(f"GET {V}/limits HTTP/1.1", "Authorization: Bearer other"),
        head(f"GET {V}/lim its HTTP/1.1"),
        head(f"GET {V}/limits#x HTTP/1.1"),
        head(f"GET {V}/limits HTTP/1.1x"),
        head("GET limits HTTP/1.1"),
        head("CONNECT example.org:443 HTTP/1.1"),
        head("GET example.org:80 HTTP/1.1"),
        f"GET {V}/limits HTTP/1.1\r\n\r\n".encode(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_request_of_doubtful_framing_is_refused_and_the_connection_closed(raw: Raw, data: bytes) -> None:
    raw.send(data)
    status, _, _ = raw.answer()
    assert status in (0, 400, 405, 505)
    assert raw.is_closed()


@pytest.mark.parametrize(
    "target, status",
    [
        (f"{V}/sobjects/Account%2Fdescribe", 404),
        (f"{V}//sobjects", 404),
        (f"/{V}/limits", 200),  # clients that keep a base address with its slash write so
        (f"{V}/../v59.0/limits", 404),
        (f"{V}/./limits", 404),
        (f"{V}/%2e%2e/v59.0/limits", 404),
        (f"{V}/sobjects/Account%00", 404),
        (f"{V}/sobjects/%c0%ae%c0%ae/describe", 404),
        (f"{V}/sobjects/%ff", 404),
        (f"{V}/sobjects/%ED%A0%80", 404),
        (f"{V}/sobjects/%zz", 404),
        (f"{V}/limits%20", 404),
        (f"{V}/LIMITS", 404),
        ("/services/data/v59.0%2Flimits", 404),
        ("/services/data/v59/limits", 404),
        ("/services/data/v059.0/limits", 404),
        ("/services/data/v19.0/limits", 404),
        ("/services/data/v68.0/limits", 404),
        (f"{V}/limits/", 200),
        (f"{V}/limits?a=%00&b=%ff&&=&c", 200),
        (f"http://other.example{V}/limits", 200),
    ],
)
def test_odd_path_names_one_resource_or_none(raw: Raw, target: str, status: int) -> None:
    raw.send(head(f"GET {target} HTTP/1.1") + head(f"GET {V}/limits HTTP/1.1"))
    found, _, body = raw.answer()
    assert (found, isinstance(json.loads(body), list)) == (status, status == 404)
    assert raw.answer()[0] == 200  # the connection goes on


def test_requests_in_one_go_are_answered_in_order(raw: Raw) -> None:
    raw.send(
        head(f"GET {V}/limits HTTP/1.1")
        + head(CREATE, JSON, "Transfer-Encoding: chunked")
        + b'8\r\n{"Name":\r\n9;x=y\r\n"framed"}\r\n0\r\nTrailer: x\r\n\r\n'
        + head(f"HEAD {V}/limits HTTP/1.1")
        + head(f"PUT {V}/limits HTTP/1.1", "Content-Length: 0")
    )
    assert raw.answer()[0] == 200
    assert raw.answer()[0] == 201
    assert raw.answer(is_head=True)[0] == 200
    status, headers, _ = raw.answer()
    assert (status, headers["allow"]) == (405, "GET")


def test_expected_continue_comes_before_the_body(raw: Raw) -> None:
    raw.send(head(CREATE, JSON, "Content-Length: 17", "Expect: 100-continue"))
    assert raw.answer()[0] == 100
    raw.send(BODY)
    assert raw.answer()[0] == 201


@pytest.mark.parametrize(
    "data, status",
    [
        (head(CREATE, JSON, "Content-Length: 17", "Expect: something"), 417),
        (head(CREATE, JSON, "Content-Length: 999999999999"), 413),
        (head(CREATE, JSON, "Content-Length: 17", "Content-Encoding: br") + BODY, 415),
        (head(CREATE, JSON, "Content-Length: 17", "Content-Encoding: gzip") + BODY, 400),
        (head(CREATE, JSON, f"Content-Length: {len(BOMB)}", "Content-Encoding: gzip") + BOMB, 413),
        (head(f"GET {V}/limits HTTP/1.1", "X-Long: " + "x" * 40_000), 431),
    ],
)
def test_request_over_a_limit_is_refused(raw: Raw, data: bytes, status: int) -> None:
    raw.send(data)
    assert raw.answer()[0] == status
    assert raw.is_closed()


def test_long_target_is_refused_with_a_page(raw: Raw) -> None:
    raw.send(head(f"GET {V}/query?q={'x' * 16_500} HTTP/1.1"))
    status, headers, body = raw.answer()
    assert (status, headers["content-type"]) == (414, "text/html;charset=UTF-8")
    assert body.startswith(b"<h1>Bad Message 414</h1>")
    assert raw.is_closed()


@pytest.mark.parametrize(
    "content_type, body, status, code",
    [
        ("application/json", b"\xef\xbb\xbf" + BODY, 201, ""),
        ("application/json; charset=utf-8", BODY, 201, ""),
        ("application/json; charset=iso-8859-1", '{"Name":"Zoë"}'.encode("latin-1"), 201, ""),
        ("application/json; charset=utf-16", BODY, 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("application/json", '{"Name":"Zoë"}'.encode("latin-1"), 400, "JSON_PARSER_ERROR"),
        ("text/csv", BODY, 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("application/x-www-form-urlencoded", b"Name=x", 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("application/json", b"", 400, "JSON_PARSER_ERROR"),
        ("application/json", b"[]", 400, "JSON_PARSER_ERROR"),
        ("application/json", b'{"Name":NaN}', 400, "JSON_PARSER_ERROR"),
        ("application/json", b'{"Name":"\\ud800"}', 400, "JSON_PARSER_ERROR"),
        ("application/json", b'{"AnnualRevenue":1e999}', 400, "JSON_PARSER_ERROR"),
        ("application/json", b'{"AnnualRevenue":' + b"9" * 300 + b"}", 400, "NUMBER_OUTSIDE_VALID_RANGE"),
        ("application/json", b'{"x":' * 70 + b"1" + b"}" * 70, 400, "JSON_PARSER_ERROR"),
        ("application/json", b'{"x":' * 5000 + b"1" + b"}" * 5000, 400, "JSON_PARSER_ERROR"),
        ("application/json", b'{"Name":"first","Name":"second"}', 201, ""),
    ],
)
def test_body_is_read_or_refused(raw: Raw, content_type: str, body: bytes, status: int, code: str) -> None:
    raw.send(head(CREATE, f"Content-Type: {content_type}", f"Content-Length: {len(body)}") + body)
    found, _, answer = raw.answer()
    assert (found, "" if found == 201 else json.loads(answer)[0]["errorCode"]) == (status, code)


def test_packed_bodies_go_both_ways(raw: Raw) -> None:
    packed = gzip.compress(BODY)
    raw.send(head(CREATE, JSON, f"Content-Length: {len(packed)}", "Content-Encoding: gzip") + packed)
    assert raw.answer()[0] == 201
    raw.send(head(f"GET {V}/sobjects HTTP/1.1", "Accept-Encoding: gzip"))
    _, headers, body = raw.answer()
    assert headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(body))["encoding"] == "UTF-8"
