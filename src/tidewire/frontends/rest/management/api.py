"""Routes of `/services/tidewire/v1`.

To add a resource, write its handlers and ROUTES in a module of this package and list that module in ROUTES here.
"""

from __future__ import annotations

from tidewire.frontends.rest.calls import ApiCall, Route, RouteTable
from tidewire.frontends.rest.management import database, log_export, logins, pipeline, status
from tidewire.frontends.rest.management.calls import Services, render_result
from tidewire.frontends.rest.wire import parse_json_object, parse_token
from tidewire.gate.requests import Call
from tidewire.transport.http import HttpRequest, HttpResponse

_APPLY_ORIGIN = "tidewire/apply/1.0"


async def answer_management(
    services: Services, request: HttpRequest, segments: tuple[str, ...]
) -> HttpResponse:
    """Answer a request; `segments` follow `/services/tidewire/v1`. Raises PlatformError."""
    principal = await services.logins.sessions.authenticate(parse_token(request))
    _, handler, call = _TABLE.find(request, 0, segments, principal)
    return await handler(services, call)


async def apply_definition(services: Services, call: ApiCall) -> HttpResponse:
    """Apply a definition document to the org, or with `dryRun` only plan it."""
    document = parse_json_object(call.request)
    # A dry run unless the parameter clearly says no: a misspelt value must not change the org.
    dry_run = call.request.query.get("dryRun", "false").lower() not in ("false", "0")
    context = Call(call.principal, _APPLY_ORIGIN)
    applied = await services.gate.apply_definition(context, document, dry_run=dry_run)
    return render_result(
        call, {"plan": applied.lines, "applied": not dry_run, "secrets": dict(applied.secrets)}
    )


ROUTES: tuple[Route[Services], ...] = (
    Route(("apply",), {"POST": apply_definition}),
    *logins.ROUTES,
    *database.ROUTES,
    *status.ROUTES,
    *pipeline.ROUTES,
    *log_export.ROUTES,
)
_TABLE = RouteTable(ROUTES)
