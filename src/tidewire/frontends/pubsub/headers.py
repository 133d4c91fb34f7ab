"""Call metadata: credentials under their old and new names, and our own extensions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from tidewire.errors import AuthHeaderInvalid, BodyMalformed, DemandInvalid
from tidewire.ids import try_normalise_id

_TOKEN = ("accesstoken", "x-sfdc-api-session-token")
_INSTANCE = ("instanceurl", "x-sfdc-instance-url")
_TENANT = ("tenantid", "x-sfdc-tenant-id")
_MAX_TRACE_ID = 128
_TIME_DIGITS = 15  # milliseconds past the year 30000
_POLICIES = {"": False, "exact": False, "nearest": True}
_ENCODINGS = {"": False, "identity": False, "gzip": True}


@dataclass(frozen=True, slots=True)
class CallHeaders:
    """A call's metadata. Fields between `trace_id` and `traceparent` are our own extensions.

    `from_ms` is a time to replay from. With `replays_nearest`, an expired replay id means the oldest event that is
    still stored. `wants_gzip` asks for compressed responses.
    """

    token: str
    org_id: str
    trace_id: str
    max_requested: int | None = None
    keepalive_ms: int | None = None
    from_ms: int | None = None
    replays_nearest: bool = False
    wants_gzip: bool = False
    traceparent: str = ""


def parse_headers(metadata: Iterable[tuple[str, str | bytes]]) -> CallHeaders:
    """Parse a call's metadata under its old or new names.

    Raises AuthHeaderInvalid, DemandInvalid, BodyMalformed.
    """
    values = {key: value for key, value in metadata if isinstance(value, str)}
    token = _required(values, _TOKEN)
    _required(values, _INSTANCE)
    org_id = _parse_tenant(_required(values, _TENANT))
    trace_id = values.get("x-client-trace-id", "")
    max_requested = _number(values, "tidewire-max-requested")
    if max_requested is not None and max_requested < 1:
        raise DemandInvalid("tidewire-max-requested must be at least 1")
    return CallHeaders(
        token,
        org_id,
        trace_id if len(trace_id) <= _MAX_TRACE_ID else "",
        max_requested,
        _number(values, "tidewire-keepalive-ms"),
        _number(values, "tidewire-replay-from-ms", _TIME_DIGITS),
        _choice(values, "tidewire-replay-policy", _POLICIES),
        _choice(values, "tidewire-compression", _ENCODINGS),
        values.get("traceparent", ""),
    )


def try_find_token(metadata: Iterable[tuple[str, str | bytes]]) -> str | None:
    """Return the token in a call's metadata, if any."""
    values = {key: value for key, value in metadata if isinstance(value, str)}
    return next((found for name in _TOKEN if (found := values.get(name, "").strip())), None)


def _required(values: dict[str, str], names: tuple[str, str]) -> str:
    for name in names:
        if found := values.get(name, "").strip():
            return found
    raise AuthHeaderInvalid(f"The metadata header {names[0]} is missing or blank", header=names[0])


@lru_cache(maxsize=256)  # every call names one of a few orgs
def _parse_tenant(text: str) -> str:
    """Parse `<orgId>` or `core/<name>/<orgId>` into an org id of 18 characters."""
    segments = text.split("/")
    if len(segments) == 3 and segments[0].lower() == "core":
        text = segments[2]
    org_id = try_normalise_id(text)
    if org_id is None:
        raise AuthHeaderInvalid("The metadata header tenantid is not an org id", header="tenantid")
    return org_id


def _number(values: dict[str, str], name: str, digits: int = 9) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= digits):
        raise BodyMalformed(f"The metadata header {name} is not a whole number")
    return int(text)


def _choice(values: dict[str, str], name: str, known: dict[str, bool]) -> bool:
    found = known.get(values.get(name, "").strip().lower())
    if found is None:
        words = ", ".join(word for word in known if word)
        raise BodyMalformed(f"The metadata header {name} must be one of {words}")
    return found
