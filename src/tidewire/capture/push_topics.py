"""Push topics: saved queries, validated and compiled, that select record changes to notify about.

`topic_rules.py` says which queries are allowed, `topic_index.py` finds the topics that a change matches, and
`notifications.py` makes their payloads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidewire.capture.topic_rules import (
    NEWEST_API,
    OLDEST_API,
    check_fields,
    check_shape,
    depends_on_calendar,
    detected_fields,
    has_field_to_watch,
)
from tidewire.errors import ObjectUnknown, PlatformError, PushTopicInvalid
from tidewire.events import ChangeType, Value
from tidewire.schema.catalog import Catalog
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.values import DAY_MS
from tidewire.soql.ast import Query
from tidewire.soql.binder import bind_query
from tidewire.soql.bound import BoundCondition, referenced_fields
from tidewire.soql.compile_predicate import Predicate, compile_predicate
from tidewire.soql.dates import Calendar
from tidewire.soql.parser import parse_query
from tidewire.soql.scope import Caller

_OPERATION_FIELDS = {
    ChangeType.CREATE: "NotifyForOperationCreate",
    ChangeType.UPDATE: "NotifyForOperationUpdate",
    ChangeType.DELETE: "NotifyForOperationDelete",
    ChangeType.UNDELETE: "NotifyForOperationUndelete",
}


class RelativeCondition:
    """A condition with relative dates or parts of dates, whose meaning depends on the day and the calendar."""

    __slots__ = ("_catalog", "_compiled", "_query")

    def __init__(self, query: Query, catalog: Catalog) -> None:
        self._query = query
        self._catalog = catalog
        self._compiled: tuple[int, Calendar, Predicate] | None = (
            None  # replaced as a whole: readers need no lock
        )

    def at(self, now_ms: int, calendar: Calendar) -> Predicate:
        """Return the condition as of a time; compiled once a day."""
        day = calendar.zone.local_ms(now_ms) // DAY_MS
        compiled = self._compiled
        if compiled is None or compiled[0] != day or compiled[1] is not calendar:
            caller = Caller(calendar=calendar)
            bound = bind_query(self._query, self._catalog, now_ms=now_ms, caller=caller)
            compiled = self._compiled = day, calendar, compile_predicate(bound.where, bound.entity)
        return compiled[2]


@dataclass(frozen=True, slots=True)
class PushTopic:
    """A compiled push topic. `watched` are the fields whose change counts, None for any.

    `columns` are the fields of notifications: the selected ones, and the parts of a selected person's name. If the
    query depends on the calendar, use `relative` instead of `matches`.
    """

    record_id: str
    name: str
    obj: ObjectType
    columns: tuple[Field, ...]
    where: BoundCondition | None
    where_fields: frozenset[str]
    watched: frozenset[str] | None
    operations: frozenset[ChangeType]
    is_active: bool
    matches: Predicate = field(repr=False)
    relative: RelativeCondition | None = field(default=None, repr=False, compare=False)


def compile_push_topic(
    row: Mapping[str, Value], catalog: Catalog, *, has_pilot_objects: bool = False
) -> PushTopic:
    """Compile a push topic from its record. Raises PushTopicInvalid, or the SOQL error of its query."""
    api_version = row.get("ApiVersion")
    if not isinstance(api_version, int | float) or api_version <= OLDEST_API:
        raise PushTopicInvalid(f"ApiVersion must be greater than {OLDEST_API}", fields=["ApiVersion"])
    if api_version > NEWEST_API:
        raise PushTopicInvalid(f"ApiVersion must not be greater than {NEWEST_API}", fields=["ApiVersion"])
    # The guide ends one of its examples with a semicolon, which SOQL does not allow.
    query = parse_query(str(row["Query"]).rstrip().removesuffix(";"))
    check_shape(query)
    try:
        # Whether a query is valid does not depend on the day.
        bound = bind_query(query, catalog, now_ms=0)
    except ObjectUnknown as error:
        raise PushTopicInvalid(error.message, fields=["Query"]) from error
    check_fields(bound, api_version, has_pilot_objects=has_pilot_objects)
    obj = bound.entity
    where_fields = referenced_fields(bound.where)
    selected = frozenset(column.name for column in bound.columns)
    return PushTopic(
        record_id=str(row["Id"]),
        name=str(row["Name"]),
        obj=obj,
        columns=_with_name_parts(obj, bound.columns),
        where=bound.where,
        where_fields=where_fields,
        watched=_watched(str(row.get("NotifyForFields") or "Referenced"), obj, selected, where_fields),
        operations=frozenset(t for t, name in _OPERATION_FIELDS.items() if row.get(name)),
        is_active=bool(row.get("IsActive")),
        matches=compile_predicate(bound.where, obj),
        relative=RelativeCondition(query, catalog) if depends_on_calendar(query) else None,
    )


def try_compile(
    row: Mapping[str, Value], catalog: Catalog, *, has_pilot_objects: bool = False
) -> PushTopic | None:
    """Compile a stored push topic, or return None if its object has changed so that it no longer compiles."""
    try:
        return compile_push_topic(row, catalog, has_pilot_objects=has_pilot_objects)
    except PlatformError:
        return None


def _with_name_parts(obj: ObjectType, columns: tuple[Field, ...]) -> tuple[Field, ...]:
    shown: dict[str, Field] = {}
    for column in columns:
        shown[column.name] = column
        if column.type is FieldType.PERSON_NAME:
            shown |= {part.name: part for part in obj.components(column.name)}
    return tuple(shown.values())


def _watched(
    notify_for: str, obj: ObjectType, selected: frozenset[str], where_fields: frozenset[str]
) -> frozenset[str] | None:
    if notify_for == "All":
        return None
    named = {"Select": selected, "Where": where_fields}.get(notify_for, selected | where_fields)
    if not has_field_to_watch(obj, named):
        raise PushTopicInvalid(
            f"With NotifyForFields {notify_for} the query must name at least one field other than Id"
            f"{' in its WHERE clause' if notify_for == 'Where' else ''}",
            fields=["NotifyForFields"],
        )
    return detected_fields(obj, named)
