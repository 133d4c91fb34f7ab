"""Filter expressions of channel members: which events of its kind a channel shows.

An expression is what may stand after WHERE, over the event's own fields: those of the record, parts of a compound as
`BillingAddress.City`, and what the header says, as `ChangeEventHeader.changeType`. It is held against values by
those very names. Dates that are relative to today, functions and subqueries are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from tidewire.errors import DefinitionInvalid, RequestError, SoqlSyntaxError
from tidewire.schema.catalog import Catalog
from tidewire.schema.fields import datetime, integer, text
from tidewire.schema.layout import identity_fields
from tidewire.schema.model import EventType, Field, ObjectType
from tidewire.soql.ast import (
    And,
    Comparison,
    Condition,
    FieldPath,
    Membership,
    Not,
    Or,
    Query,
    RelativeDate,
    Subject,
)
from tidewire.soql.binder import bind_query
from tidewire.soql.bound import referenced_fields
from tidewire.soql.compile_predicate import Predicate, compile_predicate
from tidewire.soql.condition_parser import parse_condition
from tidewire.soql.cursor import Cursor
from tidewire.soql.parser import parse_query
from tidewire.soql.tokens import TokenKind, parse_tokens

HEADER = "ChangeEventHeader"
_MAX_LENGTH = 4_000
_ALL_EVENTS = parse_query("SELECT Id FROM Event")  # to be asked of another object
_HEADER_FIELDS = (
    *(
        text(name, name, 255)
        for name in ("entityName", "changeType", "changeOrigin", "transactionKey", "commitUser")
    ),
    *(integer(name, name, 18) for name in ("sequenceNumber", "commitTimestamp", "commitNumber")),
)


@dataclass(frozen=True, slots=True)
class EventFilter:
    """An expression, compiled. `fields` are the record's fields that it looks at, a compound for its part."""

    fields: tuple[str, ...]
    matches: Predicate = field(repr=False)


@lru_cache(maxsize=1024)
def compile_event_filter(expression: str, kind: ObjectType | EventType) -> EventFilter:
    """The filter over an object's change events, or over a platform event. Raises DefinitionInvalid."""
    if len(expression) > _MAX_LENGTH:
        raise _invalid(f"it is longer than {_MAX_LENGTH} characters")
    event = _event_object(kind)
    try:
        cursor = Cursor(expression, parse_tokens(expression))
        condition = _flat(parse_condition(cursor, _refuse_query), expression)
        if not cursor.is_at(TokenKind.END):
            raise cursor.unexpected()
        query = replace(_ALL_EVENTS, entity=event.name, where=condition, text=expression)
        bound = bind_query(query, Catalog(0, (event,)))
        matches = compile_predicate(bound.where, event)
    except RequestError as error:
        raise _invalid(error.message) from error
    names = {name.partition(".")[0] for name in referenced_fields(bound.where)}
    return EventFilter(tuple(sorted(names - {HEADER})), matches)


def event_values(value: Mapping[str, Any]) -> dict[str, Any]:
    """An event's values under the names that filters have for them."""
    flat: dict[str, Any] = {}
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            flat |= {f"{name}.{part}": item for part, item in inner.items()}
        else:
            flat[name] = inner
    return flat


def _event_object(kind: ObjectType | EventType) -> ObjectType:
    """What the expression is bound to: an object whose records would be the events."""
    if isinstance(kind, EventType):
        own = [datetime("CreatedDate", "Created Date"), text("CreatedById", "Created By", 18), *kind.fields]
    else:
        own = [_named(f) for f in kind.fields if f.in_change_events and not f.is_compound and f.name != "Id"]
        own += [replace(f, name=f"{HEADER}.{f.name}") for f in _HEADER_FIELDS]
    return ObjectType(
        name=kind.name,
        label=kind.label,
        label_plural=kind.label_plural,
        key_prefix=kind.key_prefix,
        fields=(*identity_fields(has_is_deleted=False), *own),
    )


def _named(f: Field) -> Field:
    return replace(f, name=f"{f.compound}.{f.component}", compound="", component="") if f.compound else f


def _flat(condition: Condition, expression: str) -> Condition:
    """The condition with every path as one name, for the event holds all that it may look at."""
    match condition:
        case And(items) | Or(items):
            return replace(condition, items=tuple(_flat(item, expression) for item in items))
        case Not(item):
            return replace(condition, item=_flat(item, expression))
        case Comparison(subject, _, value):
            literals = [value]
        case Membership(subject, _, values):
            literals = list(values)
        case _:
            raise _refused("subqueries are not supported", condition.position, expression)
    if any(isinstance(literal, RelativeDate) for literal in literals):
        raise _refused("relative dates are not supported", condition.position, expression)
    return replace(condition, subject=_flat_subject(subject, expression))


def _flat_subject(subject: Subject, expression: str) -> Subject:
    if not isinstance(subject, FieldPath):
        raise _refused("functions are not supported", subject.position, expression)
    return replace(subject, names=(".".join(subject.names),))


def _refuse_query(cursor: Cursor) -> Query:
    raise cursor.refused("subqueries are not supported")


def _refused(reason: str, position: int, expression: str) -> SoqlSyntaxError:
    return SoqlSyntaxError(reason, row=1, column=position + 1, query=expression)


def _invalid(reason: str) -> DefinitionInvalid:
    return DefinitionInvalid(
        f"The filter expression has syntax errors: {reason}", status_code="FIELD_INTEGRITY_EXCEPTION"
    )
