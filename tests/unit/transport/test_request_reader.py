from __future__ import annotations

import zlib
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewire.transport.http import HttpRequest, cached_by_head
from tidewire.transport.request_reader import HttpLimits, RequestReader
from tidewire.transport.routes import Exchange, Route, Router


def park(request: HttpRequest, exchange: Exchange) -> None:
    raise AssertionError("a reader calls no handler")


def make_reader(body_limit_bytes: int = 1000) -> RequestReader:
    router = Router(
        [
            Route("/", park=park, body_limit_bytes=body_limit_bytes),
            Route("/small", park=park, body_limit_bytes=10),
        ]
    )
    return RequestReader(router, HttpLimits(), "http", "127.0.0.1")


def read(*pieces: bytes, body_limit_bytes: int = 1000) -> tuple[list[HttpRequest], int]:
    """The requests in the pieces and the status of the error that ended them, or 0."""
    reader = make_reader(body_limit_bytes)
    for piece in pieces:
        if reader.error is None and not reader.is_last:
            reader.feed(piece, 0.0)
    return [request for _, request, _ in reader.ready], reader.error[0] if reader.error else 0


def post(body: bytes, *lines: bytes, path: bytes = b"/a") -> bytes:
    head = b"\r\n".join([b"POST " + path + b" HTTP/1.1", b"Host: x", *lines])
    return head + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body


CHUNKED = b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"

REFUSED = {
    "length_before_chunks": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
    "chunks_before_length": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
    "two_lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "length_list": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3, 3\r\n\r\nabc",
    "length_with_sign": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\nabc",
    "negative_length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -3\r\n\r\nabc",
    "empty_length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\nabc",
    "hex_length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x3\r\n\r\nabc",
    "unknown_coding": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n",
    "chunked_not_last": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
    "chunked_twice": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
    "two_codings": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
    "vertical_tab_coding": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \x0bchunked\r\n\r\n",
    "chunks_in_http_1_0": b"POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
    "blank_before_colon": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\nabc",
    "folded_header": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
    "header_before_any_name": b"GET / HTTP/1.1\r\n Host: x\r\n\r\n",
    "bare_line_feeds": b"GET / HTTP/1.1\nHost: x\n\n",
    "bare_carriage_return": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n",
    "nul_in_value": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n",
    "control_in_value": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\x01c\r\n\r\n",
    "delete_in_value": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\x7fc\r\n\r\n",
    "no_header_name": b"GET / HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n",
    "high_bit_in_name": b"GET / HTTP/1.1\r\nHost: x\r\nA\xe9: y\r\n\r\n",
    "blank_in_target": b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
    "nul_in_target": b"GET /a\0b HTTP/1.1\r\nHost: x\r\n\r\n",
    "high_bit_in_target": b"GET /\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n",
    "fragment_in_target": b"GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n",
    "relative_target": b"GET a HTTP/1.1\r\nHost: x\r\n\r\n",
    "tabs_in_request_line": b"GET\t/a\tHTTP/1.1\r\nHost: x\r\n\r\n",
    "lower_case_method": b"get / HTTP/1.1\r\nHost: x\r\n\r\n",
    "no_host": b"GET / HTTP/1.1\r\n\r\n",
    "two_hosts": b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "two_authorizations": b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n",
    "unknown_minor_version": b"GET / HTTP/1.2\r\nHost: x\r\n\r\n",
    "http_2_preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "tls_on_the_plain_port": b"\x16\x03\x01\x02\x00\x01\x00",
    "hex_prefix_in_chunk_size": CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n",
    "blank_after_chunk_size": CHUNKED + b"3 \r\nabc\r\n0\r\n\r\n",
    "chunk_size_overflow": CHUNKED + b"FFFFFFFFFFFFFFFFF\r\nabc\r\n0\r\n\r\n",
    "line_feeds_in_chunks": CHUNKED + b"3\nabc\n0\n\n",
    "chunk_longer_than_its_size": CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_ambiguous_framing_is_rejected_and_yields_no_request(data: bytes) -> None:
    assert read(data + GET) == ([], 400)


def test_error_comes_after_the_complete_requests_before_it() -> None:
    requests, status = read(GET + b"nonsense\r\n\r\n")
    assert [r.target for r in requests] == ["/a"]
    assert status == 400


@pytest.mark.parametrize(
    "data, status",
    [
        (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505),
        (b"CONNECT h:1 HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (post(b"abc", b"Expect: miracles"), 417),
        (post(b"abc", b"Content-Encoding: br"), 415),
        (post(b"x" * 11, path=b"/small"), 413),
        (post(b"x" * 1001), 413),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999999999\r\n\r\n", 413),
        (CHUNKED + b"3e9\r\n" + b"x" * 1001, 413),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 40_000, 431),
        (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (GET * 300, 429),
    ],
)
def test_each_limit_has_its_own_error_status(data: bytes, status: int) -> None:
    assert read(data)[1] == status


def test_length_over_the_limit_is_rejected_before_the_body_comes() -> None:
    assert read(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n") == ([], 413)


def test_body_of_exactly_the_limit_is_read() -> None:
    requests, status = read(post(b"x" * 1000))
    assert (len(requests[0].body), status) == (1000, 0)


def test_head_that_never_ends_is_rejected_while_it_drips_in() -> None:
    pieces = [b"GET / HTTP/1.1\r\nHost: x\r\nA: ", *[b"a" * 1000] * 40]
    assert read(*pieces) == ([], 431)


def test_endless_chunk_extension_is_rejected() -> None:
    assert read(CHUNKED, b"1;", *[b"a" * 10_000] * 10) == ([], 400)


def test_endless_trailer_is_rejected() -> None:
    assert read(CHUNKED + b"1\r\na\r\n0\r\nX: ", *[b"a" * 10_000] * 10) == ([], 400)


def test_trailer_does_not_become_a_header() -> None:
    (request,), _ = read(CHUNKED + b"3\r\nabc\r\n0\r\nAuthorization: stolen\r\n\r\n")
    assert request.body == b"abc"
    assert "authorization" not in request.headers


def test_big_body_before_the_next_head_does_not_count_as_head() -> None:
    data = post(b"x" * 100_000) + GET
    requests, status = read(data[:100_100], data[100_100:], body_limit_bytes=1 << 20)
    assert ([r.method for r in requests], status) == (["POST", "GET"], 0)


def test_repeated_header_is_joined() -> None:
    (request,), _ = read(b"GET / HTTP/1.1\r\nHost: x\r\nA: 1\r\nA: 2\r\nCookie: a=1\r\nCookie: b=2\r\n\r\n")
    assert request.headers["a"] == "1, 2"
    assert request.headers["cookie"] == "a=1; b=2"


def test_absolute_target_is_cut_to_its_path() -> None:
    (request,), _ = read(b"GET http://other:1/a?b=c HTTP/1.1\r\nHost: x\r\n\r\n")
    assert request.target == "/a?b=c"


@pytest.mark.parametrize("sent", [b"//a//b?c=//", b"///a//b?c=//", b"http://x//a//b?c=//"])
def test_slashes_before_a_target_count_as_one(sent: bytes) -> None:
    (request,), _ = read(b"GET " + sent + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert request.target == "/a//b?c=//"


@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_offer_to_upgrade_is_ignored_and_the_body_is_read(framing: str) -> None:
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    if framing == "length":
        data = b"POST /a HTTP/1.1\r\nHost: x\r\n" + offer + b"Content-Length: 5\r\n\r\nhello"
    else:
        data = (
            b"POST /a HTTP/1.1\r\nHost: x\r\n"
            + offer
            + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        )
    requests, status = read(data + GET)
    assert [(r.method, r.body) for r in requests] == [("POST", b"hello"), ("GET", b"")]
    assert status == 0


def test_request_after_connection_close_is_not_read() -> None:
    requests, status = read(b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" + GET)
    assert (len(requests), status) == (1, 0)


def test_gzip_body_is_unpacked() -> None:
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(b"hello") + packer.flush()
    (request,), _ = read(post(packed, b"Content-Encoding: gzip"))
    assert request.body == b"hello"


def test_gzip_bomb_is_rejected() -> None:
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(b"\0" * 100_000) + packer.flush()
    assert len(packed) < 1000
    assert read(post(packed, b"Content-Encoding: gzip")) == ([], 413)


@pytest.mark.parametrize("spoil", [lambda b: b[:-1], lambda b: b + b"x", lambda b: b"x" + b])
def test_broken_gzip_body_is_rejected(spoil: object) -> None:
    packer = zlib.compressobj(wbits=31)
    packed = spoil(packer.compress(b"hello") + packer.flush())  # type: ignore[operator]  # a parametrised lambda
    assert read(post(packed, b"Content-Encoding: gzip")) == ([], 400)


def test_same_head_with_another_body_is_another_request() -> None:
    requests, _ = read(
        post(b"one", b"A: 1"), post(b"two", b"A: 1"), post(b"333", b"A: 2"), post(b"4444", b"A: 2")
    )
    assert [(r.body, r.headers["a"]) for r in requests] == [
        (b"one", "1"),
        (b"two", "1"),
        (b"333", "2"),
        (b"4444", "2"),
    ]


def test_what_is_found_in_a_head_is_found_once_for_all_that_repeat_it() -> None:
    asked: list[bytes] = []

    @cached_by_head
    def named(request: HttpRequest) -> str:
        asked.append(request.body)
        return request.headers["name"]

    bodies = (b"one", b"two", b"six")
    requests, _ = read(*(post(body, b"Name: a") for body in bodies), post(b"ten", b"Name: b"))
    assert [named(request) for request in requests] == ["a", "a", "a", "b"]
    assert [request.body for request in requests] == [*bodies, b"ten"]
    assert len(asked) == 3  # the first, those that repeat it, and another head
    assert [named(replace(request, headers={"name": "c"})) for request in requests] == ["c"] * 4


def test_repeated_request_has_the_target_and_type_of_the_first() -> None:
    sent = [post(body, b"Content-Type: Text/Plain; x=1", path=b"/a?b=c") for body in (b"1", b"2", b"3")]
    requests, _ = read(*sent)
    assert [(r.raw_path, r.path, r.query, r.media_type) for r in requests] == [
        ("/a", "/a", {"b": "c"}, "text/plain")
    ] * 3


def test_secrets_and_long_values_are_not_shared_between_connections() -> None:
    lines = [
        b"Authorization: Bearer 00Dsecret",
        b"X-SFDC-Session: 00Dsecret",
        b"Cookie: sid=00Dsecret",
        b"Accept: " + b"a" * 101,
        b"User-Agent: Test 1.0",
    ]
    first, second = (read(post(b"", *lines))[0][0].headers for _ in range(2))
    assert first == second
    shared = {name for name in first if first[name] is second[name] and len(first[name]) > 1}
    assert shared == {"user-agent"}


def test_same_head_after_another_request_in_pieces_is_not_mixed_up() -> None:
    first = post(b"one", b"A: 1", path=b"/first")
    other = post(b"other", b"A: 2", path=b"/other")
    requests, _ = read(first, other[:30], other[30:], first, first)
    assert [(r.path, r.body, r.headers["a"]) for r in requests] == [
        ("/first", b"one", "1"),
        ("/other", b"other", "2"),
        ("/first", b"one", "1"),
        ("/first", b"one", "1"),
    ]


def test_head_start_of_a_kept_head_inside_a_body_stays_a_body() -> None:
    inner = post(b"one")
    requests, _ = read(inner, post(b"x" * len(inner))[: -len(inner)], inner)
    assert [r.body for r in requests] == [b"one", inner]


@given(cuts=st.lists(st.integers(0, 400), max_size=8))
def test_requests_do_not_depend_on_how_the_bytes_arrive(cuts: list[int]) -> None:
    data = post(b"one", b"A: 1") + CHUNKED + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n" + GET + post(b"two", b"A: 1")
    places = sorted({0, len(data), *(c for c in cuts if c < len(data))})
    pieces = [data[a:b] for a, b in pairwise(places)]
    requests, status = read(*pieces)
    assert [(r.method, r.body) for r in requests] == [
        ("POST", b"one"),
        ("POST", b"abcde"),
        ("GET", b""),
        ("POST", b"two"),
    ]
    assert status == 0


@given(pieces=st.lists(st.binary(max_size=60), max_size=5))
def test_any_bytes_are_read_or_rejected_without_raising(pieces: list[bytes]) -> None:
    requests, status = read(*pieces)
    assert status in (0, 400, 405, 413, 414, 417, 431, 505)
    assert all(request.method for request in requests)
