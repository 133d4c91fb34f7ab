"""The calls about time and users: getServerTimestamp, getUpdated, getDeleted, passwords and sessions."""

from __future__ import annotations

from tidewire.errors import SessionInvalid
from tidewire.frontends.soap.calls import SoapCall, check_count
from tidewire.frontends.soap.wire import render_element, render_elements
from tidewire.frontends.soap.wire_errors import render_row_error
from tidewire.gate.changed_records import parse_window_time, read_deleted, read_updated
from tidewire.ids import normalise_id
from tidewire.schema.values import render_datetime


async def get_server_timestamp(call: SoapCall) -> str:
    """What time it is here."""
    now = render_datetime(call.services.clock.now_ms(), "Z")
    return f"<result>{render_element('timestamp', now)}</result>"


async def get_updated(call: SoapCall) -> str:
    """Ids of the records of an object that changed in a time window."""
    start_ms, end_ms = _window(call)
    found = await read_updated(
        call.gate,
        call.principal,
        call.request.text("sObjectType"),
        start_ms,
        end_ms,
        call.services.clock.now_ms(),
    )
    ids = render_elements(("ids", record_id) for record_id in found.ids)
    covered = render_element("latestDateCovered", render_datetime(found.latest_covered_ms, "Z"))
    return f"<result>{ids}{covered}</result>"


async def get_deleted(call: SoapCall) -> str:
    """Ids of the records of an object that were deleted in a time window."""
    start_ms, end_ms = _window(call)
    found = await read_deleted(
        call.gate,
        call.principal,
        call.request.text("sObjectType"),
        start_ms,
        end_ms,
        call.services.clock.now_ms(),
    )
    records = "".join(
        "<deletedRecords>"
        + render_elements((("deletedDate", render_datetime(moment_ms, "Z")), ("id", record_id)))
        + "</deletedRecords>"
        for record_id, moment_ms in found.records
    )
    bounds = render_elements(
        (
            ("earliestDateAvailable", render_datetime(found.earliest_available_ms, "Z")),
            ("latestDateCovered", render_datetime(found.latest_covered_ms, "Z")),
        )
    )
    return f"<result>{records}{bounds}</result>"


def _window(call: SoapCall) -> tuple[int, int]:
    return _moment(call, "startDate"), _moment(call, "endDate")


def _moment(call: SoapCall, name: str) -> int:
    return parse_window_time(name, call.request.text(name))


async def set_password(call: SoapCall) -> str:
    """Give a user a new password."""
    user_id = normalise_id(call.request.text("userId"))
    element = next(call.request.all("password"), None)
    password = "" if element is None else element.text or ""
    await call.services.logins.set_password(call.context, user_id, password)
    return "<result/>"


async def change_own_password(call: SoapCall) -> str:
    """Give the caller a new password for the one in use."""
    given = {name: next(call.request.all(name), None) for name in ("oldPassword", "newPassword")}
    old, new = (("" if element is None else element.text or "") for element in given.values())
    await call.services.logins.change_own_password(call.context, old, new)
    return "<result/>"


async def reset_password(call: SoapCall) -> str:
    """Give a user a password drawn at random."""
    user_id = normalise_id(call.request.text("userId"))
    password = await call.services.logins.reset_password(call.context, user_id)
    return f"<result>{render_element('password', password)}</result>"


async def invalidate_sessions(call: SoapCall) -> str:
    """End login sessions by their tokens: the caller's own, or anybody's for whoever manages users."""
    tokens = call.request.texts("sessionIds")
    check_count(tokens)
    sessions = call.services.logins.sessions
    grants = await call.gate.grants(call.principal)
    out = []
    for token in tokens:
        try:
            entry = await sessions.peek(token)
            if entry.user_id != call.principal.user_id and not grants.has("ManageUsers"):
                raise SessionInvalid("Session expired or invalid")
            is_own = entry.user_id == call.principal.user_id
            await (sessions.log_out if is_own else sessions.revoke)(entry.session_id)
            out.append("<result><success>true</success></result>")
        except SessionInvalid as error:
            out.append(f"<result>{render_row_error(error)}<success>false</success></result>")
    return "".join(out)
