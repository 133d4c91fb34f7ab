"""Requests to the gate and its results: plain values that every front end shares."""

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
OnResults = Callable[[UnitOfWork, Sequence[T | PlatformError]], None]
"""Called with the results of several writes, inside their transaction."""


@dataclass(frozen=True, slots=True)
class Call:
    """Who calls, and how.

    `origin` becomes changeOrigin of the change events. Without `has_notifications`, push topics send nothing for
    the changes of this call. `api_version` is None for the newest.
    """

    principal: Principal
    origin: str
    has_notifications: bool = True
    api_version: int | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """One create, update or delete: a create has no `record_id`, a delete no `values`."""

    entity: str
    record_id: str | None
    values: Mapping[str, object] | None
    is_hard: bool = False  # a delete that bypasses the recycle bin
    # Called with the stored record before it changes; may raise.
    check: Callable[[dict[str, Value]], None] | None = None


@dataclass(frozen=True, slots=True)
class Upsert:
    """One upsert: update the record whose external id `field` holds `value`, or create it."""

    entity: str
    field: str
    value: object
    values: Mapping[str, object]
    rejection: PlatformError | None = None  # if set, fail with it without trying


@dataclass(frozen=True)
class Rows:
    """Query results: stored values by field name; the parts of a compound field are listed under their own names.

    `position` is the head of the log in the snapshot that was read. `columns` are fields of the record itself; a
    query that selects more lists everything in `select`. With `is_aggregate`, rows are groups and `columns` has
    their field names or aliases.
    """

    entity: ObjectType
    columns: tuple[Field, ...]
    rows: list[Record]
    count: int | None
    position: int
    select: tuple[Selected, ...] = ()
    is_aggregate: bool = False
