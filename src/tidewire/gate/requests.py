"""What is asked of the gate, and what it answers: plain values that every front end shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tidewire.access.principal import Principal
from tidewire.errors import PlatformError
from tidewire.events import Value
from tidewire.records.query import Record
from tidewire.records.work import UnitOfWork
from tidewire.schema.model import Field, ObjectType
from tidewire.soql.bound import Selected

T = TypeVar("T")
Note = Callable[[UnitOfWork, Sequence[T | PlatformError]], None]
"""Told of the results of several writes, inside their transaction."""


@dataclass(frozen=True, slots=True)
class Call:
    """What one API call brings along; `origin` becomes the change events' changeOrigin. Without
    `has_notifications` push topics stay silent about what it changes. `api_version` is None for the newest.
    """

    principal: Principal
    origin: str
    has_notifications: bool = True
    api_version: int | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """One record of a write that covers several: a create without `record_id`, a delete without `values`."""

    entity: str
    record_id: str | None
    values: Mapping[str, object] | None
    is_hard: bool = False  # a delete that leaves nothing in the recycle bin
    check: Callable[[dict[str, Value]], None] | None = (
        None  # sees the record before it is touched, and may raise
    )


@dataclass(frozen=True, slots=True)
class Upsert:
    """One record of an upsert that covers several: `value` is what the external id `field` holds."""

    entity: str
    field: str
    value: object
    values: Mapping[str, object]
    refusal: PlatformError | None = None  # why it is not even tried


@dataclass(frozen=True)
class Rows:
    """A query's answer: stored values by field name; a selected compound's parts stand under their own names.

    `position` is the log's head in the snapshot that was read. `columns` are the record's own fields. A query
    that selects more than those has all of it in `select`; one with `is_aggregate` has groups for rows, whose
    fields `columns` names as the answer does.
    """

    entity: ObjectType
    columns: tuple[Field, ...]
    rows: list[Record]
    count: int | None
    position: int
    select: tuple[Selected, ...] = ()
    is_aggregate: bool = False
