"""The whole error tree. Every failure that a caller can meet is one of these classes.

    PlatformError
      RequestError            the request is wrong; the same request will fail again
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
      SessionError            the login, token or protocol session is missing or invalid
        AuthHeaderInvalid SessionInvalid LoginFailed GrantInvalid ClientUnknown ProtocolViolation
      StorageError            the server's disk or database failed; `retryable` says whether a retry may help
        DiskFull WriteConflict OutcomeUnknown StoreClosed StoreLocked LogCorrupt
      DeliveryError
        SlowConsumer
      ServerUnreachable       a server that we are a client of does not answer, or stops half-way
      ConfigInvalid           a setting is wrong, found at start-up
      InternalError           a bug in Tidewire

`code` is a stable string, never reused, and listed in docs/errors.md. `retryable` is decided here, where the cause is
known; front ends translate it (Bayeux advice, gRPC status) but never guess it. `details` carries data for programs; the
message is for people: what happened, with which value, and what to do.
"""

from __future__ import annotations

from typing import ClassVar


class PlatformError(Exception):
    """The root of the tree. Raise a leaf class, never this one."""

    code: ClassVar[str] = "platform"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class RequestError(PlatformError):
    """The request is wrong; a retry will not help."""


class SoqlSyntaxError(RequestError):
    """The SOQL query does not parse. Details: `row`, `column` (1-based), `query`."""

    code = "soql_syntax"


class SearchMalformed(RequestError):
    """The SOSL search does not parse."""

    code = "search_malformed"


class FieldUnknown(RequestError):
    """The object has no such field, or the caller may not see it. Details: `field`, `entity`."""

    code = "field_unknown"


class ObjectUnknown(RequestError):
    """The object does not exist, or the caller may not see it. Details: `entity`."""

    code = "object_unknown"


class OperationUnsupported(RequestError):
    """The object does not support the operation, for instance querying a platform event. Details: `entity`."""

    code = "operation_unsupported"


class FilterInvalid(RequestError):
    """A filter's literal does not match the field's type, or the field cannot be filtered. Details: `field`."""

    code = "filter_invalid"


class OperatorInvalid(RequestError):
    """The field's type does not support the filter operator. Details: `field`."""

    code = "operator_invalid"


class RequiredFieldMissing(RequestError):
    """Required fields are missing or null. Details: `fields`."""

    code = "required_field_missing"


class TextTooLong(RequestError):
    """A text value is longer than its field. Details: `fields`, `max_length`."""

    code = "text_too_long"


class NumberOutOfRange(RequestError):
    """A number has more digits than its field, or a clause's number is out of range. Details: `fields`."""

    code = "number_out_of_range"


class PicklistValueInvalid(RequestError):
    """The value is not in a restricted picklist. Details: `fields`."""

    code = "picklist_value_invalid"


class FieldNotWriteable(RequestError):
    """This call or this user cannot set the field. Details: `fields`."""

    code = "field_not_writeable"


class ValueMalformed(RequestError):
    """The value has the wrong JSON type or format for its field. Details: `fields`."""

    code = "value_malformed"


class IdMalformed(RequestError):
    """The text is not a valid record id. Details: `value`, perhaps `fields`."""

    code = "id_malformed"


class ReferenceMissing(RequestError):
    """The lookup points at a record that does not exist. Details: `fields`."""

    code = "reference_missing"


class ReferenceWrongType(RequestError):
    """The lookup points at a record of the wrong object. Details: `fields`."""

    code = "reference_wrong_type"


class ReferenceForbidden(RequestError):
    """The user lacks the access that pointing a lookup at this record needs. Details: `fields`, `entity`."""

    code = "reference_forbidden"


class FieldsInconsistent(RequestError):
    """The values are valid one by one but contradict each other. Details: `fields`."""

    code = "fields_inconsistent"


class DuplicateValue(RequestError):
    """Another record already has this value of a unique field. Details: `fields`, `record_id`."""

    code = "duplicate_value"


class EmailInvalid(RequestError):
    """The text is not a valid email address. Details: `fields`."""

    code = "email_invalid"


class RecordNotFound(RequestError):
    """No record has this id. Details: `record_id`."""

    code = "record_not_found"


class RecordDeleted(RequestError):
    """The record is in the recycle bin. Details: `record_id`."""

    code = "record_deleted"


class DeleteRestricted(RequestError):
    """Other records refer to the record through a lookup that prevents its delete. Details: `record_id`, `entity`."""

    code = "delete_restricted"


class UndeleteRefused(RequestError):
    """The record is not in the recycle bin, or its master still is. Details: `record_id`."""

    code = "undelete_refused"


class ExternalIdAmbiguous(RequestError):
    """Several records have this external id. Details: `fields`, `entity`, `record_ids`."""

    code = "external_id_ambiguous"


class MergeRefused(RequestError):
    """The records cannot be merged. Details: `record_id`, perhaps `entity`."""

    code = "merge_refused"


class LeadConverted(RequestError):
    """The lead was converted and can no longer be changed. Details: `record_id`."""

    code = "lead_converted"


class StatusRefused(RequestError):
    """The operation does not accept this status. Details: `fields`."""

    code = "status_refused"


class ActivationRefused(RequestError):
    """The contract or order cannot be activated or deactivated in its current state. Details: `fields`."""

    code = "activation_refused"


class HierarchyCircular(RequestError):
    """The parent is the record itself or one of its descendants. Details: `fields`."""

    code = "hierarchy_circular"


class OwnerInactive(RequestError):
    """The new owner is an inactive user. Details: `fields`, `entity`."""

    code = "owner_inactive"


class OwnerLacksRead(RequestError):
    """The new owner may not read records of the object. Details: `fields`, `entity`."""

    code = "owner_lacks_read"


class QueueUnfit(RequestError):
    """The new owner is a group that is not a queue for the object. Details: `fields`, `entity`."""

    code = "queue_unfit"


class FeatureUnavailable(RequestError):
    """This server does not implement the API call. Details: `feature`."""

    code = "feature_unavailable"


class PasswordInvalid(RequestError):
    """The new password breaks the rules, or the old one is wrong (detail `is_old`)."""

    code = "password_invalid"


class BodyMalformed(RequestError):
    """The request body cannot be parsed."""

    code = "body_malformed"


class BodyTooLarge(RequestError):
    """The request body exceeds the limit. Details: `limit_bytes`."""

    code = "body_too_large"


class MethodNotAllowed(RequestError):
    """The resource does not support the HTTP method. Details: `allowed`."""

    code = "method_not_allowed"


class ResourceUnknown(RequestError):
    """No resource has this path."""

    code = "resource_unknown"


class VersionUnsupported(RequestError):
    """The API version is not supported. Details: `version`."""

    code = "version_unsupported"


class MediaTypeUnsupported(RequestError):
    """The resource does not accept this content type."""

    code = "media_type_unsupported"


class PreconditionFailed(RequestError):
    """The record or resource does not meet the condition that the request states."""

    code = "precondition_failed"


class AccessDenied(RequestError):
    """The user lacks a permission. Details: what was requested, never what exists."""

    code = "access_denied"


class LimitExceeded(RequestError):
    """A limit or allocation is used up. Details: `limit`, and `allocation` for streaming."""

    code = "limit_exceeded"
    retryable = True


class LocatorInvalid(RequestError):
    """The query locator is unknown, has expired, or belongs to another session."""

    code = "locator_invalid"


class TooManyRecords(RequestError):
    """The call has, or would return, too many records. Details: `limit`."""

    code = "too_many_records"


class WindowInvalid(RequestError):
    """Deleted or updated records cannot be listed for this time window."""

    code = "window_invalid"


class JobInvalid(RequestError):
    """The bulk job or batch is invalid. Details: `reason`, a code of the Bulk API."""

    code = "job_invalid"


class JobStateInvalid(RequestError):
    """The bulk job's state does not allow the operation. Details: `job_id`."""

    code = "job_state_invalid"


class PushTopicInvalid(RequestError):
    """The push topic's query or settings are invalid. Details: `fields`."""

    code = "push_topic_invalid"


class DefinitionInvalid(RequestError):
    """The org definition cannot be applied. Details: `path` into the document."""

    code = "definition_invalid"


class ChannelInvalid(RequestError):
    """The channel name is malformed."""

    code = "channel_invalid"


class ChannelUnknown(RequestError):
    """The channel does not exist for this user. Details: `channel`."""

    code = "channel_unknown"


class ChannelForbidden(RequestError):
    """The user may not read the channel. Details: `channel`."""

    code = "channel_forbidden"


class TopicUnknown(RequestError):
    """The event type does not exist for this user. Details: `topic`."""

    code = "topic_unknown"


class SchemaUnknown(RequestError):
    """No event has this schema id. Details: `schema_id`."""

    code = "schema_unknown"


class PayloadInvalid(RequestError):
    """The event's bytes do not decode with their schema."""

    code = "payload_invalid"


class ReplayIdInvalid(RequestError):
    """This log never issued the replay id. Details: `replay_id`."""

    code = "replay_id_invalid"


class ReplayIdExpired(RequestError):
    """The replay id is older than the log's retention. Details: `replay_id`, `earliest`."""

    code = "replay_id_expired"


class DemandInvalid(RequestError):
    """The number of requested events is below one."""

    code = "demand_invalid"


class ManagedUnknown(RequestError):
    """The managed subscription does not exist. Details: `name`."""

    code = "managed_unknown"


class ManagedStopped(RequestError):
    """The managed subscription's state is STOP. Details: `name`."""

    code = "managed_stopped"


class ManagedActive(RequestError):
    """Another client is reading the managed subscription. Details: `name`."""

    code = "managed_active"


class RequestRefused(RequestError):
    """A server that we called rejected the request. Details: `status`, `error_code`."""

    code = "request_refused"


class SessionError(PlatformError):
    """The caller's login or protocol session is invalid; a new login or handshake may help."""


class AuthHeaderInvalid(SessionError):
    """The request has no valid authorization header."""

    code = "auth_header_invalid"


class SessionInvalid(SessionError):
    """The session is unknown, expired or revoked."""

    code = "session_invalid"


class LoginFailed(SessionError):
    """The user name, password or security token is wrong; which one is not revealed."""

    code = "login_failed"


class GrantInvalid(SessionError):
    """The OAuth request was rejected. Details: `oauth_error`."""

    code = "grant_invalid"


class ClientUnknown(SessionError):
    """The protocol session has ended or never existed."""

    code = "client_unknown"


class ProtocolViolation(SessionError):
    """The peer sent a message that the protocol does not allow here, or a call was made on a closed client."""

    code = "protocol_violation"


class StorageError(PlatformError):
    """The server's disk or database failed; the request itself is fine."""


class DiskFull(StorageError):
    """The disk is full. Nothing was acknowledged."""

    code = "disk_full"
    retryable = True


class WriteConflict(StorageError):
    """The transaction was rolled back for a reason outside of it."""

    code = "write_conflict"
    retryable = True


class OutcomeUnknown(StorageError):
    """A commit failed, and whether it took effect is unknown; read before a retry."""

    code = "outcome_unknown"


class StoreClosed(StorageError):
    """A store of this server is closed: the server is stopping, or its writer has stopped."""

    code = "store_closed"
    retryable = True


class StoreLocked(StorageError):
    """Another process holds this data directory or database schema. Details: `path`."""

    code = "store_locked"


class LogCorrupt(StorageError):
    """Stored data is corrupt; reading stops instead of skipping it. Details: `position`."""

    code = "log_corrupt"


class DeliveryError(PlatformError):
    """A subscriber's stream has to end."""


class SlowConsumer(DeliveryError):
    """The subscriber did not read for longer than the limit."""

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
    """The server cannot start with this setting. Details: `setting`."""

    code = "config_invalid"


class InternalError(PlatformError):
    """A bug in Tidewire. Peers see only this code; the log has the stack trace."""

    code = "internal"


def leaf_errors() -> list[type[PlatformError]]:
    """Return every concrete class of the tree, ordered by code."""
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
