"""The words of a search: what stands between the braces of FIND.

    acme               a word, with `*` for any characters and `?` for one
    "blue sky"         a phrase, as it stands
    a b, a AND b       both
    a AND NOT b        the first without the second
    a OR b             either; AND and AND NOT bind tighter
    (a OR b) AND c     parentheses first

Letter case of words and operators does not matter. A word is held against every searched field of a record, and
each of several words may be in another one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from tidewire.errors import SearchMalformed
from tidewire.schema.model import Field
from tidewire.schema.text_keys import fold_key
from tidewire.soql.bound import BoundCondition, BoundLike, BoundNot, Column
from tidewire.soql.condition_binder import join
from tidewire.soql.like import LikePart, Wildcard

MAX_WORDS = 50  # each is a condition on every searched field
MAX_DEPTH = 5  # parentheses; the databases' own parsers have no room for many
_SHORTEST_WORD = 2
_TOKEN = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([()])|((?:[^\s()"\\]|\\.)+))', re.DOTALL)
_BLANK = re.compile(r"\s*\Z")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_WILDCARD = re.compile(r"\\(.)|([*?])", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Words:
    """A word or phrase, as a run of texts and wildcards between which it may be cut."""

    parts: tuple[str | Wildcard, ...]


@dataclass(frozen=True, slots=True)
class Both:
    """All of at least two; one that is refused must not be found."""

    items: tuple[SearchWords, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Any of at least two."""

    items: tuple[SearchWords, ...]


@dataclass(frozen=True, slots=True)
class Without:
    """What must not be found; stands only beside something that must."""

    item: SearchWords


SearchWords = Words | Both | Either | Without


class _Token(NamedTuple):
    word: str  # in upper case if it may be an operator, else empty
    words: Words | None


def parse_words(text: str) -> SearchWords:
    """Parse the words and how they are joined. Raises SearchMalformed."""
    tokens = _tokens(text)
    found, rest = _parse_either(tokens, 0, 0)
    if rest < len(tokens):
        raise SearchMalformed("a parenthesis in the search term is not opened")
    return found


def bind_words(words: SearchWords, searched: tuple[Field, ...]) -> BoundCondition:
    """Return the condition that a record's fields hold the words."""
    return _bind(words, searched, is_negated=False)


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while _BLANK.match(text, position) is None:
        match = _TOKEN.match(text, position)
        if match is None:
            raise SearchMalformed("a quotation mark in the search term is not closed")
        phrase, bracket, word = match.groups()
        if phrase is not None:
            tokens.append(_Token("", _words((_ESCAPED.sub(r"\1", phrase),))))
        elif bracket or word.upper() in ("AND", "OR", "NOT"):
            tokens.append(_Token((bracket or word).upper(), None))
        else:
            tokens.append(_Token("", _words(_parts_of(word))))
        position = match.end()
    if sum(token.words is not None for token in tokens) > MAX_WORDS:
        raise SearchMalformed(f"a search term can not have more than {MAX_WORDS} words")
    return tokens


def _parts_of(word: str) -> tuple[str | Wildcard, ...]:
    parts: list[str | Wildcard] = []
    text = ""
    position = 0
    for match in _WILDCARD.finditer(word):
        text += word[position : match.start()] + (match[1] or "")
        position = match.end()
        if match[2]:
            parts += [text] if text else []
            parts.append(Wildcard.ONE if match[2] == "?" else Wildcard.ANY)
            text = ""
    text += word[position:]
    return (*parts, text) if text else tuple(parts)


def _words(parts: tuple[str | Wildcard, ...]) -> Words:
    if sum(len(part) for part in parts if isinstance(part, str)) < _SHORTEST_WORD:
        raise SearchMalformed("search term must be longer than one character")
    return Words(parts)


def _parse_either(tokens: list[_Token], place: int, depth: int) -> tuple[SearchWords, int]:
    if depth > MAX_DEPTH:
        raise SearchMalformed(f"parentheses in a search term nest more than {MAX_DEPTH} deep")
    items: list[SearchWords] = []
    while True:
        item, place = _parse_both(tokens, place, depth)
        items.append(item)
        if place == len(tokens) or tokens[place].word != "OR":
            return (items[0] if len(items) == 1 else Either(tuple(items))), place
        place += 1


def _parse_both(tokens: list[_Token], place: int, depth: int) -> tuple[SearchWords, int]:
    item, place = _parse_one(tokens, place, depth)
    items = [item]
    while place < len(tokens) and tokens[place].word not in ("OR", ")"):
        is_joined = tokens[place].word == "AND"
        place += is_joined
        is_without = is_joined and place < len(tokens) and tokens[place].word == "NOT"
        item, place = _parse_one(tokens, place + is_without, depth)
        items.append(Without(item) if is_without else item)
    return (items[0] if len(items) == 1 else Both(tuple(items))), place


def _parse_one(tokens: list[_Token], place: int, depth: int) -> tuple[SearchWords, int]:
    if place == len(tokens):
        raise SearchMalformed("search term must be longer than one character")
    token = tokens[place]
    if token.words is not None:
        return token.words, place + 1
    if token.word != "(":
        reason = "NOT stands only after AND" if token.word == "NOT" else f"unexpected {token.word}"
        raise SearchMalformed(f"{reason} in the search term")
    found, place = _parse_either(tokens, place + 1, depth + 1)
    if place == len(tokens):
        raise SearchMalformed("a parenthesis in the search term is not closed")
    return found, place + 1


def _bind(words: SearchWords, searched: tuple[Field, ...], *, is_negated: bool) -> BoundCondition:
    match words:
        case Without(item):
            return _bind(item, searched, is_negated=not is_negated)
        case Both(items) | Either(items):
            bound = [_bind(item, searched, is_negated=is_negated) for item in items]
            return join(bound, is_all=isinstance(words, Both) is not is_negated)
        case Words(parts):
            likes = [BoundLike(Column(each), _pattern(each, parts)) for each in searched]
            tests: list[BoundCondition] = [BoundNot(like) if is_negated else like for like in likes]
            return tests[0] if len(tests) == 1 else join(tests, is_all=is_negated)


def _pattern(field: Field, parts: tuple[str | Wildcard, ...]) -> tuple[LikePart, ...]:
    """Return the parts anywhere in a field's text."""
    pattern: list[LikePart] = [Wildcard.ANY]
    for part in (*parts, Wildcard.ANY):
        if isinstance(part, str):
            pattern.append(fold_key(part, case_sensitive=field.case_sensitive))
        elif part is Wildcard.ONE or pattern[-1] is not Wildcard.ANY:
            pattern.append(part)
    return tuple(pattern)
