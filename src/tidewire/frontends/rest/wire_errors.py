"""REST answers to errors: one table over every leaf of the error tree.

The answer is an array of `{message, errorCode}`, with `fields` only where the original platform has it: on errors of
saving a record, not on errors of parsing or finding. A fixed text replaces the message where clients compare it, or
where the message could reveal details of our disks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from tidewire import errors
from tidewire.errors import PlatformError
from tidewire.frontends.rest.wire import NO_STORE, render_json
from tidewire.transport.http import HttpRequest, HttpResponse


class Fields(Enum):
    """When an error carries the list of fields at fault."""

    NEVER = "never"
    GIVEN = "when the error names them"
    ALWAYS = "always, empty if none is named"
    EMPTY = "always empty"


@dataclass(frozen=True, slots=True)
class RestError:
    """The HTTP status, the errorCode, the rule for `fields`, and the text if it is not the error's own."""

    status: int
    error_code: str
    fields: Fields = Fields.NEVER
    text: str = ""


_NOT_THERE = "The requested resource does not exist"
_UNEXPECTED = "An unexpected error occurred. The server's log has the details."
_UNAVAILABLE = "The server is temporarily unavailable. Retry in a few seconds."

REST_ERRORS: dict[type[PlatformError], RestError] = {
    errors.SoqlSyntaxError: RestError(400, "MALFORMED_QUERY"),
    errors.SearchMalformed: RestError(400, "MALFORMED_SEARCH"),
    errors.FieldUnknown: RestError(400, "INVALID_FIELD"),
    errors.ObjectUnknown: RestError(400, "INVALID_TYPE"),
    errors.OperationUnsupported: RestError(400, "INVALID_TYPE_FOR_OPERATION"),
    errors.FilterInvalid: RestError(400, "INVALID_FIELD"),
    errors.OperatorInvalid: RestError(400, "INVALID_QUERY_FILTER_OPERATOR"),
    errors.RequiredFieldMissing: RestError(400, "REQUIRED_FIELD_MISSING", Fields.ALWAYS),
    errors.TextTooLong: RestError(400, "STRING_TOO_LONG", Fields.ALWAYS),
    errors.NumberOutOfRange: RestError(400, "NUMBER_OUTSIDE_VALID_RANGE", Fields.GIVEN),
    errors.PicklistValueInvalid: RestError(400, "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST", Fields.ALWAYS),
    errors.FieldNotWriteable: RestError(400, "INVALID_FIELD_FOR_INSERT_UPDATE", Fields.ALWAYS),
    errors.ValueMalformed: RestError(400, "JSON_PARSER_ERROR"),
    errors.IdMalformed: RestError(400, "MALFORMED_ID", Fields.GIVEN),
    errors.ReferenceMissing: RestError(400, "INVALID_CROSS_REFERENCE_KEY", Fields.ALWAYS),
    errors.ReferenceWrongType: RestError(400, "FIELD_INTEGRITY_EXCEPTION", Fields.ALWAYS),
    errors.ReferenceForbidden: RestError(400, "INSUFFICIENT_ACCESS_ON_CROSS_REFERENCE_ENTITY", Fields.EMPTY),
    errors.FieldsInconsistent: RestError(400, "FIELD_INTEGRITY_EXCEPTION", Fields.ALWAYS),
    errors.DuplicateValue: RestError(400, "DUPLICATE_VALUE", Fields.EMPTY),
    errors.EmailInvalid: RestError(400, "INVALID_EMAIL_ADDRESS", Fields.ALWAYS),
    errors.RecordNotFound: RestError(404, "NOT_FOUND", text=_NOT_THERE),
    errors.RecordDeleted: RestError(404, "ENTITY_IS_DELETED", Fields.EMPTY, "entity is deleted"),
    errors.DeleteRestricted: RestError(400, "DELETE_FAILED", Fields.EMPTY),
    errors.UndeleteRefused: RestError(400, "UNDELETE_FAILED", Fields.EMPTY),
    errors.ExternalIdAmbiguous: RestError(400, "DUPLICATE_EXTERNAL_ID", Fields.ALWAYS),
    errors.MergeRefused: RestError(400, "MERGE_FAILED", Fields.EMPTY),
    errors.LeadConverted: RestError(400, "CANNOT_UPDATE_CONVERTED_LEAD", Fields.EMPTY),
    errors.StatusRefused: RestError(400, "INVALID_STATUS", Fields.ALWAYS),
    errors.ActivationRefused: RestError(400, "FAILED_ACTIVATION", Fields.ALWAYS),
    errors.HierarchyCircular: RestError(400, "CIRCULAR_DEPENDENCY", Fields.ALWAYS),
    errors.OwnerInactive: RestError(400, "INACTIVE_OWNER_OR_USER", Fields.ALWAYS),
    errors.OwnerLacksRead: RestError(400, "TRANSFER_REQUIRES_READ", Fields.EMPTY),
    errors.QueueUnfit: RestError(400, "INVALID_OPERATION", Fields.EMPTY),
    errors.FeatureUnavailable: RestError(403, "FUNCTIONALITY_NOT_ENABLED"),
    errors.PasswordInvalid: RestError(400, "INVALID_NEW_PASSWORD", Fields.EMPTY),
    errors.BodyMalformed: RestError(400, "JSON_PARSER_ERROR"),
    errors.BodyTooLarge: RestError(413, "REQUEST_ENTITY_TOO_LARGE"),
    errors.MethodNotAllowed: RestError(405, "METHOD_NOT_ALLOWED"),
    errors.PreconditionFailed: RestError(412, "PRECONDITION_FAILED"),
    errors.ResourceUnknown: RestError(404, "NOT_FOUND", text=_NOT_THERE),
    errors.VersionUnsupported: RestError(404, "NOT_FOUND", text=_NOT_THERE),
    errors.MediaTypeUnsupported: RestError(415, "UNSUPPORTED_MEDIA_TYPE"),
    errors.AccessDenied: RestError(403, "INSUFFICIENT_ACCESS_OR_READONLY", Fields.EMPTY),
    errors.LimitExceeded: RestError(403, "REQUEST_LIMIT_EXCEEDED"),
    errors.LocatorInvalid: RestError(400, "INVALID_QUERY_LOCATOR"),
    errors.TooManyRecords: RestError(400, "EXCEEDED_ID_LIMIT"),
    errors.JobInvalid: RestError(400, "INVALIDJOB"),
    errors.JobStateInvalid: RestError(400, "INVALIDJOBSTATE"),
    errors.WindowInvalid: RestError(400, "INVALID_REPLICATION_DATE"),
    errors.PushTopicInvalid: RestError(400, "INVALID_FIELD", Fields.GIVEN),
    errors.DefinitionInvalid: RestError(400, "INVALID_DEFINITION"),
    errors.ChannelInvalid: RestError(400, "INVALID_CHANNEL"),
    errors.ChannelUnknown: RestError(404, "NOT_FOUND"),
    errors.ChannelForbidden: RestError(403, "INSUFFICIENT_ACCESS"),
    errors.TopicUnknown: RestError(404, "NOT_FOUND", text=_NOT_THERE),
    errors.SchemaUnknown: RestError(404, "NOT_FOUND", text=_NOT_THERE),
    # Payloads are encoded by us here, so the only possible fault is their size.
    errors.PayloadInvalid: RestError(400, "LIMIT_EXCEEDED"),
    errors.ReplayIdInvalid: RestError(400, "INVALID_REPLAY_ID"),
    errors.ReplayIdExpired: RestError(400, "REPLAY_ID_EXPIRED"),
    errors.DemandInvalid: RestError(400, "INVALID_REQUEST"),
    errors.ManagedUnknown: RestError(404, "NOT_FOUND"),
    errors.ManagedStopped: RestError(400, "INVALID_REQUEST"),
    errors.ManagedActive: RestError(400, "INVALID_REQUEST"),
    errors.RequestRefused: RestError(400, "UPSTREAM_REFUSED", text="Another server refused the request."),
    errors.AuthHeaderInvalid: RestError(401, "INVALID_AUTH_HEADER", text="INVALID_HEADER_TYPE"),
    errors.SessionInvalid: RestError(401, "INVALID_SESSION_ID", text="Session expired or invalid"),
    errors.LoginFailed: RestError(401, "INVALID_LOGIN"),
    errors.GrantInvalid: RestError(400, "INVALID_GRANT"),
    errors.ClientUnknown: RestError(401, "INVALID_SESSION_ID", text="Session expired or invalid"),
    errors.ProtocolViolation: RestError(400, "INVALID_REQUEST"),
    errors.DiskFull: RestError(503, "SERVER_UNAVAILABLE", text=_UNAVAILABLE),
    errors.WriteConflict: RestError(503, "SERVER_UNAVAILABLE", text=_UNAVAILABLE),
    errors.OutcomeUnknown: RestError(
        500,
        "UNKNOWN_EXCEPTION",
        text="The outcome of the change is unknown. Read the record before you retry.",
    ),
    errors.StoreClosed: RestError(503, "SERVER_UNAVAILABLE", text=_UNAVAILABLE),
    errors.StoreLocked: RestError(503, "SERVER_UNAVAILABLE", text=_UNAVAILABLE),
    errors.LogCorrupt: RestError(500, "UNKNOWN_EXCEPTION", text=_UNEXPECTED),
    errors.SlowConsumer: RestError(503, "SERVER_UNAVAILABLE", text=_UNAVAILABLE),
    errors.ServerUnreachable: RestError(503, "SERVER_UNAVAILABLE", text=_UNAVAILABLE),
    errors.ConfigInvalid: RestError(500, "UNKNOWN_EXCEPTION", text=_UNEXPECTED),
    errors.InternalError: RestError(500, "UNKNOWN_EXCEPTION", text=_UNEXPECTED),
}

# A missing record is an unknown path for a read, but a bad reference for a write.
_ON_WRITE: dict[type[PlatformError], RestError] = {
    errors.RecordNotFound: RestError(
        404, "INVALID_CROSS_REFERENCE_KEY", Fields.EMPTY, "invalid cross reference id"
    ),
}
# Clients refresh their token on any other 401, which would not help here.
_WRONG_SCOPE = RestError(
    401, "INVALID_SESSION_ID", text="This session is not valid for use with the REST API"
)
_API_DISABLED = RestError(403, "API_DISABLED_FOR_ORG")
_REPEATED_KEY = RestError(400, "DUPLICATE_VALUE", Fields.ALWAYS)
_NO_SUCH_KEY = RestError(404, "NOT_FOUND")
_READING = frozenset({"GET", "HEAD"})


def rest_error(error: PlatformError, method: str = "GET") -> RestError:
    """Return the table's row for an error of a request with this method."""
    if method not in _READING and type(error) in _ON_WRITE:
        return _ON_WRITE[type(error)]
    if isinstance(error, errors.ResourceUnknown) and "external_id" in error.details:
        return _NO_SUCH_KEY
    if isinstance(error, errors.DuplicateValue) and "external_id" in error.details:
        return _REPEATED_KEY
    if isinstance(error, errors.AccessDenied) and error.details.get("permission") == "ApiEnabled":
        return _API_DISABLED
    if isinstance(error, errors.SessionInvalid) and "needed_scope" in error.details:
        return _WRONG_SCOPE
    return REST_ERRORS.get(type(error), REST_ERRORS[errors.InternalError])


def render_error_entry(error: PlatformError, method: str = "GET") -> dict[str, object]:
    """Render one entry of the error array."""
    row = rest_error(error, method)
    code = error.details.get("status_code")  # metadata components and some limits have their own code
    has_own = isinstance(error, errors.DefinitionInvalid | errors.LimitExceeded) and isinstance(code, str)
    body: dict[str, object] = {
        "message": row.text or error.message,
        "errorCode": code if has_own else row.error_code,
    }
    named = error.details.get("fields")
    names = [str(name) for name in named] if isinstance(named, (list, tuple, set, frozenset)) else []
    if row.fields is Fields.EMPTY:
        body["fields"] = []
    elif row.fields is Fields.ALWAYS or (row.fields is Fields.GIVEN and names):
        body["fields"] = names
    return body


def render_error(request: HttpRequest, error: PlatformError) -> HttpResponse:
    """Render the answer to a request that failed."""
    row = rest_error(error, request.method)
    headers = [NO_STORE]
    if isinstance(error, errors.MethodNotAllowed):
        allowed = error.details.get("allowed")
        headers.append(("Allow", ", ".join(allowed) if isinstance(allowed, (list, tuple)) else ""))
    if row.status == 401:
        headers.append(("WWW-Authenticate", "Token"))
    if row.status == 503:
        headers.append(("Retry-After", "1"))
    entry = render_error_entry(error, request.method)
    if isinstance(error, errors.ValueMalformed) and (place := _place_in_body(request.body, error)):
        entry["message"] = f"{entry['message']} at {place}"
    return render_json(request, row.status, [entry], tuple(headers))


def _place_in_body(body: bytes, error: PlatformError) -> str:
    """Return the line and column of the value at fault in a JSON body; empty if unknown."""
    named = error.details.get("fields")
    if not isinstance(named, (list, tuple)) or len(named) != 1:
        return ""
    key = re.escape(str(named[0]).encode())
    found = re.search(rb'"' + key + rb'"\s*:\s*', body, re.IGNORECASE)
    if found is None:
        return ""
    before = body[: found.end()].decode("utf-8", "replace")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return f"[line:{line}, column:{column}]"


def render_protocol_error(request: HttpRequest, status: int, error_code: str, message: str) -> HttpResponse:
    """Render an error that only this protocol has, such as an invalid query parameter."""
    return render_json(request, status, [{"message": message, "errorCode": error_code}], (NO_STORE,))
