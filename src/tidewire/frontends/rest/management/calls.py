"""What the handlers of the management API share: the org's services, the caller's context, and JSON answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidewire.access.apps import AppAdmin
from tidewire.access.logins import Logins
from tidewire.delivery.front_end import LakeView
from tidewire.delivery.open_streams import OpenStreams
from tidewire.errors import DefinitionInvalid
from tidewire.frontends.rest.calls import ApiCall
from tidewire.frontends.rest.wire import NO_STORE, render_json
from tidewire.gate.gate import Gate
from tidewire.gate.requests import Call
from tidewire.matching.log_ranges import LogRanges
from tidewire.transport.http import HttpResponse

_ORIGIN = "tidewire/access/1.0"
EMPTY = HttpResponse(204, b"", "", (NO_STORE,))


@dataclass(frozen=True, slots=True)
class Services:
    """One org's services. The process-wide counters are reported by the first org only (`is_first`)."""

    gate: Gate
    logins: Logins
    apps: AppAdmin
    streams: OpenStreams
    ranges: LogRanges
    lake: LakeView | None = None
    is_first: bool = True


def context_of(call: ApiCall) -> Call:
    """Return the caller with the origin that change events name for the management API."""
    return Call(call.principal, _ORIGIN)


def render_result(call: ApiCall, body: object, status: int = 200) -> HttpResponse:
    """Render a JSON answer that is not to be cached."""
    return render_json(call.request, status, body, (NO_STORE,))


def check_keys(given: Mapping[str, object], known: frozenset[str]) -> None:
    """Raise DefinitionInvalid if a request body has an unknown key."""
    unknown = sorted(set(given) - known)
    if unknown:
        raise DefinitionInvalid(f"unknown keys: {', '.join(unknown)[:200]}", path=unknown[0][:80])
