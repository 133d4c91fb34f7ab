"""Filter expressions of channel members: which events of its kind a channel shows.

An expression is a SOQL condition over the event's own fields: those of the record, parts of a compound such as
`BillingAddress.City`, and fields of the header such as `ChangeEventHeader.changeType`. Relative dates, functions and
subqueries are rejected.
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
_ALL_EVENTS = parse_query("SELECT Id FROM Event")  # a template: the entity is replaced
_HEADER_FIELDS = (
    *(
        text(name, name, 255)
        for name in ("entityName", "changeType", "changeOrigin", "transactionKey", "commitUser")
    ),
    *(integer(name, name, 18) for name in ("sequenceNumber", "commitTimestamp", "commitNumber")),
)


@dataclass(frozen=True, slots=True)
class EventFilter:
    """A compiled expression. `fields` are the record fields that it uses; a part counts as its compound."""

    fields: tuple[str, ...]
    matches: Predicate = field(repr=False)


@lru_cache(maxsize=1024)
def compile_event_filter(expression: str, kind: ObjectType | EventType) -> EventFilter:
    """Compile a filter on an object's change events or on a platform event. Raises DefinitionInvalid."""
    if len(expression) > _MAX_LENGTH:
        raise _invalid(f"it is longer than {_MAX_LENGTH} characters")
    event = _event_object(kind)
    try:
        cursor = Cursor(expression, parse_tokens(expression))
        condition = _flat(parse_condition(cursor, _reject_subquery), expression)
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
    """Return an event's values under the names that filters use."""
    flat: dict[str, Any] = {}
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            flat |= {f"{name}.{part}": item for part, item in inner.items()}
        else:
            flat[name] = inner
    return flat


def _event_object(kind: ObjectType | EventType) -> ObjectType:
    """Return an object whose fields are those of the event, to bind the expression to."""
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
    """Replace every path by a single name, because the event holds all fields itself."""
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
            raise _unsupported("subqueries are not supported", condition.position, expression)
    if any(isinstance(literal, RelativeDate) for literal in literals):
        raise _unsupported("relative dates are not supported", condition.position, expression)
    return replace(condition, subject=_flat_subject(subject, expression))


def _flat_subject(subject: Subject, expression: str) -> Subject:
    if not isinstance(subject, FieldPath):
        raise _unsupported("functions are not supported", subject.position, expression)
    return replace(subject, names=(".".join(subject.names),))


def _reject_subquery(cursor: Cursor) -> Query:
    raise cursor.refused("subqueries are not supported")


def _unsupported(reason: str, position: int, expression: str) -> SoqlSyntaxError:
    return SoqlSyntaxError(reason, row=1, column=position + 1, query=expression)


def _invalid(reason: str) -> DefinitionInvalid:
    return DefinitionInvalid(
        f"The filter expression has syntax errors: {reason}", status_code="FIELD_INTEGRITY_EXCEPTION"
    )
