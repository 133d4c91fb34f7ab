"""REST on the wire: versions, paths, headers and JSON bodies. Pure.

A path is split into segments before it is percent-decoded, so an encoded slash stays inside its segment. One trailing
slash is accepted because clients write `query/?q=`; an empty segment anywhere else is an unknown path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from email.utils import formatdate
from functools import lru_cache
from urllib.parse import parse_qsl, unquote_to_bytes

import orjson

from tidewire.errors import (
    AuthHeaderInvalid,
    BodyMalformed,
    BodyTooLarge,
    MediaTypeUnsupported,
    MethodNotAllowed,
    VersionUnsupported,
)
from tidewire.names import MAX_API_VERSION, MIN_API_VERSION, data_url, try_parse_api_version
from tidewire.transport.http import HttpRequest, HttpResponse, cached_by_head

MAX_BODY_BYTES = 10 * 1024 * 1024
MAX_JSON_DEPTH = 64
DEFAULT_BATCH_SIZE = 2000
MIN_BATCH_SIZE = 200

NO_STORE = ("Cache-Control", "no-cache,must-revalidate,max-age=0,no-store,private")
POSITION_HEADER = "Tidewire-Position"

_FIRST_RELEASE_YEAR = 11  # version 20.0 was Winter '11; three releases a year since
_SEASONS = ("Winter", "Spring", "Summer")
_NEVER_SEGMENTS = frozenset({"", ".", ".."})
_OPTION = re.compile(r"\s*([A-Za-z]+)\s*=\s*([^;,]*)")
_CLIENT_NAME = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,98}[\x21-\x7e])?")
_CHARSET = re.compile(r""";\s*charset\s*=\s*"?([^\s";]*)""", re.IGNORECASE)
_CHARSETS = {
    "utf-8": "utf-8",
    "utf8": "utf-8",
    "us-ascii": "utf-8",
    "ascii": "utf-8",
    "iso-8859-1": "latin-1",
    "latin1": "latin-1",
}
_CREDENTIALS = re.compile(r"(?:bearer|oauth) +(\S+) *", re.IGNORECASE)


def require_method(request: HttpRequest, *allowed: str) -> None:
    """Raise MethodNotAllowed if a resource does not have the method of a request."""
    if request.method not in allowed:
        raise method_not_allowed(request.method, allowed)


def method_not_allowed(method: str, allowed: Iterable[str]) -> MethodNotAllowed:
    """Return the error for a method that a resource does not have."""
    names = tuple(allowed)
    return MethodNotAllowed(
        f"HTTP Method '{method[:16]}' not allowed. Allowed are {', '.join(names)}", allowed=names
    )


@lru_cache(maxsize=64)
def parse_version(text: str) -> int:
    """Parse the number in `v59.0`. Raises VersionUnsupported for another form or an unsupported number."""
    version = try_parse_api_version(text[1:]) if text.startswith("v") else None
    if version is None:
        raise VersionUnsupported(f"API version {text[:16]} is not supported", version=text[:16])
    return version


def render_versions() -> list[dict[str, str]]:
    """Render the list of versions, each with its release name, oldest first."""
    listed = []
    for version in range(MIN_API_VERSION, MAX_API_VERSION + 1):
        years, season = divmod(version - MIN_API_VERSION, 3)
        listed.append(
            {
                "label": f"{_SEASONS[season]} '{_FIRST_RELEASE_YEAR + years}",
                "url": data_url(version),
                "version": f"{version}.0",
            }
        )
    return listed


def parse_segments(raw_path: str) -> tuple[str, ...] | None:
    """Return the decoded segments of a path, or None if one is empty or not a possible name."""
    segments = raw_path.split("/")[1:]
    if segments and not segments[-1]:
        segments.pop()
    if "%" not in raw_path:  # as in nearly all paths
        return None if not _NEVER_SEGMENTS.isdisjoint(segments) or "\0" in raw_path else tuple(segments)
    decoded = [_try_decode(segment) for segment in segments]
    return None if None in decoded or "" in decoded else tuple(str(segment) for segment in decoded)


@cached_by_head
def parse_address(request: HttpRequest) -> tuple[tuple[str, ...], str]:
    """Return a path's segments and media type as `parse_suffix` does; no segments for an impossible path."""
    return parse_suffix(parse_segments(request.raw_path) or ())


def parse_suffix(segments: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Split `.json` or `.xml` off a data API path; returns the path and the media type, empty without a suffix.

    The value of an external id keeps its suffix.
    """
    if len(segments) < 2 or segments[0] != "services" or not segments[1].startswith("data"):
        return segments, ""
    is_external_id = len(segments) == 7 and segments[3] == "sobjects" and "__" in segments[5]
    stem, _, suffix = segments[-1].rpartition(".")
    if is_external_id or not stem or suffix not in ("json", "xml"):
        return segments, ""
    return (*segments[:-1], stem), f"application/{suffix}"


def _try_decode(segment: str) -> str | None:
    """Percent-decode a segment; None if it is not UTF-8, holds a NUL, or is `.` or `..`."""
    try:
        text = unquote_to_bytes(segment).decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text or text in (".", "..") else text


@cached_by_head
def parse_token(request: HttpRequest) -> str:
    """Return the session token of the Authorization header. Raises AuthHeaderInvalid."""
    found = _CREDENTIALS.fullmatch(request.headers.get("authorization", ""))
    if found is None:
        raise AuthHeaderInvalid("INVALID_HEADER_TYPE")
    return found[1]


def parse_options(header: str) -> dict[str, str]:
    """Parse the options of a header, such as `client=x; batchSize=200`, by lower-case name."""
    return {name.lower(): value.strip() for name, value in _OPTION.findall(header)}


@cached_by_head
def parse_batch_size(request: HttpRequest) -> int:
    """Return the rows per page that Sforce-Query-Options asks for, clamped to the range; it is only a hint."""
    size = try_parse_number(
        parse_options(request.headers.get("sforce-query-options", "")).get("batchsize", "")
    )
    return DEFAULT_BATCH_SIZE if size is None else max(MIN_BATCH_SIZE, min(DEFAULT_BATCH_SIZE, size))


def try_parse_number(text: str, max_digits: int = 9) -> int | None:
    """Parse a whole number in ASCII digits; None for anything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= max_digits else None


def render_origin(request: HttpRequest, version: int) -> str:
    """Return the origin that change events name: the API, its version, and the client's name if sent."""
    origin = f"com/salesforce/api/rest/{version}.0"
    client = client_name(request)
    return f"{origin};client={client}" if client else origin


@cached_by_head
def client_name(request: HttpRequest) -> str:
    """Return the client's name in Sforce-Call-Options, or empty."""
    client = parse_options(request.headers.get("sforce-call-options", "")).get("client", "")
    return client if _CLIENT_NAME.fullmatch(client) else ""


@cached_by_head
def parse_default_namespace(request: HttpRequest) -> str:
    """Return the default namespace of Sforce-Call-Options, or empty."""
    return parse_options(request.headers.get("sforce-call-options", "")).get("defaultnamespace", "")


def decode_body(request: HttpRequest) -> bytes:
    """Return the request's body in UTF-8 without a byte order mark.

    Raises BodyTooLarge, MediaTypeUnsupported for an unknown charset, BodyMalformed for an empty body.
    """
    if len(request.body) > MAX_BODY_BYTES:
        raise BodyTooLarge(
            f"The request body is larger than {MAX_BODY_BYTES} bytes", limit_bytes=MAX_BODY_BYTES
        )
    body = request.body
    charset = _charset(request)
    if charset != "utf-8":
        body = body.decode(charset).encode()
    body = body.removeprefix(b"\xef\xbb\xbf")
    if not body or body.isspace():
        raise BodyMalformed("The HTTP entity body is required, but this request has no entity body.")
    return body


@cached_by_head
def _charset(request: HttpRequest) -> str:
    found = _CHARSET.search(request.headers.get("content-type", ""))
    charset = found[1].lower() if found else "utf-8"
    if charset not in _CHARSETS:
        raise MediaTypeUnsupported(f"Charset {charset[:40]} is not supported: send UTF-8")
    return _CHARSETS[charset]


def parse_json_object(request: HttpRequest) -> dict[str, object]:
    """Parse the request's JSON object. Raises MediaTypeUnsupported, BodyTooLarge or BodyMalformed."""
    if request.media_type not in ("", "application/json"):
        raise MediaTypeUnsupported(
            f"Content type {request.media_type[:80]} is not supported: send application/json"
        )
    value = parse_json(decode_body(request))
    if not isinstance(value, dict):
        raise BodyMalformed("The request body must be a JSON object at [line:1, column:1]")
    _check_depth(value)
    return value


def parse_json(body: bytes) -> object:
    """Parse JSON. Raises BodyMalformed with the line and column of the error."""
    try:
        value: object = orjson.loads(body)
    except orjson.JSONDecodeError as err:
        raise BodyMalformed(f"{err.msg} at [line:{err.lineno}, column:{err.colno}]") from err
    return value


def _check_depth(value: dict[str, object]) -> None:
    level: list[object] = [item for item in value.values() if isinstance(item, (dict, list))]
    if not level:
        return
    for _ in range(MAX_JSON_DEPTH - 1):
        level = [
            item
            for outer in level
            for item in (
                outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ()
            )
            if isinstance(item, (dict, list))
        ]
        if not level:
            return
    raise BodyMalformed(f"The request body nests values more than {MAX_JSON_DEPTH} deep")


def parse_form(request: HttpRequest) -> dict[str, str] | None:
    """Return the fields of a form body, or None if the body is not a form."""
    if request.media_type != "application/x-www-form-urlencoded" or len(request.body) > MAX_BODY_BYTES:
        return None
    try:
        text = request.body.decode("utf-8")
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=100))
    except ValueError:  # bytes that are not UTF-8, or too many fields
        return None


@cached_by_head
def wants_pretty(request: HttpRequest) -> bool:
    """Whether the caller asked for indented JSON."""
    flag = request.headers.get("x-prettyprint", request.query.get("_PrettyPrint", "0"))
    return flag.strip().lower() not in ("0", "false")


def render_json(
    request: HttpRequest, status: int, value: object, headers: tuple[tuple[str, str], ...] = ()
) -> HttpResponse:
    """Render a JSON answer, indented if the caller asked for it."""
    option = orjson.OPT_INDENT_2 if wants_pretty(request) else 0
    return HttpResponse(status, orjson.dumps(value, option=option), headers=headers)


def render_text(status: int, text: str) -> HttpResponse:
    """Render a plain-text answer, as the identity service gives for bad tokens."""
    return HttpResponse(status, text.encode(), "text/plain;charset=UTF-8", (NO_STORE,))


def render_http_date(epoch_ms: int) -> str:
    """Render a time as HTTP headers have it."""
    return formatdate(epoch_ms / 1000, usegmt=True)


def without_attributes(values: Mapping[str, object]) -> dict[str, object]:
    """Return a record body without `attributes`, which clients may send back as they received it."""
    plain = dict(values)
    plain.pop("attributes", None)
    return plain
