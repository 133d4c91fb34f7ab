"""What travels from stage to stage: changes, events and committed batches. All frozen plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple

Value = str | int | float | bool | None
"""A stored field value: text, id, number, truth, date and datetime as epoch ms, time as ms since midnight."""


class Family(IntEnum):
    """The kinds of event, each with its own retention and its own wire forms."""

    PUSH_TOPIC = 1
    GENERIC = 2
    PLATFORM = 3
    CHANGE = 4


class ChangeType(Enum):
    """What happened to a record; the values are the wire's own words."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    UNDELETE = "UNDELETE"

    # Looked up for every change; Enum's own hash is Python code.
    __hash__ = object.__hash__


class Change(NamedTuple):
    """One record's before and after in one transaction: the first operation, the final data.

    `before` and `after` map field API names (components, not compounds) to stored values; `before` is None
    for a
    create, `after` is None for a delete. `changed` names the fields whose value differs, in object field
    order.
    `sequence` counts the changes of the transaction from 1, over all objects. Of a change with `is_quiet` push
    topics are not told. One that `stands_alone` followed from another record's change: it has an event of its own.
    A tuple for the reason that Event is one.
    """

    entity: str
    record_id: str
    type: ChangeType
    before: Mapping[str, Value] | None
    after: Mapping[str, Value] | None
    changed: tuple[str, ...]
    sequence: int
    is_quiet: bool = False
    stands_alone: bool = False


@dataclass(frozen=True, slots=True)
class Aside:
    """What a transaction did to records of one object without saying what each of them holds now.

    It is told by a gap event or, with `lost_field`, by one change event for all records: those whose field lost its
    values. `transaction_key` is the database's own if the change was made below the API, and empty otherwise.
    """

    entity: str
    type: ChangeType
    record_ids: tuple[str, ...]
    lost_field: str = ""
    transaction_key: str = ""


class CommitContext(NamedTuple):
    """What all changes of a transaction share. A tuple for the reason that Event is one."""

    transaction_key: str
    commit_number: int
    commit_ms: int
    user_id: str
    origin: str = ""
    has_notifications: bool = True  # False: push topics stay silent about it


class EventDraft(NamedTuple):
    """An event before the log has given it a position. A tuple for the reason that Event is one.

    `payload` depends on the family: Avro by `schema_id` for platform and change events, JSON for the others
    (see
    capture.notifications). It is the full form; what a subscriber may not see is cut at delivery.
    """

    topic: str
    family: Family
    payload: bytes
    created_ms: int
    schema_id: str = ""
    event_uuid: str = ""


class Event(NamedTuple):
    """An event as the log holds it. `position` is its place in the org's log; on the wire it is the replay
    id.

    `transaction_last` is the position of the last event of the same transaction, so a reader knows when it
    has all. A tuple, because one is made for every row written or read, and a frozen dataclass takes several
    times as long to make.
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
    """What one durable commit added, as the edge learns of it: the second seam between core and edge.

    `head` is the last position the log has given out after this commit, whether or not this batch has events.
    A rise of
    `access_generation` means that grants may have changed and must be asked for again; `ended_sessions` are
    login sessions that no longer count. The events of a very large transaction are not among `events`: they are read
    from the log, and `left_out` names their topics, each with the last position. `traces` are those that its
    transactions belong to, each with the last position of one.
    """

    events: tuple[Event, ...]
    head: int
    access_generation: int
    ended_sessions: tuple[str, ...] = field(default=())
    left_out: tuple[tuple[str, int], ...] = field(default=())
    traces: tuple[tuple[int, str], ...] = field(default=())
