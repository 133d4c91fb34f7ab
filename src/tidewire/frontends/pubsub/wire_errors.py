"""Platform errors as gRPC failures: a status, a text, and trailers that programs can act on.

Clients branch on the trailer `error-code`. Where one code covers several of our errors (an unknown and an expired
replay id share one), the trailer `tidewire-code` distinguishes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidewire import errors as e
from tidewire.frontends.pubsub.wire import render_replay_id

_MAX_CAUSE = 300
_MAX_TEXT = 1000  # clients reject responses with large headers
CODE_PREFIX = "sfdc.platform.eventbus.grpc."

_REJECTED = ("INVALID_ARGUMENT", "topic.meta.permission")
_UNKNOWN_TOPIC = ("NOT_FOUND", "topic.meta.permission")
_UNAUTHENTICATED = ("UNAUTHENTICATED", "service.auth.error")
_UNAVAILABLE = ("UNAVAILABLE", "service.unavailable")
_INTERNAL = ("INTERNAL", "subscription.internal.error")
_EXHAUSTED = ("RESOURCE_EXHAUSTED", "service.protection.triggered")

STATUS_AND_CODE: dict[type[e.PlatformError], tuple[str, str]] = {
    # errors that a caller of this protocol can cause
    e.AuthHeaderInvalid: ("UNAUTHENTICATED", "service.auth.headers.invalid"),
    e.SessionInvalid: _UNAUTHENTICATED,
    e.LoginFailed: _UNAUTHENTICATED,
    e.GrantInvalid: _UNAUTHENTICATED,
    e.ClientUnknown: _UNAUTHENTICATED,
    e.ProtocolViolation: ("INVALID_ARGUMENT", "subscription.fetch.topic.mismatch"),
    e.AccessDenied: ("PERMISSION_DENIED", "topic.meta.permission"),
    # an event that only the server publishes
    e.OperationUnsupported: ("PERMISSION_DENIED", "topic.meta.permission"),
    e.ChannelForbidden: ("PERMISSION_DENIED", "subscription.topic.cannot.subscribe"),
    e.TopicUnknown: _UNKNOWN_TOPIC,
    e.ChannelUnknown: _UNKNOWN_TOPIC,
    e.ChannelInvalid: _UNKNOWN_TOPIC,
    e.SchemaUnknown: ("NOT_FOUND", "schema.meta.permission"),
    e.ReplayIdInvalid: ("INVALID_ARGUMENT", "subscription.fetch.replayid.corrupted"),
    e.ReplayIdExpired: ("INVALID_ARGUMENT", "subscription.fetch.replayid.corrupted"),
    e.ManagedUnknown: ("NOT_FOUND", "managed.subscription.developer.name.not.found"),
    e.ManagedStopped: ("FAILED_PRECONDITION", "managed.subscription.config.stopped"),
    e.ManagedActive: ("ALREADY_EXISTS", "managed.subscription.already.active"),
    e.DemandInvalid: ("INVALID_ARGUMENT", "subscription.fetch.requested.events.invalid"),
    e.BodyMalformed: _REJECTED,
    e.PayloadInvalid: ("INVALID_ARGUMENT", "schema.validation.failed"),
    e.BodyTooLarge: _EXHAUSTED,
    e.LimitExceeded: _EXHAUSTED,
    e.MethodNotAllowed: ("UNIMPLEMENTED", "subscription.topic.cannot.subscribe"),
    e.SlowConsumer: ("RESOURCE_EXHAUSTED", "subscription.fetch.overflow"),
    # our side
    e.StoreClosed: _UNAVAILABLE,
    e.DiskFull: _UNAVAILABLE,
    e.WriteConflict: _UNAVAILABLE,
    e.StoreLocked: _UNAVAILABLE,
    e.ServerUnreachable: _UNAVAILABLE,
    e.OutcomeUnknown: ("UNKNOWN", "service.unavailable"),
    e.LogCorrupt: _INTERNAL,
    e.InternalError: _INTERNAL,
    e.ConfigInvalid: _INTERNAL,
    # errors about records, queries and HTTP, which this protocol does not have
    **dict.fromkeys(
        (
            e.SoqlSyntaxError,
            e.SearchMalformed,
            e.FieldUnknown,
            e.ObjectUnknown,
            e.FilterInvalid,
            e.OperatorInvalid,
            e.RequiredFieldMissing,
            e.TextTooLong,
            e.NumberOutOfRange,
            e.PicklistValueInvalid,
            e.FieldNotWriteable,
            e.ValueMalformed,
            e.IdMalformed,
            e.ReferenceMissing,
            e.ReferenceWrongType,
            e.ReferenceForbidden,
            e.FieldsInconsistent,
            e.DuplicateValue,
            e.EmailInvalid,
            e.RecordNotFound,
            e.RecordDeleted,
            e.DeleteRestricted,
            e.UndeleteRefused,
            e.ExternalIdAmbiguous,
            e.MergeRefused,
            e.LeadConverted,
            e.OwnerInactive,
            e.OwnerLacksRead,
            e.QueueUnfit,
            e.FeatureUnavailable,
            e.PasswordInvalid,
            e.StatusRefused,
            e.ActivationRefused,
            e.HierarchyCircular,
            e.ResourceUnknown,
            e.VersionUnsupported,
            e.MediaTypeUnsupported,
            e.PreconditionFailed,
            e.LocatorInvalid,
            e.TooManyRecords,
            e.WindowInvalid,
            e.JobInvalid,
            e.JobStateInvalid,
            e.PushTopicInvalid,
            e.DefinitionInvalid,
            e.RequestRefused,
        ),
        _REJECTED,
    ),
}

# Which allocation of the org is used up, by the detail `allocation`; anything else is a limit of the server.
_LIMITS = {
    "clients": ("RESOURCE_EXHAUSTED", "concurrent.client.limit.exceeded"),
    "events": ("RESOURCE_EXHAUSTED", "subscription.limit.exceeded"),
}
_DELIVERY_LIMIT = "You have exceeded the event delivery limit for your org."

# Codes that a call sets in the error's detail `wire_code`, because only it knows which request was wrong.
STATUS_OF_CODE = {
    "topic.validation.empty": "INVALID_ARGUMENT",
    "schema.validation.failed": "INVALID_ARGUMENT",
    "subscription.fetch.replayid.validation.failed": "INVALID_ARGUMENT",
    "publish.event.count.invalid": "INVALID_ARGUMENT",
    "publish.topic.mismatch": "INVALID_ARGUMENT",
    "publish.topic.validation.empty": "INVALID_ARGUMENT",
    "publish.stream.sweeper.timeout": "DEADLINE_EXCEEDED",
    "publish.auth.refresh.invalid": "INVALID_ARGUMENT",
    "service.auth.refresh.invalid": "UNAUTHENTICATED",
    "service.tenant.license": "PERMISSION_DENIED",
    "service.unavailable": "UNAVAILABLE",
    "service.protection.triggered": "RESOURCE_EXHAUSTED",
    "topic.api.unavailable": "UNAVAILABLE",
    "schema.api.unavailable": "UNAVAILABLE",
    "subscription.fetch.replay.repeated": "INTERNAL",
    "managed.subscription.id.or.developer.name.empty": "INVALID_ARGUMENT",
    "managed.subscription.subscription.id.invalid": "INVALID_ARGUMENT",
    "managed.subscription.subscription.id.not.found": "NOT_FOUND",
    "managed.subscription.config.deleted": "NOT_FOUND",
    "managed.subscription.fetch.request.events.invalid": "INVALID_ARGUMENT",
    "managed.subscription.fetch.request.invalid": "INVALID_ARGUMENT",
    "managed.subscription.fetch.request.auth.request.restricted": "INVALID_ARGUMENT",
    "managed.subscription.commit.timeout": "DEADLINE_EXCEEDED",
}

_TEXTS = {
    "UNAVAILABLE": "The service is not available now. Try again later.",
    "UNKNOWN": "The service cannot tell whether this was done. Read before trying again.",
    "INTERNAL": "The service failed. Start the call again.",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as sent to the peer. `status` is the name of a gRPC status code."""

    status: str
    text: str
    trailers: tuple[tuple[str, str | bytes], ...]


def render_failure(error: e.PlatformError, *, rpc: str, rpc_id: str, tenant: str, topic: str) -> Failure:
    """Render the failure of one call. `tenant` is the org as clients name it; `topic` may be empty."""
    status, code = STATUS_AND_CODE.get(type(error), _INTERNAL)
    if isinstance(error, e.LimitExceeded):
        status, code = _LIMITS.get(str(error.details.get("allocation")), (status, code))
    own_code = error.details.get("wire_code")
    if isinstance(own_code, str):
        status, code = STATUS_OF_CODE[own_code], own_code
    if (status, code) == _UNKNOWN_TOPIC:
        text = (
            f"The topic information for org {tenant} and topic {topic[:_MAX_CAUSE]} not found. "
            "Ensure the topic name is correct and that the topic exists."
        )
    elif code == "subscription.limit.exceeded":
        text = _DELIVERY_LIMIT
    else:
        # Our own errors may mention paths and stores: log those, but do not send them.
        text = _TEXTS.get(status, error.message)
    trailers: list[tuple[str, str | bytes]] = [
        ("error-code", CODE_PREFIX + code),
        ("rpc-id", rpc_id),
        ("type", rpc),
        ("internal-cause", _cause(error)),
        ("tidewire-code", error.code),
    ]
    if isinstance(error, e.ReplayIdExpired) and "earliest" in error.details:
        earliest = int(str(error.details["earliest"]))
        trailers.append(("tidewire-earliest-replay-id", str(earliest)))
        trailers.append(("tidewire-earliest-replay-id-bin", render_replay_id(earliest)))
    return Failure(status, f"{text[:_MAX_TEXT]} rpcId: {rpc_id}", tuple(trailers))


def _cause(error: e.PlatformError) -> str:
    """Render the error on one line of ASCII; of internal errors only the class name."""
    name = type(error).__name__
    if isinstance(error, e.StorageError | e.ServerUnreachable | e.InternalError | e.ConfigInvalid):
        return name
    text = " ".join(error.message.split())[:_MAX_CAUSE]
    return f"{name}: {text}".encode("ascii", "replace").decode()
