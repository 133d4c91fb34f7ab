"""Conditional requests: the validators of a resource, and whether they meet a request's conditions.

The order of the four headers is RFC 9110's: If-Match before If-Unmodified-Since, then If-None-Match before
If-Modified-Since. An unparseable date is ignored.
"""

from __future__ import annotations

import hashlib
import threading
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from tidewire.clock import Clock
from tidewire.errors import PreconditionFailed
from tidewire.events import Value
from tidewire.frontends.rest.wire import NO_STORE, render_http_date
from tidewire.schema.model import ObjectType
from tidewire.soql.recent_item_dates import is_recent_item_date
from tidewire.transport.http import HttpRequest, HttpResponse

_CONDITIONS = ("if-match", "if-unmodified-since", "if-none-match", "if-modified-since")
_FAILED = "The record or resource does not meet the conditions in the request's headers"
_MAX_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Validators:
    """The ETag of a resource, and when it last changed if known."""

    etag: str
    modified_ms: int | None

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Return the response headers."""
        if self.modified_ms is None:
            return (("ETag", self.etag),)
        return (("ETag", self.etag), ("Last-Modified", render_http_date(self.modified_ms)))


def is_conditional(request: HttpRequest) -> bool:
    """Whether a request has any condition."""
    return any(name in request.headers for name in _CONDITIONS)


def etag_of(value: object) -> str:
    """Return the ETag of a value, a hash of its repr."""
    digest = hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).digest()
    return f'"{urlsafe_b64encode(digest[:18]).decode()}"'


def record_validators(entity: ObjectType, row: Mapping[str, Value], readable: frozenset[str]) -> Validators:
    """Return a record's validators for a caller who may read these fields.

    Formulas are omitted because they follow from other fields, and dates of use because reading changes them.
    """
    hashed = [
        f for f in entity.stored_fields if f.name in readable and not (f.formula or is_recent_item_date(f))
    ]
    state = [(f.name, row.get(f.name)) for f in hashed]
    modified_ms = row.get("LastModifiedDate")
    return Validators(etag_of(state), modified_ms if isinstance(modified_ms, int) else None)


def check_conditions(request: HttpRequest, validators: Validators) -> None:
    """Raise PreconditionFailed if a write's conditions, or If-Match of a read, do not hold."""
    headers = request.headers
    if "if-match" in headers:
        if not _names(headers["if-match"], validators.etag):
            raise PreconditionFailed(_FAILED)
    elif _is_newer(validators, _try_date_ms(headers.get("if-unmodified-since"))):
        raise PreconditionFailed(_FAILED)
    if request.method != "GET" and _is_unchanged(request, validators):
        raise PreconditionFailed(_FAILED)


def try_answer_unchanged(request: HttpRequest, validators: Validators) -> HttpResponse | None:
    """Return 304 if the reader's copy is current, else None. Raises PreconditionFailed."""
    if not is_conditional(request):
        return None
    check_conditions(request, validators)
    if not _is_unchanged(request, validators):
        return None
    return HttpResponse(304, b"", "", (*validators.headers(), NO_STORE))


def _is_unchanged(request: HttpRequest, validators: Validators) -> bool:
    headers = request.headers
    if "if-none-match" in headers:
        return _names(headers["if-none-match"], validators.etag)
    since_ms = _try_date_ms(headers.get("if-modified-since"))
    if since_ms is None or validators.modified_ms is None or request.method != "GET":
        return False
    return not _is_newer(validators, since_ms)


def _is_newer(validators: Validators, since_ms: int | None) -> bool:
    if since_ms is None or validators.modified_ms is None:
        return False
    return validators.modified_ms // 1000 * 1000 > since_ms


def _names(header: str, etag: str) -> bool:
    """Whether a header lists this tag; proxies append `-gzip` to the tags of compressed answers."""
    if header.strip() == "*":
        return True
    bare = etag.strip('"')
    tags = (tag.strip().removeprefix("W/").strip('"') for tag in header.split(","))
    return any(tag.removesuffix("--gzip").removesuffix("-gzip") == bare for tag in tags)


def _try_date_ms(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(parsedate_to_datetime(text).timestamp() * 1000)
    except (ValueError, OverflowError, TypeError):
        return None


class ChangeTimes:
    """Remembers when descriptions changed, as far as this process has seen.

    A description depends on the types and on the reader's rights, and neither records when it changed. A description
    seen for the first time counts as changed now, so a reader may get one twice but never misses a change.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: OrderedDict[Hashable, tuple[str, int]] = OrderedDict()
        self._lock = threading.Lock()  # subrequests of a shared transaction run on the writer thread

    def changed_ms(self, key: Hashable, etag: str) -> int:
        """Return when `key` got this state, rounded up to a whole second."""
        with self._lock:
            known = self._seen.get(key)
            if known is not None and known[0] == etag:
                self._seen.move_to_end(key)
                return known[1]
            # HTTP dates have no fractions: rounding down would hide a second change within the same second.
            now_ms = self._clock.now_ms() // 1000 * 1000 + 1000
            changed_ms = now_ms if known is None else max(now_ms, known[1] + 1000)
            self._seen[key] = (etag, changed_ms)
            self._seen.move_to_end(key)
            if len(self._seen) > _MAX_REMEMBERED:
                self._seen.popitem(last=False)
            return changed_ms
