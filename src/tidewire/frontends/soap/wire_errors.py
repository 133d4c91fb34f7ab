"""SOAP answers to errors: one table over every leaf of the error tree.

Most errors have one of the API's exception codes and a typed detail element. Faults of SOAP itself are about the
message and have no detail. A fixed text replaces the message where clients compare it, or where the message could
reveal details of our disks.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidewire import errors
from tidewire.errors import PlatformError
from tidewire.frontends.soap.wire import CONTENT_TYPE, Dialect, render_elements, render_fault
from tidewire.transport.http import HttpResponse

_UNEXPECTED_FAULT = "UnexpectedErrorFault"
_PLACED_FAULTS = frozenset(
    {"MalformedQueryFault", "MalformedSearchFault", "InvalidFieldFault", "InvalidSObjectFault"}
)
"""Faults with a row and column of a query, -1 and -1 for an error outside a query."""
_ROW_CODES: dict[type[PlatformError], str] = {
    errors.AccessDenied: "INSUFFICIENT_ACCESS_OR_READONLY",
    errors.BodyMalformed: "INVALID_FIELD",
}
"""Codes that differ in the result of one record from those of a fault."""


@dataclass(frozen=True, slots=True)
class SoapError:
    """Exception code, fault type (empty for SOAP's own faults), the text if it is fixed, and HTTP status."""

    code: str
    fault_type: str = _UNEXPECTED_FAULT
    text: str = ""
    status: int = 500  # SOAP 1.1 over HTTP: a fault is always a 500


_UNEXPECTED = SoapError(
    "UNKNOWN_EXCEPTION", text="An unexpected error occurred. The server's log has the details."
)
_UNAVAILABLE = SoapError(
    "SERVER_UNAVAILABLE", text="The server is temporarily unavailable. Retry in a few seconds.", status=503
)
_CLIENT = SoapError("Client", "")
_SESSION_INVALID = SoapError(
    "INVALID_SESSION_ID",
    text="Invalid Session ID found in SessionHeader: Illegal Session. Session not found or expired",
)

SOAP_ERRORS: dict[type[PlatformError], SoapError] = {
    errors.SoqlSyntaxError: SoapError("MALFORMED_QUERY", "MalformedQueryFault"),
    errors.SearchMalformed: SoapError("MALFORMED_SEARCH", "MalformedSearchFault"),
    errors.FieldUnknown: SoapError("INVALID_FIELD", "InvalidFieldFault"),
    errors.ObjectUnknown: SoapError("INVALID_TYPE", "InvalidSObjectFault"),
    errors.OperationUnsupported: SoapError("INVALID_TYPE_FOR_OPERATION"),
    errors.FilterInvalid: SoapError("INVALID_FIELD", "InvalidFieldFault"),
    errors.OperatorInvalid: SoapError("INVALID_QUERY_FILTER_OPERATOR", "InvalidFieldFault"),
    errors.RequiredFieldMissing: SoapError("REQUIRED_FIELD_MISSING"),
    errors.TextTooLong: SoapError("STRING_TOO_LONG"),
    errors.NumberOutOfRange: SoapError("NUMBER_OUTSIDE_VALID_RANGE"),
    errors.PicklistValueInvalid: SoapError("INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST"),
    errors.FieldNotWriteable: SoapError("INVALID_FIELD_FOR_INSERT_UPDATE"),
    errors.ValueMalformed: SoapError("INVALID_TYPE_ON_FIELD_IN_RECORD"),
    errors.IdMalformed: SoapError("MALFORMED_ID", "InvalidIdFault"),
    errors.ReferenceMissing: SoapError("INVALID_CROSS_REFERENCE_KEY"),
    errors.ReferenceWrongType: SoapError("FIELD_INTEGRITY_EXCEPTION"),
    errors.ReferenceForbidden: SoapError("INSUFFICIENT_ACCESS_ON_CROSS_REFERENCE_ENTITY"),
    errors.FieldsInconsistent: SoapError("FIELD_INTEGRITY_EXCEPTION"),
    errors.DuplicateValue: SoapError("DUPLICATE_VALUE"),
    errors.EmailInvalid: SoapError("INVALID_EMAIL_ADDRESS"),
    errors.RecordNotFound: SoapError("INVALID_CROSS_REFERENCE_KEY", text="invalid cross reference id"),
    errors.RecordDeleted: SoapError("ENTITY_IS_DELETED", text="entity is deleted"),
    errors.DeleteRestricted: SoapError("DELETE_FAILED"),
    errors.UndeleteRefused: SoapError("UNDELETE_FAILED"),
    errors.ExternalIdAmbiguous: SoapError("DUPLICATE_EXTERNAL_ID"),
    errors.MergeRefused: SoapError("MERGE_FAILED"),
    errors.LeadConverted: SoapError("CANNOT_UPDATE_CONVERTED_LEAD"),
    errors.StatusRefused: SoapError("INVALID_STATUS"),
    errors.ActivationRefused: SoapError("FAILED_ACTIVATION"),
    errors.HierarchyCircular: SoapError("CIRCULAR_DEPENDENCY"),
    errors.OwnerInactive: SoapError("INACTIVE_OWNER_OR_USER"),
    errors.OwnerLacksRead: SoapError("TRANSFER_REQUIRES_READ"),
    errors.QueueUnfit: SoapError("INVALID_OPERATION"),
    errors.FeatureUnavailable: SoapError("FUNCTIONALITY_NOT_ENABLED"),
    errors.PasswordInvalid: SoapError("INVALID_NEW_PASSWORD", "InvalidNewPasswordFault"),
    errors.BodyMalformed: _CLIENT,
    errors.BodyTooLarge: SoapError("Client", "", status=413),
    errors.MethodNotAllowed: SoapError("Client", "", status=405),
    errors.ResourceUnknown: _CLIENT,
    errors.VersionUnsupported: SoapError(
        "UNSUPPORTED_API_VERSION", text="Invalid Api version specified on URL"
    ),
    errors.MediaTypeUnsupported: SoapError("Client", "", status=415),
    errors.PreconditionFailed: SoapError("UNKNOWN_EXCEPTION"),
    errors.AccessDenied: SoapError("INSUFFICIENT_ACCESS"),
    errors.LimitExceeded: SoapError("REQUEST_LIMIT_EXCEEDED"),
    errors.LocatorInvalid: SoapError("INVALID_QUERY_LOCATOR", "InvalidQueryLocatorFault"),
    errors.TooManyRecords: SoapError("EXCEEDED_ID_LIMIT"),
    errors.JobInvalid: SoapError("INVALID_OPERATION"),
    errors.JobStateInvalid: SoapError("INVALID_OPERATION"),
    errors.WindowInvalid: SoapError("INVALID_REPLICATION_DATE"),
    errors.PushTopicInvalid: SoapError("INVALID_FIELD", "InvalidFieldFault"),
    errors.DefinitionInvalid: SoapError("UNKNOWN_EXCEPTION"),
    errors.ChannelInvalid: SoapError("UNKNOWN_EXCEPTION"),
    errors.ChannelUnknown: SoapError("UNKNOWN_EXCEPTION"),
    errors.ChannelForbidden: SoapError("INSUFFICIENT_ACCESS"),
    errors.TopicUnknown: SoapError("INVALID_TYPE", "InvalidSObjectFault"),
    errors.SchemaUnknown: SoapError("UNKNOWN_EXCEPTION"),
    errors.PayloadInvalid: SoapError("LIMIT_EXCEEDED"),
    errors.ReplayIdInvalid: SoapError("UNKNOWN_EXCEPTION"),
    errors.ReplayIdExpired: SoapError("UNKNOWN_EXCEPTION"),
    errors.DemandInvalid: SoapError("UNKNOWN_EXCEPTION"),
    errors.ManagedUnknown: SoapError("UNKNOWN_EXCEPTION"),
    errors.ManagedStopped: SoapError("UNKNOWN_EXCEPTION"),
    errors.ManagedActive: SoapError("UNKNOWN_EXCEPTION"),
    errors.RequestRefused: SoapError("UNKNOWN_EXCEPTION", text="Another server refused the request."),
    errors.AuthHeaderInvalid: _SESSION_INVALID,
    errors.SessionInvalid: _SESSION_INVALID,
    errors.LoginFailed: SoapError(
        "INVALID_LOGIN",
        "LoginFault",
        "Invalid username, password, security token; or user locked out.",
    ),
    errors.GrantInvalid: SoapError("INVALID_LOGIN", "LoginFault"),
    errors.ClientUnknown: _SESSION_INVALID,
    errors.ProtocolViolation: _CLIENT,
    errors.DiskFull: _UNAVAILABLE,
    errors.WriteConflict: _UNAVAILABLE,
    errors.OutcomeUnknown: SoapError(
        "UNKNOWN_EXCEPTION", text="The outcome of the change is unknown. Read the record before you retry."
    ),
    errors.StoreClosed: _UNAVAILABLE,
    errors.StoreLocked: _UNAVAILABLE,
    errors.LogCorrupt: _UNEXPECTED,
    errors.SlowConsumer: _UNAVAILABLE,
    errors.ServerUnreachable: _UNAVAILABLE,
    errors.ConfigInvalid: _UNEXPECTED,
    errors.InternalError: _UNEXPECTED,
}


_OTHER_EXCEPTION_CODES = ("API_DISABLED_FOR_ORG", "INVALID_OLD_PASSWORD", "LOGIN_MUST_USE_SECURITY_TOKEN")
"""Codes that errors carry in their details."""
_OTHER_STATUS_CODES = ("ALL_OR_NONE_OPERATION_ROLLED_BACK", "MISSING_ARGUMENT", "OPERATION_ENQUEUED")


def exception_codes() -> list[str]:
    """Return every code that a fault of the partner and enterprise APIs may have."""
    own = {row.code for row in SOAP_ERRORS.values() if row.fault_type}
    return sorted(own.union(_OTHER_EXCEPTION_CODES))


def status_codes() -> list[str]:
    """Return every code that the result of one record may have."""
    return sorted({*exception_codes(), *_ROW_CODES.values(), *_OTHER_STATUS_CODES})


def render_error(dialect: Dialect, error: PlatformError) -> HttpResponse:
    """Render the answer to a call that failed."""
    row = SOAP_ERRORS.get(type(error), _UNEXPECTED)
    code, text = row.code, row.text or error.message
    own_code = error.details.get("exception_code")
    if isinstance(error, errors.LoginFailed) and isinstance(own_code, str):
        code, text = own_code, error.message
    if isinstance(error, errors.AccessDenied) and error.details.get("permission") == "ApiEnabled":
        code = "API_DISABLED_FOR_ORG"
    if isinstance(error, errors.BodyMalformed) and error.details.get("soap_fault"):
        code = str(error.details["soap_fault"])
    fault_type = row.fault_type
    if isinstance(error, errors.PasswordInvalid) and error.details.get("is_old"):
        code, fault_type = "INVALID_OLD_PASSWORD", "InvalidOldPasswordFault"
    code = _metadata_code(error) or code
    body = render_fault(dialect, code, text, fault_type, _place(row, error))
    headers: tuple[tuple[str, str], ...] = ()
    if isinstance(error, errors.MethodNotAllowed):
        allowed = error.details.get("allowed")
        headers = (("Allow", ", ".join(allowed) if isinstance(allowed, tuple) else "POST"),)
    elif row.status == 503:
        headers = (("Retry-After", "1"),)
    return HttpResponse(row.status, body, CONTENT_TYPE, headers)


def _metadata_code(error: PlatformError) -> str:
    """Return the status code that the error of a metadata component carries; empty for other errors."""
    code = error.details.get("status_code")
    return code if isinstance(error, errors.DefinitionInvalid) and isinstance(code, str) else ""


def _place(row: SoapError, error: PlatformError) -> tuple[int, int] | None:
    if row.fault_type not in _PLACED_FAULTS:
        return None
    line, column = error.details.get("row"), error.details.get("column")
    return (line, column) if isinstance(line, int) and isinstance(column, int) else (-1, -1)


def render_row_error(error: PlatformError) -> str:
    """Render the error of one record of a call that otherwise succeeded."""
    row = SOAP_ERRORS.get(type(error), _UNEXPECTED)
    code = _metadata_code(error) or _ROW_CODES.get(type(error), row.code)
    if isinstance(error, errors.IdMalformed) and error.details.get("value") == "":
        code = "MISSING_ARGUMENT"  # a missing id is not a malformed one
    named = error.details.get("fields")
    fields = [str(name) for name in named] if isinstance(named, list | tuple) else []
    return _render_row(code, row.text or error.message, fields)


def rolled_back_error() -> str:
    """Render the error of a valid record that was rolled back because another failed."""
    return _render_row(
        "ALL_OR_NONE_OPERATION_ROLLED_BACK",
        "Record rolled back because not all records were valid and the request was using AllOrNone header",
        [],
    )


def _render_row(code: str, message: str, fields: list[str]) -> str:
    pairs = [("fields", name) for name in fields]
    return f"<errors>{render_elements([*pairs, ('message', message), ('statusCode', code)])}</errors>"
