"""Versions, paths, headers and bodies of REST."""

from __future__ import annotations

import pytest

from tidewire.errors import (
    AuthHeaderInvalid,
    BodyMalformed,
    BodyTooLarge,
    MediaTypeUnsupported,
    VersionUnsupported,
)
from tidewire.frontends.rest.wire import (
    MAX_BODY_BYTES,
    parse_batch_size,
    parse_form,
    parse_json_object,
    parse_segments,
    parse_suffix,
    parse_token,
    parse_version,
    render_http_date,
    render_json,
    render_origin,
    render_versions,
    wants_pretty,
)
from tidewire.transport.http import HttpRequest

JSON = {"content-type": "application/json; charset=UTF-8"}


def get(target: str = "/", **headers: str) -> HttpRequest:
    return HttpRequest("GET", target, {name.replace("_", "-"): value for name, value in headers.items()})


def post(body: bytes, headers: dict[str, str]) -> HttpRequest:
    return HttpRequest("POST", "/", headers, body)


def test_version_list_names_every_release_by_its_season() -> None:
    listed = render_versions()
    labels = {entry["version"]: entry["label"] for entry in listed}
    assert listed[0] == {"label": "Winter '11", "url": "/services/data/v20.0", "version": "20.0"}
    assert labels["42.0"] == "Spring '18"
    assert labels["52.0"] == "Summer '21"
    assert labels["59.0"] == "Winter '24"
    assert listed[-1] == {"label": "Summer '26", "url": "/services/data/v67.0", "version": "67.0"}
    assert len(listed) == 48


@pytest.mark.parametrize("text, number", [("v20.0", 20), ("v59.0", 59), ("v67.0", 67)])
def test_version_in_range_is_read(text: str, number: int) -> None:
    assert parse_version(text) == number


@pytest.mark.parametrize("text", ["v19.0", "v68.0", "59.0", "v59", "v59.1", "v059.0", "V59.0", "v59.0 ", ""])
def test_version_of_another_form_or_range_is_rejected(text: str) -> None:
    with pytest.raises(VersionUnsupported):
        parse_version(text)


@pytest.mark.parametrize(
    "path, segments",
    [
        ("/services/data", ("services", "data")),
        ("/services/data/", ("services", "data")),
        ("/a/b%2Fc", ("a", "b/c")),
        ("/", ()),
        ("/a//b", None),
        ("/a/b//", None),
    ],
)
def test_path_is_split_before_it_is_decoded(path: str, segments: tuple[str, ...] | None) -> None:
    assert parse_segments(path) == segments


@pytest.mark.parametrize("header", ["Bearer 00D!abc", "OAuth 00D!abc", "bearer  00D!abc "])
def test_token_is_read_from_both_schemes(header: str) -> None:
    assert parse_token(get(authorization=header)) == "00D!abc"


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic abc", "00D!abc", "Bearer a b"])
def test_token_in_a_garbled_header_is_rejected(header: str) -> None:
    with pytest.raises(AuthHeaderInvalid):
        parse_token(get(authorization=header))


@pytest.mark.parametrize(
    "header, size",
    [
        ("batchSize=500", 500),
        ("BATCHSIZE = 500", 500),
        ("batchSize=1", 200),
        ("batchSize=99999", 2000),
        ("batchSize=x", 2000),
        ("batchSize=-5", 2000),
        ("batchSize=" + "9" * 5000, 2000),
        ("", 2000),
    ],
)
def test_batch_size_is_a_hint_within_bounds(header: str, size: int) -> None:
    assert parse_batch_size(get(sforce_query_options=header)) == size


@pytest.mark.parametrize(
    "header, origin",
    [
        ("client=Loader/1.0; defaultNamespace=x", "com/salesforce/api/rest/59.0;client=Loader/1.0"),
        ("defaultNamespace=x, client=Loader", "com/salesforce/api/rest/59.0;client=Loader"),
        ("client=", "com/salesforce/api/rest/59.0"),
        ("client=a\x01b", "com/salesforce/api/rest/59.0"),
        ("", "com/salesforce/api/rest/59.0"),
    ],
)
def test_origin_names_the_client_when_it_gave_a_printable_name(header: str, origin: str) -> None:
    assert render_origin(get(sforce_call_options=header), 59) == origin


def test_json_body_is_read() -> None:
    assert parse_json_object(post('{"Name":"Zoë"}'.encode(), JSON)) == {"Name": "Zoë"}
    assert parse_json_object(post(b"{}", {})) == {}


def test_json_body_error_has_line_and_column() -> None:
    with pytest.raises(BodyMalformed, match=r"at \[line:2, column:10\]"):
        parse_json_object(post(b'{"a": 1,\n "Name": x}', JSON))


@pytest.mark.parametrize("body", [b"", b"  ", b"[]", b'"x"', b"{", b'{"a": NaN}', b"\xff\xfe", b"[" * 5000])
def test_json_body_other_than_an_object_is_rejected(body: bytes) -> None:
    with pytest.raises(BodyMalformed):
        parse_json_object(post(body, JSON))


def test_json_body_of_another_media_type_is_rejected() -> None:
    with pytest.raises(MediaTypeUnsupported):
        parse_json_object(post(b"Name=x", {"content-type": "application/x-www-form-urlencoded"}))


def test_json_body_over_the_limit_is_rejected() -> None:
    with pytest.raises(BodyTooLarge) as caught:
        parse_json_object(post(b" " * (MAX_BODY_BYTES + 1), JSON))
    assert caught.value.details["limit_bytes"] == MAX_BODY_BYTES


def test_form_body_is_parsed_only_with_the_form_media_type() -> None:
    body = b"grant_type=password&password=a%2Bb+c&empty="
    form = {"content-type": "application/x-www-form-urlencoded;charset=UTF-8"}
    assert parse_form(post(body, form)) == {"grant_type": "password", "password": "a+b c", "empty": ""}
    assert parse_form(post(body, JSON)) is None
    assert parse_form(post(b"\xff=1", form)) is None
    assert parse_form(post(b"a=1&" * 200, form)) is None


@pytest.mark.parametrize(
    "request_, is_pretty",
    [
        (get(x_prettyprint="1"), True),
        (get("/x?_PrettyPrint"), True),
        (get("/x?_PrettyPrint=1"), True),
        (get(x_prettyprint="0"), False),
        (get(), False),
    ],
)
def test_pretty_print_is_asked_for_by_header_or_parameter(request_: HttpRequest, is_pretty: bool) -> None:
    assert wants_pretty(request_) is is_pretty
    body = render_json(request_, 200, {"a": 1.0}).body
    assert body == (b'{\n  "a": 1.0\n}' if is_pretty else b'{"a":1.0}')


def test_http_date_is_in_gmt() -> None:
    assert render_http_date(1_700_000_000_999) == "Tue, 14 Nov 2023 22:13:20 GMT"


@pytest.mark.parametrize(
    "path", ["/a//b", "/a/%00", "/a/..", "/a/%2e", "/a/%c0%ae", "/a/%ED%A0%80", "//a", "/a//"]
)
def test_path_with_a_segment_that_is_no_name_has_no_segments(path: str) -> None:
    assert parse_segments(path) is None


@pytest.mark.parametrize(
    "path, last, chosen",
    [
        ("/services/data/v59.0/limits.xml", "limits", "application/xml"),
        ("/services/data.json", "data", "application/json"),
        ("/services/data/v59.0", "v59.0", ""),
        ("/services/data/v59.0/sobjects/A__c/Key__c/x.xml", "x.xml", ""),
        ("/services/oauth2/x.xml", "x.xml", ""),
    ],
)
def test_suffix_chooses_the_form(path: str, last: str, chosen: str) -> None:
    segments, media_type = parse_suffix(parse_segments(path) or ())
    assert (segments[-1], media_type) == (last, chosen)
