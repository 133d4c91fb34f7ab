"""Which queries and objects push topics may use, and how many topics an org may have.

Error texts are the original platform's where it has one.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidewire.errors import PushTopicInvalid
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import ObjectType
from tidewire.schema.standard.activities import CAUSES, COUNTS
from tidewire.schema.standard.streaming import PILOT_TOPIC_OBJECTS, TOPIC_OBJECTS
from tidewire.soql.ast import (
    Aliased,
    Comparison,
    FieldPath,
    FunctionCall,
    Membership,
    Not,
    Query,
    RelativeDate,
    SemiJoin,
    Subquery,
    TypeOf,
    walk_conditions,
)
from tidewire.soql.bound import BoundQuery, referenced_fields

OLDEST_API = 20.0  # a topic's version is above it
NEWEST_API = 67.0
LAST_WITHOUT_FORMULAS = 24.0
_AGGREGATES = frozenset({"AVG", "COUNT", "COUNT_DISTINCT", "GROUPING", "MAX", "MIN", "SUM"})
_MAX_TOPICS = {"performance": 100, "unlimited": 100, "enterprise": 50, "databasecom-24": 20}
_MAX_TOPICS_ELSEWHERE = 40


def topic_limit(edition: str) -> int | None:
    """Return the maximum number of active push topics of an edition; None, without an edition, for no limit."""
    return _MAX_TOPICS.get(edition, _MAX_TOPICS_ELSEWHERE) if edition else None


def check_shape(query: Query) -> None:
    """Raise PushTopicInvalid for a construct that no push topic may use."""
    problem = _unsupported(query)
    if problem:
        raise _invalid(problem)


def check_fields(bound: BoundQuery, api_version: float, *, has_pilot_objects: bool) -> None:
    """Raise PushTopicInvalid for an object or for fields that a push topic of this version may not use."""
    obj = bound.entity
    is_pilot = has_pilot_objects and obj.name in PILOT_TOPIC_OBJECTS
    if not obj.custom and obj.name not in TOPIC_OBJECTS and not is_pilot:
        raise _invalid(f"'{obj.name}' is not supported in push topic queries")
    if all(column.name != "Id" for column in bound.columns):
        raise _invalid("Id must be selected in the query")
    for name in sorted(referenced_fields(bound.where)):
        field = obj.by_name[name.lower()]
        if field.formula:
            raise _invalid(f"formula fields are not supported in the WHERE clause: {name}")
        if field.type is FieldType.TEXT_AREA:
            raise _invalid(f"text area fields are not supported in the WHERE clause: {name}")
    if api_version <= LAST_WITHOUT_FORMULAS:
        for column in bound.columns:
            if column.formula:
                raise _invalid(f"formula fields are not supported: {column.name}")


def detected_fields(obj: ObjectType, named: frozenset[str]) -> frozenset[str]:
    """Return the fields whose change triggers a notification if a query names these.

    A person's name triggers as a whole, and only through Name; an address or a geolocation only through its parts. The
    derived fields of a task trigger through the fields that decide them.
    """
    detected: set[str] = set()
    for name in named:
        field = obj.by_name[name.lower()]
        if field.type is FieldType.PERSON_NAME:
            detected |= {name, *(part.name for part in obj.components(name))}
        elif not field.is_compound and not _is_part_of_name(obj, field.compound):
            cause = CAUSES.get((obj.name, name))
            if cause is None or cause in named:
                detected.add(name)
    return frozenset(detected)


def has_field_to_watch(obj: ObjectType, named: frozenset[str]) -> bool:
    """Return whether NotifyForFields can use any of these fields."""
    return any(name != "Id" and (obj.name, name) not in COUNTS for name in named)


def depends_on_calendar(query: Query) -> bool:
    """Return whether the query's result depends on the day or the time zone."""
    parts: list[object] = []
    for condition in walk_conditions(query.where):
        if isinstance(condition, Comparison):
            parts += [condition.subject, condition.value]
        elif isinstance(condition, Membership):
            parts += [condition.subject, *condition.values]
    return any(isinstance(part, RelativeDate | FunctionCall) for part in parts)


def _is_part_of_name(obj: ObjectType, compound: str) -> bool:
    whole = obj.try_field(compound) if compound else None
    return whole is not None and whole.type is FieldType.PERSON_NAME


def _invalid(problem: str) -> PushTopicInvalid:
    return PushTopicInvalid(problem, fields=["Query"])


def _unsupported(query: Query) -> str | None:
    items = [item.item if isinstance(item, Aliased) else item for item in query.select]
    calls = [item.name.upper() for item in items if isinstance(item, FunctionCall)]
    conditions = list(walk_conditions(query.where))
    if any(isinstance(item, TypeOf) for item in items):
        return "'TYPEOF' clause is not allowed"
    if query.is_count or query.group_by is not None or not _AGGREGATES.isdisjoint(calls):
        return "Aggregate queries are not supported"
    if any(isinstance(c, SemiJoin) for c in conditions):
        return "semi/anti join sub-selects are not supported"
    paths = [path for item in items for path in _paths(item)]
    paths += [p for c in conditions if isinstance(c, Comparison | Membership) for p in _paths(c.subject)]
    if (
        query.joined
        or any(isinstance(i, Subquery) for i in items)
        or any(_is_related(p, query) for p in paths)
    ):
        return "relationships are not supported"
    if any(isinstance(c, Not) for c in conditions):
        return "'NOT' is not supported"
    for clause, is_there in (
        ("'ORDER BY' clause is not allowed", bool(query.order_by)),
        ("'LIMIT' is not allowed", query.limit is not None),
        ("'OFFSET' clause is not allowed", query.offset is not None),
        ("'USING SCOPE' clause is not allowed", bool(query.scope)),
        ("'WITH' clause is not allowed", bool(query.security)),
        ("'FOR' clause is not allowed", bool(query.purposes)),
        ("'UPDATE' clause is not allowed", bool(query.statistics)),
    ):
        if is_there:
            return clause
    return f"'{calls[0]}' is not supported in the SELECT clause" if calls else None


def _paths(item: object) -> Iterator[FieldPath]:
    """Yield the fields that a selected item or a condition's subject names, also inside functions."""
    if isinstance(item, FieldPath):
        yield item
    elif isinstance(item, FunctionCall):
        for argument in item.arguments:
            yield from _paths(argument)


def _is_related(path: FieldPath, query: Query) -> bool:
    own = {query.entity.lower(), query.alias.lower()}
    return len(path.names) > 2 or (len(path.names) == 2 and path.names[0].lower() not in own)
