"""The limits resource, and the record counts of objects.

Without an edition no limit is enforced and the maxima are nominal, so that clients can divide by them. With an edition
the streaming limits are the edition's, and enforced. API calls, permission sets, streaming clients and events are
counted. Features that this server lacks, such as reports, have a limit of zero.
"""

from __future__ import annotations

from tidewire.delivery.allocations import NOMINAL, Allocations
from tidewire.events import Family
from tidewire.frontends.rest.calls import Api, ApiCall, Route, render_answer
from tidewire.gate.api_usage import DAILY_API_REQUESTS
from tidewire.transport.http import HttpResponse

_NOMINAL = {
    "DailyBulkApiBatches": 15_000,
    "DailyBulkApiRequests": 15_000,
    "DailyBulkV2QueryFileStorageMB": 1_000_000,
    "DailyBulkV2QueryJobs": 10_000,
    "DataStorageMB": 1_000_000,
    "FileStorageMB": 1_000_000,
    "HourlyPublishedStandardVolumePlatformEvents": 100_000,
    "DailyStandardVolumePlatformEvents": 25_000,
}
_ABSENT = (
    "ActiveScratchOrgs",
    "ConcurrentAsyncGetReportInstances",
    "ConcurrentSyncReportRuns",
    "DailyAsyncApexExecutions",
    "DailyScratchOrgs",
    "DailyWorkflowEmails",
    "HourlyAsyncReportRuns",
    "HourlyDashboardRefreshes",
    "HourlyDashboardResults",
    "HourlyDashboardStatuses",
    "HourlyODataCallout",
    "HourlySyncReportRuns",
    "HourlyTimeBasedWorkflow",
    "MassEmail",
    "Package2VersionCreates",
    "PublishCallbackUsageInApex",
    "SingleEmail",
)
_PERMISSION_SETS = 1_500
_HOURLY_PUBLISHED = 250_000
_DAYS_IN_MONTH = 30
_FIRST_DURABLE_VERSION = 37
_FIRST_ENTITLEMENT_VERSION = 48


def render_limits(
    used_api_requests: int, version: int, used_permission_sets: int, streaming: Allocations
) -> dict[str, dict[str, object]]:
    """Render the limits of a version, each with its maximum and the remaining amount."""
    maxima = dict(_NOMINAL) | dict.fromkeys(_ABSENT, 0)
    limits: dict[str, dict[str, object]] = {name: _entry(most, 0) for name, most in maxima.items()}
    limits |= _render_streaming(version, streaming)
    limits["DailyApiRequests"] = _entry(DAILY_API_REQUESTS, used_api_requests)
    sets = _entry(_PERMISSION_SETS, used_permission_sets)
    limits["PermissionSets"] = sets | {"CreateCustom": dict(sets)}
    return dict(sorted(limits.items()))


def _render_streaming(version: int, used: Allocations) -> dict[str, dict[str, object]]:
    """Render the limits of events and subscribers; durable ones exist from 37.0 on."""
    limits = NOMINAL if used.limits is None else used.limits
    monthly = "UsageEntitlement" if version >= _FIRST_ENTITLEMENT_VERSION else ""
    rows = {
        "DailyDeliveredPlatformEvents": _entry(limits.bus_events, used.used_bus_events()),
        f"MonthlyPlatformEvents{monthly}": _entry(
            limits.bus_events * _DAYS_IN_MONTH, used.used_bus_events(in_month=True)
        ),
        "HourlyPublishedPlatformEvents": _entry(_HOURLY_PUBLISHED, used.published_events()),
    }
    for is_durable in (False, True) if version >= _FIRST_DURABLE_VERSION else (False,):
        word = "Durable" if is_durable else ""
        push = used.used_events(Family.PUSH_TOPIC, is_durable=is_durable)
        generic = used.used_events(Family.GENERIC, is_durable=is_durable)
        most_generic = limits.daily_events(Family.GENERIC, is_durable=is_durable)
        clients = used.used_clients(is_durable=is_durable)
        rows[f"Daily{word}StreamingApiEvents"] = _entry(limits.push_events, push)
        rows[f"Daily{word}GenericStreamingApiEvents"] = _entry(most_generic, generic)
        rows[f"{word}StreamingApiConcurrentClients"] = _entry(limits.clients, clients)
    return rows


def _entry(most: int, used: int) -> dict[str, object]:
    return {"Max": most, "Remaining": max(0, most - used)}


async def show_limits(api: Api, call: ApiCall) -> HttpResponse:
    """Return the org's limits and what remains of each."""
    visible = {entity.name for entity in await api.gate.visible_objects(call.principal)}
    used = 0
    if "PermissionSet" in visible:
        rows = await api.gate.query(call.principal, "SELECT count() FROM PermissionSet")
        used = rows.count or 0
    limits = render_limits(api.gate.usage.used(), call.version, used, api.allocations)
    return render_answer(api, call, 200, limits)


async def count_records(api: Api, call: ApiCall) -> HttpResponse:
    """Count the records of the objects in `?sObjects=`, or of all that the caller may see."""
    visible = {entity.name.lower(): entity.name for entity in await api.gate.visible_objects(call.principal)}
    asked = [name.strip().lower() for name in call.request.query.get("sObjects", "").split(",")]
    wanted = dict.fromkeys(name for name in asked if name)
    names = [visible[name] for name in wanted if name in visible] if wanted else sorted(visible.values())
    counts: list[dict[str, object]] = []
    for name in names:
        soql = f"SELECT count() FROM {name}"  # noqa: S608  # the name comes from the catalog
        rows = await api.gate.query(call.principal, soql)
        if rows.count or wanted:
            counts.append({"count": rows.count or 0, "name": name})
    return render_answer(api, call, 200, {"sObjects": counts})


ROUTES: tuple[Route[Api], ...] = (
    Route(("limits",), {"GET": show_limits}, since=24, xml_root="LimitsSnapshot"),
    Route(("limits", "recordCount"), {"GET": count_records}, since=40, xml_root="RecordCount"),
)
