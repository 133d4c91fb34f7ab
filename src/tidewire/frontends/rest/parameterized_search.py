"""Parameterized searches: translate query parameters or a request body to SOSL. Pure.

The search term is escaped and names are checked. Filters are SOQL written by the caller, which the search binds with
the caller's rights like any other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from tidewire.errors import SearchMalformed
from tidewire.frontends.rest.wire import try_parse_number
from tidewire.names import is_api_name
from tidewire.transport.http import HttpRequest

_SCOPES = frozenset({"ALL", "NAME", "EMAIL", "PHONE", "SIDEBAR"})
_RESERVED = re.compile(r'([\\?&|!{}\[\]()^~*:"\'+-])')
_FIELD_PATH = re.compile(r"[A-Za-z][A-Za-z0-9_.]{0,200}")
_MAX_LIMIT = 2_000
_MAX_OBJECTS = 200


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One object to return; an empty text is a clause that was not given."""

    name: str
    fields: Sequence[str] = ()
    where: str = ""
    order_by: str = ""
    limit: int | None = None

    def render(self, default_fields: Sequence[str], default_limit: int | None) -> str:
        fields = self.fields or default_fields or ("Id",)
        text = ", ".join(fields)
        if self.where:
            text += f" WHERE {self.where}"
        if self.order_by:
            text += f" ORDER BY {self.order_by}"
        limit = self.limit if self.limit is not None else default_limit
        if limit is not None:
            text += f" LIMIT {limit}"
        return f"{self.name}({text})"


def parse_search_query(request: HttpRequest) -> str:
    """Translate `?q=Acme&sobject=Account&Account.fields=Id,Name` to SOSL. Raises SearchMalformed."""
    pairs = parse_qsl(request.target.partition("?")[2], keep_blank_values=True)
    values = dict(pairs)
    names = [value for name, value in pairs if name.lower() == "sobject"]
    wanted = [
        _Wanted(
            _name(name),
            _fields(values.get(f"{name}.fields", "").split(",")),
            values.get(f"{name}.where", ""),
            values.get(f"{name}.orderBy", ""),
            _limit(values.get(f"{name}.limit")),
        )
        for name in names
    ]
    defaults = _fields(values.get("fields", "").split(","))
    return _render(values, wanted, defaults)


def parse_search_body(body: Mapping[str, object]) -> str:
    """Translate a request body to SOSL. Raises SearchMalformed."""
    given = body.get("sobjects") or []
    if not isinstance(given, list):
        raise SearchMalformed("sobjects must be a list")
    return _render(body, [_parse_wanted(item) for item in given], _field_list(body.get("fields")))


def _parse_wanted(item: object) -> _Wanted:
    if not isinstance(item, Mapping):
        raise SearchMalformed("sobjects must hold objects with a name")
    return _Wanted(
        _name(item.get("name")),
        _field_list(item.get("fields")),
        _text(item, "where"),
        _text(item, "orderBy"),
        _limit(item.get("limit")),
    )


def _render(values: Mapping[str, object], wanted: Sequence[_Wanted], defaults: Sequence[str]) -> str:
    words = _text(values, "q")
    if not words.strip():
        raise SearchMalformed("A search string has to be specified")
    if len(wanted) > _MAX_OBJECTS:
        raise SearchMalformed(f"a search returns at most {_MAX_OBJECTS} objects")
    scope = (_text(values, "in") or "ALL").upper()
    if scope not in _SCOPES:
        raise SearchMalformed("in takes ALL, NAME, EMAIL, PHONE or SIDEBAR")
    if defaults and not wanted:
        raise SearchMalformed("fields need an object: name it with sobject")
    default_limit = _limit(values.get("defaultLimit"))
    escaped = _RESERVED.sub(r"\\\1", words)
    text = f"FIND {{{escaped}}} IN {scope} FIELDS"
    if wanted:
        text += " RETURNING " + ", ".join(item.render(defaults, default_limit) for item in wanted)
    overall = _limit(values.get("overallLimit"))
    return text if overall is None else f"{text} LIMIT {overall}"


def _text(values: Mapping[str, object], name: str) -> str:
    value = values.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise SearchMalformed(f"{name} must be text")
    return value


def _name(value: object) -> str:
    if not isinstance(value, str) or not is_api_name(value):
        raise SearchMalformed("each of sobjects needs the name of an object")
    return value


def _field_list(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    return _fields(value if isinstance(value, list) else [value])


def _fields(names: Sequence[object]) -> tuple[str, ...]:
    found = [name.strip() for name in names if isinstance(name, str)]
    if len(found) != len(names) or any(name and not _FIELD_PATH.fullmatch(name) for name in found):
        raise SearchMalformed("fields must be names of fields")
    return tuple(name for name in found if name)


def _limit(value: object) -> int | None:
    if value is None or value == "":
        return None
    limit = None if isinstance(value, bool) else try_parse_number(str(value))
    if limit is None:
        raise SearchMalformed("a limit must be a whole number")
    return min(limit, _MAX_LIMIT)
