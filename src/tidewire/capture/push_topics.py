"""Push topics: a saved query, and the notifications that record changes make on it.

A notification's payload is JSON: `{"type": ..., "createdDate": ..., "sobject": {...}}`, with the values of
every selected field as the streaming
protocol spells them. The replay id is not in it, because the log gives positions later; delivery adds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from tidewire.capture.change_events import AUDIT_STAMPS
from tidewire.errors import PlatformError, PushTopicInvalid
from tidewire.events import Change, ChangeType, CommitContext, EventDraft, Family, Value
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.values import render_compound, render_datetime, render_value
from tidewire.soql.ast import (
    Aliased,
    FieldPath,
    FunctionCall,
    Not,
    Query,
    SemiJoin,
    Subquery,
    TypeOf,
    walk_conditions,
)
from tidewire.soql.binder import bind_query
from tidewire.soql.bound import referenced_fields
from tidewire.soql.compile_predicate import compile_predicate
from tidewire.soql.parser import parse_query

SUPPORTED_OBJECTS = frozenset({"Account", "Campaign", "Case", "Contact", "Lead", "Opportunity", "Task"})
"""Standard objects that push topics may watch; custom objects all may."""

_EVENT_TYPES = {
    ChangeType.CREATE: "created",
    ChangeType.UPDATE: "updated",
    ChangeType.DELETE: "deleted",
    ChangeType.UNDELETE: "undeleted",
}
_OPERATION_FIELDS = {
    ChangeType.CREATE: "NotifyForOperationCreate",
    ChangeType.UPDATE: "NotifyForOperationUpdate",
    ChangeType.DELETE: "NotifyForOperationDelete",
    ChangeType.UNDELETE: "NotifyForOperationUndelete",
}


@dataclass(frozen=True, slots=True)
class PushTopic:
    """A push topic, compiled. `watched` are the fields whose change counts, None for any."""

    record_id: str
    name: str
    obj: ObjectType
    columns: tuple[Field, ...]
    where_fields: frozenset[str]
    watched: frozenset[str] | None
    operations: frozenset[ChangeType]
    is_active: bool
    matches: Callable[[Mapping[str, Value]], bool] = field(repr=False)


def compile_push_topic(row: Mapping[str, Value], catalog: Catalog) -> PushTopic:
    """A push topic from its record. Raises PushTopicInvalid, or the SOQL error of its query."""
    api_version = row.get("ApiVersion")
    if not isinstance(api_version, int | float) or api_version <= 20.0:
        raise PushTopicInvalid("ApiVersion must be greater than 20.0", fields=["ApiVersion"])
    query = parse_query(str(row["Query"]))
    _check_shape(query)
    bound = bind_query(query, catalog)
    obj = bound.entity
    if not obj.custom and obj.name not in SUPPORTED_OBJECTS:
        raise PushTopicInvalid(f"'{obj.name}' is not supported in push topic queries", fields=["Query"])
    selected = frozenset(name for f in bound.columns for name in _stored_names(obj, f))
    where_fields = referenced_fields(bound.where)
    if "Id" not in selected:
        raise PushTopicInvalid("Id must be selected in the query", fields=["Query"])
    return PushTopic(
        record_id=str(row["Id"]),
        name=str(row["Name"]),
        obj=obj,
        columns=bound.columns,
        where_fields=where_fields,
        watched=_watched(str(row.get("NotifyForFields") or "Referenced"), selected, where_fields),
        operations=frozenset(t for t, name in _OPERATION_FIELDS.items() if row.get(name)),
        is_active=bool(row.get("IsActive")),
        matches=compile_predicate(bound.where, obj),
    )


class PushTopicIndex:
    """Active push topics by object, so that a change is held only against those that could match it."""

    def __init__(self, topics: Iterable[PushTopic] = ()) -> None:
        self.by_name: dict[str, PushTopic] = {}
        self._by_entity: dict[str, list[PushTopic]] = {}
        for topic in topics:
            self.by_name[topic.name] = topic
            if topic.is_active:
                self._by_entity.setdefault(topic.obj.name, []).append(topic)

    def replaced(self, gone: frozenset[str], fresh: Iterable[PushTopic]) -> PushTopicIndex:
        """A new index without the topics whose record ids are in `gone`, and with the fresh ones."""
        kept = [t for t in self.by_name.values() if t.record_id not in gone]
        return PushTopicIndex([*kept, *fresh])

    def for_entity(self, entity: str) -> Sequence[PushTopic]:
        """The active topics on an object."""
        return self._by_entity.get(entity, ())


def notifications(
    changes: Sequence[Change], context: CommitContext, index: PushTopicIndex
) -> list[EventDraft]:
    """What the changes of one transaction make known, in order."""
    drafts = []
    for change in changes:
        for topic in index.for_entity(change.entity):
            if _is_notified(topic, change):
                payload = orjson.dumps(
                    {
                        "type": _EVENT_TYPES[change.type],
                        "createdDate": render_datetime(context.commit_ms, "Z"),
                        "sobject": _sobject(topic, change),
                    }
                )
                drafts.append(EventDraft(topic.record_id, Family.PUSH_TOPIC, payload, context.commit_ms))
    return drafts


def _is_notified(topic: PushTopic, change: Change) -> bool:
    if change.type not in topic.operations:
        return False
    if change.type is ChangeType.UPDATE:
        if topic.watched is None:
            if AUDIT_STAMPS.issuperset(change.changed):
                return False
        elif topic.watched.isdisjoint(change.changed):
            return False
    row = change.before if change.type is ChangeType.DELETE else change.after
    return row is not None and topic.matches(row)


def _sobject(topic: PushTopic, change: Change) -> dict[str, object]:
    if change.type is ChangeType.DELETE or change.after is None:
        return {"Id": change.record_id}
    row = change.after
    out: dict[str, object] = {}
    for column in topic.columns:
        if column.is_compound:
            out[column.name] = render_compound(topic.obj, column, row, "Z")
        else:
            out[column.name] = render_value(column, row.get(column.name), "Z")
    return out


def _watched(
    notify_for: str, selected: frozenset[str], where_fields: frozenset[str]
) -> frozenset[str] | None:
    if notify_for == "All":
        return None
    watched = {"Select": selected, "Where": where_fields}.get(notify_for, selected | where_fields)
    if watched <= {"Id"}:
        raise PushTopicInvalid(
            f"With NotifyForFields {notify_for} the query must name at least one field other than Id"
            f"{' in its WHERE clause' if notify_for == 'Where' else ''}",
            fields=["NotifyForFields"],
        )
    return watched


def _stored_names(obj: ObjectType, column: Field) -> list[str]:
    # A person's Name is watched through its parts; an address must be named part by part, as the guide has
    # it.
    if column.is_compound:
        return [c.name for c in obj.components(column.name)] if column.name == "Name" else []
    return [column.name]


def _check_shape(query: Query) -> None:
    problem = _unsupported(query)
    if problem:
        raise PushTopicInvalid(problem, fields=["Query"])


def _unsupported(query: Query) -> str | None:
    items = [item.item if isinstance(item, Aliased) else item for item in query.select]
    conditions = list(walk_conditions(query.where))
    if any(isinstance(item, TypeOf) for item in items):
        return "'TYPEOF' clause is not allowed"
    if query.is_count or query.group_by is not None or any(isinstance(i, FunctionCall) for i in items):
        return "Aggregate queries are not supported"
    if any(isinstance(c, SemiJoin) for c in conditions):
        return "semi/anti join sub-selects are not supported"
    if query.joined or any(isinstance(i, Subquery) or _is_related(i, query) for i in items):
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
    return None


def _is_related(item: object, query: Query) -> bool:
    if not isinstance(item, FieldPath) or len(item.names) == 1:
        return False
    own = {query.entity.lower(), query.alias.lower()}
    return len(item.names) > 2 or item.names[0].lower() not in own


def try_compile(row: Mapping[str, Value], catalog: Catalog) -> PushTopic | None:
    """Like `compile_push_topic` for a stored record, which may have been overtaken by a change of its object."""
    try:
        return compile_push_topic(row, catalog)
    except PlatformError:
        return None
