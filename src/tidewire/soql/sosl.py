"""SOSL, the search language, as far as searching by words needs it.

    FIND {words} [IN ALL|NAME|EMAIL|PHONE|SIDEBAR FIELDS]
    [RETURNING Object [(fields [WHERE ...] [ORDER BY ...] [LIMIT n])], ...] [LIMIT n]

Words are held against the text fields of a record: each word of a phrase in some field, `*` and `?` as wildcards, a
quoted phrase as it stands, OR between alternatives. What stands in brackets after an object is SOQL's own, and
is parsed as such.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tidewire.errors import SearchMalformed
from tidewire.schema.folding import fold_key
from tidewire.schema.model import Field, FieldType, ObjectType
from tidewire.soql.ast import Query
from tidewire.soql.bound import BoundAnd, BoundCondition, BoundLike, BoundOr, BoundQuery, Column
from tidewire.soql.condition_binder import conjuncts
from tidewire.soql.like import LikePart, Wildcard
from tidewire.soql.parser import parse_query

MAX_SEARCH_CHARS = 20_000
DEFAULT_LIMIT = 2_000
_SHORTEST_WORD = 2

_FIND = re.compile(r"\s*FIND\s*\{((?:[^{}\\]|\\.)*)\}\s*", re.IGNORECASE | re.DOTALL)
_SCOPE = re.compile(r"IN\s+(ALL|NAME|EMAIL|PHONE|SIDEBAR)\s+FIELDS\b\s*", re.IGNORECASE)
_RETURNING = re.compile(r"RETURNING\s+", re.IGNORECASE)
_OBJECT = re.compile(r"([A-Za-z][A-Za-z0-9_]*)\s*")
_LIMIT = re.compile(r"LIMIT\s+(\d{1,9})\s*", re.IGNORECASE)
_FIELD_LIST_END = re.compile(r"\s+(?=(?:WHERE|ORDER|LIMIT|OFFSET)\b)", re.IGNORECASE)
_WORD = re.compile(r'"([^"]*)"|(\S+)')
_SCOPE_TYPES = {"EMAIL": FieldType.EMAIL, "PHONE": FieldType.PHONE}


@dataclass(frozen=True, slots=True)
class Search:
    """A search: alternatives of words, where to look, and what to return; no object means every one."""

    alternatives: tuple[tuple[str, ...], ...]
    scope: str = "ALL"
    returning: tuple[Query, ...] = ()
    limit: int = DEFAULT_LIMIT


def parse_search(text: str) -> Search:
    """Take a search apart. Raises SearchMalformed, or SOQL's own error for what stands in brackets."""
    if len(text) > MAX_SEARCH_CHARS:
        raise SearchMalformed(f"SOSL statements can not be longer than {MAX_SEARCH_CHARS} characters")
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
    limit = DEFAULT_LIMIT
    if match := _LIMIT.match(rest):
        limit, rest = min(int(match[1]), DEFAULT_LIMIT), rest[match.end() :]
    if rest.strip():
        raise SearchMalformed(f"unexpected text in search: {rest.strip()[:40]}")
    return Search(_parse_words(re.sub(r"\\(.)", r"\1", found[1])), scope, returning, limit)


def narrow(bound: BoundQuery, search: Search, searched: tuple[Field, ...]) -> BoundQuery | None:
    """A query that finds only records which match the search, or None if there is nothing to look in."""
    if not searched:
        return None
    matches = [_all_words(words, searched) for words in search.alternatives]
    found: BoundCondition = matches[0] if len(matches) == 1 else BoundOr(tuple(matches))
    others = conjuncts(bound.where)
    where = found if not others else BoundAnd((*conjuncts(found), *others))
    limit = search.limit if bound.limit is None else min(bound.limit, search.limit)
    return replace(bound, where=where, limit=limit)


def searched_fields(obj: ObjectType, scope: str, hidden: frozenset[str]) -> tuple[Field, ...]:
    """The fields of an object that a search in this scope looks at."""
    if scope == "NAME":
        named = obj.name_field
        return (named,) if named is not None and named.is_text and named.name not in hidden else ()
    wanted = _SCOPE_TYPES.get(scope)
    return tuple(
        f
        for f in obj.stored_fields
        if f.is_text and f.name not in hidden and not f.is_system and (wanted is None or f.type is wanted)
    )


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


def _parse_words(text: str) -> tuple[tuple[str, ...], ...]:
    alternatives: list[list[str]] = [[]]
    for quoted, plain in _WORD.findall(text):
        if plain.upper() == "OR":
            alternatives.append([])
        elif plain.upper() == "NOT":
            raise SearchMalformed("NOT is not supported in searches")
        elif plain.upper() != "AND":
            alternatives[-1].append(quoted or plain)
    for words in alternatives:
        if not words or any(len(word.strip("*?")) < _SHORTEST_WORD for word in words):
            raise SearchMalformed("search term must be longer than one character")
    return tuple(tuple(words) for words in alternatives)


def _all_words(words: tuple[str, ...], searched: tuple[Field, ...]) -> BoundCondition:
    conditions = [_any_field(word, searched) for word in words]
    return conditions[0] if len(conditions) == 1 else BoundAnd(tuple(conditions))


def _any_field(word: str, searched: tuple[Field, ...]) -> BoundCondition:
    conditions = [BoundLike(Column(f), _parts(word, case_sensitive=f.case_sensitive)) for f in searched]
    return conditions[0] if len(conditions) == 1 else BoundOr(tuple(conditions))


def _parts(word: str, *, case_sensitive: bool) -> tuple[LikePart, ...]:
    parts: list[LikePart] = [Wildcard.ANY]
    for run in re.split(r"([*?])", word):
        if run == "?":
            parts.append(Wildcard.ONE)
        elif run == "*":
            if parts[-1] is not Wildcard.ANY:
                parts.append(Wildcard.ANY)
        elif run:
            parts.append(fold_key(run, case_sensitive=case_sensitive))
    if parts[-1] is not Wildcard.ANY:
        parts.append(Wildcard.ANY)
    return tuple(parts)
