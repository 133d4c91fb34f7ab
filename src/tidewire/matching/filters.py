"""Filters in the name of a push topic's channel: `/topic/X?Industry='Energy'&ShippingCity='San Francisco'`.

A notification passes if any of the conditions holds. A condition names a field that the topic's query selects and that
the subscriber may read. Its value may be in single quotes, with `\\'` and `\\\\` as escapes. Values compare as SOQL's
`=` does: text ignores case unless the field is case-sensitive.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from tidewire.errors import ChannelInvalid, FilterInvalid, RequestError
from tidewire.schema.field_types import ID_TYPES, NUMBER_TYPES, FieldType, ValueKind
from tidewire.schema.model import Field
from tidewire.schema.text_keys import fold_key
from tidewire.schema.values import parse_value, render_value

if TYPE_CHECKING:
    # An edge tests filters but parses none, and starts a quarter faster without these.
    from tidewire.access.grants import Grants
    from tidewire.capture.push_topics import PushTopic

MAX_CONDITIONS = 100
MAX_LENGTH = 4000
_TEXT_KINDS = frozenset({ValueKind.TEXT, ValueKind.CHOICES, ValueKind.COMPOUND})
_CONDITION = re.compile(
    r"(?P<field>[^=&']*)(?:=(?:'(?P<quoted>(?:[^'\\]|\\.)*)'|(?P<bare>[^&']*)))?(?P<end>&|$)"
)
_ESCAPED = re.compile(r"\\(.)")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
_MAX_NUMBER = 40
_ID_LENGTH = 18


@dataclass(frozen=True, slots=True)
class FilterTerm:
    """One condition: a field and the JSON of its value. Text compares by its folded key."""

    field: str
    value_json: str
    is_text: bool
    case_sensitive: bool = False


@dataclass(frozen=True, slots=True)
class NotificationFilter:
    """Selects notifications: records of one object that meet at least one of the terms, if there are any."""

    id_prefix: str
    terms: tuple[FilterTerm, ...] = ()

    def passes(self, notification: Mapping[str, Any]) -> bool:
        """Return whether a stored notification passes."""
        if not notification["sobject"]["Id"].startswith(self.id_prefix):
            return False
        # A deleted record is sent as an id only, but the filter is tested against its last values.
        record = notification.get("record") or notification["sobject"]
        return not self.terms or any(_holds(term, record) for term in self.terms)


def parse_filter(channel: str, topic: PushTopic, grants: Grants) -> tuple[FilterTerm, ...]:
    """Parse the filter in a channel's name, if it has one. Raises ChannelInvalid or FilterInvalid."""
    _, mark, text = channel.partition("?")
    if not mark:
        return ()
    shown = {
        column.name.lower(): column for column in topic.columns if not column.is_compound or _is_name(column)
    }
    hidden = grants.hidden_fields(topic.obj)
    terms: list[FilterTerm] = []
    unknown: list[str] = []
    for name, value, is_quoted in _conditions(channel, text):
        field = shown.get(name.lower())
        if field is None or value is None or field.name in hidden:
            unknown.append(name)
        else:
            terms.append(_term(field, value, is_quoted=is_quoted))
    if unknown:
        raise FilterInvalid(
            f"Query fields {{{', '.join(unknown)}}} do not exist on the topic entity", field=unknown[0]
        )
    return tuple(dict.fromkeys(terms))


def _conditions(channel: str, text: str) -> Iterator[tuple[str, str | None, bool]]:
    """Yield field, value if there is one, and whether it was quoted, of each condition."""
    start, count = 0, 0
    while True:
        match = _CONDITION.match(text, start)
        count += 1
        if match is None or not match["field"] or count > MAX_CONDITIONS or len(text) > MAX_LENGTH:
            raise ChannelInvalid(
                f"The channel you requested to subscribe to does not exist {{{channel}}}", channel=channel
            )
        quoted = match["quoted"]
        value = match["bare"] if quoted is None else _ESCAPED.sub(r"\1", quoted)
        yield match["field"].strip(), value, quoted is not None
        if not match["end"]:
            return
        start = match.end()


def _term(field: Field, text: str, *, is_quoted: bool) -> FilterTerm:
    if text == "" or (text.lower() == "null" and not is_quoted):
        return FilterTerm(field.name, "null", is_text=False)
    if field.type in ID_TYPES:
        if len(text) != _ID_LENGTH:
            raise FilterInvalid(
                f"Query field {{{field.name}}} needs an ID of 18 characters, not {{{text[:40]}}}",
                field=field.name,
            )
        return FilterTerm(field.name, orjson.dumps(text).decode(), is_text=False)
    if field.type.kind in _TEXT_KINDS:
        key = fold_key(text, case_sensitive=field.case_sensitive)
        return FilterTerm(field.name, orjson.dumps(key).decode(), True, field.case_sensitive)
    try:
        value = (
            _number(field, text)
            if field.type in NUMBER_TYPES
            else render_value(field, parse_value(field, text), "Z")
        )
    except RequestError as error:
        raise FilterInvalid(
            f"Query field {{{field.name}}} cannot have the value {{{text[:40]}}}", field=field.name
        ) from error
    return FilterTerm(field.name, orjson.dumps(value).decode(), is_text=False)


def _number(field: Field, text: str) -> float:
    # Not rounded to the field's scale: a value that the field cannot hold equals nothing.
    if len(text) > _MAX_NUMBER or not _NUMBER.fullmatch(text):
        raise FilterInvalid("no number", field=field.name)
    return float(text)


def _holds(term: FilterTerm, record: Mapping[str, Any]) -> bool:
    value = record.get(term.field)
    if term.is_text and isinstance(value, str):
        value = fold_key(value, case_sensitive=term.case_sensitive)
    return term.field in record and bool(value == orjson.loads(term.value_json))


def _is_name(field: Field) -> bool:
    return field.type is FieldType.PERSON_NAME
