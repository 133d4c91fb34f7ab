"""The whole error tree. Every failure a caller can meet is one of these classes.

    PlatformError
      RequestError            the caller's fault; the same request will fail again
        SoqlSyntaxError SearchMalformed FieldUnknown ObjectUnknown OperationUnsupported FilterInvalid
        OperatorInvalid
        RequiredFieldMissing TextTooLong NumberOutOfRange PicklistValueInvalid FieldNotWriteable
        ValueMalformed IdMalformed ReferenceMissing ReferenceWrongType ReferenceForbidden DuplicateValue
        EmailInvalid
        RecordNotFound RecordDeleted DeleteRestricted UndeleteRefused ExternalIdAmbiguous MergeRefused
        LeadConverted FieldsInconsistent StatusRefused ActivationRefused HierarchyCircular
        OwnerInactive OwnerLacksRead QueueUnfit FeatureUnavailable
        PasswordInvalid
        BodyMalformed BodyTooLarge MethodNotAllowed ResourceUnknown VersionUnsupported MediaTypeUnsupported
        PreconditionFailed
        AccessDenied LimitExceeded LocatorInvalid TooManyRecords WindowInvalid JobInvalid JobStateInvalid
        PushTopicInvalid DefinitionInvalid
        ChannelInvalid ChannelUnknown ChannelForbidden TopicUnknown SchemaUnknown PayloadInvalid
        ReplayIdInvalid ReplayIdExpired DemandInvalid RequestRefused
        ManagedUnknown ManagedStopped ManagedActive
      SessionError            who is calling, or the protocol state, is in question
        AuthHeaderInvalid SessionInvalid LoginFailed GrantInvalid ClientUnknown ProtocolViolation
      StorageError            our disk or database; `retryable` says whether trying again may help
        DiskFull WriteConflict OutcomeUnknown StoreClosed StoreLocked LogCorrupt
      DeliveryError
        SlowConsumer
      ServerUnreachable       a server that we are a client of does not answer, or stops half-way
      ConfigInvalid           the operator's fault, at start-up
      InternalError           ours: a bug

`code` is a stable string, never reused, and listed in docs/errors.md. `retryable` is decided here, where the
cause is known; front ends translate it (Bayeux advice, gRPC status) but never guess it. `details` carries data for
programs; the message is for a person.
"""

from __future__ import annotations

from typing import ClassVar


class PlatformError(Exception):
    """Root of the tree. Raise a leaf, never this."""

    code: ClassVar[str] = "platform"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class RequestError(PlatformError):
    """The request is wrong; repeating it will not help."""


class SoqlSyntaxError(RequestError):
    """A SOQL text that does not parse. Details: `row`, `column` (1-based), `query`."""

    code = "soql_syntax"


class SearchMalformed(RequestError):
    """A SOSL text that does not parse."""

    code = "search_malformed"


class FieldUnknown(RequestError):
    """A field that the object does not have, or that the caller may not see. Details: `field`, `entity`."""

    code = "field_unknown"


class ObjectUnknown(RequestError):
    """An object type that does not exist or that the caller may not see. Details: `entity`."""

    code = "object_unknown"


class OperationUnsupported(RequestError):
    """Something that cannot be done with this type, such as querying a platform event. Details: `entity`."""

    code = "operation_unsupported"


class FilterInvalid(RequestError):
    """A filter whose literal does not fit the field's type, or on a field it may not use. Details: `field`."""

    code = "filter_invalid"


class OperatorInvalid(RequestError):
    """A filter operator that the field's type does not know. Details: `field`."""

    code = "operator_invalid"


class RequiredFieldMissing(RequestError):
    """Required fields are absent or null. Details: `fields`."""

    code = "required_field_missing"


class TextTooLong(RequestError):
    """A text value is longer than its field. Details: `fields`, `max_length`."""

    code = "text_too_long"


class NumberOutOfRange(RequestError):
    """A number has more digits than its field, or a clause's number is out of range. Details: `fields`."""

    code = "number_out_of_range"


class PicklistValueInvalid(RequestError):
    """A value outside a restricted picklist. Details: `fields`."""

    code = "picklist_value_invalid"


class FieldNotWriteable(RequestError):
    """A field that cannot be set by this call or by this user. Details: `fields`."""

    code = "field_not_writeable"


class ValueMalformed(RequestError):
    """A value of the wrong JSON type or text form for its field. Details: `fields`."""

    code = "value_malformed"


class IdMalformed(RequestError):
    """Text where a record id should be. Details: `value`, perhaps `fields`."""

    code = "id_malformed"


class ReferenceMissing(RequestError):
    """A lookup that points at no record. Details: `fields`."""

    code = "reference_missing"


class ReferenceWrongType(RequestError):
    """A lookup that points at a record of another object. Details: `fields`."""

    code = "reference_wrong_type"


class ReferenceForbidden(RequestError):
    """A lookup that points at a record the user may not use so. Details: `fields`, `entity`."""

    code = "reference_forbidden"


class FieldsInconsistent(RequestError):
    """Values that are each well-formed but cannot stand together. Details: `fields`."""

    code = "fields_inconsistent"


class DuplicateValue(RequestError):
    """A unique field would hold one value twice. Details: `fields`, `record_id`."""

    code = "duplicate_value"


class EmailInvalid(RequestError):
    """Text that is not an email address. Details: `fields`."""

    code = "email_invalid"


class RecordNotFound(RequestError):
    """No record has this id. Details: `record_id`."""

    code = "record_not_found"


class RecordDeleted(RequestError):
    """The record is in the recycle bin. Details: `record_id`."""

    code = "record_deleted"


class DeleteRestricted(RequestError):
    """A record that others refer to through a lookup that forbids its delete. Details: `record_id`, `entity`."""

    code = "delete_restricted"


class UndeleteRefused(RequestError):
    """A record that is not in the recycle bin, or whose master still is. Details: `record_id`."""

    code = "undelete_refused"


class ExternalIdAmbiguous(RequestError):
    """An external id that several records hold. Details: `fields`, `entity`, `record_ids`."""

    code = "external_id_ambiguous"


class MergeRefused(RequestError):
    """Records that cannot become one. Details: `record_id`, perhaps `entity`."""

    code = "merge_refused"


class LeadConverted(RequestError):
    """A lead that was converted and can no longer be changed. Details: `record_id`."""

    code = "lead_converted"


class StatusRefused(RequestError):
    """A status that is not one of those the operation needs. Details: `fields`."""

    code = "status_refused"


class ActivationRefused(RequestError):
    """A contract or order that cannot be activated, or taken back, as it stands. Details: `fields`."""

    code = "activation_refused"


class HierarchyCircular(RequestError):
    """A parent that is the record itself or stands below it. Details: `fields`."""

    code = "hierarchy_circular"


class OwnerInactive(RequestError):
    """A record given to a user who is not active. Details: `fields`, `entity`."""

    code = "owner_inactive"


class OwnerLacksRead(RequestError):
    """A record given to a user who may not read records of its object. Details: `fields`, `entity`."""

    code = "owner_lacks_read"


class QueueUnfit(RequestError):
    """A record given to a group that is no queue for records of its object. Details: `fields`, `entity`."""

    code = "queue_unfit"


class FeatureUnavailable(RequestError):
    """A call of the API that this server does not answer. Details: `feature`."""

    code = "feature_unavailable"


class PasswordInvalid(RequestError):
    """A new password that the rules refuse, or an old one that is not the user's (`is_old` among the details)."""

    code = "password_invalid"


class BodyMalformed(RequestError):
    """A request body that cannot be parsed."""

    code = "body_malformed"


class BodyTooLarge(RequestError):
    """A request body over the limit. Details: `limit_bytes`."""

    code = "body_too_large"


class MethodNotAllowed(RequestError):
    """A method that the resource does not have. Details: `allowed`."""

    code = "method_not_allowed"


class ResourceUnknown(RequestError):
    """A path that names nothing."""

    code = "resource_unknown"


class VersionUnsupported(RequestError):
    """An API version outside the supported range. Details: `version`."""

    code = "version_unsupported"


class MediaTypeUnsupported(RequestError):
    """A content type that the resource does not read."""

    code = "media_type_unsupported"


class PreconditionFailed(RequestError):
    """A record or resource that is not in the state the caller made a condition of."""

    code = "precondition_failed"


class AccessDenied(RequestError):
    """The user lacks the permission for this. Details: what was asked, never what exists."""

    code = "access_denied"


class LimitExceeded(RequestError):
    """An allocation is used up. Details: `limit`, and `allocation` for those of streaming."""

    code = "limit_exceeded"
    retryable = True


class LocatorInvalid(RequestError):
    """A query locator that was never given out, has expired, or belongs to another session."""

    code = "locator_invalid"


class TooManyRecords(RequestError):
    """More records than one call may carry or answer. Details: `limit`."""

    code = "too_many_records"


class WindowInvalid(RequestError):
    """A time window that deleted or updated records cannot be told for."""

    code = "window_invalid"


class JobInvalid(RequestError):
    """A bulk job or batch that cannot be as it is asked for. Details: `reason`, a word of the Bulk API."""

    code = "job_invalid"


class JobStateInvalid(RequestError):
    """Something that a bulk job does not take in its state. Details: `job_id`."""

    code = "job_state_invalid"


class PushTopicInvalid(RequestError):
    """A push topic whose query or settings the rules refuse. Details: `fields`."""

    code = "push_topic_invalid"


class DefinitionInvalid(RequestError):
    """An org definition that cannot be applied. Details: `path` into the document."""

    code = "definition_invalid"


class ChannelInvalid(RequestError):
    """A channel name of an impossible form."""

    code = "channel_invalid"


class ChannelUnknown(RequestError):
    """A channel that does not exist for this user. Details: `channel`."""

    code = "channel_unknown"


class ChannelForbidden(RequestError):
    """A channel the user may know of but not read. Details: `channel`."""

    code = "channel_forbidden"


class TopicUnknown(RequestError):
    """An event type that does not exist for this user. Details: `topic`."""

    code = "topic_unknown"


class SchemaUnknown(RequestError):
    """A schema id that no event ever had. Details: `schema_id`."""

    code = "schema_unknown"


class PayloadInvalid(RequestError):
    """Event bytes that do not decode by their schema."""

    code = "payload_invalid"


class ReplayIdInvalid(RequestError):
    """A replay id that this log never gave out. Details: `replay_id`."""

    code = "replay_id_invalid"


class ReplayIdExpired(RequestError):
    """A replay id older than what the log keeps. Details: `replay_id`, `earliest`."""

    code = "replay_id_expired"


class DemandInvalid(RequestError):
    """A request for zero or fewer events."""

    code = "demand_invalid"


class ManagedUnknown(RequestError):
    """A managed subscription that does not exist. Details: `name`."""

    code = "managed_unknown"


class ManagedStopped(RequestError):
    """A managed subscription whose state is STOP. Details: `name`."""

    code = "managed_stopped"


class ManagedActive(RequestError):
    """A managed subscription that another client reads now. Details: `name`."""

    code = "managed_active"


class RequestRefused(RequestError):
    """A server that we are a client of said no. Details: `status`, `error_code`."""

    code = "request_refused"


class SessionError(PlatformError):
    """The caller's identity or protocol state is in question; signing in or shaking hands again may help."""


class AuthHeaderInvalid(SessionError):
    """No usable credentials came with the request."""

    code = "auth_header_invalid"


class SessionInvalid(SessionError):
    """The session is unknown, expired or revoked."""

    code = "session_invalid"


class LoginFailed(SessionError):
    """Wrong user, password or token; deliberately silent about which."""

    code = "login_failed"


class GrantInvalid(SessionError):
    """An OAuth request that is refused. Details: `oauth_error`."""

    code = "grant_invalid"


class ClientUnknown(SessionError):
    """A protocol session id that names no living session."""

    code = "client_unknown"


class ProtocolViolation(SessionError):
    """The peer broke the protocol's order or form."""

    code = "protocol_violation"


class StorageError(PlatformError):
    """The store could not do its work; the caller did nothing wrong."""


class DiskFull(StorageError):
    """No room on the disk. Nothing was acknowledged."""

    code = "disk_full"
    retryable = True


class WriteConflict(StorageError):
    """The transaction was rolled back through no fault of its own."""

    code = "write_conflict"
    retryable = True


class OutcomeUnknown(StorageError):
    """Commit failed in a way that leaves open whether it happened; read before trying again."""

    code = "outcome_unknown"


class StoreClosed(StorageError):
    """The server is stopping or its writer has stopped."""

    code = "store_closed"
    retryable = True


class StoreLocked(StorageError):
    """Another process holds this data directory or database schema. Details: `path`."""

    code = "store_locked"


class LogCorrupt(StorageError):
    """Stored bytes do not make sense; the stage stops rather than skip. Details: `position`."""

    code = "log_corrupt"


class DeliveryError(PlatformError):
    """A subscriber's stream cannot go on."""


class SlowConsumer(DeliveryError):
    """The subscriber stopped reading for longer than its limit."""

    code = "slow_consumer"
    retryable = True


class ServerUnreachable(PlatformError):
    """A server that we call does not answer, or stops half-way through an answer. Details: perhaps `address`."""

    code = "server_unreachable"
    retryable = True

    @classmethod
    def at(cls, address: str, reason: object, **details: object) -> ServerUnreachable:
        """Name the address, the reason, and what to check."""
        text = f"cannot reach {address}: {reason}; check the address and that the server is running"
        return cls(text, address=address, **details)


class ConfigInvalid(PlatformError):
    """A setting the server cannot start with. Details: `setting`."""

    code = "config_invalid"


class InternalError(PlatformError):
    """A bug of ours. The peer learns nothing but this word; the log has the stack."""

    code = "internal"


def leaf_errors() -> list[type[PlatformError]]:
    """Every concrete class of the tree, for tests that must not miss one."""
    leaves: list[type[PlatformError]] = []
    pending: list[type[PlatformError]] = [PlatformError]
    while pending:
        cls = pending.pop()
        children = cls.__subclasses__()
        if children:
            pending.extend(children)
        else:
            leaves.append(cls)
    return sorted(leaves, key=lambda c: c.code)
