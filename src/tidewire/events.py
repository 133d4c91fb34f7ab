"""The values that travel between stages: changes, events and committed batches. All are immutable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple

Value = str | int | float | bool | None
"""A stored field value. Dates and datetimes are epoch milliseconds, times are milliseconds since midnight."""


class Family(IntEnum):
    """Event families. Each has its own retention and wire formats."""

    PUSH_TOPIC = 1
    GENERIC = 2
    PLATFORM = 3
    CHANGE = 4


class ChangeType(Enum):
    """What happened to a record. The values are the ones on the wire."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    UNDELETE = "UNDELETE"

    # Looked up for every change; Enum.__hash__ is slow Python code.
    __hash__ = object.__hash__


class Change(NamedTuple):
    """The net change of one record in one transaction: the first operation and the final data.

    `before` and `after` map field API names (components, not compounds) to stored values. `before` is None for a
    create, `after` is None for a delete. `changed` names the fields whose value differs, in object field order.
    `sequence` numbers the changes of the transaction from 1, over all objects. `suppress_notifications` keeps push
    topics silent about the change. `never_merge` marks a change that another record's change caused: it gets its
    own event. A tuple for the same reason as Event.
    """

    entity: str
    record_id: str
    type: ChangeType
    before: Mapping[str, Value] | None
    after: Mapping[str, Value] | None
    changed: tuple[str, ...]
    sequence: int
    suppress_notifications: bool = False
    never_merge: bool = False


@dataclass(frozen=True, slots=True)
class UntrackedChange:
    """A change to records of one object whose new values are not known one by one.

    Subscribers get a gap event, or with `lost_field` one change event for all records: that field lost its values.
    `transaction_key` is the database's own key if the change bypassed the API, and empty otherwise.
    """

    entity: str
    type: ChangeType
    record_ids: tuple[str, ...]
    lost_field: str = ""
    transaction_key: str = ""


class CommitContext(NamedTuple):
    """Values shared by all changes of a transaction. A tuple for the same reason as Event."""

    transaction_key: str
    commit_number: int
    commit_ms: int
    user_id: str
    origin: str = ""
    has_notifications: bool = True  # False: no push topic notifications


class EventDraft(NamedTuple):
    """An event that has no position yet. A tuple for the same reason as Event.

    `payload` is Avro by `schema_id` for platform and change events, JSON for the other families (see
    capture.notifications). It holds all fields; delivery removes those that a subscriber may not see.
    """

    topic: str
    family: Family
    payload: bytes
    created_ms: int
    schema_id: str = ""
    event_uuid: str = ""


class Event(NamedTuple):
    """An event in the log. `position` is its place in the org's log, and its replay id on the wire.

    `transaction_last` is the position of the last event of the same transaction, so that readers know when they have
    all of it. A tuple because one is made for every row written or read: a frozen dataclass takes several times as
    long to construct.
    """

    position: int
    topic: str
    family: Family
    payload: bytes
    created_ms: int
    schema_id: str
    event_uuid: str
    transaction_last: int


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """The effects of one durable commit. Core sends it to every edge.

    `head` is the last position that the log had assigned after this commit, with or without events in this batch. A
    higher `access_generation` means that grants may have changed and must be renewed. `ended_sessions` are login
    sessions that are no longer valid. Events of a very large transaction are not in `events`; they are read from the
    log, and `omitted` names their topics, each with its last position. `traces` are the trace contexts of the
    transactions, each with the transaction's last position.
    """

    events: tuple[Event, ...]
    head: int
    access_generation: int
    ended_sessions: tuple[str, ...] = field(default=())
    omitted: tuple[tuple[str, int], ...] = field(default=())
    traces: tuple[tuple[int, str], ...] = field(default=())
