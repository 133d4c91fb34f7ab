"""SOSL, the search language, as far as searching by words needs it.

    FIND {words} [IN ALL|NAME|EMAIL|PHONE|SIDEBAR FIELDS]
    [RETURNING Object [(fields [WHERE ...] [ORDER BY ...] [LIMIT n] [OFFSET n])], ...]
    [WITH ...] [LIMIT n] [UPDATE TRACKING|VIEWSTAT]

What the braces hold is in `search_terms.py`; what stands in brackets after an object is SOQL's own, and is parsed as
such. Of the WITH clauses those are accepted that only ask for more than the records, or that say what holds anyway;
those that would leave records out are errors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tidewire.errors import SearchMalformed
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, ObjectType
from tidewire.soql.ast import Query
from tidewire.soql.bound import BoundQuery
from tidewire.soql.condition_binder import conjuncts, join
from tidewire.soql.parser import parse_query
from tidewire.soql.search_terms import SearchWords, bind_words, parse_words
from tidewire.soql.tokens import UNSTORABLE

MAX_SEARCH_CHARS = 20_000
DEFAULT_LIMIT = 2_000

_FIND = re.compile(r"\s*FIND\s*\{((?:[^{}\\]|\\.)*)\}\s*", re.IGNORECASE | re.DOTALL)
_SCOPE = re.compile(r"IN\s+(ALL|NAME|EMAIL|PHONE|SIDEBAR)\s+FIELDS\b\s*", re.IGNORECASE)
_RETURNING = re.compile(r"RETURNING\s+", re.IGNORECASE)
_OBJECT = re.compile(r"([A-Za-z][A-Za-z0-9_]*)\s*")
_LIMIT = re.compile(r"LIMIT\s+(\d{1,9})\s*", re.IGNORECASE)
_FIELD_LIST_END = re.compile(r"\s+(?=(?:USING|WHERE|ORDER|LIMIT|OFFSET)\b)", re.IGNORECASE)
_WITH = re.compile(r"WITH\s+([A-Za-z_]+)\s*", re.IGNORECASE)
_ACCEPTED_WITH = {
    "SNIPPET": re.compile(r"(?:\(\s*target_length\s*=\s*\d{1,4}\s*\)\s*)?", re.IGNORECASE),
    "HIGHLIGHT": re.compile(""),
    "SPELL_CORRECTION": re.compile(r"=\s*(?:TRUE|FALSE)\b\s*", re.IGNORECASE),
    "USER_MODE": re.compile(""),
    "SYSTEM_MODE": re.compile(""),
}
_REFUSED_WITH = frozenset({"DIVISION", "DATA", "NETWORK", "PRICEBOOKID", "METADATA", "RECOMMENDED"})
_STATISTICS = re.compile(
    r"UPDATE\s+(?:TRACKING(?:\s*,\s*VIEWSTAT)?|VIEWSTAT(?:\s*,\s*TRACKING)?)\b\s*", re.IGNORECASE
)
_SCOPE_TYPES = {"EMAIL": FieldType.EMAIL, "PHONE": FieldType.PHONE}


@dataclass(frozen=True, slots=True)
class Search:
    """A search: its words, where to look, and what to return; no object means every one."""

    words: SearchWords
    scope: str = "ALL"
    returning: tuple[Query, ...] = ()
    limit: int = DEFAULT_LIMIT


def parse_search(text: str) -> Search:
    """Parse a search. Raises SearchMalformed, or SOQL's own error for what stands in brackets."""
    if len(text) > MAX_SEARCH_CHARS:
        raise SearchMalformed(f"SOSL statements can not be longer than {MAX_SEARCH_CHARS} characters")
    if UNSTORABLE.search(text):
        raise SearchMalformed("a search can not hold NUL or half of a surrogate pair")
    found = _FIND.match(text)
    if found is None:
        raise SearchMalformed("No search term found. The search term must be enclosed in braces.")
    rest = text[found.end() :]
    scope = "ALL"
    if match := _SCOPE.match(rest):
        scope, rest = match[1].upper(), rest[match.end() :]
    returning: tuple[Query, ...] = ()
    if match := _RETURNING.match(rest):
        returning, rest = _parse_returning(rest[match.end() :])
    rest = _skip_with(rest)
    limit = DEFAULT_LIMIT
    if match := _LIMIT.match(rest):
        limit, rest = min(int(match[1]), DEFAULT_LIMIT), rest[match.end() :]
    if match := _STATISTICS.match(rest):
        rest = rest[match.end() :]
    if rest.strip():
        raise SearchMalformed(f"unexpected text in search: {rest.strip()[:40]}")
    if len(returning) > 1 and any(query.offset is not None for query in returning):
        raise SearchMalformed("OFFSET needs a search that returns one object")
    return Search(parse_words(found[1]), scope, returning, limit)


def narrow(bound: BoundQuery, search: Search, searched: tuple[Field, ...]) -> BoundQuery | None:
    """Return a query that finds only records which match the search, or None if there is nothing to look in."""
    if not searched:
        return None
    found = bind_words(search.words, searched)
    where = found if bound.where is None else join([found, *conjuncts(bound.where)], is_all=True)
    limit = search.limit if bound.limit is None else min(bound.limit, search.limit)
    return replace(bound, where=where, limit=limit)


def searched_fields(obj: ObjectType, scope: str, hidden: frozenset[str]) -> tuple[Field, ...]:
    """Return the fields of an object that a search in this scope looks at."""
    if scope == "NAME":
        named = obj.name_field
        return (named,) if named is not None and named.is_text and named.name not in hidden else ()
    wanted = _SCOPE_TYPES.get(scope)
    return tuple(
        f
        for f in obj.stored_fields
        if f.is_text and f.name not in hidden and not f.is_system and (wanted is None or f.type is wanted)
    )


def _skip_with(text: str) -> str:
    """What follows the WITH clauses."""
    while match := _WITH.match(text):
        name = match[1].upper()
        value = _ACCEPTED_WITH[name].match(text, match.end()) if name in _ACCEPTED_WITH else None
        if value is None:
            is_known = name in _REFUSED_WITH
            raise SearchMalformed(
                f"WITH {name} is not supported" if is_known else f"unexpected text in search: {text[:40]}"
            )
        text = text[value.end() :]
    return text


def _parse_returning(text: str) -> tuple[tuple[Query, ...], str]:
    queries: list[Query] = []
    while True:
        match = _OBJECT.match(text)
        if match is None:
            raise SearchMalformed("an object is missing after RETURNING")
        entity, text = match[1], text[match.end() :]
        inner = "Id"
        if text.startswith("("):
            inner, text = _take_brackets(text)
        parts = _FIELD_LIST_END.split(inner.strip(), maxsplit=1)
        clauses = parts[1] if len(parts) > 1 else ""
        # SOQL text, not SQL: it goes through SOQL's own parser like any other query.
        queries.append(parse_query(f"SELECT {parts[0]} FROM {entity} {clauses}"))  # noqa: S608
        if not text.startswith(","):
            return tuple(queries), text
        text = text[1:].lstrip()


def _take_brackets(text: str) -> tuple[str, str]:
    """What stands between the first bracket and its match, strings respected, and what follows."""
    depth = 0
    is_quoted = False
    skip = False
    for place, char in enumerate(text):
        if skip:
            skip = False
        elif is_quoted:
            skip, is_quoted = char == "\\", char != "'"
        elif char == "'":
            is_quoted = True
        elif char in "()":
            depth += 1 if char == "(" else -1
            if depth == 0:
                return text[1:place], text[place + 1 :].lstrip()
    raise SearchMalformed("a bracket is not closed")
